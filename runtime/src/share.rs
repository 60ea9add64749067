//! What part of a core's time background tasks get while others want it too.
//!
//! Work that is urgent earns them time, in proportion; while they use it up they run though
//! somebody else is ready. They save no more than one budget, so that nobody ever waits longer for
//! them, and they pay back what a long poll took beyond it. While nobody else is ready they run for
//! nothing.

use bowline_time::Duration;

/// A part of a core's time, and what has been earned of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    percent: u8,
    /// No more than this is saved.
    most: Duration,
    earned: Duration,
    owed: Duration,
}

impl Share {
    /// So many percent of the time, from 1 to 50: as no more than a budget is saved, and others may
    /// use one up in each turn, more could not be kept to.
    pub(crate) fn new(percent: u8, most: Duration) -> Share {
        let percent = percent.clamp(1, 50);
        // A budget of nothing is allowed, and still lets each stage go on.
        let most = most.max(Duration::from_micros(1));
        Share { percent, most, earned: Duration::ZERO, owed: Duration::ZERO }
    }

    /// Others ran for so long while background tasks waited.
    pub(crate) fn earn(&mut self, others: Duration) {
        let earned = others * u32::from(self.percent) / u32::from(100 - self.percent);
        let paid = earned.min(self.owed);
        self.owed -= paid;
        self.earned = (self.earned + (earned - paid)).min(self.most);
    }

    /// Background tasks ran for so long while others waited.
    pub(crate) fn spend(&mut self, time: Duration) {
        self.owed += time.saturating_sub(self.earned);
        self.earned = self.earned.saturating_sub(time);
    }

    /// Whether they may run though others wait.
    pub(crate) fn is_earned(&self) -> bool {
        !self.earned.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Duration = Duration::from_micros(200);

    /// The percentage that background tasks get, and for how long they run at most at once, if
    /// others always have work of so many microseconds and a background poll takes so many.
    fn course(percent: u8, work: u64, poll: u64) -> (f64, Duration) {
        let mut share = Share::new(percent, BUDGET);
        let (mut others, mut background, mut longest) = (0, 0, Duration::ZERO);
        while others + background < 10_000_000 {
            others += work;
            share.earn(Duration::from_micros(work));
            let mut ran = Duration::ZERO;
            while share.is_earned() {
                background += poll;
                share.spend(Duration::from_micros(poll));
                ran += Duration::from_micros(poll);
            }
            longest = longest.max(ran);
        }
        (100.0 * background as f64 / (others + background) as f64, longest)
    }

    #[test]
    fn background_tasks_get_their_share_whatever_polls_take() {
        for percent in [1, 10, 50] {
            for work in [5, 50, 190] {
                for poll in [1, 20, 150, 5_000] {
                    let (got, _) = course(percent, work, poll);
                    let off = (got - f64::from(percent)).abs();
                    assert!(off < 1.0, "{got} % for {percent} %, work {work}, poll {poll}");
                }
            }
        }
    }

    #[test]
    fn nobody_waits_longer_than_a_budget_and_a_poll() {
        for percent in [1, 10, 50] {
            for poll in [1, 20, 150] {
                let (_, longest) = course(percent, 100_000, poll);
                assert!(longest <= BUDGET + Duration::from_micros(poll), "{longest:?}");
            }
        }
    }

    #[test]
    fn a_share_is_neither_nothing_nor_more_than_half() {
        for percent in [0, 255] {
            let mut share = Share::new(percent, BUDGET);
            assert!(!share.is_earned());
            share.earn(Duration::from_micros(100));
            assert!(share.is_earned());
            share.spend(Duration::from_micros(100));
            assert!(!share.is_earned());
        }
    }
}
