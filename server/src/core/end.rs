//! Copies end: each once, and each is told of on the connection that brought it.

use bowline_protocol::{Attempt, Ended, How, OptionSet, Reply, Status};
use bowline_time::Instant;

use super::copies::{Copy, Running, State};
use super::histograms::record;
use super::keys::Outcome;
use super::{Conn, CopyKey, Core, Notice, StopReason, Unstarted};

impl<P> Core<P> {
    /// The connection that waits for a copy's answer.
    pub fn connection_of(&self, copy: CopyKey) -> Option<Conn> {
        self.copies.at(self.copies.find(copy.0)?).conn
    }

    /// A handler is done, with this status and reply, which says that of itself. Returns what to answer, and on which
    /// connection, and how many bytes the request had; None if nobody waits for it any more (or the copy is not known). Who waits for
    /// the result of a copy with the same key is answered by an effect.
    pub fn on_finished(
        &mut self,
        copy: CopyKey,
        status: Status,
        result: &[u8],
        says: &OptionSet,
        now: Instant,
    ) -> Option<(Conn, Reply, usize)> {
        let index = self.copies.find(copy.0)?;
        let State::Running(running) = self.copies.at(index).state else { return None };
        let Copy { request, conn, entry, bytes, .. } = self.free_slot(index, running, now)?;
        if let Some(entry) = entry {
            self.settle_key(entry, status, Outcome::new(result, says, now), now);
        }
        let Some(conn) = conn else {
            self.stats.dropped_running += 1;
            return None;
        };
        if running.stop == Some(StopReason::CallerDone) {
            self.stats.aborted_by_caller += 1;
            self.tell_ended(conn, request.attempt, bytes, How::Aborted, running.twin_started);
            return None;
        }
        self.stats.replied += 1;
        self.stats.replied_failed += u64::from(status == Status::Failed);
        // Whatever the handler says of the request: it was started.
        let reply = Reply { attempt: request.attempt, status, executed: true, load: self.load() };
        Some((conn, reply, bytes))
    }

    /// A handler stopped without an answer, since it was asked to or the shell made it.
    pub fn on_aborted(&mut self, copy: CopyKey, now: Instant) {
        let Some(index) = self.copies.find(copy.0) else { return };
        let State::Running(running) = self.copies.at(index).state else { return };
        let Some(Copy { request, conn, entry, bytes, .. }) = self.free_slot(index, running, now)
        else {
            return;
        };
        if let Some(entry) = entry {
            self.give_up_key(entry);
        }
        let Some(conn) = conn else {
            self.stats.dropped_running += 1;
            return;
        };
        match running.stop {
            Some(StopReason::TwinStarted) => self.stats.aborted_by_twin += 1,
            Some(StopReason::CallerDone) => self.stats.aborted_by_caller += 1,
            Some(StopReason::Deadline) => self.stats.aborted_by_deadline += 1,
            Some(StopReason::Closed) | None => self.stats.aborted_by_server += 1,
        }
        let by = running.twin_started.filter(|_| running.stop == Some(StopReason::TwinStarted));
        self.tell_ended(conn, request.attempt, bytes, How::Aborted, by);
    }

    /// A client's connection is gone, and with it whoever waited for its copies: those that wait
    /// are dropped, those that run are asked to stop.
    pub fn on_closed(&mut self, conn: Conn, now: Instant) {
        while let Some(index) = self.copies.clients.any_of(conn.0) {
            match self.copies.at(index).state {
                State::Queued => {
                    self.estimate.left();
                    self.drop_waiting(index, now);
                }
                // It left the queue when it was parked.
                State::Parked(_) => self.drop_waiting(index, now),
                State::Running(_) => {
                    self.ask_to_stop(index, StopReason::Closed, now);
                    self.copies.orphan(index, now);
                }
            }
        }
        self.copies.clients.close(conn.0);
    }

    /// Ends a copy that waits, in the queue or for another's result.
    pub(super) fn end_queued(&mut self, index: u32, why: Unstarted, by: Option<u16>, now: Instant) {
        if let State::Queued = self.copies.at(index).state {
            self.estimate.left();
        }
        let how = why.how();
        if let Some(copy) = self.copies.remove(index)
            && let Copy { request, conn: Some(conn), bytes, .. } = copy
        {
            self.never_ran(&request, &copy.options, now - copy.arrived, why);
            self.tell_ended(conn, request.attempt, bytes, how, by);
        }
    }

    /// Ends a copy that has its slot and was never handed to the shell: its connection is gone.
    pub(super) fn drop_unstarted(&mut self, index: u32) {
        if let Some(copy) = self.copies.remove(index) {
            self.never_ran(&copy.request, &copy.options, copy.waited(), Unstarted::DroppedQueued);
            if let Some(entry) = copy.entry {
                self.give_up_key(entry);
            }
        }
    }

    /// Ends a copy that waits, in the queue or for another's result, and whose connection is gone.
    fn drop_waiting(&mut self, index: u32, now: Instant) {
        if let Some(copy) = self.copies.remove(index) {
            let waited = now - copy.arrived;
            self.never_ran(&copy.request, &copy.options, waited, Unstarted::DroppedQueued);
        }
    }

    pub(super) fn tell_ended(
        &mut self,
        conn: Conn,
        attempt: Attempt,
        bytes: usize,
        how: How,
        by: Option<u16>,
    ) {
        let ended = Ended { attempt, how, by, load: self.load() };
        self.effects.notices.push_back((conn, Notice::Ended(ended), Some(bytes)));
    }

    /// Takes note of how long a copy ran, and forgets it.
    fn free_slot(&mut self, index: u32, running: Running, now: Instant) -> Option<Copy<P>> {
        let held = now - running.since;
        self.estimate.served(held);
        self.slots.served(held);
        let copy = self.copies.at(index);
        record(&mut self.histograms.methods[usize::from(copy.method.place)].service, held);
        if running.stop.is_some() {
            record(&mut self.histograms.stop, now - running.asked);
        }
        if let Some(closed) = copy.orphaned {
            record(&mut self.histograms.orphan, now - closed);
        }
        self.copies.remove(index)
    }
}
