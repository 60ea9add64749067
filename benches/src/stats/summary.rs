//! A policy over all its rounds, as rates and shares.

use core::time::Duration;
use std::collections::BTreeMap;

use bowline_protocol::ErrorKind;

use super::denial::Denial;
use super::latency::{Latencies, Quantile};
use super::slice::{Counters, Ends, Slice};

/// The slices of one policy, one a round.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// Name of the policy, as in files and tables.
    pub policy: String,
    /// Its slices, in order of the rounds.
    pub slices: Vec<Slice>,
}

impl Rounds {
    /// All rounds together: histograms and counters added up.
    pub fn merged(&self) -> Summary {
        let mut slices = self.slices.iter();
        let mut all = slices.next().cloned().unwrap_or_else(|| Slice::new(Duration::ZERO));
        slices.for_each(|slice| all.merge(slice));
        Summary { policy: self.policy.clone(), all }
    }

    /// The rounds, from 1, that are void by themselves. Merged with the others one may be lost in
    /// their number; its ratios are not.
    pub fn void_rounds(&self) -> Vec<usize> {
        let void = |slice: &Slice| validity(slice) != Validity::Valid;
        let numbered = (1..).zip(&self.slices);
        numbered.filter(|(_, slice)| void(slice)).map(|(number, _)| number).collect()
    }
}

/// One policy's figures over the whole run. Rates a second are over the time in which calls fell
/// due; shares without anything to share are `None`.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Name of the policy.
    pub policy: String,
    all: Slice,
}

/// Whether a slice's latencies can be believed.
#[derive(Clone, Debug, PartialEq)]
pub enum Validity {
    /// The generator kept to its schedule.
    Valid,
    /// The generator was so late that the latencies are partly its own.
    Void {
        /// The percentile at which it shows.
        quantile: Quantile,
        /// The generator's lateness there.
        lag: Duration,
        /// The latency there.
        latency: Duration,
    },
}

impl Summary {
    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.all.counters
    }

    /// Latencies from when calls fell due.
    pub fn latency(&self) -> &Latencies {
        &self.all.latency
    }

    /// The generator's lateness.
    pub fn lag(&self) -> &Latencies {
        &self.all.lag
    }

    /// Calls that failed, by the kinds of their errors.
    pub fn failed_by_kind(&self) -> &BTreeMap<ErrorKind, u64> {
        &self.all.failed_by_kind
    }

    /// Time from results to the ends of the copies that were still out then.
    pub fn losers(&self) -> &Latencies {
        &self.all.losers
    }

    /// How long calls fell due.
    pub fn duration(&self) -> Duration {
        self.all.duration
    }

    /// CPU time of client and replicas for each call; none where it is not known.
    pub fn cpu_per_call(&self) -> Option<Duration> {
        let calls = u32::try_from(self.counters().calls).ok().filter(|calls| *calls > 0)?;
        (!self.all.cpu.is_zero()).then(|| self.all.cpu / calls)
    }

    /// CPUs that client and replicas kept busy on average, together; none where it is not known.
    pub fn cpus_busy(&self) -> Option<f64> {
        let seconds = self.all.duration.as_secs_f64();
        let known = seconds > 0.0 && !self.all.cpu.is_zero();
        known.then(|| self.all.cpu.as_secs_f64() / seconds)
    }

    /// Calls that fell due, a second.
    pub fn offered_per_s(&self) -> Option<f64> {
        self.per_second(self.counters().calls)
    }

    /// Calls answered rightly, a second.
    pub fn completed_per_s(&self) -> Option<f64> {
        self.per_second(self.counters().ok)
    }

    /// Calls answered rightly within their deadline, a second.
    pub fn in_deadline_per_s(&self) -> Option<f64> {
        self.per_second(self.counters().in_deadline)
    }

    /// Copies sent for each call.
    pub fn attempts_per_call(&self) -> Option<f64> {
        self.per_call(self.counters().attempts)
    }

    /// Copies started for each call.
    pub fn executions_per_call(&self) -> Option<f64> {
        self.per_call(self.counters().executions)
    }

    /// Of the copies started, those whose reply nobody used.
    pub fn wasted_execution_share(&self) -> Option<f64> {
        share(self.counters().wasted_executions, self.counters().executions)
    }

    /// Hedges for each call.
    pub fn hedge_rate(&self) -> Option<f64> {
        self.per_call(self.counters().hedges)
    }

    /// Of the extra copies (hedges, second copies), those that answered first.
    pub fn win_rate(&self) -> Option<f64> {
        let counters = self.counters();
        share(counters.extra_wins, counters.hedges + counters.second_copies)
    }

    /// Copies that ended in one of their ways, for each call.
    pub fn ends_per_call(&self, way: fn(&Ends) -> u64) -> Option<f64> {
        self.per_call(way(&self.counters().ends))
    }

    /// Calls of which both tied copies started, as a share of all.
    pub fn both_started_rate(&self) -> Option<f64> {
        self.per_call(self.counters().both_started)
    }

    /// Calls that were to be tied and were not, as a share of all.
    pub fn ties_denied_rate(&self) -> Option<f64> {
        self.per_call(self.counters().ties_denied)
    }

    /// Hedges that were denied, for each call.
    pub fn hedges_denied_rate(&self) -> Option<f64> {
        self.per_call(self.counters().hedges_denied)
    }

    /// Second copies that were not sent, by what stood against them.
    pub fn denied(&self) -> &BTreeMap<Denial, u64> {
        &self.all.denied
    }

    /// Calls for which hedging had switched itself off, as a share of all.
    pub fn switched_off_rate(&self) -> Option<f64> {
        self.per_call(self.counters().hedges_switched_off)
    }

    /// Calls that missed their deadline, as a share of all.
    pub fn deadline_miss_rate(&self) -> Option<f64> {
        self.per_call(self.counters().deadline_misses)
    }

    /// Calls that failed in another way than by their deadline, as a share of all.
    pub fn error_rate(&self) -> Option<f64> {
        let counters = self.counters();
        self.per_call(counters.errors + counters.corrupt + counters.shed_calls)
    }

    /// Of those, calls that had time and were not refused, or that got wrong bytes, as a share of
    /// all: something is broken then, and not only slow.
    pub fn broken_rate(&self) -> Option<f64> {
        self.per_call(self.counters().errors + self.counters().corrupt)
    }

    /// Whether the generator's lateness leaves the latencies meaningful, over all rounds.
    pub fn validity(&self) -> Validity {
        validity(&self.all)
    }

    fn per_call(&self, count: u64) -> Option<f64> {
        share(count, self.counters().calls)
    }

    fn per_second(&self, count: u64) -> Option<f64> {
        let seconds = self.all.duration.as_secs_f64();
        (seconds > 0.0).then(|| count as f64 / seconds)
    }
}

