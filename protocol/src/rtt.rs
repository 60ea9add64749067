//! How long a round trip takes.

use core::time::Duration;

/// So many measurements are remembered.
const REMEMBERED: usize = 8;

/// The longest but one of the last few round trips that were measured.
///
/// Who goes by it wants to be right nearly always, so that the middle of them would be too short: a
/// second copy that follows the first too closely starts beside it. But each measurement holds the
/// peer's pauses, too. A mean that was smoothed as TCP's is (RFC 6298) would tell for a quarter of a
/// minute of one pong that came after a pause: for so long second copies would be sent too late, and
/// calls held to be hopeless that are not. The longest but one hears of no pause that was alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    last: [Duration; REMEMBERED],
    /// How many were measured.
    count: usize,
    /// Asked for far more often than measured.
    known: Option<Duration>,
}

impl RoundTrip {
    pub(crate) const NONE: RoundTrip =
        RoundTrip { last: [Duration::ZERO; REMEMBERED], count: 0, known: None };

    pub(crate) fn measured(&mut self, time: Duration) {
        self.last[self.count % REMEMBERED] = time;
        self.count += 1;
        let filled = self.count.min(REMEMBERED);
        let mut sorted = self.last;
        sorted[..filled].sort_unstable();
        self.known = Some(sorted[filled.saturating_sub(2)]);
    }

    /// None if nothing was measured; if one was, that.
    pub(crate) const fn known(&self) -> Option<Duration> {
        self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: &[u64]) -> Option<Duration> {
        let mut trip = RoundTrip::NONE;
        times.iter().for_each(|&time| trip.measured(Duration::from_millis(time)));
        trip.known()
    }

    const MS: fn(u64) -> Option<Duration> = |ms| Some(Duration::from_millis(ms));

    #[test]
    fn a_pause_that_is_alone_is_not_heard_of_however_long_it_is() {
        assert_eq!(after(&[]), None);
        assert_eq!(after(&[2]), MS(2));
        assert_eq!(after(&[2, 60]), MS(2));
        assert_eq!(after(&[1, 1, 2, 5000, 1, 1, 1, 1]), MS(2));
        assert_eq!(after(&[3, 1, 2, 5, 4]), MS(4));
    }

    #[test]
    fn a_network_that_becomes_slower_is_heard_of_the_second_time_and_one_that_becomes_faster_later()
    {
        assert_eq!(after(&[1, 1, 1, 1, 1, 1, 1, 1, 10]), MS(1));
        assert_eq!(after(&[1, 1, 1, 1, 1, 1, 1, 1, 10, 10]), MS(10));
        assert_eq!(after(&[10, 10, 10, 10, 10, 10, 10, 10, 1, 1, 1, 1, 1, 1]), MS(10));
        assert_eq!(after(&[10, 10, 10, 10, 10, 10, 10, 10, 1, 1, 1, 1, 1, 1, 1]), MS(1));
    }
}
