use core::time::Duration;

use super::call::MAX_ATTEMPTS;
use super::config::{ConfigError, check, check_span};
use super::guard::AutoOff;

const MINUTE: Duration = Duration::from_secs(60);

/// Names a policy that was registered with [`Calls::register`](super::Calls::register).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PolicyId(pub(crate) u16);

impl PolicyId {
    /// One copy, and no more while it lives.
    pub const NONE: PolicyId = PolicyId(0);
}

/// What is done against the tail.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Policy {
    /// One copy, and no more while it lives.
    #[default]
    None,
    /// A second copy when the first is slow.
    Hedged(HedgePolicy),
    /// Two copies, of which the one that starts first takes the other out of its queue.
    Tied(TiePolicy),
    /// Two tied copies, and a third when the one that started is itself slow.
    TiedThenHedged(TiePolicy, HedgePolicy),
}

/// When and how a slow call is hedged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HedgePolicy {
    /// How slow is slow.
    pub delay: Delay,
    /// How many hedges a call may have. 1 to 6.
    pub max_hedges: u8,
    /// The least time in which a copy is of any use: none is sent with less left.
    pub least_useful: Duration,
    /// Larger payloads, in bytes, are not sent twice.
    pub max_payload: u32,
    /// When hedging switches itself off; None: never.
    pub auto_off: Option<AutoOff>,
}

/// Where the hedge delay comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Delay {
    /// Always the same, 0 to 60 s.
    Fixed(Duration),
    /// A percentile of what copies took lately.
    Percentile(Percentile),
}

/// A live percentile as the hedge delay.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Percentile {
    /// Which: 0.95 hedges about every twentieth call. 0.5 to 0.9999.
    pub quantile: f64,
    /// The delay is never shorter.
    pub min: Duration,
    /// The delay is never longer, whatever an incident teaches. Up to 60 s.
    pub max: Duration,
    /// The delay while there are too few samples; None: no hedge until then.
    pub fallback: Option<Duration>,
    /// How many copies must have answered within the window. At least 1.
    pub least_samples: u64,
    /// The factor by which the delay may grow or shrink in a second. Above 1, up to 1000.
    pub change_per_second: f64,
    /// The factor by which the delay may lie above what it was while all was well, which follows a
    /// rise by a factor of 2 in ten minutes. So no incident raises the delay without bound, and a
    /// shift that stays is learned. 1 to 1000.
    pub max_rise: f64,
}

/// How tied copies are sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TiePolicy {
    /// How long the second copy waits after the first.
    pub stagger: Stagger,
    /// The least time for which a twin's cancel is remembered where its copy has not arrived; the
    /// stagger and ten one-way delays are, if longer. 1 ms to 60 s.
    pub window: Duration,
    /// Larger payloads, in bytes, are not sent twice.
    pub max_payload: u32,
}

/// How long the second copy waits after the first.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Stagger {
    /// Always the same, 0 to 60 s.
    Fixed(Duration),
    /// So many one-way delays, as measured.
    Measured {
        /// How many. 0 to 100; 2 makes double starts rare.
        factor: f64,
        /// The stagger while nothing is measured.
        fallback: Duration,
        /// The stagger is never longer. Up to 60 s.
        max: Duration,
    },
}

impl Default for HedgePolicy {
    /// One hedge at the 95th percentile, none with less than 100 us left, nor above 64 KiB.
    fn default() -> Self {
        HedgePolicy {
            delay: Delay::Percentile(Percentile::default()),
            max_hedges: 1,
            least_useful: Duration::from_micros(100),
            max_payload: 64 << 10,
            auto_off: Some(AutoOff::default()),
        }
    }
}

impl Default for Percentile {
    /// The 95th, within 100 us and 1 s, after 100 samples, with no hedge before, and at most
    /// twice (or half) in a second, and four times what it was while all was well.
    fn default() -> Self {
        Percentile {
            quantile: 0.95,
            min: Duration::from_micros(100),
            max: Duration::from_secs(1),
            fallback: None,
            least_samples: 100,
            change_per_second: 2.0,
            max_rise: 4.0,
        }
    }
}

impl Default for TiePolicy {
    /// Two one-way delays of stagger (200 us while none is measured, at most 10 ms), and a window
    /// of at least 10 ms.
    fn default() -> Self {
        TiePolicy {
            stagger: Stagger::Measured {
                factor: 2.0,
                fallback: Duration::from_micros(200),
                max: Duration::from_millis(10),
            },
            window: Duration::from_millis(10),
            max_payload: 64 << 10,
        }
    }
}

impl Policy {
    /// Hedged, with the defaults.
    pub fn hedged() -> Policy {
        Policy::Hedged(HedgePolicy::default())
    }

    /// Tied, with the defaults.
    pub fn tied() -> Policy {
        Policy::Tied(TiePolicy::default())
    }

    pub(crate) const fn tie(&self) -> Option<&TiePolicy> {
        match self {
            Policy::Tied(tie) | Policy::TiedThenHedged(tie, _) => Some(tie),
            Policy::None | Policy::Hedged(_) => None,
        }
    }

