//! What is known of each kind of calls: their latencies, and the hedge delays that follow from them.

use core::time::Duration;

use bowline_protocol::{Method, TrafficClass};
use bowline_time::Instant;

use super::guard::Guard;
use super::hedge::Trigger;
use super::latency::{Window, nanos};
use super::policy::Delay;
use super::shadow::MAX_CANDIDATES;

/// What makes calls alike, as one number: method, class, size, distance, label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind(u64);

impl Kind {
    /// Calls of this method, class, size of payload in bytes, and place of the label among those
    /// that count; to a replica that is not far.
    pub(crate) fn new(method: Method, class: TrafficClass, size: u32, label: u8) -> Kind {
        let size = [4 << 10, 64 << 10, 1 << 20].partition_point(|&most| most < size) as u8;
        Kind(u64::from_be_bytes([0, 0, 0, label, size, class.0, 0, 0]) | u64::from(method.0))
    }

    /// The same to a replica at that distance.
    pub(crate) fn at(self, distance: u8) -> Kind {
        Kind(self.0 & !(0xff << 40) | u64::from(distance) << 40)
    }

    fn method(self) -> Method {
        Method(self.0 as u16)
    }
}

/// One kind, or the rest of them.
#[derive(Debug)]
struct Class {
    kind: Kind,
    window: Window,
    /// By policy.
    hedging: Vec<Hedging>,
    /// By policy and candidate: those that are only thought of.
    thoughts: Vec<(u16, [Trigger; MAX_CANDIDATES])>,
    /// What copies take: a median that each answer moves by a step.
    typical: f64,
    /// What the last copies took that two different replicas answered, the later first.
    latest: [Option<(u16, Duration)>; 2],
}

/// One method's hedges under one policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hedging {
    trigger: Trigger,
    pub(crate) guard: Guard,
}

/// By how much of itself an answer moves what copies are held to take.
const STEP: f64 = 1.0 / 32.0;

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

    /// The place of a kind. The last place is shared by all that came after.
    pub(crate) fn class(&mut self, kind: Kind, now: Instant) -> u16 {
        let found = self.classes.iter().position(|class| class.kind == kind);
        if let Some(place) = found {
            return place as u16;
        }
        if self.classes.len() < self.most {
            let window = Window::new(self.window, now);
            let (hedging, thoughts) = (Vec::new(), Vec::new());
            let (typical, latest) = (0.0, [None; 2]);
            self.classes.push(Class { kind, window, hedging, thoughts, typical, latest });
        }
        (self.classes.len() - 1) as u16
    }

    /// The method of the calls at that place; of the first of them, at the shared one.
    pub(crate) fn method(&self, class: u16) -> Method {
        self.classes[usize::from(class)].kind.method()
    }

    /// A copy was not answered within `span`, and never will be. Returns that as a multiple of what
    /// copies take there.
    pub(crate) fn censored(&mut self, class: u16, span: Duration, now: Instant) -> f64 {
        let class = &mut self.classes[usize::from(class)];
        class.window.censored(span, now);
        class.ratio(span)
    }

    /// A copy was answered by the replica at `place` after `span`. Returns the same.
    pub(crate) fn answered(&mut self, class: u16, place: u16, span: Duration, now: Instant) -> f64 {
        let class = &mut self.classes[usize::from(class)];
        class.window.answered(span, now);
        let [later, earlier] = &mut class.latest;
        if later.is_some_and(|(last, _)| last != place) {
            *earlier = *later;
        }
        *later = Some((place, span));
        if class.typical == 0.0 {
            class.typical = nanos(span).max(1) as f64;
        }
        let ratio = class.ratio(span);
        class.typical *= if ratio > 1.0 { 1.0 + STEP } else { 1.0 / (1.0 + STEP) };
        ratio
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

    /// Whether hedges under a policy are on for all kinds of calls, and the longest delay of any.
    pub(crate) fn state(&self, policy: u16) -> (bool, Option<Duration>) {
        let all = self.classes.iter().filter_map(|class| class.hedging.get(usize::from(policy)));
        (all.clone().all(|it| it.guard.is_on()), all.filter_map(|it| it.trigger.last()).max())
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

impl Class {
    /// `span` as a multiple of what copies take; 1 until one was answered.
    fn ratio(&self, span: Duration) -> f64 {
        if self.typical == 0.0 { 1.0 } else { nanos(span) as f64 / self.typical }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(method: u16) -> Kind {
        Kind::new(Method(method), TrafficClass(0), 0, 0)
    }

    #[test]
    fn kinds_differ_in_method_class_size_label_and_distance() {
        let one = kind(7);
        let others = [
            kind(8),
            Kind::new(Method(7), TrafficClass(1), 0, 0),
            Kind::new(Method(7), TrafficClass(0), 4097, 0),
            Kind::new(Method(7), TrafficClass(0), 1 << 21, 0),
            Kind::new(Method(7), TrafficClass(0), 0, 1),
            one.at(1),
        ];
        for (n, other) in others.iter().enumerate() {
            assert!(*other != one && !others[..n].contains(other), "{n}");
        }
        assert_eq!(one.at(3).at(0), one);
        assert_eq!(Kind::new(Method(7), TrafficClass(0), 4096, 0), one);
        assert_eq!(Kind::new(Method(0x1234), TrafficClass(9), 9, 9).method(), Method(0x1234));
    }

    #[test]
    fn what_copies_take_is_followed_as_a_median() {
        let now = Instant::from_nanos(1);
        let mut methods = Methods::new(2, Duration::from_secs(1));
        let class = methods.class(kind(1), now);
        // One in ten takes a hundred times as long.
        for copy in 0..1000 {
            let span = Duration::from_millis(if copy % 10 == 3 { 100 } else { 1 });
            methods.answered(class, 0, span, now);
        }
        let ratio = methods.censored(class, Duration::from_millis(1), now);
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_copy_that_nobody_waited_for_does_not_say_what_copies_take() {
        let now = Instant::from_nanos(1);
        let mut methods = Methods::new(2, Duration::from_secs(1));
        let class = methods.class(kind(1), now);
        assert_eq!(methods.censored(class, Duration::from_nanos(1), now), 1.0);
        assert_eq!(methods.answered(class, 0, Duration::from_millis(1), now), 1.0);
        let twice = methods.censored(class, Duration::from_millis(2), now);
        assert!((2.0..2.1).contains(&twice), "{twice}");
    }

    #[test]
    fn methods_beyond_the_most_share_the_last_place() {
        let now = Instant::from_nanos(1);
        let mut methods = Methods::new(2, Duration::from_secs(1));
        let places = [5, 6, 7, 5, 8].map(|method| methods.class(kind(method), now));
        assert_eq!(places, [0, 1, 1, 0, 1]);
    }
}
