//! Calls while no replica is connected.

use super::*;

fn blackout(world: &mut World) {
    [A, B, C].into_iter().for_each(|replica| world.closed(replica));
}

#[test]
fn a_call_that_starts_without_any_replica_waits_for_one() {
    let mut world = World::new();
    blackout(&mut world);
    let call = world.start(world.tied);
    world.nothing_sent();
    world.pass(MS(10));
    world.waits();
    world.connected(B);
    assert_eq!(world.sends[0].1.remaining, DEADLINE - MS(10) - US(50));
    assert_eq!(world.sent(), (B, 0, Cause::First));
    let done = world.ok(B, call, 0).unwrap();
    assert_eq!(done.outcome.latency, MS(10), "the time to connect counts");
    assert_eq!(world.calls.counters().stranded, 1);
    world.at_rest();
}

#[test]
fn a_replica_that_comes_too_late_for_a_round_trip_ends_the_wait() {
    let mut world = World::new();
    blackout(&mut world);
    world.start(world.none);
    world.pass(DEADLINE / 2);
    world.calls.on_rtt(B, DEADLINE / 2);
    world.connected(B);
    world.nothing_sent();
    assert_eq!(world.result(), Err(ErrorKind::DeadlineExceeded));
    world.at_rest();
}

#[test]
fn a_call_that_loses_all_its_replicas_goes_on_at_the_first_that_comes_back() {
    let mut world = World::new();
    let call = world.start(world.none);
    world.closed(B);
    world.closed(C);
    world.sends.clear();
    world.closed(A);
    world.waits();
    world.connected(A);
    assert_eq!(world.sent(), (A, 1, Cause::Redispatch), "it broke, and that is all");
    assert!(world.ok(A, call, 1).is_some());
    world.at_rest();
}

#[test]
fn a_replica_that_broke_and_came_back_is_asked_only_if_there_is_no_other() {
    let mut world = World::new();
    let call = world.start(world.none);
    world.closed(A);
    world.connected(A);
    world.sends.clear();
    world.closed(B);
    assert_eq!(world.sent(), (C, 2, Cause::Redispatch), "C has not failed it, A has");
    world.closed(C);
    assert_eq!(world.sent(), (A, 3, Cause::Redispatch));
    assert!(world.ok(A, call, 3).is_some());
    world.at_rest();
}

#[test]
fn a_call_that_broke_the_same_replica_twice_is_not_sent_there_a_third_time() {
    let mut world = World::new();
    world.start(world.none);
    for replica in [A, B, C, A, B, C] {
        world.waits();
        world.closed(replica);
        world.connected(replica);
    }
    assert_eq!(world.result(), Err(ErrorKind::ConnectionLost));
    assert_eq!(world.sends.len(), 6, "two at each");
    world.at_rest();
}

#[test]
fn a_hedge_never_goes_to_a_replica_that_broke_with_a_copy_of_the_call() {
    let mut world = World::new();
    let call = world.start(world.hedged);
    world.closed(C);
    world.closed(A);
    world.connected(A);
    world.sends.clear();
    world.pass(HEDGE_DELAY);
    world.nothing_sent();
    assert_eq!(world.calls.counters().denied.no_candidate, 1);
    assert!(world.ok(B, call, 1).is_some());
    world.at_rest();
}

#[test]
fn a_replica_whose_copy_never_went_out_has_not_failed_the_call() {
    let mut world = World::new();
    world.closed(C);
    let spec = world.spec(world.none);
    let call = world.calls.start(world.now, spec).unwrap();
    // Nothing was sent yet when both connections are found closed.
    world.calls.on_closed(A, world.now);
    world.calls.on_closed(B, world.now);
    world.drain();
    world.waits();
    world.nothing_sent();
    world.connected(A);
    assert_eq!(world.sent(), (A, 2, Cause::Redispatch));
    assert!(world.ok(A, call, 2).is_some());
    world.at_rest();
}

#[test]
fn a_call_waits_for_the_only_replica_while_that_moves() {
    let mut world = World::new();
    [B, C].into_iter().for_each(|replica| world.calls.remove_replica(replica));
    world.calls.on_takes(A, 100);
    let out = world.start(world.none);
    world.sends.clear();
    world.calls.on_leaving(A);
    let call = world.start(world.none);
    world.nothing_sent();
    assert!(world.ok(A, out, 0).is_some());
    world.closed(A);
    world.connected(A);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    assert!(world.ok(A, call, 0).is_some());
    world.at_rest();
}

#[test]
fn while_all_replicas_are_taken_out_there_is_none_which_is_not_to_say_that_a_call_is_too_large() {
    let mut world = World::with(BudgetConfig::default(), |config| config.patience = MS(20));
    blackout(&mut world);
    world.start(world.none);
    [A, B, C].into_iter().for_each(|replica| world.calls.remove_replica(replica));
    let refused = world.try_start(world.spec(world.none)).map_err(|error| error.kind);
    assert_eq!(refused, Err(ErrorKind::NoReplica));
    world.pass(MS(20));
    assert_eq!(world.result(), Err(ErrorKind::NoReplica));
    world.at_rest();
}

#[test]
fn patience_ends_before_the_deadline() {
    let mut world = World::with(BudgetConfig::default(), |config| config.patience = MS(20));
    blackout(&mut world);
    world.start(world.none);
    world.pass(MS(19));
    world.waits();
    world.pass(MS(1));
    assert_eq!(world.result(), Err(ErrorKind::NoReplica));
    assert_eq!(world.calls.counters().deadline_missed, 0);
    world.at_rest();
}

