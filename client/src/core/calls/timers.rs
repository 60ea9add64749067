//! What happens with time.

use core::time::Duration;

use bowline_protocol::{ErrorKind, Seq};
use bowline_time::Instant;

use super::{Calls, Pending};
use crate::core::call::{Phase, State};

impl<P> Calls<P> {
    /// When to call [`Calls::on_timeout`] next; None while nothing is waited for.
    pub fn next_timeout(&self) -> Option<Instant> {
        if self.is_line_due() { Some(Instant::EPOCH) } else { self.wheel.next() }
    }

    /// Time has passed.
    pub fn on_timeout(&mut self, now: Instant) {
        // The wheel's time never goes back, and what it calls due must be due here.
        let now = now.max(self.latest);
        self.latest = now;
        self.serve_lines(now);
        while let Some(seq) = self.wheel.expire(now) {
            let Some(slot) = self.slots.find(Seq(seq)) else { continue };
            self.slots.get_mut(slot).timer = None;
            match self.slots.get(slot).phase {
                Phase::Waiting => self.wake(slot, now),
                Phase::Watched(_) => self.give_up(slot, now),
                Phase::Free(_) => {}
            }
        }
    }

    /// Whether the call's time is over; then it has failed.
    pub(super) fn fail_if_overdue(&mut self, slot: u32, now: Instant) -> bool {
        let call = self.slots.get(slot);
        if now >= call.deadline {
            self.blame(slot, now);
            let done = match self.waits_for_replica(slot) {
                true => self.fail_held(slot, now),
                false => self.fail_with(slot, ErrorKind::DeadlineExceeded, now),
            };
            self.effects.push_back(Pending::Done(done));
            return true;
        }
        false
    }

    /// Does what is due for a call that waits.
    fn wake(&mut self, slot: u32, now: Instant) {
        if self.fail_if_overdue(slot, now) {
            return;
        }
        let call = self.slots.get(slot);
        if call.is_stranded() {
            return self.rescue(slot, now);
        }
        if now >= call.retry_at {
            return self.retry(slot, now);
        }
        let (twin_at, hedge_at) = (call.twin_at, call.hedge_at);
        if now >= twin_at {
            self.send_twin(slot, now);
        }
        if now >= hedge_at {
            self.fire_hedge(slot, now);
        }
        self.arm(slot);
    }

    /// The call's time is over. Replicas that had half of it, or more, did not do what they were asked.
    fn blame(&mut self, slot: u32, now: Instant) {
        let call = self.slots.get(slot);
        let half = (call.deadline - call.started) / 2;
        for n in 0..usize::from(call.len) {
            let copy = self.slots.get(slot).copies[n];
            if copy.state == State::Sent && now - copy.sent >= half {
                self.see_failure(copy.replica, now);
            }
        }
    }

    /// Sees to it that the call's timer fires no later than its next time. If it fires earlier,
    /// since that time was put off, it is armed anew then.
    pub(super) fn arm(&mut self, slot: u32) {
        let call = self.slots.get(slot);
        let resumed = call.stranded_until.min(call.retry_at);
        let at = call.deadline.min(call.twin_at).min(call.hedge_at).min(resumed);
        // Never for a time that has been handled, or handling it would have no end.
        self.set_timer(slot, at.max(self.latest + Duration::from_nanos(1)));
    }

    /// The copies of a call that is done are given up at some time.
    pub(super) fn arm_watch(&mut self, slot: u32, now: Instant) {
        let call = self.slots.get_mut(slot);
        if let Some(timer) = call.timer.take() {
            self.wheel.cancel(timer);
        }
        self.set_timer(slot, now + self.config.watch);
    }

    pub(super) fn set_timer(&mut self, slot: u32, at: Instant) {
        let call = self.slots.get_mut(slot);
        match call.timer {
            None => call.timer = Some(self.wheel.arm(at, call.seq)),
            Some(timer) if at < call.timer_at => {
                self.wheel.rearm(timer, at);
            }
            Some(_) => return,
        }
        call.timer_at = at;
    }
}
