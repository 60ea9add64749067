//! The owner of calls, against a few replicas that say what the test wants.

mod balancing;
mod book;
mod fates;
mod fresh;
mod hedging;
mod keyed;
mod limits;
mod live;
mod placing;
mod plain;
mod retrying;
mod room;
mod stranding;
mod switching;
mod tying;
mod unlike;

use core::time::Duration;

use bowline_protocol::{
    Attempt, Cancel, CancelReason, Cause, ClientId, Ended, Error, ErrorKind, Executed, How, Load,
    Method, MethodInfo, Overloaded, ReplicaId, Reply, Request, Seq, ServiceInfo, Started, Station,
    Status, Twin,
};
use bowline_time::Instant;

use crate::core::{
    Brought, Budget, BudgetConfig, CallKey, Calls, Classifier, Config, Delay, Denied, Done, Effect,
    Heard, HedgePolicy, PickRule, Policy, PolicyId, RetryConfig, Spec, Stagger, TiePolicy,
};

const A: ReplicaId = ReplicaId(1);
const B: ReplicaId = ReplicaId(2);
const C: ReplicaId = ReplicaId(3);
const US: fn(u64) -> Duration = Duration::from_micros;
const MS: fn(u64) -> Duration = Duration::from_millis;
const HEDGE_DELAY: Duration = Duration::from_millis(5);
const STAGGER: Duration = Duration::from_micros(200);
const DEADLINE: Duration = Duration::from_millis(50);

/// Calls to A, B and C, which are picked in that order.
struct World {
    calls: Calls<&'static str>,
    now: Instant,
    none: PolicyId,
    hedged: PolicyId,
    tied: PolicyId,
    both: PolicyId,
    /// Effects that were not looked at yet.
    sends: Vec<(ReplicaId, Request)>,
    cancels: Vec<(ReplicaId, Cancel)>,
    done: Vec<Done>,
    /// What replicas say of their load from now on.
    load: Load,
}

fn station(replica: ReplicaId) -> Station {
    Station { replica, core: replica.0 + 10 }
}

impl World {
    fn new() -> World {
        World::with(BudgetConfig::default(), |_| {})
    }

    /// There are so many tokens to begin with.
    fn of_burst(burst: u32) -> World {
        World::with(BudgetConfig { burst, ..BudgetConfig::default() }, |_| {})
    }

    fn with(budget: BudgetConfig, change: impl FnOnce(&mut Config)) -> World {
        let budget = Budget::new(budget).unwrap().into();
        let mut config = Config { pick: PickRule::First, budget, ..Config::default() };
        change(&mut config);
        let mut calls = Calls::new(ClientId(7), config).unwrap();
        for replica in [A, B, C] {
            calls.add_replica(replica, u32::from(replica.0));
            assert!(calls.on_connected(replica, station(replica)));
        }
        let tie = TiePolicy { stagger: Stagger::Fixed(STAGGER), ..TiePolicy::default() };
        let hedge = HedgePolicy { delay: Delay::Fixed(HEDGE_DELAY), ..HedgePolicy::default() };
        World {
            none: PolicyId::NONE,
            hedged: calls.register(Policy::Hedged(hedge)).unwrap(),
            tied: calls.register(Policy::Tied(tie)).unwrap(),
            both: calls.register(Policy::TiedThenHedged(tie, hedge)).unwrap(),
            calls,
            now: Instant::from_nanos(1_000_000),
            sends: Vec::new(),
            cancels: Vec::new(),
            done: Vec::new(),
            load: Load::default(),
        }
    }

