//! Copies of clients that have not read their replies are held back, so that what waits for them
//! stays bounded and nobody who reads is cut off.

use alloc::collections::BTreeMap;

use bowline_protocol::Freshness;
use bowline_protocol::options::Key;

use super::super::overload::Overload;
use super::*;

pub(super) const KIB: usize = 1 << 10;
/// How long replies are here.
pub(super) const REPLY: usize = 60 * KIB;

/// A client may have one such reply waiting; all may have 17, and until 8 wait none has a share.
pub(super) fn tight() -> Config {
    Config {
        slots: 4,
        queue_requests: 100,
        outgoing_bytes: 100 * KIB,
        outgoing_total: 1024 * KIB,
        ..config()
    }
}

impl Bench {
    /// One whose core has seen how long replies are.
    pub(super) fn tight(config: Config) -> Bench {
        let mut bench = Bench::with(config);
        let first = bench.start(plain(1_000));
        bench.finish_with(first, REPLY);
        bench.turn();
        bench
    }

    pub(super) fn unread(&mut self, conn: Conn, bytes: usize) {
        self.core.on_unread(conn, bytes, self.now);
    }

    /// So many more clients, for each of which so much waits.
    pub(super) fn hoarders(&mut self, count: usize, bytes: usize) -> Vec<Conn> {
        let open = |_| {
            let conn = self.core.on_opened().unwrap();
            self.core.on_unread(conn, bytes, self.now);
            conn
        };
        (0..count).map(open).collect()
    }

    pub(super) fn held(&self) -> u64 {
        self.core.stats().held
    }
}

pub(super) const fn patient(request: Request) -> Request {
    Request { remaining: ms(100_000), ..request }
}

#[test]
fn who_has_not_read_is_held_back_until_it_has_and_nobody_else_is() {
    let mut bench = Bench::tight(tight());
    let other = bench.core.on_opened().unwrap();
    bench.unread(bench.conn, REPLY);
    (1..=3).for_each(|seq| bench.request(plain(seq)));
    bench.request_on(other, plain(11));
    assert_eq!(bench.turn().started(), [11]);
    assert_eq!((bench.held(), bench.core.stats().holds), (3, 1));
    assert!(bench.core.is_holding());
    // Told again and again that nothing was read, it is the same hold.
    bench.pass(ms(5));
    bench.unread(bench.conn, REPLY);
    assert!(bench.turn().is_empty());
    assert_eq!((bench.held(), bench.core.stats().holds), (3, 1));
    bench.pass(ms(5));
    bench.unread(bench.conn, 0);
    assert_eq!(bench.turn().started(), [1], "and the next when there is room for it, too");
    let held = &bench.core.histograms().held;
    assert_eq!((held.len(), held.min() / 100_000), (1, 99), "ten milliseconds");
    assert!(bench.core.stats().reconcile());
}

#[test]
fn replies_count_before_they_are_made() {
    let mut bench = Bench::tight(tight());
    (1..=3).for_each(|seq| bench.request(plain(seq)));
    let first = bench.turn().one_start();
    bench.finish_with(first.copy, REPLY);
    bench.unread(bench.conn, REPLY);
    assert!(bench.turn().is_empty());
    bench.unread(bench.conn, 0);
    assert_eq!(bench.turn().started(), [2]);
}

#[test]
fn small_replies_are_never_waited_for() {
    let mut bench = Bench::with(tight());
    (1..=20).for_each(|seq| bench.request(plain(seq)));
    for _ in 0..5 {
        let starts = bench.turn().starts;
        assert_eq!(starts.len(), 4, "as many as there are slots");
        starts.iter().for_each(|start| bench.finish_with(start.copy, 30 * KIB));
        bench.unread(bench.conn, 30 * KIB);
    }
    assert_eq!(bench.core.stats().holds, 0);
}

