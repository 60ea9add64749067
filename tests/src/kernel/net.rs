//! The network: wires between hosts that lose nothing and reorder nothing, as TCP's do, until they
//! are cut, held up, or their hosts die.
//!
//! A wire has two lanes, one a direction. What is sent on a lane arrives in its order, each parcel
//! after a delay of its own; what is sent on two wires arrives in any order.

use std::collections::{BTreeMap, VecDeque};

use crate::kernel::rng::{Rng, mix};
use crate::kernel::span::{Nanos, Span};
use crate::kernel::timeline::digest;

/// A machine's core with a network address: an index that the world gives out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Host(pub usize);

/// A connection. No number is used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Wire(pub u64);

/// One end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum End {
    /// Whoever dialled.
    Dialler,
    /// Whoever was dialled.
    Listener,
}

impl End {
    /// The other one.
    pub const fn other(self) -> End {
        match self {
            End::Dialler => End::Listener,
            End::Listener => End::Dialler,
        }
    }
}

/// Something will arrive at one end of a wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Arrival {
    /// Which wire.
    pub wire: Wire,
    /// Which end of it.
    pub at: End,
}

/// What arrives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parcel {
    /// To the listener: somebody dialled.
    Knock,
    /// To the dialler: the wire is open.
    Connected,
    /// Some bytes.
    Bytes(Vec<u8>),
    /// The other end has read so many bytes: the kernel has room for as many more.
    Read(usize),
    /// The other end is closed (or was never opened): nothing more will come.
    Closed,
}

impl Parcel {
    /// A number that stands for it.
    pub fn digest(&self) -> u64 {
        match self {
            Parcel::Knock => 1,
            Parcel::Connected => 2,
            Parcel::Closed => 3,
            Parcel::Read(count) => mix(4 ^ (*count as u64) << 8),
            Parcel::Bytes(bytes) => digest(bytes),
        }
    }
}

/// What to schedule: an arrival, and when.
pub type Due = (Nanos, Arrival);

#[derive(Debug, Default)]
struct Lane {
    parcels: VecDeque<Parcel>,
    /// No parcel arrives before the one sent ahead of it.
    last: Nanos,
    /// Arrivals that came due while the way was blocked.
    held: usize,
    /// Nothing more may be sent: its sender closed it.
    shut: bool,
    /// Whatever arrives is dropped: its receiver closed the wire, or is dead.
    deaf: bool,
}

#[derive(Debug)]
struct Line {
    ends: [Host; 2],
    lanes: [Lane; 2],
}

/// How long parcels are under way.
#[derive(Debug)]
struct Ways {
    delay: Span,
    /// Links whose delay is not the usual one, by sender and receiver.
    special: BTreeMap<(Host, Host), Span>,
    /// Hosts for which everything is so many percent of its time under way.
    slow: BTreeMap<Host, u64>,
}

impl Ways {
    /// From the one to the other.
    fn draw(&self, ends: (Host, Host), rng: &mut Rng) -> Nanos {
        let drawn = self.special.get(&ends).unwrap_or(&self.delay).draw(rng);
        let percent = |host: &Host| self.slow.get(host).copied().unwrap_or(100);
        drawn * percent(&ends.0).max(percent(&ends.1)) / 100
    }
}

/// The network of a world.
#[derive(Debug)]
pub struct Net {
    rng: Rng,
    ways: Ways,
    blocked: BTreeMap<(Host, Host), u32>,
    lines: BTreeMap<Wire, Line>,
    next: u64,
    /// How many of a thousand sends are cut in two.
    split_permille: u64,
}

impl Net {
    /// A network in which every parcel takes a draw from `delay`.
    pub const fn new(seed: u64, delay: Span) -> Net {
        Net {
            rng: Rng::labelled(seed, 2),
            ways: Ways { delay, special: BTreeMap::new(), slow: BTreeMap::new() },
            blocked: BTreeMap::new(),
            lines: BTreeMap::new(),
            next: 1,
            split_permille: 0,
        }
    }

    /// Parcels from `from` to `to` take draws from `delay` instead.
    pub fn set_delay(&mut self, from: Host, to: Host, delay: Span) {
        self.ways.special.insert((from, to), delay);
    }

