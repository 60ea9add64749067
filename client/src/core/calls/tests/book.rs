//! The book of live copies: strays, closed connections, losers, and that nothing is left.

use super::*;

#[test]
fn a_frame_that_names_no_copy_that_is_out_is_counted_and_harmless() {
    let mut world = World::new();
    let call = world.start(world.hedged);
    let stranger = Attempt { client: ClientId(8), ..attempt(call, 0) };
    let unknown = Attempt { seq: Seq(call.seq().0 + 1), ..attempt(call, 0) };
    for wrong in [stranger, unknown, attempt(call, 1), attempt(call, u16::MAX)] {
        let load = Load::default();
        let reply = Reply { attempt: wrong, status: Status::Ok, executed: true, load };
        assert_eq!(world.calls.on_reply(A, &reply, world.now), None);
        world.calls.on_started(A, &Started { attempt: wrong }, world.now);
        let ended = Ended { attempt: wrong, how: How::Withdrawn, by: None, load };
        world.calls.on_ended(A, &ended, world.now);
    }
    assert_eq!(world.ok(B, call, 0), None, "it was sent to A");
    assert_eq!(world.calls.counters().stray, 13);
    assert!(world.ok(A, call, 0).is_some());
    assert_eq!(world.ok(A, call, 0), None, "twice");
    assert_eq!(world.calls.counters().stray, 14);
    world.at_rest();
}

#[test]
fn a_late_frame_does_not_touch_the_next_call_in_the_same_slot() {
    let mut world = World::new();
    let old = world.start(world.none);
    world.ok(A, old, 0).unwrap();
    let new = world.start(world.none);
    assert_eq!(world.ok(A, old, 0), None);
    assert!(!world.calls.cancel(old, world.now));
    assert!(world.ok(A, new, 0).is_some());
}

#[test]
fn a_closed_connection_sends_its_calls_elsewhere_at_once() {
    let mut world = World::new();
    let calls: Vec<_> = (0..3).map(|_| world.start(world.none)).collect();
    world.sends.clear();
    world.closed(A);
    assert_eq!(world.sends.len(), 3);
    for call in calls {
        assert!(world.ok(B, call, 1).is_some());
    }
    assert_eq!(world.calls.counters().lost, 3);
    world.at_rest();
}

#[test]
fn a_broken_connection_loses_no_call_even_with_an_empty_budget() {
    let mut world = World::of_burst(0);
    let call = world.start(world.none);
    world.closed(A);
    assert!(world.ok(B, call, 1).is_some());
    assert_eq!(world.calls.counters().uncharged, 1);
    world.at_rest();
}

#[test]
fn an_error_reply_is_retried_only_if_the_budget_affords_it() {
    let mut world = World::of_burst(0);
    let call = world.start(world.none);
    let done = world.reply(A, call, 0, Status::Failed).unwrap();
    assert_eq!(done.result.unwrap_err().kind, ErrorKind::Failed);
    assert_eq!(world.calls.counters().denied.no_token, 1);
    world.at_rest();
}

#[test]
fn the_time_from_winner_to_the_losers_end_is_measured() {
    let mut world = World::new();
    let call = world.start(world.hedged);
    world.pass(HEDGE_DELAY);
    assert!(world.ok(B, call, 1).is_some());
    assert_eq!(world.cancelled(), [(A, 0)]);
    world.pass(US(120));
    world.ended(A, call, 0, How::Aborted);
    let losers = &world.calls.histograms().losers;
    assert_eq!(losers.len(), 1);
    assert!((119_000..122_000).contains(&losers.max()));
    world.at_rest();
}

#[test]
fn losers_are_not_watched_for_ever() {
    let mut world = World::new();
    world.start(world.none);
    world.pass(DEADLINE);
    world.result().unwrap_err();
    world.pass(world.calls.config().watch);
    assert_eq!((world.calls.counters().lost, world.calls.counters().unwatched), (1, 1));
    world.at_rest();
}

#[test]
fn with_too_many_losers_the_last_are_not_watched_at_all() {
    let mut world = World::with(BudgetConfig::default(), |config| config.max_calls = 2);
    for _ in 0..5 {
        let call = world.start(world.none);
        world.calls.cancel(call, world.now);
        world.drain();
    }
    assert_eq!(world.cancelled().len(), 5);
    assert_eq!(world.calls.counters().unwatched, 3);
    world.pass(world.calls.config().watch);
    world.at_rest();
}

#[test]
fn a_clock_that_steps_back_stops_nothing() {
    let mut world = World::new();
    world.pass(Duration::from_secs(1));
    world.now = world.now - Duration::from_millis(500);
    let call = world.start(world.hedged);
    world.pass(Duration::ZERO);
    world.ok(A, call, 0);
    world.pass(Duration::from_secs(60));
    world.at_rest();
}

#[test]
fn a_replica_that_leaves_finishes_what_it_has_and_gets_nothing_new() {
    let mut world = World::new();
    let call = world.start(world.none);
    assert_eq!(world.sent().0, A);
    world.calls.on_leaving(A);
    world.start(world.none);
    assert_eq!(world.sent().0, B);
    assert!(world.ok(A, call, 0).is_some());
    world.closed(A);
    world.calls.on_connected(A, station(A));
    world.start(world.none);
    assert_eq!(world.sent().0, A);
}
