//! Answers that are there already, by their keys, wait for room as replies do that have yet to be made.

use super::hold::{KIB, REPLY, patient, tight};
use super::keys::{key, pay};
use super::*;

impl Bench {
    /// One that knows the answers to these keys, so many bytes each, and nobody reads.
    fn knowing(config: Config, keys: core::ops::RangeInclusive<u64>, bytes: usize) -> Bench {
        let mut bench = Bench::with(config);
        for id in keys {
            bench.request_with(bench.conn, pay(1_000 + id), &key(id.into()));
            let copy = bench.turn().one_start().copy;
            bench.finish_with(copy, bytes);
            bench.turn();
        }
        bench
    }

    /// Asks for what there is under a key, and waits for it as long as it takes.
    fn ask(&mut self, conn: Conn, seq: u64, id: u64) {
        self.request_with(conn, patient(pay(seq)), &key(id.into()));
    }

    /// The client reads all, again and again, and is answered with replies of such a length: these calls,
    /// in this order. Nothing runs.
    fn read_on(&mut self, conn: Conn, bytes: usize) -> Vec<u64> {
        let mut calls = Vec::new();
        for _ in 0..30 {
            self.unread(conn, 0);
            let turn = self.turn();
            assert!(turn.starts.is_empty() && turn.notices.is_empty());
            assert!(turn.answers.len() <= 1, "there is room for one");
            for (to, _, reply, result) in turn.answers {
                assert_eq!((to, reply.status, result.len()), (conn, Status::Ok, bytes));
                calls.push(reply.attempt.seq.0);
                self.unread(conn, bytes);
            }
            assert!(self.turn().is_empty(), "nobody has read meanwhile");
        }
        calls
    }
}

/// Who was told what, of those that were refused.
fn refused(turn: &Turn) -> Vec<(u64, Status, bool)> {
    let refused = |(_, notice): &(Conn, Notice)| match notice {
        Notice::Refused(reply, _) => (reply.attempt.seq.0, reply.status, reply.executed),
        other => panic!("{other:?}"),
    };
    turn.notices.iter().map(refused).collect()
}

#[test]
fn answers_wait_for_room_however_many_are_asked_for_at_once() {
    let mut bench = Bench::knowing(tight(), 1..=20, REPLY);
    let hoarder = bench.core.on_opened().unwrap();
    (1..=20).for_each(|seq| bench.ask(hoarder, seq, seq));
    let turn = bench.turn();
    assert_eq!((turn.answers.len(), turn.starts.len()), (1, 0));
    bench.unread(hoarder, REPLY);
    assert!(bench.turn().is_empty());
    assert_eq!(bench.held(), 19);
    assert_eq!(bench.read_on(hoarder, REPLY), (2..=20).collect::<Vec<_>>());
    assert_eq!(bench.core.stats().replied_by_key, 20);
    assert!(!bench.core.histograms().held.is_empty() && !bench.core.is_holding());
}

/// In one turn, too, in which nobody can tell yet what waits.
#[test]
fn answers_that_were_queued_count_before_they_are_sent() {
    let mut bench = Bench::knowing(tight(), 1..=20, REPLY);
    let hoarder = bench.core.on_opened().unwrap();
    bench.unread(hoarder, 2 * REPLY);
    (1..=20).for_each(|seq| bench.ask(hoarder, seq, seq));
    assert!(bench.turn().is_empty());
    assert_eq!(bench.held(), 20);
    assert_eq!(bench.read_on(hoarder, REPLY), (1..=20).collect::<Vec<_>>());
}

#[test]
fn little_answers_wait_as_well_if_they_are_many_at_once() {
    let mut bench = Bench::knowing(tight(), 1..=20, 30 * KIB);
    (1..=20).for_each(|seq| bench.ask(bench.conn, seq, seq));
    assert_eq!(bench.turn().answers.len(), 4);
    assert_eq!(bench.turn().answers.len(), 4, "and no longer than until they are sent");
}

#[test]
fn an_answer_takes_as_much_room_as_it_is_long_whatever_others_were() {
    let mut bench = Bench::knowing(tight(), 1..=1, REPLY);
    for id in 2..=60 {
        bench.request_with(bench.conn, pay(1_000 + id), &key(id.into()));
        let copy = bench.turn().one_start().copy;
        bench.finish_with(copy, KIB);
    }
    bench.turn();
    bench.unread(bench.conn, REPLY);
    bench.ask(bench.conn, 1, 1);
    assert!(bench.turn().is_empty(), "its method's replies are short, and this one is not");
    assert_eq!(bench.held(), 1);
    bench.ask(bench.conn, 2, 2);
    assert_eq!(bench.turn().answers.len(), 1, "and that one is");
}

