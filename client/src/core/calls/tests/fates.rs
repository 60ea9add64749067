//! Many calls of mixed fate: random frames in random order, and the invariants after each step.

use std::collections::{HashMap, HashSet};

use bowline_protocol::options::Key;
use bowline_protocol::{Freshness, OptionSet};

use super::*;
use crate::core::Placement;
use crate::core::random::Random;

/// Servers that answer what they like, in any order; whatever they got, they end once.
struct Chaos {
    world: World,
    random: Random,
    /// Copies that are out, and whether their caller cancelled them.
    out: Vec<(ReplicaId, Attempt, bool)>,
    /// Calls that wait, with their deadlines.
    waiting: HashMap<u64, Instant>,
    /// Calls that demand version 2, and those that only their key protects.
    demanding: HashSet<u64>,
    keyed: HashSet<u64>,
    policies: [PolicyId; 4],
    /// No replica is connected.
    dark: bool,
    idempotent: bool,
}

impl Chaos {
    fn new(seed: u64, idempotent: bool) -> Chaos {
        let mut world = World::with(BudgetConfig::default(), |config| {
            config.pick = PickRule::PowerOfTwo;
            config.seed = seed;
            config.retry = seed.is_multiple_of(3).then(RetryConfig::default);
        });
        for id in [A, B] {
            let domain = u32::from(id.0);
            let placement = Placement { domain, results: Some(1), ..Placement::default() };
            world.calls.place_replica(id, placement).unwrap();
        }
        let policies = [world.none, world.hedged, world.tied, world.both];
        world.promise(super::keyed::KEYED);
        let (waiting, demanding, keyed) = (HashMap::new(), HashSet::new(), HashSet::new());
        let (random, out) = (Random::new(seed), Vec::new());
        let dark = false;
        Chaos { world, random, out, waiting, demanding, keyed, policies, dark, idempotent }
    }

    fn start(&mut self) {
        if self.waiting.len() == 64 {
            return;
        }
        let policy = self.policies[self.random.below(4) as usize];
        let deadline = self.world.now + US(u64::from(self.random.below(20_000)) + 1);
        let fresh = (self.random.below(4) == 0).then_some(Freshness::version(2));
        let key = (self.random.below(2) == 0).then_some(Key { id: 9, fingerprint: 7 });
        let options = OptionSet { fresh, key, ..OptionSet::NONE };
        let spec = self.world.spec(policy);
        let spec = Spec { deadline, idempotent: self.idempotent, options, ..spec };
        if let Ok(call) = self.world.try_start(spec) {
            let seq = call.seq().0;
            self.waiting.insert(seq, deadline);
            fresh.map(|_| self.demanding.insert(seq));
            key.filter(|_| !self.idempotent).map(|_| self.keyed.insert(seq));
        }
    }

    /// Some server says something of some copy.
    fn speak(&mut self) {
        if self.out.is_empty() {
            return;
        }
        let at = self.random.below(self.out.len() as u32) as usize;
        let (from, attempt, cancelled) = self.out[at];
        let call = CallKey(attempt.seq);
        let what = self.random.below(10);
        if what == 9 {
            return self.world.started(from, call, attempt.n);
        }
        self.out.swap_remove(at);
        match what {
            0..3 if !cancelled => {
                let version = u64::from(self.random.below(6));
                let fresh = Some(Freshness::version(version));
                let brought = Brought { fresh, payload: &[] };
                let done = self.world.reply_with(from, call, attempt.n, Status::Ok, brought);
                let won = done.is_some_and(|done| done.result.is_ok());
                let old = version < 2 && self.demanding.contains(&attempt.seq.0);
                assert!(!won || !old, "version {version} wins");
                self.finish(done);
            }
            3 if !cancelled => {
                let done = self.world.reply(from, call, attempt.n, Status::Stale);
                self.finish(done);
            }
            4 => {
                let done = self.world.reply(from, call, attempt.n, Status::Failed);
                self.finish(done);
            }
            5 => self.world.overloaded(from, call, attempt.n),
            6 => self.world.ended(from, call, attempt.n, How::Shed),
            7 => self.world.ended(from, call, attempt.n, How::Aborted),
            _ => self.world.ended(from, call, attempt.n, How::Withdrawn),
        }
    }

    /// A connection breaks, and comes back.
    fn cut(&mut self) {
        let replica = [A, B, C][self.random.below(3) as usize];
        self.out.retain(|(at, ..)| *at != replica);
        self.world.closed(replica);
        self.world.connected(replica);
    }

    /// All connections break; some come back now, the others later.
    fn black_out(&mut self) {
        self.dark = true;
        for replica in [A, B, C] {
            self.out.retain(|(at, ..)| *at != replica);
            self.world.closed(replica);
            self.check();
        }
        for _ in 0..self.random.below(10) {
            self.start();
            self.world.pass(US(300));
            self.check();
        }
        [C, A, B].into_iter().for_each(|replica| self.world.connected(replica));
        self.dark = false;
    }

    fn drop_one(&mut self) {
        if let Some(&seq) = self.waiting.keys().next() {
            assert!(self.world.calls.cancel(CallKey(Seq(seq)), self.world.now));
            self.world.drain();
            self.waiting.remove(&seq);
        }
    }

