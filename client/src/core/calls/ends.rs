//! How copies and calls end.

use bowline_protocol::{Cancel, CancelReason, Cause, Error, ErrorKind, Executed};
use bowline_time::Instant;

use super::dispatch::parts;
use super::{Calls, Pending};
use crate::core::call::{Call, NIL, Phase, State};
use crate::core::guard::Event;
use crate::core::latency;
use crate::core::outcome::{CallKey, CopyEnd, Done, End, Outcome, Winner};
use crate::core::policies::Ended;

impl<P> Calls<P> {
    /// Strikes a copy off the book. What that means for its call is the caller's business.
    pub(super) fn end_copy(&mut self, slot: u32, n: u8, end: End, now: Instant) {
        self.unlink(slot, n);
        let call = self.slots.get_mut(slot);
        let copy = &mut call.copies[usize::from(n)];
        let was_sent = copy.state == State::Sent;
        copy.state = State::Ended(end);
        call.live -= 1;
        call.ran += u8::from(end.may_have_run() && copy.may_run());
        let (place, executed, seq, size) = (copy.replica, copy.executed, call.seq, call.size);
        let replica = self.replicas.get_mut(place);
        replica.in_flight -= 1;
        if !was_sent {
            replica.room.settle(size);
            self.refund(place, size);
        }
        if was_sent {
            self.counters.live -= 1;
            *self.ended(end) += 1;
            // Until a reply is chosen it is as good as wasted.
            self.counters.wasted += u64::from(executed);
            self.observe(slot, n, end, now);
            if let Some(ends) = &mut self.ends {
                let call = CallKey(bowline_protocol::Seq(seq));
                ends.push_back(CopyEnd { call, n: u16::from(n), end });
            }
        }
    }

    fn ended(&mut self, end: End) -> &mut u64 {
        match end {
            End::Replied => &mut self.counters.replied,
            End::Aborted => &mut self.counters.aborted,
            End::Withdrawn => &mut self.counters.withdrawn,
            End::Shed => &mut self.counters.shed,
            End::Rejected => &mut self.counters.rejected,
            End::Lost | End::Unsent => &mut self.counters.lost,
        }
    }

    /// Tells the latencies of a copy that ended. One that was cancelled had its time until then;
    /// an error, however fast, says nothing of how long an answer takes.
    fn observe(&mut self, slot: u32, n: u8, end: End, now: Instant) {
        let call = self.slots.get(slot);
        let copy = &call.copies[usize::from(n)];
        let (sent, class, place) = (copy.sent, copy.class, copy.replica);
        if end == End::Replied && !copy.failed {
            let ratio = self.methods.answered(class, place, now - sent, now);
            let (by_timing, replica) = (self.picker.is_by_timing(), self.replicas.get_mut(place));
            replica.took(ratio, true);
            if by_timing {
                replica.timing.answered(now - sent, replica.load, now);
            }
            latency::record(&mut self.histograms.attempts, now - sent);
        } else {
            let until = match call.phase {
                Phase::Watched(done) => done,
                Phase::Waiting | Phase::Free(_) => now,
            };
            let ratio = self.methods.censored(class, until - sent, now);
            self.replicas.get_mut(place).took(ratio, false);
        }
    }

    /// A copy was seen to start.
    pub(super) fn see_start(&mut self, slot: u32, n: u8) {
        let call = self.slots.get_mut(slot);
        let copy = &mut call.copies[usize::from(n)];
        if core::mem::replace(&mut copy.executed, true) {
            return;
        }
        self.counters.executions += 1;
        if copy.tied && call.copies[usize::from(Call::<P>::twin_of(n))].executed {
            self.counters.both_started += 1;
        }
    }

    /// A copy of a call that is done has ended.
    pub(super) fn end_watched(&mut self, slot: u32, now: Instant) {
        let call = self.slots.get(slot);
        if let Phase::Watched(done) = call.phase {
            latency::record(&mut self.histograms.losers, now - done);
            if call.live == 0 {
                self.watched -= 1;
                self.release(slot);
            }
        }
    }

