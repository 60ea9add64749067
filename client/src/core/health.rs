//! Which replicas are left alone for a while, since nothing comes of asking them.
//!
//! So many failures in a row eject a replica: it is asked only if there is no other. When its time
//! is up, one copy is sent to it, as a probe; a good end of that readmits it, a bad one ejects it
//! for twice as long. That a replica refuses work, or is told to stop, is no failure of its.

use core::time::Duration;

use bowline_time::Instant;

use super::config::{ConfigError, check, check_span};

/// When a replica is left alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EjectConfig {
    /// After so many failures in a row. At least 1.
    pub after: u32,
    /// For how long at first; twice as long each time after that. 1 ms to 1 h.
    pub first: Duration,
    /// And never longer. Up to 1 h.
    pub max: Duration,
}

impl Default for EjectConfig {
    /// After five in a row, for a second at first and half a minute at most.
    fn default() -> Self {
        EjectConfig { after: 5, first: Duration::from_secs(1), max: Duration::from_secs(30) }
    }
}

impl EjectConfig {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let hour = Duration::from_secs(3600);
        check("eject.after", self.after, self.after > 0, "at least 1")?;
        let held = self.first >= Duration::from_millis(1) && self.first <= hour;
        check_span("eject.first", self.first, held, "1 ms to 1 h")?;
        check_span("eject.max", self.max, self.max <= hour, "up to 1 h")
    }
}

/// The health of one replica.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Health {
    failures: u32,
    out: Option<Out>,
}

#[derive(Clone, Copy, Debug)]
struct Out {
    until: Instant,
    wait: Duration,
    /// A copy was sent to see whether it is well again.
    probed: bool,
}

impl Health {
    /// It did not do what it was asked. True if that ejects it, now or once more.
    pub(crate) fn failed(&mut self, rule: &EjectConfig, now: Instant) -> bool {
        self.failures = self.failures.saturating_add(1);
        let wait = match self.out {
            None if self.failures < rule.after => return false,
            None => rule.first,
            Some(out) if out.probed => (out.wait * 2).min(rule.max.max(rule.first)),
            // What had been sent before it was ejected says nothing new.
            Some(_) => return false,
        };
        self.out = Some(Out { until: now + wait, wait, probed: false });
        true
    }

    /// It did. True if that readmits it.
    pub(crate) fn succeeded(&mut self) -> bool {
        self.failures = 0;
        self.out.take().is_some()
    }

    /// It is to be left alone.
    pub(crate) fn is_out(&self, now: Instant) -> bool {
        self.out.is_some_and(|out| now < out.until)
    }

    /// It is ejected, whether or not its time is up.
    pub(crate) fn is_ejected(&self) -> bool {
        self.out.is_some()
    }

    /// A copy is sent to it. If its time was up, that is the probe, and no other goes there until
    /// it had as much time again.
    pub(crate) fn asked(&mut self, now: Instant) {
        if let Some(out) = &mut self.out
            && now >= out.until
        {
            out.until = now + out.wait;
            out.probed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: EjectConfig =
        EjectConfig { after: 3, first: Duration::from_millis(10), max: Duration::from_millis(40) };
    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn ejected(now: Instant) -> Health {
        let mut health = Health::default();
        assert!(!health.failed(&RULE, now) && !health.failed(&RULE, now));
        assert!(health.failed(&RULE, now), "the third in a row");
        health
    }

    #[test]
    fn failures_in_a_row_eject_and_a_success_between_them_does_not_let_them() {
        let now = Instant::from_nanos(1);
        let mut health = Health::default();
        for _ in 0..10 {
            assert!(!health.failed(&RULE, now) && !health.failed(&RULE, now));
            assert!(!health.succeeded());
        }
        let health = ejected(now);
        assert!(health.is_out(now) && health.is_out(now + MS(9)) && !health.is_out(now + MS(10)));
    }

    #[test]
    fn a_probe_at_a_time_decides_whether_it_is_readmitted() {
        let mut now = Instant::from_nanos(1);
        let mut health = ejected(now);
        for wait in [20, 40, 40] {
            now += MS(40);
            assert!(!health.is_out(now));
            health.asked(now);
            assert!(health.is_out(now), "one probe is enough");
            assert!(health.failed(&RULE, now));
            assert!(health.is_out(now + MS(wait - 1)) && !health.is_out(now + MS(wait)));
        }
        now += MS(40);
        health.asked(now);
        assert!(health.succeeded());
        assert!(!health.is_out(now) && !health.is_ejected());
    }

    #[test]
    fn what_was_sent_before_it_was_ejected_does_not_prolong_that() {
        let now = Instant::from_nanos(1);
        let mut health = ejected(now);
        assert!(!health.failed(&RULE, now + MS(5)));
        assert!(!health.is_out(now + MS(10)));
    }

    #[test]
    fn a_probe_that_nobody_answers_is_followed_by_another() {
        let now = Instant::from_nanos(1);
        let mut health = ejected(now);
        health.asked(now + MS(10));
        assert!(health.is_out(now + MS(19)) && !health.is_out(now + MS(20)));
    }
}
