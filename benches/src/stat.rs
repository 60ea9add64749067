//! `bowline stat`: what a server says of itself, on one screen.

mod page;

use core::fmt::{self, Write};
use core::time::Duration;
use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::thread;

use bowline_runtime::exposition;
use thiserror::Error;

use self::page::{Page, PageError};
use crate::cli::StatArgs;
use crate::output::print;
use crate::serve_config::{ConfigError, resolve};

/// Nobody reads faster, and a server has better things to do.
const MIN_EVERY: Duration = Duration::from_millis(100);

/// Why there is nothing to show.
#[derive(Debug, Error)]
pub enum StatError {
    /// The address.
    #[error(transparent)]
    Address(#[from] ConfigError),
    /// Nobody answers there.
    #[error(
        "cannot get the numbers of {address}: {source}; a server tells them where --metrics says"
    )]
    Unreachable {
        /// Where.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// What came is no text.
    #[error("{address} answers, but not with numbers: a server tells them where --metrics says")]
    NoText {
        /// Where.
        address: SocketAddr,
    },
    /// What came is not what a server tells.
    #[error("{address} does not tell a server's numbers: {source}")]
    Page {
        /// Where.
        address: SocketAddr,
        /// What is wrong.
        source: PageError,
    },
    /// Standard output.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

/// Shows a server's numbers, again and again until it is interrupted, or once.
///
/// # Errors
/// [`StatError`]
pub fn run(args: &StatArgs) -> Result<(), StatError> {
    let address = resolve(host_and_port(&args.address))?;
    let clear = if io::stdout().is_terminal() && !args.once { "\x1b[H\x1b[2J" } else { "" };
    let mut before = None;
    loop {
        let page = fetch(address)?;
        let screen = Screen { address, now: &page, before: before.as_ref(), every: args.every };
        match print(format_args!("{clear}{screen}")) {
            // Whoever looked has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            said => said.map_err(StatError::Output)?,
        }
        if args.once {
            return Ok(());
        }
        before = Some(page);
        thread::sleep(args.every.max(MIN_EVERY));
    }
}

/// Of an address as a server prints it, `http://HOST:PORT/metrics`, that to connect to.
fn host_and_port(given: &str) -> &str {
    let given = given.strip_prefix("http://").unwrap_or(given);
    given.split_once('/').map_or(given, |(address, _)| address)
}

fn fetch(address: SocketAddr) -> Result<Page, StatError> {
    let text = exposition::fetch(address).map_err(|source| match source.kind() {
        // As a server says hello where it listens for requests.
        io::ErrorKind::InvalidData => StatError::NoText { address },
        _ => StatError::Unreachable { address, source },
    })?;
    Page::parse(&text).map_err(|source| StatError::Page { address, source })
}

/// What happened between two pages; since the start, if there is but one.
struct Screen<'a> {
    address: SocketAddr,
    now: &'a Page,
    before: Option<&'a Page>,
    every: Duration,
}

impl Screen<'_> {
    /// How much a counter went up.
    fn rise(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let before = self.before.map_or(0.0, |page| page.sum(name, labels));
        (self.now.sum(name, labels) - before).max(0.0)
    }

    /// A rise, by the second where there is an interval.
    fn rate(&self, rise: f64) -> String {
        match self.before {
            Some(_) => format!("{:.0}/s", rise / self.every.as_secs_f64()),
            None => format!("{rise:.0}"),
        }
    }

    /// The upper bound of the bucket that a share of the times is in.
    fn quantile(&self, name: &str, method: &str, share: f64) -> String {
        let mut buckets = self.now.buckets(name, method);
        if let Some(before) = self.before {
            let before = before.buckets(name, method);
            buckets.iter_mut().zip(before).for_each(|(now, before)| now.1 -= before.1);
        }
        let all = buckets.last().map_or(0.0, |last| last.1);
        let wanted = all * share;
        match buckets.iter().find(|bucket| all > 0.0 && bucket.1 >= wanted) {
            Some((bound, _)) if bound.is_finite() => {
                format!("<{:?}", Duration::from_secs_f64(*bound))
            }
            Some(_) => ">10s".to_owned(),
            None => "-".to_owned(),
        }
    }

    /// The values of a label that went up, with their rates.
    fn risen(&self, family: &str, label: &str) -> String {
        let mut line = String::new();
        for value in self.now.values_of(family, label) {
            let rise = self.rise(family, &[(label, &value)]);
            if rise > 0.0 {
                let sep = if line.is_empty() { "" } else { ", " };
                let _ = write!(line, "{sep}{value} {}", self.rate(rise));
            }
        }
        if line.is_empty() { "none".to_owned() } else { line }
    }

    fn gauge(&self, name: &str) -> f64 {
        self.now.sum(name, &[])
    }
}

