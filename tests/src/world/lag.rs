//! Replicas that lag: what each holds of what is written somewhere else, and what it says of that.

use core::time::Duration;

use bowline_protocol::Freshness;

use crate::kernel::span::Nanos;

/// So long before the world's beginning writes began: a replica may be older than the world.
const BEFORE: Nanos = 10_000_000_000;

/// What is written, and how replicas follow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lags {
    /// The time between two writes.
    pub every: Nanos,
    /// How each replica follows, in their order.
    pub replicas: Vec<Lag>,
}

/// How a replica follows what is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lag {
    /// At best it holds what was written so long ago.
    pub behind: Nanos,
    /// For so long it follows, then it stands still for as long, and so on.
    pub stalls: Option<Nanos>,
    /// Without so much of what was written last it comes back from a crash. It catches up twice as fast
    /// as time passes.
    pub loses: Nanos,
    /// Who says what it holds.
    pub told_by: Teller,
}

/// Who says what a replica holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Teller {
    /// The replica itself, all the time.
    Replica,
    /// Each handler, of its answer.
    Handler,
    /// Nobody.
    Nobody,
}

/// What something was made of: all that had been written by then, and nothing that came later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Seen(Nanos);

impl Seen {
    /// The same without what was written last.
    pub(crate) const fn without(self, last: Nanos) -> Seen {
        Seen(self.0 - last)
    }
}

impl Lag {
    /// One that holds everything at once.
    pub const NONE: Lag = Lag { behind: 0, stalls: None, loses: 0, told_by: Teller::Replica };

    /// What the replica holds at `now`, if its process was started at `born` after a crash (None: with
    /// the world).
    pub(crate) fn holds(&self, now: Nanos, born: Option<Nanos>) -> Seen {
        let (now, born) = (now + BEFORE, born.map(|at| at + BEFORE));
        let stalled = |period: Nanos| (now / period % 2 == 1).then(|| now - now % period);
        let follows = self.stalls.and_then(stalled).unwrap_or(now) - self.behind;
        let caught_up = born.map_or(now, |born| born - self.loses + 2 * (now - born));
        Seen(follows.min(caught_up))
    }
}

impl Lags {
    /// All that is written at `now`, wherever.
    pub(crate) const fn all(now: Nanos) -> Seen {
        Seen(now + BEFORE)
    }

    /// The version of what was seen.
    pub(crate) const fn version(&self, seen: Seen) -> u64 {
        seen.0 / self.every
    }

    /// How fresh at `now` that is which was made of what was seen.
    pub(crate) const fn fresh(&self, seen: Seen, now: Nanos) -> Freshness {
        let staleness = Duration::from_nanos(Lags::all(now).0 - seen.0);
        Freshness { version: self.version(seen), staleness }
    }
}

/// How fresh the calls of a class want their answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asks {
    /// All that was written until so long before the call.
    pub written: Option<Nanos>,
    /// Nothing that was written longer ago than this is missing.
    pub within: Option<Nanos>,
}

impl Asks {
    /// What a call asks for that is made at `now`.
    pub(crate) fn freshness(&self, lags: &Lags, now: Nanos) -> Freshness {
        let written = |ago| Freshness::version(lags.version(Lags::all(now).without(ago)));
        let within = |nanos| Freshness::within(Duration::from_nanos(nanos));
        let asked = [self.written.map(written), self.within.map(within)];
        asked.into_iter().flatten().fold(Freshness::ANY, Freshness::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAGS: Lags = Lags { every: 10, replicas: Vec::new() };

    #[test]
    fn a_replica_that_lost_what_was_last_written_catches_up_and_follows_again() {
        let lag = Lag { behind: 5, loses: 100, ..Lag::NONE };
        let staleness = |now, born| LAGS.fresh(lag.holds(now, born), now).staleness.as_nanos();
        assert_eq!(staleness(1000, None), 5);
        assert_eq!(staleness(1000, Some(1000)), 100);
        assert_eq!(staleness(1060, Some(1000)), 40);
        assert_eq!(staleness(1200, Some(1000)), 5);
    }

    #[test]
    fn a_replica_that_stalls_stands_still_every_other_while() {
        let lag = Lag { stalls: Some(1000), ..Lag::NONE };
        let held = |now| Lags::all(now).0 - lag.holds(now, None).0;
        assert_eq!([held(999), held(1000), held(1001), held(1999), held(2000)], [0, 0, 1, 999, 0]);
    }

    #[test]
    fn what_is_asked_for_was_written_before_the_call() {
        let asks = Asks { written: Some(20), within: Some(7) };
        let asked = asks.freshness(&LAGS, 1000);
        assert_eq!(asked.version, (BEFORE + 980) / 10);
        assert_eq!(asked.staleness.as_nanos(), 7);
        let seen = Lags::all(1000);
        assert!(LAGS.fresh(seen, 1007).satisfies(&asked));
        assert!(!LAGS.fresh(seen, 1008).satisfies(&asked));
    }
}