/// Void where, at a percentile up to p99 for which there are samples enough to report it, the
/// generator's lateness exceeds a tenth of the latency there (and 100 us, which is what a sleeping
/// thread may take to wake).
pub(super) fn validity(slice: &Slice) -> Validity {
    const WAKE: Duration = Duration::from_micros(100);
    for quantile in [Quantile::P50, Quantile::P90, Quantile::P99] {
        let (lag, latency) = (slice.lag.quantile(quantile), slice.latency.quantile(quantile));
        let (Some(lag), Some(latency)) = (lag, latency) else { continue };
        if lag > WAKE.max(latency / 10) {
            return Validity::Void { quantile, lag, latency };
        }
    }
    Validity::Valid
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::CallEnd;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn summary(calls: impl Iterator<Item = (u64, u64)>) -> Summary {
        let mut slice = Slice::new(Duration::from_millis(50));
        for (lag_us, took_us) in calls {
            slice.record(Duration::ZERO, us(lag_us), us(took_us), CallEnd::Ok);
        }
        slice.duration = Duration::from_secs(2);
        Rounds { policy: "none".into(), slices: vec![slice.clone(), slice] }.merged()
    }

    #[test]
    fn rates_are_over_the_time_in_which_calls_fell_due() {
        let summary = summary((0..100).map(|_| (10, 1000)));
        assert_eq!(summary.counters().calls, 200);
        assert_eq!(summary.offered_per_s(), Some(50.0));
        assert_eq!(summary.win_rate(), None, "no extra copies, no rate of wins");
    }

    #[test]
    fn a_generator_that_keeps_its_schedule_leaves_the_run_valid() {
        assert_eq!(summary((0..1000).map(|_| (90, 1000))).validity(), Validity::Valid);
        assert_eq!(summary((0..1000).map(|_| (450, 5000))).validity(), Validity::Valid);
    }

    #[test]
    fn a_late_generator_voids_the_run() {
        let late = summary((0..1000).map(|_| (300, 1000))).validity();
        assert!(matches!(late, Validity::Void { quantile: Quantile::P50, .. }), "{late:?}");
        // Late for 3 % of the calls: the median is sound, p99 is not.
        let calls = (0..6000).map(|n| if n % 33 == 0 { (9_000, 10_000) } else { (10, 1_000) });
        let late = summary(calls).validity();
        assert!(matches!(late, Validity::Void { quantile: Quantile::P99, .. }), "{late:?}");
    }

    #[test]
    fn a_percentile_that_is_not_reported_voids_nothing() {
        // As above, but of 2000 calls p99 is one of the last 20.
        let calls = (0..1000).map(|n| if n % 33 == 0 { (9_000, 10_000) } else { (10, 1_000) });
        assert_eq!(summary(calls).validity(), Validity::Valid);
        assert_eq!(summary((0..50).map(|_| (900, 1_000))).validity(), Validity::Valid);
    }

    #[test]
    fn a_late_round_is_told_even_where_the_others_outnumber_it() {
        let slice = |lag_us: u64| {
            let mut slice = Slice::new(Duration::from_millis(50));
            (0..1000).for_each(|_| slice.record(Duration::ZERO, us(lag_us), us(1000), CallEnd::Ok));
            slice
        };
        let mut slices: Vec<Slice> = (0..120).map(|_| slice(10)).collect();
        slices[6] = slice(300);
        let rounds = Rounds { policy: "none".into(), slices };
        assert_eq!(rounds.merged().validity(), Validity::Valid);
        assert_eq!(rounds.void_rounds(), [7]);
    }

    #[test]
    fn nothing_measured_gives_no_figures() {
        let empty = Rounds { policy: "none".into(), slices: vec![] }.merged();
        assert_eq!(empty.offered_per_s(), None);
        assert_eq!(empty.attempts_per_call(), None);
        assert_eq!(empty.validity(), Validity::Valid);
    }
}
