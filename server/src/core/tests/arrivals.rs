//! What is taken on, what is refused, and what makes room.

use super::*;

fn overloaded(turn: &Turn) -> bowline_protocol::Overloaded {
    match turn.one_notice().1 {
        Notice::Overloaded(refusal) => refusal,
        other => panic!("{other:?} is no refusal"),
    }
}

/// One copy runs, and the queue is full of this kind of copy, of calls 2 to 9.
fn full_of(kind: fn(u64) -> Request) -> Bench {
    let mut bench = Bench::meshed();
    bench.start(plain(1));
    (2..=9).for_each(|seq| bench.request(kind(seq)));
    assert!(bench.turn().is_empty());
    bench
}

#[test]
fn a_full_queue_refuses_and_says_when_to_come_back() {
    let mut bench = full_of(plain);
    bench.request(plain(10));
    let refusal = overloaded(&bench.turn());
    assert_eq!(refusal.attempt, attempt(10, 0));
    assert!(refusal.retry_after > ms(0));
    assert_eq!((refusal.load.queued, refusal.load.running), (8, 1));
    assert_eq!(bench.core.stats().rejected_queue_requests, 1);
}

#[test]
fn a_queue_full_of_bytes_refuses() {
    let mut bench = Bench::with(Config { queue_bytes: 250, ..config() });
    bench.start(plain(1));
    (2..=4).for_each(|seq| bench.request(plain(seq)));
    overloaded(&bench.turn());
    assert_eq!(bench.core.stats().rejected_queue_bytes, 1);
}

#[test]
fn a_refused_payload_is_never_asked_for() {
    let mut bench = full_of(plain);
    let now = bench.now;
    bench.core.on_request(
        bench.conn,
        plain(10),
        &OptionSet::NONE,
        100,
        || panic!("asked for"),
        now,
    );
}

#[test]
fn a_primary_displaces_the_extra_that_came_last() {
    for extra in [hedge, secondary] {
        let mut bench = full_of(extra);
        bench.request(primary(10));
        assert!(ended(extra(9), How::Shed, None)(bench.turn().one_ended()));
        assert_eq!(bench.core.stats().shed_displaced, 1);
    }
}

#[test]
fn an_extra_displaces_nobody() {
    let mut bench = full_of(hedge);
    bench.request(hedge(10));
    overloaded(&bench.turn());
}

#[test]
fn nobody_is_displaced_for_a_copy_that_does_not_fit_in_the_end() {
    let mut bench = full_of(hedge);
    let now = bench.now;
    bench.core.on_request(bench.conn, plain(10), &OptionSet::NONE, usize::MAX, || 0, now);
    overloaded(&bench.turn());
    assert_eq!(bench.core.stats().queued, 8);
}

#[test]
fn copies_that_find_a_free_slot_need_no_room_in_the_queue() {
    let mut bench = Bench::with(Config { slots: 4, queue_requests: 1, ..config() });
    (1..=6).for_each(|seq| bench.request(plain(seq)));
    let turn = bench.turn();
    assert_eq!(turn.started(), [1, 2, 3, 4]);
    assert_eq!(overloaded(&turn).attempt, attempt(6, 0));
}

#[test]
fn a_copy_that_would_wait_longer_than_it_can_is_refused_at_once() {
    let mut bench = Bench::new();
    let copy = bench.start(plain(1));
    bench.now += ms(20);
    bench.finish(copy);
    bench.start(plain(2));
    bench.request(Request { remaining: ms(39), ..plain(3) });
    let refusal = overloaded(&bench.turn());
    assert_eq!(refusal.retry_after, ms(1));
    bench.request(Request { remaining: ms(41), ..plain(4) });
    bench.turn();
    let stats = bench.core.stats();
    assert_eq!((stats.rejected_wait, stats.queued), (1, 1));
}

#[test]
fn a_copy_that_arrives_with_too_little_time_is_refused() {
    for late in [
        Request { remaining: ms(0), ..plain(1) },
        Request { remaining: ms(5), method: SCAN, ..plain(1) },
    ] {
        let mut bench = Bench::new();
        bench.request(late);
        overloaded(&bench.turn());
        assert_eq!(bench.core.stats().rejected_too_late, 1);
    }
}

