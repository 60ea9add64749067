//! Calls that wait for a replica: while none is connected that has not failed them, or none has room.
//!
//! A client that stood still for too long, or just began, has no connection at all; but it will
//! have one in a moment, long before most deadlines. So calls wait, for as long as the
//! configuration's patience. And a replica that has granted no more, or does not read, will: so
//! calls wait for that until their deadlines.

use bowline_protocol::ErrorKind;
use bowline_time::Instant;

use super::extra::Next;
use super::{Calls, Pending};
use crate::core::replicas::Replica;

impl<P> Calls<P> {
    /// No copy of the call is out; it waits for a replica.
    pub(super) fn strand(&mut self, slot: u32, now: Instant) {
        let until = match self.lacks_room(slot, |_| true) {
            true => {
                self.counters.waited_for_room += 1;
                self.slots.get(slot).deadline
            }
            false => {
                self.counters.stranded += 1;
                self.patient_until(slot, now)
            }
        };
        let call = self.slots.get_mut(slot);
        call.stranded_until = until;
        call.hedge_at = Instant::FAR_FUTURE;
        self.enter_line(slot);
        for place in 0..self.replicas.len() {
            self.line_up(slot, place);
        }
    }

    /// Sends the call's copy if there is a replica for it now, or gives up if it waited enough.
    pub(super) fn rescue(&mut self, slot: u32, now: Instant) {
        // Room may come in the very turn that is too late, before the timers are looked at.
        if self.fail_if_overdue(slot, now) {
            return;
        }
        let place = match self.pick_next(slot, now) {
            Next::At(place) => place,
            Next::TooLate => {
                let done = self.fail_late(slot, now);
                return self.effects.push_back(Pending::Done(done));
            }
            Next::Nowhere => return self.wait_on(slot, now),
        };
        self.leave_line(slot);
        if self.slots.get(slot).len == 0 {
            self.send_first(slot, place, now);
        } else {
            self.send_again(slot, place, now);
        }
        self.arm(slot);
    }

    /// No replica is there for the call yet: it waits on, unless it waited enough, or in vain.
    fn wait_on(&mut self, slot: u32, now: Instant) {
        let call = self.slots.get(slot);
        let done = if call.held.is_none() && self.replicas.none_takes(call.size) {
            self.fail_with(slot, ErrorKind::PayloadTooLarge, now)
        } else if now >= call.stranded_until {
            self.fail_held(slot, now)
        } else {
            let deadline = call.deadline;
            if self.lacks_room(slot, |_| true) {
                self.slots.get_mut(slot).stranded_until = deadline;
            }
            return self.arm(slot);
        };
        self.effects.push_back(Pending::Done(done));
    }

    /// A replica that has not failed the call lacks room; or none that takes it is connected, and
    /// one that has not failed it may yet be.
    pub(super) fn may_strand(&self, slot: u32) -> bool {
        self.lacks_room(slot, |_| true) || self.may_connect(slot)
    }

    /// The second of these.
    fn may_connect(&self, slot: u32) -> bool {
        let call = self.slots.get(slot);
        let wanted = call.wanted();
        let fits = |(place, it): (u16, &Replica)| it.fits(wanted) && call.is_safe_at(place, it);
        let patient = !self.config.patience.is_zero();
        patient && !self.replicas.iter().any(fits) && self.any_could_take(slot, |_| true)
    }

    /// All that are connected have failed the call, but one has not whose connection broke just now:
    /// it may be back in a moment. (A client that stood still finds its connections closed one by one.)
    /// One that is gone for long makes no call wait that others have answered.
    pub(super) fn may_come_back(&self, slot: u32, now: Instant) -> bool {
        self.any_could_take(slot, |it| it.station.is_none() && now < it.back_until)
    }

    /// Until when it waits for a replica to be connected. Beside one that is and has failed it, for as
    /// long as another is held to be back in a moment, and not for all of that time once more.
    fn patient_until(&self, slot: u32, now: Instant) -> Instant {
        let until = now + self.config.patience;
        if self.may_connect(slot) {
            return until;
        }
        let back = self.could_take(slot).filter(|it| it.station.is_none()).map(|it| it.back_until);
        back.max().map_or(until, |back| back.min(until))
    }

    pub(super) fn any_could_take(&self, slot: u32, is_meant: impl Fn(&Replica) -> bool) -> bool {
        self.could_take(slot).any(is_meant)
    }

    /// Those which, connected or not, serve the call, take it and have not failed it.
    fn could_take(&self, slot: u32) -> impl Iterator<Item = &Replica> {
        let call = self.slots.get(slot);
        let wanted = call.wanted();
        let may = move |&(place, it): &(u16, &Replica)| {
            it.serves(wanted) && call.size <= it.takes && call.may_try(place, it)
        };
        self.replicas.iter().filter(may).map(|(_, it)| it)
    }

    /// No copy of the call is out, and no replica that could have one is connected. When its time is over,
    /// that none is, or what those said who were, tells more than that it is late.
    pub(super) fn waits_for_replica(&self, slot: u32) -> bool {
        self.slots.get(slot).is_stranded() && !self.any_could_take(slot, |it| it.station.is_some())
    }

    /// A connected replica of those that are meant would be asked that has not failed the call, had it
    /// room.
    pub(super) fn lacks_room(&self, slot: u32, is_meant: impl Fn(&Replica) -> bool) -> bool {
        let call = self.slots.get(slot);
        let wanted = call.wanted();
        let lacks = |(place, it): (u16, &Replica)| it.lacks_room(wanted) && call.may_try(place, it);
        self.replicas.iter().any(|it| lacks(it) && is_meant(it.1))
    }
}
