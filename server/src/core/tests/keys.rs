//! What is asked for twice under one key is done once.

use bowline_protocol::options::Key;
use bowline_protocol::{Freshness, Label};

use super::*;

pub(super) const fn key(id: u128) -> OptionSet {
    OptionSet { key: Some(Key { id, fingerprint: 7 }), ..OptionSet::NONE }
}

/// A payment with a key of its call's number.
pub(super) const fn pay(seq: u64) -> Request {
    Request { method: PAY, idempotent: false, ..plain(seq) }
}

/// Two slots, so that a duplicate could run beside its original.
fn bench() -> Bench {
    Bench::with(Config { slots: 2, ..config() })
}

impl Bench {
    fn pay(&mut self, seq: u64, id: u128) {
        self.request_with(self.conn, pay(seq), &key(id));
    }

    fn start_paying(&mut self, seq: u64, id: u128) -> CopyKey {
        self.pay(seq, id);
        self.turn().one_start().copy
    }
}

impl Turn {
    /// The calls that were answered with another's result, which is the bench's.
    fn answered(&self) -> Vec<u64> {
        self.answers
            .iter()
            .map(|(_, _, reply, result)| {
                assert_eq!((reply.status, &result[..]), (Status::Ok, &b"done"[..]));
                reply.attempt.seq.0
            })
            .collect()
    }
}

#[test]
fn a_duplicate_waits_for_the_one_that_runs_and_gets_its_result() {
    let mut bench = bench();
    let first = bench.start_paying(1, 9);
    bench.pay(2, 9);
    bench.pay(3, 9);
    assert!(bench.turn().is_empty(), "neither runs, though a slot is free");
    assert_eq!((bench.core.stats().parked, bench.core.stats().running), (2, 1));
    assert!(bench.finish(first).is_some());
    assert_eq!(bench.turn().answered(), [2, 3]);
    assert_eq!(bench.core.stats().started, 1);
    assert_eq!(bench.core.stats().replied_by_key, 2);
    assert_eq!(bench.core.stats().keys_waited, 2);
}

#[test]
fn a_duplicate_that_waits_holds_no_slot() {
    let mut bench = bench();
    bench.start_paying(1, 9);
    bench.pay(2, 9);
    bench.request(plain(3));
    assert_eq!(bench.turn().started(), [3]);
}

#[test]
fn what_was_done_is_answered_at_once_with_the_same_bytes() {
    let mut bench = Bench::new();
    let first = bench.start_paying(1, 9);
    bench.finish(first);
    bench.turn();
    bench.request(plain(2));
    bench.turn();
    bench.pay(3, 9);
    assert_eq!(bench.turn().answered(), [3], "though the only slot is taken");
    assert_eq!(bench.core.stats().replied_by_key, 1);
}

#[test]
fn a_stored_result_is_given_even_where_the_queue_is_full() {
    let mut bench = Bench::new();
    let first = bench.start_paying(1, 9);
    bench.finish(first);
    (10..19).for_each(|seq| bench.request(plain(seq)));
    bench.turn();
    bench.pay(2, 9);
    assert_eq!(bench.turn().answered(), [2]);
}

#[test]
fn the_same_key_with_another_payload_or_method_is_refused_by_name() {
    let mut bench = Bench::new();
    let first = bench.start_paying(1, 9);
    bench.finish(first);
    let other = OptionSet { key: Some(Key { id: 9, fingerprint: 8 }), ..key(9) };
    bench.request_with(bench.conn, pay(2), &other);
    bench.request_with(bench.conn, Request { method: WRITE, ..pay(3) }, &key(9));
    let turn = bench.turn();
    assert!(turn.starts.is_empty() && turn.answers.is_empty());
    for (_, notice) in turn.notices {
        let Notice::Refused(reply, why) = notice else { panic!("{notice:?}") };
        assert_eq!((reply.status, reply.executed), (Status::BadRequest, false));
        assert!(why.contains("another method or another payload"), "{why}");
    }
    assert_eq!(bench.core.stats().rejected_other_use, 2);
}

#[test]
fn another_use_is_refused_as_well_if_both_were_queued_when_it_came() {
    let mut bench = bench();
    bench.pay(1, 9);
    let other = OptionSet { key: Some(Key { id: 9, fingerprint: 8 }), ..key(9) };
    bench.request_with(bench.conn, pay(2), &other);
    let turn = bench.turn();
    assert_eq!(turn.started(), [1]);
    assert!(matches!(turn.one_notice().1, Notice::Refused(reply, _) if !reply.executed));
    assert_eq!(bench.core.stats().replied_other_use, 1);
}

