//! Calls that wait until a replica grants more, or reads.

use bowline_protocol::Credit;

use super::*;

/// Only A is there, with credit for one request.
fn narrow() -> World {
    let mut world = World::new();
    world.closed(B);
    world.closed(C);
    world.closed(A);
    world.calls.on_granted(A, Some(Credit { requests: 1, bytes: 100 }));
    world.connected(A);
    world
}

#[test]
fn a_call_beyond_the_credit_waits_for_more() {
    let mut world = narrow();
    let first = world.start(world.none);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    let second = world.start(world.none);
    world.nothing_sent();
    assert_eq!(world.calls.counters().waited_for_room, 1);
    assert!(world.ok(A, first, 0).is_some());
    world.nothing_sent();
    world.calls.on_credit(A, Credit { requests: 2, bytes: 200 });
    world.pass(Duration::ZERO);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    assert!(world.ok(A, second, 0).is_some());
    world.at_rest();
}

#[test]
fn room_that_comes_in_the_turn_after_its_deadline_is_of_no_use_to_a_call() {
    let mut world = narrow();
    let first = world.start(world.none);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    world.start(world.none);
    assert!(world.ok(A, first, 0).is_some());
    // A busy loop hears of it together with the time.
    world.calls.on_credit(A, Credit { requests: 2, bytes: 200 });
    world.pass(Duration::from_secs(3600));
    world.nothing_sent();
    assert_eq!(world.result(), Err(ErrorKind::DeadlineExceeded));
    world.at_rest();
}

#[test]
fn room_that_comes_too_late_for_a_round_trip_ends_the_wait() {
    let mut world = narrow();
    world.calls.on_rtt(A, MS(10));
    world.start(world.none);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    world.start(world.none);
    world.pass(DEADLINE - MS(10));
    world.waits();
    world.calls.on_credit(A, Credit { requests: 2, bytes: 200 });
    world.pass(Duration::ZERO);
    world.nothing_sent();
    let [done] = world.done[..] else { panic!("not one result: {:?}", world.done) };
    assert_eq!(done.result, Err(Error::new(ErrorKind::DeadlineExceeded, Executed::No)));
}

#[test]
fn room_that_is_too_far_away_leaves_a_call_to_wait_for_some_nearby() {
    let mut world = narrow();
    world.calls.on_rtt(A, MS(1));
    let first = world.start(world.none);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    let second = world.start(world.none);
    world.calls.on_rtt(B, DEADLINE);
    world.connected(B);
    world.nothing_sent();
    world.waits();
    assert!(world.ok(A, first, 0).is_some());
    world.calls.on_credit(A, Credit { requests: 2, bytes: 200 });
    world.pass(Duration::ZERO);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    assert!(world.ok(A, second, 0).is_some());
    world.at_rest();
}

#[test]
fn a_replica_that_turns_out_to_be_nearer_gets_the_call_that_waits_for_another() {
    let mut world = narrow();
    let first = world.start(world.none);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    let second = world.start(world.none);
    world.calls.on_rtt(B, DEADLINE);
    world.connected(B);
    world.nothing_sent();
    world.waits();
    world.calls.on_rtt(B, MS(1));
    world.pass(Duration::ZERO);
    assert_eq!(world.sent(), (B, 0, Cause::First));
    assert!(world.ok(B, second, 0).is_some() && world.ok(A, first, 0).is_some());
    world.at_rest();
}

#[test]
fn a_copy_that_is_taken_back_leaves_its_credit_to_a_call_that_waits() {
    let mut world = narrow();
    let first = world.start(world.none);
    world.sends.clear();
    let second = world.start(world.none);
    world.nothing_sent();
    assert!(world.calls.cancel(first, world.now));
    world.calls.on_cut(A, attempt(first, 0), 7, world.now);
    world.pass(Duration::ZERO);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    assert!(world.ok(A, second, 0).is_some());
    world.at_rest();
}

