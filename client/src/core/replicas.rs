//! The replicas, as the client knows them.

use core::time::Duration;

use bowline_protocol::{Freshness, Load, Method, ReplicaId, Station};
use bowline_time::Instant;

use super::c3::Timing;
use super::call::NIL;
use super::health::Health;
use super::line::Line;
use super::pick::Order;
use super::placement::Placement;
use super::room::Room;

/// No such replica.
const UNKNOWN: u16 = u16::MAX;

/// How often a report of load is gone by: each of its replies brings a new one, so that only bursts
/// between two of them meet this.
const USES: u8 = 32;
/// By how much of itself an answer moves a replica's slowness.
const STEP: f64 = 1.0 / 16.0;
/// Hedges are not sent to a replica that takes so many times as long as the fastest one.
const SLOW: f64 = 3.0;
/// Slowness is not followed beyond this, so that it comes back in fewer than a hundred answers.
const SLOWEST: f64 = 64.0;

/// What a replica must serve to be asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// The call; 0 of one that only begins.
    pub(crate) seq: u64,
    pub(crate) size: u32,
    pub(crate) method: Method,
    pub(crate) key: Option<u64>,
    /// It goes to replicas only that may have its method: there is one.
    pub(crate) had: bool,
}

/// What a replica promises of a method.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Promise {
    /// Running it twice does no harm.
    pub(crate) idempotent: bool,
    /// With the same key, running it twice in one store of results does no harm.
    pub(crate) keyed: bool,
    /// A second copy may be sent.
    pub(crate) duplicable: bool,
}

/// Whether a replica is one of the set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Membership {
    /// It is.
    Full,
    /// It will be, elsewhere: nothing new for it where it is, though its connection may break and be
    /// there again, but calls may wait for it.
    Moving,
    /// It is not: nothing new for it, and no hope of it.
    None,
}

/// One replica.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) id: ReplicaId,
    pub(crate) placement: Placement,
    pub(crate) health: Health,
    /// When the first copy went to it since it was connected.
    pub(crate) warm_since: Option<Instant>,
    /// What its answers take, as a multiple of what such calls take anywhere.
    pub(crate) slowness: f64,
    /// What they take, where replicas are picked by that.
    pub(crate) timing: Timing,
    /// How often its report of load may still be gone by.
    pub(crate) uses: u8,
    /// The core that the connection leads to, while there is one.
    pub(crate) station: Option<Station>,
    /// Its connection broke, and may be there again before then.
    pub(crate) back_until: Instant,
    /// It will close that connection: nothing new for it.
    pub(crate) leaving: bool,
    pub(crate) membership: Membership,
    /// Copies of ours that are out there.
    pub(crate) in_flight: u32,
    /// What it said of its load, and until when that counts.
    pub(crate) load: Load,
    pub(crate) load_until: Instant,
    /// What it said that it holds, and until when that counts.
    pub(crate) held: Freshness,
    /// It answered one who asked for freshness without saying how fresh that is.
    pub(crate) is_silent: bool,
    pub(crate) held_until: Instant,
    /// It said that it has too much to do: not to be preferred before then.
    pub(crate) spare_until: Instant,
    pub(crate) rtt: Option<Duration>,
    /// The largest payload that it takes, in bytes; what it said last, if it is not connected.
    pub(crate) takes: u32,
    /// What it promises of its methods, by ascending number; None: it did not say.
    pub(crate) methods: Option<Vec<(Method, Promise)>>,
    /// It is told keys, and how fresh a result has to be.
    pub(crate) understands_options: bool,
    pub(crate) room: Room,
    /// Calls that it would serve, had it room.
    pub(crate) line: Line,
    /// There may be room for one of those.
    pub(crate) line_due: bool,
    /// The one call that it is sent until there was room for that; 0 of none.
    pub(crate) kept_for: u64,
    /// The first of the copies that are out there.
    pub(crate) head: u32,
}

impl Replica {
    pub(crate) fn state(&self) -> ReplicaState {
        ReplicaState {
            id: self.id,
            open: self.is_open(),
            ejected: self.health.is_ejected(),
            in_flight: self.in_flight,
            load: self.load,
            held: self.held,
            rtt: self.rtt,
            slowness: self.slowness,
        }
    }

    /// It may be sent something new.
    pub(crate) fn is_open(&self) -> bool {
        self.station.is_some() && !self.leaving && self.membership == Membership::Full
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.membership == Membership::None
    }

    /// It may be sent something new of that kind and size now.
    pub(crate) fn fits(&self, wanted: Wanted) -> bool {
        self.would_fit(wanted) && self.has_room(wanted)
    }

    /// It could be sent that, had it granted more or read what it was sent.
    pub(crate) fn lacks_room(&self, wanted: Wanted) -> bool {
        self.would_fit(wanted) && !self.has_room(wanted)
    }