#[test]
fn a_reply_that_is_larger_than_any_room_goes_out_alone() {
    let mut bench = Bench::with(tight());
    let first = bench.start(plain(1));
    bench.finish_with(first, 2048 * KIB);
    bench.request(plain(2));
    bench.request(plain(3));
    assert_eq!(bench.turn().started(), [2]);
}

#[test]
fn a_copy_that_is_held_back_tells_no_twin_and_its_twin_may_run() {
    let mut bench = Bench::tight(tight());
    bench.core.on_mesh_up(PEER);
    bench.unread(bench.conn, REPLY);
    bench.request(primary(1));
    bench.request(primary(2));
    assert!(bench.turn().is_empty(), "nobody is told of a start");
    bench.mesh(twin_of(primary(1)));
    assert!(ended(primary(1), How::Withdrawn, Some(1))(bench.turn().one_ended()));
    bench.client(caller_done(primary(2)));
    assert!(ended(primary(2), How::Withdrawn, None)(bench.turn().one_ended()));
    assert_eq!((bench.core.stats().started, bench.held()), (1, 0));
}

#[test]
fn a_copy_that_is_held_back_is_shed_at_its_deadline_and_goes_with_its_connection() {
    let mut bench = Bench::tight(tight());
    bench.unread(bench.conn, REPLY);
    bench.request(Request { remaining: ms(10), ..plain(1) });
    bench.request(plain(2));
    bench.turn();
    bench.pass(ms(10));
    assert!(ended(plain(1), How::Shed, None)(bench.turn().one_ended()));
    bench.core.on_closed(bench.conn, bench.now);
    assert!(bench.turn().is_empty());
    assert!(bench.core.is_idle() && !bench.core.is_holding());
}

#[test]
fn while_half_of_the_room_is_taken_nobody_has_more_than_an_equal_share() {
    let config = Config { outgoing_bytes: 512 * KIB, ..tight() };
    let mut bench = Bench::tight(config);
    let [greedy, modest] = [bench.hoarders(1, 460 * KIB)[0], bench.hoarders(1, 50 * KIB)[0]];
    bench.request_on(greedy, plain(1));
    bench.request_on(modest, plain(2));
    bench.request(plain(3));
    assert_eq!(bench.turn().started(), [2, 3]);
    assert_eq!(bench.held(), 1);
    bench.unread(greedy, 100 * KIB);
    assert_eq!(bench.turn().started(), [1]);
}

/// Though with one more of its replies there would be no room for anybody.
#[test]
fn who_has_had_its_share_has_nobody_else_wait() {
    let config = Config { outgoing_bytes: 2048 * KIB, ..tight() };
    let mut bench = Bench::tight(config);
    let scan = |seq| Request { method: SCAN, ..plain(seq) };
    let first = bench.start(scan(1));
    bench.finish_with(first, 200 * KIB);
    let greedy = bench.hoarders(1, 600 * KIB)[0];
    bench.request_on(greedy, scan(2));
    bench.request(plain(3));
    assert_eq!(bench.turn().started(), [3]);
    let stats = bench.core.stats();
    assert_eq!((stats.holds, stats.held, stats.holds_of_all), (1, 1, 0));
}

#[test]
fn who_has_nothing_to_read_is_held_back_for_what_others_have_until_they_have_read() {
    let mut bench = Bench::tight(Config { outgoing_bytes: 512 * KIB, ..tight() });
    let others = bench.hoarders(9, REPLY);
    (1..=2).for_each(|seq| bench.request(plain(seq)));
    assert_eq!(bench.turn().started(), [1]);
    assert_eq!(bench.held(), 1);
    others.iter().for_each(|other| bench.unread(*other, 0));
    bench.unread(bench.conn, 0);
    assert_eq!(bench.turn().started(), [2]);
}

