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
}

impl Policy {
    /// Its name on the command line, in tables and in files.
    pub fn name(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::Hedged => "hedged",
            Policy::Tied => "tied",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
