//! The configuration as it is written in a file: all that a file may say, of which only the
//! replicas have to be said. What is left out is as the defaults of the settings' types say, which
//! are named in brackets: there the units and ranges stand, too. Spans have a unit: `"10us"`,
//! `"1.5ms"`, `"2s"`, `"5min"`, `"1h"`. Clients that watch the file ([`Live::watch`](super::Live::watch))
//! follow all of it while they run, but `max_reply` and `labels`: another value of those is logged, and
//! counts from the next start.
//!
//! ```
//! let config = bowline_client::Config::from_toml(r#"
//!     second_copies = true        # false stops all hedges and ties at once
//!     zone = "a"                  # where this client is: nearer replicas are asked first
//!     region = "north"
//!
//!     pick = "power-of-two"       # or "hot-cold", "round-robin", "first", { c3 = { clients = 10 } }
//!     warm_up = "10s"             # a replica that was just connected is spared for so long
//!     load_lifetime = "100ms"     # what a replica says of its load and freshness counts so long
//!     reserve = "0s"              # of each deadline for the caller's own work after the reply
//!     patience = "1s"             # a call waits so long for a replica to be connected
//!     labels = ["hit", "disk"]    # calls with these have delays of their own: not followed on reload
//!     max_reply = 1048576         # the largest payload of a reply, in bytes: not followed on reload
//!     retry = { most = 2, first = "1ms", max = "100ms" }   # what all replicas refused
//!     eject = { after = 5, first = "1s", max = "30s" }     # or { enabled = false }
//!
//!     [budget]                    # for extra copies, of all methods together (core::BudgetConfig)
//!     fraction = 0.05             # so many a call that succeeds
//!     per_second = 1.0            # and so many with time
//!     burst = 256                 # the most that is saved up
//!     outstanding = 1024          # the most that tied calls may have lent at a time
//!     drain = 1.0                 # so many are lost with a call that fails
//!
//!     [[replica]]
//!     id = 1
//!     address = "10.0.0.1:7000"   # or a name and port, or an SRV record's name (`_bowline._tcp.r1.example`)
//!     domain = "rack a"
//!
//!     [[replica]]
//!     id = 2
//!     address = "10.0.0.2:7000"
//!     domain = "rack b"
//!     results = "ledger 1"        # where it keeps keyed results, if it shares that; its server is told, too
//!     zone = "b"                  # asked after those of the client's own (zone = .. at the top)
//!     region = "south"            # of other regions than the client's own (at the top, too): last
//!     weight = 2                  # has twice as much to do
//!     methods = [1, 2]            # serves no others
//!     keys = [[0, 4999]]          # nor other shard keys
//!
//!     [[method]]
//!     id = 1
//!     idempotent = true
//!     deadline = "50ms"
//!     max_staleness = "250ms"     # older replies are no results, nor those that do not say
//!     replies = { good = [5], retryable = [7], stale = [9] } # the service's own errors; others are final
//!     max_attempts = 4            # copies of a call in all
//!     retry = { most = 1 }        # in the place of the one above
//!     budget = { fraction = 0.02 }            # besides the one for all methods; the same settings
//!
//!     [method.tie]                            # two copies that stop each other (core::TiePolicy)
//!     stagger = "200us"                       # the second's; left out: measured
//!     window = "10ms"                         # for which servers remember that one has started
//!     max_payload = 65536                     # larger requests have one copy
//!
//!     [method.hedge]                          # (core::HedgePolicy, core::Percentile)
//!     percentile = 0.95                       # of what copies take; or a fixed `delay` and none of these:
//!     min = "1ms"
//!     max = "20ms"
//!     fallback = "5ms"                        # while there are too few samples; left out: no hedge then
//!     least_samples = 100
//!     change_per_second = 2.0                 # the delay grows or shrinks by this factor at most
//!     max_rise = 4.0                          # and never above so many times what it was in calm
//!     max_hedges = 1                          # copies besides the first
//!     least_useful = "100us"                  # with less time left there is none
//!     max_payload = 65536
//!
//!     [method.hedge.auto_off]                 # when hedges do no good (core::AutoOff); or enabled = false
//!     window = "1s"                           # each is looked at by itself
//!     least_calls = 200                       # with fewer, nothing is concluded
//!     max_pushback = 0.1                      # refused or shed, a call
//!     max_errors = 0.2                        # failed, a call
//!     max_queued = 64.0                       # requests that wait at a replica, on average
//!     min_wins = 0.01                         # hedges that were of use
//!     least_hedges = 50                       # before that is looked at
//!     max_excess = 5.0                        # hedges, as a multiple of what the percentile implies
//!     off_for = "5s"                          # then it is tried again
//!
//!     [[method]]                              # the same method's calls of one class
//!     id = 1
//!     class = 2
//!     idempotent = true
//!     deadline = "1s"
//!     canary = { share = 0.05, hedge = { delay = "2ms" } }       # tried by 5 % of them
//!     shadow = [{ delay = "1ms" }, { percentile = 0.9 }, { stagger = "100us" }]  # in thought
//! "#)?;
//! assert_eq!((config.replicas.len(), config.methods.len()), (2, 2));
//! # Ok::<(), bowline_client::io::FileError>(())
//! ```
//!
//! A `[[replica]]` without an id, whose address is the name of SRV records (`_bowline._tcp.store.example`,
//! feature `srv`), is a set of them: all that the records name. Replica 3 is at `store-3.store.example`,
//! or at another name whose first label ends in its number. Priorities and weights are the records';
//! all else that is said of the set holds for each of its members.

