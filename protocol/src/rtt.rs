//! How long a round trip usually takes.

use core::time::Duration;

/// So many measurements are remembered.
const REMEMBERED: usize = 8;

/// The median of the last few round trips that were measured.
///
/// What is wanted of it is the network's part, and each measurement holds the peer's pauses, too. A mean
/// that was smoothed as TCP's is (RFC 6298) would tell for a quarter of a minute of one pong that came
/// after a pause: for so long second copies would be sent too late, and calls held to be hopeless that
/// are not. A median hears of nothing that is not so half of the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    last: [Duration; REMEMBERED],
    /// How many were measured.
    count: usize,
}

impl RoundTrip {
    pub(crate) const NONE: RoundTrip = RoundTrip { last: [Duration::ZERO; REMEMBERED], count: 0 };

    pub(crate) fn measured(&mut self, time: Duration) {
        self.last[self.count % REMEMBERED] = time;
        self.count += 1;
    }

    /// None if nothing was measured. Of an even number, the shorter of the two in the middle.
    pub(crate) fn usual(&self) -> Option<Duration> {
        let known = self.count.min(REMEMBERED);
        let mut sorted = self.last;
        sorted[..known].sort_unstable();
        sorted[..known].get(known.checked_sub(1)? / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn after(times: &[u64]) -> Option<Duration> {
        let mut trip = RoundTrip::NONE;
        times.iter().for_each(|&time| trip.measured(Duration::from_millis(time)));
        trip.usual()
    }

    #[test]
    fn a_pause_is_not_usual_however_long_it_is() {
        const MS: fn(u64) -> Option<Duration> = |ms| Some(Duration::from_millis(ms));
        assert_eq!(after(&[]), None);
        assert_eq!(after(&[2]), MS(2));
        assert_eq!(after(&[2, 60]), MS(2));
        assert_eq!(after(&[1, 1, 1, 5000, 1, 60, 1, 60]), MS(1));
        assert_eq!(after(&[3, 1, 2, 5, 4]), MS(3));
    }

    #[test]
    fn a_network_that_becomes_slower_is_seen_after_some_measurements() {
        let mut times = Vec::from([1; 8]);
        times.extend([10; 5]);
        assert_eq!(after(&times), Some(Duration::from_millis(10)));
        assert_eq!(after(&times[..12]), Some(Duration::from_millis(1)));
    }
}
