//! When to stop serving first in, first out.
//!
//! A queue that is longer than it can be worked off in time makes every copy wait until its caller
//! has nearly given up, and then serves it. Whoever serves the newest first instead helps most
//! callers at once, and disappoints only those it would have disappointed anyway (Maurer, Fail at
//! scale, 2015). But a short burst must not turn the order over: like CoDel (RFC 8289) this looks at
//! the *least* that copies had to wait during an interval, not at the most.
//!
//! The target is what a stable queue rarely reaches, but never more than half of what callers
//! grant: where they are in a hurry, a queue that is stable is of no use to them either.
//!
//! There are two watermarks: the wait has to stay above the target for a whole interval to begin
//! with the newest, and to come down to half the target to go back. That alone would be fooled by a
//! queue that is short since it throws copies out; so there must have been room for all for an
//! interval, too.

use core::time::Duration;

use bowline_time::Instant;

/// The target is so many times what one copy adds to the wait. A stable queue is rarely as long
/// (M/M/1 at 70 % load: one time in a million).
const TARGET_SERVICES: u32 = 40;
/// The interval, in the same unit.
const INTERVAL_SERVICES: u32 = 100;

/// When the queue counts as overloaded. Both are lower bounds: where copies take long, 40 and 100
/// times of what each adds to the wait (mean service time by slots) count instead. In any case half
/// of what callers grant is an upper bound of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overload {
    /// Copies may wait so long.
    pub target_min: Duration,
    /// Only if all have waited longer for so long, it is an overload.
    pub interval_min: Duration,
}

impl Default for Overload {
    /// 5 ms, which few callers mind, and 100 ms, a round trip around the world (both as in RFC 8289).
    fn default() -> Self {
        Overload { target_min: Duration::from_millis(5), interval_min: Duration::from_millis(100) }
    }
}

/// What is known of a queue, after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sight {
    /// How long its oldest copy has waited; zero if there is none.
    pub(super) oldest: Duration,
    /// How much each copy that will start adds to the wait.
    pub(super) each: Duration,
    /// How much time requests had left when they came, on average.
    pub(super) granted: Duration,
}

/// Watches the queue.
#[derive(Debug)]
pub(super) struct Governor {
    config: Option<Overload>,
    /// Since when the wait is above the target.
    above_since: Option<Instant>,
    overloaded: bool,
    /// When there was last no room for a copy.
    full_at: Instant,
}

impl Governor {
    pub(super) const fn new(config: Option<Overload>) -> Governor {
        Governor { config, above_since: None, overloaded: false, full_at: Instant::EPOCH }
    }

    pub(super) const fn is_overloaded(&self) -> bool {
        self.overloaded
    }

    /// A copy came for which there was no room.
    pub(super) const fn full(&mut self, now: Instant) {
        self.full_at = now;
    }

    /// Nobody waits: true if that is no news. Most turns end so, and need no closer look.
    pub(super) const fn is_calm(&self) -> bool {
        !self.overloaded && self.above_since.is_none()
    }

    /// Looks at the queue after a turn. True if an overload begins.
    pub(super) fn look(&mut self, sight: Sight, now: Instant) -> bool {
        let Sight { oldest, each, granted } = sight;
        let Some(Overload { target_min, interval_min }) = self.config else { return false };
        let target = target_min.max(each * TARGET_SERVICES).min(granted / 2);
        let interval = interval_min.max(each * INTERVAL_SERVICES);
        if self.overloaded {
            self.overloaded = oldest > target / 2 || now < self.full_at + interval;
            return false;
        }
        if oldest <= target {
            self.above_since = None;
            return false;
        }
        let since = *self.above_since.get_or_insert(now);
        if now - since >= interval {
            self.overloaded = true;
            self.above_since = None;
        }
        self.overloaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(millis: u64) -> Instant {
        Instant::EPOCH + ms(millis)
    }

    /// Callers grant ten seconds.
    fn sight(oldest: u64, each: u64) -> Sight {
        Sight { oldest: ms(oldest), each: ms(each), granted: ms(10_000) }
    }

    fn governor() -> Governor {
        Governor::new(Some(Overload::default()))
    }

    #[test]
    fn a_burst_that_is_worked_off_within_the_interval_is_no_overload() {
        let mut governor = governor();
        for start in [0, 1_000, 2_000] {
            assert!((0..99).all(|t| !governor.look(sight(80, 0), at(start + t))));
            assert!(!governor.look(sight(2, 0), at(start + 99)));
        }
        assert!(!governor.is_overloaded());
    }

    #[test]
    fn a_wait_that_never_comes_down_for_an_interval_is_an_overload_once() {
        let mut governor = governor();
        let begins: Vec<u64> = (0..300).filter(|&t| governor.look(sight(6, 0), at(t))).collect();
        assert_eq!(begins, [100]);
    }

    #[test]
    fn an_overload_ends_at_half_the_target_and_not_before() {
        let mut governor = governor();
        (0..=100).for_each(|t| _ = governor.look(sight(50, 0), at(t)));
        governor.look(sight(3, 0), at(101));
        assert!(governor.is_overloaded());
        governor.look(sight(2, 0), at(102));
        assert!(!governor.is_overloaded());
    }

    #[test]
    fn a_queue_that_is_short_since_it_throws_copies_out_is_overloaded_still() {
        let mut governor = governor();
        (0..=100).for_each(|t| _ = governor.look(sight(50, 0), at(t)));
        governor.full(at(150));
        governor.look(sight(0, 0), at(249));
        assert!(governor.is_overloaded());
        governor.look(sight(0, 0), at(250));
        assert!(!governor.is_overloaded());
    }

    #[test]
    fn where_copies_take_long_they_may_wait_longer() {
        let mut governor = governor();
        assert!((0..1_000).all(|t| !governor.look(sight(390, 10), at(t))));
        assert!((1_000..2_000).all(|t| !governor.look(sight(410, 10), at(t))));
        assert!(governor.look(sight(410, 10), at(2_000)));
    }

    #[test]
    fn switched_off_it_never_overloads() {
        let mut governor = Governor::new(None);
        assert!((0..10_000).all(|t| !governor.look(sight(9_999, 0), at(t))));
    }

    #[test]
    fn where_callers_are_in_a_hurry_copies_may_not_wait_half_of_their_time() {
        let mut governor = governor();
        let hurried = |oldest| Sight { granted: ms(40), ..sight(oldest, 1) };
        assert!((0..1_000).all(|t| !governor.look(hurried(20), at(t))));
        assert!((1_000..1_100).all(|t| !governor.look(hurried(21), at(t))));
        assert!(governor.look(hurried(21), at(1_100)));
    }

    extern crate alloc;
    use alloc::vec::Vec;
}
