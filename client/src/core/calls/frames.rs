//! What servers say, and what becomes of it.

use core::cmp::Reverse;

use bowline_protocol::{
    Attempt, Cancel, CancelReason, Ended, Error, ErrorKind, Executed, Freshness, How, Overloaded,
    ReplicaId, Reply, Seq, Started, Status, Twin,
};
use bowline_time::Instant;

use super::{Calls, Pending};
use crate::core::call::{Call, State};
use crate::core::classify::{Brought, Verdict};
use crate::core::guard::Event;
use crate::core::notice::Notice;
use crate::core::outcome::{CallKey, Done, End, Heard};

impl<P> Calls<P> {
    /// A reply came. If it ends the call, that is returned. Its payload is the result's then, if there is
    /// one; of what it tells of an error, [`Calls::on_reply_with`] knows more.
    pub fn on_reply(&mut self, from: ReplicaId, reply: &Reply, now: Instant) -> Option<Done> {
        self.on_reply_with(from, reply, Brought::default(), now).done()
    }

    /// The same, of a reply that says how fresh it is, or has a payload that the method's
    /// [`Classifier`](crate::core::Classifier) looks at.
    pub fn on_reply_with(
        &mut self,
        from: ReplicaId,
        reply: &Reply,
        brought: Brought<'_>,
        now: Instant,
    ) -> Heard {
        let Some((slot, n)) = self.locate(from, reply.attempt) else { return Heard::Nothing };
        self.hear(slot, n, reply.load, now);
        self.note(slot, Event::Reply { queued: reply.load.queued });
        if reply.executed {
            self.see_start(slot, n);
        }
        let verdict = self.judge(slot, reply.status, brought);
        let copy = &mut self.slots.get_mut(slot).copies[usize::from(n)];
        copy.failed = verdict != Verdict::Good;
        copy.lacks_method = reply.status == Status::NoSuchMethod;
        let place = copy.replica;
        self.learn_freshness(slot, place, reply, brought.fresh, now);
        // So does a replica whose replies the classifier refuses, though by their status they are good.
        match (reply.status, verdict) {
            (Status::Failed, _) | (Status::Ok, Verdict::Retryable) => self.see_failure(place, now),
            // Who has not the method was not put to the test.
            (Status::NoSuchMethod, _) => {}
            _ => self.see_success(place),
        }
        self.end_copy(slot, n, End::Replied, now);
        if !self.slots.get(slot).is_waiting() {
            self.end_watched(slot, now);
            return Heard::Nothing;
        }
        self.take_reply(slot, n, reply, verdict, brought.fresh, now)
    }

    /// A reply came for a call that waits, and is worth that much.
    fn take_reply(
        &mut self,
        slot: u32,
        n: u8,
        reply: &Reply,
        verdict: Verdict,
        fresh: Option<Freshness>,
        now: Instant,
    ) -> Heard {
        let Reply { status, executed, .. } = *reply;
        let elsewhere = status == Status::NoSuchMethod && !executed && self.may_be_had(slot);
        let verdict = if elsewhere { Verdict::Retryable } else { verdict };
        let executed = if executed { Executed::Yes } else { Executed::No };
        let done = match verdict {
            Verdict::Good => Some(self.win(slot, n, Ok(()), now)),
            Verdict::Fatal => {
                let executed = self.slots.get(slot).executed();
                let error = Error::new(kind_of(status), executed);
                Some(self.win(slot, n, Err(error), now))
            }
            Verdict::Retryable => {
                self.hold_and_carry_on(slot, n, Error::new(kind_of(status), executed), now)
            }
            Verdict::Stale => {
                self.counters.stale += 1;
                let kept = self.keep_older(slot, status, fresh);
                let error = Error::new(ErrorKind::Stale, executed);
                let done = self.hold_and_carry_on(slot, n, error, now);
                if let Some(older) = kept {
                    self.effects.extend(done.map(Pending::Done));
                    return older;
                }
                done
            }
        };
        done.map_or(Heard::Nothing, |done| {
            let tells = |error: Error| status != Status::Ok && error.kind == kind_of(status);
            Heard::Done { done, is_told: done.result.err().is_none_or(tells) }
        })
    }

