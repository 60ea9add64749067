use core::fmt::Display;
use core::time::Duration;
use std::sync::Arc;

use bowline_protocol::Label;

use super::budget::{Budget, BudgetConfig};
use super::call::MAX_ATTEMPTS;
use super::health::EjectConfig;
use super::pick::PickRule;
use super::switch::Switch;

/// A setting that can't be had: which, what it is, and what it may be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} is {found}, but must be {expected}")]
pub struct ConfigError {
    /// The setting, with its path.
    pub field: &'static str,
    /// What it is.
    pub found: String,
    /// What it may be.
    pub expected: &'static str,
}

/// An error unless `ok`.
pub(crate) fn check(
    field: &'static str,
    found: impl Display,
    ok: bool,
    expected: &'static str,
) -> Result<(), ConfigError> {
    if ok { Ok(()) } else { Err(ConfigError { field, found: found.to_string(), expected }) }
}

/// The same for a duration, which is shown as people write it.
pub(crate) fn check_span(
    field: &'static str,
    found: Duration,
    ok: bool,
    expected: &'static str,
) -> Result<(), ConfigError> {
    check(field, format_args!("{found:?}"), ok, expected)
}

/// The settings of one client core that are not a policy's.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many calls may wait at a time; as many finished ones are watched until their last copy
    /// has ended. 1 to 2^24.
    pub max_calls: u32,
    /// The largest payload of a request, in bytes.
    pub max_payload: u32,
    /// How many bytes may wait for a replica to read, before one more request, in bytes. With more
    /// than that others are asked, or the call waits.
    pub max_backlog: usize,
    /// What is kept of each deadline for the caller's own work after the reply, besides the
    /// measured round trip of the replica that is asked. Never more than half of what remains.
    pub reserve: Duration,
    /// How long a finished call's copies are watched before they are given up. 1 ms to 1 h.
    pub watch: Duration,
    /// How long a call waits for a replica while none is connected; and for how long one whose
    /// connection broke is waited for, if all others have failed the call. Up to 1 h; zero: it fails
    /// at once.
    pub patience: Duration,
    /// Whether and how calls that no replica took are tried again; None: they fail.
    pub retry: Option<RetryConfig>,
    /// How to choose among the replicas that may be asked.
    pub pick: PickRule,
    /// How long a replica's report of its load counts, and of what it holds. Up to 1 h; zero ignores
    /// the reports.
    pub load_lifetime: Duration,
    /// When a replica is left alone; None: never.
    pub eject: Option<EjectConfig>,
    /// For how long a replica that was just connected is spared most calls, ever fewer of them, if
    /// others can serve them: its caches are cold. It starts with an eighth of its share. Up to
    /// 1 h; zero: not at all.
    pub warm_up: Duration,
    /// How far back the latency estimate looks. 10 ms to 1 h.
    pub latency_window: Duration,
    /// How many kinds of calls have an estimate of their own; those beyond share one. Calls are of
    /// one kind that agree in method, class, size of payload (up to 4 KiB, 64 KiB, 1 MiB, more),
    /// distance of the replica and, if it is one of `labels`, label. 1 to 1024.
    pub max_methods: u16,
    /// Labels whose calls have estimates of their own (a cache hit expected, a large tenant). Up to
    /// 15. It is the caller's label that counts: what only the reply says, such as whether it came from
    /// a cache, is known too late to choose a delay by.
    pub labels: Vec<Label>,
    /// What pays for extra copies. Shared by all cores of a client.
    pub budget: Arc<Budget>,
    /// Whether extra copies may be sent at all. Shared by all cores of a client.
    pub switch: Arc<Switch>,
    /// Seeds the picks.
    pub seed: u64,
}

/// How calls are tried again that every replica refused or shed, so that they certainly never ran.
///
/// A retry waits for as long as the servers asked, and at least for a span that doubles from one to
/// the next, of which the upper half is drawn at random. It stays within the call's deadline, and
/// takes a token of the budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryConfig {
    /// How often a call is tried again. 0 to 5.
    pub most: u8,
    /// The first span. 10 us to 60 s.
    pub first: Duration,
    /// No span is longer. Up to 60 s.
    pub max: Duration,
}

