//! The options of each command. What several share is a group of its own.

use core::num::NonZeroU32;
use core::str::FromStr;
use core::time::Duration;
use std::net::SocketAddr;
use std::path::PathBuf;

use bowline_server::io::PeerAddress;
use clap::{Args, Subcommand};
use tracing::level_filters::LevelFilter;

use super::policy::{FaultPattern, Pick, Policy};
use crate::data::BLOCK_BYTES;
use crate::echo::PAYLOAD_MAX;
use crate::units::{
    parse_duration, parse_micros, parse_percent, parse_rate, parse_seconds, parse_size,
};

/// Options of `bowline compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// Time in which calls are sent, all policies and rounds together (without warm-up)
    ///
    /// A percentile is reported only with 100 samples beyond it: p99 needs 10 000 calls of a policy
    /// (in each round, for its ratio), p99.9 needs 100 000. Calls of a policy = rate x duration /
    /// policies.
    #[arg(long, value_name = "TIME", default_value = "54s", value_parser = up_to("168h"))]
    pub duration: Duration,
    /// Rounds; in each, every policy has its turn. Ratios are given with their spread over these
    #[arg(long, value_name = "N", default_value = "3", value_parser = count::<1000>)]
    pub rounds: NonZeroU32,
    /// Policies to compare, in their order in the first round; each round begins with the next one
    #[arg(
        long,
        value_name = "NAMES",
        value_enum,
        value_delimiter = ',',
        default_value = "none,hedged,tied"
    )]
    pub policies: Vec<Policy>,
    /// Use these replicas, which run already, on any hosts; no stalls are made then
    ///
    /// Each is a `bowline serve --replica N`, with N counted from 0 in the order of this list.
    /// Without this option three are started on loopback.
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', value_parser = host_and_port)]
    pub replicas: Vec<String>,
    /// Start the replicas without links to each other: the client relays the cancels of tied calls
    ///
    /// What the detour costs, two runs tell that differ in nothing but this: by 'both started', and
    /// by the latency of tied calls.
    #[arg(long, conflicts_with = "replicas")]
    pub no_mesh: bool,
    /// Folder of the replicas' data files; each is made once and reused while it matches
    #[arg(long, value_name = "DIR", default_value = "target/bowline-data")]
    pub data: PathBuf,
    /// Folder for report.html, results.json and the histograms
    #[arg(long, value_name = "DIR", default_value = "bowline-report")]
    pub out: PathBuf,
    /// The calls.
    #[command(flatten)]
    pub load: LoadShape,
    /// The policies' settings.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// The replicas that are started.
    #[command(flatten)]
    pub replica: ReplicaArgs,
    /// Their stalls.
    #[command(flatten)]
    pub faults: FaultArgs,
}

/// The calls: how many, how they arrive, how long they may take.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Calls")]
pub struct LoadShape {
    // With the default duration, rounds and policies a turn takes 6 s and has 10 800 calls: as few
    // as give a p99 with 100 samples beyond it. On two cores of a small virtual machine client and
    // replicas then use 0.4 to 0.6 of a CPU, well below half of what there is.
    /// Mean calls a second
    #[arg(long, value_name = "PER_SECOND", default_value = "1800", value_parser = parse_rate)]
    pub rate: f64,
    /// Let calls arrive in groups of this size at one instant, at the same mean rate
    ///
    /// 1 is a Poisson process: independent users.
    #[arg(long, value_name = "CALLS", default_value = "1", value_parser = count::<100_000>)]
    pub burst: NonZeroU32,
    /// Time that a call may take, counted from when it falls due
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = some_time)]
    pub deadline: Duration,
    /// Send calls for this long before anything is counted, once for each policy
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = up_to("1h"))]
    pub warmup: Duration,
    /// Names arrivals, blocks, service times and stalls: the same seed, the same run
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole::<u64>)]
    pub seed: u64,
}

