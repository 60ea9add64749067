//! Replies that wait to be read: whose copies may start while there are many.
//!
//! A copy that waits can be withdrawn, shed, or started by its twin; a reply that waits only takes
//! memory. So where clients read more slowly than they are served, what grows is to be the queue: a
//! copy starts only while there is room for its reply, too. For what it will be the mean of what its
//! client was replied by its method counts, from the start on; until there was any, of all clients.
//!
//! What is to be answered with what another copy with its key has done is as long as that is.
//!
//! - Where nothing waits for anybody, one may start, however long its reply is.
//! - A client may have so much as is configured.
//! - While more than half of the room for all is taken, it may have an equal share of that half; so
//!   who does not read keeps no more from others than anybody may have.
//! - A quarter of the room for all is left free for replies that are longer than they were expected
//!   to be, and for who reads: of what is left of it each may have a sixteenth. So it shrinks to nothing
//!   for long replies alone: however many do not read, who does and asks for short ones is served.
//!
//! This decides when to make replies, not when to disconnect who does not read them.

use alloc::vec;
use alloc::vec::Vec;

/// Less than this counts as nothing: it is what may be handed to the kernel in one piece.
const LITTLE: usize = 32 << 10;
/// Of what is left where little is, a client may have one part in so many.
const SPARE_PART: usize = 16;
/// Weight of a reply in the mean of its method's: an eighth, as of a service time.
const SAMPLE_SHIFT: u32 = 3;

/// What keeps a copy from starting, as to its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    Enough,
    /// Its client has to read first.
    NotOfClient,
    /// Anybody has to.
    NotOfAll,
}

/// The room for replies that wait, and what is taken of it.
#[derive(Debug)]
pub(super) struct Unread {
    /// Bytes that a client may have.
    each: usize,
    /// Bytes that all may have.
    all: usize,
    /// Bytes that wait, and that copies which run are expected to add.
    taken: usize,
    /// How many clients have some of them.
    readers: usize,
    /// For each method, how long its replies are on average.
    means: Vec<usize>,
}

impl Unread {
    pub(super) fn new(each: usize, all: usize, methods: usize) -> Unread {
        Unread { each, all, taken: 0, readers: 0, means: vec![0; methods] }
    }

    /// How long the next reply of a method is expected to be.
    pub(super) fn expected(&self, method: u16) -> usize {
        considerable(self.means[usize::from(method)])
    }

    /// A method's reply was so long.
    pub(super) fn replied(&mut self, method: u16, bytes: usize) {
        let mean = &mut self.means[usize::from(method)];
        *mean = mean_with(*mean, bytes);
    }

    /// How many methods there are.
    pub(super) const fn methods(&self) -> usize {
        self.means.len()
    }

    /// What a client has of the room changes.
    pub(super) fn change(&mut self, before: usize, after: usize) {
        self.taken = self.taken - before + after;
        self.readers = self.readers - usize::from(before > 0) + usize::from(after > 0);
    }

    /// Whether there is room for one more reply, for a client that has so much.
    pub(super) fn room(&self, of_client: usize, more: usize) -> Room {
        let all = self.taken.saturating_add(more);
        let half = self.all / 2;
        let share = if all > half { half / self.readers.max(1) } else { self.each };
        // Before what there is for all: who has had its share has nobody else wait.
        if of_client > 0 && of_client.saturating_add(more) > share.min(self.each) {
            return Room::NotOfClient;
        }
        let spare = self.all.saturating_sub(self.taken) / SPARE_PART;
        if self.fits(more) || of_client.saturating_add(more) <= spare {
            Room::Enough
        } else {
            Room::NotOfAll
        }
    }

    #[cfg(test)]
    pub(super) const fn taken(&self) -> usize {
        self.taken
    }

    /// Whether so much more fits into the room for all, as anything does of which nothing is taken.
    pub(super) fn fits(&self, more: usize) -> bool {
        self.taken == 0 || self.taken.saturating_add(more) <= self.all - self.all / 4
    }
}

/// The mean of lengths (0: of none) with one more.
pub(super) const fn mean_with(mean: usize, bytes: usize) -> usize {
    match mean {
        0 => bytes,
        mean => mean - (mean >> SAMPLE_SHIFT) + (bytes >> SAMPLE_SHIFT),
    }
}

/// So many bytes, or none if that is little.
pub(crate) const fn considerable(bytes: usize) -> usize {
    if bytes > LITTLE { bytes } else { 0 }
}
