//! Durations as people write them.

use core::error::Error;
use core::fmt;
use core::time::Duration;

/// Reads a duration with its unit: `250us`, `2ms`, `1.5s`, `10min`, `1h`; `0` needs none.
///
/// ```
/// use bowline_time::{Duration, parse_duration};
///
/// assert_eq!(parse_duration("1.5ms"), Ok(Duration::from_micros(1500)));
/// let error = parse_duration("5").unwrap_err();
/// assert_eq!(error.to_string(), "no unit; write for example 5ms or 5s");
/// ```
///
/// # Errors
///
/// What is wrong with it, with the cure.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let number: f64 = number.trim().parse().map_err(|_| DurationError::NoNumber)?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" if number == 0.0 => 1.0,
        "" => return Err(DurationError::NoUnit(number)),
        _ => return Err(DurationError::UnknownUnit),
    };
    if number < 0.0 {
        return Err(DurationError::NoNumber);
    }
    Duration::try_from_secs_f64(number * seconds).map_err(|_| DurationError::OutOfRange)
}

/// Why what was written is no duration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DurationError {
    /// It does not begin with a number, or with one below zero.
    NoNumber,
    /// A number alone.
    NoUnit(f64),
    /// What follows the number is no unit of time.
    UnknownUnit,
    /// Longer than a [`Duration`] can be: more than five hundred thousand million years.
    OutOfRange,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DurationError::NoNumber => f.write_str("not a number, or a negative one"),
            DurationError::NoUnit(number) => {
                write!(f, "no unit; write for example {number}ms or {number}s")
            }
            DurationError::UnknownUnit => {
                f.write_str("unknown unit; there are ns, us, ms, s, min (or m) and h")
            }
            DurationError::OutOfRange => f.write_str("out of range"),
        }
    }
}

impl Error for DurationError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        for (text, nanos) in [
            ("250ns", 250),
            ("250us", 250_000),
            ("250µs", 250_000),
            ("2ms", 2_000_000),
            ("1.5s", 1_500_000_000),
            ("1e3ms", 1_000_000_000),
            (" 1 min ", 60_000_000_000),
            ("1m", 60_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_by_what_is_wrong_with_it() {
        for (text, why) in [
            ("", DurationError::NoNumber),
            ("ms", DurationError::NoNumber),
            ("-1ms", DurationError::NoNumber),
            ("nan", DurationError::NoNumber),
            ("1 2ms", DurationError::NoNumber),
            ("5", DurationError::NoUnit(5.0)),
            ("2 weeks", DurationError::UnknownUnit),
            ("1e400s", DurationError::OutOfRange),
        ] {
            assert_eq!(parse_duration(text), Err(why), "{text}");
        }
    }
}
