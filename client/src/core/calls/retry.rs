//! Calls that every replica refused are tried again, after a while; so are those for which no replica
//! was fresh enough, which may have caught up by then.

use core::time::Duration;

use bowline_protocol::{Cause, ErrorKind};
use bowline_time::Instant;

use super::extra::Next;
use super::{Calls, Pending};
use crate::core::budget::Token;
use crate::core::call::{Call, Copied, State};
use crate::core::outcome::End;
use crate::core::replicas::Replica;

impl<P> Calls<P> {
    /// Sets when the call is tried again, if it may be, and a token is there for it.
    pub(super) fn plan_retry(&mut self, slot: u32, now: Instant) -> bool {
        let call = self.slots.get(slot);
        let own = self.policies.limits(call.name, call.instead_of).retry;
        let Some(rule) = own.or(self.config.retry) else { return false };
        let may_be = call.was_only_refused() && call.is_any_to_be_forgiven();
        if call.retries >= rule.most || !may_be || self.is_used_up(slot) {
            return false;
        }
        let span = (rule.first * (1 << call.retries)).min(rule.max);
        let jitter = span.as_nanos() as u64 / 2 * u64::from(self.picker.below(1024)) / 1024;
        let asked = call.held.and_then(|error| error.after).unwrap_or_default();
        let wait = asked.max(span / 2 + Duration::from_nanos(jitter));
        // Who could be asked then has to be able to answer.
        let serves = |(_, it): &(u16, &Replica)| it.serves(call.wanted());
        let rtts = self.replicas.iter().filter(serves).map(|(_, it)| it.rtt.unwrap_or_default());
        let there_and_back = rtts.min().unwrap_or_default();
        if now + wait + there_and_back >= call.deadline || !self.take_token(slot, Token::Paid, now)
        {
            return false;
        }
        let call = self.slots.get_mut(slot);
        call.retry_at = now + wait;
        call.hedge_at = Instant::FAR_FUTURE;
        call.retries += 1;
        self.enter_line(slot);
        self.arm(slot);
        true
    }

    /// A replica was connected. If it has not refused the call, that goes there now, and may still be
    /// tried again later, should it be refused there, too; the token stays with the call.
    pub(super) fn forgo_retry(&mut self, slot: u32, now: Instant) {
        if self.fail_if_overdue(slot, now) {
            return;
        }
        // Who refused it may be nearer, and is asked when its time comes.
        let Next::At(place) = self.pick_next(slot, now) else { return };
        self.leave_line(slot);
        self.slots.get_mut(slot).retries -= 1;
        self.send_again(slot, place, now);
        self.arm(slot);
    }

    /// The wait is over: whoever refused the call may be asked again.
    pub(super) fn retry(&mut self, slot: u32, now: Instant) {
        self.leave_line(slot);
        let call = self.slots.get_mut(slot);
        for copy in &mut call.copies[..usize::from(call.len)] {
            copy.failed &= !is_refusal(copy);
        }
        self.counters.retries += 1;
        let done = match self.pick_next(slot, now) {
            Next::At(place) => {
                self.launch(slot, place, Cause::Redispatch, now);
                self.plan_hedge(slot, now);
                return self.arm(slot);
            }
            Next::Nowhere if self.may_strand(slot) || self.may_come_back(slot, now) => {
                self.strand(slot, now);
                return self.arm(slot);
            }
            Next::TooLate => self.fail_late(slot, now),
            Next::Nowhere => self.fail_held(slot, now),
        };
        self.effects.push_back(Pending::Done(done));
    }
}

impl<P> Call<P> {
    /// Servers refused or shed all of its copies, as too much or too fresh.
    fn was_only_refused(&self) -> bool {
        let refused = matches!(
            self.held.map(|error| error.kind),
            Some(ErrorKind::Overloaded | ErrorKind::Shed | ErrorKind::Stale)
        );
        refused && self.never_ran()
    }

    /// There is a replica that only refused it, and so may be asked again. One that took a copy out of
    /// its queue of its own accord, say, may not.
    pub(super) fn is_any_to_be_forgiven(&self) -> bool {
        let failed_for_good = |place| {
            self.copies().iter().any(|it| it.replica == place && it.failed && !is_refusal(it))
        };
        self.copies().iter().any(|copy| is_refusal(copy) && !failed_for_good(copy.replica))
    }
}

/// It ended before a start: what was answered then is that the replica is behind. One that has not the
/// method has refused nothing, and does not have it later.
const fn is_refusal(copy: &Copied) -> bool {
    match copy.state {
        State::Ended(End::Rejected | End::Shed) => true,
        State::Ended(End::Replied) => !copy.executed && !copy.lacks_method,
        _ => false,
    }
}
