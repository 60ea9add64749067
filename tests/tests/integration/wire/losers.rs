//! What becomes of the copies that lose: the winner's payload is not theirs, and what they waited for
//! they wait for no more.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bowline_client::core::{Delay, HedgePolicy, Policy, Stagger, TiePolicy};
use bowline_client::{Client, Config, Replica};
use bowline_protocol::{Method, MethodInfo, ReplicaId, ServiceInfo};
use bowline_runtime::{Duration, spawn, timeout, yield_now};
use bowline_server::core::Stats;
use bowline_server::io::Running;
use bowline_server::{Context, Failure, Payload, Service};

use super::{config, run, serve};
use crate::PATIENCE;

/// Answers with a large block, made of the request's one byte.
const READ: Method = Method(1);
/// Holds its slot until the test lets it go.
const HOLD: Method = Method(2);

const METHODS: &[MethodInfo] = &[
    MethodInfo::new(READ, "read").idempotent().duplicable(1 << 10),
    MethodInfo::new(HOLD, "hold"),
];

/// Far more than goes out in one piece.
const BLOCK: usize = 512 << 10;

#[derive(Clone, Default)]
struct Reader {
    open: Arc<AtomicBool>,
}

impl Service for Reader {
    type Reply = Vec<u8>;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("reader", METHODS)
    }

    async fn call(&self, context: Context, request: Payload) -> Result<Vec<u8>, Failure> {
        while context.method() == HOLD && !self.open.load(Relaxed) {
            yield_now().await;
        }
        Ok(block(request[0]))
    }
}

/// No two places of it are alike, nor any two blocks.
fn block(number: u8) -> Vec<u8> {
    let mix = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29;
    (0..BLOCK as u64).map(|at| mix(at + u64::from(number)) as u8).collect()
}

/// Two replicas, of which the first has one slot.
fn servers(reader: &Reader) -> [Running; 2] {
    [(0, 1), (1, 4)].map(|(id, slots)| {
        serve(reader.clone(), |builder| builder.replica(ReplicaId(id)).slots(slots))
    })
}

fn both(servers: &[Running; 2]) -> Config {
    let mut both = config(&servers[0]);
    let replicas = (0..).zip(servers);
    both.replicas = replicas.map(|(id, server)| Replica::new(id, server.address())).collect();
    both.core.pick = bowline_client::core::PickRule::First;
    both
}

async fn until(what: impl AsyncFn() -> bool) {
    let wait = async {
        while !what().await {
            yield_now().await;
        }
    };
    timeout(PATIENCE, wait).await.expect("it never came to that");
}

fn hedged(delay: Duration) -> Policy {
    Policy::Hedged(HedgePolicy { delay: Delay::Fixed(delay), ..HedgePolicy::default() })
}

fn tied() -> Policy {
    let stagger = Stagger::Fixed(Duration::ZERO);
    Policy::Tied(TiePolicy { stagger, ..TiePolicy::default() })
}

/// Many calls with two copies, each of which runs and answers in many pieces; the reply that comes
/// second is cut off wherever it is. All replies are kept until every loser has ended.
async fn kept_until_all_losers_have_ended(client: &Client, policy: Policy) {
    let policy = client.register(policy).expect("a policy");
    let mut replies = Vec::new();
    for number in 0..40 {
        let call = client.call(READ, [number]).idempotent().policy(policy).deadline(PATIENCE);
        replies.push(call.await.expect("a block"));
    }
    until(async || client.counters().live == 0).await;
    for (number, reply) in (0..).zip(&replies) {
        assert!(reply[..] == block(number), "block {number} is not what it was");
    }
}

#[test]
fn the_winner_s_payload_is_whole_when_all_losers_have_been_cancelled_and_have_ended() {
    let reader = Reader::default();
    let servers = servers(&reader);
    run(both(&servers), async |client| {
        for policy in [hedged(Duration::ZERO), tied()] {
            kept_until_all_losers_have_ended(&client, policy).await;
        }
        let counters = client.counters();
        assert!(counters.attempts > counters.calls, "there were losers: {counters:?}");
    });
}

#[test]
fn a_loser_that_waits_is_taken_out_of_its_queue_and_never_runs() {
    let reader = Reader::default();
    let servers = servers(&reader);
    let first = servers[0].control();
    run(both(&servers), async |client| {
        let stats = async || -> Stats { first.snapshot_soon().await.copies };
        let hold = spawn(client.call(HOLD, [0]).deadline(2 * PATIENCE).into_future());
        until(async || stats().await.running == 1).await;
        let policy = client.register(hedged(Duration::from_millis(1))).expect("a policy");
        let call = client.call(READ, [7]).idempotent().policy(policy).deadline(PATIENCE);
        let reply = call.await.expect("the other replica answers");
        assert_eq!(reply.outcome().winner.expect("a winner").replica, ReplicaId(1));
        until(async || stats().await.withdrawn_by_caller == 1).await;
        let left = stats().await;
        assert_eq!((left.queued, left.running, left.started), (0, 1, 1), "only the one that holds");
        assert_eq!((left.cancels_withdrew, left.cancels_received), (1, 1));
        reader.open.store(true, Relaxed);
        assert!(hold.await.is_ok());
    });
}
