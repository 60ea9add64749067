//! How many copies were answered, by what tells them apart: a bounded number of rows.
//!
//! Methods and classes are the configuration's, and always have rows: so their sums are whole.
//! Tenants and cache statuses come from outside, and there may be any number of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::vec::Vec;

use bowline_protocol::{Label, Method, TrafficClass};

/// So many rows with labels are kept. What has no row of its own is counted in the one of its method
/// and class that has no labels.
const LABELLED: usize = 256;

/// What tells answered copies apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Row {
    /// What was asked for.
    pub method: Method,
    /// The traffic class that it was served in, of those that there are.
    pub class: TrafficClass,
    /// The request's label: for whom it was.
    pub tenant: Option<Label>,
    /// The reply's label: where it came from.
    pub cache: Option<Label>,
}

impl Row {
    const fn is_labelled(&self) -> bool {
        self.tenant.is_some() || self.cache.is_some()
    }
}

/// The rows of a core, and how many copies found none for their labels.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Rows {
    /// Copies, by row.
    pub rows: BTreeMap<Row, u64>,
    /// Of those: copies whose labels came when there were 256 rows with others, and which stand in
    /// the row of their method and class without labels.
    pub without_row: u64,
}

impl Rows {
    /// Adds those of another core, which keeps its own bound.
    pub fn add(&mut self, other: &Rows) {
        for (row, count) in &other.rows {
            *self.rows.entry(*row).or_default() += count;
        }
        self.without_row += other.without_row;
    }
}

/// Counts on one core.
#[derive(Default)]
pub(super) struct Tally(RefCell<Counts>);

#[derive(Default)]
struct Counts {
    counts: Vec<(Row, u64)>,
    places: BTreeMap<Row, usize>,
    /// How many of the rows have labels.
    labelled: usize,
    /// Where the last one was counted: the next one most likely belongs there, too.
    last: usize,
    without_row: u64,
}

impl Tally {
    /// A copy was answered.
    pub(super) fn count(&self, row: Row) {
        let counts = &mut *self.0.borrow_mut();
        let place = counts.place(row).unwrap_or_else(|| {
            counts.without_row += 1;
            counts.make(Row { tenant: None, cache: None, ..row })
        });
        counts.counts[place].1 += 1;
        counts.last = place;
    }

    /// All rows.
    pub(super) fn rows(&self) -> Rows {
        let counts = self.0.borrow();
        let rows = counts.counts.iter().copied().collect();
        Rows { rows, without_row: counts.without_row }
    }
}

impl Counts {
    /// The place of a row; None if it has labels, and no more such rows may be made.
    fn place(&mut self, row: Row) -> Option<usize> {
        if self.counts.get(self.last).is_some_and(|(known, _)| *known == row) {
            return Some(self.last);
        }
        if row.is_labelled() && self.labelled == LABELLED {
            return self.places.get(&row).copied();
        }
        Some(self.make(row))
    }

    /// The place of a row, which is made if need be.
    fn make(&mut self, row: Row) -> usize {
        let next = self.counts.len();
        let place = *self.places.entry(row).or_insert(next);
        if place == next {
            self.counts.push((row, 0));
            self.labelled += usize::from(row.is_labelled());
        }
        place
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
        assert_eq!(tally.rows(), Rows { rows: expected.into(), without_row: 0 });
    }

    #[test]
    fn labels_make_no_more_rows_than_there_may_be_and_take_none_from_the_sums() {
        let tally = Tally::default();
        (0..2 * LABELLED).for_each(|tenant| tally.count(row(tenant)));
        tally.count(row(0));
        let other = Row { method: Method(2), ..row(0) };
        let plain = Row { tenant: None, ..other };
        [other, plain, other].into_iter().for_each(|row| tally.count(row));
        let Rows { rows, without_row } = tally.rows();
        assert_eq!((rows.len(), without_row), (LABELLED + 2, LABELLED as u64 + 2));
        assert_eq!((rows[&row(0)], rows[&plain]), (2, 3));
        assert_eq!(rows[&Row { tenant: None, ..row(0) }], LABELLED as u64);
        assert_eq!(rows.values().sum::<u64>(), 2 * LABELLED as u64 + 4, "no copy is left out");
    }
}
