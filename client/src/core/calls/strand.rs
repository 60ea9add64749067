//! Calls that wait for a replica, while none is connected.
//!
//! A client that stood still for too long, or just began, has no connection at all; but it will
//! have one in a moment, long before most deadlines. So calls wait, for as long as the
//! configuration's patience.

use bowline_protocol::ErrorKind;
use bowline_time::Instant;

use super::{Calls, Pending};

impl<P> Calls<P> {
    /// No copy of the call is out; it waits for a replica.
    pub(super) fn strand(&mut self, slot: u32, now: Instant) {
        let call = self.slots.get_mut(slot);
        call.stranded_until = now + self.config.patience;
        call.hedge_at = Instant::FAR_FUTURE;
        self.stranded += 1;
        self.counters.stranded += 1;
    }

    /// The call waits for a replica no longer.
    pub(super) fn unstrand(&mut self, slot: u32) {
        let call = self.slots.get_mut(slot);
        if call.is_stranded() {
            call.stranded_until = Instant::FAR_FUTURE;
            self.stranded -= 1;
        }
    }

    /// No replica that takes the call is connected, and one that has not failed it may yet be.
    pub(super) fn may_strand(&self, slot: u32) -> bool {
        let call = self.slots.get(slot);
        let wanted = call.wanted();
        !self.config.patience.is_zero()
            && self.replicas.iter().all(|(_, replica)| !replica.fits(wanted))
            && self.replicas.iter().any(|(place, it)| {
                it.serves(wanted) && call.size <= it.takes && !call.was_failed_by(place)
            })
    }

    /// Makes all calls due that wait for a replica. It looks at every slot; connections are rare.
    pub(super) fn wake_stranded(&mut self) {
        if self.stranded == 0 {
            return;
        }
        for slot in 0..self.slots.len() {
            let call = self.slots.get(slot);
            if call.is_waiting() && call.is_stranded() {
                self.set_timer(slot, Instant::EPOCH);
            }
        }
    }

    /// Sends the call's copy if there is a replica for it now, or gives up if it waited enough.
    pub(super) fn rescue(&mut self, slot: u32, now: Instant) {
        let Some(place) = self.pick_other(slot, now) else {
            let call = self.slots.get(slot);
            if call.held.is_none() && self.replicas.none_takes(call.size) {
                let done = self.fail_with(slot, ErrorKind::PayloadTooLarge, now);
                self.effects.push_back(Pending::Done(done));
            } else if now >= self.slots.get(slot).stranded_until {
                let done = self.fail_held(slot, now);
                self.effects.push_back(Pending::Done(done));
            } else {
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
