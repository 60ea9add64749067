//! Copies that brought a key: run, wait for the one that runs, or be told what it was told.

use bowline_protocol::{OptionSet, Reply, Request, Status};
use bowline_time::Instant;

use super::copies::Asker;
use super::keys::{Outcome, Seen};
use super::unread::considerable;
use super::{Core, Notice, Repeat, Unstarted};

/// What is said when a key comes again with something else.
pub(crate) const OTHER_USE: &str = "this key was used for another method or another payload; \
                                    a new call wants a new key";

/// What is said to a copy that could not wait any longer for what its key's call was answered.
const NOT_KEPT: &str = "what this key is for was done, but there was no room for the answer until this \
                        copy had to go; ask again with the same key";

impl<P> Core<P> {
    /// What was answered to the call of this key, if that is known.
    pub(super) fn remembered(&self, request: &Request, options: &OptionSet) -> Option<Outcome> {
        match self.copies.keys.look(options.key?, request.method) {
            Seen::Done(outcome) => Some(outcome),
            Seen::New | Seen::Running(_) | Seen::Other => None,
        }
    }

    /// A waiting copy comes to start. True if it need not: its key's call was done, or runs (and
    /// then the copy waits for that one), or was another call.
    pub(super) fn answer_by_key(&mut self, index: u32, now: Instant) -> bool {
        let copy = self.copies.at(index);
        let Some(key) = copy.options.key else { return false };
        let method = copy.request.method;
        if let Some(entry) = copy.wants {
            match self.copies.keys.outcome(entry).cloned() {
                Some(outcome) => self.answer_waiting(index, Status::Ok, outcome, now),
                None => self.end_queued(index, Unstarted::ShedUnkept, None, now),
            }
            return true;
        }
        match self.copies.keys.look(key, method) {
            Seen::New => {
                self.copies.at_mut(index).entry = self.copies.keys.begin(key, method);
                return false;
            }
            Seen::Running(entry) => {
                self.stats.keys_waited += 1;
                self.estimate.left();
                self.copies.park(index, entry);
            }
            Seen::Done(outcome) => {
                self.answer_waiting(index, Status::Ok, outcome, now);
            }
            Seen::Other => self.refuse_other_use(index, now),
        }
        true
    }

    /// The copy that ran for a key was answered: so are those that waited for it, if there is room. The
    /// others are queued until there is. Of a failure nothing is kept for them, and they may run.
    pub(super) fn settle_key(
        &mut self,
        entry: u32,
        status: Status,
        outcome: Outcome,
        now: Instant,
    ) {
        let bytes = considerable(outcome.result.len());
        let mut next = self.copies.first_parked(entry);
        while let Some(index) = next {
            next = self.copies.next_parked(index);
            if self.copies.at(index).conn.is_some_and(|conn| self.may_answer(conn, bytes)) {
                self.answer_waiting(index, status, outcome.clone(), now);
            }
        }
        let mut wanted = 0;
        while let Some(index) = self.copies.first_parked(entry) {
            self.copies.unpark(index);
            if status == Status::Ok {
                self.copies.at_mut(index).wants = Some(self.copies.keys.name(entry));
                wanted += 1;
            }
        }
        match status {
            Status::Ok => {
                self.stats.keys_evicted += self.copies.keys.done(entry, outcome, wanted, now);
            }
            _ => self.copies.keys.forget(entry),
        }
    }

    /// The copy that ran for a key ended without an answer: one of those that waited for it is to
    /// run in its place.
    pub(super) fn give_up_key(&mut self, entry: u32) {
        while let Some(index) = self.copies.first_parked(entry) {
            self.copies.unpark(index);
        }
        self.copies.keys.forget(entry);
    }

    fn answer_waiting(&mut self, index: u32, status: Status, outcome: Outcome, now: Instant) {
        self.note_start(index, now);
        if let Some(asker) = self.take_waiting(index, Unstarted::RepliedByKey, now) {
            self.answer(asker, status, outcome, now);
        }
    }

    /// Answers with the outcome of another copy: also where that is less fresh than is asked, since
    /// of an effect it is the only result; it says so, and the caller judges.
    pub(super) fn answer(
        &mut self,
        Asker { conn, attempt, bytes }: Asker,
        status: Status,
        outcome: Outcome,
        now: Instant,
    ) {
        self.stats.replied += 1;
        self.copies.clients.promise(conn.0, outcome.result.len());
        let reply = Reply { attempt, status, executed: true, load: self.load() };
        self.effects.answers.push_back(Repeat {
            conn,
            reply,
            options: outcome.says(now),
            result: outcome.result,
            frees: bytes,
        });
    }

    /// Tells of the end of a copy that waited for room for its answer. That its effect was had would be
    /// denied if it were told to be shed.
    pub(super) fn tell_not_kept(&mut self, Asker { conn, attempt, bytes }: Asker) {
        let reply = Reply { attempt, status: Status::Failed, executed: true, load: self.load() };
        self.effects.notices.push_back((conn, Notice::Refused(reply, NOT_KEPT), Some(bytes)));
    }

    fn refuse_other_use(&mut self, index: u32, now: Instant) {
        if let Some(asker) = self.take_waiting(index, Unstarted::RepliedOtherUse, now) {
            self.stats.replied += 1;
            let (Asker { conn, attempt, bytes }, load) = (asker, self.load());
            let reply = Reply { attempt, status: Status::BadRequest, executed: false, load };
            self.effects.notices.push_back((conn, Notice::Refused(reply, OTHER_USE), Some(bytes)));
        }
    }
}
