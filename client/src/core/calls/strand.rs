//! Calls that wait for a replica: while none is connected, or none has room.
//!
//! A client that stood still for too long, or just began, has no connection at all; but it will
//! have one in a moment, long before most deadlines. So calls wait, for as long as the
//! configuration's patience. And a replica that has granted no more, or does not read, will: so
//! calls wait for that until their deadlines. One that every replica refused waits for its time to be
//! tried again, unless one is connected before that has not refused it.
//!
//! Who waits for room stands in a line at each replica that would serve it, in the order in which
//! calls came. What comes free goes to the first that it is enough for: one that needs less may
//! pass one that needs more, and so may a call that only begins. But the first in line is passed
//! [`MOST_PASSED`] times at most. Then the replica's room is kept until it is enough for that one,
//! or the call is over, and nothing else is sent there: so no call waits for ever, however large it
//! is, and how often that came to pass is counted (`room_kept`).

use bowline_protocol::{ErrorKind, Seq};
use bowline_time::Instant;

use super::{Calls, Pending};
use crate::core::slots::Slots;
use crate::core::waiting::{Waiter, Waiting};

/// So often calls that came later, and need less, are sent before the first in line. Few enough
/// that a large call has its turn within the time that some tens of small ones take; many enough
/// that small ones seldom wait for a large one's sake.
const MOST_PASSED: u8 = 64;

/// So many calls for which there is too little room are passed over in search of one for which
/// there is enough: what a credit costs is bounded by what it lets go, however many wait.
const LOOK: usize = 16;

/// The call waits still, since it came to stand there.
fn waits<P>(slots: &Slots<P>, waiter: &Waiter) -> bool {
    slots.find(Seq(waiter.seq)).is_some_and(|slot| {
        let call = slots.get(slot);
        call.is_in_line() && call.waiter() == *waiter
    })
}

impl<P> Calls<P> {
    /// No copy of the call is out; it waits for a replica.
    pub(super) fn strand(&mut self, slot: u32, now: Instant) {
        let for_room = self.lacks_room(slot);
        let call = self.slots.get_mut(slot);
        call.stranded_until = if for_room { call.deadline } else { now + self.config.patience };
        call.hedge_at = Instant::FAR_FUTURE;
        call.passed = 0;
        match for_room {
            true => self.counters.waited_for_room += 1,
            false => self.counters.stranded += 1,
        }
        self.enter_line(slot);
        for place in 0..self.replicas.len() {
            self.line_up(slot, place);
        }
    }

    /// Puts a call in the line of all who wait.
    pub(super) fn enter_line(&mut self, slot: u32) {
        self.in_line += 1;
        let (slots, many) = (&self.slots, self.in_line);
        self.line.enter(slots.get(slot).waiter(), many, |it| waits(slots, it));
    }

    /// Puts a call that waits in line at a replica, if that would serve it.
    fn line_up(&mut self, slot: u32, place: u16) {
        let call = self.slots.get(slot);
        let may = !call.was_failed_by(place) && call.key_allows(&self.replicas, place);
        let replica = self.replicas.get_mut(place);
        if call.is_stranded() && replica.would_fit(call.wanted()) && may {
            let slots = &self.slots;
            replica.waiting.enter(call.waiter(), self.in_line, |it| waits(slots, it));
        }
    }

    /// The replica is connected, or moved to where it serves others: those wait for it that it would
    /// serve now, in the order in which they came, and all who wait may be due.
    pub(super) fn line_up_all(&mut self, place: u16) {
        let replica = self.replicas.get_mut(place);
        replica.waiting.clear();
        replica.kept_for = 0;
        for at in 0..self.line.len() {
            if let Some(slot) = self.waiter_at(at) {
                self.line_up(slot, place);
            }
        }
        self.all_due |= self.in_line > 0;
    }

