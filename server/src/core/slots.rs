//! How many copies may run at once: so many, or as many as do good.
//!
//! The adaptive limit goes by the gradient of how long copies hold their slots: while running more
//! at once does not make each of them slower, and copies wait, there is more to gain, and the
//! limit goes up; when each takes longer than it does with few beside it, they only wait for each
//! other inside the handlers (a disk, a lock), where nobody can withdraw or shed them, and the limit
//! goes down. (Netflix's concurrency-limits, 2018, does it by round trips; here queue wait and service
//! are told apart, so that a queue does not look like slow handlers.)

use core::time::Duration;

use bowline_time::Instant;

/// The bounds of an adaptive limit. The upper one is [`Config::slots`](super::Config::slots).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adaptive {
    /// Never fewer slots than these.
    pub min: u32,
    /// The limit is looked at after so long, if enough copies have ended since.
    pub interval: Duration,
}

impl Default for Adaptive {
    /// At least one slot, looked at ten times a second.
    fn default() -> Self {
        Adaptive { min: 1, interval: Duration::from_millis(100) }
    }
}

/// A mean of fewer copies than this says nothing.
const ENOUGH: u64 = 16;
/// So much longer than with few beside them copies may take: a quarter.
const TOLERANCE: f64 = 1.25;
/// Weight of a new limit against the old one.
const WEIGHT: f64 = 0.25;
/// After so many looks, what copies take with few beside them is measured anew: for one interval a
/// quarter of the slots are used. Or handlers that became slower for good would never be believed.
const PROBE_EVERY: u32 = 300;
const PROBE: f64 = 0.25;

#[derive(Debug)]
pub(super) struct Slots {
    max: u32,
    adaptive: Option<Adaptive>,
    limit: f64,
    /// The shortest mean service time since it was measured anew, in ns: what one takes with few
    /// beside it.
    alone_ns: f64,
    /// Looks until it is.
    probe_in: u32,
    /// The limit from before, while it is.
    probing: Option<f64>,
    /// Since the last look: copies that ended, and what they took together, in ns.
    ended: u64,
    held_ns: u64,
    /// Since the last look a copy had to wait for a slot.
    waited: bool,
    looked: Option<Instant>,
}

impl Slots {
    pub(super) const fn new(max: u32, adaptive: Option<Adaptive>) -> Slots {
        let limit = match adaptive {
            // From below: too few slots are noticed at once, by a queue.
            Some(Adaptive { min, .. }) => min,
            None => max,
        };
        Slots {
            max,
            adaptive,
            limit: limit as f64,
            alone_ns: f64::MAX,
            probe_in: PROBE_EVERY,
            probing: None,
            ended: 0,
            held_ns: 0,
            waited: false,
            looked: None,
        }
    }

    /// How many copies may run now.
    pub(super) const fn limit(&self) -> u32 {
        self.limit as u32
    }

    /// A copy waits though it could start, were there a slot.
    pub(super) const fn wanted(&mut self) {
        self.waited = true;
    }

    /// A copy left its slot.
    pub(super) fn served(&mut self, held: Duration) {
        self.ended += 1;
        let held = u64::try_from(held.as_nanos()).unwrap_or(u64::MAX);
        self.held_ns = self.held_ns.saturating_add(held);
    }

    /// Looks whether more slots would do good, or fewer.
    pub(super) fn look(&mut self, now: Instant) {
        let Some(Adaptive { min, interval }) = self.adaptive else { return };
        let looked = *self.looked.get_or_insert(now);
        if self.ended < ENOUGH || now < looked + interval {
            return;
        }
        let mean = (self.held_ns as f64 / self.ended as f64).max(1.0);
        let waited = self.waited;
        (self.ended, self.held_ns, self.waited, self.looked) = (0, 0, false, Some(now));
        if let Some(before) = self.probing.take() {
            (self.alone_ns, self.limit) = (mean, before);
            return;
        }
        self.alone_ns = self.alone_ns.min(mean);
        let gradient = (TOLERANCE * self.alone_ns / mean).clamp(0.5, 1.0);
        // Where nobody waits, more slots would change nothing.
        let more = if waited { root(self.limit) } else { 0.0 };
        let wanted = self.limit * gradient + more;
        let next = self.limit + WEIGHT * (wanted - self.limit);
        self.limit = next.clamp(min.into(), self.max.into());
        self.probe_in -= 1;
        if self.probe_in == 0 {
            self.probe_in = PROBE_EVERY;
            self.probing = Some(self.limit);
            self.limit = (self.limit * PROBE).max(min.into());
        }
    }
}