#[test]
fn a_quarter_of_the_room_is_left_for_replies_that_are_longer_than_expected() {
    let mut bench = Bench::tight(tight());
    let hoarders = bench.hoarders(12, REPLY);
    bench.request(plain(1));
    assert!(bench.turn().is_empty(), "768 KiB would be exceeded");
    assert_eq!((bench.core.stats().holds_of_all, bench.held()), (1, 0));
    assert!(bench.core.is_holding());
    bench.pass(ms(5));
    bench.turn();
    assert_eq!(bench.core.short_for(bench.now), ms(5));
    bench.unread(hoarders[0], 0);
    assert_eq!(bench.turn().started(), [1]);
    assert_eq!((bench.core.short_for(bench.now), bench.core.is_holding()), (ms(0), false));
    assert_eq!(bench.core.histograms().held.len(), 1);
}

#[test]
fn a_shortage_lasts_until_there_is_room_though_whoever_wanted_it_has_given_up() {
    let mut bench = Bench::tight(tight());
    let hoarders = bench.hoarders(12, REPLY);
    bench.request(Request { remaining: ms(10), ..plain(1) });
    bench.turn();
    bench.pass(ms(10));
    assert!(ended(plain(1), How::Shed, None)(bench.turn().one_ended()));
    bench.pass(ms(10));
    bench.turn();
    assert_eq!(bench.core.short_for(bench.now), ms(20));
    bench.core.on_closed(hoarders[0], bench.now);
    bench.turn();
    assert_eq!(bench.core.short_for(bench.now), ms(0));
}

#[test]
fn a_shortage_is_over_where_nothing_waits_however_long_the_reply_would_be() {
    let mut bench = Bench::with(tight());
    let first = bench.start(plain(1));
    bench.finish_with(first, 2048 * KIB);
    let hoarder = bench.hoarders(1, REPLY)[0];
    bench.request(plain(2));
    assert!(bench.turn().is_empty());
    bench.client(caller_done(plain(2)));
    bench.pass(ms(5));
    bench.turn();
    assert_eq!(bench.core.short_for(bench.now), ms(5));
    bench.unread(hoarder, 0);
    bench.turn();
    assert_eq!((bench.core.short_for(bench.now), bench.core.is_holding()), (ms(0), false));
}

/// Those that keep the queue full have had their share, and wait for nobody.
#[test]
fn who_is_refused_for_a_full_queue_is_short_of_room_as_well() {
    let mut bench = Bench::tight(Config { queue_bytes: 300, ..tight() });
    let other = bench.core.on_opened().unwrap();
    let scan = |seq| Request { method: SCAN, ..plain(seq) };
    bench.request_on(other, scan(1));
    let short = bench.turn().one_start().copy;
    bench.finish_with(short, KIB);
    let hoarders = bench.hoarders(12, REPLY);
    for (seq, hoarder) in (11..14).zip(&hoarders) {
        bench.request_on(*hoarder, patient(plain(seq)));
    }
    bench.turn();
    assert_eq!((bench.held(), bench.core.short_for(bench.now)), (3, ms(0)));
    bench.request(plain(20));
    assert!(matches!(bench.turn().one_notice().1, Notice::Overloaded(_)));
    bench.pass(ms(5));
    bench.request_on(other, scan(2));
    assert_eq!(bench.turn().started(), [2], "which needs no room");
    assert_eq!((bench.core.short_for(bench.now), bench.core.is_holding()), (ms(5), true));
    bench.unread(hoarders[11], 0);
    bench.turn();
    assert_eq!(bench.core.short_for(bench.now), ms(0));
}

#[test]
fn who_has_nothing_waiting_any_more_is_not_held_back() {
    let mut bench = Bench::tight(tight());
    bench.unread(bench.conn, REPLY);
    bench.request(plain(1));
    bench.turn();
    bench.client(caller_done(plain(1)));
    bench.turn();
    assert!(!bench.core.is_holding());
    bench.request(plain(2));
    bench.turn();
    assert_eq!(
        (bench.held(), bench.core.stats().holds),
        (1, 2),
        "and is again for what comes next"
    );
}

