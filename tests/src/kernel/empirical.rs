//! Values that were measured, each with how often it was seen.

use core::fmt;
use std::sync::Arc;

use crate::kernel::rng::Rng;
use crate::kernel::span::Nanos;

/// Measured durations, drawn as often as they were seen. Cheap to clone.
#[derive(Clone, PartialEq)]
pub struct Empirical {
    /// Each value in rising order, with how many lie at or below it.
    values: Arc<[(u64, Nanos)]>,
}

impl Empirical {
    /// Of values and their counts, in any order; None without any.
    ///
    /// ```
    /// use bowline_tests::kernel::empirical::Empirical;
    ///
    /// let reads = Empirical::of([(4_000_000, 99), (90_000_000, 1)]).expect("values");
    /// assert_eq!(reads.beyond(4_000_000), 0.01);
    /// assert!(Empirical::of([(4_000_000, 0)]).is_none());
    /// ```
    pub fn of(counts: impl IntoIterator<Item = (Nanos, u64)>) -> Option<Empirical> {
        let mut counts: Vec<(Nanos, u64)> = counts.into_iter().filter(|&(_, n)| n > 0).collect();
        counts.sort_unstable();
        let mut below = 0_u64;
        let values = counts.into_iter().map(|(value, count)| {
            below = below.saturating_add(count);
            (below, value)
        });
        let values: Arc<[_]> = values.collect();
        (!values.is_empty()).then_some(Empirical { values })
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.values.last().map_or(0, |&(below, _)| below)
    }

    /// The next draw.
    pub fn draw(&self, rng: &mut Rng) -> Nanos {
        let rank = rng.below(self.count());
        let at = self.values.partition_point(|&(below, _)| below <= rank);
        self.values.get(at).map_or(0, |&(_, value)| value)
    }

    /// Their mean.
    pub fn mean(&self) -> f64 {
        let mut before = 0;
        let parts = self.values.iter().map(|&(below, value)| {
            let count = below - std::mem::replace(&mut before, below);
            count as f64 * value as f64
        });
        parts.sum::<f64>() / self.count() as f64
    }

    /// The share of values beyond `at`.
    pub fn beyond(&self, at: Nanos) -> f64 {
        let index = self.values.partition_point(|&(_, value)| value <= at);
        let below = index.checked_sub(1).map_or(0, |last| self.values[last].0);
        (self.count() - below) as f64 / self.count() as f64
    }
}

impl fmt::Debug for Empirical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} measured values, {:.0} ns on average", self.count(), self.mean())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_drawn_as_often_as_they_were_seen() {
        let seen = Empirical::of([(30, 1), (10, 7), (20, 2)]).expect("values");
        let mut rng = Rng::new(1);
        let mut drawn = [0_u32; 3];
        (0..100_000).for_each(|_| drawn[(seen.draw(&mut rng) / 10 - 1) as usize] += 1);
        for (count, expected) in drawn.into_iter().zip([70_000, 20_000, 10_000]) {
            assert!(u32::abs_diff(count, expected) < 600, "{drawn:?}");
        }
    }

    #[test]
    fn mean_and_tail_are_those_of_the_counts() {
        let seen = Empirical::of([(30, 1), (10, 7), (20, 2)]).expect("values");
        assert!((seen.mean() - 14.0).abs() < 1e-9);
        for (at, beyond) in [(9, 1.0), (10, 0.3), (19, 0.3), (20, 0.1), (30, 0.0)] {
            assert!((seen.beyond(at) - beyond).abs() < 1e-9, "{at}");
        }
    }
}