/// What the policies may do.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Policies")]
pub struct PolicyArgs {
    /// Hedge when a call has taken longer than this share of recent ones
    #[arg(long, value_name = "PERCENT", default_value = "95%", value_parser = parse_percent)]
    pub hedge_percentile: f64,
    /// Hedge after this fixed delay instead
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub hedge_delay: Option<Duration>,
    // Twice what a hedge at the 95th percentile asks for: stalls add some to the calm 5 %.
    /// Extra executions allowed, as a share of calls; beyond that, 512 of them once
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = parse_percent)]
    pub budget: f64,
    /// Send the second tied copy this long after the first [default: twice the measured one-way
    /// delay]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub stagger: Option<Duration>,
    /// How the first replica of a call is chosen; a second copy goes to another one
    ///
    /// round-robin asks one after the other, however busy they are: it stands for placement by key,
    /// as most storage has it, where a call cannot choose whom it asks first. two-choices steers
    /// around a busy replica, with or without second copies.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Pick::RoundRobin)]
    pub pick: Pick,
}

/// How a replica serves.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Replicas")]
pub struct ReplicaArgs {
    /// Size of a replica's data file, in whole blocks of 4 KiB
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = data_size)]
    pub data_size: u64,
    // 3 replicas x 8 slots / 5 ms = 4800 reads a second, so that the default rate fills 38 %: a
    // queue is rare but for stalls, and what one leaves behind is worked off in some 20 ms.
    /// Reads that a replica works on at once; others wait in its queue
    #[arg(long, value_name = "N", default_value = "8", value_parser = count::<65_536>)]
    pub slots: NonZeroU32,
    /// Reads that may wait; more are shed
    #[arg(long, value_name = "N", default_value = "1024", value_parser = count::<1_048_576>)]
    pub queue: NonZeroU32,
    // What a disk or a busy SSD takes, and long beside the 50 us of a message between processes:
    // tied copies then start twice in well below 2 % of the calls.
    /// Mean time that a read takes beside the device's own, as a slower device would
    ///
    /// Drawn log-normal for each call and replica from the seed, the same under every policy. 0
    /// leaves the device alone.
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = up_to("60s"))]
    pub service: Duration,
    /// Spread of that time: standard deviation of its logarithm
    #[arg(long, value_name = "SIGMA", default_value = "0.5", value_parser = parse_sigma)]
    pub service_spread: f64,
}

/// Stalls of replicas that `compare` started itself.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Stalls")]
pub struct FaultArgs {
    // A pause of 60 ms each 660 ms: 9 % of the time one of the three does not answer, as in a
    // garbage collection, a compaction or a neighbour's burst. With the first replica given by the
    // key, 3 % of the calls fall due at one that stands still, so that p99 lies within a stall.
    /// Which replicas stall together
    #[arg(long, value_name = "PATTERN", value_enum, default_value_t = FaultPattern::Independent)]
    pub faults: FaultPattern,
    /// Mean length of a stall (SIGSTOP to SIGCONT), uniform between half and one and a half of it
    #[arg(long, value_name = "TIME", default_value = "60ms", value_parser = up_to("1h"))]
    pub stall: Duration,
    /// Mean time between stalls, exponential
    #[arg(long, value_name = "TIME", default_value = "600ms", value_parser = up_to("168h"))]
    pub stall_gap: Duration,
}

/// Options of `bowline serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Where to listen, by address or name; port 0 takes any free one [default: 127.0.0.1:7000]
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub listen: Option<String>,
    /// Number of this replica; each has another [default: 0]
    #[arg(long, value_name = "N", value_parser = whole::<u16>)]
    pub replica: Option<u16>,
    /// Another replica, to which cancels of tied requests go; once for each peer. A name is looked up
    /// whenever it is dialled
    #[arg(long = "peer", value_name = "N=HOST:PORT", value_delimiter = ',', value_parser = peer)]
    pub peers: Vec<Peer>,
    /// The data file; made if missing, refused if it is one of another size or seed [default: target/bowline-data/replica-N.dat]
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// TOML file with `listen`, `replica`, `file` and a table `peers` of N = "HOST:PORT"; the
    /// options above go before it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where to tell what it does, in the OpenMetrics format: for a collector, or for 'bowline stat'
    /// [default: nowhere]
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub metrics: Option<String>,
    /// How much to tell of itself on standard error: off, error, warn, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log: LevelFilter,
    /// Names the data and the service times; the clients' has to be the same
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole::<u64>)]
    pub seed: u64,
    /// How it serves.
    #[command(flatten)]
    pub how: ReplicaArgs,
    /// Read the peers from standard input after saying the address on standard output, and end
    /// when standard input does.
    #[arg(long, hide = true)]
    pub managed: bool,
    /// End at once when the process with this id, the parent, does.
    #[arg(long, hide = true, value_name = "PID")]
    pub die_with_parent: Option<u32>,
}

