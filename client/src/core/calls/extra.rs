//! Copies beyond the first: hedges, and copies in the place of those that ended.

use bowline_protocol::{Cause, ErrorKind};
use bowline_time::Instant;

use super::Calls;
use crate::core::budget::{NoToken, Token};
use crate::core::call::{Call, Copied, MAX_ATTEMPTS, State};
use crate::core::guard::{Change, Event};
use crate::core::notice::Notice;
use crate::core::outcome::{Done, End};
use crate::core::pick::Order;
use crate::core::policy::{HedgePolicy, PolicyId};
use crate::core::replicas::Replica;

/// Where a call's next copy goes.
pub(super) enum Next {
    /// To the replica at that place.
    At(u16),
    /// It might go somewhere, but nobody who has it now could answer in time.
    TooLate,
    /// Nowhere, now.
    Nowhere,
}

impl<P> Calls<P> {
    /// A token for one more copy, if the call has none left over.
    ///
    /// All copies but one that are out or may have run are extra; those that certainly never ran
    /// cost nothing. So a copy that was taken out of a queue leaves its token for the next.
    pub(super) fn afford(&mut self, slot: u32, token: Token, now: Instant) -> bool {
        let call = self.slots.get(slot);
        let missing = (call.live + call.ran).saturating_sub(call.tokens);
        (0..missing).all(|_| self.take_token(slot, token, now))
    }

    /// One more token for the call: of its method's budget, if that has one, and of the client's.
    pub(super) fn take_token(&mut self, slot: u32, token: Token, now: Instant) -> bool {
        let policy = self.slots.get(slot).policy;
        let own = self.policies.purse(policy, now);
        if let Err(why) = own.map_or(Ok(()), |budget| budget.reserve(token)) {
            match why {
                NoToken::Empty => self.counters.denied.method_no_token += 1,
                NoToken::Outstanding => self.counters.denied.method_outstanding += 1,
            }
            return false;
        }
        let budget = &self.config.budget;
        self.purse.on_time(budget, now);
        let reserved = budget.reserve(token);
        match reserved {
            Ok(()) => {
                let call = self.slots.get_mut(slot);
                call.tokens += 1;
                call.lent += u8::from(token == Token::Lent);
            }
            Err(NoToken::Empty) => self.counters.denied.no_token += 1,
            Err(NoToken::Outstanding) => self.counters.denied.outstanding += 1,
        }
        if let (Err(_), Some(own)) = (reserved, self.policies.budget(policy)) {
            let lent = u32::from(token == Token::Lent);
            own.settle(1 - lent, lent, 0);
        }
        reserved.is_ok()
    }

    /// A replica that takes the payload and has not failed this call, for want of any other one
    /// whose connection broke and came back; in another domain than those that have it, or failed
    /// it, if there is one.
    pub(super) fn pick_other(&mut self, slot: u32, now: Instant) -> Option<u16> {
        self.pick_where(slot, now, true, |_| true)
    }

    /// The same for a call of which no copy is out, however long it waited for that: what can't come
    /// back in time is not worth running.
    pub(super) fn pick_next(&mut self, slot: u32, now: Instant) -> Next {
        let remaining = self.slots.get(slot).deadline - now;
        let is_near = |replica: &Replica| replica.rtt.is_none_or(|rtt| rtt < remaining);
        if let Some(place) = self.pick_where(slot, now, true, is_near) {
            return Next::At(place);
        }
        // One that is near enough may have room in time.
        match !self.lacks_room(slot, is_near) && self.pick_other(slot, now).is_some() {
            true => Next::TooLate,
            false => Next::Nowhere,
        }
    }

    /// The same for a copy beside another, where nothing is to be made do with.
    pub(super) fn pick_second(&mut self, slot: u32, now: Instant) -> Option<u16> {
        self.pick_where(slot, now, false, |_| true)
    }

    /// The same for a hedge, which is of no use at a replica that is slow itself.
    fn pick_for_hedge(&mut self, slot: u32, now: Instant) -> Option<u16> {
        let least = self.replicas.least_slowness(self.slots.get(slot).wanted());
        self.pick_where(slot, now, false, |replica| !replica.is_slow(least))
    }