/// Its copies wait for a slot alone.
#[test]
fn who_has_read_since_does_not_give_way_while_others_still_have_to() {
    let mut bench = Bench::tight(Config { slots: 1, queue_bytes: 1_000, ..tight() });
    let hoarders = bench.hoarders(10, REPLY);
    for (seq, hoarder) in (1..10).zip(&hoarders) {
        bench.request_on(*hoarder, patient(plain(seq)));
        bench.turn();
    }
    bench.request(patient(plain(50)));
    assert_eq!(bench.turn().started(), [50]);
    bench.request_on(hoarders[9], patient(plain(10)));
    bench.unread(hoarders[0], 0);
    let other = bench.core.on_opened().unwrap();
    bench.request_on(other, patient(plain(60)));
    assert!(ended(plain(2), How::Shed, None)(bench.turn().one_ended()));
}

#[test]
fn a_large_reply_is_not_passed_by_smaller_ones_that_take_its_room() {
    let mut bench = Bench::tight(tight());
    let scan = |seq| Request { method: SCAN, ..plain(seq) };
    let first = bench.start(scan(1));
    bench.finish_with(first, 200 * KIB);
    bench.hoarders(10, REPLY);
    let other = bench.core.on_opened().unwrap();
    bench.request(scan(2));
    bench.request_on(other, plain(3));
    assert!(bench.turn().is_empty());
    assert!(bench.turn().is_empty(), "nor later");
}

#[test]
fn connections_have_turns_while_others_are_held_back() {
    let mut bench = Bench::tight(Config { slots: 1, ..tight() });
    let [one, two] = [(); 2].map(|()| bench.core.on_opened().unwrap());
    bench.unread(bench.conn, REPLY);
    bench.request(plain(1));
    (11..=13).for_each(|seq| bench.request_on(one, plain(seq)));
    bench.request_on(two, plain(21));
    let mut order = Vec::new();
    while let Some(start) = bench.turn().starts.pop() {
        order.push(start.request.attempt.seq.0);
        bench.finish_with(start.copy, REPLY);
    }
    assert_eq!(order, [11, 21, 12, 13], "by turns, and each its oldest first");
}

#[test]
fn who_arrives_does_not_wait_for_copies_that_are_held_back() {
    let mut bench = Bench::with(Config { slots: 1, ..tight() });
    let first = bench.start(plain(1_000));
    bench.now += ms(10);
    bench.finish_with(first, REPLY);
    bench.turn();
    bench.unread(bench.conn, REPLY);
    (1..=20).for_each(|seq| bench.request(patient(plain(seq))));
    bench.turn();
    let other = bench.core.on_opened().unwrap();
    bench.request_on(other, Request { remaining: ms(15), ..plain(30) });
    assert_eq!(bench.turn().started(), [30]);
    bench.request_on(other, Request { remaining: ms(25), ..plain(31) });
    assert!(bench.turn().is_empty(), "it is taken on, behind that one alone");
}

#[test]
fn copies_that_are_held_back_are_no_overload() {
    let overload = Some(Overload { target_min: ms(5), interval_min: ms(20) });
    let mut bench = Bench::tight(Config { overload, ..tight() });
    bench.unread(bench.conn, REPLY);
    bench.request(patient(plain(1)));
    for _ in 0..1_000 {
        bench.pass(ms(1));
        bench.turn();
    }
    assert!(!bench.core.is_overloaded());
    assert_eq!(bench.held(), 1);
}

#[test]
fn adaptive_slots_do_not_grow_for_copies_that_are_held_back() {
    let adaptive = Some(super::super::Adaptive { min: 1, interval: ms(10) });
    let mut bench = Bench::tight(Config { adaptive, slots: 64, ..tight() });
    let other = bench.core.on_opened().unwrap();
    bench.unread(bench.conn, REPLY);
    bench.request(patient(plain(1)));
    for seq in 10..200 {
        bench.request_on(other, plain(seq));
        let start = bench.turn().one_start();
        bench.pass(ms(1));
        bench.finish(start.copy);
    }
    assert_eq!(bench.core.slots(), 1);
}

