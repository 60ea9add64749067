//! What was asked for under a key is done once, as far as this core remembers.
//!
//! A key is *running* while a copy that brought it runs, and *done* once that copy has succeeded.
//! Copies that bring it meanwhile wait for the same result; those that come later get the same bytes
//! again. The same key with another method or payload is refused: it was used twice by mistake.
//!
//! What is done is kept for a while, up to a number and a sum of bytes; then the oldest goes. After
//! that, and after a restart, only a store that keeps key, effect and result in one transaction
//! still knows.
//!
//! Copies may wait for room for a result that is known. For these it is kept beyond those limits, up
//! to a sum of bytes of its own, until the last of them has ended.

use alloc::sync::Arc;
use core::time::Duration;

use bowline_protocol::options::Key as CallKey;
use bowline_protocol::{Freshness, Label, Method, OptionSet};
use bowline_time::Instant;

use super::arena::{Arena, Key, List};
use super::index::Index;

/// What a core remembers of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyLimits {
    /// So many results, at most. 0: none, and then only copies that run at the same time are told
    /// to be the same.
    pub results: u32,
    /// So many bytes of results, in all, at most. (While copies wait for room to be answered with results
    /// that had to go for others, a quarter of `outgoing_total` is kept of those beside.)
    pub bytes: usize,
    /// For so long after the call was done.
    pub life: Duration,
}

impl Default for KeyLimits {
    /// 4096 results of 16 MiB in all, for a minute: longer than any caller goes on retrying.
    fn default() -> Self {
        KeyLimits { results: 4096, bytes: 16 << 20, life: Duration::from_secs(60) }
    }
}

struct Entry {
    id: u128,
    method: Method,
    fingerprint: u64,
    state: State,
}

enum State {
    /// The copies that wait for the one that runs.
    Running(List),
    Done(Done),
}

struct Done {
    outcome: Outcome,
    until: Instant,
    /// How many copies wait to be answered with it.
    wanted: u32,
    /// It is kept for these alone.
    owed: bool,
}

/// What a key's call was answered with, and what that answer said of itself. What the replica holds
/// later is not what it was made of.
#[derive(Clone)]
pub(super) struct Outcome {
    pub(super) result: Arc<[u8]>,
    label: Option<Label>,
    fresh: Option<Freshness>,
    made: Instant,
}

impl Outcome {
    /// The answer with which a handler was done at `made`, saying that.
    pub(super) fn new(result: &[u8], says: &OptionSet, made: Instant) -> Outcome {
        Outcome { result: result.into(), label: says.label, fresh: says.fresh, made }
    }

    /// What is said with it at `now`: the same, as much staler as it is older.
    pub(super) fn says(&self, now: Instant) -> OptionSet {
        let fresh = self.fresh.map(|fresh| fresh.aged(now - self.made));
        OptionSet { label: self.label, fresh, ..OptionSet::NONE }
    }
}

/// What is known of a key.
pub(super) enum Seen {
    /// Nothing.
    New,
    /// A copy runs for it: this entry.
    Running(u32),
    /// It was done, with this outcome.
    Done(Outcome),
    /// It was used for something else.
    Other,
}

/// The keys of one core. See the module's head.
pub(super) struct Keys {
    entries: Arena<Entry, 1>,
    index: Index,
    /// Those that are done, in the order in which they will be forgotten.
    done: List,
    bytes: usize,
    limits: KeyLimits,
    /// How many are kept for copies that wait for room alone, their bytes, and how many those may be.
    owed: u32,
    owed_bytes: usize,
    owed_most: usize,
}

impl Keys {
    /// Room for what the limits say, and beside for the keys of `copies`, which run or wait to be
    /// answered, and for `owed_most` bytes of results that are kept for these.
    pub(super) fn new(limits: KeyLimits, copies: u32, owed_most: usize, seed: u64) -> Keys {
        let capacity = limits.results + copies;
        Keys {
            entries: Arena::with_capacity(capacity),
            index: Index::new(seed),
            done: List::EMPTY,
            bytes: 0,
            limits,
            owed: 0,
            owed_bytes: 0,
            owed_most,
        }
    }

    /// How many results are remembered.
    pub(super) const fn results(&self) -> u32 {
        self.done.len() + self.owed
    }

