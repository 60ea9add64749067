//! Large payloads on their way in: put together from their segments, within a budget.
//!
//! What is said of a wrong sender is an [`AssemblyError`], and ends the connection; what is only
//! too much for now is [`Arrived::NoRoom`], and ends the copy.

use alloc::vec::Vec;
use core::time::Duration;

use bowline_time::Instant;

use crate::frame::{
    Cancel, CancelReason, Goodbye, GoodbyeReason, PayloadOf, Reply, Request, Segment,
};
use crate::head::Head;
use crate::id::Attempt;
use crate::options::{OptionSet, Options};

/// What a payload costs at least of the budget, in bytes: what is kept of it beside its bytes.
const LEAST_COST: usize = 512;

/// So many payloads of one connection may be under way, at most: they are searched one by one. For
/// more there is no room, whatever the budget.
pub const MOST_PARTS: usize = 1024;

/// What a frame brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrived<M = Vec<u8>> {
    /// A request is there whole, with its options, as they came with its first part. What remains
    /// of its deadline is less by the time it took.
    Request(Request, OptionSet, M),
    /// A reply is there whole, likewise.
    Reply(Reply, OptionSet, M),
    /// All of a reply came that was [discarded](Assembly::discard): what is left of it, with what it
    /// said beside its header.
    Discarded(Reply, OptionSet),
    /// More has to come.
    UnderWay,
    /// The segment is of no payload under way: it crossed a refusal or a cancel, and is skipped.
    Skipped,
    /// The budget has no room for the payload: the copy is to be refused. Nothing is kept of it,
    /// and its segments will be skipped.
    NoRoom,
}

/// How the other side broke the rules. It ends the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AssemblyError {
    /// A total above what this side takes.
    #[error("{attempt:?} announces a payload of {total} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Whose payload.
        attempt: Attempt,
        /// What it announces, in bytes.
        total: u32,
        /// What is taken, in bytes.
        limit: u32,
    },
    /// A payload that is under way already.
    #[error("{0:?} opens a payload that is under way")]
    Twice(Attempt),
    /// A segment that does not follow the last one.
    #[error("a segment of {attempt:?} begins at {found} and should at {expected}")]
    Gap {
        /// Whose payload.
        attempt: Attempt,
        /// Where it should begin, in bytes.
        expected: u32,
        /// Where it begins, in bytes.
        found: u32,
    },
    /// More bytes than were announced.
    #[error("a payload of {attempt:?} exceeds the {total} bytes that were announced")]
    Overrun {
        /// Whose payload.
        attempt: Attempt,
        /// What was announced, in bytes.
        total: u32,
    },
}

impl AssemblyError {
    /// What to tell the other side before the connection is closed.
    pub const fn goodbye(&self) -> Goodbye {
        Goodbye { reason: GoodbyeReason::Protocol }
    }
}

/// The payloads that one connection has under way to this side. They are put together in `M`,
/// which the caller lends for each.
#[derive(Debug)]
pub struct Assembly<M = Vec<u8>> {
    parts: Vec<Part<M>>,
    limit: u32,
    budget: usize,
    held: usize,
    /// No request's time is up before.
    earliest: Instant,
    /// When more of any of them last came.
    moved: Instant,
    /// For how long a sender that has requests under way may send nothing of any of them.
    patience: Duration,
}

#[derive(Debug)]
struct Part<M> {
    head: Head,
    options: OptionSet,
    total: u32,
    /// How much of it came, in bytes.
    came: usize,
    /// None: nobody waits for it.
    memory: Option<M>,
    /// Since when it is under way.
    opened: Instant,
}

impl<M: AsMut<Vec<u8>>> Assembly<M> {
    /// Takes payloads of up to `limit` bytes (what this side's hello says it takes), and of up to
    /// `budget` bytes together.
    pub const fn new(limit: u32, budget: usize) -> Assembly<M> {
        let earliest = Instant::FAR_FUTURE;
        let (moved, patience) = (Instant::EPOCH, Duration::MAX);
        Assembly { parts: Vec::new(), limit, budget, held: 0, earliest, moved, patience }
    }