#[test]
fn a_failure_is_told_to_those_that_wait_and_not_remembered() {
    let mut bench = bench();
    let first = bench.start_paying(1, 9);
    bench.pay(2, 9);
    bench.turn();
    bench.core.on_finished(first, Status::App(3), b"no luck", &OptionSet::NONE, bench.now);
    let turn = bench.turn();
    let (_, _, reply, result) = &turn.answers[0];
    assert_eq!((reply.status, &result[..]), (Status::App(3), &b"no luck"[..]));
    bench.pay(3, 9);
    assert_eq!(bench.turn().started(), [3], "it may be tried again");
}

#[test]
fn if_the_one_that_ran_stops_another_runs_in_its_place() {
    let mut bench = bench();
    let first = bench.start_paying(1, 9);
    bench.pay(2, 9);
    bench.pay(3, 9);
    bench.turn();
    bench.core.on_aborted(first, bench.now);
    let turn = bench.turn();
    assert_eq!(turn.started(), [2]);
    bench.finish(turn.starts[0].copy);
    assert_eq!(bench.turn().answered(), [3]);
}

#[test]
fn if_the_connection_of_the_one_that_starts_closes_another_runs_in_its_place() {
    let mut bench = bench();
    let other = bench.core.on_opened().unwrap();
    bench.request_with(other, pay(1), &key(9));
    bench.pay(2, 9);
    bench.core.dispatch(bench.now);
    bench.core.on_closed(other, bench.now);
    bench.turn();
    assert_eq!(bench.turn().started(), [2]);
}

/// The client has gone, but its effect was had: who asks again is told so.
#[test]
fn the_result_of_a_copy_that_nobody_waits_for_is_remembered() {
    let mut bench = bench();
    let other = bench.core.on_opened().unwrap();
    bench.request_with(other, pay(1), &key(9));
    let first = bench.turn().one_start().copy;
    bench.core.on_closed(other, bench.now);
    assert!(bench.finish(first).is_none());
    bench.pay(2, 9);
    assert_eq!(bench.turn().answered(), [2]);
}

#[test]
fn a_duplicate_that_waits_is_withdrawn_dropped_and_shed_as_any_other() {
    let mut bench = bench();
    let other = bench.core.on_opened().unwrap();
    let first = bench.start_paying(1, 9);
    bench.pay(2, 9);
    bench.request_with(other, pay(3), &key(9));
    bench.request_with(bench.conn, Request { remaining: ms(5), ..pay(4) }, &key(9));
    bench.turn();
    bench.client(caller_done(pay(2)));
    assert_eq!(bench.turn().one_ended().how, How::Withdrawn);
    bench.core.on_closed(other, bench.now);
    bench.pass(ms(6));
    assert!(ended(pay(4), How::Shed, None)(bench.turn().one_ended()));
    bench.finish(first);
    assert!(bench.turn().is_empty());
    assert_eq!(bench.core.stats().parked, 0);
}

#[test]
fn results_are_forgotten_when_their_time_is_out() {
    let mut bench = Bench::with(Config {
        keys: KeyLimits { life: ms(50), ..KeyLimits::default() },
        ..config()
    });
    let first = bench.start_paying(1, 9);
    bench.finish(first);
    assert_eq!(bench.core.next_timeout(), Some(bench.now + ms(50)));
    bench.pass(ms(50));
    assert_eq!((bench.core.stats().keys, bench.core.stats().key_bytes), (0, 0));
    assert_eq!(bench.core.stats().keys_expired, 1);
    bench.pay(2, 9);
    assert_eq!(bench.turn().started(), [2]);
}

#[test]
fn the_oldest_results_make_room_in_number_and_in_bytes() {
    for limits in [
        KeyLimits { results: 2, ..KeyLimits::default() },
        // Each has four.
        KeyLimits { bytes: 9, ..KeyLimits::default() },
    ] {
        let mut bench = Bench::with(Config { keys: limits, ..config() });
        for seq in 1..=3 {
            let copy = bench.start_paying(seq, seq.into());
            bench.finish(copy);
        }
        let stats = bench.core.stats();
        assert_eq!((stats.keys, stats.key_bytes, stats.keys_evicted), (2, 8, 1));
        (2..=3).for_each(|id| bench.pay(10 + id as u64, id));
        assert_eq!(bench.turn().answered(), [12, 13]);
    }
}

