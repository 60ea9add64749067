//! A connection closes: nobody waits for its copies any more.

use super::*;

#[test]
fn the_copies_of_a_closed_connection_are_dropped_queued_and_running() {
    let mut bench = Bench::new();
    let copy = bench.start(plain(1));
    (2..=4).for_each(|seq| bench.request(plain(seq)));
    bench.core.on_closed(bench.conn, bench.now);
    let turn = bench.turn();
    assert_eq!(turn.aborts, [(copy, StopReason::Closed)]);
    assert!(turn.notices.is_empty(), "there is nobody to tell");
    bench.core.on_aborted(copy, bench.now);
    assert!(bench.turn().is_empty());
    let stats = bench.core.stats();
    assert_eq!((stats.dropped_queued, stats.dropped_running), (3, 1));
    assert!(bench.core.is_idle());
}

#[test]
fn other_connections_keep_their_copies() {
    let mut bench = Bench::new();
    let other = bench.core.on_opened().unwrap();
    let copy = bench.start(plain(1));
    bench.request_on(other, plain(2));
    bench.core.on_closed(bench.conn, bench.now);
    bench.turn();
    bench.core.on_aborted(copy, bench.now);
    assert_eq!(bench.turn().started(), [2]);
}

#[test]
fn an_orphan_that_finishes_is_answered_to_nobody() {
    let mut bench = Bench::new();
    let copy = bench.start(plain(1));
    bench.core.on_closed(bench.conn, bench.now);
    bench.turn();
    assert_eq!(bench.finish(copy), None);
    assert!(bench.turn().is_empty());
}

#[test]
fn a_close_in_the_same_turn_keeps_a_copy_from_starting() {
    let mut bench = Bench::meshed();
    bench.request(primary(1));
    bench.core.on_closed(bench.conn, bench.now);
    assert!(bench.turn().is_empty());
}

#[test]
fn a_copy_whose_connection_closes_before_the_shell_has_it_never_starts() {
    let mut bench = Bench::new();
    bench.request(plain(1));
    bench.core.dispatch(bench.now);
    bench.core.on_closed(bench.conn, bench.now);
    assert!(bench.turn().is_empty());
    assert!(bench.core.is_idle());
}

#[test]
fn what_comes_on_a_closed_connection_is_nobodys() {
    let mut bench = Bench::new();
    bench.core.on_closed(bench.conn, bench.now);
    bench.request(plain(1));
    bench.client(caller_done(plain(1)));
    bench.core.on_closed(bench.conn, bench.now);
    assert!(bench.turn().is_empty());
}

#[test]
fn an_orphan_can_be_cancelled_by_nobody_new() {
    let mut bench = Bench::new();
    bench.start(plain(1));
    bench.core.on_closed(bench.conn, bench.now);
    bench.turn();
    let next = bench.core.on_opened().unwrap();
    bench.core.on_cancel(Origin::Client(next), caller_done(plain(1)), bench.now);
    assert_eq!(bench.core.stats().cancels_refused, 1);
}

#[test]
fn connections_are_limited_and_their_places_used_again() {
    let mut bench = Bench::with(Config { connections: 2, ..config() });
    let second = bench.core.on_opened().unwrap();
    assert!(bench.core.on_opened().is_err());
    bench.core.on_closed(second, bench.now);
    let third = bench.core.on_opened().unwrap();
    assert_ne!(second, third, "an old name means nobody");
    assert_eq!(bench.core.connections(), 2);
}
