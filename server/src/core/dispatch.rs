//! From the queue to the slots.

use core::time::Duration;

use bowline_protocol::{Cancel, CancelReason, Started, Tie, TrafficClass, Twin};
use bowline_time::Instant;

use super::arena::Key;
use super::histograms::record;
use super::overload::Sight;
use super::unread::Room;
use super::{CopyKey, Core, Notice, Start, Unstarted};

impl<P> Core<P> {
    /// All that this turn brought has been applied: starts what may start.
    ///
    /// A copy passes every check that could refuse it, then takes its slot, and only then its twin
    /// is told. (Whoever tells first and sheds afterwards kills both.)
    pub fn dispatch(&mut self, now: Instant) {
        self.slots.look(now);
        self.copies.clients.decide(now);
        let (mut short, mut found) = (None, None);
        while self.copies.running() < self.slots.limit()
            && let Some((index, by_turns)) =
                if short.is_none() { self.next() } else { self.next_short() }
        {
            match self.room_for_reply(index) {
                Room::Enough => {}
                Room::NotOfClient => {
                    self.hold(index, now);
                    continue;
                }
                Room::NotOfAll => {
                    short = Some(self.expected(index));
                    continue;
                }
            }
            if by_turns {
                self.copies.had_turn(index);
            }
            let refused = self.shed_if_useless(index, now) || self.refuse_if_behind(index, now);
            if !refused {
                found = found.max(Some(self.expected(index)));
                if !self.answer_by_key(index, now) {
                    self.start(index, now);
                }
            }
        }
        if short.is_none() && self.copies.startable() > 0 {
            self.slots.wanted();
        }
        if short.is_some() {
            self.copies.clients.look_further();
        }
        self.note_shortage(short, found, now);
        for class in self.classes() {
            if !self.config.dark {
                self.copies.arm_new(class);
            }
            self.look_for_overload(class, now);
        }
    }

    /// The copy to start next: of the class whose turn it is. And whether that is its connection's
    /// turn, too: under overload, and where copies are held back.
    fn next(&self) -> Option<(u32, bool)> {
        if self.copies.queued() == 0 {
            return None;
        }
        let class = self.shares.next(|class| self.copies.startable_of(class) > 0)?;
        let newest_first = self.governors[usize::from(class)].is_overloaded();
        let index = self.copies.next(class, newest_first)?;
        Some((index, newest_first || self.copies.clients.holds_any()))
    }

    /// While there is no room among all for the reply of the copy whose turn it is, the one to start in
    /// its place: of which the reply takes none of that room, or of the last quarter alone. Another one
    /// would keep it waiting.
    fn next_short(&self) -> Option<(u32, bool)> {
        let all_but_last = !self.copies.clients.unread.fits(0);
        let may_pass = |index: &u32| {
            let takes_none = all_but_last || self.expected(*index) == 0;
            takes_none && self.room_for_reply(*index) == Room::Enough
        };
        let of = |class: u8| {
            let newest = self.governors[usize::from(class)].is_overloaded();
            self.copies.clients.turns(class, newest).find(may_pass)
        };
        let class = self.shares.next(|class| of(class).is_some())?;
        Some((of(class)?, true))
    }

    /// All classes that there are.
    pub(super) const fn classes(&self) -> core::ops::Range<u8> {
        0..self.config.shares.len() as u8
    }

    fn look_for_overload(&mut self, class: u8, now: Instant) {
        let oldest = self.copies.waits_longest(class).map(|since| now - since);
        if oldest.is_none() && self.governors[usize::from(class)].is_calm() {
            return;
        }
        // Of the slots it has its share, while the others have copies waiting, too.
        let among: u32 = self.waiting_beside(class).map(|class| self.shares.of(class)).sum();
        let each = self.estimate.service() / self.slots.limit();
        let sight = Sight {
            oldest: oldest.unwrap_or_default(),
            each: each * among / self.shares.of(class),
            granted: self.estimate.granted(),
        };
        if self.governors[usize::from(class)].look(sight, now) {
            self.stats.overloads += 1;
        }
    }

    /// This class, and all others that have copies waiting.
    fn waiting_beside(&self, class: u8) -> impl Iterator<Item = u8> {
        self.classes().filter(move |other| *other == class || self.copies.startable_of(*other) > 0)
    }

    /// Sheds a waiting copy if too little of its time is left.
    pub(super) fn shed_if_useless(&mut self, index: u32, now: Instant) -> bool {
        let copy = self.copies.at(index);
        let left = copy.deadline - now;
        let useless = left.is_zero() || left <= copy.method.rule.least_useful;
        if useless && self.config.dark {
            self.stats.dark_shed += 1;
        }
        if !useless || self.config.dark {
            return false;
        }
        let why = if left.is_zero() { Unstarted::ShedExpired } else { Unstarted::ShedTooLate };
        self.end_queued(index, why, None, now);
        true
    }

    fn start(&mut self, index: u32, now: Instant) {
        let copy = self.copies.at(index);
        let (waited, place) = (now - copy.arrived, usize::from(copy.method.place));
        self.shares.started(copy.class);
        let for_a_slot = self.copies.waits_since(index).map_or(Duration::ZERO, |since| now - since);
        self.estimate.started(for_a_slot);
        record(&mut self.histograms.methods[place].wait, waited);
        self.note_start(index, now);
        self.copies.run(index, now);
        self.effects.starts.push_back(self.copies.key(index));
        if let Some(tie) = self.copies.at(index).request.tie {
            self.tell_twin(index, tie, now);
        }
    }

    /// The twin's core is told directly where the mesh reaches it, else by way of the client.
    fn tell_twin(&mut self, index: u32, tie: Tie, now: Instant) {
        let copy = self.copies.at(index);
        let attempt = copy.request.attempt;
        if self.is_mesh_up(tie.twin.station) {
            let by = Twin { station: self.config.station, n: attempt.n };
            let cancel = Cancel {
                attempt: attempt.sibling(tie.twin.n),
                reason: CancelReason::TwinStarted { by },
                lifetime: tie.window.min(copy.deadline - now),
            };
            self.stats.cancels_sent += 1;
            self.effects.cancels.push_back((tie.twin.station, cancel));
        } else if let Some(conn) = copy.conn {
            self.stats.starts_told += 1;
            self.effects.notices.push_back((conn, Notice::Started(Started { attempt }), None));
        }
    }

    /// Hands a copy that has its slot to the shell; None if its connection closed meanwhile.
    pub(super) fn hand_over(&mut self, key: Key) -> Option<Start<P>> {
        let index = self.copies.find(key)?;
        let copy = self.copies.at_mut(index);
        let (request, options) = (copy.request, copy.options);
        let (class, deadline, waited) = (TrafficClass(copy.class), copy.deadline, copy.waited());
        let rule = copy.method.rule;
        match (copy.payload.take(), copy.conn) {
            (Some(payload), Some(_)) => {
                self.stats.started += 1;
                let (copy, dated) = (CopyKey(key), self.dated(rule, &options));
                Some(Start { copy, request, options, class, deadline, waited, dated, payload })
            }
            _ => {
                self.drop_unstarted(index);
                None
            }
        }
    }
}
