//! The lines in which calls stand that wait: one of all, and one at each replica.
//!
//! All stand in the first, in the order in which they came to wait: when a replica is connected, each
//! of them is looked at. One that every replica refused stands there, too, until its time to be tried
//! again, in case one is connected before that has not refused it, with room or without.
//!
//! Who waits stands in a line at each replica that would serve it, had that room. What comes free goes
//! to the first that it is enough for: one that needs less may pass one that needs more, and so may a
//! call that only begins. But the first in line is passed [`MOST_PASSED`] times at most. Then the
//! replica's room is kept until it is enough for that one, or the call is over, and nothing else is
//! sent there: so no call waits for ever, however large it is, and how often that came to pass is
//! counted (`room_kept`).

use bowline_protocol::Seq;
use bowline_time::Instant;

use super::Calls;
use crate::core::line::{Line, Ticket};
use crate::core::slots::Slots;

/// So often calls that came later, and need less, are sent before the first in line. Few enough
/// that a large call has its turn within the time that some tens of small ones take; many enough
/// that small ones seldom wait for a large one's sake.
const MOST_PASSED: u8 = 64;

/// So many calls for which there is too little room are passed over in search of one for which
/// there is enough: what a credit costs is bounded by what it lets go, however many wait.
const LOOK: usize = 16;

/// The call waits still, since it drew that ticket.
fn waits<P>(slots: &Slots<P>, ticket: &Ticket) -> bool {
    slots.find(Seq(ticket.seq)).is_some_and(|slot| {
        let call = slots.get(slot);
        call.is_in_line() && call.ticket() == *ticket
    })
}

impl<P> Calls<P> {
    /// Puts a call in the line of all who wait.
    pub(super) fn enter_line(&mut self, slot: u32) {
        self.in_line += 1;
        let call = self.slots.get_mut(slot);
        (call.waits, call.passed) = (call.waits + 1, 0);
        let (slots, many) = (&self.slots, self.in_line);
        self.line.enter(slots.get(slot).ticket(), many, |it| waits(slots, it));
    }

    /// Puts a call that waits in line at a replica, if that would serve it.
    pub(super) fn line_up(&mut self, slot: u32, place: u16) {
        let call = self.slots.get(slot);
        let replica = self.replicas.get_mut(place);
        if replica.would_fit(call.wanted()) && call.may_try(place, replica) {
            let slots = &self.slots;
            replica.line.enter(call.ticket(), self.in_line, |it| waits(slots, it));
        }
    }

    /// The replica is connected, or moved to where it serves others: those wait for it that it would
    /// serve now, in the order in which they came, and all who wait may be due.
    pub(super) fn line_up_all(&mut self, place: u16) {
        let replica = self.replicas.get_mut(place);
        replica.line.clear();
        replica.kept_for = 0;
        for at in 0..self.line.len() {
            if let Some(slot) = self.waiter_at(at) {
                self.line_up(slot, place);
            }
        }
        self.all_due |= self.in_line > 0;
    }

    /// The call waits for a replica no longer: what was kept for it is there for others.
    pub(super) fn leave_line(&mut self, slot: u32) {
        let call = self.slots.get_mut(slot);
        if !call.is_in_line() {
            return;
        }
        call.stranded_until = Instant::FAR_FUTURE;
        call.retry_at = Instant::FAR_FUTURE;
        self.in_line -= 1;
        let seq = call.seq;
        for place in 0..self.replicas.len() {
            if self.replicas.get(place).kept_for == seq {
                self.replicas.get_mut(place).kept_for = 0;
                self.room_came(place);
            }
        }
    }

    /// The replica may have room for more: who waits for that is due.
    pub(super) fn room_came(&mut self, place: u16) {
        let replica = self.replicas.get_mut(place);
        let due = !replica.line.is_empty();
        replica.line_due |= due;
        self.line_due |= due;
    }

    /// A replica never hears of a request for which credit was spent: another call may have that.
    pub(super) fn refund(&mut self, place: u16, size: u32) {
        self.replicas.get_mut(place).room.refund(size);
        self.room_came(place);
    }

    /// Calls that wait are due.
    pub(super) fn is_line_due(&self) -> bool {
        self.line_due || self.all_due
    }

    /// Sends what waited and need wait no more.
    pub(super) fn serve_lines(&mut self, now: Instant) {
        if core::mem::take(&mut self.all_due) {
            self.serve_all(now);
        }
        if core::mem::take(&mut self.line_due) {
            for place in 0..self.replicas.len() {
                if core::mem::take(&mut self.replicas.get_mut(place).line_due) {
                    self.serve_line(place, now);
                }
            }
        }
    }

    /// Looks at all who wait: a replica was connected.
    fn serve_all(&mut self, now: Instant) {
        for at in 0..self.line.len() {
            if let Some(slot) = self.waiter_at(at) {
                self.resume(slot, now);
            }
        }
    }

    /// There may be a replica for a call that waits.
    fn resume(&mut self, slot: u32, now: Instant) {
        match self.slots.get(slot).is_stranded() {
            true => self.rescue(slot, now),
            false => self.forgo_retry(slot, now),
        }
    }

    /// The slot of the call at that place of all who wait, if it waits still.
    pub(super) fn waiter_at(&self, at: usize) -> Option<u32> {
        let ticket = self.line.get(at).filter(|it| waits(&self.slots, it))?;
        self.slots.find(Seq(ticket.seq))
    }

    /// Looks at the first who wait for this replica, while it has room.
    fn serve_line(&mut self, place: u16, now: Instant) {
        let mut behind = 0;
        while behind < LOOK {
            let replica = self.replicas.get_mut(place);
            if !replica.room.is_left() {
                return;
            }
            let Some(slot) = Self::next_in(&mut replica.line, &self.slots, behind) else {
                return;
            };
            if replica.fits(self.slots.get(slot).wanted()) {
                self.resume(slot, now);
            }
            behind += usize::from(self.slots.get(slot).is_in_line());
        }
    }

    /// The slot of the call in a line behind so many that wait still.
    fn next_in(line: &mut Line, slots: &Slots<P>, behind: usize) -> Option<u32> {
        let ticket = line.behind(behind, |it| waits(slots, it))?;
        slots.find(Seq(ticket.seq))
    }

    /// A copy of that call goes to the replica. If the first who waits for it came before, that is
    /// passed, and once it was too often, the replica's room is kept for it: if that can ever be enough,
    /// or the others would wait in vain, too.
    pub(super) fn pass(&mut self, place: u16, seq: u64) {
        let replica = self.replicas.get_mut(place);
        let Some(slot) = Self::next_in(&mut replica.line, &self.slots, 0) else { return };
        let call = self.slots.get_mut(slot);
        if seq < call.seq {
            return;
        }
        call.passed = call.passed.saturating_add(1);
        let can_be = replica.room.can_allow(call.size);
        if call.passed >= MOST_PASSED && can_be && replica.kept_for == 0 {
            replica.kept_for = call.seq;
            self.counters.room_kept += 1;
        }
    }
}