#[test]
fn the_deadline_ends_the_wait_before_patience_and_the_error_says_what_for() {
    let mut world = World::new();
    blackout(&mut world);
    world.start(world.none);
    world.pass(DEADLINE);
    assert_eq!(world.result(), Err(ErrorKind::NoReplica));
    assert_eq!(world.calls.counters().deadline_missed, 1, "by the clock");
    world.connected(A);
    world.nothing_sent();
    world.at_rest();
}

#[test]
fn a_caller_that_drops_a_stranded_call_leaves_nothing() {
    let mut world = World::new();
    blackout(&mut world);
    let call = world.start(world.none);
    assert!(world.calls.cancel(call, world.now));
    world.connected(A);
    world.nothing_sent();
    world.at_rest();
}

#[test]
fn a_call_that_must_not_run_twice_is_not_kept_once_it_may_have_run() {
    let mut world = World::new();
    world.closed(B);
    world.closed(C);
    world.try_start(Spec { idempotent: false, ..world.spec(world.none) }).unwrap();
    world.closed(A);
    assert_eq!(world.result(), Err(ErrorKind::ConnectionLost));
    world.at_rest();
}

#[test]
fn beside_replicas_that_failed_it_a_call_waits_for_one_whose_connection_broke_just_now() {
    let mut world = World::new();
    let call = world.start(world.none);
    world.closed(C);
    assert_eq!(world.reply(A, call, 0, Status::Stale), None);
    world.sends.clear();
    world.closed(B);
    world.waits();
    world.connected(C);
    assert_eq!(world.sent(), (C, 2, Cause::Redispatch));
    assert!(world.ok(C, call, 2).is_some());
    world.at_rest();
}

#[test]
fn one_whose_connection_broke_is_waited_for_since_it_broke_and_not_since_the_call_was_failed() {
    let mut world = World::with(BudgetConfig::default(), |config| config.patience = MS(20));
    world.closed(C);
    world.pass(MS(10));
    world.closed(B);
    world.pass(MS(5));
    let call = world.start(world.none);
    world.ended(A, call, 0, How::Withdrawn);
    world.pass(MS(14));
    world.waits();
    world.pass(MS(1));
    assert_eq!(world.result(), Err(ErrorKind::Shed), "the later of both broke 20 ms ago");
    world.at_rest();
}

#[test]
fn one_that_is_gone_for_long_is_not_waited_for_beside_replicas_that_failed_the_call() {
    let mut world = World::with(BudgetConfig::default(), |config| config.patience = MS(20));
    world.closed(C);
    world.pass(MS(20));
    let call = world.start(world.none);
    assert_eq!(world.reply(A, call, 0, Status::Stale), None);
    let done = world.reply(B, call, 1, Status::Stale).expect("at once");
    assert_eq!(done.result.map_err(|error| error.kind), Err(ErrorKind::Stale));
    world.at_rest();
}

#[test]
fn one_that_is_reached_again_and_again_but_never_comes_up_is_not_waited_for_either() {
    let mut world = World::with(BudgetConfig::default(), |config| config.patience = MS(20));
    world.closed(C);
    world.pass(MS(20));
    world.closed(C);
    let call = world.start(world.none);
    assert_eq!(world.reply(A, call, 0, Status::Stale), None);
    let done = world.reply(B, call, 1, Status::Stale).expect("at once");
    assert_eq!(done.result.map_err(|error| error.kind), Err(ErrorKind::Stale));
    world.at_rest();
}

#[test]
fn a_call_that_ran_waits_for_a_replica_only_if_the_budget_affords_it() {
    for burst in [0, 1] {
        let mut world = World::of_burst(burst);
        world.closed(B);
        world.closed(C);
        let call = world.start(world.none);
        world.sends.clear();
        let done = world.reply(A, call, 0, Status::Failed);
        let kind = done.map(|done| done.result.unwrap_err().kind);
        assert_eq!(kind, (burst == 0).then_some(ErrorKind::Failed));
        world.connected(B);
        if burst == 0 {
            world.nothing_sent();
            assert_eq!(world.calls.counters().denied.no_token, 1);
        } else {
            assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
            assert!(world.ok(B, call, 1).is_some());
        }
        assert_eq!(world.calls.counters().uncharged, 0);
        world.at_rest();
    }
}

#[test]
fn a_call_that_all_failed_is_denied_nothing_as_there_is_none_to_ask() {
    let mut world = World::of_burst(0);
    [B, C].into_iter().for_each(|replica| world.calls.remove_replica(replica));
    let call = world.start(world.none);
    let done = world.reply(A, call, 0, Status::Failed).expect("at once");
    assert_eq!(done.result.map_err(|error| error.kind), Err(ErrorKind::Failed));
    assert_eq!(world.calls.counters().denied, Denied::default());
    world.at_rest();
}

#[test]
fn a_call_that_all_failed_is_not_kept_for_one_that_failed_it_and_is_gone() {
    let mut world = World::new();
    let call = world.start(world.none);
    assert_eq!(world.reply(A, call, 0, Status::Stale), None);
    assert_eq!(world.reply(B, call, 1, Status::Stale), None);
    world.closed(A);
    let done = world.reply(C, call, 2, Status::Stale).expect("at once");
    assert_eq!(done.result.map_err(|error| error.kind), Err(ErrorKind::Stale));
    world.at_rest();
}
