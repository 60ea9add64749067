//! May we afford an extra copy?
//!
//! One bucket for all cores of a client, in one atomic word, so that it is exact: what is spent
//! and what is outstanding change together or not at all. The bucket's level bounds extra
//! *executions* (what comes in as calls succeed, plus the burst); the cap bounds extra *copies
//! outstanding*, nearly all of which come back unused when they are tied. Since each of those could
//! still run, each is taken out of the level, too: the burst bounds both.
//!
//! A token is reserved before a copy is sent. When the call has ended, the tokens of copies that
//! ran are spent, and the others go back.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::config::{ConfigError, check};

/// A token in the units of the bucket: fractions down to a thousandth of a call are exact enough.
const TOKEN: u32 = 1024;

/// How much is granted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BudgetConfig {
    /// What a call that succeeds adds, in tokens: the share of calls that may run twice. 0, or
    /// 1/2048 to 1; it is kept in steps of 1/1024.
    pub fraction: f64,
    /// The bucket's size, in tokens, and what is in it at first. Up to 1 048 576.
    pub burst: u32,
    /// How many tokens may be out at a time, reserved for copies that have not ended. Each is taken
    /// out of the bucket, so there are never more out than `burst`, nor than are in the bucket: both
    /// are to be as large as the number of tied calls in flight. Up to 1 048 576.
    pub outstanding: u32,
    /// What a call that fails takes out, in tokens. 0, or 1/2048 to 1000.
    pub drain: f64,
}

impl Default for BudgetConfig {
    /// 5 % of the calls, a burst of 256, 256 outstanding, and a token for each failure.
    fn default() -> Self {
        BudgetConfig { fraction: 0.05, burst: 256, outstanding: 256, drain: 1.0 }
    }
}

impl BudgetConfig {
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let BudgetConfig { fraction, burst, outstanding, drain } = *self;
        // Less than half a unit would be rounded to nothing.
        let up_to = |most: f64, tokens: f64| {
            tokens == 0.0 || (0.5 / f64::from(TOKEN)..=most).contains(&tokens)
        };
        check("budget.fraction", fraction, up_to(1.0, fraction), "0, or 1/2048 to 1")?;
        check("budget.burst", burst, burst <= 1 << 20, "up to 1048576")?;
        check("budget.outstanding", outstanding, outstanding <= 1 << 20, "up to 1048576")?;
        check("budget.drain", drain, up_to(1000.0, drain), "0, or 1/2048 to 1000")
    }
}

/// Why there is no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoToken {
    /// The bucket is empty.
    Empty,
    /// As many copies are outstanding as may be.
    Outstanding,
}

/// The bucket.
#[derive(Debug)]
pub struct Budget {
    /// High half: the level, in units. Low half: tokens outstanding.
    word: AtomicU64,
    burst: u32,
    cap: u32,
    fraction: u32,
    drain: u32,
}

const fn pack(level: u32, outstanding: u32) -> u64 {
    (level as u64) << 32 | outstanding as u64
}

const fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

impl Budget {
    /// A full bucket.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the configuration is out of its ranges.
    pub fn new(config: BudgetConfig) -> Result<Budget, ConfigError> {
        config.validate()?;
        Ok(Budget::of_valid(config))
    }

    pub(crate) fn of_valid(config: BudgetConfig) -> Budget {
        let units = |tokens: f64| (tokens * f64::from(TOKEN)).round() as u32;
        let burst = config.burst * TOKEN;
        Budget {
            word: AtomicU64::new(pack(burst, 0)),
            burst,
            cap: config.outstanding,
            fraction: units(config.fraction),
            drain: units(config.drain),
        }
    }

    /// Takes a token out for a copy that is about to be sent.
    ///
    /// # Errors
    ///
    /// [`NoToken`]; nothing was taken then.
    pub fn reserve(&self) -> Result<(), NoToken> {
        let mut word = self.word.load(Relaxed);
        loop {
            let (level, outstanding) = unpack(word);
            if outstanding >= self.cap {
                return Err(NoToken::Outstanding);
            }
            let Some(rest) = level.checked_sub(TOKEN) else { return Err(NoToken::Empty) };
            match self.replace(word, pack(rest, outstanding + 1)) {
                Ok(()) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// Settles reserved tokens: `spent` of them for copies that ran, `unused` go back.
    pub fn settle(&self, spent: u32, unused: u32) {
        self.change(|level, outstanding| {
            let outstanding = outstanding.saturating_sub(spent + unused);
            (self.capped(level + unused * TOKEN, outstanding), outstanding)
        });
    }

    fn deposit(&self, units: u32) {
        self.change(|level, outstanding| (self.capped(level + units, outstanding), outstanding));
    }

    /// What is outstanding has its place kept in the bucket: else a full bucket could be spent
    /// twice within a moment, once from the level and once from what was reserved long before.
    fn capped(&self, level: u32, outstanding: u32) -> u32 {
        level.min(self.burst.saturating_sub(outstanding * TOKEN))
    }

    fn withdraw(&self, units: u32) {
        self.change(|level, outstanding| (level.saturating_sub(units), outstanding));
    }

    /// Tokens in the bucket, whole ones.
    pub fn level(&self) -> u32 {
        unpack(self.word.load(Relaxed)).0 / TOKEN
    }

    /// Tokens that are reserved and not settled.
    pub fn outstanding(&self) -> u32 {
        unpack(self.word.load(Relaxed)).1
    }

    fn change(&self, next: impl Fn(u32, u32) -> (u32, u32)) {
        let mut word = self.word.load(Relaxed);
        loop {
            let (level, outstanding) = unpack(word);
            let (level, outstanding) = next(level, outstanding);
            match self.replace(word, pack(level, outstanding)) {
                Ok(()) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Relaxed is enough: the word is the whole truth, and nothing else is published by it.
    fn replace(&self, old: u64, new: u64) -> Result<(), u64> {
        self.word.compare_exchange_weak(old, new, Relaxed, Relaxed).map(|_| ())
    }
}

/// What one core has earned and not yet paid in: successes are gathered here, and go to the shared
/// word a token at a time.
#[derive(Debug, Default)]
pub(crate) struct Purse {
    units: u32,
}

impl Purse {
    pub(crate) fn on_success(&mut self, budget: &Budget) {
        self.units += budget.fraction;
        if self.units >= TOKEN {
            budget.deposit(self.units);
            self.units = 0;
        }
    }

    pub(crate) fn on_failure(&mut self, budget: &Budget) {
        self.units = 0;
        if budget.drain > 0 {
            budget.withdraw(budget.drain);
        }
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
