//! What other policies would have done, from what plain calls took.
//!
//! Nothing is sent. A call that had one copy tells how long that took; a candidate would have sent
//! a second after its delay, if the first was not back by then. How long the second would have
//! taken nobody knows, but the last copy of the same kind that *another* replica answered is a fair
//! draw: of the same time, and not of the same replica. That leaves out two things: the load that
//! the second copies would have added, and, for ties, that the server which starts first stops the
//! other.

use core::time::Duration;

use hdrhistogram::Histogram;

use super::config::{ConfigError, check};
use super::latency;
use super::policy::{Delay, Stagger};

/// How many candidates a policy may have.
pub const MAX_CANDIDATES: usize = 8;

/// What is tried out in thought.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Candidate {
    /// A hedge after this delay.
    Hedge(Delay),
    /// A tied second copy after this stagger.
    Tie(Stagger),
}

impl Candidate {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Candidate::Hedge(delay) => delay.validate(),
            Candidate::Tie(stagger) => stagger.validate(),
        }
    }
}

/// What a candidate would have done with the calls so far.
#[derive(Clone, Debug)]
pub struct Shadowed {
    /// Which.
    pub candidate: Candidate,
    /// Calls of one copy that were looked at, and for which it had a delay.
    pub calls: u64,
    /// Second copies that it would have sent: `launched / calls` is what it would have cost.
    pub launched: u64,
    /// Second copies that would have answered before the first did.
    pub won: u64,
    /// Second copies of which nothing can be said: no other replica had answered anything yet.
    pub unknown: u64,
    /// What the calls would have taken, in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Shadowed {
    fn new(candidate: Candidate) -> Shadowed {
        let latency = latency::histogram();
        Shadowed { candidate, calls: 0, launched: 0, won: 0, unknown: 0, latency }
    }

    /// A call's only copy was back after `first`, or was given up then. `second` is what a copy at
    /// another replica took lately.
    pub(crate) fn see(&mut self, delay: Duration, first: Duration, second: Option<Duration>) {
        self.calls += 1;
        let mut took = first;
        if first > delay {
            self.launched += 1;
            match second {
                Some(second) => took = first.min(delay + second),
                None => self.unknown += 1,
            }
        }
        self.won += u64::from(took < first);
        latency::record(&mut self.latency, took);
    }
}

/// The candidates of one policy.
pub(crate) fn shadowed(candidates: &[Candidate]) -> Result<Vec<Shadowed>, ConfigError> {
    let few = candidates.len() <= MAX_CANDIDATES;
    check("shadow.candidates", candidates.len(), few, "up to 8")?;
    candidates.iter().try_for_each(Candidate::validate)?;
    Ok(candidates.iter().copied().map(Shadowed::new).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn seen(calls: &[(u64, Option<u64>)]) -> Shadowed {
        let mut shadowed = Shadowed::new(Candidate::Hedge(Delay::Fixed(MS(5))));
        for &(first, second) in calls {
            shadowed.see(MS(5), MS(first), second.map(MS));
        }
        shadowed
    }

    #[test]
    fn it_launches_for_the_slow_ones_and_wins_if_the_other_would_have_been_sooner() {
        let found = seen(&[(3, Some(1)), (5, Some(1)), (20, Some(2)), (6, Some(2)), (7, Some(2))]);
        assert_eq!((found.calls, found.launched, found.won, found.unknown), (5, 3, 1, 0));
        let longest = found.latency.max();
        assert!((6_900_000..7_200_000).contains(&longest), "7 of 20 ms: {longest}");
    }

    #[test]
    fn without_another_replica_to_go_by_nothing_is_claimed() {
        let found = seen(&[(20, None)]);
        assert_eq!((found.launched, found.won, found.unknown), (1, 0, 1));
    }

    #[test]
    fn candidates_are_few_and_valid() {
        let slow = Candidate::Hedge(Delay::Fixed(MS(61_000)));
        assert_eq!(shadowed(&[slow]).unwrap_err().field, "hedge.delay");
        let nine = [Candidate::Tie(Stagger::Fixed(MS(1))); 9];
        assert_eq!(shadowed(&nine).unwrap_err().field, "shadow.candidates");
    }
}
