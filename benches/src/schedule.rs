//! When each call is sent, and what it asks for: decided before the run starts.
//!
//! The generator is *open loop*: a call is due at its time whether or not earlier ones have
//! returned, as calls of independent users are. A closed loop would wait for a stalled replica
//! before it asks again, and so hide the very queueing that it is to measure.

use core::time::Duration;

use crate::random::Random;

/// How calls arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// Independent users: exponential gaps.
    Poisson,
    /// Groups of this many calls at one instant, the groups a Poisson process; the mean rate is
    /// the same.
    Bursts {
        /// Calls in a group.
        size: u32,
    },
}

/// One call of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the call is due, from the start of the slice. Latency is counted from here.
    pub at: Duration,
    /// The block that it reads.
    pub block: u64,
}

/// The arrivals of one slice (one policy in one round), in order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    arrivals: Vec<Arrival>,
    duration: Duration,
}

/// What a schedule is drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Mean arrivals a second.
    pub rate_per_s: f64,
    /// How long the slice lasts.
    pub duration: Duration,
    /// How calls arrive.
    pub arrivals: Arrivals,
    /// Blocks to read are drawn uniformly from `0..blocks`.
    pub blocks: u64,
}

impl Schedule {
    /// Draws a schedule: the same `seed` and `load` give the same one on every machine.
    pub fn draw(seed: u64, load: &Load) -> Self {
        let mut gaps = Random::new(seed, "arrivals");
        let mut blocks = Random::new(seed, "blocks");
        let group = match load.arrivals {
            Arrivals::Poisson => 1,
            Arrivals::Bursts { size } => size.max(1),
        };
        let mean_gap_ns = f64::from(group) * 1e9 / load.rate_per_s;
        let end_ns = load.duration.as_nanos() as f64;

        let expected = load.rate_per_s * load.duration.as_secs_f64();
        let mut arrivals = Vec::with_capacity((expected * 1.05) as usize + 16);
        let mut at_ns = gaps.exponential(mean_gap_ns);
        while at_ns < end_ns {
            let at = Duration::from_nanos(at_ns as u64);
            arrivals.extend((0..group).map(|_| Arrival { at, block: blocks.below(load.blocks) }));
            at_ns += gaps.exponential(mean_gap_ns);
        }
        Schedule { arrivals, duration: load.duration }
    }

    /// The arrivals, in order of time.
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// How long the slice lasts: the last arrival lies before this.
    pub fn duration(&self) -> Duration {
        self.duration
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(arrivals: Arrivals) -> Load {
        Load { rate_per_s: 2000.0, duration: Duration::from_secs(20), arrivals, blocks: 100 }
    }

    /// Pinned: were these numbers to change, an old seed would no longer name the same run.
    #[test]
    fn a_seed_names_one_schedule_for_ever() {
        let schedule = Schedule::draw(42, &load(Arrivals::Poisson));
        let first: Vec<(u128, u64)> =
            schedule.arrivals()[..3].iter().map(|a| (a.at.as_nanos(), a.block)).collect();
        assert_eq!(first, PINNED);
        assert_eq!(schedule, Schedule::draw(42, &load(Arrivals::Poisson)));
        assert_ne!(schedule, Schedule::draw(43, &load(Arrivals::Poisson)));
    }

    const PINNED: [(u128, u64); 3] = [(1_325_095, 23), (1_363_813, 31), (1_385_594, 63)];

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() {
        let schedule = Schedule::draw(1, &load(Arrivals::Poisson));
        let n = schedule.arrivals().len() as f64;
        assert!((n - 40_000.0).abs() < 4.0 * 200.0, "{n} arrivals"); // four standard deviations
        let gaps: Vec<f64> = schedule
            .arrivals()
            .windows(2)
            .map(|pair| (pair[1].at - pair[0].at).as_secs_f64())
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let variation = variance.sqrt() / mean;
        assert!((variation - 1.0).abs() < 0.05, "coefficient of variation {variation}");
    }

    #[test]
    fn bursts_come_in_groups_at_the_same_mean_rate() {
        let schedule = Schedule::draw(1, &load(Arrivals::Bursts { size: 10 }));
        let n = schedule.arrivals().len() as f64;
        assert!((n - 40_000.0).abs() < 3_000.0, "{n} arrivals");
        for group in schedule.arrivals().chunks(10) {
            assert!(group.iter().all(|arrival| arrival.at == group[0].at));
        }
    }

    #[test]
    fn arrivals_are_in_order_and_inside_the_slice() {
        let schedule = Schedule::draw(5, &load(Arrivals::Poisson));
        assert!(schedule.arrivals().is_sorted_by_key(|arrival| arrival.at));
        let last = schedule.arrivals().last().expect("a slice of 20 s has arrivals");
        assert!(last.at < schedule.duration());
        assert!(schedule.arrivals().iter().all(|arrival| arrival.block < 100));
    }
}