    /// What this host sends from now on, and what is sent to it, is so many percent of its time
    /// under way.
    pub fn set_slow_net(&mut self, host: Host, percent: u64) {
        self.ways.slow.insert(host, percent);
    }

    /// So many of a thousand sends arrive in two pieces, at two times.
    pub const fn set_split(&mut self, permille: u64) {
        self.split_permille = permille;
    }

    /// Opens a wire: the knock is under way.
    pub fn dial(&mut self, from: Host, to: Host, now: Nanos) -> (Wire, Due) {
        let wire = Wire(self.next);
        self.next += 1;
        self.lines.insert(wire, Line { ends: [from, to], lanes: Default::default() });
        let due = self.put(wire, End::Listener, Parcel::Knock, now);
        (wire, due.unwrap_or((now, Arrival { wire, at: End::Listener })))
    }

    /// Sends bytes from one end. Returns what will arrive when, at most two pieces.
    pub fn send(
        &mut self,
        wire: Wire,
        from: End,
        mut bytes: Vec<u8>,
        now: Nanos,
    ) -> [Option<Due>; 2] {
        let split = bytes.len() > 1 && self.rng.chance(self.split_permille);
        let rest =
            split.then(|| bytes.split_off(1 + self.rng.below(bytes.len() as u64 - 1) as usize));
        let first = self.put(wire, from.other(), Parcel::Bytes(bytes), now);
        let second = rest.and_then(|rest| self.put(wire, from.other(), Parcel::Bytes(rest), now));
        [first, second]
    }

    /// One end has read so many bytes, which its kernel tells the other's.
    pub fn read(&mut self, wire: Wire, by: End, count: usize, now: Nanos) -> Option<Due> {
        self.put(wire, by.other(), Parcel::Read(count), now)
    }

    /// The listener's kernel answers a knock: `open` says whether anybody listens.
    pub fn answer(&mut self, wire: Wire, open: bool, now: Nanos) -> Option<Due> {
        if !open {
            self.hear_no_more(wire, End::Listener);
            return self.close(wire, End::Listener, now);
        }
        self.put(wire, End::Dialler, Parcel::Connected, now)
    }

    /// One end closes: what it sent before still arrives, what comes to it is dropped.
    pub fn close(&mut self, wire: Wire, from: End, now: Nanos) -> Option<Due> {
        let due = self.put(wire, from.other(), Parcel::Closed, now);
        if let Some(lane) = self.lane(wire, from.other()) {
            lane.shut = true;
        }
        self.hear_no_more(wire, from);
        due
    }

    /// One end vanishes without a word: what it sent before still arrives, but no close follows.
    pub fn vanish(&mut self, wire: Wire, from: End) {
        if let Some(lane) = self.lane(wire, from.other()) {
            lane.shut = true;
        }
        self.hear_no_more(wire, from);
    }

    /// The wire breaks: what is under way is lost, and both ends learn of it, each in its time.
    pub fn cut(&mut self, wire: Wire, now: Nanos) -> [Option<Due>; 2] {
        [End::Dialler, End::Listener].map(|at| {
            let lane = self.lane(wire, at)?;
            lane.parcels.clear();
            let due = self.put(wire, at, Parcel::Closed, now);
            if let Some(lane) = self.lane(wire, at) {
                lane.shut = true;
            }
            due
        })
    }

    /// Nothing gets from `from` to `to` until as many calls of [`Net::unblock`].
    pub fn block(&mut self, from: Host, to: Host) {
        *self.blocked.entry((from, to)).or_default() += 1;
    }

    /// The way is free again: what was held up arrives after one more delay.
    pub fn unblock(&mut self, from: Host, to: Host, now: Nanos) -> Vec<Due> {
        let Some(blocks) = self.blocked.get_mut(&(from, to)) else {
            return Vec::new();
        };
        *blocks -= 1;
        if *blocks > 0 {
            return Vec::new();
        }
        self.blocked.remove(&(from, to));
        let mut due = Vec::new();
        for (&wire, line) in &mut self.lines {
            for at in [End::Dialler, End::Listener] {
                let ends = (line.ends[at.other() as usize], line.ends[at as usize]);
                let held = std::mem::take(&mut line.lanes[at as usize].held);
                if ends != (from, to) {
                    line.lanes[at as usize].held = held;
                    continue;
                }
                let delay = self.ways.draw(ends, &mut self.rng);
                let lane = &mut line.lanes[at as usize];
                lane.last = lane.last.max(now + delay);
                due.extend((0..held).map(|_| (now + delay, Arrival { wire, at })));
            }
        }
        due
    }