mod line;
mod resolve;
mod span;
#[cfg(feature = "srv")]
mod srv;
mod words;
mod written;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bowline_protocol::Method;

use self::line::{Step, line_at, line_of};
use self::written::{MOST_ERROR, Written, WrittenCandidate, WrittenHedge, WrittenMethod};
use super::config::{Config, ConnectError, MethodConfig, Replica, Spot};
use crate::core::{Budget, Candidate, ConfigError};

pub(super) use self::resolve::{Found, find_set, is_record, resolve};

/// What is wrong with a configuration file.
#[derive(thiserror::Error)]
pub enum FileError {
    /// It can't be read.
    #[error("{path}: {error}")]
    Read {
        /// Which file.
        path: String,
        /// Why not.
        error: io::Error,
    },
    /// It says what is one of the others.
    #[error(fmt = write_within)]
    In {
        /// Which file.
        path: String,
        /// What is wrong there.
        error: Box<FileError>,
    },
    /// It is no TOML, or says what is not known here. In one line; `{:#}` shows the place, too.
    #[error(fmt = write_syntax)]
    Syntax {
        /// Where that is, from 1.
        line: usize,
        /// What is wrong there.
        error: toml::de::Error,
    },
    /// A value that can't be had.
    #[error("line {line}: {what}")]
    Value {
        /// Where it stands, from 1.
        line: usize,
        /// What is wrong, and what would not be.
        what: String,
    },
}

fn write_within(path: &str, error: &FileError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{path}: ")?;
    fmt::Display::fmt(error, f)
}

fn write_syntax(line: &usize, error: &toml::de::Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if f.alternate() {
        let shown = error.to_string().replace(error.message(), &words::plain(error.message()));
        return write!(f, "{}", shown.trim_end());
    }
    // An event of a log is one line.
    let message = words::plain(error.message());
    let lines: Vec<&str> = message.lines().map(str::trim).collect();
    write!(f, "line {line}: {}", lines.join(", "))
}

/// The line on which this file says that the method is idempotent, if it can still be read and does.
pub(super) fn line_of_idempotent(path: &Path, method: Method) -> Option<usize> {
    let text = text_of(path).ok()?;
    let written: Written = toml::from_str(&text).ok()?;
    let n = written.method.iter().position(|it| it.idempotent && it.id == method.0)?;
    Some(line_of(&text, &[Step::Key("method"), Step::Item(n), Step::Key("idempotent")]))
}

/// A file is no larger than that.
const MOST: u64 = 1 << 20;

/// What a file says. What is no file, such as a pipe that nobody writes to, is not waited for.
fn text_of(path: &Path) -> io::Result<String> {
    let not = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        return not("it is no regular file");
    }
    if about.len() > MOST {
        return not("it is larger than 1 MiB: is it a configuration?");
    }
    std::fs::read_to_string(path)
}

