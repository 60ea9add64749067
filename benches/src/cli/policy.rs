//! Names that appear on the command line and in reports.

use core::fmt;

use clap::ValueEnum;

use crate::faults::Pattern;

/// A way of using replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Policy {
    /// One copy, to one replica
    None,
    /// A second copy when the first is slow
    Hedged,
    /// Two copies that know of each other; the one that starts first cancels the other
    Tied,
    /// Tied, and a third copy when the one that started is itself slow
    TiedHedged,
}

impl Policy {
    /// Its name on the command line, in tables and in files.
    pub fn name(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::Hedged => "hedged",
            Policy::Tied => "tied",
            Policy::TiedHedged => "tied-hedged",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a client chooses the replica of a copy among those that it may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pick {
    /// One after the other, whatever their load
    RoundRobin,
    /// The less loaded of two drawn at random
    TwoChoices,
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pick::RoundRobin => "round-robin",
            Pick::TwoChoices => "two-choices",
        })
    }
}

/// Which replicas stall together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FaultPattern {
    /// One replica at a time, drawn anew for each stall
    Independent,
    /// Always the first replica
    One,
    /// All at once: a shared cause, against which no second copy helps
    All,
    /// No stalls
    Off,
}

impl FaultPattern {
    /// The pattern that plans are drawn from.
    pub fn pattern(self) -> Pattern {
        match self {
            FaultPattern::Independent => Pattern::Independent,
            FaultPattern::One => Pattern::One,
            FaultPattern::All => Pattern::All,
            FaultPattern::Off => Pattern::Off,
        }
    }
}

impl fmt::Display for FaultPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FaultPattern::Independent => "independent",
            FaultPattern::One => "one",
            FaultPattern::All => "all",
            FaultPattern::Off => "off",
        })
    }
}
