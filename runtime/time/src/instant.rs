use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point in time: nanoseconds since an epoch that only its clock knows.
///
/// Instants of one clock compare with each other; they are never sent to another host, and an
/// instant of one core's clock says nothing to another core. What crosses a wire is a [`Duration`].
///
/// Arithmetic saturates: a deadline of "never" is [`Instant::FAR_FUTURE`], and adding to it is
/// still never. 2^64 ns are 584 years.
///
/// ```
/// use bowline_time::{Duration, Instant};
///
/// let start = Instant::from_nanos(1_000);
/// let deadline = start + Duration::from_micros(5);
/// assert_eq!(deadline - start, Duration::from_micros(5));
/// assert_eq!(start - deadline, Duration::ZERO); // already past: nothing is left
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The clock's epoch.
    pub const EPOCH: Instant = Instant(0);
    /// Later than any instant that a clock will show.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// The instant `nanos` nanoseconds after the clock's epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Instant(nanos)
    }

    /// Nanoseconds since the clock's epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in whole nanoseconds, capped at 2^64 - 1 (584 years).
const fn saturating_nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(saturating_nanos(duration)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(saturating_nanos(duration)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// What lies between: zero if `earlier` is in fact later.
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Instant::FAR_FUTURE {
            f.write_str("never")
        } else {
            write!(f, "t+{:?}", Duration::from_nanos(self.0))
        }
    }
}
