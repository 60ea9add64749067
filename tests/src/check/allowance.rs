//! Whether extra executions stay within a budget, over any time, as seen from outside.

use std::collections::BTreeMap;

use bowline_client::core::BudgetConfig;

use crate::kernel::span::Nanos;

/// What clients had of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    /// Starts beyond the first of a call.
    pub extra: u64,
    /// Calls that succeeded.
    pub good: u64,
}

/// What one bucket grants, to all clients that pay out of it.
///
/// What ran more often than was earned is the debt. In any time it grows by no more than a full bucket,
/// and, where second copies are lent their tokens, by all that may be out: so it is never further
/// above its least so far than that.
#[derive(Clone, Debug)]
pub(crate) struct Allowance {
    set: BudgetConfig,
    /// The clients that earn by time and by success, and copies that each had without a token, since
    /// a connection broke.
    clients: BTreeMap<u64, u64>,
    lends: bool,
    least: f64,
}

impl Allowance {
    pub(crate) const fn new(set: BudgetConfig) -> Allowance {
        Allowance { set, clients: BTreeMap::new(), lends: false, least: f64::INFINITY }
    }

    /// A client's copies without a token, and whether it ties calls.
    pub(crate) fn uses(&mut self, client: u64, uncharged: u64, ties: bool) {
        self.clients.insert(client, uncharged);
        self.lends |= ties;
    }

    /// Copies that had no token.
    pub(crate) fn uncharged(&self) -> u64 {
        self.clients.values().sum()
    }

    /// So much was had of it until now. Returns what is too much, in words.
    pub(crate) fn judge(&mut self, spent: Spent, now: Nanos) -> Option<String> {
        /// Clocks run faster than the world's by no more.
        const FASTER: f64 = 1.001;
        let BudgetConfig { fraction, per_second, burst, outstanding, .. } = self.set;
        let clients = self.clients.len() as f64;
        let timed = per_second * clients * FASTER * now as f64 / 1e9;
        let debt = spent.extra as f64 - fraction * spent.good as f64 - timed;
        self.least = self.least.min(debt);
        let lent = if self.lends { outstanding } else { 0 };
        // Each pays in a token at a time, and may have gathered most of one before.
        let earned = if fraction + per_second > 0.0 { clients } else { 0.0 };
        let most = f64::from(burst + lent) + earned + self.uncharged() as f64;
        let grew = debt - self.least;
        (grew > most)
            .then(|| format!("{spent:?}: {grew} more than was earned, where {most} may be"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(fraction: f64, per_second: f64) -> Allowance {
        let set = BudgetConfig { fraction, per_second, burst: 5, outstanding: 0, drain: 0.0 };
        let mut allowance = Allowance::new(set);
        allowance.uses(1, 0, false);
        allowance
    }

    #[test]
    fn what_was_earned_long_ago_is_not_to_be_had_beyond_the_bucket() {
        let mut allowance = bucket(0.1, 0.0);
        assert_eq!(allowance.judge(Spent { extra: 0, good: 0 }, 0), None);
        assert_eq!(allowance.judge(Spent { extra: 0, good: 1000 }, 1), None);
        assert_eq!(allowance.judge(Spent { extra: 6, good: 1000 }, 2), None);
        let over = allowance.judge(Spent { extra: 7, good: 1000 }, 3);
        assert!(over.is_some(), "a hundred were earned, and the bucket holds five");
    }

    #[test]
    fn time_earns_and_so_does_a_call_that_succeeds() {
        let second = 1_000_000_000;
        let mut allowance = bucket(0.0, 2.0);
        assert_eq!(allowance.judge(Spent { extra: 0, good: 0 }, 0), None);
        assert_eq!(allowance.judge(Spent { extra: 10, good: 0 }, 2 * second), None);
        assert!(allowance.judge(Spent { extra: 12, good: 0 }, 2 * second).is_some());
    }
}
