//! Calls that wait for a replica: while none is connected, or none has room.
//!
//! A client that stood still for too long, or just began, has no connection at all; but it will
//! have one in a moment, long before most deadlines. So calls wait, for as long as the
//! configuration's patience. And a replica that has granted no more, or does not read, will: so
//! calls wait for that until their deadlines.

use bowline_protocol::{ErrorKind, Seq};
use bowline_time::Instant;

use super::{Calls, Pending};

impl<P> Calls<P> {
    /// No copy of the call is out; it waits for a replica.
    pub(super) fn strand(&mut self, slot: u32, now: Instant) {
        let for_room = self.lacks_room(slot);
        let call = self.slots.get_mut(slot);
        call.stranded_until = if for_room { call.deadline } else { now + self.config.patience };
        call.hedge_at = Instant::FAR_FUTURE;
        let seq = call.seq;
        self.stranded += 1;
        match for_room {
            true => self.counters.waited_for_room += 1,
            false => self.counters.stranded += 1,
        }
        self.queue_stranded(seq);
    }

    /// Puts a call in line, and drops those that wait no longer when they are most of it.
    fn queue_stranded(&mut self, seq: u64) {
        if self.stranded_queue.len() >= 2 * self.stranded as usize + 64 {
            let slots = &self.slots;
            self.stranded_queue.retain(|&seq| {
                slots.find(Seq(seq)).is_some_and(|slot| slots.get(slot).is_stranded())
            });
        }
        self.stranded_queue.push_back(seq);
    }

    /// A connected replica would be asked that has not failed the call, had it room.
    fn lacks_room(&self, slot: u32) -> bool {
        let call = self.slots.get(slot);
        let wanted = call.wanted();
        let failed = |place| call.copies().iter().any(|copy| copy.replica == place && copy.failed);
        self.replicas.iter().any(|(place, it)| it.lacks_room(wanted) && !failed(place))
    }

    /// The call waits for a replica no longer.
    pub(super) fn unstrand(&mut self, slot: u32) {
        let call = self.slots.get_mut(slot);
        if call.is_stranded() {
            call.stranded_until = Instant::FAR_FUTURE;
            self.stranded -= 1;
        }
    }

    /// A replica that has not failed the call lacks room; or none that takes it is connected, and
    /// one that has not failed it may yet be.
    pub(super) fn may_strand(&self, slot: u32) -> bool {
        let call = self.slots.get(slot);
        let wanted = call.wanted();
        let may_connect = || {
            !self.config.patience.is_zero()
                && self.replicas.iter().all(|(_, replica)| !replica.fits(wanted))
                && self.replicas.iter().any(|(place, it)| {
                    it.serves(wanted) && call.size <= it.takes && !call.was_failed_by(place)
                })
        };
        self.lacks_room(slot) || may_connect()
    }

    /// Makes all calls due that wait for a replica.
    pub(super) fn wake_stranded(&mut self) {
        self.wake_where(usize::MAX, |_, _| true);
    }

    /// Makes calls due for which that replica has room now, at most so many, and those first that
    /// came first.
    pub(super) fn wake_for_room(&mut self, place: u16, most: usize) {
        self.wake_where(most, |calls, slot| {
            calls.replicas.get(place).fits(calls.slots.get(slot).wanted())
        });
    }

    fn wake_where(&mut self, most: usize, suits: impl Fn(&Self, u32) -> bool) {
        let mut woken = 0;
        for _ in 0..self.stranded_queue.len() {
            if woken == most {
                return;
            }
            let Some(seq) = self.stranded_queue.pop_front() else { return };
            let slot = self.slots.find(Seq(seq));
            let Some(slot) = slot.filter(|&slot| self.slots.get(slot).is_stranded()) else {
                continue;
            };
            if suits(self, slot) {
                self.set_timer(slot, Instant::EPOCH);
                woken += 1;
            } else {
                self.stranded_queue.push_back(seq);
            }
        }
    }

    /// A replica never hears of a request for which credit was spent: another call may have that.
    pub(super) fn refund(&mut self, place: u16, size: u32) {
        self.replicas.get_mut(place).room.refund(size);
        self.wake_for_room(place, 1);
    }

    /// Sends the call's copy if there is a replica for it now, or gives up if it waited enough.
    pub(super) fn rescue(&mut self, slot: u32, now: Instant) {
        let Some(place) = self.pick_other(slot, now) else {
            let call = self.slots.get(slot);
            if call.held.is_none() && self.replicas.none_takes(call.size) {
                let done = self.fail_with(slot, ErrorKind::PayloadTooLarge, now);
                self.effects.push_back(Pending::Done(done));
            } else if now >= call.stranded_until {
                let done = self.fail_held(slot, now);
                self.effects.push_back(Pending::Done(done));
            } else {
                let (seq, deadline) = (call.seq, call.deadline);
                if self.lacks_room(slot) {
                    self.slots.get_mut(slot).stranded_until = deadline;
                }
                self.queue_stranded(seq);
                self.arm(slot);
            }
            return;
        };
        self.unstrand(slot);
        if self.slots.get(slot).len == 0 {
            self.send_first(slot, place, now);
        } else {
            self.send_again(slot, place, now);
        }
        self.arm(slot);
    }
}
