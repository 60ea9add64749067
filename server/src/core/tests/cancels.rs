//! Who may cancel what.

use super::*;

/// What refuses a cancel leaves the copy as it was and counts.
fn refused(prepare: impl Fn(&mut Bench) -> (Origin, Cancel)) {
    let mut bench = Bench::meshed();
    let running = bench.start(plain(1));
    bench.request(secondary(2));
    let (origin, cancel) = prepare(&mut bench);
    bench.core.on_cancel(origin, cancel, bench.now);
    assert_eq!(bench.core.stats().cancels_refused, 1);
    assert_eq!(bench.core.tombstones(), 0);
    bench.finish(running);
    assert_eq!(bench.turn().started(), [2], "it must start");
}

#[test]
fn a_stranger_cancels_nothing() {
    refused(|_| (Origin::Stranger, twin_of(secondary(2))));
    refused(|_| (Origin::Stranger, caller_done(secondary(2))));
}

#[test]
fn a_peer_that_is_not_the_twins_core_cancels_nothing() {
    refused(|_| (Origin::Mesh(station(3)), twin_of(secondary(2))));
    refused(|_| (Origin::Mesh(Station { core: 1, ..PEER }), twin_of(secondary(2))));
}

#[test]
fn a_peer_does_not_speak_for_another() {
    refused(|_| {
        let by = Twin { station: station(3), n: 0 };
        let reason = CancelReason::TwinStarted { by };
        (Origin::Mesh(PEER), Cancel { reason, ..twin_of(secondary(2)) })
    });
}

#[test]
fn a_cancel_by_a_copy_that_is_not_the_twin_is_refused() {
    refused(|_| {
        let by = Twin { station: PEER, n: 7 };
        let reason = CancelReason::TwinStarted { by };
        (Origin::Mesh(PEER), Cancel { reason, ..twin_of(secondary(2)) })
    });
}

#[test]
fn a_peer_does_not_say_that_the_caller_is_done() {
    refused(|_| (Origin::Mesh(PEER), caller_done(secondary(2))));
    refused(|_| (Origin::Mesh(PEER), caller_done(secondary(77))));
}

#[test]
fn a_peer_does_not_speak_for_another_of_a_copy_that_is_not_here() {
    refused(|_| (Origin::Mesh(station(3)), twin_of(secondary(77))));
}

#[test]
fn a_client_cancels_only_what_its_own_connection_brought() {
    refused(|bench| (Origin::Client(bench.core.on_opened().unwrap()), caller_done(secondary(2))));
    refused(|bench| (Origin::Client(bench.core.on_opened().unwrap()), twin_of(secondary(2))));
}

/// Somebody else's copy of that name stands first, and is tied to nothing, or to another core.
#[test]
fn a_twins_cancel_finds_its_copy_beside_others_of_that_name() {
    let elsewhere = Tie { twin: Twin { station: station(3), n: 0 }, window: ms(10) };
    let untied = Request { tie: None, ..secondary(2) };
    for other in [untied, Request { tie: Some(elsewhere), ..secondary(2) }] {
        let mut bench = Bench::meshed();
        let conn = bench.core.on_opened().unwrap();
        bench.start(plain(1));
        bench.request_on(conn, other);
        bench.request(secondary(2));
        bench.mesh(twin_of(secondary(2)));
        let turn = bench.turn();
        assert_eq!(turn.one_notice().0, bench.conn);
        assert!(ended(secondary(2), How::Withdrawn, Some(0))(turn.one_ended()));
    }
}

#[test]
fn an_untied_copy_has_no_twin_that_could_cancel_it() {
    let mut bench = Bench::meshed();
    bench.start(plain(1));
    let by = Twin { station: PEER, n: 1 };
    let reason = CancelReason::TwinStarted { by };
    bench.mesh(Cancel { attempt: attempt(1, 0), reason, lifetime: ms(1) });
    assert!(bench.turn().is_empty());
    assert_eq!(bench.core.stats().cancels_refused, 1);
}

#[test]
fn a_relayed_cancel_does_what_the_twins_own_would() {
    let mut bench = Bench::new();
    let running = bench.start(secondary(1));
    bench.request(secondary(2));
    bench.client(twin_of(secondary(2)));
    bench.client(twin_of(secondary(1)));
    let turn = bench.turn();
    assert!(ended(secondary(2), How::Withdrawn, Some(0))(turn.one_ended()));
    assert_eq!(turn.aborts, [(running, StopReason::TwinStarted)]);
}

#[test]
fn a_relayed_cancel_leaves_a_running_primary_alone() {
    let mut bench = Bench::new();
    bench.start(primary(1));
    bench.client(twin_of(primary(1)));
    assert!(bench.turn().is_empty());
}

#[test]
fn a_caller_that_is_done_stops_queued_and_running_copies_primary_or_not() {
    for copy in [plain(2), primary(2), secondary(2)] {
        let mut bench = Bench::new();
        let running = bench.start(copy);
        bench.request(Request { attempt: attempt(3, copy.attempt.n), ..copy });
        bench.client(caller_done(copy));
        bench.client(Cancel { attempt: attempt(3, copy.attempt.n), ..caller_done(copy) });
        let turn = bench.turn();
        assert_eq!(turn.aborts, [(running, StopReason::CallerDone)]);
        assert_eq!(turn.one_ended().how, How::Withdrawn);
        bench.core.on_aborted(running, bench.now);
        assert!(ended(copy, How::Aborted, None)(bench.turn().one_ended()));
    }
}

#[test]
fn a_caller_that_is_done_stops_a_primary_that_had_ignored_its_twin() {
    let mut bench = Bench::meshed();
    let copy = bench.start(primary(1));
    bench.mesh(twin_of(primary(1)));
    bench.client(caller_done(primary(1)));
    assert_eq!(bench.turn().aborts, [(copy, StopReason::CallerDone)]);
}

#[test]
fn a_handler_is_asked_to_stop_once() {
    let mut bench = Bench::meshed();
    let copy = bench.start(secondary(1));
    bench.mesh(twin_of(secondary(1)));
    bench.client(caller_done(secondary(1)));
    bench.client(caller_done(secondary(1)));
    assert_eq!(bench.turn().aborts, [(copy, StopReason::TwinStarted)]);
    assert_eq!(bench.core.stats().cancels_repeated, 2);
}

#[test]
fn a_clients_cancel_of_an_unknown_copy_leaves_nothing_behind() {
    let mut bench = Bench::new();
    bench.client(caller_done(secondary(1)));
    bench.client(twin_of(secondary(1)));
    assert_eq!((bench.core.tombstones(), bench.core.stats().cancels_late), (0, 2));
    bench.request(secondary(1));
    assert_eq!(bench.turn().started(), [1]);
}
