//! Every copy ends once, and is told of once, where it came from.

use super::super::{Gone, Stats};
use super::*;

#[test]
fn a_reply_goes_out_on_the_connection_that_brought_the_copy() {
    let mut bench = Bench::new();
    let other = bench.core.on_opened().unwrap();
    bench.request_on(other, plain(1));
    let copy = bench.turn().one_start().copy;
    let (conn, reply) = bench.finish(copy).unwrap();
    assert_eq!(conn, other);
    assert_eq!((reply.attempt, reply.status, reply.executed), (attempt(1, 0), Status::Ok, true));
}

#[test]
fn a_handler_that_failed_is_answered_for() {
    let mut bench = Bench::new();
    let copy = bench.start(plain(1));
    let (_, reply, _) =
        bench.core.on_finished(copy, Status::Failed, &[], &OptionSet::NONE, bench.now).unwrap();
    assert_eq!((reply.status, reply.executed), (Status::Failed, true));
    assert_eq!(bench.core.stats().replied_failed, 1);
}

#[test]
fn a_copy_ends_only_once() {
    let mut bench = Bench::new();
    let copy = bench.start(plain(1));
    assert!(bench.finish(copy).is_some());
    assert!(bench.finish(copy).is_none());
    bench.core.on_aborted(copy, bench.now);
    bench.client(caller_done(plain(1)));
    assert!(bench.turn().is_empty());
}

#[test]
fn an_old_key_does_not_end_the_next_copy_in_its_place() {
    let mut bench = Bench::new();
    let old = bench.start(plain(1));
    bench.finish(old);
    let new = bench.start(plain(2));
    assert_eq!(old.index(), new.index());
    assert!(bench.finish(old).is_none());
    assert!(bench.finish(new).is_some());
}

#[test]
fn an_answer_that_nobody_waits_for_is_not_sent() {
    let mut bench = Bench::new();
    let copy = bench.start(plain(1));
    bench.client(caller_done(plain(1)));
    bench.turn();
    assert_eq!(bench.finish(copy), None);
    assert!(ended(plain(1), How::Aborted, None)(bench.turn().one_ended()));
    assert_eq!(bench.core.stats().aborted_by_caller, 1);
}

/// Its handler may stop by that, and the call goes on with the other copy.
#[test]
fn an_error_of_a_copy_that_was_asked_to_stop_is_its_stopping_and_a_result_is_a_result() {
    for status in [Status::App(2), Status::Failed, Status::BadRequest, Status::Ok] {
        let mut bench = Bench::meshed();
        let copy = bench.start(secondary(1));
        bench.mesh(twin_of(secondary(1)));
        bench.turn();
        let finished = bench.core.on_finished(copy, status, b"", &OptionSet::NONE, bench.now);
        if status == Status::Ok {
            assert_eq!(finished.map(|(_, reply, _)| reply.status), Some(Status::Ok));
            continue;
        }
        assert_eq!(finished, None);
        assert!(ended(secondary(1), How::Aborted, Some(0))(bench.turn().one_ended()));
        assert_eq!(bench.core.stats().aborted_by_twin, 1);
    }
}

#[test]
fn an_answer_that_is_not_wanted_any_more_is_not_sent_even_if_the_twin_asked_first() {
    let mut bench = Bench::meshed();
    let copy = bench.start(secondary(1));
    bench.mesh(twin_of(secondary(1)));
    bench.client(caller_done(secondary(1)));
    bench.turn();
    assert_eq!(bench.finish(copy), None);
}

#[test]
fn a_secondary_that_finished_all_the_same_is_answered() {
    let mut bench = Bench::meshed();
    let copy = bench.start(secondary(1));
    bench.mesh(twin_of(secondary(1)));
    bench.turn();
    assert!(bench.finish(copy).is_some());
    assert_eq!(bench.core.stats().replied, 1);
}

#[test]
fn a_copy_that_the_shell_stops_is_told_of_as_aborted() {
    let mut bench = Bench::new();
    let copy = bench.start(plain(1));
    bench.core.on_aborted(copy, bench.now);
    assert!(ended(plain(1), How::Aborted, None)(bench.turn().one_ended()));
    assert_eq!(bench.core.stats().aborted_by_server, 1);
}

#[test]
fn an_abort_that_came_too_late_is_not_asked_for() {
    let mut bench = Bench::new();
    let copy = bench.start(plain(1));
    bench.client(caller_done(plain(1)));
    bench.finish(copy);
    assert!(bench.turn().aborts.is_empty());
}

#[test]
fn every_terminal_frame_says_how_the_server_is_doing() {
    let mut bench = Bench::with(Config { slots: 2, ..config() });
    (1..=5).for_each(|seq| bench.request(plain(seq)));
    let copy = bench.turn().starts[0].copy;
    bench.client(caller_done(plain(5)));
    let withdrawn = bench.turn().one_ended();
    assert_eq!((withdrawn.load.running, withdrawn.load.queued), (2, 2));
    let (_, reply) = bench.finish(copy).unwrap();
    assert_eq!((reply.load.running, reply.load.queued), (1, 2));
}

#[test]
fn the_load_tells_how_long_copies_waited() {
    let mut bench = Bench::new();
    let mut copy = bench.start(plain(1));
    bench.request(plain(2));
    bench.turn();
    bench.now += ms(8);
    bench.finish(copy);
    copy = bench.turn().one_start().copy;
    let (_, reply) = bench.finish(copy).unwrap();
    assert_eq!(reply.load.wait, ms(1), "an eighth of each new wait");
}

#[test]
fn a_handler_that_could_make_nothing_of_the_request_was_started() {
    let mut bench = Bench::new();
    let copy = bench.start(plain(1));
    let (_, reply, _) =
        bench.core.on_finished(copy, Status::BadRequest, &[], &OptionSet::NONE, bench.now).unwrap();
    assert_eq!((reply.status, reply.executed), (Status::BadRequest, true));
}

#[test]
fn who_watches_is_told_of_each_copy_that_never_ran_and_why() {
    let mut bench = Bench::meshed();
    bench.core.watch(true);
    bench.start(plain(1));
    bench.request(plain(2));
    bench.request(secondary(3));
    bench.request(Request { remaining: ms(5), ..plain(4) });
    let other = bench.core.on_opened().unwrap();
    bench.request_on(other, plain(5));
    bench.turn();
    bench.now += ms(2);
    bench.client(caller_done(plain(2)));
    bench.mesh(twin_of(secondary(3)));
    bench.core.on_closed(other, bench.now);
    bench.pass(ms(3));
    bench.mesh(twin_of(secondary(6)));
    bench.request(secondary(6));
    let mut told = Vec::new();
    while let Some(Gone { request, waited, why, .. }) = bench.core.poll_gone() {
        told.push((request.attempt.seq.0, waited, why.name()));
    }
    let expected = [
        (2, ms(2), "withdrawn_by_caller"),
        (3, ms(2), "withdrawn_by_twin"),
        (5, ms(2), "dropped_queued"),
        (4, ms(5), "shed_expired"),
        (6, ms(0), "withdrawn_by_tombstone"),
    ];
    assert_eq!(told, expected);
    let stats = bench.core.stats();
    for (_, _, why) in expected {
        let place = Stats::NAMES.iter().position(|name| *name == why).unwrap();
        assert_eq!(stats.values()[place], 1, "{why}");
    }
}

#[test]
fn nothing_is_kept_of_copies_that_nobody_watches() {
    let mut bench = Bench::new();
    bench.start(plain(1));
    bench.request(plain(2));
    bench.turn();
    bench.client(caller_done(plain(2)));
    assert!(bench.core.poll_gone().is_none());
}