    /// An arrival is due: what it brings, unless the way is blocked or nobody hears.
    pub fn arrive(&mut self, arrival: Arrival) -> Option<Parcel> {
        let line = self.lines.get_mut(&arrival.wire)?;
        let ends = (line.ends[arrival.at.other() as usize], line.ends[arrival.at as usize]);
        let lane = &mut line.lanes[arrival.at as usize];
        if self.blocked.contains_key(&ends) {
            lane.held += 1;
            return None;
        }
        let parcel = lane.parcels.pop_front();
        let heard = if lane.deaf { None } else { parcel };
        if line.lanes.iter().all(|lane| (lane.shut || lane.deaf) && lane.parcels.is_empty()) {
            self.lines.remove(&arrival.wire);
        }
        heard
    }

    /// What an arrival that is due will bring, if it is heard.
    pub fn next(&self, arrival: Arrival) -> Option<&Parcel> {
        self.lines.get(&arrival.wire)?.lanes[arrival.at as usize].parcels.front()
    }

    /// Who is at an end of a wire that is still there.
    pub fn host(&self, wire: Wire, end: End) -> Option<Host> {
        Some(self.lines.get(&wire)?.ends[end as usize])
    }

    /// The wires with an end at `host`, and which end that is.
    pub fn wires_of(&self, host: Host) -> Vec<(Wire, End)> {
        let mut wires = Vec::new();
        for (&wire, line) in &self.lines {
            for end in [End::Dialler, End::Listener] {
                if line.ends[end as usize] == host {
                    wires.push((wire, end));
                }
            }
        }
        wires
    }

    /// The wires between two hosts, whoever dialled.
    pub fn wires_between(&self, a: Host, b: Host) -> Vec<Wire> {
        let between = |line: &Line| line.ends == [a, b] || line.ends == [b, a];
        self.lines.iter().filter(|(_, line)| between(line)).map(|(&wire, _)| wire).collect()
    }

