//! Freshness, from the caller to what a replica holds and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bowline_client::core::{Policy, Stagger, TiePolicy};
use bowline_client::{Client, Config, Remote, Replica};
use bowline_protocol::{
    ErrorKind, Executed, Freshness, Method, MethodInfo, ReplicaId, ServiceInfo,
};
use bowline_runtime::{Duration, Runtime, timeout};
use bowline_server::io::{Holding, Running};
use bowline_server::{Context, Failure, Payload, Service};

use super::{config, serve};
use crate::PATIENCE;

/// Reads what the replica holds.
const READ: Method = Method(1);
/// As that, but from a copy that is of version 1 for ever, and says so.
const READ_OLD: Method = Method(2);
/// Writes, and says which version that was.
const WRITE: Method = Method(3);

const METHODS: &[MethodInfo] = &[
    MethodInfo::new(READ, "read").idempotent().duplicable(1 << 10),
    MethodInfo::new(READ_OLD, "read old").idempotent(),
    MethodInfo::new(WRITE, "write"),
];

/// Of which version a replica is, and how often it was asked to read.
#[derive(Clone, Default)]
struct Log {
    version: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

impl Service for Log {
    type Reply = Vec<u8>;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("log", METHODS)
    }

    async fn call(&self, context: Context, _: Payload) -> Result<Vec<u8>, Failure> {
        match context.method() {
            WRITE => {
                let version = self.version.fetch_add(1, Relaxed) + 1;
                context.date_reply(Freshness::version(version));
            }
            READ_OLD => context.date_reply(Freshness::version(1)),
            _ => drop(self.reads.fetch_add(1, Relaxed)),
        }
        Ok(self.version.load(Relaxed).to_le_bytes().to_vec())
    }
}

/// A leader and a follower that is behind.
struct World {
    logs: [Log; 2],
    servers: [Running; 2],
}

impl World {
    fn new() -> World {
        let logs = [Log::default(), Log::default()];
        let number =
            |id| move |builder: bowline_server::io::Builder| builder.replica(ReplicaId(id));
        let servers = [0, 1].map(|at| {
            let log = logs[usize::from(at)].clone();
            let version = log.version.clone();
            // Version 0 would say that nothing is known, and leave all to the handlers.
            version.store(1, Relaxed);
            let held = move || {
                let version = version.load(Relaxed);
                Some(Freshness { version, staleness: Duration::from_millis(30) })
            };
            serve(Holding(log, held), number(at))
        });
        World { logs, servers }
    }

    fn config(&self) -> Config {
        let replicas = self.servers.iter().enumerate();
        let replicas = replicas.map(|(id, server)| Replica::new(id as u16, server.address()));
        let mut all = config(&self.servers[0]);
        all.replicas = replicas.collect();
        all.core.pick = bowline_client::core::PickRule::First;
        // What a replica said counts to the end of the test.
        all.core.load_lifetime = Duration::from_secs(3600);
        all
    }

    fn reads(&self) -> [u64; 2] {
        [0, 1].map(|at: usize| self.logs[at].reads.load(Relaxed))
    }
}

fn run<F: Future<Output = ()>>(config: Config, test: impl FnOnce(Client) -> F) {
    Runtime::builder().build().expect("a runtime").block_on(async {
        let client = Client::connect(config).await.expect("both are there");
        timeout(2 * PATIENCE, test(client)).await.expect("the test hangs");
    });
}

#[test]
fn who_wrote_reads_what_they_wrote_and_no_replica_that_is_behind_runs_for_it() {
    let world = World::new();
    world.logs[0].version.store(1, Relaxed);
    world.logs[1].version.store(7, Relaxed);
    run(world.config(), async |client| {
        let read = async |asked| {
            let call = client.call(READ, b"x").idempotent().at_least(asked).deadline(PATIENCE);
            call.await.expect("one has it")
        };
        // The one that is asked first is behind, and nobody knows that yet.
        let asked = 7;
        let reply = read(asked).await;
        assert_eq!(reply.outcome().winner.expect("one answered").replica, ReplicaId(1));
        assert_eq!(reply.freshness().map(|fresh| fresh.version), Some(7));
        assert_eq!(reply.outcome().attempts, 2, "the other refused");
        assert_eq!(world.reads(), [0, 1], "and did not run it");
        assert_eq!(read(asked).await.outcome().attempts, 1, "now it is known to be behind");
        assert_eq!(client.counters().stale, 1);

        let reply = client.call(WRITE, b"x").deadline(PATIENCE).await.expect("it is written");
        let written = reply.version().expect("a write says its version");
        assert_eq!(written, 2);
        let own = read(written).await;
        assert_eq!(own.outcome().winner.expect("one answered").replica, ReplicaId(0));
        assert!(own.version() >= Some(written));
    });
    assert_eq!(world.servers[0].control().snapshot().copies.rejected_stale, 1);
}

