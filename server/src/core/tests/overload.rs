//! More comes than can be done: who is served, and who makes room.

use super::*;

const ALWAYS: Duration = Duration::from_secs(3600);

fn patient(request: Request) -> Request {
    Request { remaining: ALWAYS, ..request }
}

/// One slot, copies 2 to 9 in the queue, and an overload that has begun, where handlers take this
/// long. Returns the copy that runs.
fn overloaded_with(service: Duration, kind: fn(u64) -> Request) -> (Bench, CopyKey) {
    let mut bench = Bench::meshed();
    for _ in 0..40 {
        let copy = bench.start(plain(1));
        bench.now += service;
        bench.finish(copy);
    }
    let running = bench.start(patient(plain(1)));
    (2..=9).for_each(|seq| bench.request(patient(kind(seq))));
    for _ in 0..4 {
        bench.turn();
        bench.pass(ms(60) + 50 * service);
    }
    bench.turn();
    assert!(bench.core.is_overloaded());
    assert_eq!(bench.core.stats().overloads, 1);
    (bench, running)
}

fn overloaded(kind: fn(u64) -> Request) -> (Bench, CopyKey) {
    overloaded_with(Duration::ZERO, kind)
}

#[test]
fn under_overload_the_newest_is_served_first() {
    let (mut bench, mut copy) = overloaded(plain);
    for seq in [9, 8, 7] {
        bench.finish(copy);
        let turn = bench.turn();
        assert_eq!(turn.started(), [seq]);
        copy = turn.one_start().copy;
    }
}

#[test]
fn under_overload_primaries_pass_extras() {
    let (mut bench, copy) = overloaded(hedge);
    bench.finish(copy);
    bench.request(patient(plain(10)));
    bench.request(patient(hedge(11)));
    let turn = bench.turn();
    assert_eq!(turn.started(), [10]);
    bench.finish(turn.one_start().copy);
    assert_eq!(bench.turn().started(), [11]);
}

#[test]
fn when_the_queue_has_run_empty_the_oldest_is_first_again() {
    let (mut bench, mut copy) = overloaded(plain);
    for _ in 0..8 {
        bench.finish(copy);
        copy = bench.turn().one_start().copy;
    }
    assert!(!bench.core.is_overloaded());
    (10..=12).for_each(|seq| bench.request(plain(seq)));
    bench.turn();
    bench.finish(copy);
    assert_eq!(bench.turn().started(), [10]);
}

#[test]
fn under_overload_the_oldest_makes_room() {
    let (mut bench, _) = overloaded(plain);
    bench.request(patient(plain(10)));
    assert!(ended(plain(2), How::Shed, None)(bench.turn().one_ended()));
    assert_eq!(bench.core.stats().shed_oldest, 1);
}

#[test]
fn switched_off_the_order_never_turns_over() {
    let mut bench = Bench::with(Config { overload: None, ..config() });
    let copy = bench.start(patient(plain(1)));
    (2..=9).for_each(|seq| bench.request(patient(plain(seq))));
    for _ in 0..10 {
        bench.turn();
        bench.pass(ms(60));
    }
    bench.finish(copy);
    assert_eq!(bench.turn().started(), [2]);
}

#[test]
fn under_overload_a_primary_is_not_refused_for_the_wait_of_those_that_it_passes() {
    let (mut bench, _) = overloaded_with(ms(10), plain);
    bench.request(Request { remaining: ms(60), ..plain(10) });
    bench.request(Request { remaining: ms(60), ..hedge(11) });
    bench.turn();
    let stats = bench.core.stats();
    assert_eq!((stats.rejected_wait, stats.shed_oldest), (1, 1));
}

/// The queue is full of copies of one greedy connection, when another one comes.
fn crowded() -> (Bench, Conn) {
    let mut bench = Bench::new();
    bench.start(plain(1));
    (2..=9).for_each(|seq| bench.request(plain(seq)));
    bench.turn();
    let modest = bench.core.on_opened().unwrap();
    (bench, modest)
}

#[test]
fn a_connection_that_has_more_waiting_makes_room_for_one_that_has_less() {
    let (mut bench, modest) = crowded();
    for (seq, victim) in [(20, 9), (21, 8), (22, 7)] {
        bench.request_on(modest, plain(seq));
        let turn = bench.turn();
        assert_eq!(turn.one_notice().0, bench.conn);
        assert!(ended(plain(victim), How::Shed, None)(turn.one_ended()));
    }
    assert_eq!(bench.core.stats().shed_greedy, 3);
}

