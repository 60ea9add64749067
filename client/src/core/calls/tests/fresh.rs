//! Results have to be as fresh as the caller asks, and as good as the classifier wants them.

use bowline_protocol::{Freshness, OptionSet};

use super::*;
use crate::core::Verdict;

const ASKED: Freshness = Freshness::version(7);

fn held(version: u64) -> Brought<'static> {
    Brought { fresh: Some(Freshness { version, staleness: MS(1) }), payload: &[] }
}

impl World {
    /// A call whose result has to be of version 7 at least.
    fn ask(&mut self, policy: PolicyId) -> CallKey {
        let options = OptionSet { fresh: Some(ASKED), ..OptionSet::NONE };
        let spec = self.spec(policy);
        self.try_start(Spec { options, ..spec }).unwrap()
    }

    /// Lets a replica say what it holds.
    fn tell(&mut self, replica: ReplicaId, version: u64) {
        let others: Vec<ReplicaId> = [A, B, C].into_iter().filter(|it| *it != replica).collect();
        others.iter().for_each(|it| self.calls.remove_replica(*it));
        let call = self.start(self.none);
        assert_eq!(self.sent().0, replica);
        assert!(self.reply_with(replica, call, 0, Status::Ok, held(version)).is_some());
        others.iter().for_each(|it| self.calls.restore_replica(*it));
    }
}

#[test]
fn a_reply_that_is_too_old_is_no_result_and_another_replica_is_asked() {
    let mut world = World::new();
    let call = world.ask(world.none);
    world.sent();
    assert_eq!(world.reply_with(A, call, 0, Status::Ok, held(6)), None);
    assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
    let done = world.reply_with(B, call, 1, Status::Ok, held(7)).unwrap();
    assert_eq!((done.result, done.outcome.winner.unwrap().replica), (Ok(()), B));
    assert_eq!(world.calls.counters().stale, 1);
    world.at_rest();
}

#[test]
fn who_does_not_say_how_fresh_it_is_promises_nothing() {
    let mut world = World::new();
    let call = world.ask(world.none);
    assert_eq!(world.ok(A, call, 0), None);
    let call = world.start(world.none);
    assert!(world.ok(A, call, 0).is_some(), "nor need it to who asks for nothing");
}

#[test]
fn a_call_for_which_all_are_too_old_says_so() {
    let mut world = World::new();
    let call = world.ask(world.none);
    assert_eq!(world.reply_with(A, call, 0, Status::Stale, held(5)), None);
    assert_eq!(world.reply_with(B, call, 1, Status::Ok, held(6)), None);
    let done = world.reply_with(C, call, 2, Status::Stale, held(4)).unwrap();
    let error = done.result.unwrap_err();
    assert_eq!((error.kind, error.executed), (ErrorKind::Stale, Executed::Yes));
    assert!(error.to_string().contains("as fresh as was asked for"), "{error}");
    world.at_rest();
}

#[test]
fn the_freshest_of_the_results_that_are_too_old_is_told_of_and_ends_the_call_as_stale() {
    let mut world = World::with(BudgetConfig::default(), |config| config.patience = MS(20));
    let call = world.ask(world.none);
    let heard = [(A, 5), (B, 6), (C, 4)].map(|(from, version)| {
        let n = from.0 - A.0;
        let attempt = attempt(call, n);
        let reply = Reply { attempt, status: Status::Ok, executed: true, load: Load::default() };
        let heard = world.calls.on_reply_with(from, &reply, held(version), world.now);
        world.drain();
        heard
    });
    let older = Heard::Older { call, tag: 42 };
    assert_eq!(heard[..2], [older, older]);
    let done = heard[2].done().unwrap();
    assert_eq!(done.result.unwrap_err().kind, ErrorKind::Stale);
    assert_eq!(world.done, [], "it ended once");

    let call = world.ask(world.none);
    [A, B].iter().for_each(|replica| world.closed(*replica));
    world.done.clear();
    // Neither is waited for any more.
    world.pass(MS(20));
    let (at, n, _) = world.sends.last().map(|(at, it)| (*at, it.attempt.n, it.cause)).unwrap();
    assert_eq!((at, world.reply_with(at, call, n, Status::Ok, held(6)).is_some()), (C, true));
    world.at_rest();
}

