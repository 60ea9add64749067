//! What is worth a line in a log: rare, and told once.

use std::collections::VecDeque;

use bowline_protocol::{Method, ReplicaId};

use super::guard::OffReason;
use super::policy::PolicyId;

/// So many are kept for who asks late; of more the oldest are forgotten. Counters count them all.
const MOST: usize = 64;

/// Something changed that somebody should know of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// Hedging switched itself off, for a method's calls under a policy. With
    /// [`OffReason::Excess`] that is an alarm: the latencies are not what they were.
    SwitchedOff {
        /// Of which method; methods that share an estimate are named by the first of them.
        method: Method,
        /// Under which policy.
        policy: PolicyId,
        /// Why.
        reason: OffReason,
    },
    /// Hedging is on again, on probation.
    SwitchedOn {
        /// Of which method.
        method: Method,
        /// Under which policy.
        policy: PolicyId,
    },
    /// A replica failed too often in a row, or once more when it was tried again.
    Ejected {
        /// Which.
        replica: ReplicaId,
    },
    /// A replica that was ejected does its work again.
    Readmitted {
        /// Which.
        replica: ReplicaId,
    },
}

/// Those that nobody asked for yet.
#[derive(Debug)]
pub(crate) struct Notices {
    all: VecDeque<Notice>,
}

impl Default for Notices {
    /// With room for all that are kept: nothing allocates once calls are made.
    fn default() -> Self {
        Notices { all: VecDeque::with_capacity(MOST) }
    }
}

impl Notices {
    pub(crate) fn tell(&mut self, notice: Notice) {
        if self.all.len() == MOST {
            self.all.pop_front();
        }
        self.all.push_back(notice);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn next(&mut self) -> Option<Notice> {
        self.all.pop_front()
    }
}
