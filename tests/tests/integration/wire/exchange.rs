//! One of everything that is said on the wire, between real shells. It is a test of its own, and what
//! is captured while it runs shows whether others can read it.

use std::future::IntoFuture;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bowline_client::core::{Delay, HedgePolicy, PickRule, Policy, Stagger, TiePolicy};
use bowline_client::{Client, Config, Replica};
use bowline_protocol::{
    Credit, ErrorKind, Label, Method, MethodInfo, ReplicaId, ServiceInfo, TraceContext,
    TrafficClass,
};
use bowline_runtime::{JoinHandle, sleep, spawn};
use bowline_server::io::{Limits, Running};
use bowline_server::{Context, Failure, Payload, Server, Service};

use super::run;
use crate::PATIENCE;

/// Answers at once, with the payload turned round.
const TURN: Method = Method(1);
/// The same, when the test lets it.
const HOLD: Method = Method(2);
const METHODS: &[MethodInfo] = &[
    MethodInfo::new(TURN, "turn").idempotent().duplicable(1 << 20),
    MethodInfo::new(HOLD, "hold").idempotent().duplicable(1 << 20),
];
/// In two segments, each way.
const LARGE: usize = 40_000;

/// What the test lets a replica do.
#[derive(Clone, Default)]
struct Gate(Arc<Counts>);

#[derive(Default)]
struct Counts {
    /// So many held calls may end.
    let_go: AtomicU64,
    held: AtomicU64,
}

impl Gate {
    fn let_one_go(&self) {
        self.0.let_go.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns when so many were held since the beginning.
    async fn holds(&self, many: u64) {
        while self.0.held.load(Ordering::SeqCst) < many {
            sleep(Duration::from_micros(200)).await;
        }
    }
}

impl Service for Gate {
    type Reply = Payload;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("gate", METHODS)
    }

    async fn call(&self, context: Context, mut request: Payload) -> Result<Payload, Failure> {
        if context.method() == HOLD {
            let number = self.0.held.fetch_add(1, Ordering::SeqCst);
            while self.0.let_go.load(Ordering::SeqCst) <= number {
                if context.is_cancelled() {
                    self.let_one_go();
                    return Err(Failure::stopped());
                }
                sleep(Duration::from_micros(200)).await;
            }
        }
        context.label_reply(Label::new("fresh"));
        request.as_mut().reverse();
        Ok(request)
    }
}

/// Of this process alone, so that no two ever want the same.
fn address(replica: u16) -> SocketAddr {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    (Ipv4Addr::new(127, a | 128, b, c), 7200 + replica).into()
}

/// A replica that runs one call at a time and lets two wait.
fn replica(id: u16, peers: &[u16], gate: &Gate) -> Running {
    let limits = Limits {
        slots: 1,
        queue_requests: 2,
        credit: Credit { requests: 4, bytes: 1 << 20 },
        request_bytes: 1 << 18,
        ..Limits::default()
    };
    Server::builder()
        .replica(ReplicaId(id))
        .listen(address(id))
        .peers(peers.iter().map(|&peer| (ReplicaId(peer), address(peer).into())))
        .limits(limits)
        .start(gate.clone())
        .expect("a server")
}

fn whole(server: &Running) {
    let end = Instant::now() + PATIENCE;
    while server.control().snapshot().mesh_up < 1 {
        assert!(Instant::now() < end, "the mesh never became whole");
        std::thread::yield_now();
    }
}

fn client_of(replicas: &[u16]) -> Config {
    let mut config = Config::new(replicas.iter().map(|&id| Replica::new(id, address(id))));
    config.core.pick = PickRule::First;
    config.core.retry = None;
    config.connect_wait = PATIENCE;
    config
}

fn held(client: &Client, policy: Policy) -> JoinHandle<()> {
    let policy = client.register(policy).expect("a sound policy");
    let call = client.call(HOLD, b"held").policy(policy).deadline(PATIENCE).idempotent();
    spawn(async move {
        assert_eq!(&call.into_future().await.expect("a reply")[..], b"dleh");
    })
}

