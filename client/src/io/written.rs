//! The configuration as it is written in a file.
//!
//! ```
//! let config = bowline_client::Config::from_toml(r#"
//!     [[replica]]
//!     id = 1
//!     address = "10.0.0.1:7000"
//!     domain = "rack a"
//!
//!     [[replica]]
//!     id = 2
//!     address = "10.0.0.2:7000"
//!     domain = "rack b"
//!
//!     [[method]]
//!     id = 1
//!     idempotent = true
//!     deadline = "50ms"
//!     tie = { stagger = "200us" }
//!     hedge = { percentile = 0.95, min = "1ms", max = "20ms" }
//! "#)?;
//! assert_eq!(config.replicas.len(), 2);
//! # Ok::<(), bowline_client::io::FileError>(())
//! ```

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use bowline_protocol::{Method, ReplicaId};
use serde::Deserialize;
use serde::de::Error as _;
use toml::Spanned;

use super::config::{Config, MethodConfig, Replica};
use crate::core::{Delay, HedgePolicy, Percentile, Policy, Stagger, TiePolicy};

/// What is wrong with a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It can't be read.
    #[error("{path}: {error}")]
    Read {
        /// Which file.
        path: String,
        /// Why not.
        error: std::io::Error,
    },
    /// It is no TOML, or says what is not known here. The message names the line.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A value that can't be had.
    #[error("line {line}: {what}")]
    Value {
        /// Where it begins, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    replica: Vec<Spanned<WrittenReplica>>,
    #[serde(default)]
    method: Vec<Spanned<WrittenMethod>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenReplica {
    id: u16,
    address: String,
    domain: Option<String>,
}

/// With `tie` it is tied, with `hedge` it is hedged, with both it is both.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMethod {
    id: u16,
    #[serde(default)]
    idempotent: bool,
    deadline: Option<Span>,
    tie: Option<WrittenTie>,
    hedge: Option<WrittenHedge>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTie {
    stagger: Option<Span>,
    window: Option<Span>,
    max_payload: Option<u32>,
}

/// With `delay` it is fixed; else the percentile counts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHedge {
    delay: Option<Span>,
    percentile: Option<f64>,
    min: Option<Span>,
    max: Option<Span>,
    fallback: Option<Span>,
    least_samples: Option<u64>,
    change_per_second: Option<f64>,
    max_hedges: Option<u8>,
    least_useful: Option<Span>,
    max_payload: Option<u32>,
}

/// A duration as people write it: `200us`, `1.5ms`, `2s`.
struct Span(Duration);

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

impl Config {
    /// Reads a configuration from a file; see [`Config::from_toml`].
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Config, FileError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|error| FileError::Read { path: path.display().to_string(), error })?;
        Config::from_toml(&text)
    }

    /// Reads replicas and methods from TOML; all else is as in [`Config::new`]. Host names are
    /// resolved here and now.
    ///
    /// # Errors
    ///
    /// [`FileError`], which names the line.
    pub fn from_toml(text: &str) -> Result<Config, FileError> {
        let written: Written = toml::from_str(text)?;
        let at = |span: Range<usize>| text[..span.start].matches('\n').count() + 1;
        let mut config = Config::new([]);
        for replica in written.replica {
            let line = at(replica.span());
            let replica =
                replica.into_inner().replica().map_err(|what| FileError::Value { line, what })?;
            if config.replicas.iter().any(|known| known.id == replica.id) {
                let what = format!("replica {} is here twice", replica.id);
                return Err(FileError::Value { line, what });
            }
            config.replicas.push(replica);
        }
        for method in written.method {
            let line = at(method.span());
            let method = method.into_inner();
            let refused = |what| FileError::Value { line, what };
            if method.hedge.as_ref().is_some_and(WrittenHedge::is_ambiguous) {
                return Err(refused(
                    "hedge has a fixed delay and a percentile's settings".to_owned(),
                ));
            }
            let (id, of) = method.method();
            of.policy.validate().map_err(|error| refused(error.to_string()))?;
            config = config.method(id, of);
        }
        Ok(config)
    }
}

impl WrittenReplica {
    fn replica(self) -> Result<Replica, String> {
        let resolved = self.address.to_socket_addrs().map(|mut all| all.next());
        let address: SocketAddr = match resolved {
            Ok(Some(address)) => address,
            Ok(None) => return Err(format!("{} has no address", self.address)),
            Err(error) => return Err(format!("{}: {error}", self.address)),
        };
        Ok(Replica { id: ReplicaId(self.id), address, domain: self.domain })
    }
}

