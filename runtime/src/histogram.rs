//! How values are spread, in a fixed amount of memory.
//!
//! Classes are a quarter as wide as the power of two that they lie in, so that a value is known to
//! a quarter of itself at worst; counting one is a shift and an addition. Values below 8 are exact.

use std::cell::Cell;
use std::fmt;

/// Each power of two has so many classes, as a power of two.
const PART_BITS: u32 = 2;
const PARTS: usize = 1 << PART_BITS;
/// The values below `PARTS` have a class each; the other powers of two follow.
const CLASSES: usize = PARTS * (u64::BITS - PART_BITS + 1) as usize;

/// The class of a value.
fn class_of(value: u64) -> usize {
    if value < PARTS as u64 {
        return value as usize;
    }
    let power = value.ilog2();
    let part = (value >> (power - PART_BITS)) as usize & (PARTS - 1);
    (power - PART_BITS + 1) as usize * PARTS + part
}

/// The largest value of a class.
fn last_of(class: usize) -> u64 {
    if class < PARTS {
        return class as u64;
    }
    let shift = class / PARTS - 1;
    let first = ((PARTS + class % PARTS) as u64) << shift;
    first + ((1 << shift) - 1)
}

/// Counts values. One thread owns it. The largest stands beside the lowest classes, which are counted
/// most.
#[repr(C)]
pub(crate) struct Recorder {
    largest: Cell<u64>,
    classes: [Cell<u64>; CLASSES],
}

impl Default for Recorder {
    fn default() -> Recorder {
        Recorder { classes: [const { Cell::new(0) }; CLASSES], largest: Cell::new(0) }
    }
}

impl Recorder {
    #[inline]
    pub(crate) fn record(&self, value: u64) {
        let class = &self.classes[class_of(value)];
        class.set(class.get().wrapping_add(1));
        self.largest.set(self.largest.get().max(value));
    }

    pub(crate) fn snapshot(&self) -> Histogram {
        let classes = std::array::from_fn(|class| self.classes[class].get());
        Histogram { classes, largest: self.largest.get() }
    }
}

/// How values are spread. A value is known to a quarter of itself at worst; the largest exactly.
///
/// ```
/// use bowline_runtime::{Histogram, Runtime, metrics, sleep};
/// use std::time::Duration;
///
/// Runtime::builder().build()?.block_on(async {
///     sleep(Duration::from_millis(1)).await;
///     let lateness: Histogram = metrics().timer_lateness;
///     println!("half of all timers fired within {:?} ns, all within {} ns",
///         lateness.percentile(50.0), lateness.largest());
///     assert_eq!(lateness.count(), 1);
/// });
/// # Ok::<(), bowline_runtime::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    classes: [u64; CLASSES],
    largest: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { classes: [0; CLASSES], largest: 0 }
    }
}

impl Histogram {
    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// The largest value, or zero if there was none.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The value that so many percent of all do not exceed, rounded up by a quarter of itself at
    /// worst; None without values. `percent` outside of 0 to 100 is taken for the nearer of both.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let count = self.count();
        let rank = (percent.clamp(0.0, 100.0) / 100.0 * count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let class = self.classes.iter().position(|class| {
            below += class;
            below >= rank
        })?;
        Some(last_of(class).min(self.largest))
    }

    /// The classes that have values, from the lowest: the largest value of each, and how many there
    /// were.
    pub fn classes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counted = self.classes.iter().enumerate().filter(|&(_, &count)| count > 0);
        counted.map(|(class, &count)| (last_of(class), count))
    }

    /// Adds the values of another, such as another core's.
    pub fn merge(&mut self, other: &Histogram) {
        for (class, count) in self.classes.iter_mut().zip(other.classes) {
            *class += count;
        }
        self.largest = self.largest.max(other.largest);
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("p50", &self.percentile(50.0))
            .field("p99", &self.percentile(99.0))
            .field("largest", &self.largest)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_each_other_without_a_gap() {
        let mut first = 0;
        for class in 0..CLASSES {
            let last = last_of(class);
            assert_eq!((class_of(first), class_of(last)), (class, class));
            assert!(last - first <= first / PARTS as u64, "{class} is too wide");
            first = last.wrapping_add(1);
        }
        assert_eq!(first, 0, "the last class ends with the largest number");
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let recorder = Recorder::default();
        assert_eq!(recorder.snapshot().percentile(50.0), None);
        (1..=1000).for_each(|value| recorder.record(value));
        let histogram = recorder.snapshot();
        assert_eq!((histogram.count(), histogram.largest()), (1000, 1000));
        for (percent, exact) in [(0.0, 1), (1.0, 10), (50.0, 500), (99.0, 990), (100.0, 1000)] {
            let value = histogram.percentile(percent).unwrap();
            assert!((exact..=exact + exact / 4).contains(&value), "{percent} %: {value}");
        }
        assert_eq!(histogram.percentile(1e9), Some(1000));
    }

    #[test]
    fn two_cores_make_one() {
        let (first, second) = (Recorder::default(), Recorder::default());
        first.record(3);
        second.record(3);
        second.record(u64::MAX);
        let mut both = first.snapshot();
        both.merge(&second.snapshot());
        assert_eq!(both.classes().collect::<Vec<_>>(), [(3, 2), (u64::MAX, 1)]);
        assert_eq!(both.largest(), u64::MAX);
    }
}
