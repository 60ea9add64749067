//! Copies that were taken on and never ran: why, and what somebody who watches is told of them.

use core::time::Duration;

use bowline_protocol::{How, OptionSet, Request};

use super::copies::Copy;
use super::{Core, Stats};

/// Why a copy never ran. Each has its counter in [`Stats`], which says what it means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the counters of the same names have them")]
pub enum Unstarted {
    WithdrawnByTwin,
    WithdrawnByTombstone,
    WithdrawnByCaller,
    ShedExpired,
    ShedTooLate,
    ShedDisplaced,
    ShedOldest,
    ShedGreedy,
    ShedShare,
    ShedUnkept,
    DroppedQueued,
    RepliedByKey,
    RepliedOtherUse,
    RepliedStale,
}

impl Unstarted {
    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Unstarted::WithdrawnByTwin => "withdrawn_by_twin",
            Unstarted::WithdrawnByTombstone => "withdrawn_by_tombstone",
            Unstarted::WithdrawnByCaller => "withdrawn_by_caller",
            Unstarted::ShedExpired => "shed_expired",
            Unstarted::ShedTooLate => "shed_too_late",
            Unstarted::ShedDisplaced => "shed_displaced",
            Unstarted::ShedOldest => "shed_oldest",
            Unstarted::ShedGreedy => "shed_greedy",
            Unstarted::ShedShare => "shed_share",
            Unstarted::ShedUnkept => "shed_unkept",
            Unstarted::DroppedQueued => "dropped_queued",
            Unstarted::RepliedByKey => "replied_by_key",
            Unstarted::RepliedOtherUse => "replied_other_use",
            Unstarted::RepliedStale => "replied_stale",
        }
    }

    const fn counter(self, stats: &mut Stats) -> &mut u64 {
        match self {
            Unstarted::WithdrawnByTwin => &mut stats.withdrawn_by_twin,
            Unstarted::WithdrawnByTombstone => &mut stats.withdrawn_by_tombstone,
            Unstarted::WithdrawnByCaller => &mut stats.withdrawn_by_caller,
            Unstarted::ShedExpired => &mut stats.shed_expired,
            Unstarted::ShedTooLate => &mut stats.shed_too_late,
            Unstarted::ShedDisplaced => &mut stats.shed_displaced,
            Unstarted::ShedOldest => &mut stats.shed_oldest,
            Unstarted::ShedGreedy => &mut stats.shed_greedy,
            Unstarted::ShedShare => &mut stats.shed_share,
            Unstarted::ShedUnkept => &mut stats.shed_unkept,
            Unstarted::DroppedQueued => &mut stats.dropped_queued,
            Unstarted::RepliedByKey => &mut stats.replied_by_key,
            Unstarted::RepliedOtherUse => &mut stats.replied_other_use,
            Unstarted::RepliedStale => &mut stats.replied_stale,
        }
    }

    /// What its client is told, if it is told of the end alone.
    pub(super) const fn how(self) -> How {
        match self {
            Unstarted::WithdrawnByTwin
            | Unstarted::WithdrawnByTombstone
            | Unstarted::WithdrawnByCaller => How::Withdrawn,
            _ => How::Shed,
        }
    }
}

/// A copy that ended and never ran.
#[derive(Clone, Copy, Debug)]
pub struct Gone {
    /// What was asked for.
    pub request: Request,
    /// What the request said beside that.
    pub options: OptionSet,
    /// How long it had waited.
    pub waited: Duration,
    /// Why it never ran.
    pub why: Unstarted,
}

impl<P> Core<P> {
    /// Whether [`Core::poll_gone`] is to tell of the copies that end from now on. By default it is
    /// not, and nothing is kept for it.
    pub fn watch(&mut self, watched: bool) {
        self.watched = watched;
        if !watched {
            self.gone.clear();
        }
    }

    /// The next copy that ended and never ran, until there is none. While they are watched, all are
    /// kept until they are asked for, which should be in the same turn.
    pub fn poll_gone(&mut self) -> Option<Gone> {
        self.gone.pop_front()
    }

    /// As [`Core::never_ran`], of a copy that is here; and forgets it.
    pub(super) fn forget_unstarted(&mut self, index: u32, waited: Duration, why: Unstarted) {
        *why.counter(&mut self.stats) += 1;
        if self.watched {
            let Copy { request, options, .. } = *self.copies.at(index);
            self.gone.push_back(Gone { request, options, waited, why });
        }
        self.copies.forget(index);
    }

    /// Counts a copy that ended and never ran, and keeps what is to be told of it.
    pub(super) fn never_ran(
        &mut self,
        request: &Request,
        options: &OptionSet,
        waited: Duration,
        why: Unstarted,
    ) {
        *why.counter(&mut self.stats) += 1;
        if self.watched {
            self.gone.push_back(Gone { request: *request, options: *options, waited, why });
        }
    }
}