/// No more copies of finished calls are watched than calls may wait.
#[test]
fn so_does_one_that_is_taken_back_and_was_not_watched_any_more() {
    let mut world = World::with(BudgetConfig::default(), |config| config.max_calls = 1);
    [B, C].into_iter().for_each(|replica| world.closed(replica));
    world.calls.on_granted(A, Some(Credit { requests: 2, bytes: 100 }));
    let [watched, unwatched] = [(); 2].map(|()| {
        let call = world.start(world.none);
        assert!(world.calls.cancel(call, world.now));
        call
    });
    world.sends.clear();
    assert_eq!(world.calls.counters().unwatched, 1);
    let next = world.start(world.none);
    world.nothing_sent();
    world.calls.on_cut(A, attempt(unwatched, 0), 7, world.now);
    world.pass(Duration::ZERO);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    assert!(world.ok(A, next, 0).is_some() && world.ok(A, watched, 0).is_none());
    assert_eq!(world.calls.counters().stray, 0, "only frames are");
    world.at_rest();
}

#[test]
fn a_replica_that_does_not_read_is_sent_nothing_until_it_does() {
    let mut world = narrow();
    world.calls.on_granted(A, None);
    world.calls.on_backlog(A, usize::MAX / 2);
    let call = world.start(world.none);
    world.nothing_sent();
    world.calls.on_backlog(A, 0);
    world.pass(Duration::ZERO);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    assert!(world.ok(A, call, 0).is_some());
    world.at_rest();
}

#[test]
fn a_call_whose_connection_broke_waits_for_the_room_of_the_next_until_its_deadline() {
    let mut world = World::with(BudgetConfig::default(), |config| config.patience = MS(5));
    world.closed(B);
    world.closed(C);
    let call = world.start(world.none);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    world.closed(A);
    world.calls.on_granted(A, Some(Credit { requests: 0, bytes: 0 }));
    world.connected(A);
    world.pass(MS(20));
    world.waits();
    world.calls.on_credit(A, Credit { requests: 1, bytes: 100 });
    world.pass(Duration::ZERO);
    assert_eq!(world.sent(), (A, 1, Cause::Redispatch));
    assert!(world.ok(A, call, 1).is_some());
    world.at_rest();
}

/// Only A is there, with credit for a hundred bytes, and has been sent so many of them.
fn filled(bytes: u32) -> (World, CallKey) {
    let mut world = narrow();
    world.calls.on_granted(A, Some(Credit { requests: u64::MAX, bytes: 100 }));
    let call = start_sized(&mut world, bytes);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    (world, call)
}

fn start_sized(world: &mut World, size: u32) -> CallKey {
    let spec = Spec { size, deadline: world.now + 1000 * DEADLINE, ..world.spec(world.none) };
    world.try_start(spec).unwrap()
}

/// The sequence numbers of what was sent since the last look.
fn sent_calls(world: &mut World) -> Vec<Seq> {
    core::mem::take(&mut world.sends).iter().map(|(_, request)| request.attempt.seq).collect()
}

#[test]
fn calls_that_wait_go_in_the_order_in_which_they_came_and_before_one_that_only_begins() {
    let (mut world, _) = filled(100);
    let waiting: Vec<_> = (0..5).map(|_| start_sized(&mut world, 10).seq()).collect();
    world.nothing_sent();
    world.calls.on_credit(A, Credit { requests: u64::MAX, bytes: 130 });
    // It begins before time is told of: what came free is not its.
    let late = start_sized(&mut world, 10).seq();
    assert_eq!(sent_calls(&mut world), waiting[..3]);
    world.calls.on_credit(A, Credit { requests: u64::MAX, bytes: 160 });
    world.pass(Duration::ZERO);
    assert_eq!(sent_calls(&mut world), [waiting[3], waiting[4], late]);
}

