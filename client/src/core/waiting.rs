//! Calls that wait, in the order in which they came.

use std::collections::VecDeque;

/// A call that waits, or did: it may have ended meanwhile, or have been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    /// Which call.
    pub(crate) seq: u64,
    /// How many copies it had had then: should it come to wait once more, it has more, and this is
    /// told from that.
    pub(crate) copies: u8,
}

/// A line. Who waits no longer is dropped when it is met, and at the latest when the line is twice
/// as long as those who wait.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    line: VecDeque<Waiter>,
}

impl Waiting {
    /// Puts a call in line, of which `waits` tells who waits still; so many do.
    pub(crate) fn enter(&mut self, waiter: Waiter, many: u32, waits: impl FnMut(&Waiter) -> bool) {
        if self.line.len() >= 2 * many as usize + 64 {
            self.line.retain(waits);
        }
        self.line.push_back(waiter);
    }

    /// The call at that place of the line, behind so many that wait, of which `waits` tells whether
    /// it waits still.
    pub(crate) fn behind(
        &mut self,
        before: usize,
        waits: impl Fn(&Waiter) -> bool,
    ) -> Option<Waiter> {
        while let Some(waiter) = self.line.get(before) {
            if waits(waiter) {
                return Some(*waiter);
            }
            self.line.remove(before);
        }
        None
    }

    /// Nobody is in line. (Who is need not wait any more.)
    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// Nobody is in line any more.
    pub(crate) fn clear(&mut self) {
        self.line.clear();
    }

    /// How many are in line, those included that wait no longer.
    pub(crate) fn len(&self) -> usize {
        self.line.len()
    }

    /// The call at that place of the line.
    pub(crate) fn get(&self, at: usize) -> Option<Waiter> {
        self.line.get(at).copied()
    }
}