    /// One that is known to be behind what the call demands is made do with, too, but only for want of
    /// any other: it may have caught up, and says so if it has not.
    fn pick_where(
        &mut self,
        slot: u32,
        now: Instant,
        again: bool,
        suits: impl Fn(&Replica) -> bool,
    ) -> Option<u16> {
        let asked = self.slots.get(slot).options.fresh;
        let fresh = |replica: &Replica| !replica.is_behind(asked, now);
        let found = self.pick_among(slot, now, again, |replica| fresh(replica) && suits(replica));
        match asked {
            Some(_) if found.is_none() && again => self.pick_among(slot, now, again, suits),
            _ => found,
        }
    }

    fn pick_among(
        &mut self,
        slot: u32,
        now: Instant,
        again: bool,
        suits: impl Fn(&Replica) -> bool,
    ) -> Option<u16> {
        let call = self.slots.get(slot);
        let wanted = call.wanted();
        let replicas = &self.replicas;
        let order = match call.shard_key {
            Some(key) => Order::Key(key),
            None if call.len == 0 => Order::First,
            None => Order::Extra,
        };
        self.picker.pick(replicas, now, order, |place, replica| {
            if !replica.fits(wanted) || !suits(replica) {
                return None;
            }
            let past = call.past_at(place);
            let lost = past.lost > 0;
            if past.lives || past.has_failed() || lost && !again {
                return None;
            }
            if !again && !replica.takes_second(wanted.method) || !call.is_safe_at(place, replica) {
                return None;
            }
            let beside = call.copies().iter().any(|c| {
                (c.is_live() || c.failed)
                    && replicas.get(c.replica).placement.domain == replica.placement.domain
            });
            Some(u8::from(lost) << 3 | u8::from(beside) << 2 | replica.distance(order))
        })
    }

    /// Something happened to the call that says whether its hedges do good.
    pub(super) fn note(&mut self, slot: u32, event: Event) {
        let call = self.slots.get(slot);
        if call.redundant && self.policies.policy(call.policy).hedge().is_some() {
            self.methods.hedging(call.class, call.policy).guard.note(event);
        }
    }

    fn hedging_is_on(&mut self, slot: u32, hedge: &HedgePolicy, now: Instant) -> bool {
        let Some(rule) = &hedge.auto_off else { return true };
        let Call { class, policy, name, .. } = *self.slots.get(slot);
        let guard = &mut self.methods.hedging(class, policy).guard;
        let (change, is_on) = (guard.look(rule, hedge.delay.quantile(), now), guard.is_on());
        let (method, policy) = (self.methods.method(class), PolicyId(name));
        match change {
            Some(Change::Off(reason)) => {
                self.counters.switched_off.count(reason);
                self.notices.tell(Notice::SwitchedOff { method, policy, reason });
            }
            Some(Change::On) => {
                self.counters.switched_on += 1;
                self.notices.tell(Notice::SwitchedOn { method, policy });
            }
            None => {}
        }
        is_on
    }

    /// Sets when the copy that was sent now is to be hedged, if it is.
    pub(super) fn plan_hedge(&mut self, slot: u32, now: Instant) {
        let call = self.slots.get(slot);
        let policy = self.policies.policy(call.policy);
        let allowed = |hedge: &&HedgePolicy| call.redundant && call.hedges < hedge.max_hedges;
        let Some(hedge) = policy.hedge().filter(allowed) else { return };
        if call.size > hedge.max_payload {
            self.counters.denied.too_large += 1;
            return;
        }
        let hedge = *hedge;
        if !self.hedging_is_on(slot, &hedge, now) {
            self.counters.denied.switched_off += 1;
            return;
        }
        let call = self.slots.get(slot);
        // What the copy may take that went out last, where that went.
        let class = call.copies().iter().rfind(|copy| copy.is_live()).map_or(0, |copy| copy.class);
        let Some(delay) = self.methods.delay(class, call.policy, &hedge.delay, now) else {
            self.counters.denied.no_delay += 1;
            return;
        };
        if call.deadline - now <= delay + hedge.least_useful {
            self.counters.denied.too_late += 1;
            return;
        }
        self.slots.get_mut(slot).hedge_at = now + delay;
    }