    /// Another copy is out, or a replica that refused the call, or has not failed it, may have its method,
    /// as while replicas are replaced by others of a newer version. Only one more is asked where one had
    /// it not: that would go round.
    fn may_be_had(&self, slot: u32) -> bool {
        let call = self.slots.get(slot);
        let is_second = call.copies().iter().filter(|copy| copy.lacks_method).count() > 1;
        let by_another = || call.had && !is_second && self.any_could_take(slot, |_| true);
        call.live > 0 || call.is_any_to_be_forgiven() || by_another()
    }

    /// A result is older than was asked: what is to be heard of it, if it is the freshest of those.
    fn keep_older(&mut self, slot: u32, status: Status, fresh: Option<Freshness>) -> Option<Heard> {
        let (call, fresh) = (self.slots.get_mut(slot), fresh.unwrap_or(Freshness::ANY));
        // A version tells more than the time since, which may be another clock's.
        let order = |it: Freshness| (it.version, Reverse(it.staleness));
        if status != Status::Ok || call.older.is_some_and(|known| order(known) >= order(fresh)) {
            return None;
        }
        call.older = Some(fresh);
        Some(Heard::Older { call: CallKey(Seq(call.seq)), tag: call.tag })
    }

    /// Takes note of what a reply says of its replica's freshness, or does not say to who asked.
    fn learn_freshness(
        &mut self,
        slot: u32,
        place: u16,
        reply: &Reply,
        fresh: Option<Freshness>,
        now: Instant,
    ) {
        let asked = self.slots.get(slot).options.fresh;
        let lifetime = self.config.load_lifetime;
        let replica = self.replicas.get_mut(place);
        match fresh {
            Some(held) if reply.status == Status::Stale => replica.holds(held, lifetime, now),
            Some(fresh) => replica.answered_with(fresh, lifetime, now),
            None if asked.is_some() && reply.status == Status::Ok => {
                self.counters.unsaid += 1;
                replica.said_nothing(lifetime, now);
            }
            None => {}
        }
    }

    fn hold_and_carry_on(&mut self, slot: u32, n: u8, error: Error, now: Instant) -> Option<Done> {
        self.counters.errors += 1;
        self.hold(slot, error);
        self.carry_on(slot, n, now)
    }

    /// What a reply is worth to its call. Of one that is done only the status is of interest still:
    /// its payload may not be there.
    fn judge(&self, slot: u32, status: Status, brought: Brought<'_>) -> Verdict {
        let call = self.slots.get(slot);
        if !call.is_waiting() {
            return Verdict::of(status);
        }
        let is_fresh = call.options.fresh.is_none_or(|asked| {
            // Who does not say how fresh it is promises nothing.
            brought.fresh.is_some_and(|fresh| fresh.satisfies(&asked))
        });
        let classifier = self.policies.classifier(call.name, call.instead_of);
        match classifier.judge(status, brought.payload) {
            Verdict::Good if !is_fresh => Verdict::Stale,
            verdict => verdict,
        }
    }

    /// A reply came for which this side had no room: it is as good as lost, though it was made.
    pub fn on_no_room(&mut self, from: ReplicaId, reply: &Reply, now: Instant) {
        let Some((slot, n)) = self.locate(from, reply.attempt) else { return };
        self.hear(slot, n, reply.load, now);
        if reply.executed {
            self.see_start(slot, n);
        }
        let error = Error::new(ErrorKind::NoRoom, Executed::Yes);
        self.end_unanswered(slot, n, End::Replied, Some(error), now);
    }

    /// A copy of so many bytes was taken back before any of it had left: its server will never hear of
    /// it, and its credit is there for others, though nobody should watch the copy any more.
    pub fn on_cut(&mut self, from: ReplicaId, attempt: Attempt, size: u32, now: Instant) {
        let Some(place) = self.replicas.find(from) else { return };
        self.refund(place, size);
        if let Some((slot, n)) = self.find_copy(from, attempt) {
            self.end_unanswered(slot, n, End::Withdrawn, None, now);
        }
    }

