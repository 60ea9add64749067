//! What a core is told once: who it is, what it may hold, which methods there are.

use alloc::vec::Vec;
use core::time::Duration;

use bowline_protocol::{Method, MethodInfo, OptionSet, Station};

use super::clients::CLASSES;
use super::keys::KeyLimits;
use super::overload::Overload;
use super::slots::Adaptive;

/// The limits and methods of one core. [`Core::new`](super::Core::new) checks them.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which core of which replica this is.
    pub station: Station,
    /// How many copies may run at once.
    pub slots: u32,
    /// Whether fewer slots are used where they do as well. None: always all.
    pub adaptive: Option<Adaptive>,
    /// The shares of the traffic classes, from 0 on, of the slots that come free while several have
    /// copies waiting; a request of any other class counts as one of class 0. From one to four
    /// classes, with shares from 1 to 1000.
    pub shares: Vec<u32>,
    /// How many copies may wait.
    pub queue_requests: u32,
    /// How many bytes of payload may wait, in all.
    pub queue_bytes: usize,
    /// How many client connections may be open. Each may take four bytes for each method.
    pub connections: u32,
    /// How many tombstones are kept; the oldest makes room for the next. 0: none.
    pub tombstones: u32,
    /// No tombstone lives longer than this, whatever a peer says.
    pub tombstone_life_max: Duration,
    /// The methods that are served, and what is known of each.
    pub methods: Vec<(Method, MethodRule)>,
    /// Bytes of replies that may wait for one client to read. With more, none of its copies starts.
    pub outgoing_bytes: usize,
    /// Bytes of replies that may wait for all clients together. With half of it, only copies start of
    /// clients that have less than an equal share; with three quarters, of those that have less than a
    /// sixteenth of what is left.
    pub outgoing_total: usize,
    /// What is remembered of keys, so that what is asked for twice is done once.
    pub keys: KeyLimits,
    /// All replicas of the service keep the results of keyed methods in one store: so a keyed call
    /// may be tied and hedged.
    pub shared_results: bool,
    /// When to serve the newest first. None: never.
    pub overload: Option<Overload>,
    /// Copies that should be refused or shed, as their time is or will be out, are only counted.
    pub dark: bool,
    /// Keys the hash of names that come from the network: random, in production.
    pub hash_seed: u64,
}

impl Config {
    /// The defaults: 16 slots; 1024 requests of 16 MiB in all may wait; 1024 connections; 4096
    /// tombstones of at most a second; 16 MiB of replies may wait for a client, 256 MiB for all.
    pub fn new(station: Station, methods: Vec<(Method, MethodRule)>) -> Config {
        Config {
            station,
            slots: 16,
            adaptive: None,
            shares: alloc::vec![1],
            queue_requests: 1024,
            queue_bytes: 16 << 20,
            connections: 1024,
            tombstones: 4096,
            tombstone_life_max: Duration::from_secs(1),
            methods,
            outgoing_bytes: 16 << 20,
            outgoing_total: 256 << 20,
            keys: KeyLimits::default(),
            shared_results: false,
            overload: Some(Overload::default()),
            dark: false,
            hash_seed: 0,
        }
    }
}

/// What the server knows of a method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MethodRule {
    /// Running it twice does no harm, so it may be tied and hedged.
    pub idempotent: bool,
    /// It stores its effect, its result and the call's key in one transaction: with a key, running
    /// it again where the same store is does no harm.
    pub keyed: bool,
    /// Less time than this is not enough to do anything useful: with less left before the
    /// deadline, the method is not started.
    pub least_useful: Duration,
}

impl MethodRule {
    /// A method that may run twice.
    pub const fn idempotent() -> MethodRule {
        MethodRule { idempotent: true, ..MethodRule::once() }
    }

    /// A method that must not run twice.
    pub const fn once() -> MethodRule {
        MethodRule { idempotent: false, keyed: false, least_useful: Duration::ZERO }
    }

    /// A method that may run twice with the same key, where both share a store of results.
    pub const fn keyed() -> MethodRule {
        MethodRule { keyed: true, ..MethodRule::once() }
    }

    /// Not to be started with less time than this left.
    #[must_use]
    pub const fn least_useful(self, least_useful: Duration) -> MethodRule {
        MethodRule { least_useful, ..self }
    }
}

