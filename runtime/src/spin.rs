//! For how long a core looks for work before it sleeps.
//!
//! To be woken costs tens of microseconds, and to look costs the CPU for as long. What is the better
//! depends on how soon work comes, of which the latest is the best guess: a core that finds work looks
//! longer the next time, up to what the program allows, and one that looked in vain only half as
//! long. It stops looking where work comes by the millisecond, and begins again as soon as it would
//! have been worth it.

use bowline_time::Duration;

/// What a sleep lasts at least, once it has begun: so late, or less, a core that slept may hear of
/// what came at once.
const WAKE: Duration = Duration::from_micros(100);

/// The least time that is worth a look is one part in so many of the most.
const STEPS: u32 = 16;

/// A time to look for work, between nothing and the most that is allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    most: Duration,
    now: Duration,
}

impl Spin {
    /// At most so long, with which it begins.
    pub(crate) fn new(most: Duration) -> Spin {
        Spin { most, now: most }
    }

    /// Whether it ever looks.
    pub(crate) fn is_allowed(&self) -> bool {
        !self.most.is_zero()
    }

    /// For how long to look now.
    pub(crate) fn span(&self) -> Duration {
        self.now
    }

    /// Work came while the core looked for it.
    pub(crate) fn found(&mut self) {
        self.now = self.now.saturating_mul(2).clamp(self.most / STEPS, self.most);
    }

    /// The core looked in vain, if at all, and slept: so long it waited in all.
    pub(crate) fn slept(&mut self, waited: Duration) {
        if waited <= self.most.saturating_add(WAKE) {
            return self.found();
        }
        self.now = match self.now / 2 {
            less if less < self.most / STEPS => Duration::ZERO,
            half => half,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(40);

    /// Waits for work that comes after so many microseconds each time, and hears of it 60 later if it
    /// sleeps. Gives for how many microseconds it looked each time.
    fn course(spin: &mut Spin, gaps: impl IntoIterator<Item = u64>) -> Vec<u128> {
        let wait = |gap| {
            let (gap, span) = (Duration::from_micros(gap), spin.span());
            match gap <= span {
                true => spin.found(),
                false => spin.slept(gap + Duration::from_micros(60)),
            }
            gap.min(span).as_micros()
        };
        gaps.into_iter().map(wait).collect()
    }

    #[test]
    fn a_core_whose_work_comes_late_soon_looks_for_it_no_more() {
        let mut spin = Spin::new(MOST);
        assert_eq!(course(&mut spin, [1000; 8]), [40, 20, 10, 5, 2, 0, 0, 0]);
        assert_eq!(spin.span(), Duration::ZERO);
    }

    #[test]
    fn a_core_whose_work_comes_soon_again_looks_for_it_again() {
        let mut spin = Spin::new(MOST);
        course(&mut spin, [1000; 8]);
        // It sleeps over the first ones, as its spans are too short still.
        assert_eq!(course(&mut spin, [30; 8]), [0, 2, 5, 10, 20, 30, 30, 30]);
        assert_eq!(spin.span(), MOST);
    }

    #[test]
    fn a_pause_costs_a_core_that_finds_its_work_one_sleep() {
        let mut spin = Spin::new(MOST);
        assert_eq!(course(&mut spin, [15, 1_000_000, 15, 35, 15]), [15, 40, 15, 35, 15]);
    }

    #[test]
    fn no_look_is_longer_than_is_allowed() {
        let mut spin = Spin::new(MOST);
        course(&mut spin, [1; 100]);
        assert_eq!(spin.span(), MOST);
        let mut longest = Spin::new(Duration::MAX);
        course(&mut longest, [1, u64::MAX, 1]);
        assert_eq!(longest.span(), Duration::MAX);
        let mut none = Spin::new(Duration::ZERO);
        course(&mut none, [0, 1, 1000]);
        assert!(!none.is_allowed() && none.span().is_zero());
    }
}