    /// A number that stands for all that is under way.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = 0;
        for (wire, line) in &self.lines {
            for (end, lane) in line.lanes.iter().enumerate() {
                let flags = u64::from(lane.shut) << 1 | u64::from(lane.deaf) << 2 | end as u64;
                hash = mix(hash ^ wire.0 << 8 ^ flags);
                for parcel in &lane.parcels {
                    hash = mix(hash ^ parcel.digest());
                }
            }
        }
        hash
    }

    /// Parcels under way on all wires.
    pub fn under_way(&self) -> usize {
        self.lines.values().flat_map(|line| &line.lanes).map(|lane| lane.parcels.len()).sum()
    }

    fn lane(&mut self, wire: Wire, at: End) -> Option<&mut Lane> {
        Some(&mut self.lines.get_mut(&wire)?.lanes[at as usize])
    }

    fn hear_no_more(&mut self, wire: Wire, at: End) {
        if let Some(lane) = self.lane(wire, at) {
            lane.deaf = true;
        }
    }

    /// Puts a parcel on the lane towards one end.
    fn put(&mut self, wire: Wire, at: End, parcel: Parcel, now: Nanos) -> Option<Due> {
        let line = self.lines.get_mut(&wire)?;
        let ends = (line.ends[at.other() as usize], line.ends[at as usize]);
        let lane = &mut line.lanes[at as usize];
        if lane.shut {
            return None;
        }
        let delay = self.ways.draw(ends, &mut self.rng);
        lane.last = lane.last.max(now + delay);
        lane.parcels.push_back(parcel);
        Some((lane.last, Arrival { wire, at }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::events::Events;

    const A: Host = Host(0);
    const B: Host = Host(1);

    fn bytes(parcel: Option<Parcel>) -> Vec<u8> {
        match parcel {
            Some(Parcel::Bytes(bytes)) => bytes,
            other => panic!("bytes were expected, not {other:?}"),
        }
    }

    fn open(net: &mut Net) -> Wire {
        let (wire, (at, knock)) = net.dial(A, B, 0);
        assert_eq!(net.arrive(knock), Some(Parcel::Knock));
        let (_, connected) = net.answer(wire, true, at).expect("somebody listens");
        assert_eq!(net.arrive(connected), Some(Parcel::Connected));
        wire
    }

    #[test]
    fn a_wire_keeps_the_order_whatever_the_delays() {
        let mut net = Net::new(1, Span::Uniform(1, 1000));
        net.set_split(500);
        let wire = open(&mut net);
        let mut events = Events::new(1);
        let sent: Vec<u8> = (0..200).collect();
        for (i, pair) in sent.chunks(2).enumerate() {
            for (at, due) in
                net.send(wire, End::Dialler, pair.to_vec(), i as u64).into_iter().flatten()
            {
                events.push(at, due);
            }
        }
        let mut found = Vec::new();
        while let Some((_, due)) = events.pop() {
            found.extend(bytes(net.arrive(due)));
        }
        assert_eq!(found, sent);
    }

    #[test]
    fn a_slow_network_at_one_host_slows_both_ways_and_nobody_else() {
        let mut net = Net::new(1, Span::Fixed(10));
        let wire = open(&mut net);
        net.set_slow_net(B, 300);
        let at = |due: [Option<Due>; 2]| due[0].expect("sent").0;
        assert_eq!(at(net.send(wire, End::Dialler, vec![1], 100)), 130);
        assert_eq!(at(net.send(wire, End::Listener, vec![1], 100)), 130);
        let (_, (elsewhere, _)) = net.dial(A, Host(2), 100);
        assert_eq!(elsewhere, 110);
        net.set_slow_net(B, 100);
        assert_eq!(at(net.send(wire, End::Dialler, vec![1], 200)), 210);
    }

    #[test]
    fn a_cut_loses_what_is_under_way_and_tells_both_ends() {
        let mut net = Net::new(1, Span::Fixed(10));
        let wire = open(&mut net);
        let [lost, _] = net.send(wire, End::Dialler, vec![1], 0);
        let told = net.cut(wire, 5);
        assert_eq!(net.arrive(lost.expect("sent").1), Some(Parcel::Closed));
        assert_eq!(net.arrive(told[0].expect("told").1), Some(Parcel::Closed));
        assert_eq!(net.send(wire, End::Listener, vec![2], 6), [None, None]);
        assert_eq!(net.under_way(), 0);
        assert!(net.wires_of(A).is_empty());
    }

    #[test]
    fn a_partition_holds_parcels_up_one_way() {
        let mut net = Net::new(1, Span::Fixed(10));
        let wire = open(&mut net);
        net.block(A, B);
        let [there, _] = net.send(wire, End::Dialler, vec![1], 0);
        let [back, _] = net.send(wire, End::Listener, vec![2], 0);
        assert_eq!(net.arrive(there.expect("sent").1), None);
        assert_eq!(bytes(net.arrive(back.expect("sent").1)), [2]);
        let due = net.unblock(A, B, 100);
        assert_eq!(due.len(), 1);
        assert_eq!(due[0].0, 110);
        assert_eq!(bytes(net.arrive(due[0].1)), [1]);
    }

    #[test]
    fn who_closes_hears_no_more_and_its_last_words_arrive() {
        let mut net = Net::new(1, Span::Fixed(10));
        let wire = open(&mut net);
        let [back, _] = net.send(wire, End::Listener, vec![2], 0);
        let [there, _] = net.send(wire, End::Dialler, vec![1], 0);
        let closed = net.close(wire, End::Dialler, 0).expect("told");
        assert_eq!(bytes(net.arrive(there.expect("sent").1)), [1]);
        assert_eq!(net.arrive(back.expect("sent").1), None);
        assert_eq!(net.arrive(closed.1), Some(Parcel::Closed));
    }
}