#[test]
fn a_refusal_as_too_old_costs_no_token_as_nothing_ran() {
    let mut world = World::of_burst(0);
    let call = world.ask(world.none);
    world.sent();
    assert_eq!(world.reply_with(A, call, 0, Status::Stale, held(5)), None);
    assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
    // What ran was work, and the next such would be extra.
    let done = world.reply_with(B, call, 1, Status::Ok, held(6)).unwrap();
    assert_eq!(done.result.unwrap_err().kind, ErrorKind::Stale);
    world.nothing_sent();
}

#[test]
fn a_call_that_must_not_run_twice_goes_on_after_a_refusal_and_not_after_an_old_result() {
    for (status, kind) in [(Status::Stale, None), (Status::Ok, Some(ErrorKind::Stale))] {
        let mut world = World::new();
        let options = OptionSet { fresh: Some(ASKED), ..OptionSet::NONE };
        let spec = Spec { options, idempotent: false, ..world.spec(world.none) };
        let call = world.try_start(spec).unwrap();
        let done = world.reply_with(A, call, 0, status, held(6));
        assert_eq!(done.map(|done| done.result.unwrap_err().kind), kind);
    }
}

#[test]
fn a_replica_that_is_known_to_be_behind_is_left_out_by_the_first_copy_and_by_the_second() {
    let mut world = World::new();
    world.tell(A, 6);
    for policy in [world.none, world.tied, world.hedged] {
        world.ask(policy);
        assert_eq!(world.sent().0, B, "A would be first");
        world.pass(HEDGE_DELAY);
        let second = core::mem::take(&mut world.sends);
        assert!(second.iter().all(|&(replica, _)| replica == C), "{second:?}");
        assert_eq!(second.len(), usize::from(policy != world.none));
    }
    world.start(world.none);
    assert_eq!(world.sent().0, A, "who asks for nothing does not mind");
}

#[test]
fn a_second_copy_is_not_made_do_with_a_replica_that_is_behind() {
    for policy in [|world: &World| world.tied, |world: &World| world.hedged] {
        let mut world = World::new();
        world.tell(B, 6);
        world.tell(C, 6);
        world.ask(policy(&world));
        assert_eq!(world.sent().0, A);
        world.pass(HEDGE_DELAY);
        world.nothing_sent();
        assert_eq!(world.calls.counters().denied.no_candidate, 1);
    }
}

#[test]
fn if_all_are_behind_they_are_asked_nevertheless_and_one_that_caught_up_wins() {
    let mut world = World::new();
    for replica in [A, B, C] {
        world.tell(replica, 6);
    }
    let call = world.ask(world.none);
    assert_eq!(world.sent().0, A);
    world.reply_with(A, call, 0, Status::Stale, held(6));
    assert_eq!(world.sent().0, B);
    assert!(world.reply_with(B, call, 1, Status::Ok, held(8)).is_some());
}

#[test]
fn what_a_replica_said_is_forgotten_after_a_while_and_when_it_is_connected_anew() {
    let mut world = World::new();
    world.tell(A, 6);
    world.pass(MS(100));
    let call = world.ask(world.none);
    assert_eq!(world.sent().0, A, "it may have caught up");
    world.reply_with(A, call, 0, Status::Stale, held(6));
    world.sends.clear();
    world.closed(A);
    world.connected(A);
    world.ask(world.none);
    assert_eq!(world.sent().0, A);
}

#[test]
fn a_replica_that_has_a_version_has_it_still_though_a_reply_of_its_is_older() {
    let mut world = World::new();
    world.tell(A, 9);
    world.tell(A, 3);
    world.ask(world.none);
    assert_eq!(world.sent().0, A);
}

