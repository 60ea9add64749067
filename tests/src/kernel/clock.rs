//! The clock of one machine: it started whenever it liked, and runs at a rate of its own.

use core::time::Duration;

use bowline_time::Instant;

use crate::kernel::span::Nanos;

/// Maps the world's time to what one machine reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Clock {
    /// What it showed when the world began, in nanoseconds.
    pub offset: Nanos,
    /// How much faster than the world it runs, in parts per million. Crystals are within 100.
    pub ppm: i32,
}

const MILLION: i128 = 1_000_000;

impl Clock {
    /// What it shows at a time of the world.
    pub const fn read(self, at: Nanos) -> Instant {
        let scaled = at as i128 * (MILLION + self.ppm as i128) / MILLION;
        Instant::from_nanos(self.offset + scaled as u64)
    }

    /// The first time of the world at which it shows `instant` or later.
    pub const fn when(self, instant: Instant) -> Nanos {
        let since = instant.as_nanos().saturating_sub(self.offset) as i128;
        let rate = MILLION + self.ppm as i128;
        let at = (since * MILLION + rate - 1) / rate;
        if at > u64::MAX as i128 { u64::MAX } else { at as u64 }
    }

    /// How long `span` of its own time is in the world's.
    pub const fn world(self, span: Duration) -> Nanos {
        let rate = MILLION + self.ppm as i128;
        ((span.as_nanos() as i128 * MILLION + rate - 1) / rate) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::rng::Rng;

    #[test]
    fn a_timer_is_never_early_and_at_most_a_few_nanoseconds_late() {
        let mut rng = Rng::new(5);
        for _ in 0..10_000 {
            let clock = Clock { offset: rng.below(1 << 40), ppm: rng.below(400) as i32 - 200 };
            let deadline = Instant::from_nanos(clock.offset + rng.below(1 << 40));
            let at = clock.when(deadline);
            assert!(clock.read(at) >= deadline);
            assert!(clock.read(at) - deadline <= Duration::from_nanos(2));
            assert!(at == 0 || clock.read(at - 1) < deadline);
        }
    }
}