/// It is the client's own, and nobody else has to wait for it.
#[test]
fn what_is_held_back_is_no_load() {
    let mut bench = Bench::tight(Config { slots: 1, ..tight() });
    bench.unread(bench.conn, REPLY);
    (1..=4).for_each(|seq| bench.request(patient(plain(seq))));
    bench.turn();
    for seq in 1..=3 {
        assert_eq!((bench.core.load().queued, bench.held()), (0, 5 - seq));
        bench.pass(ms(500));
        bench.unread(bench.conn, 0);
        let start = bench.turn().one_start();
        assert_eq!((start.request.attempt.seq.0, start.waited), (seq, ms(500 * seq)));
        assert_eq!(bench.core.load().wait, ms(0), "it had its slot at once");
        bench.finish_with(start.copy, REPLY);
        bench.unread(bench.conn, REPLY);
        bench.turn();
    }
    // But while the slot is taken, who has read waits for that.
    let other = bench.core.on_opened().unwrap();
    bench.request_on(other, plain(30));
    let other = bench.turn().one_start().copy;
    bench.unread(bench.conn, 0);
    assert_eq!(bench.core.load().queued, 1);
    bench.pass(ms(80));
    bench.finish(other);
    bench.turn().one_start();
    assert_eq!(bench.core.load().wait, ms(10), "an eighth of that");
}

/// A reply that the core's own end makes room for, too, is waited for until then.
#[test]
fn who_waits_for_its_own_running_copy_is_no_load() {
    let mut bench = Bench::tight(tight());
    bench.request(patient(plain(1)));
    bench.request(patient(plain(2)));
    let first = bench.turn().one_start();
    bench.pass(ms(800));
    bench.finish(first.copy);
    assert_eq!(bench.turn().started(), [2]);
    assert_eq!(bench.core.load().wait, ms(0));
}

#[test]
fn who_has_read_has_not_waited_for_a_slot_meanwhile() {
    let mut bench = Bench::tight(Config { slots: 1, ..tight() });
    let other = bench.core.on_opened().unwrap();
    bench.unread(bench.conn, REPLY);
    (1..=2).for_each(|seq| bench.request(patient(plain(seq))));
    bench.turn();
    bench.pass(ms(10_000));
    bench.request_on(other, patient(plain(10)));
    bench.turn().one_start();
    bench.unread(bench.conn, 0);
    // One may wait 5 ms, and has to wait longer for 100 ms: so nothing is known before 105.
    for _ in 0..105 {
        bench.turn();
        assert!(!bench.core.is_overloaded());
        bench.pass(ms(1));
    }
    (0..10).for_each(|_| {
        bench.turn();
        bench.pass(ms(1));
    });
    assert!(bench.core.is_overloaded(), "but then it is");
}

/// It came before those that wait for a slot, and comes to have its turn as they do.
#[test]
fn who_is_held_back_now_and_then_hides_no_overload() {
    let mut bench = Bench::tight(Config { slots: 1, queue_requests: 1_000, ..tight() });
    let [one, two] = [(); 2].map(|()| bench.core.on_opened().unwrap());
    (1..=20).for_each(|seq| bench.request(patient(plain(seq))));
    (101..=400).for_each(|seq| bench.request_on(one, patient(plain(seq))));
    (501..=800).for_each(|seq| bench.request_on(two, patient(plain(seq))));
    for _ in 0..200 {
        bench.unread(bench.conn, REPLY);
        let start = bench.turn().one_start();
        bench.pass(ms(1));
        bench.unread(bench.conn, 0);
        assert!(bench.turn().is_empty(), "the slot is taken");
        bench.finish(start.copy);
    }
    assert!(bench.core.is_overloaded() && bench.core.stats().holds > 0);
}