#[test]
fn an_extra_takes_no_primarys_place_however_many_its_connection_has() {
    for extra in [hedge, secondary] {
        let (mut bench, modest) = crowded();
        bench.request_on(modest, extra(20));
        assert!(
            matches!(bench.turn().one_notice(), (conn, Notice::Overloaded(_)) if conn == modest)
        );
        let (mut bench, _) = overloaded(plain);
        bench.request(patient(extra(20)));
        assert!(matches!(bench.turn().one_notice().1, Notice::Overloaded(_)));
        assert_eq!(bench.core.stats().shed(), 0);
    }
}

#[test]
fn connections_share_the_queue_evenly_in_the_end_and_do_not_oust_each_other_for_ever() {
    let (mut bench, modest) = crowded();
    (20..40).for_each(|seq| bench.request_on(modest, plain(seq)));
    bench.turn();
    (40..60).for_each(|seq| bench.request(plain(seq)));
    bench.turn();
    assert_eq!(bench.core.stats().shed_greedy, 4, "four each, and then no more");
    assert_eq!(bench.core.stats().rejected_queue_requests, 36);
}

#[test]
fn under_overload_connections_take_turns() {
    let (mut bench, copy) = overloaded(plain);
    let modest = bench.core.on_opened().unwrap();
    bench.request_on(modest, patient(plain(20)));
    bench.request(patient(plain(21)));
    bench.request_on(modest, patient(plain(22)));
    bench.request(patient(plain(23)));
    bench.finish(copy);
    let mut order = vec![];
    for _ in 0..5 {
        let start = bench.turn().one_start();
        order.push(start.request.attempt.seq.0);
        bench.finish(start.copy);
    }
    assert_eq!(order, [23, 22, 21, 20, 9], "each gets its newest, and then the rest its turn");
}

#[test]
fn what_waits_only_counts_while_it_waits() {
    let mut bench = Bench::new();
    let mut copy = bench.start(plain(1));
    for round in 0..50 {
        let seq = 2 + round * 3;
        (seq..seq + 3).for_each(|seq| bench.request(plain(seq)));
        bench.client(caller_done(plain(seq)));
        for _ in 0..2 {
            bench.finish(copy);
            copy = bench.turn().one_start().copy;
        }
    }
    let modest = bench.core.on_opened().unwrap();
    (500..508).for_each(|seq| bench.request_on(modest, plain(seq)));
    bench.request(plain(600));
    bench.turn();
    let stats = bench.core.stats();
    assert_eq!((stats.shed_greedy, stats.queued), (1, 8), "the first has none waiting");
}

#[test]
fn in_the_dark_nothing_is_refused_or_shed_for_its_time_and_all_is_counted() {
    let mut bench = Bench::with(Config { dark: true, ..config() });
    bench.request(Request { remaining: ms(0), ..plain(1) });
    let copy = bench.turn().one_start().copy;
    bench.now += ms(20);
    bench.finish(copy);
    let copy = bench.start(plain(2));
    bench.request(Request { remaining: ms(5), ..plain(3) });
    bench.pass(ms(5));
    bench.finish(copy);
    assert_eq!(bench.turn().started(), [3]);
    let stats = bench.core.stats();
    assert_eq!(
        (stats.dark_too_late, stats.dark_wait, stats.shed(), stats.rejected()),
        (1, 1, 0, 0)
    );
    assert!(stats.dark_shed > 0);
}

/// What goes by time is spared. What there is room for has its bound, and who makes room is told.
#[test]
fn in_the_dark_the_queue_is_bounded_as_ever() {
    let mut bench = Bench::with(Config { dark: true, ..config() });
    bench.start(plain(1));
    (2..=10).for_each(|seq| bench.request(plain(seq)));
    let modest = bench.core.on_opened().unwrap();
    bench.request_on(modest, plain(11));
    bench.turn();
    let stats = bench.core.stats();
    assert_eq!((stats.rejected_queue_requests, stats.shed_greedy, stats.queued), (1, 1, 8));
}
