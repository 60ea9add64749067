//! When hedging does harm, it switches itself off; after a while it tries again.
//!
//! What speaks against it is counted over a window. When the window has passed and the calls in it
//! are enough to judge by, the worst reason, if any, switches hedging off for a time. After that it
//! is on again, on probation: the next window decides anew.

use core::time::Duration;

use bowline_time::Instant;

use super::config::{ConfigError, check, check_span};

/// When hedging switches itself off.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AutoOff {
    /// How long is counted before a judgement. 10 ms to 1 h.
    pub window: Duration,
    /// With fewer calls in the window there is none. At least 1.
    pub least_calls: u32,
    /// Copies that servers refused or shed, per call. Above 0.
    pub max_pushback: f64,
    /// Calls that failed with the system's errors or missed their deadline, per call. 0 to 1.
    pub max_errors: f64,
    /// Copies that waited on the answering server, on average over its replies. Above 0.
    pub max_queued: f64,
    /// Hedges whose reply was used, per hedge, once there were [`AutoOff::least_hedges`]. 0 to 1.
    pub min_wins: f64,
    /// With fewer hedges in the window the wins say nothing. At least 1.
    pub least_hedges: u32,
    /// Hedges that fell due, as a multiple of what the percentile implies: far above, the
    /// latencies have shifted. Above 1; no matter with a fixed delay.
    pub max_excess: f64,
    /// How long it stays off before it is tried again. Up to 1 h.
    pub off_for: Duration,
}

impl Default for AutoOff {
    /// Judges each second by at least 200 calls and 50 hedges; off for 5 s above 10 % pushback, 20 %
    /// errors, 64 queued, or 5 times the hedges that the percentile implies, or below 1 % wins.
    fn default() -> Self {
        AutoOff {
            window: Duration::from_secs(1),
            least_calls: 200,
            max_pushback: 0.1,
            max_errors: 0.2,
            max_queued: 64.0,
            min_wins: 0.01,
            least_hedges: 50,
            max_excess: 5.0,
            off_for: Duration::from_secs(5),
        }
    }
}

impl AutoOff {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let hour = Duration::from_secs(3600);
        let window = self.window;
        let held = window >= Duration::from_millis(10) && window <= hour;
        check_span("hedge.auto_off.window", window, held, "10 ms to 1 h")?;
        let (calls, hedges) = (self.least_calls, self.least_hedges);
        check("hedge.auto_off.least_calls", calls, calls > 0, "at least 1")?;
        check("hedge.auto_off.least_hedges", hedges, hedges > 0, "at least 1")?;
        let pushback = self.max_pushback;
        check("hedge.auto_off.max_pushback", pushback, pushback > 0.0, "above 0")?;
        let share = |share: f64| (0.0..=1.0).contains(&share);
        check("hedge.auto_off.max_errors", self.max_errors, share(self.max_errors), "0 to 1")?;
        check("hedge.auto_off.max_queued", self.max_queued, self.max_queued > 0.0, "above 0")?;
        check("hedge.auto_off.min_wins", self.min_wins, share(self.min_wins), "0 to 1")?;
        check("hedge.auto_off.max_excess", self.max_excess, self.max_excess > 1.0, "above 1")?;
        check_span("hedge.auto_off.off_for", self.off_for, self.off_for <= hour, "up to 1 h")
    }
}

/// Why hedging was switched off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffReason {
    /// Servers refused or shed too much.
    Pushback,
    /// Too many calls failed.
    Errors,
    /// Too much waited on the servers.
    Queued,
    /// Hedges hardly ever won.
    NoWins,
    /// Far more hedges fell due than the percentile implies.
    Excess,
}

/// What happened that matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Call,
    Failed,
    Pushback,
    /// A reply came, with so many copies waiting on its server.
    Reply {
        queued: u16,
    },
    /// A hedge fell due, whether or not it was sent.
    Due,
    Sent,
    Won,
}

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    calls: u32,
    failed: u32,
    pushback: u32,
    replies: u32,
    queued: u64,
    due: u32,
    sent: u32,
    won: u32,
}

/// The watch over one method's hedges under one policy.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Guard {
    counts: Counts,
    began: Option<Instant>,
    off_until: Option<Instant>,
}

/// What a look at the guard changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Off(OffReason),
    On,
}

impl Guard {
    /// Hedging is on, as of the last look.
    pub(crate) fn is_on(&self) -> bool {
        self.off_until.is_none()
    }

    pub(crate) fn note(&mut self, event: Event) {
        let counts = &mut self.counts;
        match event {
            Event::Call => counts.calls += 1,
            Event::Failed => counts.failed += 1,
            Event::Pushback => counts.pushback += 1,
            Event::Reply { queued } => {
                counts.replies += 1;
                counts.queued += u64::from(queued);
            }
            Event::Due => counts.due += 1,
            Event::Sent => counts.sent += 1,
            Event::Won => counts.won += 1,
        }
    }