#[test]
fn a_result_that_is_too_large_is_not_kept() {
    let limits = KeyLimits { bytes: 3, ..KeyLimits::default() };
    let mut bench = Bench::with(Config { keys: limits, ..config() });
    let first = bench.start_paying(1, 9);
    bench.finish(first);
    assert_eq!((bench.core.stats().keys, bench.core.stats().keys_evicted), (0, 1));
}

#[test]
fn a_keyed_call_may_be_hedged_only_where_results_are_shared() {
    let hedged = Request { cause: Cause::Hedge, ..pay(1) };
    for (shared_results, options, taken) in
        [(true, key(9), true), (true, OptionSet::NONE, false), (false, key(9), false)]
    {
        let mut bench = Bench::with(Config { shared_results, ..config() });
        bench.request_with(bench.conn, hedged, &options);
        assert_eq!(bench.turn().starts.len(), usize::from(taken));
    }
}

#[test]
fn a_duplicate_that_waits_has_left_the_queue_once_also_if_its_connection_closes() {
    let mut bench = bench();
    let other = bench.core.on_opened().unwrap();
    bench.start_paying(1, 9);
    bench.request_with(other, pay(2), &key(9));
    bench.turn();
    let before = alloc::format!("{:?}", bench.core.estimate);
    bench.core.on_closed(other, bench.now);
    assert_eq!(alloc::format!("{:?}", bench.core.estimate), before);
}

/// The client's reply was lost, and its repeat has the same key: it is to find what it wrote.
#[test]
fn a_remembered_answer_is_of_the_version_that_its_handler_said() {
    let mut bench = bench();
    bench.core.on_freshness(Some(Freshness::version(70)));
    let first = bench.start_paying(1, 9);
    let wrote = Freshness::version(77);
    let says = OptionSet { fresh: Some(wrote), label: Some(Label::new("disk")), ..OptionSet::NONE };
    bench.core.on_finished(first, Status::Ok, b"done", &says, bench.now);
    bench.core.on_freshness(Some(Freshness::version(120)));
    bench.pay(2, 9);
    assert_eq!(bench.turn().answers[0].1, says, "neither less nor more than the first said");
    let ahead = OptionSet { fresh: Some(Freshness::version(100)), ..key(9) };
    bench.request_with(bench.conn, pay(3), &ahead);
    assert_eq!(bench.turn().answers[0].1, says, "who asks for more is told what there is");
}

#[test]
fn an_answer_by_key_is_as_stale_as_the_first_one_and_as_what_has_passed_since() {
    let mut bench = bench();
    bench.core.on_freshness(Some(Freshness { version: 7, staleness: ms(1) }));
    let first = bench.start_paying(1, 9);
    bench.request_with(
        bench.conn,
        pay(2),
        &OptionSet { fresh: Some(Freshness::within(ms(5))), ..key(9) },
    );
    assert!(bench.turn().is_empty(), "it waits for the first");
    bench.pass(ms(50));
    // The handler read at its start.
    let says = |staleness| OptionSet {
        fresh: Some(Freshness { version: 7, staleness }),
        ..OptionSet::NONE
    };
    bench.core.on_finished(first, Status::Ok, b"done", &says(ms(51)), bench.now);
    assert_eq!(bench.turn().answers[0].1, says(ms(51)));
    bench.pass(ms(100));
    bench.pay(3, 9);
    assert_eq!(bench.turn().answers[0].1, says(ms(151)));
}

/// It waited for another's result, and that one's handler took its time.
#[test]
fn a_duplicate_that_is_queued_again_has_not_waited_for_a_slot_meanwhile() {
    let mut bench = bench();
    let long = |seq| Request { remaining: ms(100_000), ..pay(seq) };
    bench.request_with(bench.conn, long(1), &key(9));
    bench.request_with(bench.conn, long(2), &key(9));
    let first = bench.turn().one_start();
    bench.pass(ms(10_000));
    bench.core.on_aborted(first.copy, bench.now);
    assert_eq!(bench.turn().started(), [2]);
    assert_eq!(bench.core.load().wait, ms(0));
}
