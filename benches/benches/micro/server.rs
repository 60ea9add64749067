//! A copy in the server's machine: taken on, queued, started, answered or withdrawn.

use core::time::Duration;

use bowline_protocol::{
    Attempt, Cancel, CancelReason, Cause, ClientId, Method, OptionSet, ReplicaId, Request, Seq,
    Station, Status, Tie, Twin,
};
use bowline_server::core::{Config, Conn, CopyKey, Core, Effect, MethodRule, Origin};
use bowline_time::Instant;
use criterion::{BenchmarkId, Criterion};

const READ: Method = Method(1);
/// Copies that wait beside the one that is looked at.
const CROWDS: [u64; 2] = [0, 1000];
const HERE: Station = Station { replica: ReplicaId(0), core: 0 };
const TWIN: Station = Station { replica: ReplicaId(1), core: 0 };

/// A core with one slot and one client. Time stands still: nothing here depends on it.
struct World {
    core: Core<[u8; 16]>,
    conn: Conn,
    seq: u64,
    now: Instant,
}

impl World {
    fn new() -> World {
        let methods = vec![(READ, MethodRule::idempotent())];
        let config = Config { slots: 1, ..Config::new(HERE, methods) };
        let mut core = Core::new(config).expect("the configuration is valid");
        let conn = core.on_opened().expect("there is room");
        core.on_mesh_up(TWIN);
        World { core, conn, seq: 0, now: Instant::from_nanos(1_000_000) }
    }

    /// A copy arrives: number 1 of a pair whose number 0 is at the twin's.
    fn arrive(&mut self) -> Attempt {
        self.seq += 1;
        let attempt = Attempt { client: ClientId(7), seq: Seq(self.seq), n: 1 };
        let twin = Twin { station: TWIN, n: 0 };
        let request = Request {
            attempt,
            method: READ,
            remaining: Duration::from_secs(3600),
            cause: Cause::First,
            idempotent: true,
            tie: Some(Tie { twin, window: Duration::from_millis(10) }),
        };
        self.core.on_request(self.conn, request, &OptionSet::NONE, 16, || [0; 16], self.now);
        attempt
    }

    /// Takes what may start from the queue; the copy that did, if one could.
    fn dispatch(&mut self) -> Option<CopyKey> {
        self.core.dispatch(self.now);
        let mut started = None;
        while let Some(effect) = self.core.poll_effect() {
            if let Effect::Start(start) = effect {
                started = Some(start.copy);
            }
        }
        started
    }

    fn withdraw(&mut self, attempt: Attempt) {
        let by = Twin { station: TWIN, n: 0 };
        let reason = CancelReason::TwinStarted { by };
        let cancel = Cancel { attempt, reason, lifetime: Duration::from_millis(10) };
        self.core.on_cancel(Origin::Mesh(TWIN), cancel, self.now);
        while self.core.poll_effect().is_some() {}
    }
}

pub(crate) fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("server");
    let mut world = World::new();
    group.bench_function("copy from arrival to reply", |b| {
        b.iter(|| {
            world.arrive();
            let copy = world.dispatch().expect("the slot is free");
            world.core.on_finished(copy, Status::Ok, &[], &OptionSet::NONE, world.now)
        });
    });
    for crowd in CROWDS {
        let mut world = World::new();
        world.arrive();
        world.dispatch().expect("the slot is free");
        for _ in 0..crowd {
            world.arrive();
        }
        world.dispatch();
        let id = BenchmarkId::new("queue a copy and withdraw it, behind", crowd);
        group.bench_function(id, |b| {
            b.iter(|| {
                let attempt = world.arrive();
                world.withdraw(attempt);
            });
        });
        assert_eq!(world.core.stats().queued, crowd, "all were withdrawn, and the crowd was not");
    }
    group.finish();
}