#[test]
fn what_leaves_while_it_is_held_back_says_nothing_of_those_that_wait() {
    let mut bench = Bench::tight(tight());
    bench.unread(bench.conn, REPLY);
    (1..=50).for_each(|seq| bench.request(plain(seq)));
    bench.turn();
    bench.core.estimate.served(ms(1));
    let before = bench.core.estimate.wait(100, 1, 1);
    (1..=50).for_each(|seq| bench.client(caller_done(plain(seq))));
    assert_eq!((bench.held(), bench.core.estimate.wait(100, 1, 1)), (0, before));
}

/// Whatever those of others are, and of who had its place before.
#[test]
fn a_client_is_held_back_for_what_its_own_replies_are_like() {
    let mut bench = Bench::with(tight());
    let [short, long] = [(); 2].map(|()| bench.core.on_opened().unwrap());
    let started = |bench: &mut Bench, conn, bytes| {
        (1..=4).for_each(|seq| bench.request_on(conn, plain(seq)));
        let mut starts = Vec::new();
        while let turn = bench.turn().starts
            && !turn.is_empty()
        {
            starts.push(turn.len());
            turn.iter().for_each(|start| bench.finish_with(start.copy, bytes));
        }
        starts
    };
    started(&mut bench, short, 100);
    assert_eq!(started(&mut bench, long, 2048 * KIB), [4], "nothing is known");
    assert_eq!(started(&mut bench, short, 100), [4]);
    assert_eq!(started(&mut bench, long, 2048 * KIB), [1, 1, 1, 1]);
    (0..20).for_each(|_| assert_eq!(started(&mut bench, short, 100), [4]));
    bench.core.on_closed(long, bench.now);
    let next = bench.core.on_opened().unwrap();
    assert_eq!(started(&mut bench, next, 100), [4], "as those of most");
}

/// Or a few who do not read, and have one left that waits for it, could fill the queue for ever.
#[test]
fn copies_that_are_held_back_give_way_to_one_that_could_start() {
    let mut bench = Bench::tight(Config { queue_bytes: 1_000, ..tight() });
    let hoarders = bench.hoarders(10, REPLY);
    for (seq, hoarder) in (1..).zip(&hoarders) {
        bench.request_on(*hoarder, patient(plain(seq)));
        bench.turn();
        bench.pass(ms(1));
    }
    assert_eq!(bench.held(), 10);
    bench.request_on(hoarders[3], plain(11));
    assert!(matches!(bench.turn().one_notice().1, Notice::Overloaded(_)), "it could not start");
    bench.request(plain(12));
    let turn = bench.turn();
    assert_eq!(turn.started(), [12]);
    assert!(ended(plain(1), How::Shed, None)(turn.one_ended()), "who has not read for longest");
    // As many as it takes, or none if that is not enough.
    let large = |bench: &mut Bench, conn, seq, bytes| {
        bench.core.on_request(conn, plain(seq), &OptionSet::NONE, bytes, || seq, bench.now);
        bench.turn()
    };
    let [one, two] = [(); 2].map(|()| bench.core.on_opened().unwrap());
    assert!(matches!(large(&mut bench, one, 13, 1_001).one_notice().1, Notice::Overloaded(_)));
    assert_eq!((large(&mut bench, two, 14, 320).started(), bench.held()), (vec![14], 6));
}

