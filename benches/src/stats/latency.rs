//! A histogram of times, and the percentiles that it can answer for.

use core::time::Duration;

use hdrhistogram::Histogram;

/// Resolution and shortest time told apart.
const SHORTEST_NS: u64 = 1_000;
/// Longer times count as this.
const LONGEST_NS: u64 = 100_000_000_000;
/// Values within 0.1 % of each other may share a bucket.
const SIGNIFICANT_DIGITS: u8 = 3;
/// A percentile with fewer samples beyond it is noise: the run says nothing rather than that.
const SAMPLES_BEYOND: u64 = 100;

/// A percentile that is reported, with the names it has in tables and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// The median.
    P50,
    /// Nine of ten are quicker.
    P90,
    /// All but one in a hundred are quicker.
    P99,
    /// All but one in a thousand are quicker.
    P999,
}

impl Quantile {
    /// All of them, from the middle outwards.
    pub const ALL: [Quantile; 4] = [Quantile::P50, Quantile::P90, Quantile::P99, Quantile::P999];

    /// The share of samples at or below it.
    pub fn share(self) -> f64 {
        self.per_mille() as f64 / 1000.0
    }

    /// Its key in `results.json`.
    pub fn key(self) -> &'static str {
        match self {
            Quantile::P50 => "p50",
            Quantile::P90 => "p90",
            Quantile::P99 => "p99",
            Quantile::P999 => "p999",
        }
    }

    /// Its name for readers.
    pub fn label(self) -> &'static str {
        match self {
            Quantile::P50 => "p50",
            Quantile::P90 => "p90",
            Quantile::P99 => "p99",
            Quantile::P999 => "p99.9",
        }
    }

    /// The fewest samples with which it is reported.
    pub fn samples_needed(self) -> u64 {
        SAMPLES_BEYOND * 1000 / (1000 - self.per_mille())
    }

    fn per_mille(self) -> u64 {
        match self {
            Quantile::P50 => 500,
            Quantile::P90 => 900,
            Quantile::P99 => 990,
            Quantile::P999 => 999,
        }
    }
}

/// A histogram of times from 1 us to 100 s in nanoseconds, 3 significant digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Latencies {
    /// An empty histogram.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, SIGNIFICANT_DIGITS)
            .expect("the bounds are constants that the crate accepts");
        Latencies { histogram }
    }

    /// Counts one time; above 100 s it counts as 100 s.
    pub fn record(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(LONGEST_NS);
        self.histogram.saturating_record(nanos.min(LONGEST_NS));
    }

    /// Adds the samples that `after` has and `before` had not: two states of one histogram in
    /// nanoseconds, whatever its resolution.
    pub fn add_growth(&mut self, before: &Histogram<u64>, after: &Histogram<u64>) {
        for step in after.iter_recorded() {
            let nanos = step.value_iterated_to();
            let count = step.count_at_value().saturating_sub(before.count_at(nanos));
            self.histogram.saturating_record_n(nanos.min(LONGEST_NS), count);
        }
    }

    /// Adds all samples of `other`.
    pub fn merge(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("both have the same bounds");
    }

    /// How many samples there are.
    pub fn len(&self) -> u64 {
        self.histogram.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// The percentile, if at least 100 samples lie beyond it.
    pub fn quantile(&self, quantile: Quantile) -> Option<Duration> {
        (self.len() >= quantile.samples_needed()).then(|| self.at(quantile.share()))
    }

    /// The value at `share` (0 to 1) of the samples, however few lie beyond: for curves, which
    /// show where their ground ends; see [`Latencies::firm_share`].
    pub fn at(&self, share: f64) -> Duration {
        // The upper end of a bucket may lie above all that is in it.
        Duration::from_nanos(self.histogram.value_at_quantile(share)).min(self.max())
    }

    /// The share up to which at least 100 samples lie beyond.
    pub fn firm_share(&self) -> f64 {
        (1.0 - SAMPLES_BEYOND as f64 / self.len().max(1) as f64).max(0.0)
    }

    /// The longest time.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.histogram.max())
    }

    /// The mean; zero without samples.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.histogram.mean() as u64)
    }

    /// The histogram itself, in nanoseconds, for writing to a log.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times_us: impl Iterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::new();
        times_us.for_each(|us| latencies.record(Duration::from_micros(us)));
        latencies
    }

    fn close(a: Duration, b: Duration) -> bool {
        a.abs_diff(b).as_secs_f64() <= 0.001 * b.as_secs_f64() + 1e-6
    }

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let latencies = of(1..=100_000);
        for (quantile, us) in
            [(Quantile::P50, 50_000), (Quantile::P90, 90_000), (Quantile::P999, 99_900)]
        {
            let value = latencies.quantile(quantile).expect("enough samples");
            assert!(close(value, Duration::from_micros(us)), "{quantile:?} {value:?}");
        }
    }

    #[test]
    fn a_percentile_needs_a_hundred_samples_beyond_it() {
        assert_eq!(Quantile::P50.samples_needed(), 200);
        assert_eq!(Quantile::P99.samples_needed(), 10_000);
        assert_eq!(Quantile::P999.samples_needed(), 100_000);
        assert_eq!(of(1..=9_999).quantile(Quantile::P99), None);
        assert!(of(1..=10_000).quantile(Quantile::P99).is_some());
        assert_eq!(of(0..0).quantile(Quantile::P50), None);
    }

    /// Averaging the two p99 would give about 1 ms here; the merged p99 lies in the slow slice.
    #[test]
    fn merging_counts_samples_and_averages_nothing() {
        let mut quick = of((0..9_000).map(|_| 100));
        let slow = of((0..1_000).map(|_| 2_000));
        quick.merge(&slow);
        let p99 = quick.quantile(Quantile::P99).expect("10 000 samples");
        assert!(close(p99, Duration::from_micros(2_000)), "{p99:?}");
    }

    #[test]
    fn growth_is_what_came_after_the_first_look() {
        let coarse = || Histogram::<u64>::new_with_bounds(1_000, LONGEST_NS, 2).expect("bounds");
        let mut before = coarse();
        before.record_n(5_000_000, 300).expect("in range");
        let mut after = before.clone();
        after.record_n(5_000_000, 100).expect("in range");
        after.record_n(20_000_000, 200).expect("in range");
        let mut latencies = Latencies::new();
        latencies.add_growth(&before, &after);
        assert_eq!(latencies.len(), 300);
        let max = latencies.max().as_secs_f64();
        assert!((max - 0.020).abs() < 0.000_2, "{max}");
        latencies.add_growth(&after, &after);
        assert_eq!(latencies.len(), 300);
    }

    #[test]
    fn no_percentile_is_above_the_longest_time() {
        let nothing = of((0..1000).map(|_| 0));
        assert_eq!(
            (nothing.quantile(Quantile::P50), nothing.max()),
            (Some(nothing.max()), Duration::ZERO)
        );
    }

    #[test]
    fn times_out_of_range_still_count() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::ZERO);
        latencies.record(Duration::from_secs(3600));
        assert_eq!(latencies.len(), 2);
        assert!(close(latencies.max(), Duration::from_secs(100)));
    }
}