#[test]
fn a_call_that_needs_more_is_passed_so_often_and_then_has_its_turn() {
    let (mut world, _) = filled(100);
    let large = start_sized(&mut world, 100).seq();
    let (mut granted, mut passed) = (100, 0);
    // There is room for a small call each time, and never for the large one.
    while world.calls.counters().room_kept == 0 {
        granted += 10;
        world.calls.on_credit(A, Credit { requests: u64::MAX, bytes: granted });
        start_sized(&mut world, 10);
        assert_eq!(sent_calls(&mut world).len(), 1, "none waits for the large one's sake");
        passed += 1;
        assert!(passed <= 64);
    }
    assert_eq!(passed, 64);
    let small = start_sized(&mut world, 10).seq();
    for _ in 0..9 {
        granted += 10;
        world.calls.on_credit(A, Credit { requests: u64::MAX, bytes: granted });
        world.pass(Duration::ZERO);
        world.nothing_sent();
    }
    world.calls.on_credit(A, Credit { requests: u64::MAX, bytes: granted + 20 });
    world.pass(Duration::ZERO);
    assert_eq!(sent_calls(&mut world), [large, small], "what is left is for others");
}

/// Its window is smaller than what it says that it takes, which it must not be: the call may wait in
/// vain, and the others must not wait for it.
#[test]
fn no_room_is_kept_for_a_call_that_is_larger_than_there_ever_was_room_for() {
    let (mut world, _) = filled(100);
    start_sized(&mut world, 101);
    for turn in 1..=100 {
        world.calls.on_credit(A, Credit { requests: u64::MAX, bytes: 100 + 10 * turn });
        start_sized(&mut world, 10);
        assert_eq!(sent_calls(&mut world).len(), 1);
    }
    assert_eq!(world.calls.counters().room_kept, 0);
}

#[test]
fn room_that_was_kept_is_there_for_others_when_its_call_is_over() {
    let (mut world, _) = filled(100);
    let large = start_sized(&mut world, 100);
    for turn in 1..=64 {
        world.calls.on_credit(A, Credit { requests: u64::MAX, bytes: 100 + 10 * turn });
        start_sized(&mut world, 10);
    }
    assert_eq!(sent_calls(&mut world).len(), 64);
    let small = start_sized(&mut world, 10).seq();
    world.calls.on_credit(A, Credit { requests: u64::MAX, bytes: 100 + 10 * 65 });
    world.pass(Duration::ZERO);
    world.nothing_sent();
    assert!(world.calls.cancel(large, world.now));
    world.pass(Duration::ZERO);
    assert_eq!(sent_calls(&mut world), [small]);
}

#[test]
fn a_replica_that_comes_is_asked_for_those_who_wait_for_another() {
    let (mut world, _) = filled(100);
    let waiting: Vec<_> = (0..3).map(|_| start_sized(&mut world, 10).seq()).collect();
    world.connected(B);
    assert_eq!(sent_calls(&mut world), waiting);
}

#[test]
fn however_many_wait_for_more_a_small_one_behind_a_few_of_them_goes() {
    let (mut world, _) = filled(100);
    for _ in 0..10 {
        start_sized(&mut world, 100);
    }
    let small = start_sized(&mut world, 10).seq();
    world.nothing_sent();
    world.calls.on_credit(A, Credit { requests: u64::MAX, bytes: 110 });
    world.pass(Duration::ZERO);
    assert_eq!(sent_calls(&mut world), [small]);
}

#[test]
fn a_call_without_a_deadline_is_served_when_there_is_room() {
    let mut world = narrow();
    let first = world.start(world.none);
    world.sends.clear();
    let spec = world.spec(world.none);
    let endless = world.try_start(Spec { deadline: Instant::FAR_FUTURE, ..spec }).unwrap();
    world.nothing_sent();
    assert!(world.ok(A, first, 0).is_some());
    world.calls.on_credit(A, Credit { requests: 2, bytes: 200 });
    world.pass(Duration::ZERO);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    assert!(world.ok(A, endless, 0).is_some());
    world.at_rest();
}
