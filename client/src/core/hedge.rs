//! When a slow reply earns a second copy.

use core::time::Duration;

use bowline_time::Instant;

use super::latency::Window;
use super::policy::{Delay, Percentile};

/// How often the percentile is read: reading costs microseconds, and calls may come by the million.
const REFRESH: Duration = Duration::from_nanos(1_000_000_000 / 64);
/// After a minute the delay may be anything.
const MOST_STEPS: u128 = 64 * 60;

/// The hedge delay of one method under one policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trigger {
    /// The delay in force, None while there is none to go by.
    delay: Option<Duration>,
    /// It came from samples, not from the fallback.
    learned: bool,
    read: Option<Instant>,
    /// What the percentile was while all was well, in seconds; 0 while that is not known.
    baseline: f64,
}

impl Trigger {
    /// How long to wait for a copy that is sent now before it is hedged; None: don't.
    pub fn delay(&mut self, from: &Delay, window: &mut Window, now: Instant) -> Option<Duration> {
        match from {
            Delay::Fixed(delay) => Some(*delay),
            Delay::Percentile(percentile) => {
                let steps =
                    self.read.map_or(0, |read| (now - read).as_nanos() / REFRESH.as_nanos());
                if self.read.is_none() || steps > 0 {
                    self.read = Some(now);
                    self.refresh(percentile, window, steps.min(MOST_STEPS) as u32, now);
                }
                self.delay
            }
        }
    }

    fn refresh(&mut self, percentile: &Percentile, window: &mut Window, steps: u32, now: Instant) {
        if window.samples(now) < percentile.least_samples {
            self.delay = percentile.fallback;
            self.learned = false;
            return;
        }
        let Percentile { quantile, min, max, .. } = *percentile;
        let target = window.quantile(quantile, now).unwrap_or(max).clamp(min, max);
        let target = self.bounded(target, percentile, steps);
        self.delay = Some(match self.delay {
            Some(delay) if self.learned => limited(delay, target, percentile, steps),
            _ => target,
        });
        self.learned = true;
    }

    /// The delay as it was found last, if it is a percentile's.
    pub(crate) const fn last(&self) -> Option<Duration> {
        self.delay
    }
}

impl Trigger {
    /// `target`, but not far above what it was while all was well. That follows a target that falls
    /// at once, and one that rises only by a factor of 2 in ten minutes: an incident is over before
    /// it has taught anything, and what stays is learned in the end. It is looked at only while
    /// hedging is on, which is when all is well.
    fn bounded(&mut self, target: Duration, by: &Percentile, steps: u32) -> Duration {
        let seconds = target.as_secs_f64().max(1e-9);
        self.baseline = if self.baseline == 0.0 || seconds < self.baseline {
            seconds
        } else {
            // After a gap nothing was looked at: it counts for a second.
            let rise = power(sixty_fourth_root(RISE_PER_SECOND), steps.min(64));
            seconds.min(self.baseline * rise)
        };
        let most = Duration::from_secs_f64((self.baseline * by.max_rise).min(by.max.as_secs_f64()));
        target.min(most).max(by.min)
    }
}

/// The six hundredth root of 2: what rises by this in a second doubles in ten minutes.
const RISE_PER_SECOND: f64 = 1.001_155_914;

/// `target`, or as near to it as the delay may come within so many steps of [`REFRESH`].
fn limited(delay: Duration, target: Duration, by: &Percentile, steps: u32) -> Duration {
    let factor = power(sixty_fourth_root(by.change_per_second), steps);
    // From a delay of zero no factor leads away.
    let delay = delay.max(Duration::from_micros(1)).as_secs_f64();
    let (least, most) = (delay / factor, delay * factor);
    let allowed = target.as_secs_f64().clamp(least, most);
    Duration::from_secs_f64(allowed.min(by.max.as_secs_f64())).clamp(by.min, by.max)
}

/// By square roots, which are the same to the last bit on every machine, as `powf` is not.
fn sixty_fourth_root(of: f64) -> f64 {
    (0..6).fold(of, |root, _| root.sqrt())
}

