//! A call in the client's machine, from start to done.

use core::time::Duration;

use bowline_client::core::{Calls, Config, Effect, Policy, PolicyId, Spec};
use bowline_protocol::{
    ClientId, Ended, How, Load, Method, ReplicaId, Reply, Request, Station, Status,
};
use bowline_time::Instant;
use criterion::{BenchmarkId, Criterion};

/// Calls that wait beside the one that is looked at.
const CROWDS: [u64; 2] = [0, 1000];
/// What a call takes.
const ROUND_TRIP: Duration = Duration::from_micros(80);

/// A machine with three replicas, and its clock.
struct World {
    calls: Calls<[u8; 16]>,
    policy: PolicyId,
    now: Instant,
}

impl World {
    fn new(policy: Policy) -> World {
        let mut calls = Calls::new(ClientId(7), Config::default()).expect("the defaults are valid");
        let policy = calls.register(policy).expect("the policy is valid");
        for replica in (0..3).map(ReplicaId) {
            calls.add_replica(replica, replica.0.into());
            calls.on_connected(replica, Station { replica, core: 0 });
        }
        World { calls, policy, now: Instant::from_nanos(1_000_000) }
    }

    fn start(&mut self) {
        let deadline = self.now + Duration::from_millis(50);
        let spec = Spec {
            size: 16,
            policy: self.policy,
            idempotent: true,
            ..Spec::new(Method(1), [0; 16], deadline)
        };
        self.calls.start(self.now, spec).expect("there is room and time");
    }

    /// The next request that goes out, with its replica; lets time pass to the next timer for it.
    fn sent(&mut self) -> (ReplicaId, Request) {
        loop {
            match self.calls.poll_effect() {
                Some(Effect::Send { replica, request, .. }) => return (replica, request),
                Some(other) => panic!("{other:?} before the request"),
                None => {
                    let timer = self.calls.next_timeout().expect("a second copy is announced");
                    self.now = self.now.max(timer);
                    self.calls.on_timeout(self.now);
                }
            }
        }
    }

    fn reply(&mut self, replica: ReplicaId, request: &Request) {
        let reply = Reply {
            attempt: request.attempt,
            status: Status::Ok,
            executed: true,
            load: Load::default(),
        };
        self.now += ROUND_TRIP;
        self.calls.on_reply(replica, &reply, self.now).expect("the call is done");
        while self.calls.poll_effect().is_some() {}
    }

    /// One copy, answered.
    fn plain_call(&mut self) {
        self.start();
        let (replica, request) = self.sent();
        self.reply(replica, &request);
    }

    /// Two copies, of which the first withdraws the second and is answered.
    fn tied_call(&mut self) {
        self.start();
        let (first, request) = self.sent();
        let (second, twin) = self.sent();
        let ended = Ended {
            attempt: twin.attempt,
            how: How::Withdrawn,
            by: Some(request.attempt.n),
            load: Load::default(),
        };
        self.calls.on_ended(second, &ended, self.now);
        self.reply(first, &request);
    }
}

pub(crate) fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("client");
    for crowd in CROWDS {
        for (name, policy) in [("plain", Policy::None), ("hedged, quick", Policy::hedged())] {
            let mut world = World::new(policy);
            (0..crowd).for_each(|_| world.start());
            while world.calls.poll_effect().is_some() {}
            let id = BenchmarkId::new(format!("call from start to done, {name}, beside"), crowd);
            // The crowd's deadlines pass at first, and are then part of the machine's past.
            group.bench_function(id, |b| b.iter(|| world.plain_call()));
        }
    }
    let mut world = World::new(Policy::tied());
    group.bench_function("call from start to done, tied, second copy withdrawn", |b| {
        b.iter(|| world.tied_call());
    });
    group.finish();
}
