//! Copies end: each once, and each is told of on the connection that brought it.

use bowline_protocol::{Ended, How, OptionSet, Reply, Status};
use bowline_time::Instant;

use super::copies::{Asker, Running, State};
use super::histograms::record;
use super::keys::Outcome;
use super::{Conn, CopyKey, Core, Notice, StopReason, Unstarted};

impl<P> Core<P> {
    /// The connection that waits for a copy's answer.
    pub fn connection_of(&self, copy: CopyKey) -> Option<Conn> {
        self.copies.at(self.copies.find(copy.0)?).conn
    }

    /// A handler is done, with this status and reply, which says that of itself. Returns what to
    /// answer, and on which connection, and how many bytes the request had; None if nobody waits for
    /// it any more (or the copy is not known). Who waits for the result of a copy with the same key is
    /// answered by an effect.
    ///
    /// Of a copy that was asked to stop, an error is taken for its stopping: it may well be how its
    /// handler does that, and must not end a call whose other copy goes on.
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
        if running.stop.is_some() && status != Status::Ok {
            self.abort(index, running, now);
            return None;
        }
        let (method, conn) = (self.copies.at(index).method.place, self.copies.at(index).conn);
        self.copies.clients.replied(conn.map(|conn| conn.0), method, result.len());
        let (asker, entry) = self.free_slot(index, running, now);
        if let Some(entry) = entry {
            // Its own answer comes before those of others.
            let own = conn.map(|conn| (conn.0, result.len()));
            own.inspect(|&(client, bytes)| self.copies.clients.promise(client, bytes));
            self.settle_key(entry, status, Outcome::new(result, says, now), now);
            own.inspect(|&(client, bytes)| self.copies.clients.deliver(client, bytes));
        }
        let Some(asker) = asker else {
            self.stats.dropped_running += 1;
            return None;
        };
        if running.stop == Some(StopReason::CallerDone) {
            self.stats.aborted_by_caller += 1;
            self.tell_ended(asker, How::Aborted, running.twin_started);
            return None;
        }
        self.stats.replied += 1;
        self.stats.replied_failed += u64::from(status == Status::Failed);
        let Asker { conn, attempt, bytes } = asker;
        // Whatever the handler says of the request: it was started.
        let reply = Reply { attempt, status, executed: true, load: self.load() };
        Some((conn, reply, bytes))
    }

    /// A handler stopped without an answer, since it was asked to or the shell made it.
    pub fn on_aborted(&mut self, copy: CopyKey, now: Instant) {
        let Some(index) = self.copies.find(copy.0) else { return };
        if let State::Running(running) = self.copies.at(index).state {
            self.abort(index, running, now);
        }
    }

    fn abort(&mut self, index: u32, running: Running, now: Instant) {
        let (asker, entry) = self.free_slot(index, running, now);
        if let Some(entry) = entry {
            self.give_up_key(entry);
        }
        let Some(asker) = asker else {
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
        self.tell_ended(asker, How::Aborted, by);
    }

    /// A client's connection is gone, and with it whoever waited for its copies: those that wait
    /// are dropped, those that run are asked to stop.
    pub fn on_closed(&mut self, conn: Conn, now: Instant) {
        while let Some(index) = self.copies.clients.any_of(conn.0) {
            match self.copies.at(index).state {
                State::Queued | State::Parked(_) => {
                    self.take_waiting(index, Unstarted::DroppedQueued, now);
                }
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
        let was_done = self.copies.at(index).wants.is_some();
        if let Some(asker) = self.take_waiting(index, why, now) {
            if was_done && why.how() == How::Shed {
                return self.tell_not_kept(asker);
            }
            self.tell_ended(asker, why.how(), by);
        }
    }

    /// Takes away a copy that waits, in the queue or for another's result. Returns who is to be told.
    pub(super) fn take_waiting(
        &mut self,
        index: u32,
        why: Unstarted,
        now: Instant,
    ) -> Option<Asker> {
        let copy = self.copies.at(index);
        let (asker, waited) = (copy.asker(), now - copy.arrived);
        // One that waits for another's result left the queue when it was parked; and of one that is held
        // back nobody knows whether it would have started.
        if let State::Queued = copy.state
            && self.copies.waits_since(index).is_some()
        {
            self.estimate.left();
        }
        self.forget_unstarted(index, waited, why);
        asker
    }

    /// Ends a copy that has its slot and was never handed to the shell: its connection is gone.
    pub(super) fn drop_unstarted(&mut self, index: u32) {
        let copy = self.copies.at(index);
        let (entry, waited) = (copy.entry, copy.waited());
        self.forget_unstarted(index, waited, Unstarted::DroppedQueued);
        if let Some(entry) = entry {
            self.give_up_key(entry);
        }
    }

    pub(super) fn tell_ended(&mut self, asker: Asker, how: How, by: Option<u16>) {
        let Asker { conn, attempt, bytes } = asker;
        let ended = Ended { attempt, how, by, load: self.load() };
        self.effects.notices.push_back((conn, Notice::Ended(ended), Some(bytes)));
    }

    /// Takes note of how long a copy ran, and forgets it. Returns who waits for its answer, and the
    /// entry of its key.
    fn free_slot(
        &mut self,
        index: u32,
        running: Running,
        now: Instant,
    ) -> (Option<Asker>, Option<u32>) {
        self.copies.clients.set_time(now);
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
        let told = (copy.asker(), copy.entry);
        self.copies.forget(index);
        told
    }
}
