//! How the second of two tied copies follows the first.

use core::time::Duration;

use super::policy::{Stagger, TiePolicy};

/// How long the second copy waits, given the longer of the two replicas' round trips.
///
/// Two one-way delays let the news of the first copy's start reach the second's server, over the
/// client or over the mesh, before the second copy does: an idle pair then never starts twice.
pub fn stagger(from: Stagger, rtt: Option<Duration>) -> Duration {
    match (from, rtt) {
        (Stagger::Fixed(stagger), _) => stagger,
        (Stagger::Measured { fallback, max, .. }, None) => fallback.min(max),
        (Stagger::Measured { factor, max, .. }, Some(rtt)) => (rtt / 2).mul_f64(factor).min(max),
    }
}

/// How long after one copy's start the other may still turn up: the life of a tombstone.
///
/// The stagger and ten one-way delays, for queues on the way, or the configured least.
pub fn window(policy: &TiePolicy, stagger: Duration, rtt: Option<Duration>) -> Duration {
    policy.window.max(stagger + rtt.unwrap_or_default() * 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn the_stagger_is_so_many_one_way_delays_and_never_above_the_maximum() {
        let measured = Stagger::Measured { factor: 2.0, fallback: US(200), max: US(1000) };
        assert_eq!(stagger(measured, Some(US(100))), US(100));
        assert_eq!(stagger(measured, Some(US(5000))), US(1000));
        assert_eq!(stagger(measured, None), US(200));
        assert_eq!(stagger(Stagger::Fixed(US(0)), Some(US(100))), US(0));
    }

    #[test]
    fn the_window_outlasts_the_stagger_and_the_way() {
        let policy = TiePolicy { window: US(1000), ..TiePolicy::default() };
        assert_eq!(window(&policy, US(100), Some(US(100))), US(1000));
        assert_eq!(window(&policy, US(800), Some(US(100))), US(1300));
    }
}
