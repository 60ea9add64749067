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
fn a_copy_that_is_taken_back_leaves_its_credit_to_a_call_that_waits() {
    let mut world = narrow();
    let first = world.start(world.none);
    world.sends.clear();
    let second = world.start(world.none);
    world.nothing_sent();
    assert!(world.calls.cancel(first, world.now));
    world.calls.on_cut(A, attempt(first, 0), world.now);
    world.pass(Duration::ZERO);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    assert!(world.ok(A, second, 0).is_some());
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
