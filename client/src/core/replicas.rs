//! The replicas, as the client knows them.

use core::time::Duration;

use bowline_protocol::{Load, Method, ReplicaId, Station};
use bowline_time::Instant;

use super::call::NIL;

/// No such replica.
const UNKNOWN: u16 = u16::MAX;

/// One replica.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) id: ReplicaId,
    /// Replicas of one domain fail together.
    pub(crate) domain: u32,
    /// The core that the connection leads to, while there is one.
    pub(crate) station: Option<Station>,
    /// It will close that connection: nothing new for it.
    pub(crate) leaving: bool,
    /// It is none of the set any more: nothing new for it, and no hope of it.
    pub(crate) removed: bool,
    /// Copies of ours that are out there.
    pub(crate) in_flight: u32,
    pub(crate) load: Load,
    pub(crate) load_at: Instant,
    /// It said that it has too much to do: not to be preferred before then.
    pub(crate) spare_until: Instant,
    pub(crate) rtt: Option<Duration>,
    /// The largest payload that it takes, in bytes; what it said last, if it is not connected.
    pub(crate) takes: u32,
    /// Its methods by ascending number, and whether a second copy may be sent of each; None: it did
    /// not say.
    pub(crate) methods: Option<Vec<(Method, bool)>>,
    /// The first of the copies that are out there.
    pub(crate) head: u32,
}

impl Replica {
    /// It may be sent something new.
    pub(crate) fn is_open(&self) -> bool {
        self.station.is_some() && !self.leaving && !self.removed
    }

    /// It may be sent something new of that size.
    pub(crate) fn fits(&self, size: u32) -> bool {
        self.is_open() && size <= self.takes
    }

    /// It allows a second copy of a call of this method, or did not say what it allows.
    pub(crate) fn allows_second(&self, method: Method) -> bool {
        self.methods.as_ref().is_none_or(|methods| {
            let at = methods.binary_search_by_key(&method, |&(number, _)| number);
            at.is_ok_and(|at| methods[at].1)
        })
    }

    pub(crate) fn heard(&mut self, load: Load, now: Instant) {
        self.load = load;
        self.load_at = now;
    }

    /// How much it has to do: what it said, while that is fresh, and what we have there. (What of
    /// ours it had counted already counts twice; that is the same for all.)
    pub(crate) fn score(&self, lifetime: Duration, now: Instant) -> u32 {
        let reported = u32::from(self.load.running) + u32::from(self.load.queued);
        let fresh = now - self.load_at < lifetime;
        self.in_flight + if fresh { reported } else { 0 }
    }
}

/// All of them. A replica's place in the table never changes.
#[derive(Debug, Default)]
pub(crate) struct Replicas {
    all: Vec<Replica>,
    /// By id, the place.
    places: Vec<u16>,
}

impl Replicas {
    /// Adds one; known already, it only moves to that domain.
    pub(crate) fn add(&mut self, id: ReplicaId, domain: u32) {
        if let Some(place) = self.find(id) {
            self.all[usize::from(place)].domain = domain;
            return;
        }
        let at = usize::from(id.0);
        if self.places.len() <= at {
            self.places.resize(at + 1, UNKNOWN);
        }
        self.places[at] = self.all.len() as u16;
        self.all.push(Replica {
            id,
            domain,
            station: None,
            leaving: false,
            removed: false,
            in_flight: 0,
            load: Load::default(),
            load_at: Instant::EPOCH,
            spare_until: Instant::EPOCH,
            rtt: None,
            takes: u32::MAX,
            methods: None,
            head: NIL,
        });
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
        !self.all.is_empty() && self.all.iter().all(|it| it.removed || size > it.takes)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, &Replica)> {
        (0..).zip(&self.all)
    }
}