impl Config {
    /// Reads a configuration from a file; see [`Config::from_toml`]. It has to be a regular one of 1 MiB
    /// at most: who has it from a pipe reads that, and hands the text to [`Config::from_toml`].
    ///
    /// # Errors
    ///
    /// [`FileError`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Config, FileError> {
        Config::from_file_again(path.as_ref(), &[])
    }

    /// As [`Config::from_toml_again`].
    pub(super) fn from_file_again(path: &Path, known: &[Replica]) -> Result<Config, FileError> {
        let name = || path.display().to_string();
        let text = text_of(path).map_err(|error| FileError::Read { path: name(), error })?;
        Config::from_toml_again(&text, known)
            .map_err(|error| FileError::In { path: name(), error: Box::new(error) })
    }

    /// Reads replicas, methods and budgets from TOML; all else is as in [`Config::new`]. Host names
    /// are resolved here and now.
    ///
    /// # Errors
    ///
    /// [`FileError`], which names the line.
    pub fn from_toml(text: &str) -> Result<Config, FileError> {
        Config::from_toml_again(text, &[])
    }

    /// The same, where the addresses of some names are known: those are not looked up, so that what
    /// else the file says (that second copies are to stop) waits for no name server.
    pub(super) fn from_toml_again(text: &str, known: &[Replica]) -> Result<Config, FileError> {
        let written: Written = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            FileError::Syntax { line: line_at(text, at), error }
        })?;
        let mut config = Config::new([]);
        config.core.switch.set(written.second_copies);
        written.set(&mut config.core);
        config.core.validate().map_err(|error| refused(text, &[], &error))?;
        config.max_reply = written.max_reply.unwrap_or(config.max_reply);
        config.check_sizes().map_err(|error| refused(text, &[], &error))?;
        (config.zone, config.region) = (written.zone, written.region);
        if let Some(budget) = &written.budget {
            let budget = Budget::new(budget.config());
            config.core.budget = Arc::new(budget.map_err(|error| refused(text, &[], &error))?);
        }
        for (n, replica) in written.replica.iter().enumerate() {
            let at = |key| line_of(text, &[Step::Key("replica"), Step::Item(n), Step::Key(key)]);
            let value = |key, what| FileError::Value { line: at(key), what };
            for replica in replica.replicas(known).map_err(|what| value("address", what))? {
                let way = [Step::Key("replica"), Step::Item(n)];
                let valid = replica.placement(0, None, Spot::default()).validate();
                valid.map_err(|error| refused(text, &way, &error))?;
                replica.check_beside(&config.replicas).map_err(|error| match error {
                    ConnectError::Twice(_) => value("id", error.to_string()),
                    error => value("address", error.to_string()),
                })?;
                config.replicas.push(replica);
            }
        }
        for (n, method) in written.method.iter().enumerate() {
            let (id, of) = read_method(text, n, method)?;
            if config.methods.iter().any(|(known, had)| *known == id && had.class == of.class) {
                let line = line_of(text, &[Step::Key("method"), Step::Item(n), Step::Key("id")]);
                let what = format!("method {} is here twice; of each class once", id.0);
                return Err(FileError::Value { line, what });
            }
            config = config.method(id, of);
        }
        Ok(config)
    }
}

fn read_method(
    text: &str,
    n: usize,
    written: &WrittenMethod,
) -> Result<(Method, MethodConfig), FileError> {
    let here = [Step::Key("method"), Step::Item(n)];
    let at = |way: &[Step<'_>]| line_of(text, &[&here, way].concat());
    let in_canary = written.canary.as_ref().and_then(|canary| canary.hedge.as_ref());
    let hedge = [Step::Key("hedge")];
    let canary = [Step::Key("canary"), Step::Key("hedge")];
    for (hedge, way) in [(written.hedge.as_ref(), &hedge[..]), (in_canary, &canary[..])] {
        if hedge.is_some_and(WrittenHedge::is_ambiguous) {
            let what = "hedge has a fixed delay and a percentile's settings; leave one of them out";
            return Err(FileError::Value { line: at(way), what: what.to_owned() });
        }
    }
    if let Some(number) = written.misjudged() {
        let what = match number {
            0..=MOST_ERROR => format!("error {number} is here twice; a reply is worth one thing"),
            _ => format!("there is no error {number}; a service's own end at {MOST_ERROR}"),
        };
        return Err(FileError::Value { line: at(&[Step::Key("replies")]), what });
    }
    let (id, mut of) = written.method();
    of.policy.validate().map_err(|error| refused(text, &here, &error))?;
    if let Some(canary) = &of.canary {
        let way = [&here[..], &[Step::Key("canary")]].concat();
        canary.policy.validate().map_err(|error| refused(text, &way, &error))?;
    }
    of.shadow = read_shadow(&written.shadow, |n, what| {
        let way = [Step::Key("shadow"), Step::Item(n)];
        FileError::Value { line: at(&way), what }
    })?;
    of.validate().map_err(|error| refused(text, &here, &error))?;
    if let Some(budget) = &written.budget {
        let budget = Budget::new(budget.config());
        of.budget = Some(Arc::new(budget.map_err(|error| refused(text, &here, &error))?));
    }
    Ok((id, of))
}

fn read_shadow(
    written: &[WrittenCandidate],
    at: impl Fn(usize, String) -> FileError,
) -> Result<Vec<Candidate>, FileError> {
    let read = |(n, one): (usize, &WrittenCandidate)| {
        let what = || "it must be one of a delay, a percentile and a stagger".to_owned();
        let candidate = one.candidate().ok_or_else(|| at(n, what()))?;
        candidate.validate().map_err(|error| at(n, error.to_string()))?;
        Ok(candidate)
    };
    written.iter().enumerate().map(read).collect()
}

/// The line of a setting that the machine would not have: its path there is the file's, nearly.
fn refused(text: &str, within: &[Step<'_>], error: &ConfigError) -> FileError {
    let path = error.field.replace("quantile", "percentile");
    let mut way = within.to_vec();
    // A replica's settings stand in its table, not in one within that.
    let inner = path.strip_prefix("replica.").filter(|_| !within.is_empty()).unwrap_or(&path);
    way.extend(inner.split('.').map(Step::Key));
    let what = format!("{path} is {}, but must be {}", error.found, error.expected);
    FileError::Value { line: line_of(text, &way), what }
}

#[cfg(test)]
mod tests;
