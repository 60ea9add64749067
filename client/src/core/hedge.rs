//! When a slow reply earns a second copy.

use core::time::Duration;

use bowline_time::Instant;

use super::latency::Window;
use super::policy::{Delay, Percentile};

/// How often the percentile is read: reading costs microseconds, and calls may come by the million.
const REFRESH: Duration = Duration::from_millis(20);

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
                if self.read.is_none_or(|read| now - read >= REFRESH) {
                    self.refresh(percentile, window, now);
                }
                self.delay
            }
        }
    }

    fn refresh(&mut self, percentile: &Percentile, window: &mut Window, now: Instant) {
        let elapsed = self.read.replace(now).map_or(Duration::ZERO, |read| now - read);
        if window.samples(now) < percentile.least_samples {
            self.delay = percentile.fallback;
            self.learned = false;
            return;
        }
        let Percentile { quantile, min, max, .. } = *percentile;
        let target = window.quantile(quantile, now).unwrap_or(max).clamp(min, max);
        self.delay = Some(match self.delay {
            Some(delay) if self.learned => limited(delay, target, percentile, elapsed),
            _ => target,
        });
        self.learned = true;
    }
}

/// `target`, or as near to it as the delay may come within `elapsed`.
fn limited(delay: Duration, target: Duration, by: &Percentile, elapsed: Duration) -> Duration {
    let factor = by.change_per_second.powf(elapsed.as_secs_f64().min(60.0));
    // From a delay of zero no factor leads away.
    let delay = delay.max(Duration::from_micros(1));
    target.clamp(delay.div_f64(factor), delay.mul_f64(factor)).clamp(by.min, by.max)
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
        for step in 1..=200 {
            now += MS(20);
            fill(&mut window, MS(5000), 100, now);
            let found = trigger.delay(&delay, &mut window, now).unwrap();
            let allowed = calm.mul_f64(2f64.powf(f64::from(step) * 0.02) * 1.0001);
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
