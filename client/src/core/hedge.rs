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
        self.delay = Some(match self.delay {
            Some(delay) if self.learned => limited(delay, target, percentile, steps),
            _ => target,
        });
        self.learned = true;
    }
}

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
        assert_eq!(trigger.delay(&delay, &mut window, now), Some(MS(100)));
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
