//! From a name to the index of its entry: a hash table that grows to what it once held.
//!
//! Open addressing with linear probing; a removal shifts the rest of its run back, so no markers
//! pile up. The table is at most half full. Names come from the network, so the hash is keyed.
//!
//! It begins small and doubles, for a limit says what may be, not what is: names fall anywhere in
//! the table, and in one that is as large as a generous limit nearly every look would miss the
//! processor's caches (a quarter of a server's time, at 64 Ki requests).

use alloc::boxed::Box;
use alloc::vec;

use bowline_protocol::{Attempt, Twin};

/// Multipliers of wyhash (Wang Yi, public domain): odd, with as many ones as zeros.
const PRIMES: [u64; 3] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db, 0x8ebc_6af0_9c88_c6e3];

/// One place of the table: the hash, and the entry's index plus one (0: the place is free).
#[derive(Clone, Copy, Default)]
struct Place {
    hash: u32,
    entry: u32,
}

/// The table. It stores hashes and indices only; what an index means, its owner knows.
pub(super) struct Index {
    places: Box<[Place]>,
    mask: u32,
    len: u32,
    seed: u64,
}

/// Places of a new table: 512 B.
const FIRST_SIZE: usize = 64;

impl Index {
    /// An empty table.
    pub(super) fn new(seed: u64) -> Index {
        Index { places: places(FIRST_SIZE), mask: FIRST_SIZE as u32 - 1, len: 0, seed }
    }

    /// The hash of a copy's name.
    pub(super) fn hash(&self, attempt: Attempt) -> u32 {
        let call = fold(self.seed ^ attempt.client.0, PRIMES[0]);
        let copy = fold(call ^ attempt.seq.0, PRIMES[1]);
        fold(copy ^ u64::from(attempt.n), PRIMES[2]) as u32
    }

    /// The hash of a copy's name together with its twin's.
    pub(super) fn hash_tied(&self, attempt: Attempt, twin: Twin) -> u32 {
        let Twin { station, n } = twin;
        let packed = u64::from(station.replica.0) << 32 | u64::from(station.core) << 16;
        fold(u64::from(self.hash(attempt)) ^ self.seed, PRIMES[0] ^ packed ^ u64::from(n)) as u32
    }

    /// The hash of a key that a caller chose.
    pub(super) fn hash_key(&self, id: u128) -> u32 {
        let low = fold(self.seed ^ id as u64, PRIMES[0]);
        fold(low ^ (id >> 64) as u64, PRIMES[1]) as u32
    }

    /// The entry of this hash for which `is_it` holds.
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = hash & self.mask;
        loop {
            let place = self.places[at as usize];
            if place.entry == 0 {
                return None;
            }
            if place.hash == hash && is_it(place.entry - 1) {
                return Some(place.entry - 1);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Adds an entry.
    pub(super) fn insert(&mut self, hash: u32, entry: u32) {
        self.len += 1;
        if self.len as usize * 2 > self.places.len() {
            self.grow();
        }
        self.put(Place { hash, entry: entry + 1 });
    }

    fn put(&mut self, place: Place) {
        let mut at = place.hash & self.mask;
        while self.places[at as usize].entry != 0 {
            at = (at + 1) & self.mask;
        }
        self.places[at as usize] = place;
    }

    /// Doubles the table.
    fn grow(&mut self) {
        let size = self.places.len() * 2;
        let old = core::mem::replace(&mut self.places, places(size));
        self.mask = (size - 1) as u32;
        old.iter().filter(|place| place.entry != 0).for_each(|&place| self.put(place));
    }

    /// Removes an entry, if it is there.
    pub(super) fn remove(&mut self, hash: u32, entry: u32) {
        let mut at = hash & self.mask;
        while self.places[at as usize].entry != entry + 1 {
            if self.places[at as usize].entry == 0 {
                return;
            }
            at = (at + 1) & self.mask;
        }
        self.len -= 1;
        self.close_gap(at);
    }

    /// Moves back what a free place at `gap` would cut off from where its hash belongs.
    fn close_gap(&mut self, mut gap: u32) {
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask;
            let place = self.places[at as usize];
            if place.entry == 0 {
                break;
            }
            let from_home = at.wrapping_sub(place.hash) & self.mask;
            let from_gap = at.wrapping_sub(gap) & self.mask;
            if from_home >= from_gap {
                self.places[gap as usize] = place;
                gap = at;
            }
        }
        self.places[gap as usize] = Place::default();
    }
}

fn places(size: usize) -> Box<[Place]> {
    vec![Place::default(); size].into()
}

/// Both halves of a product, folded into one.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    /// A few hashes only, so that runs collide, wrap around and merge.
    #[test]
    fn it_finds_what_a_map_finds_whatever_collides() {
        let mut index = Index::new(7);
        let mut model = BTreeMap::new();
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let entry = (random >> 33) as u32 % 16;
            let hash = [0, 1, 62, 63][entry as usize % 4];
            if model.remove(&entry).is_some() {
                index.remove(hash, entry);
            } else {
                model.insert(entry, hash);
                index.insert(hash, entry);
            }
            for entry in 0..16 {
                let hash = [0, 1, 62, 63][entry as usize % 4];
                let found = index.find(hash, |it| it == entry);
                assert_eq!(found, model.contains_key(&entry).then_some(entry));
            }
        }
    }

    #[test]
    fn it_finds_all_that_it_grew_to_hold() {
        let mut index = Index::new(7);
        let hash = |entry: u32| entry.wrapping_mul(0x9e37_79b9);
        (0..1000).for_each(|entry| index.insert(hash(entry), entry));
        (0..500).for_each(|entry| index.remove(hash(entry), entry));
        for entry in 0..1000 {
            let found = index.find(hash(entry), |it| it == entry);
            assert_eq!(found, (entry >= 500).then_some(entry));
        }
    }
}
