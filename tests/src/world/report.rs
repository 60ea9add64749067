//! What a run came to.

use bowline_client::core::Counters;
use bowline_protocol::ErrorKind;
use bowline_server::core::Stats;

use crate::check::Broken;
use crate::kernel::span::Nanos;
use crate::world::unread::Held;

/// A call that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed {
    /// How.
    pub kind: ErrorKind,
    /// When, in the world's time.
    pub at: Nanos,
    /// How long that took.
    pub took: Nanos,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed of its scenario.
    pub seed: u64,
    /// Two runs with the same hash were the same.
    pub hash: u64,
    /// The rule that was broken, if one was.
    pub broken: Option<Broken>,
    /// The world's time at the end.
    pub lasted: Nanos,
    /// Things that happened.
    pub events: u64,
    /// Frames that were delivered.
    pub frames: u64,
    /// Faults that struck.
    pub faults: u64,
    /// Copies that were sent, and started.
    pub sends: u64,
    /// Copies that were started.
    pub starts: u64,
    /// Pairs of which both copies were started.
    pub double_starts: u64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// How long each call that succeeded took, in the order of their ends; the last calls, with
    /// which a world is tried after all faults, left out here and in the next two.
    pub latencies: Vec<Nanos>,
    /// When each of them ended, in the world's time.
    pub ends: Vec<Nanos>,
    /// The calls that failed, in the order of their ends.
    pub failures: Vec<Failed>,
    /// Those last calls that succeeded, each with one copy.
    pub probes: u64,
    /// Calls that the second of two tied copies answered.
    pub second_wins: u64,
    /// What became of copies while they were held back.
    pub held: Held,
    /// The counters of all clients: of those that were alive at the end, and behind them of every
    /// life that ended before.
    pub clients: Vec<Counters>,
    /// The counters of all servers, in the same order.
    pub servers: Vec<Stats>,
    /// The record, about the call that broke the rule, if it was to be readable.
    pub timeline: String,
}
