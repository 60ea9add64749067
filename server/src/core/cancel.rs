//! A cancel arrives: may its sender stop this copy, and does the copy stop?

use bowline_protocol::{Cancel, CancelReason, Station, Twin};
use bowline_time::Instant;

use super::copies::{Copy, State};
use super::tombs::Set;
use super::{Conn, Core, Origin, StopReason, Unstarted};

impl<P> Core<P> {
    /// A cancel came.
    ///
    /// `caller done` is obeyed only on the connection that brought the copy. `twin started` must
    /// match the copy's own tie, and come from the twin's core itself, or relayed unchanged on the
    /// connection that brought the copy. All else is refused and counted. Should several connections
    /// have brought copies of this name with this tie, it concerns one of them.
    pub fn on_cancel(&mut self, origin: Origin, cancel: Cancel, now: Instant) {
        self.stats.cancels_received += 1;
        let meant = self.copies.named(cancel.attempt, |copy| may_cancel(copy, origin, &cancel));
        if let Some(index) = meant {
            return match cancel.reason {
                CancelReason::CallerDone => self.caller_done(index, now),
                CancelReason::TwinStarted { by } => self.twin_started(index, by, now),
            };
        }
        let is_here = self.copies.named(cancel.attempt, |_| true).is_some();
        match origin {
            Origin::Stranger => self.stats.cancels_refused += 1,
            _ if is_here => self.stats.cancels_refused += 1,
            Origin::Client(_) => self.stats.cancels_late += 1,
            Origin::Mesh(station) => self.cancel_unknown(station, &cancel, now),
        }
    }

    /// A cancel found its copy's request or reply on the way, and stopped it there, which is not this
    /// machine's business. It is counted with the others.
    pub const fn on_cancel_met(&mut self) {
        self.stats.cancels_received += 1;
        self.stats.cancels_on_the_way += 1;
    }

    /// A peer's cancel for a copy that is not here: early, or late. A tombstone waits for the copy.
    fn cancel_unknown(&mut self, from: Station, cancel: &Cancel, now: Instant) {
        let CancelReason::TwinStarted { by } = cancel.reason else {
            self.stats.cancels_refused += 1;
            return;
        };
        if by.station != from {
            self.stats.cancels_refused += 1;
            return;
        }
        self.stats.cancels_early_or_late += 1;
        let life = cancel.lifetime.min(self.config.tombstone_life_max);
        if life.is_zero() {
            return;
        }
        match self.tombs.set(cancel.attempt, by, now + life) {
            Set::Made => self.stats.tombstones_made += 1,
            Set::MadeInPlaceOfAnother => {
                self.stats.tombstones_made += 1;
                self.stats.tombstones_evicted += 1;
            }
            Set::No => {}
        }
    }

    fn caller_done(&mut self, index: u32, now: Instant) {
        match self.copies.at(index).state {
            State::Queued | State::Parked(_) => {
                self.stats.cancels_withdrew += 1;
                self.end_queued(index, Unstarted::WithdrawnByCaller, None, now);
            }
            State::Running(_) => match self.ask_to_stop(index, StopReason::CallerDone, now) {
                true => self.stats.cancels_stopped += 1,
                false => self.stats.cancels_repeated += 1,
            },
        }
    }

    fn twin_started(&mut self, index: u32, by: Twin, now: Instant) {
        let copy = self.copies.at_mut(index);
        let primary = copy.request.is_primary();
        let State::Running(running) = &mut copy.state else {
            self.stats.cancels_withdrew += 1;
            return self.end_queued(index, Unstarted::WithdrawnByTwin, Some(by.n), now);
        };
        if running.twin_started.replace(by.n).is_some() {
            self.stats.cancels_repeated += 1;
            return;
        }
        self.stats.double_starts += 1;
        if primary {
            self.stats.cancels_ignored += 1;
        } else if self.ask_to_stop(index, StopReason::TwinStarted, now) {
            self.stats.cancels_stopped += 1;
        } else {
            self.stats.cancels_repeated += 1;
        }
    }

    /// Asks a running copy to stop; false if it was asked before.
    pub(super) fn ask_to_stop(&mut self, index: u32, why: StopReason, now: Instant) -> bool {
        let key = self.copies.key(index);
        let State::Running(running) = &mut self.copies.at_mut(index).state else { return false };
        let first = running.stop.is_none();
        // Once the caller is done, its answer is not sent any more, whoever else asked before.
        if first || why == StopReason::CallerDone {
            running.stop = Some(why);
        }
        if first {
            running.asked = now;
            self.effects.aborts.push_back((key, why));
        }
        first
    }
}

/// Whether this origin may say this of this copy.
fn may_cancel<P>(copy: &Copy<P>, origin: Origin, cancel: &Cancel) -> bool {
    let on_its_connection = |conn: Conn| copy.conn == Some(conn);
    let by_its_twin = |by: Twin| copy.request.tie.is_some_and(|tie| tie.twin == by);
    match (origin, cancel.reason) {
        (Origin::Client(conn), CancelReason::CallerDone) => on_its_connection(conn),
        (Origin::Client(conn), CancelReason::TwinStarted { by }) => {
            on_its_connection(conn) && by_its_twin(by)
        }
        (Origin::Mesh(station), CancelReason::TwinStarted { by }) => {
            by.station == station && by_its_twin(by)
        }
        (Origin::Mesh(_), CancelReason::CallerDone) | (Origin::Stranger, _) => false,
    }
}
