//! Calls that wait, in the order in which they came.

use std::collections::VecDeque;

/// Where a call stands in line. It may wait no more: it may have ended meanwhile, or have been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    /// Which call.
    pub(crate) seq: u64,
    /// Which of its waits this is: should it come to wait once more, that is told from this.
    pub(crate) wait: u8,
}

/// A line. Who waits no longer is dropped when it is met, and at the latest when the line is twice
/// as long as those who wait.
#[derive(Debug, Default)]
pub(crate) struct Line {
    tickets: VecDeque<Ticket>,
}

impl Line {
    /// Puts a call in line, of which `waits` tells who waits still; so many do.
    pub(crate) fn enter(&mut self, ticket: Ticket, many: u32, waits: impl FnMut(&Ticket) -> bool) {
        if self.tickets.len() >= 2 * many as usize + 64 {
            self.tickets.retain(waits);
        }
        self.tickets.push_back(ticket);
    }

    /// The call at that place of the line, behind so many that wait, of which `waits` tells whether
    /// it waits still.
    pub(crate) fn behind(
        &mut self,
        before: usize,
        waits: impl Fn(&Ticket) -> bool,
    ) -> Option<Ticket> {
        while let Some(ticket) = self.tickets.get(before) {
            if waits(ticket) {
                return Some(*ticket);
            }
            self.tickets.remove(before);
        }
        None
    }

    /// Nobody is in line. (Who is need not wait any more.)
    pub(crate) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// Nobody is in line any more.
    pub(crate) fn clear(&mut self) {
        self.tickets.clear();
    }

    /// How many are in line, those included that wait no longer.
    pub(crate) fn len(&self) -> usize {
        self.tickets.len()
    }

    /// The call at that place of the line.
    pub(crate) fn get(&self, at: usize) -> Option<Ticket> {
        self.tickets.get(at).copied()
    }
}
