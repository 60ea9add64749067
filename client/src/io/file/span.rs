//! Durations as people write them.

use std::time::Duration;

use serde::Deserialize;
use serde::de::Error as _;

/// A duration: `200us`, `1.5ms`, `2s`.
#[derive(Clone, Copy)]
pub(super) struct Span(pub(super) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        let text = String::deserialize(from)?;
        let expected = || D::Error::custom(format!("{text:?} is no time such as \"200us\""));
        let digits = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(expected)?;
        let (number, unit) = text.split_at(digits);
        let unit = match unit {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            _ => return Err(expected()),
        };
        let number: f64 = number.trim().parse().map_err(|_| expected())?;
        Duration::try_from_secs_f64(number * unit).map(Span).map_err(|_| expected())
    }
}