/// Options of `bowline load`.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// The replicas, each a `bowline serve --replica N`, with N counted from 0 in this order
    #[arg(
        long,
        value_name = "HOST:PORT,...",
        value_delimiter = ',',
        required = true,
        value_parser = host_and_port
    )]
    pub replicas: Vec<String>,
    /// How to use them
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Policy::Tied)]
    pub policy: Policy,
    /// Time in which calls are sent
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = up_to("168h"))]
    pub duration: Duration,
    /// Size of the replicas' data files, as they were told
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = data_size)]
    pub data_size: u64,
    /// Write report.html, results.json and the histograms to this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The calls.
    #[command(flatten)]
    pub load: LoadShape,
    /// The policy's settings.
    #[command(flatten)]
    pub settings: PolicyArgs,
}

/// The two ends of an echo.
#[derive(Clone, Debug, Subcommand)]
pub enum EchoSide {
    /// Send every payload back, until interrupted
    Server(EchoServerArgs),
    /// Keep calls in flight for a while and print one line of JSON
    Client(EchoClientArgs),
}

/// Options of `bowline probe`.
#[derive(Args, Clone, Debug)]
pub struct ProbeArgs {
    /// Print JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// Options of `bowline stat`.
#[derive(Args, Clone, Debug)]
pub struct StatArgs {
    /// Where the server tells what it does: its --metrics
    #[arg(value_name = "HOST:PORT", value_parser = of_page)]
    pub address: String,
    // Nobody reads faster, and a server has better things to do.
    /// How long to wait between two looks, from 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = between_looks)]
    pub every: Duration,
    /// Look once, and show all since the server started
    #[arg(long)]
    pub once: bool,
}

/// Options of `bowline echo server`.
#[derive(Args, Clone, Debug)]
pub struct EchoServerArgs {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub addr: SocketAddr,
    /// Core to run on [default: any]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub cpu: Option<usize>,
    /// Microseconds to look for work before sleeping
    #[arg(long, value_name = "US", default_value = "0", value_parser = micros)]
    pub spin: Duration,
}

/// Options of `bowline echo client`.
#[derive(Args, Clone, Debug)]
pub struct EchoClientArgs {
    /// Address of the server
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub addr: SocketAddr,
    /// Bytes in a payload
    #[arg(long, value_name = "BYTES", default_value = "64", value_parser = payload)]
    pub payload: usize,
    /// Calls in flight on each connection
    #[arg(long, value_name = "N", default_value = "1", value_parser = count::<65_536>)]
    pub inflight: NonZeroU32,
    /// Connections
    #[arg(long, value_name = "C", default_value = "1", value_parser = count::<4096>)]
    pub conns: NonZeroU32,
    /// Seconds that are measured
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    pub seconds: Duration,
    /// Seconds before that, which are not
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds)]
    pub warmup: Duration,
    /// Core to run on [default: any]
    #[arg(long, value_name = "N", value_parser = whole::<usize>)]
    pub cpu: Option<usize>,
    /// Microseconds to look for work before sleeping
    #[arg(long, value_name = "US", default_value = "0", value_parser = micros)]
    pub spin: Duration,
}

impl CompareArgs {
    /// How long each turn of a policy lasts.
    pub fn turn(&self) -> Duration {
        // At most 1000 rounds, and no policy twice.
        self.duration / (self.rounds.get() * self.policies.len().max(1) as u32)
    }
}