/// Each of those has nothing to read at first; and they stand in the queue before who reads.
#[test]
fn who_reads_is_served_however_many_others_do_not() {
    let mut bench = Bench::tight(Config {
        queue_requests: 3_000,
        outgoing_bytes: 1 << 20,
        outgoing_total: 16 << 20,
        ..tight()
    });
    let reads = [(SCAN, KIB), (WRITE, 40 * KIB)];
    let readers = [(); 2].map(|()| bench.core.on_opened().unwrap());
    for ((method, reply), reader) in reads.into_iter().zip(readers) {
        bench.request_on(reader, Request { method, ..plain(1) });
        let first = bench.turn().one_start().copy;
        bench.finish_with(first, reply);
    }
    let mut kept = BTreeMap::new();
    for round in 2..22 {
        for hoarder in bench.hoarders(20, 0) {
            (0..4).for_each(|seq| bench.request_on(hoarder, patient(plain(seq))));
        }
        for ((method, _), reader) in reads.into_iter().zip(readers) {
            bench.request_on(reader, Request { method, ..patient(plain(round)) });
        }
        let mut served = 0;
        for _ in 0..150 {
            for start in bench.turn().starts {
                let conn = bench.core.connection_of(start.copy).unwrap();
                if let Some(reader) = readers.iter().position(|reader| *reader == conn) {
                    bench.finish_with(start.copy, reads[reader].1);
                    served += 1;
                } else {
                    bench.finish_with(start.copy, REPLY);
                    let kept = kept.entry(conn).or_insert(0);
                    *kept += REPLY;
                    bench.unread(conn, *kept);
                }
            }
            bench.pass(ms(1));
        }
        assert_eq!(served, 2, "round {round}");
    }
    assert!(bench.core.stats().holds_of_all > 0);
}

/// However many of one client's stand before it.
#[test]
fn a_short_reply_passes_those_that_find_no_room() {
    let mut bench = Bench::tight(tight());
    let scan = |seq| Request { method: SCAN, ..plain(seq) };
    let short = bench.start(scan(1));
    bench.finish_with(short, KIB);
    let hoarders = bench.hoarders(12, REPLY);
    let [other, third] = [(); 2].map(|()| bench.core.on_opened().unwrap());
    (2..=40).for_each(|seq| bench.request(plain(seq)));
    bench.request_on(other, scan(50));
    bench.request_on(third, plain(60));
    bench.request_on(third, scan(61));
    let turn = bench.turn();
    assert_eq!(turn.started(), [50], "and none passes another of its own client");
    assert_eq!((bench.core.stats().holds_of_all, bench.held()), (1, 0));
    bench.pass(ms(5));
    bench.request_on(other, scan(51));
    assert_eq!(bench.turn().started(), [51]);
    assert_eq!(bench.core.short_for(bench.now), ms(5), "the others have waited since");
    bench.unread(hoarders[0], 0);
    assert_eq!(bench.turn().started(), [2], "whose turn it was");
}

/// That it is would say that nothing ran under its key.
#[test]
fn a_result_that_is_remembered_is_not_too_old_while_it_waits_for_room() {
    let mut bench = Bench::with(tight());
    let options = OptionSet {
        key: Some(Key { id: 1, fingerprint: 7 }),
        fresh: Some(Freshness::version(7)),
        ..OptionSet::NONE
    };
    let pay = |seq| Request { method: PAY, idempotent: false, ..plain(seq) };
    bench.core.on_freshness(Some(Freshness::version(7)));
    bench.request_with(bench.conn, pay(1), &options);
    let first = bench.turn().one_start();
    bench.finish_with(first.copy, REPLY);
    bench.unread(bench.conn, REPLY);
    bench.core.on_freshness(Some(Freshness::version(6)));
    bench.request_with(bench.conn, pay(2), &options);
    assert!(bench.turn().is_empty());
    bench.unread(bench.conn, 0);
    assert_eq!(bench.turn().answers.len(), 1);
}

#[test]
fn a_result_that_is_remembered_waits_as_well_for_who_has_not_read() {
    let mut bench = Bench::with(tight());
    let options = OptionSet { key: Some(Key { id: 1, fingerprint: 7 }), ..OptionSet::NONE };
    let pay = |seq| Request { method: PAY, idempotent: false, ..plain(seq) };
    bench.request_with(bench.conn, pay(1), &options);
    let first = bench.turn().one_start();
    bench.finish_with(first.copy, REPLY);
    bench.unread(bench.conn, REPLY);
    bench.request_with(bench.conn, pay(2), &options);
    assert!(bench.turn().is_empty());
    bench.unread(bench.conn, 0);
    assert_eq!(bench.turn().answers.len(), 1);
}
