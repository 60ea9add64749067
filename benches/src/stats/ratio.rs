//! A policy against the baseline, round by round.

use super::latency::Quantile;
use super::slice::Slice;
use super::summary::{Validity, validity};

/// The middle and the ends of one figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median over the rounds.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// The rounds that have a say in it.
    pub rounds: usize,
    /// The rounds there are.
    pub of: usize,
}

impl Spread {
    /// Of the values of those among `of` rounds that have one; none without values.
    pub fn over(mut values: Vec<f64>, of: usize) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Spread { median, min, max, rounds: values.len(), of })
    }

    /// Whether every round has a say.
    pub const fn is_of_all(&self) -> bool {
        self.rounds == self.of
    }

    /// Whether most rounds have a say: fewer carry no verdict.
    pub const fn is_of_most(&self) -> bool {
        2 * self.rounds > self.of
    }
}

/// Both sides of each round in which the load generator was on time for both.
pub fn comparable<'a>(
    policy: &'a [Slice],
    baseline: &'a [Slice],
) -> impl Iterator<Item = (&'a Slice, &'a Slice)> {
    let valid = |slice: &Slice| validity(slice) == Validity::Valid;
    policy.iter().zip(baseline).filter(move |(ours, theirs)| valid(ours) && valid(theirs))
}

/// How a percentile of `policy` compares with that of `baseline` *in the same round*, over all
/// [comparable] rounds in which both can answer for it.
///
/// What disturbs the machine for a while disturbs both sides of one round's ratio; that is why
/// the ratio is taken first and its middle afterwards.
pub fn ratio_to_baseline(
    policy: &[Slice],
    baseline: &[Slice],
    quantile: Quantile,
) -> Option<Spread> {
    let ratios = comparable(policy, baseline).filter_map(|(ours, theirs)| {
        let ours = ours.latency.quantile(quantile)?.as_secs_f64();
        let theirs = theirs.latency.quantile(quantile)?.as_secs_f64();
        (theirs > 0.0).then(|| ours / theirs)
    });
    Spread::over(ratios.collect(), policy.len().min(baseline.len()))
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::stats::CallEnd;

    fn slice(calls: u64, took_us: u64) -> Slice {
        let mut slice = Slice::new(Duration::from_secs(1));
        for _ in 0..calls {
            let took = Duration::from_micros(took_us);
            slice.record(Duration::ZERO, Duration::ZERO, took, CallEnd::Ok);
        }
        slice
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine was slower in the second round; both sides doubled.
        let baseline = [slice(200, 1000), slice(200, 2000), slice(200, 1000)];
        let policy = [slice(200, 500), slice(200, 1000), slice(200, 250)];
        let spread = ratio_to_baseline(&policy, &baseline, Quantile::P50).expect("200 samples");
        assert!((spread.median - 0.5).abs() < 0.01, "{spread:?}");
        assert!((spread.min - 0.25).abs() < 0.01 && (spread.max - 0.5).abs() < 0.01, "{spread:?}");
    }

    #[test]
    fn a_round_without_enough_samples_has_no_say() {
        let baseline = [slice(200, 1000), slice(199, 1000)];
        let policy = [slice(200, 500), slice(200, 5000)];
        let spread = ratio_to_baseline(&policy, &baseline, Quantile::P50).expect("one round");
        assert!((spread.max - 0.5).abs() < 0.01, "{spread:?}");
        assert_eq!((spread.rounds, spread.of), (1, 2));
        assert!(!spread.is_of_all() && !spread.is_of_most());
        assert_eq!(ratio_to_baseline(&policy, &baseline, Quantile::P99), None);
    }

    #[test]
    fn a_round_in_which_the_load_generator_was_late_has_no_say() {
        let mut late = Slice::new(Duration::from_secs(1));
        let (lag, took) = (Duration::from_micros(500), Duration::from_micros(1000));
        (0..200).for_each(|_| late.record(Duration::ZERO, lag, took, CallEnd::Ok));
        let sound = [slice(200, 1000), slice(200, 1000)];
        let policy = [slice(200, 500), late.clone()];
        let spread = ratio_to_baseline(&policy, &sound, Quantile::P50).expect("one round");
        assert!((spread.max - 0.5).abs() < 0.01, "{spread:?}");
        let other = [late, slice(200, 1000)];
        assert_eq!(ratio_to_baseline(&policy, &other, Quantile::P50), None, "none is left");
        assert_eq!(comparable(&policy, &other).count(), 0);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let spread = Spread::over(vec![4.0, 1.0, 3.0, 2.0], 5).expect("values");
        assert_eq!(spread, Spread { median: 2.5, min: 1.0, max: 4.0, rounds: 4, of: 5 });
        assert!(spread.is_of_most() && !spread.is_of_all());
        assert_eq!(Spread::over(vec![], 5), None);
    }
}
