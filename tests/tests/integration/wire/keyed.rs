//! Keyed calls at two replicas of one store of results, and at two with a store each: what counts is
//! what stands in the data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bowline_client::core::{Delay, HedgePolicy, Policy, Stagger, TiePolicy};
use bowline_client::{Client, Config, Replica};
use bowline_protocol::{Method, MethodInfo, ReplicaId, ServiceInfo};
use bowline_runtime::{Duration, Runtime, timeout, yield_now};
use bowline_server::io::Running;
use bowline_server::io::once::Ledger;
use bowline_server::{Context, Failure, Payload, Service};

use super::{config, serve};
use crate::PATIENCE;

/// Adds one to the sum, once for each key, and answers with it.
const ADD: Method = Method(1);
const METHODS: &[MethodInfo] = &[MethodInfo::new(ADD, "add").keyed().duplicable(1 << 10)];

#[derive(Clone)]
struct Adder {
    ledger: Ledger,
    /// The first replica answers only when the second has.
    first: bool,
    answered: Arc<AtomicBool>,
    runs: Arc<AtomicU64>,
}

impl Service for Adder {
    type Reply = Vec<u8>;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("adder", METHODS)
    }

    async fn call(&self, context: Context, _: Payload) -> Result<Vec<u8>, Failure> {
        self.runs.fetch_add(1, Relaxed);
        let sum = context.once(&self.ledger, |data| {
            let before = data.get(b"sum")?.and_then(|bytes| bytes.try_into().ok());
            let sum = before.map_or(0, u64::from_le_bytes) + 1;
            data.put(b"sum", &sum.to_le_bytes());
            Ok(sum.to_le_bytes().to_vec())
        });
        let sum = sum.await?;
        while self.first && !self.answered.load(Relaxed) && !context.is_cancelled() {
            yield_now().await;
        }
        self.answered.store(true, Relaxed);
        Ok(sum)
    }
}

struct World {
    ledgers: [Ledger; 2],
    answered: Arc<AtomicBool>,
    runs: Arc<AtomicU64>,
    servers: [Running; 2],
    shared: bool,
}

impl World {
    fn new(shared: bool) -> World {
        let ledger = Ledger::in_memory();
        let other = if shared { ledger.clone() } else { Ledger::in_memory() };
        let (answered, runs) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let ledgers = [ledger, other];
        let servers = [0, 1].map(|id: u16| {
            let ledger = ledgers[usize::from(id)].clone();
            let (answered, runs) = (answered.clone(), runs.clone());
            let adder = Adder { ledger, first: id == 0, answered, runs };
            serve(adder, |builder| builder.replica(ReplicaId(id)).shared_results(shared))
        });
        World { ledgers, answered, runs, servers, shared }
    }

    fn config(&self) -> Config {
        let replica = |(id, server): (usize, &Running)| {
            let replica = Replica::new(id as u16, server.address());
            if self.shared { replica.results("one") } else { replica }
        };
        let mut all = config(&self.servers[0]);
        all.replicas = self.servers.iter().enumerate().map(replica).collect();
        all.core.pick = bowline_client::core::PickRule::First;
        all
    }

    /// Makes a call, and returns the sum and how many copies it had.
    fn add(&self, policy: Policy) -> (u64, u8) {
        let mut added = (0, 0);
        Runtime::builder().build().expect("a runtime").block_on(async {
            let client = Client::connect(self.config()).await.expect("both are there");
            let policy = client.register(policy).expect("a policy");
            let call = client.call(ADD, b"x").key(77).policy(policy).deadline(PATIENCE);
            let reply = timeout(2 * PATIENCE, call.into_future()).await.expect("it hangs");
            let reply = reply.expect("it is added");
            let sum = reply[..].try_into().map(u64::from_le_bytes).expect("a sum");
            added = (sum, reply.outcome().attempts);
        });
        added
    }
}

fn hedged() -> Policy {
    let delay = Delay::Fixed(Duration::from_millis(1));
    Policy::Hedged(HedgePolicy { delay, ..HedgePolicy::default() })
}

fn tied() -> Policy {
    let stagger = Stagger::Fixed(Duration::ZERO);
    Policy::Tied(TiePolicy { stagger, ..TiePolicy::default() })
}

#[test]
fn a_hedged_write_has_its_effect_once_in_the_store_that_both_share() {
    let world = World::new(true);
    assert_eq!(world.add(hedged()), (1, 2), "the second copy answered");
    assert_eq!(world.runs.load(Relaxed), 2, "and both ran");
    let stats = world.ledgers[0].stats();
    assert_eq!((stats.effects, stats.prevented), (1, 1));
    // The next has the same key: one of its copies is told the result.
    assert_eq!(world.add(hedged()).0, 1);
}

#[test]
fn a_tied_write_has_its_effect_once_in_the_store_that_both_share() {
    let world = World::new(true);
    // Both may start: they have no mesh. Who answers first does not matter then.
    world.answered.store(true, Relaxed);
    let (sum, copies) = world.add(tied());
    assert_eq!((sum, copies), (1, 2));
    assert_eq!(world.ledgers[0].stats().effects, 1);
}

#[test]
fn with_a_store_each_it_has_one_copy() {
    for policy in [hedged(), tied()] {
        let world = World::new(false);
        world.answered.store(true, Relaxed);
        assert_eq!(world.add(policy), (1, 1));
        assert_eq!(world.ledgers.each_ref().map(|ledger| ledger.stats().effects), [1, 0]);
    }
}