    /// How many bytes they have.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes + self.owed_bytes
    }

    /// What is known of a key.
    pub(super) fn look(&self, key: CallKey, method: Method) -> Seen {
        let Some(index) = self.find(key.id) else { return Seen::New };
        let entry = self.entries.at(index);
        if (entry.method, entry.fingerprint) != (method, key.fingerprint) {
            return Seen::Other;
        }
        match &entry.state {
            State::Running(_) => Seen::Running(index),
            State::Done(done) => Seen::Done(done.outcome.clone()),
        }
    }

    /// The entry of a key that was done, as this method and with this fingerprint.
    pub(super) fn find_done(&self, key: CallKey, method: Method) -> Option<Key> {
        let index = self.find(key.id)?;
        let entry = self.entries.at(index);
        let is_it = (entry.method, entry.fingerprint) == (method, key.fingerprint);
        (is_it && matches!(entry.state, State::Done(_))).then(|| self.entries.key(index))
    }

    /// What is to be answered with an entry that is done; None if it had to be forgotten.
    pub(super) fn outcome(&self, entry: Key) -> Option<&Outcome> {
        match &self.entries.get(entry)?.state {
            State::Done(done) => Some(&done.outcome),
            State::Running(_) => None,
        }
    }

    /// How many bytes that has.
    pub(super) fn length(&self, entry: Key) -> Option<usize> {
        self.outcome(entry).map(|outcome| outcome.result.len())
    }

    /// The name of an entry.
    pub(super) fn name(&self, index: u32) -> Key {
        self.entries.key(index)
    }

    /// One more copy waits to be answered with an entry that is done.
    pub(super) fn want(&mut self, entry: Key) {
        if let Some(index) = self.entries.find(entry)
            && let State::Done(done) = &mut self.entries.at_mut(index).state
        {
            done.wanted += 1;
        }
    }

    /// One of those copies has ended.
    pub(super) fn unwant(&mut self, entry: Key) {
        if let Some(index) = self.entries.find(entry)
            && let State::Done(done) = &mut self.entries.at_mut(index).state
        {
            done.wanted -= 1;
            if done.owed && done.wanted == 0 {
                self.forget(index);
            }
        }
    }

    /// A copy begins to run for a key of which nothing is known. None if there is no room, which
    /// whoever has no more copies running than were announced never sees.
    pub(super) fn begin(&mut self, key: CallKey, method: Method) -> Option<u32> {
        let state = State::Running(List::EMPTY);
        let entry = Entry { id: key.id, method, fingerprint: key.fingerprint, state };
        let index = self.entries.insert(entry)?.index;
        self.index.insert(self.index.hash_key(key.id), index);
        Some(index)
    }

    /// The list of those that wait for a running key.
    pub(super) fn waiting(&mut self, index: u32) -> &mut List {
        match &mut self.entries.at_mut(index).state {
            State::Running(waiting) => waiting,
            State::Done(_) => unreachable!("copies wait only while one runs"),
        }
    }

    /// A key is done, with this outcome, and so many copies wait to be answered with it; none waits for
    /// one that runs any more. Returns how many others were forgotten to make room; it is itself if it is
    /// larger than may be. (Any of them is kept for copies that wait to be answered with it, if it can be.)
    pub(super) fn done(&mut self, index: u32, outcome: Outcome, wanted: u32, now: Instant) -> u64 {
        let (bytes, until) = (outcome.result.len(), now + self.limits.life);
        self.entries.at_mut(index).state =
            State::Done(Done { outcome, until, wanted, owed: false });
        let mut evicted = 0;
        if self.limits.results == 0 || bytes > self.limits.bytes {
            self.owe_or_forget(index);
            return 1;
        }
        while self.done.len() >= self.limits.results || self.bytes + bytes > self.limits.bytes {
            self.forget_oldest();
            evicted += 1;
        }
        self.bytes += bytes;
        self.entries.push_back(&mut self.done, 0, index);
        evicted
    }

    /// Nothing is known of a key any more. Nobody waits for it.
    pub(super) fn forget(&mut self, index: u32) {
        if let State::Done(Done { outcome, owed: true, .. }) = &self.entries.at(index).state {
            self.owed -= 1;
            self.owed_bytes -= outcome.result.len();
        }
        if let Some(Entry { id, .. }) = self.entries.remove(index) {
            self.index.remove(self.index.hash_key(id), index);
        }
    }

    /// What is done, and stands with the others no more, is kept for copies that wait to be answered
    /// with it, as long as there is room for those.
    fn owe_or_forget(&mut self, index: u32) {
        if let State::Done(done) = &mut self.entries.at_mut(index).state
            && done.wanted > 0
            && self.owed_bytes + done.outcome.result.len() <= self.owed_most
        {
            done.owed = true;
            self.owed += 1;
            self.owed_bytes += done.outcome.result.len();
            return;
        }
        self.forget(index);
    }

    fn forget_oldest(&mut self) {
        if let Some(oldest) = self.done.first()
            && let State::Done(done) = &self.entries.at(oldest).state
        {
            self.bytes -= done.outcome.result.len();
            self.entries.unlink(&mut self.done, 0, oldest);
            self.owe_or_forget(oldest);
        }
    }

    /// Forgets one result whose time is out; false once there is no more.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let expired = self.next_timeout().is_some_and(|until| until <= now);
        if expired {
            self.forget_oldest();
        }
        expired
    }

    /// When the next result is to be forgotten.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match &self.entries.at(self.done.first()?).state {
            State::Done(done) => Some(done.until),
            State::Running(_) => None,
        }
    }

    fn find(&self, id: u128) -> Option<u32> {
        self.index.find(self.index.hash_key(id), |index| self.entries.at(index).id == id)
    }
}
