//! Replicas of two versions, which do not say the same of a method.

use bowline_protocol::OptionSet;
use bowline_protocol::options::Key;

use super::keyed::{KEYED, UNKEYED};
use super::*;

const IDEMPOTENT: &[MethodInfo] =
    &[MethodInfo::new(Method(3), "pay").idempotent().duplicable(1 << 10)];
const LACKING: &[MethodInfo] = &[MethodInfo::new(Method(4), "refund")];

/// What A, B and C say of the method.
fn world(said: [&'static [MethodInfo]; 3]) -> World {
    let mut world = World::new();
    [A, B, C].iter().zip(said).for_each(|(&id, methods)| world.promise_at(id, methods));
    world
}

#[test]
fn a_copy_that_may_have_run_is_followed_only_where_nobody_denies_that_it_may_run_twice() {
    let mut world = world([IDEMPOTENT, UNKEYED, IDEMPOTENT]);
    let call = world.start(world.none);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    world.closed(A);
    assert_eq!(world.sent(), (C, 1, Cause::Redispatch), "not B");
    world.closed(C);
    world.nothing_sent();
    world.waits();
    world.connected(C);
    assert_eq!(world.sent(), (C, 2, Cause::Redispatch));
    assert!(world.ok(C, call, 2).is_some());
    world.at_rest();
}

#[test]
fn a_second_copy_goes_beside_the_first_only_where_nobody_denies_that_it_may_run_twice() {
    for policy in [|world: &World| world.tied, |world: &World| world.hedged] {
        let mut world = world([IDEMPOTENT, UNKEYED, IDEMPOTENT]);
        world.start(policy(&world));
        assert_eq!(world.sent().0, A);
        world.pass(HEDGE_DELAY);
        assert_eq!(world.sent().0, C, "B would be next");
    }
}

#[test]
fn a_replica_that_has_begun_anew_and_denies_it_by_now_gets_no_announced_copy() {
    let mut world = world([IDEMPOTENT; 3]);
    let call = world.start(world.tied);
    assert_eq!(world.sent().0, A);
    world.closed(B);
    world.promise_at(B, UNKEYED);
    world.connected(B);
    world.pass(STAGGER);
    world.nothing_sent();
    assert_eq!(world.calls.counters().untied, 1);
    assert!(world.ok(A, call, 0).is_some());
    world.at_rest();
}

#[test]
fn what_never_ran_may_go_to_who_denies_it_and_from_there_to_anybody() {
    let mut world = world([UNKEYED, IDEMPOTENT, IDEMPOTENT]);
    let call = world.start(world.none);
    assert!(!world.sends[0].1.idempotent, "A would not have it so");
    world.sends.clear();
    world.overloaded(A, call, 0);
    assert!(world.sends[0].1.idempotent);
    assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
    world.closed(B);
    assert_eq!(world.sent(), (C, 2, Cause::Redispatch), "A's word is of no copy that ran");
    assert!(world.ok(C, call, 2).is_some());
    world.at_rest();
}

#[test]
fn what_may_have_run_where_that_is_denied_goes_nowhere() {
    // (A key is of no use where nothing is kept by it.)
    for key in [None, Some(Key { id: 9, fingerprint: 7 })] {
        let mut world = world([UNKEYED, IDEMPOTENT, IDEMPOTENT]);
        let options = OptionSet { key, ..OptionSet::NONE };
        world.try_start(Spec { options, ..world.spec(world.none) }).unwrap();
        world.sent();
        world.closed(A);
        world.nothing_sent();
        assert_eq!(world.result(), Err(ErrorKind::ConnectionLost));
        assert_eq!(world.calls.counters().denied.not_idempotent, u64::from(key.is_none()));
        world.at_rest();
    }
}

#[test]
fn who_has_no_such_method_denies_nothing_and_has_run_nothing() {
    let key = Some(Key { id: 9, fingerprint: 7 });
    for (idempotent, key) in [(true, None), (false, None), (false, key)] {
        let mut world = world([LACKING; 3]);
        let options = OptionSet { key, ..OptionSet::NONE };
        let spec = Spec { idempotent, options, ..world.spec(world.none) };
        let call = world.try_start(spec).unwrap();
        assert_eq!(world.sent(), (A, 0, Cause::First));
        [B, C].into_iter().for_each(|id| world.promise_at(id, KEYED));
        world.closed(A);
        assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
        assert!(world.ok(B, call, 1).is_some());
        world.at_rest();
    }
}

#[test]
fn no_copy_goes_to_a_replica_that_is_known_not_to_have_the_method_while_another_may() {
    for policy in [|world: &World| world.none, |world: &World| world.hedged] {
        let mut world = world([LACKING, IDEMPOTENT, LACKING]);
        let call = world.start(policy(&world));
        assert_eq!(world.sent(), (B, 0, Cause::First));
        world.pass(HEDGE_DELAY);
        world.nothing_sent();
        world.closed(B);
        world.nothing_sent();
        world.waits();
        world.connected(B);
        assert_eq!(world.sent(), (B, 1, Cause::Redispatch), "it was away");
        assert!(world.ok(B, call, 1).is_some());
        world.at_rest();
    }
}

#[test]
fn where_none_has_the_method_one_is_asked_and_its_word_is_the_callers() {
    let mut world = world([LACKING; 3]);
    let call = world.start(world.none);
    assert_eq!(world.sent().0, A);
    let done = world.reply(A, call, 0, Status::NoSuchMethod).unwrap();
    let error = Error::new(ErrorKind::NoSuchMethod, Executed::No);
    assert_eq!((done.result, done.outcome.attempts), (Err(error), 1));
    world.nothing_sent();
    world.at_rest();
}

/// They say nothing of their methods.
#[test]
fn a_call_of_which_one_has_not_the_method_is_sent_elsewhere_once_and_for_no_token() {
    for has in [true, false] {
        let mut world = World::of_burst(0);
        let spec = Spec { idempotent: false, ..world.spec(world.none) };
        let call = world.try_start(spec).unwrap();
        assert_eq!(world.sent().0, A);
        assert_eq!(world.reply(A, call, 0, Status::NoSuchMethod), None);
        assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
        let status = if has { Status::Ok } else { Status::NoSuchMethod };
        let result = world.reply(B, call, 1, status).unwrap().result;
        let lacking = Error::new(ErrorKind::NoSuchMethod, Executed::No);
        assert_eq!(result, if has { Ok(()) } else { Err(lacking) });
        world.nothing_sent();
        assert_eq!(world.calls.counters().uncharged, 0);
        world.at_rest();
    }
}

#[test]
fn a_copy_that_finds_no_such_method_leaves_the_call_to_the_other_that_is_out() {
    let mut world = World::new();
    let call = world.start(world.hedged);
    world.pass(HEDGE_DELAY);
    assert_eq!(world.reply(A, call, 0, Status::NoSuchMethod), None);
    assert!(world.ok(B, call, 1).is_some());
    world.at_rest();
}

#[test]
fn a_second_copy_that_finds_no_such_method_leaves_the_call_to_a_third_that_is_out() {
    for has in [true, false] {
        let mut world = World::new();
        let call = world.start(world.both);
        world.pass(HEDGE_DELAY);
        let sends = core::mem::take(&mut world.sends);
        assert_eq!(sends.iter().map(|&(to, _)| to).collect::<Vec<_>>(), [A, B, C]);
        assert_eq!(world.reply(A, call, 0, Status::NoSuchMethod), None);
        assert_eq!(world.reply(B, call, 1, Status::NoSuchMethod), None, "C is at work on it");
        let status = if has { Status::Ok } else { Status::NoSuchMethod };
        let done = world.reply(C, call, 2, status).unwrap();
        let lacking = Error::new(ErrorKind::NoSuchMethod, Executed::No);
        assert_eq!(done.result, if has { Ok(()) } else { Err(lacking) });
        world.nothing_sent();
        world.at_rest();
    }
}
