//! The options of the commands that reckon with models: `simulate` and `predict`.

use core::fmt;
use core::num::NonZeroU32;
use core::time::Duration;
use std::path::PathBuf;

use bowline_tests::kernel::span::Span;
use clap::{Args, ValueEnum};

use super::args::{FaultArgs, count, some_time, up_to, whole};
use super::policy::{FaultKind, Pick, Policy, parse_fault_kind, times};
use crate::model::{ModelSpec, parse_model, parse_span};
use crate::units::{parse_duration, parse_percent, parse_rate};

/// Options of `bowline simulate`.
#[derive(Args, Clone, Debug)]
pub struct SimulateArgs {
    /// Calls of each policy in each round
    ///
    /// A percentile is reported only with 100 samples beyond it: p99 needs 10 000 calls of a policy
    /// (in each round, for its ratio), p99.9 needs 100 000.
    #[arg(long, value_name = "N", default_value = "100000", value_parser = count::<10_000_000>)]
    pub calls: NonZeroU32,
    /// Rounds; in each, every policy has the same calls. Ratios are given with their spread over
    /// these
    #[arg(long, value_name = "N", default_value = "3", value_parser = count::<1000>)]
    pub rounds: NonZeroU32,
    /// Kinds of policies to try; each is tried with all of its settings below
    #[arg(
        long,
        value_name = "NAMES",
        value_enum,
        value_delimiter = ',',
        default_value = "none,hedged,tied"
    )]
    pub policies: Vec<Policy>,
    /// Folder for report.html, latency.svg, results.json and the histograms
    #[arg(long, value_name = "DIR", default_value = "bowline-simulation")]
    pub out: PathBuf,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = count::<1024>)]
    pub threads: Option<NonZeroU32>,
    /// Names all random draws: the same seed, the same figures, on every machine
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole::<u64>)]
    pub seed: u64,
    /// What is tried.
    #[command(flatten)]
    pub sweep: SweepArgs,
    /// What it is tried on.
    #[command(flatten)]
    pub world: WorldArgs,
    /// Mean calls a second, a Poisson process; of several each is tried [default: 1800]
    #[arg(
        long = "rate",
        value_name = "PER_SECOND,...",
        value_delimiter = ',',
        value_parser = parse_rate,
        conflicts_with = "loads",
        help_heading = "Cluster"
    )]
    pub rates: Vec<f64>,
    /// The rate instead as the share of time for which slots are busy if every call runs once; of
    /// several each is tried
    #[arg(
        long = "load",
        value_name = "PERCENT,...",
        value_delimiter = ',',
        value_parser = parse_percent,
        help_heading = "Cluster"
    )]
    pub loads: Vec<f64>,
    /// Stalls.
    #[command(flatten)]
    pub faults: FaultArgs,
    /// What befalls a replica in a stall; of several, each time one is drawn
    ///
    /// stall: it stands still, and what arrives waits. crash: its process ends, its connections
    /// close, and at the stall's end it is back, with nothing that it had. slow:TIMES: requests that it begins take so many times as long.
    /// network:TIMES: what it sends, and what is sent to it, takes so many times as long.
    #[arg(
        long,
        value_name = "KINDS",
        value_delimiter = ',',
        default_value = "stall",
        value_parser = parse_fault_kind,
        help_heading = "Stalls"
    )]
    pub fault_kinds: Vec<FaultKind>,
}

/// How many calls come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Offered {
    /// So many a second.
    Rate(f64),
    /// As many as keep slots busy for this share of the time, if every call runs once.
    Load(f64),
}

impl Offered {
    /// The name of a folder for what came of it: `load-60`, `rate-900`.
    pub fn folder(self) -> String {
        match self {
            Offered::Rate(rate) => format!("rate-{rate}"),
            Offered::Load(load) => format!("load-{}", percent(load)),
        }
    }
}

impl fmt::Display for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Offered::Rate(rate) => write!(f, "{rate} /s"),
            Offered::Load(load) => write!(f, "{} %", percent(load)),
        }
    }
}

/// A share as it was written, without what a double adds to it.
fn percent(share: f64) -> f64 {
    (share * 1e8).round() / 1e6
}

/// Calls a second where nothing else is said.
const USUAL: Offered = Offered::Rate(1800.0);

impl SimulateArgs {
    /// What is tried, one after the other.
    pub fn offered(&self) -> Vec<Offered> {
        let rates = self.rates.iter().map(|&rate| Offered::Rate(rate));
        let loads = self.loads.iter().map(|&load| Offered::Load(load));
        let all: Vec<Offered> = rates.chain(loads).collect();
        if all.is_empty() { vec![USUAL] } else { all }
    }
}

/// Options of `bowline predict`.
#[derive(Args, Clone, Debug)]
pub struct PredictArgs {
    /// Hedge when a call takes longer than this share of calls that wait for nothing
    #[arg(
        long,
        value_name = "PERCENT,...",
        value_delimiter = ',',
        default_value = "90%,95%,99%",
        value_parser = parse_percentile
    )]
    pub hedge_percentiles: Vec<f64>,
    /// Hedge after this delay, too
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', value_parser = up_to("60s"))]
    pub hedge_delays: Vec<Duration>,
    /// A user's request makes so many calls and waits for all of them
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "10,100",
        value_parser = fan_out
    )]
    pub fan_out: Vec<u32>,
    /// Mean calls a second, a Poisson process [default: 1800]
    #[arg(
        long,
        value_name = "PER_SECOND",
        value_parser = parse_rate,
        conflicts_with = "load",
        help_heading = "Cluster"
    )]
    pub rate: Option<f64>,
    /// The rate instead as the share of time for which slots are busy if every call runs once
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = parse_percent,
        help_heading = "Cluster"
    )]
    pub load: Option<f64>,
    /// For a while, calls come so many times as fast
    #[arg(long, value_name = "TIMES", default_value = "3", value_parser = times)]
    pub surge: f64,
    /// For how long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = up_to("1h"))]
    pub surge_for: Duration,
    /// Simulate the same cluster and print it beneath, with how far each formula is off
    #[arg(long)]
    pub simulate: bool,
    /// Calls of each policy in the simulation
    #[arg(long, value_name = "N", default_value = "100000", value_parser = count::<10_000_000>)]
    pub calls: NonZeroU32,
    /// Names the simulation's random draws
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole::<u64>)]
    pub seed: u64,
    /// What it is reckoned for.
    #[command(flatten)]
    pub world: WorldArgs,
}