    /// The call got its reply, which is good or fatal.
    pub(super) fn win(
        &mut self,
        slot: u32,
        n: u8,
        result: Result<(), Error>,
        now: Instant,
    ) -> Done {
        let call = self.slots.get(slot);
        let copy = &call.copies[usize::from(n)];
        self.counters.wasted -= u64::from(copy.executed);
        let replica = self.replicas.get(copy.replica).id;
        let winner = Winner { replica, n: u16::from(n), cause: copy.cause };
        self.done(slot, result, Some(winner), now)
    }

    /// The call failed.
    pub(super) fn fail_with(&mut self, slot: u32, kind: ErrorKind, now: Instant) -> Done {
        let executed = self.slots.get(slot).executed();
        self.done(slot, Err(Error::new(kind, executed)), None, now)
    }

    /// The call failed, with the error that it holds.
    pub(super) fn fail_held(&mut self, slot: u32, now: Instant) -> Done {
        let call = self.slots.get(slot);
        let executed = call.executed();
        // Copies of which each is said to have stopped the other leave no error.
        let kind = match (call.sent, executed) {
            (0, _) => ErrorKind::NoReplica,
            (_, Executed::No) => ErrorKind::Shed,
            (_, Executed::Yes | Executed::Unknown) => ErrorKind::Failed,
        };
        let held = call.held.unwrap_or(Error::new(kind, executed));
        self.done(slot, Err(Error { executed, ..held }), None, now)
    }

    /// The call failed, as no copy that is sent now could be answered in time; unless it holds an error.
    pub(super) fn fail_late(&mut self, slot: u32, now: Instant) -> Done {
        let late = Error::new(ErrorKind::DeadlineExceeded, Executed::No);
        self.slots.get_mut(slot).held.get_or_insert(late);
        self.fail_held(slot, now)
    }

    /// The one place where a call gets its result.
    fn done(
        &mut self,
        slot: u32,
        result: Result<(), Error>,
        winner: Option<Winner>,
        now: Instant,
    ) -> Done {
        self.count_result(slot, &result, winner, now);
        match (&result, winner) {
            (Ok(()), Some(Winner { cause: Cause::Hedge, .. })) => self.note(slot, Event::Won),
            (Err(error), _) if is_trouble(error.kind) => self.note(slot, Event::Failed),
            _ => {}
        }
        let call = self.slots.get(slot);
        let (seq, tag, tied, sent) = (call.seq, call.tag, call.tied, call.sent);
        let latency = now - call.started;
        latency::record(&mut self.histograms.calls, latency);
        let hedges = call.hedges_sent();
        let hedge_won = result.is_ok() && winner.is_some_and(|won| won.cause == Cause::Hedge);
        let ended = Ended { ok: result.is_ok(), attempts: sent, hedges, hedge_won, latency };
        self.policies.count(call.name, call.policy, &ended);
        self.think_of_others(slot, now);
        self.conclude(slot, now);
        let outcome = Outcome { latency, attempts: sent, hedges, tied, winner };
        Done { call: CallKey(bowline_protocol::Seq(seq)), tag, result, outcome }
    }

    fn count_result(
        &mut self,
        slot: u32,
        result: &Result<(), Error>,
        winner: Option<Winner>,
        now: Instant,
    ) {
        let Call { policy, deadline, .. } = *self.slots.get(slot);
        let budget = &self.config.budget;
        match result {
            Ok(()) => {
                self.counters.ok += 1;
                let hedged = winner.is_some_and(|w| w.cause == Cause::Hedge);
                self.counters.hedge_wins += u64::from(hedged);
                self.purse.on_success(budget);
                self.policies.earn(policy);
            }
            Err(error) => {
                self.counters.failed += 1;
                let missed = now >= deadline || error.kind == ErrorKind::DeadlineExceeded;
                self.counters.deadline_missed += u64::from(missed);
                if is_trouble(error.kind) {
                    self.purse.on_failure(budget);
                    self.policies.lose(policy);
                }
            }
        }
    }