    fn has_room(&self, wanted: Wanted) -> bool {
        let kept = self.kept_for != 0 && self.kept_for != wanted.seq;
        !kept && self.room.allows(wanted.size)
    }

    /// It could be sent that, but for its room.
    pub(crate) fn would_fit(&self, wanted: Wanted) -> bool {
        self.is_open() && wanted.size <= self.takes && self.serves(wanted)
    }

    /// It is there for calls of that kind.
    pub(crate) fn serves(&self, wanted: Wanted) -> bool {
        let Wanted { method, key, had, .. } = wanted;
        self.is_placed_for(method, key) && (!had || self.promise(method).is_some())
    }

    fn is_placed_for(&self, method: Method, key: Option<u64>) -> bool {
        !self.is_removed() && self.placement.serves(method, key)
    }

    /// How far it is, where that matters: a key is not to mean another replica to each client.
    pub(crate) fn distance(&self, order: Order) -> u8 {
        if matches!(order, Order::Key(_)) { 0 } else { self.placement.distance }
    }

    /// It answered in so many times what such calls take anywhere, or not at all within that.
    pub(crate) fn took(&mut self, ratio: f64, answered: bool) {
        // A median: each answer moves it by a step, whichever way, however far off it is.
        if ratio > self.slowness {
            self.slowness = (self.slowness * (1.0 + STEP)).min(SLOWEST);
        } else if answered {
            self.slowness = (self.slowness / (1.0 + STEP)).max(1.0 / SLOWEST);
        }
    }

    /// Its answers take several times as long as such calls do anywhere, and as those of a replica that
    /// is as slow as `least`: where all have become slow at once, none of them is to be avoided for it.
    pub(crate) fn is_slow(&self, least: f64) -> bool {
        self.slowness > SLOW * least.max(1.0)
    }

    /// What it promises of this method; None: it has it not, and runs no call of it. One that says nothing
    /// leaves it to the caller whether running a call twice does harm; that it keeps results by their
    /// keys nobody has said then.
    pub(crate) fn promise(&self, method: Method) -> Option<Promise> {
        let Some(methods) = &self.methods else {
            return Some(Promise { idempotent: true, keyed: false, duplicable: true });
        };
        let at = methods.binary_search_by_key(&method, |&(number, _)| number).ok()?;
        let promise = methods[at].1;
        // Without options it is not even told the key.
        Some(Promise { keyed: promise.keyed && self.understands_options, ..promise })
    }

    /// It allows a second copy of a call of this method.
    pub(crate) fn takes_second(&self, method: Method) -> bool {
        self.promise(method).is_some_and(|promise| promise.duplicable)
    }

    /// A refusal says what the replica holds: its own word, whatever was known before.
    pub(crate) fn holds(&mut self, fresh: Freshness, lifetime: Duration, now: Instant) {
        (self.held, self.held_until, self.is_silent) = (fresh, now + lifetime, false);
    }

    /// A reply says how fresh it is. The replica is that fresh at least: what one handler answered may
    /// be made of something older than what others find there.
    pub(crate) fn answered_with(&mut self, fresh: Freshness, lifetime: Duration, now: Instant) {
        let known =
            if now < self.held_until { self.held.staleness } else { Freshness::ANY.staleness };
        let version = fresh.version.max(self.held.version);
        self.holds(Freshness { version, staleness: fresh.staleness.min(known) }, lifetime, now);
    }

    /// A reply to one who asked for freshness does not say how fresh it is.
    pub(crate) fn said_nothing(&mut self, lifetime: Duration, now: Instant) {
        (self.is_silent, self.held_until) = (true, now + lifetime);
    }

    /// It is known to be behind that, or not to say how fresh it is. What it said counts for as long
    /// as the rest of its reports: then it may have caught up.
    pub(crate) fn is_behind(&self, asked: Option<Freshness>, now: Instant) -> bool {
        let known = |asked: &Freshness| self.is_silent || self.held.is_behind(asked);
        let recent = now < self.held_until;
        asked.is_some_and(|asked| !self.understands_options || recent && known(&asked))
    }

    pub(crate) fn heard(&mut self, load: Load, lifetime: Duration, now: Instant) {
        (self.load, self.load_until) = (load, now + lifetime);
        self.uses = USES;
    }

    /// What it has to do by its own report, if that is fresh, and ours besides. A report that was
    /// gone by too often is as good as none: everyone would go by it.
    pub(crate) fn in_flight_there(&self, now: Instant) -> u32 {
        let fresh = self.uses > 0 && now < self.load_until;
        self.in_flight + if fresh { self.reported() } else { 0 }
    }

    pub(crate) fn reported(&self) -> u32 {
        u32::from(self.load.running) + u32::from(self.load.queued)
    }