    /// Judges, if it is time to. `quantile` is the percentile that triggers, if one does.
    pub(crate) fn look(
        &mut self,
        rule: &AutoOff,
        quantile: Option<f64>,
        now: Instant,
    ) -> Option<Change> {
        if let Some(until) = self.off_until {
            if now < until {
                return None;
            }
            *self = Guard { began: Some(now), ..Guard::default() };
            return Some(Change::On);
        }
        let began = *self.began.get_or_insert(now);
        if now - began < rule.window {
            return None;
        }
        let reason = self.counts.reason(rule, quantile);
        *self = Guard { began: Some(now), ..Guard::default() };
        self.off_until = reason.map(|_| now + rule.off_for);
        reason.map(Change::Off)
    }
}

impl Counts {
    fn reason(&self, rule: &AutoOff, quantile: Option<f64>) -> Option<OffReason> {
        if self.calls < rule.least_calls {
            return None;
        }
        let per = |count: u32, of: u32| f64::from(count) / f64::from(of.max(1));
        let queued = self.queued as f64 / f64::from(self.replies.max(1));
        // What the percentile implies, and three standard deviations of its noise.
        let implied = quantile.map(|quantile| {
            let mean = f64::from(self.calls) * (1.0 - quantile);
            mean * rule.max_excess + 3.0 * mean.sqrt()
        });
        if per(self.pushback, self.calls) > rule.max_pushback {
            Some(OffReason::Pushback)
        } else if per(self.failed, self.calls) > rule.max_errors {
            Some(OffReason::Errors)
        } else if queued > rule.max_queued {
            Some(OffReason::Queued)
        } else if implied.is_some_and(|implied| f64::from(self.due) > implied) {
            Some(OffReason::Excess)
        } else if self.sent >= rule.least_hedges && per(self.won, self.sent) < rule.min_wins {
            Some(OffReason::NoWins)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const START: Instant = Instant::from_nanos(1_000);

    /// The judgement after a window with this many of each event.
    fn judged(quantile: Option<f64>, events: &[(Event, u32)]) -> Option<Change> {
        let mut guard = Guard::default();
        assert_eq!(guard.look(&AutoOff::default(), quantile, START), None);
        for &(event, count) in events {
            (0..count).for_each(|_| guard.note(event));
        }
        guard.look(&AutoOff::default(), quantile, START + SECOND)
    }

    #[test]
    fn each_reason_switches_it_off() {
        let calls = (Event::Call, 1000);
        let off = |reason| Some(Change::Off(reason));
        assert_eq!(judged(None, &[calls, (Event::Pushback, 101)]), off(OffReason::Pushback));
        assert_eq!(judged(None, &[calls, (Event::Failed, 201)]), off(OffReason::Errors));
        let queued = Event::Reply { queued: 65 };
        assert_eq!(judged(None, &[calls, (queued, 900)]), off(OffReason::Queued));
        assert_eq!(judged(None, &[calls, (Event::Sent, 50)]), off(OffReason::NoWins));
        assert_eq!(judged(Some(0.95), &[calls, (Event::Due, 272)]), off(OffReason::Excess));
    }

    #[test]
    fn what_is_within_bounds_leaves_it_on() {
        let queued = Event::Reply { queued: 64 };
        let events = [
            (Event::Call, 1000),
            (Event::Pushback, 100),
            (Event::Failed, 200),
            (queued, 900),
            (Event::Due, 271),
            (Event::Sent, 60),
            (Event::Won, 1),
        ];
        assert_eq!(judged(Some(0.95), &events), None);
        assert_eq!(judged(None, &[(Event::Call, 1000), (Event::Due, 1000)]), None, "fixed delay");
    }

    #[test]
    fn a_few_calls_are_no_ground_for_a_judgement() {
        assert_eq!(judged(None, &[(Event::Call, 199), (Event::Failed, 199)]), None);
        assert_eq!(judged(None, &[(Event::Call, 1000), (Event::Sent, 49)]), None);
    }

    #[test]
    fn it_comes_back_on_probation_and_the_next_window_decides_anew() {
        let rule = AutoOff::default();
        let mut guard = Guard::default();
        let mut now = START;
        guard.look(&rule, None, now);
        for _ in 0..2 {
            (0..1000).for_each(|_| guard.note(Event::Call));
            (0..1000).for_each(|_| guard.note(Event::Failed));
            now += SECOND;
            assert_eq!(guard.look(&rule, None, now), Some(Change::Off(OffReason::Errors)));
            now += 4 * SECOND;
            assert_eq!(guard.look(&rule, None, now), None);
            assert!(!guard.is_on());
            now += SECOND;
            assert_eq!(guard.look(&rule, None, now), Some(Change::On));
            assert!(guard.is_on());
        }
        (0..1000).for_each(|_| guard.note(Event::Call));
        now += SECOND;
        assert_eq!(guard.look(&rule, None, now), None, "all is well again");
    }
}
