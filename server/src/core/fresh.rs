//! Requests that ask for more than this replica holds: refused before they cost anything, and before
//! any twin is told of a start.

use bowline_protocol::{Freshness, OptionSet, Reply, Status};
use bowline_time::Instant;

use super::config::MethodRule;
use super::copies::Asker;
use super::{Core, Notice, Unstarted};

const BEHIND: &str = "this replica is not as fresh as the request asks";

impl<P> Core<P> {
    /// What this replica holds from now on, as far as it knows; None: it can't say, and leaves it to
    /// its handlers. To be told before [`Core::dispatch`] in each turn, and before a request comes that
    /// asks for freshness.
    pub const fn on_freshness(&mut self, held: Option<Freshness>) {
        self.held = held;
    }

    /// What this replica holds, as it was told last.
    pub const fn freshness(&self) -> Option<Freshness> {
        self.held
    }

    /// Something is asked for that is known not to be here. Of what is not known the handlers may
    /// know more.
    pub(super) fn is_behind(&self, options: &OptionSet) -> bool {
        let short = |held: Freshness| options.fresh.is_some_and(|asked| held.is_behind(&asked));
        self.held.is_some_and(short)
    }

    /// What the reply of a copy that starts now says, unless its handler knows better: what is held,
    /// for one that only reads. One that writes says no more of that than was asked for: its caller
    /// would take it for what holds that write.
    pub(super) fn dated(&self, rule: MethodRule, options: &OptionSet) -> Option<Freshness> {
        let held = self.held?;
        if rule.idempotent {
            return Some(held);
        }
        let asked = options.fresh?;
        let version = held.version.min(asked.version);
        let staleness = match asked.staleness < Freshness::ANY.staleness {
            true => held.staleness,
            false => Freshness::ANY.staleness,
        };
        Some(Freshness { version, staleness })
    }

    /// Refuses a waiting copy that comes to start, if it asks for what is not here.
    pub(super) fn refuse_if_behind(&mut self, index: u32, now: Instant) -> bool {
        let copy = self.copies.at(index);
        let behind = self.is_behind(&copy.options);
        if !behind || self.copies.answer_of(index).is_some() {
            return false;
        }
        if let Some(asker) = self.take_waiting(index, Unstarted::RepliedStale, now) {
            self.stats.replied += 1;
            self.tell_behind(asker);
        }
        true
    }

    pub(super) fn tell_behind(&mut self, Asker { conn, attempt, bytes }: Asker) {
        let reply = Reply { attempt, status: Status::Stale, executed: false, load: self.load() };
        self.effects.notices.push_back((conn, Notice::Refused(reply, BEHIND), Some(bytes)));
    }
}
