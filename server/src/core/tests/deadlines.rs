//! Nothing starts, waits or runs in vain.

use super::*;

#[test]
fn a_deadline_is_counted_from_the_arrival() {
    let mut bench = Bench::new();
    let running = bench.start(plain(1));
    let arrived = bench.now;
    bench.request(Request { remaining: ms(30), ..plain(2) });
    bench.turn();
    bench.now += ms(10);
    bench.finish(running);
    let start = bench.turn().one_start();
    assert_eq!((start.deadline, start.waited), (arrived + ms(30), ms(10)));
}

/// A copy that waits, with 30 ms left, and the one that runs before it.
fn waiting(request: Request) -> (Bench, CopyKey) {
    let mut bench = Bench::meshed();
    let running = bench.start(plain(1));
    bench.request(Request { remaining: ms(30), ..request });
    assert!(bench.turn().is_empty());
    (bench, running)
}

#[test]
fn an_expired_copy_is_shed_as_it_leaves_the_queue() {
    let (mut bench, running) = waiting(plain(2));
    bench.now += ms(30);
    bench.finish(running);
    let turn = bench.turn();
    assert!(turn.starts.is_empty());
    assert!(ended(plain(2), How::Shed, None)(turn.one_ended()));
    assert_eq!(bench.core.stats().shed_expired, 1);
}

#[test]
fn a_copy_with_less_time_than_its_method_can_use_is_shed() {
    let scan = Request { method: SCAN, ..plain(2) };
    let (mut bench, running) = waiting(scan);
    bench.now += ms(25);
    bench.finish(running);
    assert!(ended(scan, How::Shed, None)(bench.turn().one_ended()));
    assert_eq!(bench.core.stats().shed_too_late, 1);
}

#[test]
fn a_copy_with_just_enough_time_starts() {
    let (mut bench, running) = waiting(Request { method: SCAN, ..plain(2) });
    bench.now += ms(24);
    bench.finish(running);
    assert_eq!(bench.turn().started(), [2]);
}

#[test]
fn a_copy_is_shed_in_time_even_if_no_slot_comes_free() {
    let (mut bench, _) = waiting(plain(2));
    assert_eq!(bench.core.next_timeout(), Some(bench.now + ms(30)));
    bench.pass(ms(30));
    assert!(ended(plain(2), How::Shed, None)(bench.turn().one_ended()));
}

#[test]
fn shed_copies_make_way_for_those_behind_them() {
    let (mut bench, running) = waiting(plain(2));
    bench.request(plain(3));
    bench.now += ms(30);
    bench.finish(running);
    let turn = bench.turn();
    assert_eq!(turn.started(), [3]);
    assert!(ended(plain(2), How::Shed, None)(turn.one_ended()));
}

#[test]
fn a_running_copy_is_asked_to_stop_at_its_deadline() {
    let mut bench = Bench::new();
    let copy = bench.start(plain(1));
    assert_eq!(bench.core.next_timeout(), Some(bench.now + ms(100)));
    bench.pass(ms(99));
    assert!(bench.turn().is_empty());
    bench.pass(ms(1));
    assert_eq!(bench.turn().aborts, [(copy, StopReason::Deadline)]);
    assert_eq!(bench.core.next_timeout(), None);
    bench.core.on_aborted(copy, bench.now);
    assert!(ended(plain(1), How::Aborted, None)(bench.turn().one_ended()));
    assert_eq!(bench.core.stats().aborted_by_deadline, 1);
}

#[test]
fn each_of_several_running_copies_has_its_own_deadline() {
    let mut bench = Bench::with(Config { slots: 3, ..config() });
    let late = bench.start(Request { remaining: ms(30), ..plain(1) });
    let early = bench.start(Request { remaining: ms(10), ..plain(2) });
    let never = bench.start(Request { remaining: Duration::MAX, ..plain(3) });
    for copy in [early, late] {
        let next = bench.core.next_timeout().unwrap();
        let wait = next - bench.now;
        bench.pass(wait);
        assert_eq!(bench.turn().aborts, [(copy, StopReason::Deadline)]);
    }
    assert_eq!(bench.core.next_timeout(), None);
    assert!(bench.finish(never).is_some());
}

#[test]
fn timeouts_that_nobody_needs_any_more_do_no_harm() {
    let (mut bench, running) = waiting(plain(2));
    bench.finish(running);
    let second = bench.turn().one_start().copy;
    bench.finish(second);
    while let Some(next) = bench.core.next_timeout() {
        let wait = next - bench.now;
        bench.pass(wait);
        assert!(bench.turn().is_empty());
        assert!(bench.core.next_timeout().is_none_or(|later| later > next), "time stands still");
    }
    assert!(bench.core.is_idle());
}