impl fmt::Display for Screen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replica = self.now.common("replica");
        let zone = self.now.common("zone");
        let span = match self.before {
            Some(_) => format!("in the last {:?}", self.every),
            None => "since it started".to_owned(),
        };
        write!(f, "{}: replica {replica}", self.address)?;
        if !zone.is_empty() {
            write!(f, " in zone {zone}")?;
        }
        writeln!(f, ", {span}")?;
        writeln!(
            f,
            "copies    {} started, {:.0} running of {:.0} slots, {:.0} queued, {:.0} parked",
            self.rate(self.rise("bowline_copies_started_total", &[])),
            self.gauge("bowline_copies_running"),
            self.gauge("bowline_slots"),
            self.gauge("bowline_copies_queued"),
            self.gauge("bowline_copies_parked"),
        )?;
        let open = self.gauge("bowline_clients");
        writeln!(f, "open      {open:.0} connections, of clients and of peers")?;
        writeln!(f, "ended     {}", self.risen("bowline_copies_ended_total", "end"))?;
        writeln!(f, "rejected  {}", self.risen("bowline_requests_rejected_total", "reason"))?;
        writeln!(
            f,
            "ties      {} double starts; tombstones {}; {:.0} cores of peers to be told",
            self.rate(self.rise("bowline_double_starts_total", &[])),
            self.risen("bowline_tombstones_total", "what"),
            self.gauge("bowline_mesh_up"),
        )?;
        writeln!(
            f,
            "{:<20} {:>10} {:>10} {:>10} {:>12} {:>12}",
            "method", "answered", "wait p50", "wait p99", "service p50", "service p99"
        )?;
        for method in self.now.values_of("bowline_service_seconds_count", "method") {
            writeln!(
                f,
                "{method:<20} {:>10} {:>10} {:>10} {:>12} {:>12}",
                self.rate(self.rise("bowline_calls_total", &[("method", &method)])),
                self.quantile("bowline_queue_wait_seconds_bucket", &method, 0.5),
                self.quantile("bowline_queue_wait_seconds_bucket", &method, 0.99),
                self.quantile("bowline_service_seconds_bucket", &method, 0.5),
                self.quantile("bowline_service_seconds_bucket", &method, 0.99),
            )?;
        }
        for core in self.now.values_of("bowline_loop_turns_total", "core") {
            let of = [("core", core.as_str())];
            write!(
                f,
                "core {core}    {} turns, {} polls, {} waits, {} stalls, {:.0} tasks",
                self.rate(self.rise("bowline_loop_turns_total", &of)),
                self.rate(self.rise("bowline_loop_polls_total", &of)),
                self.rate(self.rise("bowline_loop_waits_total", &of)),
                self.rate(self.rise("bowline_loop_stalls_total", &of)),
                self.now.sum("bowline_loop_live_tasks", &of),
            )?;
            let overloaded = self.now.sum("bowline_overloaded", &of) > 0.0;
            writeln!(f, "{}", if overloaded { ", overloaded: newest first" } else { "" })?;
        }
        Ok(())
    }
}
