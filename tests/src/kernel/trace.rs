//! What each replica took when: a record that keeps together what happened together.
//!
//! Drawn by itself, each replica's time would come from a world without a common cause. A trace
//! keeps the time of each value: while one replica stands still in it, the others do what they did
//! *then*, so that stalls which came together come together again.

use core::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::kernel::empirical::Empirical;
use crate::kernel::rng::Rng;
use crate::kernel::span::Nanos;

/// One value of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// When it was seen, from the beginning of the trace.
    pub at: Nanos,
    /// At which replica, counted from 0.
    pub replica: usize,
    /// How long the request was served.
    pub took: Nanos,
}

/// The record. Cheap to clone.
///
/// It is cut into windows. A copy that starts takes what one request took which its replica served
/// in this window, drawn evenly. Where it served none, the last earlier window in which it did
/// counts; before its first, its last, as the trace is played again and again.
#[derive(Clone, PartialEq)]
pub struct Trace {
    window: Nanos,
    windows: u64,
    replicas: Arc<[Replica]>,
}

#[derive(PartialEq)]
struct Replica {
    /// In the order of their times.
    took: Vec<Nanos>,
    /// Which of them each window draws from.
    windows: Vec<Range<u32>>,
}

/// Why there is no trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoTrace {
    /// This replica was never seen, but one with a higher number was, or none at all.
    Unseen(usize),
    /// It is longer than this many windows, or has more values.
    TooLong(u64),
}

/// Windows of a trace, and values of a replica.
const MOST: u64 = 10_000_000;

impl Trace {
    /// Of what was seen, in any order, cut into windows of this length (at least 1 ns).
    ///
    /// # Errors
    ///
    /// [`NoTrace`].
    pub fn of(mut seen: Vec<Seen>, window: Nanos) -> Result<Trace, NoTrace> {
        seen.sort_by_key(|seen| seen.at);
        let window = window.max(1);
        let windows = (seen.last().map_or(0, |last| last.at) / window).saturating_add(1);
        if windows > MOST || seen.len() as u64 > MOST {
            return Err(NoTrace::TooLong(MOST));
        }
        let count = seen.iter().map(|seen| seen.replica).max().unwrap_or(0) + 1;
        let replicas = (0..count).map(|number| {
            let own = seen.iter().filter(|seen| seen.replica == number);
            Replica::of(own, window, windows).ok_or(NoTrace::Unseen(number))
        });
        let replicas = replicas.collect::<Result<Arc<[_]>, _>>()?;
        Ok(Trace { window, windows, replicas })
    }

    /// How many replicas it is about.
    pub fn replicas(&self) -> usize {
        self.replicas.len()
    }

    /// How long it is: then it begins anew.
    pub const fn lasts(&self) -> Nanos {
        self.window * self.windows
    }

    /// What a copy takes that starts at a replica at a time.
    pub fn draw(&self, replica: usize, at: Nanos, rng: &mut Rng) -> Nanos {
        let Some(replica) = self.replicas.get(replica) else { return 0 };
        let window = (at / self.window % self.windows) as usize;
        let Range { start, end } = replica.windows[window].clone();
        replica.took[start as usize + rng.below(u64::from(end - start)) as usize]
    }

    /// All values, whenever and wherever they were seen: what is left of a trace when nobody asks
    /// what happened together.
    pub fn all(&self) -> Option<Empirical> {
        let values = self.replicas.iter().flat_map(|replica| &replica.took);
        Empirical::of(values.map(|&took| (took, 1)))
    }

    /// What copies take on average that start at any time and replica: each window counts alike,
    /// however many values it has.
    pub fn mean(&self) -> f64 {
        let mean = |replica: &Replica, window: &Range<u32>| {
            let drawn = &replica.took[window.start as usize..window.end as usize];
            drawn.iter().sum::<Nanos>() as f64 / drawn.len() as f64
        };
        let means = self
            .replicas
            .iter()
            .flat_map(|replica| replica.windows.iter().map(move |window| mean(replica, window)));
        means.sum::<f64>() / (self.windows * self.replicas.len() as u64) as f64
    }
}

impl Replica {
    /// None if it was never seen.
    fn of<'a>(seen: impl Iterator<Item = &'a Seen>, window: Nanos, windows: u64) -> Option<Self> {
        let (mut took, mut own) = (Vec::new(), vec![0..0; windows as usize]);
        for seen in seen {
            let index = took.len() as u32;
            let range: &mut Range<u32> = &mut own[(seen.at / window) as usize];
            let start = if range.start == range.end { index } else { range.start };
            *range = start..index + 1;
            took.push(seen.took);
        }
        let mut last = own.iter().rfind(|range| range.start < range.end)?.clone();
        for range in &mut own {
            if range.start == range.end {
                *range = last.clone();
            }
            last = range.clone();
        }
        Some(Replica { took, windows: own })
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (windows, window, replicas) = (self.windows, self.window, self.replicas.len());
        write!(f, "a trace of {windows} windows of {window} ns at {replicas} replicas")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seen(at: Nanos, replica: usize, took: Nanos) -> Seen {
        Seen { at, replica, took }
    }

    #[test]
    fn a_copy_takes_what_its_replica_took_in_that_window() {
        let rows =
            vec![seen(25, 0, 9), seen(1, 0, 1), seen(3, 0, 2), seen(2, 1, 5), seen(21, 1, 7)];
        let trace = Trace::of(rows, 10).expect("complete");
        let mut rng = Rng::new(1);
        let mut drawn = |replica, at| -> Vec<Nanos> {
            let mut all: Vec<_> = (0..50).map(|_| trace.draw(replica, at, &mut rng)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        assert_eq!(drawn(0, 5), [1, 2]);
        assert_eq!(drawn(0, 15), [1, 2], "nothing was seen: the window before counts");
        assert_eq!(drawn(0, 29), [9]);
        assert_eq!(drawn(1, 29), [7]);
        assert_eq!(drawn(1, 30), [5], "the trace begins anew");
        assert_eq!((trace.replicas(), trace.lasts()), (2, 30));
    }

    #[test]
    fn stalls_that_came_together_come_together() {
        // Every tenth window both are a hundred times slower.
        let rows = (0..1000).flat_map(|n| {
            let took = if n % 10 == 0 { 100 } else { 1 };
            [seen(10 * n, 0, took), seen(10 * n + 3, 1, took)]
        });
        let trace = Trace::of(rows.collect(), 10).expect("complete");
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            let at = rng.below(trace.lasts());
            assert_eq!(trace.draw(0, at, &mut rng), trace.draw(1, at, &mut rng));
        }
        assert!((trace.mean() - 10.9).abs() < 1e-9);
        assert!((trace.all().expect("values").mean() - 10.9).abs() < 1e-9);
    }

    #[test]
    fn a_trace_with_a_hole_or_without_an_end_is_refused() {
        assert_eq!(Trace::of(vec![], 10), Err(NoTrace::Unseen(0)));
        assert_eq!(Trace::of(vec![seen(0, 1, 1)], 10), Err(NoTrace::Unseen(0)));
        assert_eq!(Trace::of(vec![seen(u64::MAX, 0, 1)], 10), Err(NoTrace::TooLong(MOST)));
    }
}
