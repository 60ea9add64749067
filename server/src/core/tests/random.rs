//! Whatever comes, in whatever order: the books balance, and every copy ends once.

use alloc::collections::BTreeMap;

use bowline_protocol::{Key, TrafficClass};

use super::*;

struct Random(u64);

impl Random {
    /// A number below `end`, by SplitMix64.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// A core, and what the outside knows of it.
struct Walk {
    bench: Bench,
    random: Random,
    conns: Vec<Conn>,
    running: Vec<Start<u64>>,
    /// For each copy that was sent and has not ended: the connection that brought it.
    awaited: BTreeMap<Attempt, Conn>,
    next_seq: u64,
}

impl Walk {
    fn new(seed: u64) -> Walk {
        let keys = KeyLimits { results: 3, bytes: 10, life: ms(20) };
        let shares = vec![3, 1, 2];
        let (outgoing_bytes, outgoing_total) = (100 << 10, 300 << 10);
        let config = Config { outgoing_bytes, outgoing_total, ..config() };
        let bench = Bench::with(Config { slots: 3, connections: 4, keys, shares, ..config });
        let conns = vec![bench.conn];
        let random = Random(seed);
        let (running, awaited) = (Vec::new(), BTreeMap::new());
        Walk { bench, random, conns, running, awaited, next_seq: 1 }
    }

    fn step(&mut self) {
        let [listed, counted] = self.bench.core.copies.clients.most_waiting();
        assert_eq!(listed, counted);
        let [listed, counted] = self.bench.core.copies.clients.held_back();
        assert_eq!(listed, counted);
        match self.random.below(11) {
            0..=3 => self.send(),
            4..=5 => self.cancel(),
            6 => self.finish_one(),
            7 => self.connect_or_close(),
            10 => self.read(),
            8 => self.bench.pass(Duration::from_micros(self.random.below(9_000))),
            _ => self.turn(),
        }
    }

    fn send(&mut self) {
        let Some(&conn) = self.pick_conn() else { return };
        let seq = self.next_seq;
        self.next_seq += 1;
        let mut request = match self.random.below(4) {
            0 => plain(seq),
            1 => hedge(seq),
            2 => primary(seq),
            _ => secondary(seq),
        };
        request.remaining = Duration::from_micros(self.random.below(40_000));
        request.method = if self.random.below(3) == 0 { SCAN } else { READ };
        self.awaited.insert(request.attempt, conn);
        let options = self.options();
        self.bench.request_with(conn, request, &options);
    }

    /// One in three has a key, of a few; few of those were used for something else.
    fn options(&mut self) -> OptionSet {
        let id = u128::from(self.random.below(4));
        let key = Key { id, fingerprint: self.random.below(8) / 7 };
        let key = (self.random.below(3) == 0).then_some(key);
        let class = Some(TrafficClass(self.random.below(4) as u8));
        OptionSet { key, class, ..OptionSet::NONE }
    }

    fn pick_conn(&mut self) -> Option<&Conn> {
        let at = self.random.below(4) as usize;
        self.conns.get(at % self.conns.len().max(1))
    }

    /// Of a recent call, or of one to come.
    fn cancel(&mut self) {
        let seq = (self.next_seq + 2).saturating_sub(self.random.below(12));
        let copy = if self.random.below(2) == 0 { primary(seq) } else { secondary(seq) };
        let conn = self.pick_conn().copied();
        match (self.random.below(4), conn) {
            (0, Some(conn)) => {
                let cancel = caller_done(copy);
                self.bench.core.on_cancel(Origin::Client(conn), cancel, self.bench.now);
            }
            (1, Some(conn)) => {
                let cancel = twin_of(copy);
                self.bench.core.on_cancel(Origin::Client(conn), cancel, self.bench.now);
            }
            _ => self.bench.mesh(twin_of(copy)),
        }
    }

    fn finish_one(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.random.below(self.running.len() as u64) as usize;
        let start = self.running.swap_remove(at);
        if self.random.below(4) == 0 {
            self.bench.core.on_aborted(start.copy, self.bench.now);
            return;
        }
        let (core, now) = (&mut self.bench.core, self.bench.now);
        let result: &[u8] = if self.random.below(2) == 0 { b"done" } else { &[0; 40 << 10] };
        let finished = core.on_finished(start.copy, Status::Ok, result, &OptionSet::NONE, now);
        if let Some((conn, reply, _)) = finished {
            self.end(conn, reply.attempt);
        }
    }

    /// Somebody has read, or not.
    fn read(&mut self) {
        let unread = self.random.below(3) as usize * (45 << 10);
        if let Some(&conn) = self.pick_conn() {
            self.bench.core.on_unread(conn, unread, self.bench.now);
        }
    }

    fn connect_or_close(&mut self) {
        if self.random.below(2) == 0 {
            self.conns.extend(self.bench.core.on_opened());
        } else if let Some(conn) = self.conns.pop() {
            self.bench.core.on_closed(conn, self.bench.now);
            self.awaited.retain(|_, by| *by != conn);
        }
        if self.random.below(2) == 0 {
            self.bench.core.on_mesh_up(PEER);
        } else {
            self.bench.core.on_mesh_down(PEER);
        }
    }

    fn turn(&mut self) {
        let turn = self.bench.turn();
        for (conn, notice) in turn.notices {
            match notice {
                Notice::Started(_) => {}
                Notice::Ended(ended) => self.end(conn, ended.attempt),
                Notice::Overloaded(refusal) => self.end(conn, refusal.attempt),
                Notice::Refused(reply, _) => self.end(conn, reply.attempt),
            }
        }
        for (conn, _, reply, _) in turn.answers {
            self.end(conn, reply.attempt);
        }
        for start in turn.starts {
            if let Some(key) = start.options.key {
                let beside = self
                    .running
                    .iter()
                    .any(|other| other.options.key.is_some_and(|other| other.id == key.id));
                assert!(!beside, "two copies of one key run at once");
            }
            assert!(start.deadline > self.bench.now, "it starts after its deadline");
            self.running.push(start);
        }
        assert!(self.bench.core.stats().running <= 3);
    }

    fn end(&mut self, conn: Conn, attempt: Attempt) {
        if self.conns.contains(&conn) {
            assert_eq!(self.awaited.remove(&attempt), Some(conn), "{attempt:?} ends once");
        }
    }

    /// Lets all that is there come to its end.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.turn();
            while !self.running.is_empty() {
                self.finish_one();
            }
            self.bench.pass(ms(10));
        }
        assert!(self.bench.core.is_idle(), "{:#?}", self.bench.core.stats());
        assert!(self.awaited.is_empty(), "never told of: {:?}", self.awaited);
        let stats = self.bench.core.stats();
        assert_eq!((stats.keys, stats.key_bytes), (0, 0), "all results are forgotten");
    }
}

#[test]
fn every_copy_ends_once_and_nothing_is_left_whatever_comes() {
    for seed in 0..300 {
        let mut walk = Walk::new(seed);
        (0..600).for_each(|_| walk.step());
        walk.settle();
    }
}