    /// The call is over, however: stops its copies, and lets go of it, or watches what is left.
    pub(super) fn conclude(&mut self, slot: u32, now: Instant) {
        self.waiting -= 1;
        self.leave_line(slot);
        if self.slots.get(slot).is_announced() {
            self.void_twin(slot);
        }
        let watch = self.watched < self.config.max_calls;
        for n in 0..self.slots.get(slot).len {
            match self.slots.get(slot).copies[usize::from(n)].state {
                State::Queued => self.end_copy(slot, n, End::Unsent, now),
                State::Sent => {
                    self.cancel_copy(slot, n);
                    if !watch {
                        self.counters.unwatched += 1;
                        self.end_copy(slot, n, End::Lost, now);
                    }
                }
                State::Announced | State::Ended(_) => {}
            }
        }
        let call = self.slots.get_mut(slot);
        call.payload = None;
        if call.live == 0 {
            self.release(slot);
        } else {
            call.phase = Phase::Watched(now);
            self.watched += 1;
            self.arm_watch(slot, now);
        }
    }

    fn cancel_copy(&mut self, slot: u32, n: u8) {
        let call = self.slots.get(slot);
        let cancel = Cancel {
            attempt: self.attempt(call.seq, n),
            reason: CancelReason::CallerDone,
            lifetime: core::time::Duration::ZERO,
        };
        let place = call.copies[usize::from(n)].replica;
        self.effects.push_back(Pending::Cancel { place, cancel });
    }

    /// Gives up what is still out of a call that is done.
    pub(super) fn give_up(&mut self, slot: u32, now: Instant) {
        for n in 0..self.slots.get(slot).len {
            if self.slots.get(slot).copies[usize::from(n)].is_live() {
                self.counters.unwatched += 1;
                self.end_copy(slot, n, End::Lost, now);
            }
        }
        self.watched -= 1;
        self.release(slot);
    }

    /// Nothing is left of the call: settles its tokens and frees its slot.
    fn release(&mut self, slot: u32) {
        let call = self.slots.get_mut(slot);
        if let Some(timer) = call.timer.take() {
            self.wheel.cancel(timer);
        }
        let policy = call.policy;
        if call.tokens > 0 {
            let (tokens, lent) = (u32::from(call.tokens), u32::from(call.lent));
            let spent = u32::from(call.ran).saturating_sub(1).min(tokens);
            self.config.budget.settle(tokens - lent, lent, spent);
            if let Some(own) = self.policies.budget(policy) {
                own.settle(tokens - lent, lent, spent);
            }
        }
        self.policies.leave(policy);
        self.slots.put(slot);
    }

    /// The connection to the replica closed: every copy on it is lost.
    pub(super) fn lose_all(&mut self, place: u16, now: Instant) {
        while self.replicas.get(place).head != NIL {
            let (slot, n) = parts(self.replicas.get(place).head);
            let call = self.slots.get_mut(slot);
            let copy = &mut call.copies[usize::from(n)];
            let end = if copy.state == State::Sent { End::Lost } else { End::Unsent };
            // A replica that was never sent the copy has not failed the call.
            copy.failed = end == End::Lost;
            self.end_copy(slot, n, end, now);
            if self.slots.get(slot).is_waiting() {
                self.hold(slot, Error::new(ErrorKind::ConnectionLost, Executed::Unknown));
                let done = self.carry_on(slot, n, now);
                self.effects.extend(done.map(Pending::Done));
            } else {
                self.end_watched(slot, now);
            }
        }
    }

    /// Keeps an error in case nothing better comes. What a handler said is better than what
    /// happened on the way, that better than a refusal, and that better than that somebody has not the
    /// method: others may.
    pub(super) fn hold(&mut self, slot: u32, error: Error) {
        let call = self.slots.get_mut(slot);
        if call.held.is_none_or(|held| weight(error.kind) >= weight(held.kind)) {
            // Who is behind does not know when another, which refused, has more room.
            let after =
                call.held.and_then(|held| held.after).filter(|_| error.kind == ErrorKind::Stale);
            call.held = Some(Error { after: error.after.or(after), ..error });
        }
    }
}

const fn weight(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::NoSuchMethod => 0,
        ErrorKind::Overloaded | ErrorKind::Shed => 1,
        ErrorKind::ConnectionLost
        | ErrorKind::DeadlineExceeded
        | ErrorKind::NoRoom
        | ErrorKind::Stale => 2,
        _ => 3,
    }
}

/// The error says that the system does badly, not that the caller asked for the wrong thing.
const fn is_trouble(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::DeadlineExceeded
            | ErrorKind::NoReplica
            | ErrorKind::ConnectionLost
            | ErrorKind::Overloaded
            | ErrorKind::Shed
            | ErrorKind::Failed
    )
}