    fn spec(&self, policy: PolicyId) -> Spec<&'static str> {
        let spec = Spec::new(Method(3), "block 9", self.now + DEADLINE);
        Spec { policy, idempotent: true, tag: 42, size: 7, ..spec }
    }

    /// An idempotent call.
    fn start(&mut self, policy: PolicyId) -> CallKey {
        self.try_start(self.spec(policy)).unwrap()
    }

    fn try_start(&mut self, spec: Spec<&'static str>) -> Result<CallKey, Error> {
        let call = self.calls.start(self.now, spec);
        self.drain();
        call
    }

    fn drain(&mut self) {
        while let Some(effect) = self.calls.poll_effect() {
            match effect {
                Effect::Send { replica, call, request } => {
                    assert_eq!(self.calls.payload(call), Some(&"block 9"));
                    self.sends.push((replica, request));
                }
                Effect::Cancel { replica, cancel } => self.cancels.push((replica, cancel)),
                Effect::Done(done) => self.done.push(done),
            }
        }
        assert!(self.calls.counters().reconcile(), "{:?}", self.calls.counters());
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.calls.on_timeout(self.now);
        self.drain();
    }

    /// The only send since the last look: to whom, with which number and cause.
    fn sent(&mut self) -> (ReplicaId, u16, Cause) {
        let sends = core::mem::take(&mut self.sends);
        let [(replica, request)] = sends[..] else { panic!("not one send: {sends:?}") };
        (replica, request.attempt.n, request.cause)
    }

    fn nothing_sent(&mut self) {
        assert_eq!(self.sends, []);
    }

    /// The copies that were cancelled since the last look since nobody waits for them.
    fn cancelled(&mut self) -> Vec<(ReplicaId, u16)> {
        let copy = |(replica, cancel): &(ReplicaId, Cancel)| {
            assert_eq!(cancel.reason, CancelReason::CallerDone);
            (*replica, cancel.attempt.n)
        };
        core::mem::take(&mut self.cancels).iter().map(copy).collect()
    }

    /// The only result since the last look that no reply brought.
    fn result(&mut self) -> Result<(), ErrorKind> {
        let done = core::mem::take(&mut self.done);
        let [done] = done[..] else { panic!("not one result: {done:?}") };
        assert_eq!(done.tag, 42);
        done.result.map_err(|error| error.kind)
    }

    fn waits(&self) {
        assert_eq!(self.done, []);
    }

    fn reply(&mut self, from: ReplicaId, call: CallKey, n: u16, status: Status) -> Option<Done> {
        self.reply_with(from, call, n, status, Brought::default())
    }

    fn reply_with(
        &mut self,
        from: ReplicaId,
        call: CallKey,
        n: u16,
        status: Status,
        brought: Brought<'_>,
    ) -> Option<Done> {
        let unstarted = matches!(status, Status::NoSuchMethod | Status::BadRequest | Status::Stale);
        let attempt = attempt(call, n);
        let reply = Reply { attempt, status, executed: !unstarted, load: self.load };
        let heard = self.calls.on_reply_with(from, &reply, brought, self.now);
        self.drain();
        match heard {
            Heard::Older { .. } => self.done.pop(),
            heard => heard.done(),
        }
    }

    fn ok(&mut self, from: ReplicaId, call: CallKey, n: u16) -> Option<Done> {
        self.reply(from, call, n, Status::Ok)
    }

    fn ended(&mut self, from: ReplicaId, call: CallKey, n: u16, how: How) {
        let by = (how != How::Shed && n < 2).then_some(n ^ 1);
        let ended = Ended { attempt: attempt(call, n), how, by, load: self.load };
        self.calls.on_ended(from, &ended, self.now);
        self.drain();
    }

    fn overloaded(&mut self, from: ReplicaId, call: CallKey, n: u16) {
        let attempt = attempt(call, n);
        let overloaded = Overloaded { attempt, retry_after: MS(3), load: self.load };
        self.calls.on_overloaded(from, &overloaded, self.now);
        self.drain();
    }

    fn started(&mut self, from: ReplicaId, call: CallKey, n: u16) {
        self.calls.on_started(from, &Started { attempt: attempt(call, n) }, self.now);
        self.drain();
    }

    fn closed(&mut self, replica: ReplicaId) {
        self.calls.on_closed(replica, self.now);
        self.drain();
    }

    fn connected(&mut self, replica: ReplicaId) {
        self.calls.on_connected(replica, station(replica));
        if self.calls.next_timeout().is_some_and(|next| next <= self.now) {
            self.pass(Duration::ZERO);
        }
    }

    fn outstanding(&self) -> u32 {
        self.calls.budget().outstanding()
    }

    /// Nothing is left, and every token was settled.
    #[track_caller]
    fn at_rest(&self) {
        assert!(self.calls.is_at_rest());
        assert_eq!(self.calls.counters().live, 0);
        assert_eq!(self.calls.counters().waiting, 0);
        assert_eq!(self.outstanding(), 0);
    }
}

fn attempt(call: CallKey, n: u16) -> Attempt {
    Attempt { client: ClientId(7), seq: call.seq(), n }
}