#[test]
fn an_unknown_method_is_refused_by_name() {
    for method in [Method(0), Method(77), Method(u16::MAX)] {
        let mut bench = Bench::new();
        bench.request(Request { method, ..plain(1) });
        let Notice::Refused(reply, _) = bench.turn().one_notice().1 else { panic!("not refused") };
        assert_eq!((reply.status, reply.executed), (Status::NoSuchMethod, false));
        assert_eq!(bench.core.stats().rejected_no_method, 1);
    }
}

#[test]
fn a_name_that_is_in_use_is_refused_and_free_again_after_the_end() {
    let mut bench = Bench::new();
    let copy = bench.start(plain(1));
    bench.request(plain(1));
    let Notice::Refused(reply, _) = bench.turn().one_notice().1 else { panic!("not refused") };
    assert_eq!(reply.status, Status::BadRequest);
    bench.finish(copy);
    bench.start(plain(1));
    assert_eq!(bench.core.stats().rejected_duplicate, 1);
}

/// A name proves nothing: who guesses another's must not have its owner refused, or hear of it.
#[test]
fn a_name_is_each_connections_own() {
    let mut bench = Bench::with(Config { slots: 2, ..config() });
    let other = bench.core.on_opened().unwrap();
    bench.request_on(other, plain(1));
    bench.request(plain(1));
    let turn = bench.turn();
    assert_eq!(turn.started(), [1, 1], "both are served");
    bench.client(caller_done(plain(1)));
    let aborts = bench.turn().aborts;
    assert_eq!(aborts, [(turn.starts[1].copy, StopReason::CallerDone)], "each its own");
    bench.core.on_closed(other, bench.now);
    assert_eq!(bench.poll_aborts(), [turn.starts[0].copy]);
}

#[test]
fn copies_start_in_the_order_of_their_arrival() {
    let mut bench = Bench::meshed();
    let mut copy = bench.start(plain(1));
    for request in [hedge(2), plain(3), secondary(4), primary(5), hedge(6)] {
        bench.request(request);
    }
    for seq in 2..=6 {
        assert!(bench.finish(copy).is_some());
        let turn = bench.turn();
        assert_eq!(turn.started(), [seq]);
        copy = turn.one_start().copy;
    }
}

#[test]
fn no_more_run_than_there_are_slots() {
    let mut bench = Bench::with(Config { slots: 3, ..config() });
    (1..=8).for_each(|seq| bench.request(plain(seq)));
    let turn = bench.turn();
    assert_eq!(turn.started(), [1, 2, 3]);
    bench.finish(turn.starts[1].copy);
    assert_eq!(bench.turn().started(), [4]);
    assert!(bench.turn().is_empty());
}

#[test]
fn the_payload_comes_back_with_the_start() {
    let mut bench = Bench::new();
    bench.request(plain(77));
    let start = bench.turn().one_start();
    assert_eq!((start.payload, start.request), (77, plain(77)));
    assert_eq!(start.deadline, bench.now + ms(100));
}

#[test]
fn a_core_that_drains_finishes_what_it_has_and_takes_on_nothing_new() {
    let mut bench = Bench::new();
    let running = bench.start(plain(1));
    bench.request(plain(2));
    bench.core.drain();
    bench.request(plain(3));
    assert_eq!(overloaded(&bench.turn()).attempt, attempt(3, 0));
    assert!(bench.finish(running).is_some());
    assert_eq!(bench.turn().started(), [2]);
    assert_eq!(bench.core.stats().rejected_draining, 1);
}

#[test]
fn handlers_that_seemed_too_slow_for_anybody_are_tried_again_when_a_slot_is_free() {
    let mut bench = Bench::new();
    let copy = bench.start(Request { remaining: ms(1_000), ..plain(1) });
    bench.now += ms(900);
    bench.finish(copy);
    bench.start(Request { remaining: ms(50), ..plain(2) });
}
