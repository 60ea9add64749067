//! Which replica stalls when, and for how long.

use core::time::Duration;

use crate::random::Random;

/// Which replicas stall together. How far replicas fail *independently* decides what a second
/// copy can win, so a comparison has to state it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One replica at a time, drawn anew for each stall.
    Independent,
    /// Always the first replica: a slow machine.
    One,
    /// All of them at once: a shared cause, against which no second copy helps.
    All,
    /// None at all.
    Off,
}

/// What a plan is drawn from.
#[derive(Clone, Copy, Debug)]
pub struct StallModel {
    /// Which replicas stall together.
    pub pattern: Pattern,
    /// Mean length of a stall; lengths are uniform between half and one and a half of it.
    pub length: Duration,
    /// Mean time between the end of one stall and the start of the next, exponential.
    pub gap: Duration,
}

/// One stall of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Index of the replica.
    pub replica: usize,
    /// When it stops, from the start of the slice.
    pub at: Duration,
    /// For how long.
    pub length: Duration,
}

impl Stall {
    /// When the replica goes on.
    pub fn end(&self) -> Duration {
        self.at + self.length
    }
}

/// The stalls of one slice, in order of their starts. Stalls of one replica never overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    stalls: Vec<Stall>,
}

impl Plan {
    /// Draws the stalls of a slice of `duration` on `replicas` replicas.
    ///
    /// The same arguments give the same plan on every machine. A stall that would outlast the
    /// slice is left out, so that no slice leaves its stall to the next.
    pub fn draw(seed: u64, model: &StallModel, replicas: usize, duration: Duration) -> Self {
        let mut random = Random::new(seed, "stalls");
        let mut stalls = Vec::new();
        if replicas == 0 || model.pattern == Pattern::Off || model.length.is_zero() {
            return Plan { stalls };
        }
        let mut at = Duration::ZERO;
        loop {
            at += scaled(model.gap, random.exponential(1.0));
            let length = scaled(model.length, 0.5 + random.unit());
            let drawn = random.below(replicas as u64) as usize;
            if at + length >= duration {
                return Plan { stalls };
            }
            let stalled = match model.pattern {
                Pattern::Independent => drawn..drawn + 1,
                Pattern::One => 0..1,
                Pattern::All => 0..replicas,
                Pattern::Off => 0..0,
            };
            stalls.extend(stalled.map(|replica| Stall { replica, at, length }));
            at += length;
        }
    }

    /// The stalls, in order of their starts.
    pub fn stalls(&self) -> &[Stall] {
        &self.stalls
    }

    /// Share of the slice during which some replica is stalled, counted once for each replica.
    pub fn stalled_share(&self, replicas: usize, duration: Duration) -> f64 {
        if replicas == 0 || duration.is_zero() {
            return 0.0;
        }
        let stalled: Duration = self.stalls.iter().map(|stall| stall.length).sum();
        stalled.as_secs_f64() / (replicas as f64 * duration.as_secs_f64())
    }

    /// The stops and continues in order of time.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = self
            .stalls
            .iter()
            .flat_map(|stall| {
                let replica = stall.replica;
                [
                    Step { at: stall.at, replica, action: Action::Stop },
                    Step { at: stall.end(), replica, action: Action::Continue },
                ]
            })
            .collect();
        steps.sort_by_key(|step| step.at);
        steps
    }
}

/// One thing to do to one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) at: Duration,
    pub(super) replica: usize,
    pub(super) action: Action,
}

/// What is done to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// It stops, in whatever it was doing.
    Stop,
    /// It goes on.
    Continue,
}

fn scaled(duration: Duration, factor: f64) -> Duration {
    Duration::from_nanos((duration.as_nanos() as f64 * factor) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn model(pattern: Pattern) -> StallModel {
        StallModel { pattern, length: Duration::from_millis(60), gap: Duration::from_millis(300) }
    }

    #[test]
    fn independent_stalls_hit_every_replica_and_one_at_a_time() {
        let plan = Plan::draw(1, &model(Pattern::Independent), 3, MINUTE);
        for replica in 0..3 {
            assert!(plan.stalls().iter().any(|stall| stall.replica == replica));
        }
        for pair in plan.stalls().windows(2) {
            assert!(pair[0].end() <= pair[1].at, "{pair:?} overlap");
        }
    }

    #[test]
    fn stalls_take_the_share_of_time_that_the_model_says() {
        let plan = Plan::draw(1, &model(Pattern::Independent), 3, 10 * MINUTE);
        let share = plan.stalled_share(3, 10 * MINUTE);
        assert!((share - 60.0 / 360.0 / 3.0).abs() < 0.005, "{share}");
    }

    #[test]
    fn one_slow_replica_is_always_the_same() {
        let plan = Plan::draw(1, &model(Pattern::One), 3, MINUTE);
        assert!(!plan.stalls().is_empty());
        assert!(plan.stalls().iter().all(|stall| stall.replica == 0));
    }

    #[test]
    fn all_together_means_at_the_same_time() {
        let plan = Plan::draw(1, &model(Pattern::All), 3, MINUTE);
        for group in plan.stalls().chunks(3) {
            assert!(group.iter().all(|s| (s.at, s.length) == (group[0].at, group[0].length)));
        }
    }

    #[test]
    fn the_same_seed_stalls_the_same_replicas_at_the_same_times() {
        let draw = |seed| Plan::draw(seed, &model(Pattern::Independent), 3, MINUTE);
        assert_eq!(draw(9), draw(9));
        assert_ne!(draw(9), draw(10));
    }

    #[test]
    fn no_stall_outlasts_the_slice() {
        for seed in 0..50 {
            let slice = Duration::from_secs(2);
            let plan = Plan::draw(seed, &model(Pattern::Independent), 3, slice);
            assert!(plan.stalls().iter().all(|stall| stall.end() < slice));
        }
    }

    #[test]
    fn off_and_no_replicas_mean_no_stalls() {
        assert!(Plan::draw(1, &model(Pattern::Off), 3, MINUTE).stalls().is_empty());
        assert!(Plan::draw(1, &model(Pattern::All), 0, MINUTE).stalls().is_empty());
    }

    #[test]
    fn every_stop_has_its_continue() {
        let steps = Plan::draw(3, &model(Pattern::All), 3, MINUTE).steps();
        assert!(steps.is_sorted_by_key(|step| step.at));
        let mut stopped = [false; 3];
        for step in &steps {
            assert_ne!(stopped[step.replica], step.action == Action::Stop, "{step:?}");
            stopped[step.replica] = step.action == Action::Stop;
        }
        assert_eq!(stopped, [false; 3]);
    }
}