/// A square root without the standard library: Newton's method, three digits.
fn root(of: f64) -> f64 {
    (0..12).fold(of.max(1.0), |root, _| 0.5 * (root + of / root))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Handlers that go on side by side up to a number, and share what there is beyond it: a disk.
    /// Copies always wait. Returns the limit after so many looks.
    fn on_a_disk(slots: &mut Slots, parallel: u32, alone: Duration, looks: u32) -> u32 {
        let mut now = slots.looked.unwrap_or(Instant::EPOCH);
        slots.look(now);
        for _ in 0..looks {
            let running = slots.limit();
            let held = alone * running.max(parallel) / parallel;
            (0..100).for_each(|_| slots.served(held));
            slots.wanted();
            now += Duration::from_millis(100);
            slots.look(now);
        }
        slots.limit()
    }

    const MS: Duration = Duration::from_millis(1);

    fn adaptive(max: u32) -> Slots {
        Slots::new(max, Some(Adaptive::default()))
    }

    #[test]
    fn a_fixed_limit_stays_where_it_is() {
        let mut slots = Slots::new(16, None);
        assert_eq!(on_a_disk(&mut slots, 2, MS, 100), 16);
    }

    #[test]
    fn the_limit_finds_what_goes_on_side_by_side() {
        for parallel in [4, 16, 64] {
            let found = on_a_disk(&mut adaptive(1024), parallel, MS, 200);
            assert!(found >= parallel && found <= 3 * parallel, "{found} for {parallel}");
        }
    }

    #[test]
    fn it_comes_down_when_less_goes_on_side_by_side() {
        let mut slots = adaptive(1024);
        let before = on_a_disk(&mut slots, 64, MS, 200);
        let after = on_a_disk(&mut slots, 8, MS, 60);
        assert!(after * 2 < before, "{before} -> {after}");
    }

    #[test]
    fn handlers_that_became_slower_for_good_are_believed_in_the_end() {
        let mut slots = adaptive(1024);
        let before = on_a_disk(&mut slots, 16, MS, 200);
        let after = on_a_disk(&mut slots, 16, 4 * MS, 2 * PROBE_EVERY);
        assert!(after * 4 >= before * 3, "{before} -> {after}");
    }

    #[test]
    fn it_does_not_creep_upwards() {
        let mut slots = adaptive(1024);
        let found = on_a_disk(&mut slots, 4, MS, 20_000);
        assert!(found <= 12, "{found}");
    }

    #[test]
    fn it_stays_within_its_bounds() {
        assert_eq!(on_a_disk(&mut adaptive(4), 64, MS, 200), 4);
        let mut slots = Slots::new(64, Some(Adaptive { min: 3, ..Adaptive::default() }));
        assert!(on_a_disk(&mut slots, 1, MS, 200) >= 3);
    }

    #[test]
    fn where_nobody_waits_it_does_not_grow() {
        let mut slots = adaptive(64);
        let mut now = Instant::EPOCH;
        for _ in 0..100 {
            (0..100).for_each(|_| slots.served(MS));
            now += Duration::from_millis(100);
            slots.look(now);
        }
        assert_eq!(slots.limit(), 1);
    }

    #[test]
    fn few_copies_say_nothing() {
        let mut slots = adaptive(64);
        slots.look(Instant::EPOCH);
        (0..ENOUGH - 1).for_each(|_| slots.served(MS));
        slots.wanted();
        slots.look(Instant::EPOCH + Duration::from_secs(9));
        assert_eq!(slots.limit(), 1);
    }
}
