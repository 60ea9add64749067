//! Names that appear on the command line and in reports.

use core::fmt;

use bowline_client::core::PickRule;
use clap::ValueEnum;

use crate::faults::Pattern;
use crate::units::three_digits;

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
    /// The faster of two drawn at random, unless it is busier than most: for replicas that are unlike
    HotCold,
    /// The one that would answer the soonest, by its queue and its speed
    C3,
}

impl Pick {
    /// The rule, for a frontend that is the only one.
    pub const fn rule(self) -> PickRule {
        match self {
            Pick::RoundRobin => PickRule::RoundRobin,
            Pick::TwoChoices => PickRule::PowerOfTwo,
            Pick::HotCold => PickRule::HotCold,
            Pick::C3 => PickRule::C3 { clients: 1 },
        }
    }
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pick::RoundRobin => "round-robin",
            Pick::TwoChoices => "two-choices",
            Pick::HotCold => "hot-cold",
            Pick::C3 => "c3",
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

/// What befalls a replica in a stall.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// It stands still.
    Stall,
    /// Its process ends, and comes back with nothing that it had.
    Crash,
    /// Requests that it begins take so many times as long.
    Slow(f64),
    /// What it sends and is sent takes so many times as long.
    Network(f64),
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FaultKind::Stall => f.write_str("stall"),
            FaultKind::Crash => f.write_str("crash"),
            FaultKind::Slow(times) => write!(f, "slow:{}x", three_digits(times)),
            FaultKind::Network(times) => write!(f, "network:{}x", three_digits(times)),
        }
    }
}

/// Reads `stall`, `crash`, `slow:5x` or `network:20x`.
pub(super) fn parse_fault_kind(text: &str) -> Result<FaultKind, String> {
    let (name, value) = match text.trim().split_once(':') {
        Some((name, value)) => (name, Some(value)),
        None => (text.trim(), None),
    };
    let how_many = || times(value.ok_or_else(|| format!("write for example {name}:5x"))?);
    match name {
        "slow" => how_many().map(FaultKind::Slow),
        "network" => how_many().map(FaultKind::Network),
        "stall" | "crash" if value.is_some() => {
            Err(format!("{name} takes no number; leave what follows it out"))
        }
        "stall" => Ok(FaultKind::Stall),
        "crash" => Ok(FaultKind::Crash),
        _ => Err("there are stall, crash, slow:TIMES and network:TIMES".into()),
    }
}

/// Reads `5` or `5x`.
pub(super) fn times(text: &str) -> Result<f64, String> {
    let times = text.trim().trim_end_matches('x').parse().ok();
    times
        .filter(|times| (1.0..=1000.0).contains(times))
        .ok_or_else(|| "a number of times, 1 to 1000".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_faults_are_read_and_what_is_none_hears_what_there_is() {
        for (text, kind) in [
            ("stall", FaultKind::Stall),
            ("crash", FaultKind::Crash),
            ("slow:5x", FaultKind::Slow(5.0)),
            ("network:20", FaultKind::Network(20.0)),
        ] {
            assert_eq!(parse_fault_kind(text), Ok(kind), "{text}");
        }
        for (text, told) in [
            ("slow", "slow:5x"),
            ("slow:0.5", "1 to 1000"),
            ("crash:2x", "takes no number"),
            ("fire", "network:TIMES"),
        ] {
            let error = parse_fault_kind(text).expect_err(text);
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
