//! May we afford an extra copy?
//!
//! A bucket for all cores of a client, in one atomic word, so that it is exact: what is spent and
//! what is outstanding change together or not at all. Two settings that are apart bound two things.
//! The *level* bounds extra executions: it starts at the burst, grows with calls that succeed and
//! with time, and shrinks with failures. The cap bounds extra copies *outstanding*.
//!
//! A token is reserved before a copy is sent, and settled when its call has ended. A hedge, which
//! nearly always runs, *pays* for its token at once, and gets it back if it did not run. The second
//! of two tied copies nearly never runs: its token is *lent* while the level is above zero, and
//! charged if the copy ran. Were it paid for, a bucket for a thousand ties in flight would have to
//! allow a burst of a thousand executions. What is charged late may put the level below zero, by no
//! more than the cap; nothing more is granted then until that is earned. So in any time the extra
//! executions are at most what was earned, and the burst, and, with ties, the cap once.
//!
//! A call may have to pay twice: out of its method's bucket and out of the client's.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use core::time::Duration;

use bowline_time::Instant;

use super::config::{ConfigError, check};

/// A token in the units of the bucket: fractions down to a thousandth of a call are exact enough.
const TOKEN: i32 = 1024;
/// No bucket is larger, and no more tokens are out.
const MOST: u32 = 100_000;

/// How much is granted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BudgetConfig {
    /// What a call that succeeds adds, in tokens: the share of calls that may run twice. 0, or
    /// 1/2048 to 1; it is kept in steps of 1/1024.
    pub fraction: f64,
    /// What a second adds, in tokens, on each core: so that a bucket which failures emptied does not
    /// stay empty for want of successes. 0 to 1000; it is kept in steps of 1/1024.
    pub per_second: f64,
    /// The bucket's size, in tokens, and what is in it at first. Up to 100 000.
    pub burst: u32,
    /// How many tokens may be out at a time, reserved for copies that have not ended: at least as
    /// many as there are tied calls in flight, or the others are plain. Up to 100 000.
    pub outstanding: u32,
    /// What a call that fails takes out, in tokens. 0, or 1/2048 to 1000.
    pub drain: f64,
}

impl Default for BudgetConfig {
    /// 5 % of the calls and one a second, a burst of 256, 1024 outstanding, and a token for each
    /// failure.
    fn default() -> Self {
        BudgetConfig { fraction: 0.05, per_second: 1.0, burst: 256, outstanding: 1024, drain: 1.0 }
    }
}

impl BudgetConfig {
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let BudgetConfig { fraction, per_second, burst, outstanding, drain } = *self;
        // Less than half a unit would be rounded to nothing.
        let up_to = |most: f64, tokens: f64| {
            tokens == 0.0 || (0.5 / f64::from(TOKEN)..=most).contains(&tokens)
        };
        check("budget.fraction", fraction, up_to(1.0, fraction), "0, or 1/2048 to 1")?;
        let held = (0.0..=1000.0).contains(&per_second);
        check("budget.per_second", per_second, held, "0 to 1000")?;
        check("budget.burst", burst, burst <= MOST, "up to 100000")?;
        check("budget.outstanding", outstanding, outstanding <= MOST, "up to 100000")?;
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

/// How a copy comes by its token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Token {
    /// It is taken out of the bucket now, and comes back if the copy never ran.
    Paid,
    /// It is taken out if the copy ran.
    Lent,
}

/// The bucket.
#[derive(Debug)]
pub struct Budget {
    /// Level in units, which may be below zero: 30 bits. Tokens outstanding, and those among them
    /// that are paid for: 17 bits each.
    word: AtomicU64,
    /// The settings, which may change at any time: each is read by itself.
    burst: AtomicU32,
    cap: AtomicU32,
    fraction: AtomicU32,
    /// Units a second.
    per_second: AtomicU32,
    drain: AtomicU32,
}

/// What the word holds.
#[derive(Clone, Copy)]
struct State {
    level: i32,
    outstanding: u32,
    paid: u32,
}

const PART: u32 = 17;
const MASK: u64 = (1 << PART) - 1;

const fn pack(State { level, outstanding, paid }: State) -> u64 {
    (level as i64 as u64) << (2 * PART) | (outstanding as u64) << PART | paid as u64
}

