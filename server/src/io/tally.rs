//! How many copies were answered, by what tells them apart: a bounded number of rows.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::vec::Vec;

use bowline_protocol::{Label, Method, TrafficClass};

/// So many rows are kept. Tenants and cache statuses come from outside, so there may be any number of
/// them; what has no row of its own is counted together.
const ROWS: usize = 256;

/// What tells answered copies apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Row {
    /// What was asked for.
    pub method: Method,
    /// Its traffic class, as it said.
    pub class: TrafficClass,
    /// The request's label: for whom it was.
    pub tenant: Option<Label>,
    /// The reply's label: where it came from.
    pub cache: Option<Label>,
}

/// The rows of a core, and how many copies had none.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rows {
    /// Copies, by row.
    pub rows: BTreeMap<Row, u64>,
    /// Copies beyond the 256 rows.
    pub others: u64,
}

impl Rows {
    /// Adds those of another core, which keeps its own bound.
    pub fn add(&mut self, other: &Rows) {
        for (row, count) in &other.rows {
            *self.rows.entry(*row).or_default() += count;
        }
        self.others += other.others;
    }
}

/// Counts on one core.
#[derive(Default)]
pub(super) struct Tally(RefCell<Counts>);

#[derive(Default)]
struct Counts {
    counts: Vec<(Row, u64)>,
    places: BTreeMap<Row, usize>,
    /// Where the last one was counted: the next one most likely belongs there, too.
    last: usize,
    others: u64,
}

impl Tally {
    /// A copy was answered.
    pub(super) fn count(&self, row: Row) {
        let mut counts = self.0.borrow_mut();
        let Counts { counts, places, last, others } = &mut *counts;
        if counts.get(*last).is_none_or(|(known, _)| *known != row) {
            match places.get(&row) {
                Some(place) => *last = *place,
                None if counts.len() < ROWS => {
                    *last = counts.len();
                    places.insert(row, *last);
                    counts.push((row, 0));
                }
                None => {
                    *others += 1;
                    return;
                }
            }
        }
        counts[*last].1 += 1;
    }

    /// All rows.
    pub(super) fn rows(&self) -> Rows {
        let counts = self.0.borrow();
        Rows { rows: counts.counts.iter().copied().collect(), others: counts.others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    fn row(tenant: usize) -> Row {
        let tenant = Some(Label::new(&format!("tenant-{tenant}")));
        Row { method: Method(1), class: TrafficClass(0), tenant, cache: None }
    }

    #[test]
    fn copies_are_counted_by_row() {
        let tally = Tally::default();
        [1, 1, 2, 1].into_iter().for_each(|tenant| tally.count(row(tenant)));
        let expected = [(row(1), 3), (row(2), 1)];
        assert_eq!(tally.rows(), Rows { rows: expected.into(), others: 0 });
    }

    #[test]
    fn what_comes_from_outside_makes_no_more_rows_than_there_may_be() {
        let tally = Tally::default();
        (0..2 * ROWS).for_each(|tenant| tally.count(row(tenant)));
        tally.count(row(0));
        let rows = tally.rows();
        assert_eq!((rows.rows.len(), rows.others), (ROWS, ROWS as u64));
        assert_eq!(rows.rows[&row(0)], 2);
    }
}
