//! Stores of results: what keyed methods did, for good. They outlive the processes that use them.

use std::collections::BTreeMap;

use bowline_protocol::Attempt;
use bowline_protocol::options::Key;

use crate::world::lag::Seen;

/// What a store keeps of a key.
#[derive(Clone, Copy, Debug)]
struct Kept {
    fingerprint: u64,
    effect: u64,
}

/// The stores of a world: one for all replicas, or one for each.
#[derive(Debug)]
pub(crate) struct Stores {
    shared: bool,
    kept: BTreeMap<(u16, u128), Kept>,
    effects: u64,
}

/// What came of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Once {
    /// The effect of that number was had.
    Had(u64),
    /// It had been before.
    Again(u64),
    /// The key was used for something else.
    OtherUse,
}

impl Stores {
    pub(crate) const fn new(shared: bool) -> Stores {
        Stores { shared, kept: BTreeMap::new(), effects: 0 }
    }

    /// Which store a replica uses.
    pub(crate) const fn of(&self, replica: u16) -> u16 {
        if self.shared { 0 } else { replica }
    }

    /// What was done for a key in a replica's store.
    pub(crate) fn effect(&self, replica: u16, key: Key) -> Option<u64> {
        let kept = self.kept.get(&(self.of(replica), key.id))?;
        (kept.fingerprint == key.fingerprint).then_some(kept.effect)
    }

    /// One transaction: the effect, its key and its result, unless the key is there. Without a key
    /// the effect is had in any case.
    pub(crate) fn once(&mut self, replica: u16, key: Option<Key>) -> Once {
        let place = key.map(|key| (self.of(replica), key.id));
        let kept = place.and_then(|place| self.kept.get(&place));
        match (kept, key) {
            (Some(kept), Some(key)) if kept.fingerprint != key.fingerprint => Once::OtherUse,
            (Some(kept), _) => Once::Again(kept.effect),
            (None, _) => {
                self.effects += 1;
                let effect = self.effects;
                if let (Some(place), Some(Key { fingerprint, .. })) = (place, key) {
                    self.kept.insert(place, Kept { fingerprint, effect });
                }
                Once::Had(effect)
            }
        }
    }
}

/// A keyed copy that ran in this life of its core, and how that went.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    /// Which.
    pub(crate) attempt: Attempt,
    /// What was answered.
    pub(crate) answer: Vec<u8>,
    /// It succeeded.
    pub(crate) ok: bool,
    /// What that was made of.
    pub(crate) seen: Option<Seen>,
}