    /// The same, since its replica leaves, of which nobody needs the credit any more. A replica that was
    /// never sent the copy has not failed the call, which goes elsewhere, or waits for one.
    pub fn on_left_behind(&mut self, from: ReplicaId, attempt: Attempt, now: Instant) {
        let Some((slot, n)) = self.find_copy(from, attempt) else { return };
        if self.slots.get(slot).is_waiting() {
            self.hold(slot, Error::new(ErrorKind::Shed, Executed::No));
        }
        self.end_unanswered(slot, n, End::Withdrawn, None, now);
    }

    /// A copy ended without an answer.
    pub fn on_ended(&mut self, from: ReplicaId, ended: &Ended, now: Instant) {
        let Some((slot, n)) = self.locate(from, ended.attempt) else { return };
        self.hear(slot, n, ended.load, now);
        if ended.how.started() {
            self.see_start(slot, n);
        }
        let call = self.slots.get(slot);
        let copy = call.copies[usize::from(n)];
        // None but its twin stops a copy for which the caller waits; else its server did so of its own
        // accord. That is no failure if it ran out of the call's time.
        let by_twin = copy.tied && ended.by == Some(u16::from(Call::<P>::twin_of(n)));
        let late = ended.how == How::Aborted && now >= copy.until;
        if ended.how != How::Shed && !by_twin && !late && call.is_waiting() {
            self.counters.errors += u64::from(ended.how == How::Aborted);
            self.see_failure(copy.replica, now);
        }
        let (end, kind, executed) = match ended.how {
            How::Withdrawn => (End::Withdrawn, ErrorKind::Shed, Executed::No),
            How::Aborted if late => (End::Aborted, ErrorKind::DeadlineExceeded, Executed::Yes),
            How::Aborted => (End::Aborted, ErrorKind::Failed, Executed::Yes),
            How::Shed => (End::Shed, ErrorKind::Shed, Executed::No),
        };
        let error = Error::new(kind, executed);
        self.end_unanswered(slot, n, end, (!by_twin).then_some(error), now);
    }

    /// A copy was refused. The replica is spared for as long as it asked.
    pub fn on_overloaded(&mut self, from: ReplicaId, overloaded: &Overloaded, now: Instant) {
        let Some((slot, n)) = self.locate(from, overloaded.attempt) else { return };
        self.hear(slot, n, overloaded.load, now);
        let after = overloaded.retry_after;
        let place = self.slots.get(slot).copies[usize::from(n)].replica;
        // No server can talk itself out of the set for longer than its load would be believed.
        self.replicas.get_mut(place).spare_until = now + after.min(self.config.load_lifetime);
        let error = Error::new(ErrorKind::Overloaded, Executed::No);
        let error = Error { after: Some(after), ..error };
        self.end_unanswered(slot, n, End::Rejected, Some(error), now);
    }

    fn end_unanswered(&mut self, slot: u32, n: u8, end: End, error: Option<Error>, now: Instant) {
        if matches!(end, End::Shed | End::Rejected) {
            self.note(slot, Event::Pushback);
        }
        self.end_copy(slot, n, end, now);
        if !self.slots.get(slot).is_waiting() {
            return self.end_watched(slot, now);
        }
        if let Some(error) = error {
            self.slots.get_mut(slot).copies[usize::from(n)].failed = true;
            self.hold(slot, error);
        }
        let done = self.carry_on(slot, n, now);
        self.effects.extend(done.map(Pending::Done));
    }

