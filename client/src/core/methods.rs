//! What is known of each method: its latencies, and the hedge delays that follow from them.

use core::time::Duration;

use bowline_protocol::Method;
use bowline_time::Instant;

use super::guard::Guard;
use super::hedge::Trigger;
use super::latency::Window;
use super::policy::Delay;
use super::shadow::MAX_CANDIDATES;

/// One method, or the rest of them.
#[derive(Debug)]
struct Class {
    method: Method,
    window: Window,
    /// By policy.
    hedging: Vec<Hedging>,
    /// By policy and candidate: those that are only thought of.
    thoughts: Vec<(u16, [Trigger; MAX_CANDIDATES])>,
    /// What the last copies took that two different replicas answered, the later first.
    latest: [Option<(u16, Duration)>; 2],
}

/// One method's hedges under one policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hedging {
    trigger: Trigger,
    pub(crate) guard: Guard,
}

/// A bounded number of them.
#[derive(Debug)]
pub(crate) struct Methods {
    classes: Vec<Class>,
    most: usize,
    window: Duration,
}

impl Methods {
    pub(crate) fn new(most: u16, window: Duration) -> Methods {
        Methods { classes: Vec::new(), most: usize::from(most), window }
    }

    /// The place of a method. The last place is shared by all that came after.
    pub(crate) fn class(&mut self, method: Method, now: Instant) -> u16 {
        let found = self.classes.iter().position(|class| class.method == method);
        if let Some(place) = found {
            return place as u16;
        }
        if self.classes.len() < self.most {
            let window = Window::new(self.window, now);
            let (hedging, thoughts) = (Vec::new(), Vec::new());
            self.classes.push(Class { method, window, hedging, thoughts, latest: [None; 2] });
        }
        (self.classes.len() - 1) as u16
    }

    /// A copy was not answered within `span`, and never will be.
    pub(crate) fn censored(&mut self, class: u16, span: Duration, now: Instant) {
        self.classes[usize::from(class)].window.censored(span, now);
    }

    /// A copy was answered by the replica at `place` after `span`.
    pub(crate) fn answered(&mut self, class: u16, place: u16, span: Duration, now: Instant) {
        let class = &mut self.classes[usize::from(class)];
        class.window.answered(span, now);
        let [later, earlier] = &mut class.latest;
        if later.is_some_and(|(last, _)| last != place) {
            *earlier = *later;
        }
        *later = Some((place, span));
    }

    /// What the last copy took that another replica answered than the one at `place`.
    pub(crate) fn latest_elsewhere(&self, class: u16, place: u16) -> Option<Duration> {
        let latest = self.classes[usize::from(class)].latest;
        latest.into_iter().flatten().find(|&(at, _)| at != place).map(|(_, span)| span)
    }

    /// The delay of a candidate that is only thought of.
    pub(crate) fn thought(
        &mut self,
        class: u16,
        policy: u16,
        candidate: usize,
        from: &Delay,
        now: Instant,
    ) -> Option<Duration> {
        let Class { thoughts, window, .. } = &mut self.classes[usize::from(class)];
        let known = thoughts.iter().position(|&(of, _)| of == policy);
        let at = known.unwrap_or_else(|| {
            thoughts.push((policy, Default::default()));
            thoughts.len() - 1
        });
        thoughts[at].1[candidate].delay(from, window, now)
    }

    /// Another set of candidates is thought of.
    pub(crate) fn forget_shadows(&mut self, policy: u16) {
        for class in &mut self.classes {
            class.thoughts.retain(|&(of, _)| of != policy);
        }
    }

    /// How long a copy that is sent now may take before it is hedged.
    pub(crate) fn delay(
        &mut self,
        class: u16,
        policy: u16,
        from: &Delay,
        now: Instant,
    ) -> Option<Duration> {
        self.hedging(class, policy);
        let class = &mut self.classes[usize::from(class)];
        class.hedging[usize::from(policy)].trigger.delay(from, &mut class.window, now)
    }

    /// Another policy has that place now.
    pub(crate) fn forget(&mut self, policy: u16) {
        for class in &mut self.classes {
            if let Some(hedging) = class.hedging.get_mut(usize::from(policy)) {
                *hedging = Hedging::default();
            }
        }
    }

    /// The hedges of a method under a policy.
    pub(crate) fn hedging(&mut self, class: u16, policy: u16) -> &mut Hedging {
        let hedging = &mut self.classes[usize::from(class)].hedging;
        let at = usize::from(policy);
        if hedging.len() <= at {
            hedging.resize(at + 1, Hedging::default());
        }
        &mut hedging[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_beyond_the_most_share_the_last_place() {
        let now = Instant::from_nanos(1);
        let mut methods = Methods::new(2, Duration::from_secs(1));
        let places = [5, 6, 7, 5, 8].map(|method| methods.class(Method(method), now));
        assert_eq!(places, [0, 1, 1, 0, 1]);
    }
}
