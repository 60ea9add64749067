//! How long things took.
//!
//! All in nanoseconds, to two digits, from a microsecond to a hundred seconds: some 14 KiB each.

use alloc::vec::Vec;
use core::time::Duration;

use bowline_protocol::Method;
use hdrhistogram::Histogram;

/// The least time that is told from zero.
const LOWEST_NS: u64 = 1_000;
/// All that takes longer counts as so long.
const HIGHEST_NS: u64 = 100_000_000_000;
const DIGITS: u8 = 2;

/// How long things took on a core, since it was made or they were swapped.
#[derive(Clone, Debug)]
pub struct Histograms {
    /// For each method, in the order of their numbers.
    pub methods: Vec<MethodTimes>,
    /// From the moment at which a running copy was asked to stop to its end, in ns.
    pub stop: Histogram<u32>,
    /// From the close of a connection to the end of each of the copies that ran for it, in ns: work
    /// for nobody.
    pub orphan: Histogram<u32>,
    /// From when none of a client's copies was started any more, as it had not read its replies (or
    /// nobody's was, as all had not), to the next that was, in ns.
    pub held: Histogram<u32>,
}

/// How long the copies of one method took.
#[derive(Clone, Debug)]
pub struct MethodTimes {
    /// Which method.
    pub method: Method,
    /// In the queue, of those that started, in ns.
    pub wait: Histogram<u32>,
    /// From start to end, however it ended, in ns.
    pub service: Histogram<u32>,
}

impl Histograms {
    pub(super) fn new(methods: impl Iterator<Item = Method>) -> Histograms {
        let times = |method| MethodTimes { method, wait: empty(), service: empty() };
        Histograms {
            methods: methods.map(times).collect(),
            stop: empty(),
            orphan: empty(),
            held: empty(),
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        for times in &mut self.methods {
            times.wait.reset();
            times.service.reset();
        }
        self.stop.reset();
        self.orphan.reset();
        self.held.reset();
    }

    /// Adds what another core of the same service measured.
    pub fn add(&mut self, other: &Histograms) {
        for (ours, theirs) in self.methods.iter_mut().zip(&other.methods) {
            merge(&mut ours.wait, &theirs.wait);
            merge(&mut ours.service, &theirs.service);
        }
        merge(&mut self.stop, &other.stop);
        merge(&mut self.orphan, &other.orphan);
        merge(&mut self.held, &other.held);
    }
}

fn empty() -> Histogram<u32> {
    Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS).expect("bounds that are in order")
}

/// All of ours have the same bounds, so nothing is out of range.
fn merge(into: &mut Histogram<u32>, from: &Histogram<u32>) {
    into.add(from).expect("histograms of the same bounds");
}

pub(super) fn record(histogram: &mut Histogram<u32>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(HIGHEST_NS));
}