    pub(crate) const fn hedge(&self) -> Option<&HedgePolicy> {
        match self {
            Policy::Hedged(hedge) | Policy::TiedThenHedged(_, hedge) => Some(hedge),
            Policy::None | Policy::Tied(_) => None,
        }
    }

    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.tie().map_or(Ok(()), TiePolicy::validate)?;
        self.hedge().map_or(Ok(()), HedgePolicy::validate)
    }
}

impl HedgePolicy {
    fn validate(&self) -> Result<(), ConfigError> {
        let most = MAX_ATTEMPTS as u8 - 2;
        let hedges = self.max_hedges;
        check("hedge.max_hedges", hedges, (1..=most).contains(&hedges), "1 to 6")?;
        let least = self.least_useful;
        check_span("hedge.least_useful", least, least <= MINUTE, "up to 60 s")?;
        self.auto_off.map_or(Ok(()), |auto_off| auto_off.validate())?;
        self.delay.validate()
    }
}

impl Delay {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Delay::Fixed(delay) => check_span("hedge.delay", *delay, *delay <= MINUTE, "0 to 60 s"),
            Delay::Percentile(percentile) => percentile.validate(),
        }
    }

    /// The percentile that triggers, if one does.
    pub(crate) const fn quantile(&self) -> Option<f64> {
        match self {
            Delay::Fixed(_) => None,
            Delay::Percentile(percentile) => Some(percentile.quantile),
        }
    }
}

impl Percentile {
    fn validate(&self) -> Result<(), ConfigError> {
        let q = self.quantile;
        check("hedge.quantile", q, (0.5..=0.9999).contains(&q), "0.5 to 0.9999")?;
        check_span("hedge.max", self.max, self.max <= MINUTE, "up to 60 s")?;
        check_span("hedge.min", self.min, self.min <= self.max, "at most hedge.max")?;
        check("hedge.least_samples", self.least_samples, self.least_samples > 0, "at least 1")?;
        let change = self.change_per_second;
        let held = change > 1.0 && change <= 1000.0;
        check("hedge.change_per_second", change, held, "above 1 and up to 1000")?;
        let rise = self.max_rise;
        check("hedge.max_rise", rise, (1.0..=1000.0).contains(&rise), "1 to 1000")?;
        let fallback = self.fallback.unwrap_or(self.max);
        check_span("hedge.fallback", fallback, fallback <= MINUTE, "up to 60 s")
    }
}

impl TiePolicy {
    fn validate(&self) -> Result<(), ConfigError> {
        let window = self.window;
        let held = window >= Duration::from_millis(1) && window <= MINUTE;
        check_span("tie.window", window, held, "1 ms to 60 s")?;
        self.stagger.validate()
    }
}

impl Stagger {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match *self {
            Stagger::Fixed(stagger) => {
                check_span("tie.stagger", stagger, stagger <= MINUTE, "0 to 60 s")
            }
            Stagger::Measured { factor, fallback, max } => {
                check("tie.stagger.factor", factor, (0.0..=100.0).contains(&factor), "0 to 100")?;
                check_span("tie.stagger.max", max, max <= MINUTE, "up to 60 s")?;
                check_span("tie.stagger.fallback", fallback, fallback <= MINUTE, "up to 60 s")
            }
        }
    }
}

/// How a policy is doing, over all kinds of calls that follow it. One on trial in its place is not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyState {
    /// It hedges, and has not switched that off for any kind of calls; None: it has no hedges.
    pub hedging: Option<bool>,
    /// After how long a copy is hedged: the longest of all kinds, each as of its last call, however long
    /// ago that was. None: no hedges, or too few samples.
    pub delay: Option<Duration>,
    /// Tokens in its own budget; None: it has none.
    pub budget_level: Option<i32>,
    /// Of those, how many are out.
    pub budget_outstanding: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        let (tie, hedge) = (TiePolicy::default(), HedgePolicy::default());
        Policy::TiedThenHedged(tie, hedge).validate().unwrap();
    }

    #[test]
    fn a_percentile_that_is_written_as_a_percentage_is_refused_by_name() {
        let percentile = Percentile { quantile: 95.0, ..Percentile::default() };
        let delay = Delay::Percentile(percentile);
        let error = Policy::Hedged(HedgePolicy { delay, ..HedgePolicy::default() }).validate();
        let error = error.unwrap_err();
        assert_eq!(error.to_string(), "hedge.quantile is 95, but must be 0.5 to 0.9999");
    }

    #[test]
    fn not_a_number_is_out_of_every_range() {
        let percentile = Percentile { change_per_second: f64::NAN, ..Percentile::default() };
        assert_eq!(percentile.validate().unwrap_err().field, "hedge.change_per_second");
    }

    #[test]
    fn microseconds_and_minutes_are_both_accepted() {
        for delay in [Duration::from_micros(1), MINUTE] {
            let delay = Delay::Fixed(delay);
            Policy::Hedged(HedgePolicy { delay, ..HedgePolicy::default() }).validate().unwrap();
        }
    }
}