impl From<&MethodInfo> for MethodRule {
    fn from(info: &MethodInfo) -> MethodRule {
        let MethodInfo { idempotent, keyed, least_useful, .. } = *info;
        MethodRule { idempotent, keyed, least_useful }
    }
}

/// Why a configuration can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A limit that must not be zero.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// A limit beyond what can be counted.
    #[error("{name} is {value}, more than the {max} that can be counted")]
    TooMany {
        /// The limit's name.
        name: &'static str,
        /// What it was set to.
        value: u32,
        /// The most it can be.
        max: u32,
    },
    /// Too few or too many traffic classes, or a share that is too small or too large.
    #[error("traffic classes are one to {CLASSES}, with shares from 1 to {MOST_SHARE}")]
    Shares,
    /// A bound of adaptive slots that is not below the other.
    #[error("adaptive slots are at least 1 and at most `slots`, which is {0}")]
    Adaptive(u32),
    /// No method to serve.
    #[error("the service has no methods")]
    NoMethods,
    /// A method that was given two rules.
    #[error("{0:?} is there twice")]
    MethodTwice(Method),
}

/// Places of one kind: enough for any machine, and few enough that sums stay in 32 bits.
const MOST: u32 = 1 << 24;

/// Beyond this a share could be a class's alone, for all that the others would notice.
const MOST_SHARE: u32 = 1000;

impl Config {
    /// The class of a request, of those that there are here.
    pub(super) fn class_of(&self, options: &OptionSet) -> u8 {
        let class = options.class.map_or(0, |class| class.0);
        if usize::from(class) < self.shares.len() { class } else { 0 }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        at_least_one("slots", self.slots)?;
        at_least_one("queue_requests", self.queue_requests)?;
        at_least_one("connections", self.connections)?;
        if self.queue_bytes == 0 {
            return Err(ConfigError::Zero("queue_bytes"));
        }
        let classes = 1..=CLASSES;
        let shares = 1..=MOST_SHARE;
        if !classes.contains(&self.shares.len()) || self.shares.iter().any(|s| !shares.contains(s))
        {
            return Err(ConfigError::Shares);
        }
        if self.adaptive.is_some_and(|adaptive| !(1..=self.slots).contains(&adaptive.min)) {
            return Err(ConfigError::Adaptive(self.slots));
        }
        let counts = [
            ("slots", self.slots),
            ("queue_requests", self.queue_requests),
            ("connections", self.connections),
            ("tombstones", self.tombstones),
            ("keys.results", self.keys.results),
        ];
        match counts.into_iter().find(|&(_, value)| value > MOST) {
            Some((name, value)) => Err(ConfigError::TooMany { name, value, max: MOST }),
            None => Ok(()),
        }
    }
}

fn at_least_one(name: &'static str, value: u32) -> Result<(), ConfigError> {
    if value == 0 { Err(ConfigError::Zero(name)) } else { Ok(()) }
}

/// The rules by the method's number.
pub(super) struct Methods(Vec<Option<Known>>);

/// What is known of a method.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) rule: MethodRule,
    /// Its place among all that are served.
    pub(super) place: u16,
}

impl Methods {
    pub(super) fn new(methods: &[(Method, MethodRule)]) -> Result<Methods, ConfigError> {
        let last =
            methods.iter().map(|(method, _)| method.0).max().ok_or(ConfigError::NoMethods)?;
        let mut table = alloc::vec![None; usize::from(last) + 1];
        let mut sorted = methods.to_vec();
        sorted.sort_unstable_by_key(|(method, _)| *method);
        for (place, &(method, rule)) in (0..).zip(&sorted) {
            if table[usize::from(method.0)].replace(Known { rule, place }).is_some() {
                return Err(ConfigError::MethodTwice(method));
            }
        }
        Ok(Methods(table))
    }

    pub(super) fn find(&self, method: Method) -> Option<Known> {
        *self.0.get(usize::from(method.0))?
    }

    /// All that are served, in the order of their places.
    pub(super) fn iter(&self) -> impl Iterator<Item = Method> + '_ {
        let numbers = (0..=u16::MAX).zip(&self.0);
        numbers.filter(|(_, known)| known.is_some()).map(|(number, _)| Method(number))
    }
}