#[test]
fn a_call_that_nobody_is_fresh_enough_for_says_so_whatever_its_policy() {
    let world = World::new();
    let stagger = Stagger::Fixed(Duration::ZERO);
    let tied = Policy::Tied(TiePolicy { stagger, ..TiePolicy::default() });
    for policy in [Policy::None, Policy::hedged(), tied] {
        run(world.config(), async |client| {
            let policy = client.register(policy).expect("a policy");
            let read = || client.call(READ, b"x").idempotent().policy(policy);
            let stale = Duration::from_millis(29);
            for call in [read().at_least(9), read().at_most_stale(stale)] {
                let error = *call.await.expect_err("nobody has that").error();
                assert_eq!((error.kind, error.executed), (ErrorKind::Stale, Executed::No));
            }
            assert!(read().at_most_stale(Duration::from_secs(1)).await.is_ok());
        });
    }
    assert!(world.servers.iter().all(|server| server.control().snapshot().copies.reconcile()));
}

#[test]
fn a_handler_that_answers_from_something_older_is_believed() {
    let world = World::new();
    run(world.config(), async |client| {
        world.logs.iter().for_each(|log| log.version.store(5, Relaxed));
        let call = client.call(READ_OLD, b"x").idempotent().at_least(2);
        let error = *call.await.expect_err("it is of version 1").error();
        assert_eq!((error.kind, error.executed), (ErrorKind::Stale, Executed::Yes));
        let call = client.call(READ_OLD, b"x").idempotent().at_least(1);
        assert_eq!(call.await.expect("it is").freshness(), Some(Freshness::version(1)));
    });
}

#[test]
fn who_makes_do_with_an_older_result_gets_the_best_there_is_and_is_told() {
    let world = World::new();
    world.logs.iter().for_each(|log| log.version.store(5, Relaxed));
    run(world.config(), async |client| {
        let older = |method, asked| {
            client.call(method, b"x").idempotent().at_least(asked).deadline(PATIENCE).or_older()
        };
        let reply = older(READ, 5).await.expect("both have it");
        assert!(!reply.is_older());
        let reply = older(READ_OLD, 3).await.expect("both ran it, and are of version 1");
        assert_eq!((reply.is_older(), reply.version()), (true, Some(1)));
        assert_eq!(reply.outcome().attempts, 2);
        world.logs.iter().for_each(|log| log.reads.store(0, Relaxed));
        let reply = older(READ, 9).await.expect("both refused, and one ran it then");
        assert_eq!((reply.is_older(), reply.version()), (true, Some(5)));
        assert_eq!(world.reads(), [1, 0]);
    });
}

#[test]
fn a_typed_read_is_told_its_version_beside_its_value() {
    bowline_protocol::service! {
        mod log("log") with bowline_protocol::service::Raw {
            1 => read(()) -> Vec<u8> { idempotent, duplicable: 1024 };
        }
    }
    let world = World::new();
    world.logs[0].version.store(3, Relaxed);
    run(world.config(), async |client| {
        let client = client.with(|call| call.deadline(PATIENCE).at_most_stale(PATIENCE));
        let stub = log::Client(bowline_protocol::service::WithReply(client));
        let (value, reply) = stub.read(&()).await.expect("a version");
        assert_eq!((value, reply.version()), (3u64.to_le_bytes().to_vec(), Some(3)));
    });
}

#[test]
fn it_goes_the_same_way_by_a_handle_of_another_thread() {
    let world = World::new();
    world.logs[1].version.store(7, Relaxed);
    let cores = Runtime::builder().cores([0], |_| std::future::pending::<()>()).expect("a core");
    let executor = tokio::runtime::Builder::new_current_thread().enable_time().build();
    executor.expect("an executor").block_on(async {
        let client =
            Remote::connect(cores.handles(), world.config()).await.expect("both are there");
        let read = client.call(READ, *b"x").idempotent().at_least(7).await;
        let read = read.expect("one has it");
        assert_eq!(read.fresh.map(|fresh| fresh.version), Some(7));
    });
}