    /// A connected replica would be asked that has not failed the call, had it room.
    fn lacks_room(&self, slot: u32) -> bool {
        let call = self.slots.get(slot);
        let wanted = call.wanted();
        let failed = |place| call.copies().iter().any(|copy| copy.replica == place && copy.failed);
        let may = |place| !failed(place) && call.key_allows(&self.replicas, place);
        self.replicas.iter().any(|(place, it)| it.lacks_room(wanted) && may(place))
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

    /// A replica that has not failed the call lacks room; or none that takes it is connected, and
    /// one that has not failed it may yet be.
    pub(super) fn may_strand(&self, slot: u32) -> bool {
        let call = self.slots.get(slot);
        let wanted = call.wanted();
        let allows = |place| call.key_allows(&self.replicas, place);
        let may_connect = || {
            !self.config.patience.is_zero()
                && self.replicas.iter().all(|(place, it)| !it.fits(wanted) || !allows(place))
                && self.replicas.iter().any(|(place, it)| {
                    let takes = it.serves(wanted) && call.size <= it.takes;
                    takes && !call.was_failed_by(place) && allows(place)
                })
        };
        self.lacks_room(slot) || may_connect()
    }

    /// The replica may have room for more: who waits for that is due.
    pub(super) fn room_came(&mut self, place: u16) {
        let replica = self.replicas.get_mut(place);
        let due = !replica.waiting.is_empty();
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
            match self.waiter_at(at) {
                Some(slot) if self.slots.get(slot).is_stranded() => self.rescue(slot, now),
                Some(slot) => self.forgo_retry(slot, now),
                None => {}
            }
        }
    }

    /// The slot of the call at that place of all who wait, if it waits still.
    fn waiter_at(&self, at: usize) -> Option<u32> {
        let waiter = self.line.get(at).filter(|it| waits(&self.slots, it))?;
        self.slots.find(Seq(waiter.seq))
    }

    /// Looks at the first who wait for this replica, while it has room.
    fn serve_line(&mut self, place: u16, now: Instant) {
        let mut behind = 0;
        while behind < LOOK {
            let replica = self.replicas.get_mut(place);
            if !replica.room.is_left() {
                return;
            }
            let Some(slot) = Self::next_in(&mut replica.waiting, &self.slots, behind) else {
                return;
            };
            if replica.fits(self.slots.get(slot).wanted()) {
                self.rescue(slot, now);
            }
            behind += usize::from(self.slots.get(slot).is_in_line());
        }
    }

    /// The slot of the call in a line behind so many that wait still.
    fn next_in(line: &mut Waiting, slots: &Slots<P>, behind: usize) -> Option<u32> {
        let waiter = line.behind(behind, |it| waits(slots, it))?;
        slots.find(Seq(waiter.seq))
    }

    /// A copy of that call goes to the replica. If the first who waits for it came before, that is
    /// passed, and once it was too often, the replica's room is kept for it.
    pub(super) fn pass(&mut self, place: u16, seq: u64) {
        let replica = self.replicas.get_mut(place);
        let Some(slot) = Self::next_in(&mut replica.waiting, &self.slots, 0) else { return };
        let call = self.slots.get_mut(slot);
        if seq < call.seq {
            return;
        }
        call.passed = call.passed.saturating_add(1);
        if call.passed >= MOST_PASSED && replica.kept_for == 0 {
            replica.kept_for = call.seq;
            self.counters.room_kept += 1;
        }
    }

    /// Sends the call's copy if there is a replica for it now, or gives up if it waited enough.
    pub(super) fn rescue(&mut self, slot: u32, now: Instant) {
        // Room may come in the very turn that is too late, before the timers are looked at.
        if self.fail_if_overdue(slot, now) {
            return;
        }
        let Some(place) = self.pick_other(slot, now) else {
            let call = self.slots.get(slot);
            if call.held.is_none() && self.replicas.none_takes(call.size) {
                let done = self.fail_with(slot, ErrorKind::PayloadTooLarge, now);
                self.effects.push_back(Pending::Done(done));
            } else if now >= call.stranded_until {
                let done = self.fail_held(slot, now);
                self.effects.push_back(Pending::Done(done));
            } else {
                let deadline = call.deadline;
                if self.lacks_room(slot) {
                    self.slots.get_mut(slot).stranded_until = deadline;
                }
                self.arm(slot);
            }
            return;
        };
        self.leave_line(slot);
        if self.slots.get(slot).len == 0 {
            self.send_first(slot, place, now);
        } else {
            self.send_again(slot, place, now);
        }
        self.arm(slot);
    }
}
