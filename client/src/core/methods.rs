//! What is known of each method: its latencies, and the hedge delays that follow from them.

use core::time::Duration;

use bowline_protocol::Method;
use bowline_time::Instant;

use super::guard::Guard;
use super::hedge::Trigger;
use super::latency::Window;
use super::policy::Delay;

/// One method, or the rest of them.
#[derive(Debug)]
struct Class {
    method: Method,
    window: Window,
    /// By policy.
    hedging: Vec<Hedging>,
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
            self.classes.push(Class { method, window, hedging: Vec::new() });
        }
        (self.classes.len() - 1) as u16
    }

    pub(crate) fn window(&mut self, class: u16) -> &mut Window {
        &mut self.classes[usize::from(class)].window
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