    /// A tied copy starts, and its server can't tell the twin's. A twin that is not sent yet is
    /// dropped; else the cancel is relayed as the server would have sent it, origin included: a
    /// plain one would stop both copies when both have started.
    pub fn on_started(&mut self, from: ReplicaId, started: &Started, now: Instant) {
        let Some((slot, n)) = self.locate(from, started.attempt) else { return };
        self.see_start(slot, n);
        let call = self.slots.get_mut(slot);
        let copy = &mut call.copies[usize::from(n)];
        let Some(pair) = call.pair.filter(|_| copy.tied && !copy.relayed) else { return };
        copy.relayed = true;
        if !call.is_waiting() {
            return;
        }
        let other = Call::<P>::twin_of(n);
        let twin = &call.copies[usize::from(other)];
        let (place, remaining) = (twin.replica, call.deadline - now);
        match twin.state {
            State::Announced => self.void_twin(slot),
            State::Queued => {
                self.counters.untied += 1;
                self.end_copy(slot, other, End::Unsent, now);
            }
            State::Sent => {
                let by = Twin { station: pair.stations[usize::from(n)], n: u16::from(n) };
                let cancel = Cancel {
                    attempt: started.attempt.sibling(u16::from(other)),
                    reason: CancelReason::TwinStarted { by },
                    lifetime: pair.tie.window.min(remaining),
                };
                self.counters.relayed += 1;
                self.effects.push_back(Pending::Cancel { place, cancel });
            }
            State::Ended(_) => {}
        }
    }

    /// The connection to the replica closed, or was given up.
    pub fn on_closed(&mut self, id: ReplicaId, now: Instant) {
        if let Some(place) = self.replicas.find(id) {
            let back_until = now + self.config.patience;
            let replica = self.replicas.get_mut(place);
            // One that was reached, and was never there, is no more likely to be there in a moment.
            if replica.station.take().is_some() {
                replica.back_until = back_until;
            }
            if replica.in_flight > 0 {
                self.see_failure(place, now);
            }
            self.lose_all(place, now);
        }
    }

    /// The copy of that name, if it is out at that replica. Anything else is counted, and does no
    /// harm: a frame that came late, twice, from a stranger, or for a call long done.
    fn locate(&mut self, from: ReplicaId, attempt: Attempt) -> Option<(u32, u8)> {
        let found = self.find_copy(from, attempt);
        self.counters.stray += u64::from(found.is_none());
        found
    }

    fn find_copy(&self, from: ReplicaId, attempt: Attempt) -> Option<(u32, u8)> {
        if attempt.client != self.client {
            return None;
        }
        let slot = self.slots.find(attempt.seq)?;
        let copy = self.slots.get(slot).copies().get(usize::from(attempt.n))?;
        let there = self.replicas.get(copy.replica).id == from;
        (there && copy.state == State::Sent).then_some((slot, attempt.n as u8))
    }

    /// The replica did not do what it was asked.
    pub(super) fn see_failure(&mut self, place: u16, now: Instant) {
        let Some(rule) = &self.config.eject else { return };
        let replica = self.replicas.get_mut(place);
        if replica.health.failed(rule, now) {
            self.counters.ejected += 1;
            self.notices.tell(Notice::Ejected { replica: replica.id });
        }
    }

    /// It did.
    fn see_success(&mut self, place: u16) {
        let replica = self.replicas.get_mut(place);
        if replica.health.succeeded() {
            self.counters.readmitted += 1;
            self.notices.tell(Notice::Readmitted { replica: replica.id });
        }
    }

    fn hear(&mut self, slot: u32, n: u8, load: bowline_protocol::Load, now: Instant) {
        let place = self.slots.get(slot).copies[usize::from(n)].replica;
        let replica = self.replicas.get_mut(place);
        replica.heard(load, self.config.load_lifetime, now);
        self.picker.report(replica.reported());
    }
}

/// The error that a reply is which is not good.
const fn kind_of(status: Status) -> ErrorKind {
    match status {
        Status::Ok => ErrorKind::Invalid,
        Status::NoSuchMethod => ErrorKind::NoSuchMethod,
        Status::BadRequest => ErrorKind::BadRequest,
        Status::Failed => ErrorKind::Failed,
        Status::Stale => ErrorKind::Stale,
        Status::TooLarge => ErrorKind::PayloadTooLarge,
        Status::App(number) => ErrorKind::App(number),
    }
}
