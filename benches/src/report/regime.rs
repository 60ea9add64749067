//! Whether tied requests suit a workload.
//!
//! Two tied copies both start when they reach the heads of their queues within one cancel's way
//! of each other. Where both queue, and with the usual stagger, that happens in about 0.6 x cancel
//! delay / mean service time of the calls: seldom where reads take milliseconds, often where they
//! take microseconds. Where the first copy finds a free slot it starts at once, and its cancel is
//! there before the second copy: at a low load double starts are rarer.

use core::time::Duration;

use crate::units::show_duration;

/// Share of calls that start twice, at most, for tied requests to be a bargain.
const GOOD_BOTH_STARTED: f64 = 0.02;
/// Double starts for each cancel delay by which the service time is divided, with the stagger.
const STARTS_PER_DELAY: f64 = 0.6;

/// What decides how often both copies start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regime {
    /// Mean time for which a copy runs.
    pub service: Duration,
    /// Time from one copy's start until its twin's server has the cancel.
    pub cancel_delay: Duration,
}

impl Regime {
    /// The share of calls of which both copies are expected to start where both queue.
    pub fn expected_both_started(&self) -> f64 {
        let delays = self.cancel_delay.as_secs_f64() / self.service.as_secs_f64().max(1e-9);
        (STARTS_PER_DELAY * delays).min(1.0)
    }

    /// The shortest mean service time that tied requests suit.
    fn least_service(&self) -> Duration {
        self.cancel_delay.mul_f64(STARTS_PER_DELAY / GOOD_BOTH_STARTED)
    }
}

/// The verdict, with its ground. `both_started` is the measured share.
pub(super) fn statement(regime: Option<&Regime>, both_started: f64) -> String {
    let measured = format!("both copies started in {:.2} % of the calls", 100.0 * both_started);
    let ground = regime.map_or_else(String::new, |regime| {
        format!(
            "; a cancel takes about {} and a read {} on average, so that {:.2} % are to be \
             expected where all queue",
            show_duration(regime.cancel_delay),
            show_duration(regime.service),
            100.0 * regime.expected_both_started(),
        )
    });
    let load_saves = regime.is_some_and(|r| r.expected_both_started() > GOOD_BOTH_STARTED);
    if both_started <= GOOD_BOTH_STARTED && load_saves {
        return format!(
            "Tied requests suit this workload AT THIS LOAD, under which few copies queue: \
             {measured}{ground}. At a higher one prefer delayed hedging for work this short."
        );
    }
    if both_started <= GOOD_BOTH_STARTED {
        return format!("Tied requests suit this workload: {measured}{ground}.");
    }
    let bound = regime.map_or_else(String::new, |regime| {
        format!(" Here they suit reads of {} or longer.", show_duration(regime.least_service()))
    });
    format!(
        "This workload lies OUTSIDE the regime that suits tied requests: {measured}, more than \
         {:.0} %{ground}.{bound} Prefer delayed hedging for work this short.",
        100.0 * GOOD_BOTH_STARTED
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORAGE: Regime =
        Regime { service: Duration::from_millis(5), cancel_delay: Duration::from_micros(100) };

    #[test]
    fn reads_of_milliseconds_are_inside() {
        assert!((STORAGE.expected_both_started() - 0.012).abs() < 1e-9);
        let text = statement(Some(&STORAGE), 0.011);
        assert!(text.starts_with("Tied requests suit") && text.contains("1.10 %"), "{text}");
    }

    #[test]
    fn short_handlers_are_outside_and_hear_what_would_suit() {
        let short = Regime { service: Duration::from_micros(20), ..STORAGE };
        assert_eq!(short.expected_both_started(), 1.0);
        let text = statement(Some(&short), 0.3);
        assert!(text.contains("OUTSIDE") && text.contains("3.00 ms or longer"), "{text}");
    }

    #[test]
    fn short_handlers_at_a_low_load_hear_that_the_load_saves_them() {
        let short = Regime { service: Duration::from_micros(40), ..STORAGE };
        let text = statement(Some(&short), 0.001);
        assert!(text.contains("AT THIS LOAD") && text.contains("0.10 %"), "{text}");
    }

    #[test]
    fn the_measured_share_decides_where_delays_are_unknown() {
        assert!(statement(None, 0.001).starts_with("Tied requests suit"));
        assert!(statement(None, 0.1).contains("OUTSIDE"));
    }
}
