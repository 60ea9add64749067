//! Durations as people write them.

use core::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Error, Visitor};

/// A duration: `200us`, `1.5ms`, `2s`, `10min`, `1h`.
#[derive(Clone, Copy)]
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        from.deserialize_str(Reader)
    }
}

struct Reader;

/// What is to be written.
const A_TIME: &str = "time such as \"200us\"; the units are ns, us, ms, s, min (or m) and h";

impl Visitor<'_> for Reader {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a {A_TIME}")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        read(text).map(Span).ok_or_else(|| E::custom(format!("{text:?} is no {A_TIME}")))
    }
}

/// None if it is no time, or one that no duration holds.
fn read(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}