impl PredictArgs {
    /// What is reckoned with.
    pub fn offered(&self) -> Offered {
        let rate = self.rate.map(Offered::Rate);
        rate.or(self.load.map(Offered::Load)).unwrap_or(USUAL)
    }
}

/// Settings of policies, each with all of the others.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Settings of policies (lists: each value is tried)")]
pub struct SweepArgs {
    /// Hedge when a call has taken longer than this share of recent ones
    #[arg(
        long,
        value_name = "PERCENT,...",
        value_delimiter = ',',
        default_value = "90%,95%,99%",
        value_parser = parse_percent
    )]
    pub hedge_percentiles: Vec<f64>,
    /// Hedge after this fixed delay, too
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', value_parser = parse_duration)]
    pub hedge_delays: Vec<Duration>,
    /// Send the second tied copy this long after the first; auto is twice the measured one-way
    /// delay
    #[arg(
        long,
        value_name = "TIME,...",
        value_delimiter = ',',
        default_value = "auto,0",
        value_parser = parse_stagger
    )]
    pub staggers: Vec<StaggerArg>,
    /// Extra executions allowed, as a share of calls; beyond that, 512 of them once
    #[arg(
        long,
        value_name = "PERCENT,...",
        value_delimiter = ',',
        default_value = "10%",
        value_parser = parse_percent
    )]
    pub budgets: Vec<f64>,
}

/// When the second tied copy is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaggerArg {
    /// Twice the measured one-way delay after the first.
    Auto,
    /// So long after the first.
    Fixed(Duration),
}

/// A cluster in virtual time, and its load.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster")]
pub struct WorldArgs {
    /// Replicas
    #[arg(long, value_name = "N", default_value = "3", value_parser = count::<64>)]
    pub replicas: NonZeroU32,
    /// Requests that a replica works on at once; others wait in its queue
    #[arg(long, value_name = "N", default_value = "8", value_parser = count::<65_536>)]
    pub slots: NonZeroU32,
    /// Requests that may wait; more are shed
    #[arg(long, value_name = "N", default_value = "1024", value_parser = count::<1_048_576>)]
    pub queue: NonZeroU32,
    /// How long a replica serves a request
    ///
    /// fixed:TIME, exp:MEAN, log-normal:MEAN,SIGMA, pareto:LEAST,ALPHA (or with a cap behind) and
    /// bimodal:SHORT,LONG,SHARE are distributions.
    ///
    /// hdr:FILE draws from the values of an HdrHistogram log, in nanoseconds and from intervals
    /// without a tag unless it is hdr:FILE,tag=NAME,unit=us. What Bowline writes there is the
    /// latency of calls, waiting included.
    ///
    /// trace:FILE, or trace:FILE,window=10ms, plays a CSV file whose first line names its columns, at_us, replica
    /// and took_us (or _ns, _ms, _s), one line for each request that was measured. A copy takes
    /// what one request took that its replica served within the same window, so that replicas
    /// which were slow together are slow together again. Copies need times of their own there.
    #[arg(
        long,
        value_name = "MODEL",
        default_value = "log-normal:5ms,0.5",
        value_parser = parse_model
    )]
    pub service: ModelSpec,
    /// Whether all copies of a call take equally long
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Copies::Independent)]
    pub copies: Copies,
    /// A copy stops at once when it hears that its twin runs, or that nobody waits; without this
    /// option what has started runs to its end
    #[arg(long)]
    pub interruptible: bool,
    /// How long a message is under way: a time, or a distribution as those of --service
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = parse_span)]
    pub network: Span,
    /// Time that a call may take
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = some_time)]
    pub deadline: Duration,
    /// How the first replica of a call is chosen; a second copy goes to another one
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Pick::RoundRobin)]
    pub pick: Pick,
}

/// Whose a service time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Copies {
    /// The replica's: each copy takes a time of its own
    Independent,
    /// The data's: a slow request is slow everywhere
    Identical,
}

/// Reads `auto` or a time.
fn parse_stagger(text: &str) -> Result<StaggerArg, String> {
    match text.trim() {
        "auto" => Ok(StaggerArg::Auto),
        other => match parse_duration(other) {
            Ok(time) => Ok(StaggerArg::Fixed(time)),
            Err(why) => Err(format!("{why}; or auto")),
        },
    }
}

fn parse_percentile(text: &str) -> Result<f64, String> {
    let share = parse_percent(text)?;
    let held = (0.5..=0.9999).contains(&share);
    held.then_some(share).ok_or_else(|| "must lie between 50% and 99.99%".into())
}

fn fan_out(text: &str) -> Result<u32, String> {
    count::<1_000_000>(text).map(NonZeroU32::get)
}