impl WrittenMethod {
    fn method(self) -> (Method, MethodConfig) {
        let policy = match (self.tie.map(WrittenTie::policy), self.hedge.map(WrittenHedge::policy))
        {
            (None, None) => Policy::None,
            (None, Some(hedge)) => Policy::Hedged(hedge),
            (Some(tie), None) => Policy::Tied(tie),
            (Some(tie), Some(hedge)) => Policy::TiedThenHedged(tie, hedge),
        };
        let default = MethodConfig::default();
        let deadline = self.deadline.map_or(default.deadline, |span| span.0);
        (Method(self.id), MethodConfig { policy, idempotent: self.idempotent, deadline })
    }
}

impl WrittenTie {
    fn policy(self) -> TiePolicy {
        let default = TiePolicy::default();
        TiePolicy {
            stagger: self.stagger.map_or(default.stagger, |span| Stagger::Fixed(span.0)),
            window: self.window.map_or(default.window, |span| span.0),
            max_payload: self.max_payload.unwrap_or(default.max_payload),
        }
    }
}

impl WrittenHedge {
    fn is_ambiguous(&self) -> bool {
        let spans = [&self.min, &self.max, &self.fallback];
        let numbers = self.percentile.is_some() || self.change_per_second.is_some();
        let percentile =
            numbers || self.least_samples.is_some() || spans.iter().any(|s| s.is_some());
        self.delay.is_some() && percentile
    }

    fn policy(self) -> HedgePolicy {
        let (default, percentile) = (HedgePolicy::default(), Percentile::default());
        let delay = match self.delay {
            Some(delay) => Delay::Fixed(delay.0),
            None => Delay::Percentile(Percentile {
                quantile: self.percentile.unwrap_or(percentile.quantile),
                min: self.min.map_or(percentile.min, |span| span.0),
                max: self.max.map_or(percentile.max, |span| span.0),
                fallback: self.fallback.map(|span| span.0),
                least_samples: self.least_samples.unwrap_or(percentile.least_samples),
                change_per_second: self.change_per_second.unwrap_or(percentile.change_per_second),
            }),
        };
        HedgePolicy {
            delay,
            max_hedges: self.max_hedges.unwrap_or(default.max_hedges),
            least_useful: self.least_useful.map_or(default.least_useful, |span| span.0),
            max_payload: self.max_payload.unwrap_or(default.max_payload),
            auto_off: default.auto_off,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLICA: &str = "[[replica]]\nid = 1\naddress = \"127.0.0.1:7000\"\n";

    fn error(text: &str) -> String {
        Config::from_toml(&format!("{REPLICA}{text}")).unwrap_err().to_string()
    }

    #[test]
    fn a_method_is_read_with_its_policy() {
        let text = "[[method]]\nid = 3\nidempotent = true\ndeadline = \"1.5ms\"\n\
                    hedge = { delay = \"200us\", max_hedges = 2 }\n";
        let config = Config::from_toml(&format!("{REPLICA}{text}")).unwrap();
        let (id, of) = config.methods[0];
        assert_eq!(
            (id, of.idempotent, of.deadline),
            (Method(3), true, Duration::from_micros(1500))
        );
        let Policy::Hedged(hedge) = of.policy else { panic!("{:?}", of.policy) };
        assert_eq!(hedge.delay, Delay::Fixed(Duration::from_micros(200)));
        assert_eq!(hedge.max_hedges, 2);
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_its_line() {
        let text = "[[method]]\nid = 3\nhedge = { percentile = 95.0 }\n";
        let expected = "line 4: hedge.quantile is 95, but must be 0.5 to 0.9999";
        assert_eq!(error(text), expected);
    }

    #[test]
    fn a_delay_that_is_fixed_and_a_percentile_is_refused() {
        let text = "[[method]]\nid = 3\nhedge = { delay = \"1ms\", max = \"2ms\" }\n";
        let expected = "line 4: hedge has a fixed delay and a percentile's settings";
        assert_eq!(error(text), expected);
    }

    #[test]
    fn what_is_not_known_is_refused_with_its_line() {
        assert!(error("[[method]]\nid = 3\nhegde = {}\n").contains("line 6"));
        assert!(error("[[method]]\nid = 3\ndeadline = \"5 minutes\"\n").contains("line 6"));
        assert!(error("[[method]]\nid = 3\ndeadline = 5\n").contains("line 6"));
    }

    #[test]
    fn a_replica_that_is_there_twice_is_refused() {
        assert_eq!(error(REPLICA), "line 4: replica 1 is here twice");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Config::from_file("/nowhere/replicas.toml").unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/replicas.toml: "), "{error}");
    }
}
