//! Traffic classes have shares of the slots that come free, and of the room in the queue.

use bowline_protocol::TrafficClass;

use super::super::overload::Governor;
use super::super::{Adaptive, ConfigError};
use super::*;

/// Class 0 has three shares, class 1 has one.
fn shared() -> Config {
    Config { shares: vec![3, 1], ..config() }
}

impl Bench {
    fn classed(&mut self, class: u8, request: Request) {
        let options = OptionSet { class: Some(TrafficClass(class)), ..OptionSet::NONE };
        self.request_with(self.conn, request, &options);
    }

    /// Starts what may start, ends it at once, and goes on until nothing waits: the order of starts.
    fn drain(&mut self) -> Vec<u64> {
        let mut order = Vec::new();
        loop {
            let turn = self.turn();
            if turn.starts.is_empty() {
                return order;
            }
            order.extend(turn.started());
            turn.starts.into_iter().for_each(|start| _ = self.finish(start.copy));
        }
    }
}

#[test]
fn slots_that_come_free_are_shared_by_weight() {
    let mut bench = Bench::with(Config { queue_requests: 100, ..shared() });
    (0..20).for_each(|seq| bench.classed(1, plain(100 + seq)));
    (0..20).for_each(|seq| bench.classed(0, plain(seq)));
    let order = bench.drain();
    let of_first = |count: usize| order[..count].iter().filter(|seq| **seq < 100).count();
    assert_eq!((of_first(4), of_first(8), of_first(20)), (3, 6, 15), "{order:?}");
    // And within a class, first in, first out.
    assert!(order.iter().filter(|seq| **seq < 100).is_sorted());
}

#[test]
fn a_class_that_nobody_configured_counts_as_the_first() {
    let mut bench = Bench::with(Config { queue_requests: 100, ..shared() });
    bench.classed(1, plain(1));
    bench.classed(9, plain(2));
    bench.classed(0, plain(3));
    assert_eq!(bench.drain(), [2, 1, 3]);
}

#[test]
fn a_full_queue_makes_room_for_the_class_that_has_less_than_its_share() {
    let mut bench = Bench::with(shared());
    (0..9).for_each(|seq| bench.classed(1, plain(100 + seq)));
    bench.turn();
    bench.classed(0, plain(1));
    let turn = bench.turn();
    assert!(ended(plain(108), How::Shed, None)(turn.one_ended()), "the newest of the other class");
    assert_eq!(bench.core.stats().shed_share, 1);
    // Until it has its share: then its own newest is refused.
    (2..9).for_each(|seq| bench.classed(0, plain(seq)));
    bench.turn();
    let stats = bench.core.stats();
    assert_eq!((stats.shed_share, stats.rejected_queue_requests), (6, 2));
}

#[test]
fn a_class_is_expected_to_wait_for_its_own_turns_only() {
    let mut bench = Bench::with(Config { queue_requests: 100, ..shared() });
    let first = bench.start(plain(1));
    bench.now += ms(10);
    bench.finish(first);
    bench.turn();
    bench.start(plain(2));
    // Each takes ten: a hundred would be over after nine more of the same class.
    (0..50).for_each(|seq| {
        bench.classed(1, Request { remaining: ms(100_000), ..plain(100 + seq) });
    });
    bench.turn();
    bench.classed(0, Request { remaining: ms(60), ..plain(3) });
    assert!(bench.turn().is_empty(), "it is taken on");
    bench.classed(1, Request { remaining: ms(60), ..plain(4) });
    assert!(matches!(bench.turn().one_notice().1, Notice::Overloaded(_)));
}

#[test]
fn overload_of_one_class_turns_only_its_own_order_over() {
    let mut bench = Bench::with(Config { queue_requests: 2_000, ..shared() });
    let mut running = bench.start(plain(1));
    let calm = |seq| Request { remaining: ms(100_000), ..plain(seq) };
    // The first class asks for less than its share, the second for twice what is left.
    for seq in 0..1_500 {
        if seq % 2 == 0 {
            bench.classed(0, calm(10_000 + seq));
        }
        bench.classed(1, calm(20_000 + seq));
        bench.now += ms(1);
        bench.finish(running);
        let turn = bench.turn();
        running = turn.starts[0].copy;
    }
    assert!(bench.core.is_overloaded());
    let overloaded = bench.core.governors.each_ref().map(Governor::is_overloaded);
    assert_eq!(overloaded, [false, true, false, false]);
}

#[test]
fn hedges_stand_behind_primaries_when_their_class_is_overloaded() {
    let mut bench = Bench::with(Config { queue_requests: 100, ..shared() });
    bench.start(plain(1));
    let calm = |request| Request { remaining: ms(100_000), ..request };
    bench.classed(1, calm(plain(2)));
    for _ in 0..200 {
        bench.now += ms(1);
        bench.turn();
    }
    bench.classed(1, calm(hedge(3)));
    bench.classed(1, calm(plain(4)));
    bench.classed(1, calm(hedge(5)));
    bench.turn();
    let running = bench.core.copies.running();
    assert_eq!(running, 1);
    let next = bench.core.copies.next(1, true).unwrap();
    assert_eq!(bench.core.copies.at(next).request.attempt.seq.0, 4);
}

#[test]
fn fewer_slots_are_used_where_more_do_no_good() {
    let adaptive = Some(Adaptive { min: 2, ..Adaptive::default() });
    let mut bench = Bench::with(Config { slots: 4, adaptive, ..config() });
    (1..=4).for_each(|seq| bench.request(plain(seq)));
    assert_eq!(bench.turn().started(), [1, 2]);
    assert_eq!(bench.core.slots(), 2);
}

impl Bench {
    /// The slots that there are after two seconds of copies that all go to one disk, which reads four
    /// at once and a millisecond each. As many run as may, or only `at_once`, if nobody waits.
    fn slots_for_a_disk(&mut self, at_once: Option<u64>) -> u32 {
        let end = self.now + ms(2_000);
        let mut seqs = 0..;
        while self.now < end {
            let wanted = at_once.unwrap_or(u64::from(self.core.slots()) + 1);
            while self.core.stats().queued < wanted {
                let seq = seqs.next().unwrap();
                self.request(Request { remaining: ms(100_000), ..plain(seq) });
            }
            let starts = self.turn().starts;
            self.now += ms(1) * (starts.len() as u32).max(4) / 4;
            starts.into_iter().for_each(|start| _ = self.finish(start.copy));
        }
        self.core.slots()
    }
}

#[test]
fn as_many_slots_are_used_as_do_good_while_copies_wait_and_no_more_while_none_do() {
    let adaptive = Some(Adaptive { min: 1, interval: ms(10) });
    let config = || Config { slots: 64, queue_requests: 100, adaptive, ..config() };
    let found = Bench::with(config()).slots_for_a_disk(None);
    assert!((4..=12).contains(&found), "{found}");
    assert_eq!(Bench::with(config()).slots_for_a_disk(Some(1)), 1);
}

#[test]
fn shares_and_bounds_that_can_not_be_are_named() {
    for (shares, good) in
        [(vec![], false), (vec![1; 5], false), (vec![0], false), (vec![1; 4], true)]
    {
        let refused = Core::<u64>::new(Config { shares, ..config() }).err();
        assert_eq!(refused, (!good).then_some(ConfigError::Shares));
    }
    let adaptive = Some(Adaptive { min: 2, ..Adaptive::default() });
    let refused = Core::<u64>::new(Config { slots: 1, adaptive, ..config() }).err();
    assert_eq!(refused, Some(ConfigError::Adaptive(1)));
}