#[test]
fn an_old_result_is_held_while_another_copy_lives_and_has_a_hedge_sent_at_once() {
    let mut world = World::new();
    let call = world.ask(world.hedged);
    world.sent();
    assert_eq!(world.reply_with(A, call, 0, Status::Ok, held(6)), None);
    world.sends.clear();
    assert!(world.reply_with(B, call, 1, Status::Ok, held(7)).is_some());

    let call = world.ask(world.tied);
    world.pass(STAGGER);
    let [(one, _), (two, _)] = world.sends[..] else { panic!("{:?}", world.sends) };
    world.sends.clear();
    assert_eq!(world.reply_with(one, call, 0, Status::Ok, held(6)), None);
    world.nothing_sent();
    assert!(world.reply_with(two, call, 1, Status::Ok, held(7)).is_some());
    world.at_rest();
}

#[test]
fn who_asks_for_what_is_to_come_soon_is_tried_again_if_so_configured() {
    let rule = RetryConfig { most: 1, first: MS(2), max: MS(2) };
    let mut world = World::with(BudgetConfig::default(), |config| config.retry = Some(rule));
    let call = world.ask(world.none);
    for (n, replica) in [A, B, C].into_iter().enumerate() {
        assert_eq!(world.sent().0, replica);
        assert_eq!(world.reply_with(replica, call, n as u16, Status::Stale, held(6)), None);
    }
    world.nothing_sent();
    world.pass(MS(2));
    assert_eq!(world.sent(), (A, 3, Cause::Redispatch));
    assert!(world.reply_with(A, call, 3, Status::Ok, held(7)).is_some());
    world.at_rest();
}

#[test]
fn the_classifier_sees_the_payload_and_only_what_it_holds_good_wins() {
    let mut world = World::new();
    let classifier = Classifier::new(|status, payload| match (status, payload) {
        (Status::Ok, b"damaged") => Verdict::Retryable,
        (Status::Ok, b"never") => Verdict::Fatal,
        (Status::App(9), _) => Verdict::Stale,
        (status, _) => Verdict::of(status),
    });
    let policy = world.calls.register_with(Policy::None, classifier).unwrap();
    let brought = |payload| Brought { fresh: None, payload };
    let call = world.start(policy);
    assert_eq!(world.reply_with(A, call, 0, Status::Ok, brought(b"damaged")), None);
    assert!(world.reply_with(B, call, 1, Status::Ok, brought(b"sound")).unwrap().result.is_ok());

    let call = world.start(policy);
    let done = world.reply_with(A, call, 0, Status::Ok, brought(b"never")).unwrap();
    assert_eq!(done.result.unwrap_err().kind, ErrorKind::Invalid);

    let call = world.start(policy);
    for (n, replica) in [A, B].into_iter().enumerate() {
        assert_eq!(world.reply(replica, call, n as u16, Status::App(9)), None);
    }
    let done = world.reply(C, call, 2, Status::App(9)).unwrap();
    assert_eq!(done.result.unwrap_err().kind, ErrorKind::Stale);
}

#[test]
fn a_replica_whose_replies_the_classifier_refuses_is_ejected() {
    let mut world = World::new();
    let damaged = Classifier::new(|_, payload| match payload {
        b"damaged" => Verdict::Retryable,
        _ => Verdict::Good,
    });
    let policy = world.calls.register_with(Policy::None, damaged).unwrap();
    let brought = |payload| Brought { fresh: None, payload };
    for _ in 0..5 {
        let call = world.start(policy);
        assert_eq!(world.reply_with(A, call, 0, Status::Ok, brought(b"damaged")), None);
        assert!(world.reply_with(B, call, 1, Status::Ok, brought(b"sound")).is_some());
    }
    assert_eq!(world.calls.counters().ejected, 1);
    world.sends.clear();
    world.start(policy);
    assert_eq!(world.sent().0, B);
}

#[test]
fn another_classifier_holds_for_the_calls_that_are_under_way_too() {
    let mut world = World::new();
    let policy = world.calls.register(Policy::None).unwrap();
    let call = world.start(policy);
    world.calls.classify(policy, Classifier::by_error(vec![(7, Verdict::Retryable)]));
    assert_eq!(world.reply(A, call, 0, Status::App(7)), None);
    let done = world.reply(B, call, 1, Status::App(8)).unwrap();
    assert_eq!(done.result.unwrap_err().kind, ErrorKind::App(8));
}