#[test]
fn who_waits_for_anothers_result_is_answered_as_there_is_room_and_does_not_run() {
    let mut bench = Bench::with(tight());
    let other = bench.core.on_opened().unwrap();
    bench.ask(bench.conn, 1, 9);
    (2..=4).for_each(|seq| bench.ask(bench.conn, seq, 9));
    bench.ask(other, 5, 9);
    let first = bench.turn().one_start().copy;
    bench.finish_with(first, REPLY);
    bench.unread(bench.conn, REPLY);
    let turn = bench.turn();
    assert_eq!(turn.answers.len(), 1);
    assert_eq!(
        turn.answers[0].0, other,
        "whose room it is: that of the others is taken by the first's"
    );
    assert_eq!((bench.held(), bench.core.stats().parked), (3, 0));
    assert_eq!(bench.read_on(bench.conn, REPLY), [2, 3, 4]);
    assert_eq!(bench.core.stats().started, 1);
}

#[test]
fn a_result_that_is_not_kept_is_kept_for_those_that_wait_for_it() {
    for limits in [
        KeyLimits { results: 0, ..KeyLimits::default() },
        KeyLimits { bytes: REPLY - 1, ..KeyLimits::default() },
    ] {
        let mut bench = Bench::with(Config { keys: limits, ..tight() });
        (1..=3).for_each(|seq| bench.ask(bench.conn, seq, 9));
        let first = bench.turn().one_start().copy;
        bench.finish_with(first, REPLY);
        bench.unread(bench.conn, REPLY);
        bench.turn();
        assert_eq!((bench.core.stats().keys, bench.core.stats().key_bytes), (1, REPLY as u64));
        assert_eq!(bench.read_on(bench.conn, REPLY), [2, 3]);
        assert_eq!((bench.core.stats().keys, bench.core.stats().key_bytes), (0, 0));
        bench.unread(bench.conn, 0);
        bench.ask(bench.conn, 4, 9);
        assert_eq!(bench.turn().started(), [4], "who comes later finds nothing");
    }
}

#[test]
fn a_result_is_not_forgotten_while_a_copy_waits_for_room_for_it() {
    let one = KeyLimits { results: 1, life: ms(50), ..KeyLimits::default() };
    let mut bench = Bench::knowing(Config { keys: one, ..tight() }, 1..=1, REPLY);
    bench.unread(bench.conn, REPLY);
    bench.ask(bench.conn, 1, 1);
    bench.turn();
    let other = bench.core.on_opened().unwrap();
    bench.request_with(other, pay(2), &key(2));
    let second = bench.turn().one_start().copy;
    bench.finish_with(second, REPLY);
    bench.turn();
    assert_eq!((bench.core.stats().keys, bench.core.stats().keys_evicted), (2, 1));
    bench.pass(ms(50));
    assert_eq!((bench.core.stats().keys, bench.core.stats().keys_expired), (1, 1));
    assert_eq!(bench.read_on(bench.conn, REPLY), [1]);
    assert_eq!(bench.core.stats().keys, 0);
}

/// A quarter of the room for all: that of four replies.
#[test]
fn what_can_not_be_kept_is_told_to_have_been_done_and_does_not_run_again() {
    let keys = KeyLimits { results: 0, ..KeyLimits::default() };
    let mut bench = Bench::with(Config { keys, slots: 10, ..tight() });
    let seconds = bench.hoarders(6, 0);
    for (id, second) in (1..).zip(&seconds) {
        bench.ask(bench.conn, id, id);
        let copy = bench.turn().one_start().copy;
        bench.ask(*second, 10 + id, id);
        assert!(bench.turn().is_empty(), "it waits for the first");
        bench.unread(*second, 2 * REPLY);
        bench.finish_with(copy, REPLY);
        bench.turn();
    }
    assert_eq!((bench.held(), bench.core.stats().keys), (6, 4));
    seconds.iter().for_each(|second| bench.unread(*second, 0));
    let turn = bench.turn();
    assert!(turn.starts.is_empty());
    let answered = turn.answers.iter().map(|(_, _, reply, _)| reply.attempt.seq.0);
    let (answered, not_kept) = (answered.collect::<Vec<_>>(), refused(&turn));
    assert_eq!(answered, [11, 12, 13, 14]);
    assert_eq!(not_kept, [(15, Status::Failed, true), (16, Status::Failed, true)]);
    assert_eq!((bench.core.stats().shed_unkept, bench.core.stats().started), (2, 6));
}

