//! Copies that brought a key: run, wait for the one that runs, or be told what it was told.

use bowline_protocol::{OptionSet, Reply, Request, Status};
use bowline_time::Instant;

use super::copies::Asker;
use super::keys::{Outcome, Seen};
use super::{Core, Notice, Repeat, Unstarted};

/// What is said when a key comes again with something else.
pub(crate) const OTHER_USE: &str = "this key was used for another method or another payload; \
                                    a new call wants a new key";

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

    /// The copy that ran for a key was answered: so are those that waited for it.
    pub(super) fn settle_key(
        &mut self,
        entry: u32,
        status: Status,
        outcome: Outcome,
        now: Instant,
    ) {
        while let Some(index) = self.copies.first_parked(entry) {
            self.answer_waiting(index, status, outcome.clone(), now);
        }
        match status {
            Status::Ok => {
                self.stats.keys_evicted += self.copies.keys.done(entry, outcome, now);
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
        let reply = Reply { attempt, status, executed: true, load: self.load() };
        self.effects.answers.push_back(Repeat {
            conn,
            reply,
            options: outcome.says(now),
            result: outcome.result,
            frees: bytes,
        });
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
