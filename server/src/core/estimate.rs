//! How long a request that arrives now would wait.

use core::time::Duration;

/// Weight of a new sample of the service time and of the wait: an eighth, as RFC 6298 smooths.
const SAMPLE_SHIFT: u32 = 3;
/// Weight of a new sample of the share that starts, and of the time that callers grant: a 64th.
/// Withdrawals come in bursts, and clients differ.
const SLOW_SHIFT: u32 = 6;
/// From a mean of zero, too, there must be a way up: a microsecond.
const LEAST_SERVICE_NS: u64 = 1_000;
/// An hour: what a caller grants without a deadline counts as this.
const GRANTED_MOST_NS: u64 = 3_600_000_000_000;
/// The share that starts is counted in parts of this.
const WHOLE: u64 = 1 << 16;

/// Moving averages of what came out of the queue.
#[derive(Debug)]
pub(super) struct Estimate {
    /// How long a copy holds its slot; None before the first has left one.
    service_ns: Option<u64>,
    /// How much time copies have left when they come; None before the first.
    granted_ns: Option<u64>,
    /// How long the last ones waited that started.
    wait_ns: u64,
    /// Of those that left the queue, how many started (the others were withdrawn or shed, and cost
    /// nothing), in parts of WHOLE.
    starting: u64,
}

impl Estimate {
    pub(super) const fn new() -> Estimate {
        Estimate { service_ns: None, granted_ns: None, wait_ns: 0, starting: WHOLE }
    }

    /// A copy left the queue and starts.
    pub(super) fn started(&mut self, waited: Duration) {
        self.wait_ns = smooth(self.wait_ns, nanos(waited), SAMPLE_SHIFT);
        self.starting = smooth(self.starting, WHOLE, SLOW_SHIFT);
    }

    /// A copy left the queue and does not start.
    pub(super) fn left(&mut self) {
        self.starting = smooth(self.starting, 0, SLOW_SHIFT);
    }

    /// A copy left its slot.
    ///
    /// When the whole machine stood still, all that ran seem to have taken long. So a sample counts
    /// for at most twice the mean: eight of them at once raise it 2.6 times, not a hundred times,
    /// and handlers that really became slower are believed after twenty.
    pub(super) fn served(&mut self, held: Duration) {
        let sample = nanos(held);
        self.service_ns = Some(match self.service_ns {
            None => sample,
            Some(mean) => {
                let most = mean.saturating_mul(2).max(LEAST_SERVICE_NS);
                smooth(mean, sample.min(most), SAMPLE_SHIFT)
            }
        });
    }

    /// How long a copy holds its slot; zero while nothing is known.
    pub(super) fn service(&self) -> Duration {
        Duration::from_nanos(self.service_ns.unwrap_or(0))
    }

    /// A copy was taken on that may take so long.
    ///
    /// That is a caller's word. So a sample counts for at most twice the mean and at least half of
    /// it: one with all the time in the world, or none, moves it no more than any other. And nobody
    /// waits an hour, or grants less than it takes to be served behind one other.
    pub(super) fn accepted(&mut self, remaining: Duration) {
        let least = self.service_ns.unwrap_or(0).saturating_mul(2).min(GRANTED_MOST_NS);
        let sample = nanos(remaining).clamp(least, GRANTED_MOST_NS);
        let mean = self.granted_ns.map_or(sample, |mean| {
            let believable = sample.clamp(mean / 2, mean.max(1) * 2);
            smooth(mean, believable, SLOW_SHIFT)
        });
        self.granted_ns = Some(mean);
    }

    /// How much time copies have left when they come; forever while nothing is known.
    pub(super) fn granted(&self) -> Duration {
        Duration::from_nanos(self.granted_ns.unwrap_or(u64::MAX))
    }

    /// How long the copies waited that started last.
    pub(super) const fn recent_wait(&self) -> Duration {
        Duration::from_nanos(self.wait_ns)
    }

    /// How long a copy would wait behind `queued` others, while `running` of `slots` are taken:
    /// each of those before it that will start takes a slot for the mean service time. Zero while
    /// nothing is known.
    pub(super) fn wait(&self, queued: u32, running: u32, slots: u32) -> Duration {
        let free = slots.saturating_sub(running);
        let starting = (u64::from(queued) * self.starting).div_ceil(WHOLE);
        let ahead = (starting + 1).saturating_sub(u64::from(free));
        let service = self.service_ns.unwrap_or(0);
        Duration::from_nanos(service.saturating_mul(ahead) / u64::from(slots))
    }
}

/// Moves a mean towards a sample by the sample's weight.
const fn smooth(mean: u64, sample: u64, shift: u32) -> u64 {
    if sample >= mean {
        mean + ((sample - mean) >> shift)
    } else {
        mean - (mean - sample).div_ceil(1 << shift)
    }
}

/// Whole nanoseconds, capped at 2^64 - 1 (584 years).
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn nothing_is_expected_to_wait_before_anything_was_measured_or_while_a_slot_is_free() {
        let mut estimate = Estimate::new();
        assert_eq!(estimate.wait(1000, 4, 4), Duration::ZERO);
        estimate.served(MS);
        assert_eq!(estimate.wait(0, 3, 4), Duration::ZERO);
    }

    #[test]
    fn the_wait_grows_with_the_queue_and_shrinks_with_the_slots() {
        let mut estimate = Estimate::new();
        estimate.served(4 * MS);
        assert_eq!(estimate.wait(0, 1, 1), 4 * MS);
        assert_eq!(estimate.wait(9, 1, 1), 40 * MS);
        assert_eq!(estimate.wait(9, 4, 4), 10 * MS);
    }

    #[test]
    fn copies_that_leave_the_queue_without_a_start_are_not_waited_for() {
        let mut estimate = Estimate::new();
        estimate.served(MS);
        (0..1000).for_each(|i| if i % 2 == 0 { estimate.left() } else { estimate.started(MS) });
        let wait = estimate.wait(100, 1, 1);
        assert!(wait > 45 * MS && wait < 56 * MS, "half of 100 will start, but {wait:?}");
    }

    #[test]
    fn a_machine_that_stood_still_does_not_look_like_slow_handlers() {
        let mut estimate = Estimate::new();
        (0..100).for_each(|_| estimate.served(MS));
        (0..8).for_each(|_| estimate.served(100 * MS));
        assert!(estimate.service() < 3 * MS);
        (0..30).for_each(|_| estimate.served(100 * MS));
        assert!(estimate.service() > 70 * MS, "but handlers that stay slow are believed");
    }

    #[test]
    fn one_caller_without_a_deadline_or_without_time_says_nothing_about_all() {
        let mut estimate = Estimate::new();
        estimate.served(MS);
        (0..1000).for_each(|_| estimate.accepted(100 * MS));
        estimate.accepted(Duration::MAX);
        assert!(estimate.granted() < 102 * MS, "{:?}", estimate.granted());
        (0..100).for_each(|_| estimate.accepted(100 * MS));
        (0..2).for_each(|_| estimate.accepted(Duration::from_nanos(1)));
        assert!(estimate.granted() > 97 * MS, "{:?}", estimate.granted());
        (0..5000).for_each(|_| estimate.accepted(Duration::from_nanos(1)));
        assert!(estimate.granted() >= 2 * MS, "who grants less than a service is not waited for");
    }

    #[test]
    fn means_come_all_the_way_down() {
        let mut estimate = Estimate::new();
        estimate.started(Duration::from_secs(1));
        (0..400).for_each(|_| estimate.started(Duration::ZERO));
        assert_eq!(estimate.recent_wait(), Duration::ZERO);
    }
}