#[test]
fn whose_time_is_over_before_there_is_room_is_told_that_it_was_done() {
    let mut bench = Bench::knowing(tight(), 1..=1, REPLY);
    bench.unread(bench.conn, REPLY);
    bench.request_with(bench.conn, pay(1), &key(1));
    bench.request_with(bench.conn, pay(2), &key(1));
    bench.turn();
    bench.client(caller_done(pay(2)));
    assert_eq!(bench.turn().one_ended().how, How::Withdrawn, "but not who asked for its end");
    bench.pass(ms(100));
    assert_eq!(refused(&bench.turn()), [(1, Status::Failed, true)]);
    assert_eq!(bench.core.stats().shed_expired, 1);
}

/// A failure is kept for nobody, and who asks later may try again.
#[test]
fn who_has_no_room_for_a_failure_may_run() {
    let mut bench = Bench::with(tight());
    bench.ask(bench.conn, 1, 9);
    bench.ask(bench.conn, 2, 9);
    let first = bench.turn().one_start().copy;
    bench.unread(bench.conn, 2 * REPLY);
    bench.core.on_finished(first, Status::App(3), b"no luck", &OptionSet::NONE, bench.now);
    assert!(bench.turn().is_empty());
    bench.unread(bench.conn, 0);
    assert_eq!(bench.turn().started(), [2]);
}

/// It would keep it waiting, one after the other.
#[test]
fn answers_do_not_pass_a_large_reply_whose_room_they_take() {
    let mut bench = Bench::knowing(tight(), 1..=1, REPLY);
    let scan = |seq| Request { method: SCAN, ..patient(plain(seq)) };
    let other = bench.core.on_opened().unwrap();
    bench.request_on(other, scan(1));
    let first = bench.turn().one_start().copy;
    bench.finish_with(first, 200 * KIB);
    let hoarders = bench.hoarders(10, REPLY);
    bench.request_on(other, scan(2));
    assert!(bench.turn().is_empty());
    bench.ask(bench.conn, 3, 1);
    assert!(bench.turn().is_empty());
    hoarders.iter().for_each(|one| bench.unread(*one, 0));
    let turn = bench.turn();
    assert_eq!((turn.started(), turn.answers.len()), (vec![2], 1));
}

/// Else held copies would give way to one that is held back itself.
#[test]
fn copies_give_way_to_one_whose_answer_has_room_and_to_no_other() {
    let mut bench = Bench::knowing(Config { queue_bytes: 1_000, ..tight() }, 1..=1, REPLY);
    for id in 2..=60 {
        bench.request_with(bench.conn, pay(1_000 + id), &key(id.into()));
        let copy = bench.turn().one_start().copy;
        bench.finish_with(copy, KIB);
    }
    let first = bench.start(plain(1));
    bench.finish_with(first, REPLY);
    for (seq, hoarder) in (11..21).zip(bench.hoarders(12, REPLY)) {
        bench.request_on(hoarder, patient(plain(seq)));
    }
    bench.turn();
    bench.ask(bench.conn, 2, 1);
    assert!(matches!(bench.turn().one_notice().1, Notice::Overloaded(_)));
    assert_eq!(bench.held(), 10);
    bench.request_with(bench.conn, pay(3), &key(99));
    assert_eq!((bench.turn().started(), bench.held()), (vec![3], 9), "a short one of that method");
}

/// An answer that leaves has its client looked at anew, while nothing else need happen.
#[test]
fn who_was_held_back_beside_an_answer_is_looked_at_again() {
    let mut bench = Bench::knowing(tight(), 1..=2, REPLY);
    bench.ask(bench.conn, 1, 1);
    bench.ask(bench.conn, 2, 2);
    assert_eq!(bench.turn().answers.len(), 1);
    assert!(bench.core.is_holding(), "though what waits was not told");
    assert_eq!(bench.turn().answers.len(), 1);
}

#[test]
fn a_shortage_is_over_once_the_answer_that_had_no_room_has_left() {
    let config = Config { outgoing_bytes: 1 << 20, outgoing_total: 16 << 20, ..tight() };
    let mut bench = Bench::knowing(config, 1..=1, REPLY);
    bench.hoarders(12, 1 << 20);
    bench.unread(bench.conn, 250 * KIB);
    bench.ask(bench.conn, 1, 1);
    assert!(bench.turn().is_empty() && bench.core.stats().holds_of_all == 1);
    bench.pass(ms(5));
    assert_eq!(bench.core.short_for(bench.now), ms(5));
    bench.unread(bench.conn, 0);
    assert_eq!(bench.turn().answers.len(), 1, "it may have some of what is left");
    assert_eq!(bench.core.short_for(bench.now), ms(0));
}