    /// The hedge is due. If it is denied, nothing else changes for the call.
    pub(super) fn fire_hedge(&mut self, slot: u32, now: Instant) {
        let call = self.slots.get_mut(slot);
        if call.is_announced() {
            // Until the second copy is out it is not known whether a third is owed.
            call.hedge_at = call.twin_at;
            return;
        }
        call.hedge_at = Instant::FAR_FUTURE;
        let call = self.slots.get(slot);
        let policy = self.policies.policy(call.policy);
        let Some(&hedge) = policy.hedge() else { return };
        self.methods.hedging(call.class, call.policy).guard.note(Event::Due);
        if !self.config.switch.is_on() {
            self.counters.denied.killed += 1;
            return;
        }
        if call.deadline - now <= hedge.least_useful {
            self.counters.denied.too_late += 1;
            return;
        }
        if self.is_used_up(slot) {
            self.counters.denied.attempts += 1;
            return;
        }
        let Some(place) = self.pick_for_hedge(slot, now) else {
            self.counters.denied.no_candidate += 1;
            return;
        };
        if self.afford(slot, Token::Paid, now) {
            self.launch(slot, place, Cause::Hedge, now);
            self.slots.get_mut(slot).hedges += 1;
            self.note(slot, Event::Sent);
            self.plan_hedge(slot, now);
        }
    }

    /// A copy of a call that waits has ended without a result. Sees to it that the call still has a
    /// copy out, or is done.
    pub(super) fn carry_on(&mut self, slot: u32, n: u8, now: Instant) -> Option<Done> {
        let call = self.slots.get(slot);
        if now >= call.deadline {
            return Some(self.fail_with(slot, ErrorKind::DeadlineExceeded, now));
        }
        if call.is_announced() {
            // The first ended before the second was sent: the tie is void.
            self.void_twin(slot);
        }
        let call = self.slots.get(slot);
        if call.live == 0 {
            return self.redispatch(slot, n, now);
        }
        // A copy that its twin stopped has not failed the call: that other one is at work on it.
        if call.hedge_at != Instant::FAR_FUTURE && call.copies[usize::from(n)].failed {
            self.fire_hedge(slot, now);
            self.arm(slot);
        }
        None
    }

    /// No copy is out any more, and that one ended last: sends another, at once, or ends the call with
    /// the error it holds.
    fn redispatch(&mut self, slot: u32, n: u8, now: Instant) -> Option<Done> {
        if !self.may_go_again(slot) {
            return Some(self.fail_held(slot, now));
        }
        // Before a replica is picked: one that the call has to wait for is not to be had for less.
        if self.slots.get(slot).copies[usize::from(n)].feeds_itself()
            && self.any_could_take(slot, |_| true)
            && !self.afford(slot, Token::Paid, now)
        {
            return Some(self.fail_held(slot, now));
        }
        match self.pick_next(slot, now) {
            Next::At(place) => self.send_again(slot, place, now),
            Next::TooLate => return Some(self.fail_late(slot, now)),
            Next::Nowhere => {
                if !self.may_strand(slot) {
                    if self.plan_retry(slot, now) {
                        return None;
                    }
                    if !self.may_come_back(slot, now) {
                        return Some(self.fail_held(slot, now));
                    }
                }
                self.strand(slot, now);
            }
        }
        self.arm(slot);
        None
    }

    /// The call has had as many copies as it may. Those that were never sent are none; but each had a
    /// number, and those come to an end.
    pub(super) fn is_used_up(&self, slot: u32) -> bool {
        let call = self.slots.get(slot);
        let unsent = |copy: &&Copied| copy.state == State::Ended(End::Unsent);
        let sent = usize::from(call.len) - call.copies().iter().filter(unsent).count();
        let most = usize::from(self.policies.limits(call.name, call.instead_of).attempts);
        sent >= most || usize::from(call.len) == MAX_ATTEMPTS
    }

    /// Whether the call may be sent again at all.
    fn may_go_again(&mut self, slot: u32) -> bool {
        let call: &Call<P> = self.slots.get(slot);
        if !call.may_repeat() && !call.never_ran() {
            self.counters.denied.not_idempotent += 1;
            return false;
        }
        if self.is_used_up(slot) {
            self.counters.denied.attempts += 1;
            return false;
        }
        true
    }

    /// Sends a copy in the place of those that ended.
    pub(super) fn send_again(&mut self, slot: u32, place: u16, now: Instant) {
        if !self.afford(slot, Token::Paid, now) {
            // A connection that breaks takes all its copies with it, more than any burst covers.
            // It does so once, so this can't feed on itself; what servers answer can.
            self.counters.uncharged += 1;
        }
        self.launch(slot, place, Cause::Redispatch, now);
        self.slots.get_mut(slot).hedge_at = Instant::FAR_FUTURE;
        // The new copy may be slow, too.
        self.plan_hedge(slot, now);
    }
}