    /// The same, for a sender that is given up on once nothing came for so long of any request that
    /// it has under way: see [`Assembly::stalled`]. Without this it may take all the time that its
    /// requests have, which is its own word.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Assembly<M> {
        Assembly { patience, ..self }
    }

    /// Takes payloads of so many bytes together from now on; of what is under way nothing is given
    /// up. For connections that share a budget.
    pub const fn set_budget(&mut self, budget: usize) {
        self.budget = budget;
    }

    /// A request with options came, and perhaps announced more to come. Its payload is put
    /// together in `memory`, which is empty.
    ///
    /// # Errors
    ///
    /// [`AssemblyError`]: the other side broke the rules.
    pub fn open_request(
        &mut self,
        request: Request,
        options: &Options<'_>,
        first: &[u8],
        memory: M,
        now: Instant,
    ) -> Result<Arrived<M>, AssemblyError> {
        self.open(Head::Request(request), options, first, memory, now)
    }

    /// A reply with options came, and perhaps announced more to come. Its payload is put together
    /// in `memory`, which is empty.
    ///
    /// # Errors
    ///
    /// [`AssemblyError`]: the other side broke the rules.
    pub fn open_reply(
        &mut self,
        reply: Reply,
        options: &Options<'_>,
        first: &[u8],
        memory: M,
    ) -> Result<Arrived<M>, AssemblyError> {
        self.open(Head::Reply(reply), options, first, memory, Instant::EPOCH)
    }

    fn open(
        &mut self,
        head: Head,
        options: &Options<'_>,
        first: &[u8],
        memory: M,
        opened: Instant,
    ) -> Result<Arrived<M>, AssemblyError> {
        let (attempt, of) = head.name();
        let came = u32::try_from(first.len()).unwrap_or(u32::MAX);
        let total = options.total().unwrap_or(came);
        if total > self.limit {
            return Err(AssemblyError::TooLarge { attempt, total, limit: self.limit });
        }
        if self.find(attempt, of).is_some() {
            return Err(AssemblyError::Twice(attempt));
        }
        if came > total {
            return Err(AssemblyError::Overrun { attempt, total });
        }
        let (options, memory) = (options.to_set(), Some(memory));
        let mut part = Part { head, options, total, came: 0, memory, opened };
        if came < total && !self.has_room(total) {
            return Ok(Arrived::NoRoom);
        }
        part.append(first);
        if came == total {
            return Ok(part.into_arrived(opened));
        }
        self.held += part.cost();
        self.moved = self.moved.max(opened);
        self.earliest = self.earliest.min(part.until());
        self.parts.push(part);
        Ok(Arrived::UnderWay)
    }

    /// A segment came.
    ///
    /// # Errors
    ///
    /// [`AssemblyError`]: the other side broke the rules.
    pub fn segment(
        &mut self,
        segment: &Segment,
        bytes: &[u8],
        now: Instant,
    ) -> Result<Arrived<M>, AssemblyError> {
        let attempt = segment.attempt;
        let Some(at) = self.find(attempt, segment.of) else {
            return Ok(Arrived::Skipped);
        };
        let part = &mut self.parts[at];
        let (expected, total) = (part.came, part.total);
        if segment.offset as usize != expected {
            let (expected, found) = (expected as u32, segment.offset);
            return Err(AssemblyError::Gap { attempt, expected, found });
        }
        if bytes.len() > total as usize - expected {
            return Err(AssemblyError::Overrun { attempt, total });
        }
        part.append(bytes);
        if !bytes.is_empty() {
            self.moved = now;
        }
        if expected + bytes.len() < total as usize {
            return Ok(Arrived::UnderWay);
        }
        Ok(self.remove(at).into_arrived(now))
    }

    /// A cancel came from who may send it: gives up the request that it names, if that is under way
    /// and, where its twin starts, says that this is its twin. Returns how long its payload was to be.
    pub fn stop(&mut self, cancel: &Cancel) -> Option<u32> {
        let at = self.find(cancel.attempt, PayloadOf::Request)?;
        let tie = match &self.parts[at].head {
            Head::Request(request) => request.tie,
            Head::Reply(_) => None,
        };
        let meant = match cancel.reason {
            CancelReason::CallerDone => true,
            CancelReason::TwinStarted { by } => tie.is_some_and(|tie| tie.twin == by),
        };
        meant.then(|| self.remove(at).total)
    }

    /// Nobody waits for this payload any more. Returns how long it was to be, if it was under way.
    pub fn forget(&mut self, attempt: Attempt, of: PayloadOf) -> Option<u32> {
        let at = self.find(attempt, of)?;
        Some(self.remove(at).total)
    }

    /// Nobody waits for this reply any more, but for its end: what came of it is dropped, and the
    /// rest will be as it comes.
    pub fn discard(&mut self, attempt: Attempt) {
        if let Some(at) = self.find(attempt, PayloadOf::Reply) {
            self.held -= self.parts[at].cost();
            self.parts[at].memory = None;
            self.held += self.parts[at].cost();
        }
    }

    /// When to call [`Assembly::expire`] and [`Assembly::stalled`] next; None while no request is
    /// under way.
    pub fn next_timeout(&self) -> Option<Instant> {
        let stalled = if self.is_empty() { Instant::FAR_FUTURE } else { self.stalled_from() };
        let next = self.earliest.min(stalled);
        (next < Instant::FAR_FUTURE).then_some(next)
    }

    /// Gives up a request whose deadline passed before it was there whole: the copy is shed.
    /// Returns its name and how long its payload was to be, until there is none.
    pub fn expire(&mut self, now: Instant) -> Option<(Attempt, u32)> {
        if now < self.earliest {
            return None;
        }
        if let Some(at) = self.parts.iter().position(|part| part.until() <= now) {
            let part = self.remove(at);
            return Some((part.head.name().0, part.total));
        }
        let ends = self.parts.iter().map(Part::until);
        self.earliest = ends.min().unwrap_or(Instant::FAR_FUTURE);
        None
    }

    /// Gives up a request whose sender is no longer at it: nothing came for as long as its
    /// [patience](Assembly::with_patience) of any request under way. (A sender is not at all of them at
    /// once: one that waits for others to be sent is not given up.) The copy is shed. Returns its name and
    /// how long its payload was to be, until there is none.
    pub fn stalled(&mut self, now: Instant) -> Option<(Attempt, u32)> {
        if now < self.stalled_from() {
            return None;
        }
        let is_request = |part: &Part<M>| matches!(part.head, Head::Request(_));
        let at = self.parts.iter().position(is_request)?;
        let part = self.remove(at);
        Some((part.head.name().0, part.total))
    }

    /// A request that keeps others waiting: it has been under way for longer than its sender's
    /// [patience](Assembly::with_patience), and at its pace so far would take longer than `most` in
    /// all. For a receiver that has no room for another.
    pub fn slow(&self, most: Duration, now: Instant) -> Option<Attempt> {
        let is_slow = |part: &&Part<M>| {
            let age = now - part.opened;
            matches!(part.head, Head::Request(_)) && age > self.patience && part.in_all(age) > most
        };
        self.parts.iter().find(is_slow).map(|part| part.head.name().0)
    }

    /// The request that came last of those under way: the least of it is lost if it gives way to one
    /// of another sender.
    pub fn newest(&self) -> Option<Attempt> {
        let requests = self.parts.iter().filter(|part| matches!(part.head, Head::Request(_)));
        requests.max_by_key(|part| part.opened).map(|part| part.head.name().0)
    }

    fn stalled_from(&self) -> Instant {
        self.moved + self.patience
    }

    fn has_room(&self, total: u32) -> bool {
        let left = self.budget.saturating_sub(self.held);
        cost(total) <= left && self.parts.len() < MOST_PARTS
    }

    fn find(&self, attempt: Attempt, of: PayloadOf) -> Option<usize> {
        self.parts.iter().position(|part| part.head.name() == (attempt, of))
    }

    fn remove(&mut self, at: usize) -> Part<M> {
        let part = self.parts.swap_remove(at);
        self.held -= part.cost();
        part
    }

    /// How much of the budget is taken, in bytes.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// How many payloads are under way.
    pub const fn len(&self) -> usize {
        self.parts.len()
    }

    /// No payload is under way.
    pub const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

