//! What copies took lately.
//!
//! Two half windows follow each other, each a pair of histograms: of copies that answered, and of
//! copies that were stopped, lost or refused before they could. The latter are *censored*
//! observations: they took at least so long. Dropping them would make exactly the slow copies
//! vanish, since it is the slow ones that lose; so a percentile is read off the product-limit
//! estimate of both (Kaplan, Meier: Nonparametric estimation from incomplete observations, 1958).
//!
//! The histograms have two significant digits from 1 us to 60 s, 11 KiB each: a percentile is good
//! to 1 %, and memory is bounded by the number of methods.

use core::time::Duration;

use bowline_time::Instant;
use hdrhistogram::Histogram;

const LOWEST_NS: u64 = 1_000;
const HIGHEST_NS: u64 = 60_000_000_000;
const DIGITS: u8 = 2;

/// A histogram of nanoseconds with the precision of this module.
pub(crate) fn histogram<C: hdrhistogram::Counter>() -> Histogram<C> {
    Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS).expect("constants in range")
}

/// Records without ever failing: what is beyond the range counts as the range's end.
pub(crate) fn record<C: hdrhistogram::Counter>(histogram: &mut Histogram<C>, span: Duration) {
    histogram.saturating_record(nanos(span));
}

/// Whole nanoseconds; more than there are in a `u64` (584 years) as the most that there are.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Half a window.
#[derive(Debug)]
struct Half {
    answered: Histogram<u32>,
    censored: Histogram<u32>,
}

impl Half {
    fn new() -> Half {
        Half { answered: histogram(), censored: histogram() }
    }

    fn clear(&mut self) {
        self.answered.reset();
        self.censored.reset();
    }
}

/// The latencies of the copies of one method, over a rolling window.
#[derive(Debug)]
pub struct Window {
    halves: [Half; 2],
    current: usize,
    half: Duration,
    /// When the current half began.
    began: Instant,
}

impl Window {
    /// An empty window of this length.
    pub fn new(length: Duration, now: Instant) -> Window {
        let halves = [Half::new(), Half::new()];
        Window { halves, current: 0, half: length / 2, began: now }
    }

    /// A copy answered after `span`.
    pub fn answered(&mut self, span: Duration, now: Instant) {
        self.turn(now);
        record(&mut self.halves[self.current].answered, span);
    }

    /// A copy had not answered after `span`, and never will.
    pub fn censored(&mut self, span: Duration, now: Instant) {
        self.turn(now);
        record(&mut self.halves[self.current].censored, span);
    }

    /// How many copies answered within the window.
    pub fn samples(&mut self, now: Instant) -> u64 {
        self.turn(now);
        self.halves.iter().map(|half| half.answered.len()).sum()
    }

    /// The span within which the share `quantile` of the copies would have answered, had none been
    /// stopped. None if that lies beyond all that was seen.
    pub fn quantile(&mut self, quantile: f64, now: Instant) -> Option<Duration> {
        self.turn(now);
        product_limit(&self.halves, quantile).map(Duration::from_nanos)
    }

    fn turn(&mut self, now: Instant) {
        let age = now - self.began;
        if age < self.half {
            return;
        }
        self.current ^= 1;
        self.halves[self.current].clear();
        if age >= 2 * self.half {
            self.halves[self.current ^ 1].clear();
        }
        self.began = now;
    }
}

/// The value at which the product-limit estimate of survival falls to `1 - quantile`.
fn product_limit(halves: &[Half; 2], quantile: f64) -> Option<u64> {
    let [first, second] = halves;
    let sources = [&first.answered, &second.answered, &first.censored, &second.censored];
    let mut at_risk: u64 = sources.iter().map(|source| source.len()).sum();
    let mut merged = sources.map(|source| {
        source.iter_recorded().map(|at| (at.value_iterated_to(), at.count_since_last_iteration()))
    });
    let mut heads = merged.each_mut().map(Iterator::next);
    let mut survival = 1.0;
    while let Some(value) = heads.iter().flatten().map(|&(value, _)| value).min() {
        let mut counts = [0; 4];
        for (source, head) in heads.iter_mut().enumerate() {
            if let Some((_, count)) = head.take_if(|&mut (at, _)| at == value) {
                counts[source] = count;
                *head = merged[source].next();
            }
        }
        let answered = counts[0] + counts[1];
        survival *= 1.0 - answered as f64 / at_risk as f64;
        // The last factor rounds: 1e-9 is far below one sample in any window.
        if answered > 0 && survival <= 1.0 - quantile + 1e-9 {
            return Some(value);
        }
        at_risk -= counts.iter().sum::<u64>();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn near(found: Option<Duration>, expected: Duration) {
        let found = found.expect("a value").as_secs_f64();
        let off = (found / expected.as_secs_f64() - 1.0).abs();
        assert!(off < 0.015, "{found} s, not {expected:?}");
    }

    #[test]
    fn without_censored_copies_it_is_the_plain_percentile() {
        let now = Instant::from_nanos(1);
        let mut window = Window::new(MS(1000), now);
        (1..=1000).for_each(|us| window.answered(Duration::from_micros(us), now));
        near(window.quantile(0.5, now), Duration::from_micros(500));
        near(window.quantile(0.95, now), Duration::from_micros(950));
        assert_eq!(window.samples(now), 1000);
    }

    #[test]
    fn stopped_losers_are_not_taken_for_fast_copies() {
        let now = Instant::from_nanos(1);
        let mut window = Window::new(MS(1000), now);
        // Every tenth copy takes 50 ms, but is stopped after 2 ms. All others take 1 ms.
        for copy in 0..1000 {
            match copy % 10 {
                0 => window.censored(MS(2), now),
                _ => window.answered(MS(1), now),
            }
        }
        near(window.quantile(0.85, now), MS(1));
        assert_eq!(window.quantile(0.95, now), None, "nobody saw the 95th percentile");
    }

    #[test]
    fn the_product_limit_estimate_is_kaplan_and_meiers() {
        let now = Instant::from_nanos(1);
        let mut window = Window::new(MS(1000), now);
        // By hand: S(1) = 4/5, one censored at 2, S(3) = 4/5 * 2/3, S(4) = 4/5 * 1/3, S(5) = 0.
        for answered in [1, 3, 4, 5] {
            window.answered(MS(answered), now);
        }
        window.censored(MS(2), now);
        near(window.quantile(0.2, now), MS(1));
        near(window.quantile(0.4, now), MS(3));
        near(window.quantile(0.7, now), MS(4));
        near(window.quantile(0.74, now), MS(5));
    }

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut now = Instant::from_nanos(1);
        let mut window = Window::new(MS(100), now);
        window.answered(MS(1), now);
        now += MS(60);
        assert_eq!(window.samples(now), 1);
        now += MS(60);
        assert_eq!(window.samples(now), 0);
        window.answered(MS(1), now);
        now += MS(1000);
        assert_eq!(window.samples(now), 0, "idle for long: nothing is left at all");
    }

    #[test]
    fn a_latency_beyond_the_range_counts_as_its_end() {
        let now = Instant::from_nanos(1);
        let mut window = Window::new(MS(100), now);
        window.answered(Duration::from_secs(3600), now);
        assert!(window.quantile(0.5, now).unwrap() >= Duration::from_secs(59));
    }
}