fn power(base: f64, exponent: u32) -> f64 {
    let (mut power, mut square, mut left) = (1.0, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            power *= square;
        }
        square *= square;
        left >>= 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::random::Random;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn percentile() -> Percentile {
        Percentile { min: MS(1), max: MS(100), least_samples: 10, ..Percentile::default() }
    }

    fn fill(window: &mut Window, latency: Duration, count: usize, now: Instant) {
        (0..count).for_each(|_| window.answered(latency, now));
    }

    #[test]
    fn without_samples_there_is_no_delay_unless_a_fallback_is_set() {
        let now = Instant::from_nanos(1);
        let mut window = Window::new(MS(1000), now);
        fill(&mut window, MS(5), 9, now);
        let delay = Delay::Percentile(percentile());
        assert_eq!(Trigger::default().delay(&delay, &mut window, now), None);
        let delay = Delay::Percentile(Percentile { fallback: Some(MS(7)), ..percentile() });
        assert_eq!(Trigger::default().delay(&delay, &mut window, now), Some(MS(7)));
    }

    #[test]
    fn the_delay_is_clamped() {
        let now = Instant::from_nanos(1);
        for (latency, clamped) in [(Duration::from_micros(10), MS(1)), (MS(30_000), MS(100))] {
            let mut window = Window::new(MS(1000), now);
            fill(&mut window, latency, 100, now);
            let delay = Delay::Percentile(percentile());
            assert_eq!(Trigger::default().delay(&delay, &mut window, now), Some(clamped));
        }
    }

    #[test]
    fn an_incident_moves_the_delay_no_faster_than_allowed_and_not_beyond_the_maximum() {
        let mut now = Instant::from_nanos(1);
        let mut window = Window::new(MS(1000), now);
        let mut trigger = Trigger::default();
        let delay = Delay::Percentile(percentile());
        fill(&mut window, MS(10), 100, now);
        let calm = trigger.delay(&delay, &mut window, now).unwrap();
        for step in 1..=260 {
            now += REFRESH;
            fill(&mut window, MS(5000), 100, now);
            let found = trigger.delay(&delay, &mut window, now).unwrap();
            let allowed = calm.mul_f64(2f64.powf(f64::from(step) / 64.0) * 1.0001);
            assert!(found <= allowed && found <= MS(100), "{found:?} at step {step}");
        }
        let found = trigger.delay(&delay, &mut window, now).unwrap();
        assert!((MS(40)..MS(41)).contains(&found), "four times what it was: {found:?}");
    }

    #[test]
    fn a_shift_that_stays_is_learned_in_the_end_and_one_that_goes_is_forgotten_at_once() {
        let mut now = Instant::from_nanos(1);
        let mut window = Window::new(MS(1000), now);
        let mut trigger = Trigger::default();
        let delay = Delay::Percentile(Percentile { max: MS(1000), ..percentile() });
        fill(&mut window, MS(5), 100, now);
        trigger.delay(&delay, &mut window, now);
        let mut after = |latency, seconds: u64| {
            for _ in 0..seconds * 4 {
                now += MS(250);
                fill(&mut window, latency, 20, now);
                trigger.delay(&delay, &mut window, now);
            }
            trigger.delay(&delay, &mut window, now).unwrap()
        };
        let near = |found: Duration, expected| {
            let off = found.as_secs_f64() / MS(expected).as_secs_f64();
            assert!((0.97..1.03).contains(&off), "{found:?}, not {expected} ms");
        };
        near(after(MS(80), 60), 21);
        near(after(MS(80), 540), 40);
        near(after(MS(80), 600), 80);
        near(after(MS(5), 60), 5);
        near(after(MS(80), 60), 21);
    }

    /// A draw from an exponential distribution of that mean.
    fn exponential(random: &mut Random, mean: f64) -> Duration {
        let uniform = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
        Duration::from_secs_f64(-mean * (1.0 - uniform).ln())
    }

    /// A call each millisecond for so many seconds, whose copies take as long as `mean` says, in
    /// milliseconds at that second; slow ones are hedged, and the loser's time is censored. The
    /// share of calls that were hedged, by the second, and the longest delay.
    fn simulate(seconds: u64, by: Percentile, mean: impl Fn(f64) -> f64) -> (Vec<f64>, Duration) {
        let start = Instant::from_nanos(1);
        let mut window = Window::new(Duration::from_secs(10), start);
        let (mut trigger, mut random) = (Trigger::default(), Random::new(7));
        let (mut shares, mut longest) = (Vec::new(), Duration::ZERO);
        for second in 0..seconds {
            let mut hedged = 0;
            for call in 0..1000 {
                let now = start + MS(second * 1000 + call);
                let mean = mean(second as f64) / 1e3;
                let delay = trigger.delay(&Delay::Percentile(by), &mut window, now);
                let (first, second) =
                    (exponential(&mut random, mean), exponential(&mut random, mean));
                longest = longest.max(delay.unwrap_or_default());
                match delay {
                    Some(delay) if first > delay => {
                        hedged += 1;
                        let (winner, other) = (first.min(delay + second), first > delay + second);
                        window.answered(if other { second } else { first }, now);
                        window.censored(if other { winner } else { winner - delay }, now);
                    }
                    _ => window.answered(first, now),
                }
            }
            shares.push(f64::from(hedged) / 1000.0);
        }
        (shares, longest)
    }

    #[test]
    fn the_share_of_hedged_calls_stays_at_its_target_while_the_latencies_shift() {
        // They double in a minute, stay there, and go back.
        let mean = |second: f64| match second {
            ..60.0 => 2.0,
            ..120.0 => 2.0 * 2f64.powf((second - 60.0) / 60.0),
            ..180.0 => 4.0,
            _ => 4.0 / 2f64.powf(((second - 180.0) / 60.0).min(1.0)),
        };
        let (shares, _) = simulate(300, Percentile::default(), mean);
        for (second, ten) in shares[10..].chunks(10).enumerate() {
            let share = ten.iter().sum::<f64>() / 10.0;
            assert!((0.03..0.075).contains(&share), "{share} from second {}", 10 + 10 * second);
        }
    }

    #[test]
    fn no_incident_raises_the_delay_without_bound_and_it_is_forgotten_afterwards() {
        let by = Percentile { max: Duration::from_secs(10), ..Percentile::default() };
        let mean = |second: f64| if (60.0..120.0).contains(&second) { 200.0 } else { 2.0 };
        let (shares, longest) = simulate(180, by, mean);
        // The 95th percentile is three times the mean: 6 ms, of which four times, and noise.
        assert!(longest < MS(30), "{longest:?}");
        assert!(shares[62..120].iter().all(|&share| share > 0.8), "these are slow, and it says so");
        let share = shares[150..].iter().sum::<f64>() / 30.0;
        assert!((0.03..0.075).contains(&share), "{share} when all is well again");
    }

    #[test]
    fn when_nobody_saw_the_percentile_the_delay_is_the_maximum() {
        let now = Instant::from_nanos(1);
        let mut window = Window::new(MS(1000), now);
        fill(&mut window, MS(5), 50, now);
        (0..50).for_each(|_| window.censored(MS(5), now));
        let delay = Delay::Percentile(percentile());
        assert_eq!(Trigger::default().delay(&delay, &mut window, now), Some(MS(100)));
    }
}