fn tied() -> Policy {
    Policy::Tied(TiePolicy { stagger: Stagger::Fixed(Duration::ZERO), ..TiePolicy::default() })
}

fn hedged() -> Policy {
    let delay = Delay::Fixed(Duration::from_millis(2));
    Policy::Hedged(HedgePolicy { delay, auto_off: None, ..HedgePolicy::default() })
}

/// Plain calls: short, with options, in segments.
async fn plain(client: &Client) {
    client.call(TURN, b"block 9").deadline(PATIENCE).await.expect("a reply");
    let trace = TraceContext { trace: [0xab; 16], parent: [0xcd; 8], flags: 1 };
    let call = client.call(TURN, b"block 10").key(7).class(TrafficClass(0)).trace(trace);
    let reply = call.label(Label::new("tenant-9")).deadline(PATIENCE).await.expect("a reply");
    assert_eq!(reply.label(), Some("fresh"));
    let reply = client.call(TURN, vec![7; LARGE]).deadline(PATIENCE).await.expect("a reply");
    assert_eq!(reply.len(), LARGE);
}

/// Both replicas are busy, the second by a hedge; a tied call waits at both, and the second, which
/// comes free first, has it.
async fn tie(client: &Client, gates: [&Gate; 2]) {
    let [one, two] = gates;
    let before = gates.map(|gate| gate.0.held.load(Ordering::SeqCst));
    let busy = held(client, Policy::None);
    one.holds(before[0] + 1).await;
    let also_busy = held(client, hedged());
    two.holds(before[1] + 1).await;
    let call = held(client, tied());
    while client.counters().tied == 0 {
        sleep(Duration::from_micros(200)).await;
    }
    two.let_one_go();
    also_busy.await.expect("no panic");
    two.holds(before[1] + 2).await;
    two.let_one_go();
    call.await.expect("no panic");
    one.let_one_go();
    busy.await.expect("no panic");
}

#[test]
fn one_of_everything_is_said_and_understood() {
    let gates = [Gate::default(), Gate::default(), Gate::default()];
    let [a, b, c] = [
        replica(0, &[1], &gates[0]),
        replica(1, &[0], &gates[1]),
        // This one knows no other, and so has its clients relay.
        replica(2, &[], &gates[2]),
    ];
    whole(&a);
    whole(&b);
    run(client_of(&[0, 1]), async |client| {
        plain(&client).await;
        tie(&client, [&gates[0], &gates[1]]).await;
        assert!(client.counters().hedges > 0);
        assert!(client.counters().withdrawn > 0);
    });
    run(client_of(&[0, 2]), async |client| {
        tie(&client, [&gates[0], &gates[2]]).await;
        assert_eq!(client.counters().relayed, 1);
    });
    run(client_of(&[2]), async |client| {
        full(&client, &gates[2]).await;
        // It is told, and there until all have gone.
        c.control().shut_down(PATIENCE);
        while !c.control().collect().is_empty() {
            sleep(Duration::from_micros(200)).await;
        }
    });
}

/// More calls than run and wait: one is refused. And one is given up while it runs.
async fn full(client: &Client, gate: &Gate) {
    let before = gate.0.held.load(Ordering::SeqCst);
    let first = held(client, Policy::None);
    gate.holds(before + 1).await;
    let others = [(); 2].map(|()| held(client, Policy::None));
    while client.counters().live < 3 {
        sleep(Duration::from_micros(200)).await;
    }
    let refused = client.call(HOLD, b"held").deadline(PATIENCE).await.unwrap_err();
    assert_eq!(refused.error().kind, ErrorKind::Overloaded);
    first.abort();
    while client.counters().aborted == 0 {
        sleep(Duration::from_micros(200)).await;
    }
    for other in others {
        gate.let_one_go();
        other.await.expect("no panic");
    }
}