    /// How much it has to do: what it said, while that is fresh, and what we have there. (What of
    /// ours it had counted already counts twice; that is the same for all.)
    pub(crate) fn score(&self, now: Instant) -> u32 {
        let fresh = now < self.load_until;
        self.in_flight + if fresh { self.reported() } else { 0 }
    }
}

/// How a replica is doing, as the client sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReplicaState {
    /// Which.
    pub id: ReplicaId,
    /// It is connected, and takes something new.
    pub open: bool,
    /// It failed again and again, and is left alone but for probes.
    pub ejected: bool,
    /// Copies that are out there.
    pub in_flight: u32,
    /// What it said last of its load, which may be long ago.
    pub load: Load,
    /// What it said last that it holds, which may be long ago.
    pub held: Freshness,
    /// The round trip, if it was measured.
    pub rtt: Option<Duration>,
    /// What its answers take, as a multiple of what such calls take anywhere.
    pub slowness: f64,
}

/// All of them. A replica's place in the table never changes.
#[derive(Debug)]
pub(crate) struct Replicas {
    all: Vec<Replica>,
    /// By id, the place.
    places: Vec<u16>,
    max_backlog: usize,
}

impl Replicas {
    /// None yet; each is to have at most so many bytes waiting for it to read.
    pub(crate) const fn new(max_backlog: usize) -> Replicas {
        Replicas { all: Vec::new(), places: Vec::new(), max_backlog }
    }

    /// Adds one; known already, it only moves to that domain.
    pub(crate) fn add(&mut self, id: ReplicaId, domain: u32) {
        match self.find(id) {
            Some(place) => self.get_mut(place).placement.domain = domain,
            None => self.place(id, Placement { domain, ..Placement::default() }),
        }
    }

    /// Adds one, or moves it there.
    pub(crate) fn place(&mut self, id: ReplicaId, placement: Placement) {
        if let Some(place) = self.find(id) {
            self.get_mut(place).placement = placement;
            return;
        }
        let at = usize::from(id.0);
        if self.places.len() <= at {
            self.places.resize(at + 1, UNKNOWN);
        }
        self.places[at] = self.all.len() as u16;
        self.all.push(Replica {
            id,
            placement,
            health: Health::default(),
            warm_since: None,
            slowness: 1.0,
            timing: Timing::default(),
            uses: 0,
            station: None,
            back_until: Instant::EPOCH,
            leaving: false,
            membership: Membership::Full,
            in_flight: 0,
            load: Load::default(),
            load_until: Instant::EPOCH,
            held: Freshness::ANY,
            is_silent: false,
            held_until: Instant::EPOCH,
            spare_until: Instant::EPOCH,
            rtt: None,
            takes: u32::MAX,
            methods: None,
            understands_options: true,
            room: Room::new(self.max_backlog),
            line: Line::default(),
            line_due: false,
            kept_for: 0,
            head: NIL,
        });
    }

    /// None is left alone any more.
    pub(crate) fn readmit_all(&mut self) {
        self.all.iter_mut().for_each(|replica| replica.health = Health::default());
    }

    /// The place of a replica.
    pub(crate) fn find(&self, id: ReplicaId) -> Option<u16> {
        self.places.get(usize::from(id.0)).copied().filter(|&place| place != UNKNOWN)
    }

    pub(crate) fn get(&self, place: u16) -> &Replica {
        &self.all[usize::from(place)]
    }

    pub(crate) fn get_mut(&mut self, place: u16) -> &mut Replica {
        &mut self.all[usize::from(place)]
    }

    /// No replica, connected or not, is known to take a payload of that size.
    pub(crate) fn none_takes(&self, size: u32) -> bool {
        self.most_taken().is_some_and(|most| size > most)
    }

    /// The largest payload that any of them is known to take; None without any.
    pub(crate) fn most_taken(&self) -> Option<u32> {
        self.all.iter().filter(|it| !it.is_removed()).map(|it| it.takes).max()
    }

    /// A replica that is there for such calls may have the method: not all have said that they have not.
    pub(crate) fn may_have(&self, method: Method, key: Option<u64>) -> bool {
        self.all.iter().any(|it| it.is_placed_for(method, key) && it.promise(method).is_some())
    }

    /// How slow the fastest is of those that could be sent that, but for their room.
    pub(crate) fn least_slowness(&self, wanted: Wanted) -> f64 {
        let all = self.all.iter().filter(|replica| replica.would_fit(wanted));
        all.fold(f64::INFINITY, |least, replica| least.min(replica.slowness))
    }

    /// No replica of the set is there for calls of that kind.
    pub(crate) fn none_serves(&self, wanted: Wanted) -> bool {
        !self.all.is_empty() && self.all.iter().all(|replica| !replica.serves(wanted))
    }

    /// How many there are: as many places.
    pub(crate) fn len(&self) -> u16 {
        self.all.len() as u16
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Replica)> {
        (0..).zip(&self.all)
    }
}