const fn unpack(word: u64) -> State {
    State {
        level: (word as i64 >> (2 * PART)) as i32,
        outstanding: (word >> PART & MASK) as u32,
        paid: (word & MASK) as u32,
    }
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
        let full = State { level: config.burst as i32 * TOKEN, outstanding: 0, paid: 0 };
        Budget {
            word: AtomicU64::new(pack(full)),
            burst: AtomicU32::new(config.burst),
            cap: AtomicU32::new(config.outstanding),
            fraction: AtomicU32::new(units(config.fraction)),
            per_second: AtomicU32::new(units(config.per_second)),
            drain: AtomicU32::new(units(config.drain)),
        }
    }

    /// Has the settings of another from now on; what is in the bucket and what is out stays. A
    /// level above the burst comes down with the next change.
    pub fn take_settings(&self, from: &Budget) {
        self.burst.store(from.burst.load(Relaxed), Relaxed);
        self.cap.store(from.cap.load(Relaxed), Relaxed);
        self.fraction.store(from.fraction.load(Relaxed), Relaxed);
        self.per_second.store(from.per_second.load(Relaxed), Relaxed);
        self.drain.store(from.drain.load(Relaxed), Relaxed);
    }

    /// Reserves a token for a copy that is about to be sent.
    ///
    /// # Errors
    ///
    /// [`NoToken`]; nothing was reserved then.
    pub fn reserve(&self, token: Token) -> Result<(), NoToken> {
        let cap = self.cap.load(Relaxed);
        let mut word = self.word.load(Relaxed);
        loop {
            let State { level, outstanding, paid } = unpack(word);
            if outstanding >= cap {
                return Err(NoToken::Outstanding);
            }
            if level < TOKEN {
                return Err(NoToken::Empty);
            }
            let outstanding = outstanding + 1;
            let next = match token {
                Token::Paid => State { level: level - TOKEN, outstanding, paid: paid + 1 },
                Token::Lent => State { level, outstanding, paid },
            };
            match self.replace(word, pack(next)) {
                Ok(()) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// Settles the tokens of a call that has ended, so many of which were `paid` and so many `lent`:
    /// `spent` of them were for copies that ran.
    pub fn settle(&self, paid: u32, lent: u32, spent: u32) {
        self.change(|was| {
            let back = (paid as i32 - spent as i32) * TOKEN;
            let next = State {
                level: was.level + back,
                outstanding: was.outstanding.saturating_sub(paid + lent),
                paid: was.paid.saturating_sub(paid),
            };
            self.capped(next)
        });
    }

    fn deposit(&self, units: u32) {
        let most = self.burst.load(Relaxed) * TOKEN as u32;
        let units = units.min(most) as i32;
        self.change(|was| self.capped(State { level: was.level.saturating_add(units), ..was }));
    }

    /// What is paid for has its place kept in the bucket: else a full bucket could be spent twice
    /// within a moment, once from the level and once from what was reserved long before.
    fn capped(&self, state: State) -> State {
        let most = self.burst.load(Relaxed).saturating_sub(state.paid) as i32 * TOKEN;
        State { level: state.level.min(most), ..state }
    }

    /// Failures empty the bucket; they put nobody into debt.
    fn withdraw(&self, units: u32) {
        self.change(|was| State { level: was.level.min((was.level - units as i32).max(0)), ..was });
    }

    /// Tokens in the bucket, whole ones; below zero, so many are to be earned before more are given.
    pub fn level(&self) -> i32 {
        unpack(self.word.load(Relaxed)).level.div_euclid(TOKEN)
    }

    /// Tokens that are reserved and not settled.
    pub fn outstanding(&self) -> u32 {
        unpack(self.word.load(Relaxed)).outstanding
    }

    fn change(&self, next: impl Fn(State) -> State) {
        let mut word = self.word.load(Relaxed);
        loop {
            match self.replace(word, pack(next(unpack(word)))) {
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

/// What one core has earned and not yet paid in: it is gathered here, and goes to the shared word a
/// token at a time.
#[derive(Debug, Default)]
pub(crate) struct Purse {
    units: u32,
    /// Until when time has been counted, by this core's clock.
    counted: Option<Instant>,
}

impl Purse {
    pub(crate) fn on_success(&mut self, budget: &Budget) {
        self.units += budget.fraction.load(Relaxed);
        self.pay_in(budget);
    }

    pub(crate) fn on_failure(&mut self, budget: &Budget) {
        self.units = 0;
        let drain = budget.drain.load(Relaxed);
        if drain > 0 {
            budget.withdraw(drain);
        }
    }

    /// Counts the time that has passed. More than fills the bucket is not counted.
    pub(crate) fn on_time(&mut self, budget: &Budget, now: Instant) {
        let per_second = u128::from(budget.per_second.load(Relaxed));
        if per_second == 0 {
            self.counted = None;
            return;
        }
        let counted = *self.counted.get_or_insert(now);
        let nanos = (now - counted).as_nanos();
        let earned = nanos * per_second / NANOS;
        if earned == 0 {
            return;
        }
        // What is left of a unit counts the next time.
        let left = (nanos * per_second % NANOS) / per_second;
        self.counted = Some(now - Duration::from_nanos(left as u64));
        let most = u128::from(budget.burst.load(Relaxed)) * TOKEN as u128;
        self.units += earned.min(most) as u32;
        self.pay_in(budget);
    }

    fn pay_in(&mut self, budget: &Budget) {
        if self.units >= TOKEN as u32 {
            budget.deposit(self.units);
            self.units = 0;
        }
    }
}

const NANOS: u128 = 1_000_000_000;

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
