//! Durations, sizes and shares as people write them: `2ms`, `64MiB`, `10%`.

use core::time::Duration;

/// Reads a duration with its unit: `250us`, `2ms`, `1.5s`, `1min`; `0` needs none.
///
/// # Errors
/// What was wrong, with an example of what is right.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    bowline_time::parse_duration(text).map_err(|error| error.to_string())
}

/// Reads a duration whose plain number means seconds: `5`, `0.5`, `500ms`.
///
/// # Errors
/// As [`parse_duration`].
pub fn parse_seconds(text: &str) -> Result<Duration, String> {
    parse_with_default_unit(text, "s")
}

/// Reads a duration whose plain number means microseconds: `50`, `50us`.
///
/// # Errors
/// As [`parse_duration`].
pub fn parse_micros(text: &str) -> Result<Duration, String> {
    parse_with_default_unit(text, "us")
}

/// Reads a size with its unit: `4096B`, `64KiB`, `64MiB`, `1.5GiB`, or in thousands `64MB`.
///
/// # Errors
/// What was wrong, with an example of what is right.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit {
        "B" => 1,
        "KiB" | "K" | "k" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        "KB" | "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "" => return Err(format!("no unit; write for example {number}MiB or {number}B")),
        other => return Err(format!("unknown unit {other:?}; write for example 64MiB or 1GiB")),
    };
    let bytes = number * factor as f64;
    // Above 2^53 a double no longer holds every whole number; nobody means such a file.
    if bytes > 9.0e15 {
        Err("out of range".into())
    } else if bytes.fract() != 0.0 {
        Err("not a whole number of bytes; write for example 64MiB".into())
    } else {
        Ok(bytes as u64)
    }
}

/// Reads a share in per cent, `10` or `10%`, as 0.1. Below 1 it needs its sign: a bare `0.5` may
/// mean 50 % or 0.5 %.
///
/// # Errors
/// What was wrong, with an example of what is right.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    match split(text)? {
        (number, "") if number > 0.0 && number < 1.0 => {
            let hundredfold = (number * 1e8).round() / 1e6;
            Err(format!("may mean two things; write {hundredfold}% or {number}%"))
        }
        (number, "" | "%") if number <= 100.0 => Ok(number / 100.0),
        (_, "" | "%") => Err("more than 100 %".into()),
        (_, other) => Err(format!("unknown unit {other:?}; write for example 10%")),
    }
}

/// Reads a rate a second, above zero and at most ten million.
///
/// # Errors
/// What was wrong.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    match split(text)? {
        (rate, "" | "/s") if rate > 0.0 && rate <= 1e7 => Ok(rate),
        (_, "" | "/s") => Err("must be above zero and at most 10000000".into()),
        (_, other) => Err(format!("unknown unit {other:?}; write calls a second, such as 500")),
    }
}

/// A duration for readers, three digits and a unit: `1.23 ms`.
pub fn show_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos() as f64;
    let (value, unit) = match nanos {
        n if n < 1e3 => (n, "ns"),
        n if n < 1e6 => (n / 1e3, "us"),
        n if n < 1e9 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// A number with three digits that mean something: `1234`, `123`, `12.3`, `1.23`.
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// A size for readers: `64 MiB`.
pub fn show_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    let step = (0..UNITS.len() - 1).find(|step| bytes >> (10 * step) < 1024).unwrap_or(3);
    let value = bytes as f64 / (1u64 << (10 * step)) as f64;
    if value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[step])
    } else {
        format!("{} {}", three_digits(value), UNITS[step])
    }
}

fn parse_with_default_unit(text: &str, unit: &str) -> Result<Duration, String> {
    match split(text)? {
        (_, "") => parse_duration(&format!("{}{unit}", text.trim())),
        _ => parse_duration(text),
    }
}

/// Parts a number that is not negative from the unit behind it.
fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let of_unit = |c: char| c.is_alphabetic() || matches!(c, '%' | '/');
    let (number, unit) = text.split_at(text.trim_end_matches(of_unit).len());
    let number = number.trim().parse().ok().filter(|number| *number >= 0.0);
    Ok((number.ok_or("not a number, or a negative one")?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_number_takes_the_default_unit() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_seconds("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(parse_micros("50"), Ok(Duration::from_micros(50)));
    }

    #[test]
    fn sizes_are_read_in_powers_of_two_and_of_ten() {
        assert_eq!(parse_size("4096B"), Ok(4096));
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse_size("64MB"), Ok(64_000_000));
        for (text, told) in [
            ("65537", "no unit; write for example 65537MiB or 65537B"),
            ("64 parsecs", "unknown unit \"parsecs\""),
            ("99999999TiB", "out of range"),
            ("0.3KiB", "not a whole number of bytes"),
            ("-1MiB", "a negative one"),
        ] {
            let error = parse_size(text).expect_err(text);
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn shares_and_rates_are_bounded() {
        assert_eq!(parse_percent("10%"), Ok(0.1));
        assert_eq!(parse_percent("10"), Ok(0.1));
        assert!(parse_percent("101%").is_err());
        assert_eq!(parse_percent("0"), Ok(0.0));
        assert_eq!(parse_percent("0.5%"), Ok(0.005));
        let told = "may mean two things; write 7% or 0.07%";
        assert_eq!(parse_percent("0.07"), Err(told.to_owned()));
        assert_eq!(parse_rate("500"), Ok(500.0));
        assert_eq!(parse_rate("1.5e3/s"), Ok(1500.0));
        for text in ["0", "1e12"] {
            assert!(parse_rate(text).expect_err(text).contains("at most 10000000"), "{text}");
        }
    }

    #[test]
    fn readers_get_three_digits_and_a_unit() {
        for (nanos, text) in [
            (950, "950 ns"),
            (1_234, "1.23 us"),
            (12_345_678, "12.3 ms"),
            (999_600_000, "1000 ms"),
            (2_000_000_000, "2.00 s"),
        ] {
            assert_eq!(show_duration(Duration::from_nanos(nanos)), text);
        }
        assert_eq!(show_size(64 << 20), "64 MiB");
        assert_eq!(show_size(1536), "1.50 KiB");
        assert_eq!(show_size(3), "3 B");
    }
}