#[test]
fn a_call_that_follows_another_policy_is_judged_and_bounded_as_all_of_its_method() {
    let mut world = World::new();
    let method = world.tied;
    world.calls.classify(method, Classifier::by_error(vec![(7, Verdict::Retryable)]));
    let two = crate::core::Limits { attempts: 2, ..Default::default() };
    world.calls.limit_copies(method, two).unwrap();
    let plain = world.calls.register(Policy::None).unwrap();
    let spec = Spec { instead_of: method, ..world.spec(plain) };
    let call = world.try_start(spec).unwrap();
    assert_eq!(world.reply(A, call, 0, Status::App(7)), None);
    let done = world.reply(B, call, 1, Status::App(7)).unwrap();
    assert_eq!(done.result.unwrap_err().kind, ErrorKind::App(7), "two copies at most");

    let own = Classifier::by_error(vec![(7, Verdict::Good)]);
    let lenient = world.calls.register_with(Policy::None, own).unwrap();
    let call = world.try_start(Spec { policy: lenient, ..spec }).unwrap();
    let done = world.reply(A, call, 0, Status::App(7)).unwrap();
    assert!(done.result.is_ok(), "it has a view of its own");
}

#[test]
fn a_call_that_may_have_one_copy_only_is_judged_as_all_of_its_method() {
    let mut world = World::new();
    let judge = Classifier::by_error(vec![(7, Verdict::Retryable)]);
    world.calls.classify(world.tied, judge);
    let spec = Spec { single: true, ..world.spec(world.tied) };
    let call = world.try_start(spec).unwrap();
    world.pass(STAGGER);
    assert_eq!(world.sent().0, A, "no second copy");
    assert_eq!(world.calls.counters().denied.not_allowed, 1);
    assert_eq!(world.reply(A, call, 0, Status::App(7)), None);
    assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
}

#[test]
fn a_replica_that_does_not_say_how_fresh_it_is_is_left_out_for_a_while() {
    let mut world = World::new();
    let call = world.ask(world.none);
    assert_eq!(world.sent().0, A);
    assert_eq!(world.ok(A, call, 0), None);
    assert!(world.reply_with(B, call, 1, Status::Ok, held(7)).is_some());
    world.sends.clear();
    world.ask(world.none);
    assert_eq!((world.sent().0, world.calls.counters().unsaid), (B, 1));
    world.pass(MS(100));
    world.sends.clear();
    world.ask(world.none);
    assert_eq!(world.sent().0, A, "it may say so by now");
}

#[test]
fn a_replica_that_is_not_told_what_is_asked_is_asked_for_want_of_others() {
    let mut world = World::new();
    world.calls.on_options(A, false);
    world.ask(world.none);
    assert_eq!(world.sent().0, B);
}

#[test]
fn an_old_reply_of_one_handler_does_not_make_its_replica_old_and_its_own_word_does() {
    let mut world = World::new();
    let within =
        |staleness| OptionSet { fresh: Some(Freshness::within(staleness)), ..OptionSet::NONE };
    let ask = |world: &mut World| {
        world.sends.clear();
        let spec = world.spec(world.none);
        let call = world.try_start(Spec { options: within(MS(5)), ..spec }).unwrap();
        (call, world.sent().0)
    };
    let stale = |staleness| Brought { fresh: Some(Freshness::within(staleness)), payload: &[] };
    world.tell(A, 1);
    let call = world.start(world.none);
    assert!(world.reply_with(A, call, 0, Status::Ok, stale(MS(600_000))).is_some());
    let (call, first) = ask(&mut world);
    assert_eq!(first, A, "it was a millisecond behind a moment ago");
    assert_eq!(world.reply_with(A, call, 0, Status::Stale, stale(MS(80))), None);
    assert_eq!(ask(&mut world).1, B);
}

#[test]
fn who_asks_for_any_freshness_asks_for_none() {
    let mut world = World::new();
    let options = OptionSet { fresh: Some(Freshness::ANY), ..OptionSet::NONE };
    let spec = world.spec(world.none);
    let call = world.try_start(Spec { options, ..spec }).unwrap();
    assert!(world.ok(A, call, 0).is_some());
}