/// Reads a duration of at most `limit`.
pub(super) fn up_to(limit: &'static str) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| at_most(parse_duration(text)?, limit)
}

/// Reads a duration above zero, of at most an hour.
pub(super) fn some_time(text: &str) -> Result<Duration, String> {
    let time = at_most(parse_duration(text)?, "1h")?;
    if time.is_zero() { Err("must be above zero".into()) } else { Ok(time) }
}

/// Reads the size of a data file: some blocks, and no piece of one.
fn data_size(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    let whole = size > 0 && size.is_multiple_of(BLOCK_BYTES as u64);
    whole.then_some(size).ok_or_else(|| "no whole blocks of 4 KiB; write for example 64MiB".into())
}

fn between_looks(text: &str) -> Result<Duration, String> {
    let every = at_most(parse_duration(text)?, "1h")?;
    if every < Duration::from_millis(100) { Err("at least 100ms".into()) } else { Ok(every) }
}

/// What is written of an address is one; whether it leads anywhere is found out when it is used.
pub(crate) fn host_and_port(text: &str) -> Result<String, String> {
    let text = text.trim();
    let is_named = |(host, port): (&str, &str)| {
        !host.is_empty() && !host.contains([':', '[', ']']) && port.parse::<u16>().is_ok()
    };
    if text.parse::<SocketAddr>().is_ok() || text.rsplit_once(':').is_some_and(is_named) {
        return Ok(text.to_owned());
    }
    Err("write HOST:PORT, such as 10.0.0.2:7000 or [2001:db8::2]:7000".into())
}

/// The same of an address as a server prints it: `http://HOST:PORT/metrics`.
fn of_page(text: &str) -> Result<String, String> {
    let text = text.strip_prefix("http://").unwrap_or(text);
    host_and_port(text.split_once('/').map_or(text, |(address, _)| address))
}

/// Another replica: its number, and where it is.
pub type Peer = (u16, PeerAddress);

fn peer(text: &str) -> Result<Peer, String> {
    let of = |(number, address): (&str, &str)| {
        Some((number.trim().parse().ok()?, address.trim().parse().ok()?))
    };
    let read = text.split_once('=').and_then(of);
    let cure = "write N=HOST:PORT, such as 1=10.0.0.2:7000, with N up to 65535 and no port 0";
    read.ok_or_else(|| cure.to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    at_most(parse_seconds(text)?, "168h")
}

fn micros(text: &str) -> Result<Duration, String> {
    at_most(parse_micros(text)?, "1s")
}

fn at_most(duration: Duration, limit: &str) -> Result<Duration, String> {
    if duration <= parse_duration(limit)? { Ok(duration) } else { Err(format!("at most {limit}")) }
}

/// Reads a whole number from 1 to `MOST`.
pub(super) fn count<const MOST: u32>(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse().ok().filter(|number: &NonZeroU32| number.get() <= MOST);
    number.ok_or_else(|| format!("a whole number, 1 to {MOST}"))
}

/// Reads a whole number of a type's size.
pub(super) fn whole<T: FromStr + Bounded>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("a whole number, 0 to {}", T::MOST))
}

/// The largest number of a type.
pub(super) trait Bounded {
    const MOST: u64;
}

impl Bounded for u16 {
    const MOST: u64 = u16::MAX as u64;
}

impl Bounded for u64 {
    const MOST: u64 = u64::MAX;
}

impl Bounded for usize {
    const MOST: u64 = usize::MAX as u64;
}

/// Reads the length of a payload that both ends of an echo take.
fn payload(text: &str) -> Result<usize, String> {
    let length = text.trim().parse().ok().filter(|length| *length <= PAYLOAD_MAX as usize);
    length.ok_or_else(|| format!("a whole number of bytes, 0 to {PAYLOAD_MAX}"))
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.trim().parse().map_err(|_| "write IP:PORT, such as 127.0.0.1:7100".to_owned())
}

fn parse_sigma(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(sigma) if (0.0..=3.0).contains(&sigma) => Ok(sigma),
        Ok(_) => Err("must lie between 0 and 3".into()),
        Err(_) => Err("not a number".into()),
    }
}