const fn cost(total: u32) -> usize {
    let total = total as usize;
    if total < LEAST_COST { LEAST_COST } else { total }
}

impl<M: AsMut<Vec<u8>>> Part<M> {
    /// When its deadline passes; a reply has none of its own.
    fn until(&self) -> Instant {
        match self.head {
            Head::Request(request) => self.opened + request.remaining,
            Head::Reply(_) => Instant::FAR_FUTURE,
        }
    }

    /// How long all of it takes, at a pace at which so much took `age`.
    fn in_all(&self, age: Duration) -> Duration {
        let nanos = age.as_nanos() * u128::from(self.total) / self.came.max(1) as u128;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn cost(&self) -> usize {
        if self.memory.is_some() { cost(self.total) } else { LEAST_COST }
    }

    /// Memory follows what has arrived: at most twice that, and never more than was announced.
    fn append(&mut self, bytes: &[u8]) {
        self.came += bytes.len();
        let Some(memory) = self.memory.as_mut().map(M::as_mut) else { return };
        let needed = memory.len() + bytes.len();
        if needed > memory.capacity() {
            let wanted = (memory.capacity() * 2).min(self.total as usize).max(needed);
            memory.reserve_exact(wanted - memory.len());
        }
        memory.extend_from_slice(bytes);
    }

    fn into_arrived(self, now: Instant) -> Arrived<M> {
        match (self.head, self.memory) {
            (Head::Request(request), Some(memory)) => {
                let remaining = request.remaining.saturating_sub(now - self.opened);
                Arrived::Request(Request { remaining, ..request }, self.options, memory)
            }
            (Head::Reply(reply), Some(memory)) => Arrived::Reply(reply, self.options, memory),
            (Head::Reply(reply), None) => Arrived::Discarded(reply, self.options),
            // A request is forgotten, and never discarded.
            (Head::Request(_), None) => Arrived::Skipped,
        }
    }
}
