//! Retries after every replica refused.

use bowline_protocol::Credit;

use super::*;

fn retrying(budget: BudgetConfig) -> World {
    let retry = RetryConfig { most: 1, first: MS(8), max: MS(100) };
    World::with(budget, |config| config.retry = Some(retry))
}

/// A call that all three have refused.
fn refused(world: &mut World) -> CallKey {
    let call = world.start(world.none);
    world.overloaded(A, call, 0);
    world.ended(B, call, 1, How::Shed);
    world.overloaded(C, call, 2);
    world.sends.clear();
    call
}

#[test]
fn a_call_that_all_refused_is_tried_again_after_a_jittered_wait() {
    let mut world = retrying(BudgetConfig::default());
    let call = refused(&mut world);
    assert_eq!(world.outstanding(), 1, "a retry takes a token");
    world.pass(MS(4) - Duration::from_nanos(1));
    world.nothing_sent();
    world.pass(MS(4));
    assert_eq!(world.sent(), (A, 3, Cause::Redispatch));
    assert!(world.ok(A, call, 3).is_some());
    assert_eq!(world.calls.budget().level(), 256, "one ran, none of them extra");
    assert_eq!(world.calls.counters().retries, 1);
    world.at_rest();
}

#[test]
fn after_the_last_retry_the_call_fails() {
    let mut world = retrying(BudgetConfig::default());
    let call = refused(&mut world);
    world.pass(MS(8));
    for n in 3..6 {
        let (to, ..) = world.sent();
        world.overloaded(to, call, n);
    }
    assert_eq!(world.result(), Err(ErrorKind::Overloaded));
    world.at_rest();
}

#[test]
fn without_a_token_or_without_time_there_is_no_retry() {
    let mut world = retrying(BudgetConfig { burst: 0, ..BudgetConfig::default() });
    refused(&mut world);
    assert_eq!(world.result(), Err(ErrorKind::Overloaded));
    world.at_rest();

    let mut world = retrying(BudgetConfig::default());
    let call = world.start(world.none);
    world.pass(DEADLINE - MS(3));
    [(A, 0), (B, 1), (C, 2)].into_iter().for_each(|(at, n)| world.overloaded(at, call, n));
    assert_eq!(world.result(), Err(ErrorKind::Overloaded));
    world.at_rest();
}

#[test]
fn a_retry_that_could_not_be_answered_in_time_is_not_waited_for() {
    for (left, waits) in [(3, false), (9, true)] {
        let mut world = retrying(BudgetConfig::default());
        let call = world.start(world.none);
        [A, B, C].into_iter().for_each(|replica| world.calls.on_rtt(replica, MS(10)));
        world.pass(DEADLINE - MS(10) - MS(left));
        [(A, 0), (B, 1), (C, 2)].into_iter().for_each(|(at, n)| world.overloaded(at, call, n));
        assert_eq!(world.done.is_empty(), waits, "{left} ms and a round trip");
    }
}

#[test]
fn a_retry_for_which_it_is_too_late_by_then_ends_the_call() {
    let mut world = retrying(BudgetConfig::default());
    refused(&mut world);
    [A, B, C].into_iter().for_each(|replica| world.calls.on_rtt(replica, DEADLINE));
    world.pass(MS(8));
    world.nothing_sent();
    assert_eq!(world.result(), Err(ErrorKind::Overloaded), "which says more than that it is late");
    world.at_rest();
}

#[test]
fn a_call_that_may_have_run_is_not_retried() {
    let mut world = retrying(BudgetConfig::default());
    let call = world.start(world.none);
    world.overloaded(A, call, 0);
    world.reply(B, call, 1, Status::Failed);
    world.overloaded(C, call, 2);
    assert_eq!(world.result(), Err(ErrorKind::Failed));
    world.at_rest();
}

#[test]
fn a_caller_that_drops_the_call_during_the_wait_leaves_nothing() {
    let mut world = retrying(BudgetConfig::default());
    let call = refused(&mut world);
    assert!(world.calls.cancel(call, world.now));
    world.pass(MS(8));
    world.nothing_sent();
    world.at_rest();
}

#[test]
fn a_call_that_waits_for_its_retry_goes_at_once_to_a_replica_that_comes_and_has_not_refused_it() {
    let mut world = retrying(BudgetConfig::default());
    world.closed(B);
    world.closed(C);
    let call = world.start(world.none);
    world.overloaded(A, call, 0);
    world.sends.clear();
    world.waits();
    // Who has refused it is not asked before its time, whoever else comes.
    world.closed(A);
    world.connected(A);
    world.nothing_sent();
    world.connected(B);
    assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
    // The retry was not spent.
    world.overloaded(B, call, 1);
    world.waits();
    assert_eq!(world.calls.counters().retries, 0);
    world.pass(MS(8));
    let (to, n, _) = world.sent();
    assert!(world.ok(to, call, n).is_some());
    assert_eq!(world.calls.budget().level(), 256, "one ran, none of them extra");
    assert_eq!(world.calls.counters().retries, 1);
    world.at_rest();
}

