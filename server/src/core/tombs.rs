//! Tombstones: cancels that came before the copy they are meant for.
//!
//! A twin that starts at once tells this core of it, and may be faster than the client whose
//! request is still on its way here. The tombstone waits for that request and for no other: it
//! names the copy and, of its twin, the core and the number. All of this only saves work: a
//! tombstone may be lost at any time, and then the copy runs beside its twin.

use bowline_protocol::{Attempt, Twin};
use bowline_time::{Instant, TimerKey, Wheel};

use super::arena::{Arena, List};
use super::index::Index;

struct Tomb {
    attempt: Attempt,
    by: Twin,
    /// None only while it is being set.
    timer: Option<TimerKey>,
}

/// The tombstones of one core: a bounded number, of which the oldest makes room.
pub(super) struct Tombs {
    tombs: Arena<Tomb, 1>,
    by_age: List,
    index: Index,
    /// The end of each one's life, by its index in the arena.
    timers: Wheel<u32>,
}

/// What became of the room that a new tombstone needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Set {
    /// There was room.
    Made,
    /// The oldest made room.
    MadeInPlaceOfAnother,
    /// It is there already, or there is no room for any.
    No,
}

impl Tombs {
    pub(super) fn with_capacity(capacity: u32, seed: u64) -> Tombs {
        Tombs {
            tombs: Arena::with_capacity(capacity),
            by_age: List::EMPTY,
            index: Index::new(seed),
            timers: Wheel::with_capacity(capacity as usize),
        }
    }

    pub(super) const fn len(&self) -> u32 {
        self.tombs.len()
    }

    /// Sets a tombstone that lives until `until`.
    pub(super) fn set(&mut self, attempt: Attempt, by: Twin, until: Instant) -> Set {
        if self.find(attempt, by).is_some() {
            return Set::No;
        }
        let evicted = self.tombs.is_full() && self.evict_oldest();
        let Some(key) = self.tombs.insert(Tomb { attempt, by, timer: None }) else {
            return Set::No;
        };
        self.tombs.at_mut(key.index).timer = Some(self.timers.arm(until, key.index));
        self.tombs.push_back(&mut self.by_age, 0, key.index);
        self.index.insert(self.index.hash_tied(attempt, by), key.index);
        if evicted { Set::MadeInPlaceOfAnother } else { Set::Made }
    }

    /// The request that a tombstone waits for has come: takes the tombstone, if there is one.
    pub(super) fn take(&mut self, attempt: Attempt, by: Twin) -> bool {
        if self.len() == 0 {
            return false;
        }
        match self.find(attempt, by) {
            Some(index) => {
                self.remove(index);
                true
            }
            None => false,
        }
    }

    /// Takes one tombstone whose time is out; false once there is no more.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let expired = self.timers.expire(now);
        expired.inspect(|&index| self.remove(index)).is_some()
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn evict_oldest(&mut self) -> bool {
        match self.by_age.first() {
            Some(index) => {
                self.remove(index);
                true
            }
            None => false,
        }
    }

    fn find(&self, attempt: Attempt, by: Twin) -> Option<u32> {
        self.index.find(self.index.hash_tied(attempt, by), |index| {
            let tomb = self.tombs.at(index);
            tomb.attempt == attempt && tomb.by == by
        })
    }

    fn remove(&mut self, index: u32) {
        let Tomb { attempt, by, timer } = *self.tombs.at(index);
        timer.and_then(|timer| self.timers.cancel(timer));
        self.index.remove(self.index.hash_tied(attempt, by), index);
        self.tombs.unlink(&mut self.by_age, 0, index);
        self.tombs.remove(index);
    }
}
