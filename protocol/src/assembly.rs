//! Large payloads on their way in: put together from their segments, within a budget.
//!
//! What is said of a wrong sender is an [`AssemblyError`], and ends the connection; what is only
//! too much for now is [`Arrived::NoRoom`], and ends the copy.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::frame::{Goodbye, GoodbyeReason, PayloadOf, Reply, Request, Segment};
use crate::id::Attempt;
use crate::options::{OptionSet, Options};

/// What a payload costs at least of the budget, in bytes: what is kept of it beside its bytes.
const LEAST_COST: usize = 512;

/// What a frame brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrived {
    /// A request is there whole, with its options, as they came with its first part.
    Request(Request, OptionSet, Vec<u8>),
    /// A reply is there whole, likewise.
    Reply(Reply, OptionSet, Vec<u8>),
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

/// The payloads that one connection has under way to this side.
#[derive(Debug)]
pub struct Assembly {
    parts: BTreeMap<(Attempt, PayloadOf), Part>,
    limit: u32,
    budget: usize,
    held: usize,
}

#[derive(Debug)]
struct Part {
    head: Head,
    options: OptionSet,
    total: u32,
    bytes: Vec<u8>,
}

#[derive(Debug)]
enum Head {
    Request(Request),
    Reply(Reply),
}

impl Assembly {
    /// Takes payloads of up to `limit` bytes (what this side's hello says it takes), and of up to
    /// `budget` bytes together.
    pub const fn new(limit: u32, budget: usize) -> Assembly {
        Assembly { parts: BTreeMap::new(), limit, budget, held: 0 }
    }

    /// A request with options came, and perhaps announced more to come.
    ///
    /// # Errors
    ///
    /// [`AssemblyError`]: the other side broke the rules.
    pub fn open_request(
        &mut self,
        request: Request,
        options: &Options<'_>,
        first: &[u8],
    ) -> Result<Arrived, AssemblyError> {
        self.open((request.attempt, PayloadOf::Request), Head::Request(request), options, first)
    }

    /// A reply with options came, and perhaps announced more to come.
    ///
    /// # Errors
    ///
    /// [`AssemblyError`]: the other side broke the rules.
    pub fn open_reply(
        &mut self,
        reply: Reply,
        options: &Options<'_>,
        first: &[u8],
    ) -> Result<Arrived, AssemblyError> {
        self.open((reply.attempt, PayloadOf::Reply), Head::Reply(reply), options, first)
    }

    fn open(
        &mut self,
        name: (Attempt, PayloadOf),
        head: Head,
        options: &Options<'_>,
        first: &[u8],
    ) -> Result<Arrived, AssemblyError> {
        let attempt = name.0;
        let came = u32::try_from(first.len()).unwrap_or(u32::MAX);
        let total = options.total().unwrap_or(came);
        if total > self.limit {
            return Err(AssemblyError::TooLarge { attempt, total, limit: self.limit });
        }
        if self.parts.contains_key(&name) {
            return Err(AssemblyError::Twice(attempt));
        }
        if came > total {
            return Err(AssemblyError::Overrun { attempt, total });
        }
        let mut part = Part { head, options: options.to_set(), total, bytes: Vec::new() };
        if came < total && cost(total) > self.budget - self.held {
            return Ok(Arrived::NoRoom);
        }
        part.append(first);
        if came == total {
            return Ok(part.into_arrived());
        }
        self.held += cost(total);
        self.parts.insert(name, part);
        Ok(Arrived::UnderWay)
    }

    /// A segment came.
    ///
    /// # Errors
    ///
    /// [`AssemblyError`]: the other side broke the rules.
    pub fn segment(&mut self, segment: &Segment, bytes: &[u8]) -> Result<Arrived, AssemblyError> {
        let attempt = segment.attempt;
        let name = (attempt, segment.of);
        let Some(part) = self.parts.get_mut(&name) else {
            return Ok(Arrived::Skipped);
        };
        let (expected, total) = (part.bytes.len(), part.total);
        if segment.offset as usize != expected {
            let (expected, found) = (expected as u32, segment.offset);
            return Err(AssemblyError::Gap { attempt, expected, found });
        }
        if bytes.len() > total as usize - expected {
            return Err(AssemblyError::Overrun { attempt, total });
        }
        part.append(bytes);
        if part.bytes.len() < total as usize {
            return Ok(Arrived::UnderWay);
        }
        Ok(self.remove(name).map_or(Arrived::Skipped, Part::into_arrived))
    }

    /// Nobody waits for this payload any more. Returns whether it was under way.
    pub fn forget(&mut self, attempt: Attempt, of: PayloadOf) -> bool {
        self.remove((attempt, of)).is_some()
    }

    fn remove(&mut self, name: (Attempt, PayloadOf)) -> Option<Part> {
        let part = self.parts.remove(&name)?;
        self.held -= cost(part.total);
        Some(part)
    }

    /// How much of the budget is taken, in bytes.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// How many payloads are under way.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// No payload is under way.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

const fn cost(total: u32) -> usize {
    let total = total as usize;
    if total < LEAST_COST { LEAST_COST } else { total }
}

impl Part {
    /// Memory follows what has arrived: at most twice that, and never more than was announced.
    fn append(&mut self, bytes: &[u8]) {
        let needed = self.bytes.len() + bytes.len();
        if needed > self.bytes.capacity() {
            let wanted = (self.bytes.capacity() * 2).min(self.total as usize).max(needed);
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn into_arrived(self) -> Arrived {
        match self.head {
            Head::Request(request) => Arrived::Request(request, self.options, self.bytes),
            Head::Reply(reply) => Arrived::Reply(reply, self.options, self.bytes),
        }
    }
}
