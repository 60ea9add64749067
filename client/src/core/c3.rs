//! What a replica's answers take, and how far what waits there would put off the next (Suresh,
//! Canini, Schmid, Feldmann: C3: Cutting tail latency in cloud data stores via adaptive replica
//! selection, 2015).

use core::time::Duration;

use bowline_protocol::Load;
use bowline_time::Instant;

/// By how much of itself an answer moves what answers are held to take.
const STEP: f64 = 0.1;
/// Who has not answered for so long may have become another: a copy goes there to see, one at a time.
const FORGOTTEN: Duration = Duration::from_secs(1);

/// What one replica's answers tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timing {
    /// What they took to come, in seconds.
    response: f64,
    /// What of that was no waiting in a queue there.
    service: f64,
    /// How many requests were there besides.
    crowd: f64,
    /// Until when that counts.
    until: Instant,
}

impl Timing {
    /// It answered within `span`, and said that of its load.
    pub(crate) fn answered(&mut self, span: Duration, load: Load, now: Instant) {
        let response = span.as_secs_f64();
        let service = (response - load.wait.as_secs_f64()).max(1e-6);
        let crowd = f64::from(load.running) + f64::from(load.queued);
        let step = if now < self.until { STEP } else { 1.0 };
        self.response += step * (response - self.response);
        self.service += step * (service - self.service);
        self.crowd += step * (crowd - self.crowd);
        self.until = now + FORGOTTEN;
    }

    /// How badly the next copy would fare, the lower the better, where so many of ours are out for each
    /// part of its weight, and so many clients do alike: what answers take, and the cube of what is
    /// before it, as a replica that is fast and crowded is no better soon than one that is slow.
    pub(crate) fn score(&self, in_flight: u32, weight: u8, clients: u16, now: Instant) -> f64 {
        if now >= self.until {
            return if in_flight == 0 { 0.0 } else { f64::MAX };
        }
        let ours = f64::from(in_flight) * f64::from(clients);
        let before = 1.0 + (ours + self.crowd) / f64::from(weight);
        self.response - self.service + before * before * before * self.service
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);
    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn timing(span: Duration, queued: u16) -> Timing {
        let mut timing = Timing::default();
        timing.answered(span, Load { running: 0, queued, wait: Duration::ZERO }, NOW);
        timing
    }

    #[test]
    fn the_slower_the_fuller_and_the_lighter_replica_is_worse() {
        let score = |it: Timing, in_flight, weight| it.score(in_flight, weight, 10, NOW);
        let one = timing(MS(4), 2);
        assert!(score(timing(MS(12), 2), 0, 1) > score(one, 0, 1));
        assert!(score(timing(MS(4), 3), 0, 1) > score(one, 0, 1));
        assert!(score(one, 1, 1) > score(one, 0, 1) && score(one, 1, 1) > score(one, 1, 2));
        assert!(score(timing(MS(4), 9), 0, 1) > score(timing(MS(12), 2), 0, 1), "by the cube");
    }

    #[test]
    fn a_replica_of_which_nothing_is_known_gets_one_copy_to_see() {
        let known = timing(MS(4), 0);
        for unknown in [Timing::default(), timing(MS(4000), 60)] {
            let later = NOW + FORGOTTEN;
            let score = |in_flight| unknown.score(in_flight, 1, 1, later);
            assert!(score(0) < known.score(0, 1, 1, NOW) && score(1) > known.score(50, 1, 1, NOW));
        }
    }

    #[test]
    fn what_waits_in_its_queue_is_no_part_of_what_it_takes_to_serve() {
        let mut timing = Timing::default();
        timing.answered(MS(9), Load { running: 1, queued: 0, wait: MS(8) }, NOW);
        let score = timing.score(0, 1, 1, NOW);
        assert!((score - (0.008 + 8.0 * 0.001)).abs() < 1e-9, "{score}");
    }
}
