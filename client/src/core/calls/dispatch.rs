//! How a call begins, and how a copy of it is put on its way.

use bowline_protocol::{Cause, Tie, Twin};
use bowline_time::Instant;

use super::{Calls, Pending};
use crate::core::budget::Token;
use crate::core::call::{Copied, NIL, Pair, State};
use crate::core::guard::Event;
use crate::core::methods::Kind;
use crate::core::outcome::{CallKey, Spec};
use crate::core::policy::TiePolicy;
use crate::core::tie;

impl<P> Calls<P> {
    /// Takes a slot for the call and sends its first copy, or its first two, if there is a replica
    /// to send it to.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        spec: Spec<P>,
        first: Option<u16>,
        had: bool,
    ) -> CallKey {
        let slot = self.slots.take();
        let kind = self.kind(&spec);
        let distance = first.map_or(0, |place| self.replicas.get(place).placement.distance);
        let class = self.methods.class(kind.at(distance), now);
        let name = self.client.0 ^ self.slots.get(slot).seq;
        let (name, policy) = self.policies.enter(spec.policy, name);
        let instead_of = self.policies.known(spec.instead_of);
        let call = self.slots.get_mut(slot);
        call.begin(spec, now);
        call.had = had;
        (call.kind, call.class) = (kind.at(distance), class);
        (call.name, call.policy, call.instead_of) = (name, policy, instead_of);
        let key = CallKey(bowline_protocol::Seq(call.seq));
        self.counters.calls += 1;
        self.waiting += 1;
        match first {
            Some(first) => self.send_first(slot, first, now),
            None => self.strand(slot, now),
        }
        self.arm(slot);
        key
    }

    /// Which calls it is like.
    fn kind(&self, spec: &Spec<P>) -> Kind {
        let known = |label| self.config.labels.iter().position(|known| *known == label);
        let label = spec.options.label.and_then(known).map_or(0, |place| place as u8 + 1);
        Kind::new(spec.method, spec.options.class.unwrap_or_default(), spec.size, label)
    }

    /// Sends the first copy, and what the policy adds to it.
    pub(super) fn send_first(&mut self, slot: u32, place: u16, now: Instant) {
        self.launch(slot, place, Cause::First, now);
        self.add_redundancy(slot, now);
    }

    /// What the policy adds to the first copy.
    fn add_redundancy(&mut self, slot: u32, now: Instant) {
        let policy = *self.policies.policy(self.slots.get(slot).policy);
        if policy.tie().is_none() && policy.hedge().is_none() {
            return;
        }
        if !self.slots.get(slot).may_repeat() {
            self.counters.denied.not_idempotent += 1;
        } else if !self.config.switch.is_on() {
            self.counters.denied.killed += 1;
        } else if self.slots.get(slot).from_extra {
            self.counters.denied.from_extra += 1;
        } else if !self.slots.get(slot).allows_second() {
            self.counters.denied.not_allowed += 1;
        } else if !self.slots.get(slot).shares_results() {
            self.counters.denied.not_shared += 1;
        } else {
            self.slots.get_mut(slot).redundant = true;
            self.note(slot, Event::Call);
            if let Some(tie) = policy.tie() {
                self.tie(slot, tie, now);
            }
            self.plan_hedge(slot, now);
        }
    }

    /// Makes the call's one copy the first of a pair, if another replica and a token are there.
    fn tie(&mut self, slot: u32, policy: &TiePolicy, now: Instant) {
        if self.slots.get(slot).size > policy.max_payload {
            self.counters.denied.too_large += 1;
            return;
        }
        if self.is_used_up(slot) {
            self.counters.denied.attempts += 1;
            return;
        }
        let Some(second) = self.pick_second(slot, now) else {
            self.counters.denied.no_candidate += 1;
            return;
        };
        if !self.afford(slot, Token::Lent, now) {
            return;
        }
        self.announce(slot, second, policy, now);
        if self.slots.get(slot).twin_at <= now {
            self.send_twin(slot, now);
        }
    }

    /// Makes copy 1 known to copy 0.
    fn announce(&mut self, slot: u32, second: u16, policy: &TiePolicy, now: Instant) {
        let first = self.slots.get(slot).copies[0].replica;
        let (one, two) = (self.replicas.get(first), self.replicas.get(second));
        let (Some(station), Some(other)) = (one.station, two.station) else { return };
        let rtt = one.rtt.max(two.rtt);
        let stagger = tie::stagger(policy.stagger, rtt);
        let window = tie::window(policy, stagger, rtt);
        let call = self.slots.get_mut(slot);
        let tie = Tie { twin: Twin::default(), window };
        call.pair = Some(Pair { stations: [station, other], tie });
        call.tied = true;
        call.copies[0].tied = true;
        call.copies[1] =
            Copied { state: State::Announced, replica: second, tied: true, ..Copied::UNUSED };
        call.len = 2;
        call.twin_at = now + stagger;
        self.counters.tied += 1;
    }

    /// The announced copy's time has come. Its replica must still be the one that was announced,
    /// core included: a copy elsewhere could not be found by its twin. And it must not be of another mind
    /// by now, should it have begun anew.
    pub(super) fn send_twin(&mut self, slot: u32, now: Instant) {
        let call = self.slots.get_mut(slot);
        call.twin_at = Instant::FAR_FUTURE;
        let (place, wanted) = (call.copies[1].replica, call.wanted());
        let announced = call.pair.map(|pair| pair.stations[1]);
        let replica = self.replicas.get(place);
        let may_be_second = replica.takes_second(call.method) && call.is_safe_at(place, replica);
        if !self.config.switch.is_on() {
            self.counters.denied.killed += 1;
            self.void_twin(slot);
        } else if replica.fits(wanted) && replica.station == announced && may_be_second {
            self.enqueue(slot, 1, now);
        } else {
            self.void_twin(slot);
        }
    }

    /// The announced copy will not be sent.
    pub(super) fn void_twin(&mut self, slot: u32) {
        let call = self.slots.get_mut(slot);
        call.twin_at = Instant::FAR_FUTURE;
        call.copies[1].state = State::Ended(crate::core::outcome::End::Unsent);
        self.counters.untied += 1;
    }

    /// Another copy, untied, to the replica at `place`.
    pub(super) fn launch(&mut self, slot: u32, place: u16, cause: Cause, now: Instant) {
        let call = self.slots.get_mut(slot);
        let n = call.len;
        call.copies[usize::from(n)] = Copied { cause, replica: place, ..Copied::UNUSED };
        call.len += 1;
        self.enqueue(slot, n, now);
    }

    /// Enters a copy in the book, and among the effects.
    fn enqueue(&mut self, slot: u32, n: u8, now: Instant) {
        let call = self.slots.get_mut(slot);
        call.live += 1;
        let seq = call.seq;
        let copy = &mut call.copies[usize::from(n)];
        copy.state = State::Queued;
        copy.sent = now;
        let place = copy.replica;
        let replica = self.replicas.get_mut(place);
        replica.in_flight += 1;
        replica.room.spend(call.size);
        let passes = !replica.line.is_empty();
        replica.uses = replica.uses.saturating_sub(1);
        replica.warm_since.get_or_insert(now);
        replica.health.asked(now);
        let kind = call.kind.at(replica.placement.distance);
        let class = if kind == call.kind { call.class } else { self.methods.class(kind, now) };
        let (store, promise) = (replica.placement.results, replica.promise(call.method));
        let copy = &mut self.slots.get_mut(slot).copies[usize::from(n)];
        (copy.class, copy.store, copy.promise) = (class, store, promise);
        self.link(slot, n, place);
        if passes {
            self.pass(place, seq);
        }
        self.effects.push_back(Pending::Send { seq, n });
    }

    pub(super) fn count_sent(&mut self, slot: u32, n: u8) {
        let call = self.slots.get_mut(slot);
        call.sent += 1;
        let size = call.size;
        let copy = &mut call.copies[usize::from(n)];
        copy.state = State::Sent;
        self.replicas.get_mut(copy.replica).room.settle(size);
        self.counters.attempts += 1;
        self.counters.live += 1;
        match copy.cause {
            Cause::First => {}
            Cause::Hedge => self.counters.hedges += 1,
            Cause::Redispatch => self.counters.redispatches += 1,
        }
    }

    /// Puts a copy at the head of its replica's list.
    fn link(&mut self, slot: u32, n: u8, place: u16) {
        let node = node(slot, n);
        let next = core::mem::replace(&mut self.replicas.get_mut(place).head, node);
        self.copy_mut(node).prev = NIL;
        self.copy_mut(node).next = next;
        if next != NIL {
            self.copy_mut(next).prev = node;
        }
    }

    /// Takes a copy out of its replica's list.
    pub(super) fn unlink(&mut self, slot: u32, n: u8) {
        let Copied { prev, next, replica, .. } = *self.copy_mut(node(slot, n));
        match prev {
            NIL => self.replicas.get_mut(replica).head = next,
            prev => self.copy_mut(prev).next = next,
        }
        if next != NIL {
            self.copy_mut(next).prev = prev;
        }
    }

    fn copy_mut(&mut self, node: u32) -> &mut Copied {
        let (slot, n) = parts(node);
        &mut self.slots.get_mut(slot).copies[usize::from(n)]
    }
}

/// A copy as a link: its call's slot, and its number in the low three bits.
pub(super) const fn node(slot: u32, n: u8) -> u32 {
    slot << 3 | n as u32
}

/// The slot and the number of a link.
pub(super) const fn parts(node: u32) -> (u32, u8) {
    (node >> 3, node as u8 & 7)
}