    fn finish(&mut self, done: Option<Done>) {
        if let Some(done) = done {
            let waited = self.waiting.remove(&done.call.seq().0);
            assert!(waited.is_some(), "a call is done twice, or was never begun");
        }
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..6 => self.start(),
            6..14 => self.speak(),
            14 => self.drop_one(),
            15 if self.random.below(10) == 0 => self.cut(),
            16 if self.random.below(50) == 0 => self.black_out(),
            _ => {
                let time = US(u64::from(self.random.below(1000)));
                self.world.pass(time);
            }
        }
        self.check();
    }

    fn check(&mut self) {
        for done in core::mem::take(&mut self.world.done) {
            self.finish(Some(done));
        }
        for (replica, request) in core::mem::take(&mut self.world.sends) {
            let again = self.out.iter().any(|(_, attempt, _)| *attempt == request.attempt);
            assert!(!again, "a number is used twice");
            self.out.push((replica, request.attempt, false));
        }
        for (replica, cancel) in core::mem::take(&mut self.world.cancels) {
            if cancel.reason != CancelReason::CallerDone {
                continue;
            }
            let copy =
                self.out.iter_mut().find(|(at, a, _)| *at == replica && *a == cancel.attempt);
            if let Some((_, _, cancelled)) = copy {
                assert!(!core::mem::replace(cancelled, true), "a copy is cancelled twice");
            }
        }
        let now = self.world.now;
        assert!(self.waiting.values().all(|&deadline| deadline > now) || self.due(now));
        for seq in self.waiting.keys() {
            let alive = self.out.iter().any(|(_, attempt, _)| attempt.seq.0 == *seq);
            assert!(alive || self.dark || self.rests(*seq), "a call waits for nothing");
            assert!(!self.keyed.contains(seq) || self.keeps_to_one_store(*seq), "two stores");
        }
        assert_eq!(self.out.len() as u64, self.world.calls.counters().live);
    }

    /// The call waits for its next try, or for the replica that has its key.
    fn rests(&self, seq: u64) -> bool {
        let slots = &self.world.calls.slots;
        let call = slots.find(Seq(seq)).map(|slot| slots.get(slot));
        let for_its_key = self.keyed.contains(&seq);
        call.is_some_and(|call| {
            let has_run = call.copies().iter().any(|copy| copy.may_run());
            let bound = for_its_key && has_run && call.is_stranded();
            call.retry_at != Instant::FAR_FUTURE || bound
        })
    }

    /// Its copies that may run, or may have run, are all at A or B, or all at C.
    fn keeps_to_one_store(&self, seq: u64) -> bool {
        let Calls { slots, replicas, .. } = &self.world.calls;
        let Some(call) = slots.find(Seq(seq)).map(|slot| slots.get(slot)) else { return true };
        let may_run = call.copies().iter().filter(|copy| copy.may_run());
        let mut stores = may_run.map(|copy| replicas.get(copy.replica).id == C);
        let first = stores.next();
        stores.all(|store| Some(store) == first)
    }

    /// Overdue calls are fine until the timer is asked.
    fn due(&self, now: Instant) -> bool {
        self.world.calls.next_timeout().is_some_and(|next| next <= now)
    }

    fn settle(&mut self) {
        self.world.pass(MS(30));
        self.check();
        assert!(self.waiting.is_empty(), "a call outlived its deadline");
        while let Some((from, attempt, _)) = self.out.pop() {
            self.world.ended(from, CallKey(attempt.seq), attempt.n, How::Withdrawn);
        }
        self.world.at_rest();
    }
}

#[test]
fn whatever_happens_every_call_is_done_once_and_nothing_is_left() {
    for seed in 0..40 {
        let mut chaos = Chaos::new(seed, !seed.is_multiple_of(4));
        for _ in 0..2_000 {
            chaos.step();
        }
        chaos.settle();
    }
}

/// `BOWLINE_CALLS` says how many calls; a million take seconds.
#[test]
fn after_many_calls_of_mixed_fate_no_copy_timer_slot_or_token_is_left() {
    let wanted = std::env::var("BOWLINE_CALLS").map_or(1_000_000, |text| text.parse().unwrap());
    let mut chaos = Chaos::new(7, true);
    while chaos.world.calls.counters().calls < wanted {
        for _ in 0..10_000 {
            chaos.step();
        }
        chaos.settle();
    }
    assert_eq!(chaos.world.calls.slots.used(), 0);
    assert_eq!(chaos.world.calls.next_timeout(), None);
}

#[test]
fn a_reply_that_ends_a_call_is_the_callers_only_if_it_tells_of_the_error_that_weighs_most() {
    for (last, is_told) in [(Status::Failed, true), (Status::Stale, false), (Status::Ok, true)] {
        let mut world = World::new();
        world.calls.remove_replica(C);
        let call = world.start(world.none);
        assert_eq!(world.reply(A, call, 0, Status::Failed), None);
        let attempt = attempt(call, 1);
        let reply = Reply { attempt, status: last, executed: true, load: Load::default() };
        let heard = world.calls.on_reply_with(B, &reply, Brought::default(), world.now);
        let Heard::Done { done, is_told: told } = heard else { panic!("{heard:?}") };
        let kind = done.result.map_err(|error| error.kind);
        let ok = last == Status::Ok;
        assert_eq!(kind, if ok { Ok(()) } else { Err(ErrorKind::Failed) });
        assert_eq!(told, is_told, "{last:?}");
        world.drain();
        world.at_rest();
    }
}