#[test]
fn a_call_that_waits_for_its_retry_goes_to_one_that_came_without_room_once_that_has_some() {
    let mut world = retrying(BudgetConfig::default());
    world.closed(B);
    world.closed(C);
    let call = world.start(world.none);
    world.overloaded(A, call, 0);
    world.sends.clear();
    world.calls.on_granted(B, Some(Credit { requests: 0, bytes: 0 }));
    world.connected(B);
    world.nothing_sent();
    world.calls.on_credit(B, Credit { requests: 1, bytes: 100 });
    world.pass(Duration::ZERO);
    assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
    assert!(world.ok(B, call, 1).is_some());
    assert_eq!(world.calls.counters().retries, 0);
    world.at_rest();
}

#[test]
fn a_policy_may_have_a_rule_of_its_own() {
    let mut world = retrying(BudgetConfig::default());
    let own = RetryConfig { most: 1, first: MS(2), max: MS(2) };
    let limits = crate::core::Limits { retry: Some(own), ..Default::default() };
    world.calls.limit_copies(world.none, limits).unwrap();
    let call = refused(&mut world);
    world.sends.clear();
    world.pass(MS(3));
    let (again, n, _) = world.sent();
    assert!(world.ok(again, call, n).is_some(), "by the machine's rule it would still wait");
    world.at_rest();
}

#[test]
fn a_call_whose_retry_finds_no_replica_stands_in_line_once() {
    let mut world = retrying(BudgetConfig::default());
    refused(&mut world);
    [A, B, C].into_iter().for_each(|replica| world.closed(replica));
    world.pass(MS(8));
    world.nothing_sent();
    let line = &world.calls.line;
    let standing = (0..line.len()).filter(|&at| world.calls.waiter_at(at).is_some());
    assert_eq!(standing.count(), 1);
    world.connected(A);
    assert_eq!(world.sent(), (A, 3, Cause::Redispatch));
}

#[test]
fn a_retry_that_finds_only_replicas_that_failed_the_call_waits_for_one_that_broke_just_now() {
    let mut world = retrying(BudgetConfig::default());
    world.closed(B);
    world.closed(C);
    let call = world.start(world.none);
    world.overloaded(A, call, 0);
    world.closed(A);
    world.connected(B);
    assert_eq!(world.sends.pop().map(|(to, _)| to), Some(B));
    // No refusal, so that it is not asked again.
    world.ended(B, call, 1, How::Withdrawn);
    world.sends.clear();
    world.pass(MS(8));
    world.waits();
    world.nothing_sent();
    world.connected(A);
    assert_eq!(world.sent(), (A, 2, Cause::Redispatch));
    assert!(world.ok(A, call, 2).is_some());
    world.at_rest();
}

#[test]
fn no_retry_is_planned_of_which_no_replica_could_be_asked() {
    let mut world = retrying(BudgetConfig::default());
    let call = world.start(world.none);
    for (at, n) in [(A, 0), (B, 1), (C, 2)] {
        world.ended(at, call, n, How::Withdrawn);
    }
    assert_eq!(world.result(), Err(ErrorKind::Shed), "at once");
    assert_eq!((world.outstanding(), world.calls.counters().retries), (0, 0));
    world.at_rest();
}

/// The others may have it. It is not asked again, whenever it said so.
#[test]
fn a_call_that_all_refused_but_one_that_has_not_the_method_is_tried_again_at_those() {
    for lacking in 0..3 {
        let mut world = retrying(BudgetConfig::default());
        let call = world.start(world.none);
        for (n, at) in [A, B, C].into_iter().enumerate() {
            match n == lacking {
                true => assert_eq!(world.reply(at, call, n as u16, Status::NoSuchMethod), None),
                false => world.overloaded(at, call, n as u16),
            }
        }
        world.waits();
        world.sends.clear();
        world.pass(MS(8));
        let at = if lacking == 0 { B } else { A };
        assert_eq!(world.sent(), (at, 3, Cause::Redispatch));
        assert!(world.ok(at, call, 3).is_some());
        world.at_rest();
    }
}

#[test]
fn a_refusal_is_told_rather_than_that_another_has_not_the_method() {
    for lacking in 0..3 {
        let mut world = World::new();
        let call = world.start(world.none);
        for (n, at) in [A, B, C].into_iter().enumerate() {
            match n == lacking {
                true => {
                    let done = world.reply(at, call, n as u16, Status::NoSuchMethod);
                    world.done.extend(done);
                }
                false => world.overloaded(at, call, n as u16),
            }
        }
        assert_eq!(world.result(), Err(ErrorKind::Overloaded));
        world.at_rest();
    }
}