impl Default for RetryConfig {
    /// Twice, after up to 1 ms and 2 ms.
    fn default() -> Self {
        RetryConfig { most: 2, first: Duration::from_millis(1), max: Duration::from_millis(100) }
    }
}

/// What bounds the copies of a policy's calls, besides budgets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How many copies a call may have in all: first, second, hedges, and those in the place of
    /// others that ended. 1 to 8.
    pub attempts: u8,
    /// How calls that no replica took are tried again; None: as [`Config::retry`] says.
    pub retry: Option<RetryConfig>,
}

impl Default for Limits {
    /// As many copies as a call can have, and retries as the machine has them.
    fn default() -> Self {
        Limits { attempts: MAX_ATTEMPTS as u8, retry: None }
    }
}

impl Limits {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let held = (1..=MAX_ATTEMPTS as u8).contains(&self.attempts);
        check("max_attempts", self.attempts, held, "1 to 8")?;
        self.retry.map_or(Ok(()), |retry| retry.validate())
    }
}

impl RetryConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        check("retry.most", self.most, self.most <= 5, "0 to 5")?;
        let minute = Duration::from_secs(60);
        let held = self.first >= Duration::from_micros(10) && self.first <= minute;
        check_span("retry.first", self.first, held, "10 us to 60 s")?;
        let held = self.max >= self.first && self.max <= minute;
        check_span("retry.max", self.max, held, "at least retry.first, and up to 60 s")
    }
}

impl Default for Config {
    /// 65 536 calls, payloads of 1 MiB, 16 MiB for a replica that does not read, no reserve beyond the
    /// round trip, 10 s of watching and of latencies, a second of patience, no retries, reports of
    /// load good for 100 ms, 32 kinds of calls, and a budget of its own; replicas are ejected, and
    /// not warmed up.
    fn default() -> Self {
        Config {
            max_calls: 1 << 16,
            max_payload: 1 << 20,
            max_backlog: 16 << 20,
            reserve: Duration::ZERO,
            watch: Duration::from_secs(10),
            patience: Duration::from_secs(1),
            retry: None,
            pick: PickRule::PowerOfTwo,
            load_lifetime: Duration::from_millis(100),
            eject: Some(EjectConfig::default()),
            warm_up: Duration::ZERO,
            latency_window: Duration::from_secs(10),
            max_methods: 32,
            labels: Vec::new(),
            budget: Arc::new(Budget::of_valid(BudgetConfig::default())),
            switch: Arc::default(),
            seed: 0,
        }
    }
}

impl Config {
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let hour = Duration::from_secs(3600);
        let calls = self.max_calls;
        check("max_calls", calls, (1..=1 << 24).contains(&calls), "1 to 16777216")?;
        let watched = self.watch >= Duration::from_millis(1) && self.watch <= hour;
        check_span("watch", self.watch, watched, "1 ms to 1 h")?;
        check_span("patience", self.patience, self.patience <= hour, "up to 1 h")?;
        self.retry.map_or(Ok(()), |retry| retry.validate())?;
        self.pick.validate()?;
        check_span("load_lifetime", self.load_lifetime, self.load_lifetime <= hour, "up to 1 h")?;
        self.eject.map_or(Ok(()), |eject| eject.validate())?;
        check_span("warm_up", self.warm_up, self.warm_up <= hour, "up to 1 h")?;
        let labels = self.labels.len();
        check("labels", format_args!("{labels} long"), labels <= 15, "up to 15 long")?;
        let window = self.latency_window;
        let held = window >= Duration::from_millis(10) && window <= hour;
        check_span("latency_window", window, held, "10 ms to 1 h")?;
        let methods = self.max_methods;
        check("max_methods", methods, (1..=1024).contains(&methods), "1 to 1024")
    }
}
