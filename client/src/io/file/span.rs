//! Durations as people write them.

use core::fmt;
use std::time::Duration;

use bowline_time::parse_duration;
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
        parse_duration(text).map(Span).map_err(|_| E::custom(format!("{text:?} is no {A_TIME}")))
    }
}
