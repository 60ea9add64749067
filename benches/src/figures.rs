//! What a replica tells of itself, and what it did between two such reports.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use bowline_server::core::Stats;
use bowline_server::io::Snapshot;
use serde::{Deserialize, Serialize};

use crate::data::DataSet;
use crate::stats::Ends;

/// A replica's state and counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Another number after every start of the process: its counters begin anew then.
    pub incarnation: u64,
    /// Seed of its data.
    pub seed: u64,
    /// Blocks that it has.
    pub blocks: u64,
    /// Whether it reads past the page cache.
    pub direct: bool,
    /// Peers' cores that can be told that a copy starts.
    pub mesh_up: usize,
    /// Reads that were started.
    pub reads_started: u64,
    /// Time for which reads ran, all together, in nanoseconds.
    pub busy_ns: u64,
    /// Reads for which the device itself was slow.
    pub slow_reads: u64,
    /// The server's counters of copies, by name; those of this request for figures included.
    pub copies: BTreeMap<String, u64>,
}

impl Figures {
    /// Those that the server and the data tell.
    pub fn of(set: &DataSet, snapshot: &Snapshot) -> Self {
        let named = Stats::NAMES.iter().map(|name| (*name).to_owned());
        Figures {
            incarnation: incarnation(),
            seed: set.seed,
            blocks: set.blocks,
            mesh_up: snapshot.mesh_up,
            copies: named.zip(snapshot.copies.values()).collect(),
            ..Figures::default()
        }
    }

    /// For the wire.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Back from the wire.
    ///
    /// # Errors
    /// It is something else.
    pub fn from_json(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Whether these are later figures of the process that `before` is about.
    pub fn continue_from(&self, before: &Figures) -> bool {
        self.incarnation == before.incarnation
    }

    /// The server's counters. Those that it does not have are zero.
    pub fn stats(&self) -> Stats {
        Stats::from_values(Stats::NAMES.map(|name| self.copies.get(name).copied().unwrap_or(0)))
    }
}

/// When this process was first asked, in nanoseconds: no other of the same replica shares that.
fn incarnation() -> u64 {
    static FIRST_ASKED: OnceLock<u64> = OnceLock::new();
    *FIRST_ASKED.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_nanos() as u64
    })
}

/// What replicas did between two reports of each, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Reads that were started.
    pub executions: u64,
    /// Time for which they ran, all together, in nanoseconds.
    pub busy_ns: u64,
    /// Reads for which the device itself was slow.
    pub slow_reads: u64,
    /// Copies of reads that arrived, refused ones included.
    pub arrived: u64,
    /// How copies ended, as far as servers know: none of them is lost.
    pub ends: Ends,
    /// Copies that ran when they heard that their twin had started as well.
    pub double_starts: u64,
}

impl Served {
    /// Adds what one replica did between `before` and `after`.
    pub fn add(&mut self, before: &Figures, after: &Figures) {
        let (old, new) = (before.stats(), after.stats());
        self.executions += after.reads_started.saturating_sub(before.reads_started);
        self.busy_ns += after.busy_ns.saturating_sub(before.busy_ns);
        self.slow_reads += after.slow_reads.saturating_sub(before.slow_reads);
        self.count(|figure| figure(&new).saturating_sub(figure(&old)));
        // The second report is itself one copy that arrived after the first was made; and the first
        // was answered after that.
        self.arrived += arrived(&new).saturating_sub(arrived(&old) + 1);
        self.ends.answered += new.replied.saturating_sub(old.replied + 1);
    }

    /// What servers did from their starts, by their own counters alone.
    pub fn of<'a>(servers: impl IntoIterator<Item = &'a Stats>) -> Served {
        let mut served = Served::default();
        for stats in servers {
            served.executions += stats.started;
            served.arrived += arrived(stats);
            served.ends.answered += stats.replied;
            served.count(|figure| figure(stats));
        }
        served
    }

    fn count(&mut self, grown: impl Fn(fn(&Stats) -> u64) -> u64) {
        self.ends.withdrawn_by_twin += grown(|s| s.withdrawn_by_twin + s.withdrawn_by_tombstone);
        self.ends.withdrawn_by_caller += grown(|s| s.withdrawn_by_caller);
        self.ends.aborted += grown(aborted);
        self.ends.shed += grown(|s| s.shed() + s.rejected());
        self.double_starts += grown(|s| s.double_starts);
    }

    /// How long a read ran, on average; none if none did.
    pub fn service_mean(&self) -> Option<Duration> {
        self.busy_ns.checked_div(self.executions).map(Duration::from_nanos)
    }
}

const fn aborted(stats: &Stats) -> u64 {
    let asked = stats.aborted_by_twin + stats.aborted_by_caller;
    asked + stats.aborted_by_deadline + stats.aborted_by_server
}

const fn arrived(stats: &Stats) -> u64 {
    stats.accepted + stats.rejected()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(reads_started: u64, stats: Stats) -> Figures {
        let set = DataSet { seed: 1, blocks: 2 };
        let snapshot = Snapshot { copies: stats, mesh_up: 2, ..Snapshot::default() };
        Figures { reads_started, ..Figures::of(&set, &snapshot) }
    }

    #[test]
    fn figures_come_back_as_they_went() {
        let stats = Stats { accepted: 7, started: 5, double_starts: 1, ..Stats::default() };
        let sent = figures(5, stats);
        let back = Figures::from_json(&sent.to_json()).expect("JSON");
        assert_eq!((back.stats(), &back), (stats, &sent));
        assert!(Figures::from_json(b"?").is_err());
    }

    #[test]
    fn figures_of_a_process_that_was_started_anew_do_not_continue_the_old_ones() {
        let before = figures(5, Stats::default());
        assert!(figures(9, Stats::default()).continue_from(&before));
        let anew = Figures { incarnation: before.incarnation + 1, ..figures(9, Stats::default()) };
        assert!(!anew.continue_from(&before), "even if they are larger");
    }

    #[test]
    fn the_request_for_figures_is_not_counted_as_a_read() {
        let before = figures(0, Stats { accepted: 1, started: 1, ..Stats::default() });
        let after = Stats {
            accepted: 12,
            started: 9,
            replied: 6,
            aborted_by_twin: 1,
            aborted_by_deadline: 1,
            withdrawn_by_caller: 1,
            withdrawn_by_twin: 2,
            withdrawn_by_tombstone: 1,
            rejected_wait: 1,
            ..Stats::default()
        };
        let mut served = Served::default();
        served.add(&before, &figures(7, after));
        assert_eq!((served.executions, served.arrived), (7, 11));
        let ends = Ends {
            answered: 5,
            withdrawn_by_twin: 3,
            withdrawn_by_caller: 1,
            aborted: 2,
            shed: 1,
            lost: 0,
        };
        assert_eq!(served.ends, ends);
    }
}
