//! What an effect sees of the store, and what it leaves there.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::vec::Vec;

use super::{Batch, Entry, Space, StoreError, View};

/// One call's changes: they become durable together with the call's key and result, or, if the
/// effect fails, are forgotten. What it reads is what all transactions before it left.
pub struct Transaction<'a> {
    view: &'a dyn View,
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl<'a> Transaction<'a> {
    /// One that sees this, and whose changes nobody makes.
    pub(super) fn over(view: &'a dyn View) -> Transaction<'a> {
        Transaction { view, writes: BTreeMap::new() }
    }

    /// Runs an effect on a batch. Its changes are made only if it succeeds.
    pub(super) fn run<B: Batch, T, E: From<StoreError>>(
        batch: &mut B,
        effect: impl FnOnce(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut transaction = Transaction::over(&*batch);
        let result = effect(&mut transaction)?;
        for (key, value) in transaction.writes {
            match value {
                Some(value) => batch.put(Space::Effects, &key, &value)?,
                None => batch.remove(Space::Effects, &key)?,
            }
        }
        Ok(result)
    }

    /// What is kept under a key.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; the whole transaction should fail then.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.writes.get(key) {
            Some(written) => Ok(written.clone()),
            None => self.view.get(Space::Effects, key),
        }
    }

    /// What is kept under the keys of a range, in their order, each with its key. It is looked up one
    /// by one, as it is asked for: so who needs few of many takes few. After an error there is
    /// nothing more.
    ///
    /// ```
    /// use bowline_server::Failure;
    /// use bowline_server::io::once::Transaction;
    ///
    /// /// How many bytes the blocks of a volume have.
    /// fn bytes_of(data: &Transaction<'_>, volume: &str) -> Result<usize, Failure> {
    ///     let first = format!("{volume}/");
    ///     let mut sum = 0;
    ///     for entry in data.range(first.as_bytes()..) {
    ///         let (key, block) = entry?;
    ///         if !key.starts_with(first.as_bytes()) {
    ///             break;
    ///         }
    ///         sum += block.len();
    ///     }
    ///     Ok(sum)
    /// }
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, keys: impl RangeBounds<K>) -> Range<'_> {
        let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        let (from, to) = (owned(keys.start_bound()), owned(keys.end_bound()));
        Range { transaction: self, from: Some(from), to }
    }

    /// The first entry from there on.
    fn next(&self, from: Bound<&[u8]>) -> Result<Option<Entry>, StoreError> {
        let mut kept = self.view.next(Space::Effects, from)?;
        for (key, written) in self.writes.range::<[u8], _>((from, Bound::Unbounded)) {
            if kept.as_ref().is_some_and(|(before, _)| before < key) {
                return Ok(kept);
            }
            if let Some(value) = written {
                return Ok(Some((key.clone(), value.clone())));
            }
            if kept.as_ref().is_some_and(|(removed, _)| removed == key) {
                kept = self.view.next(Space::Effects, Bound::Excluded(key))?;
            }
        }
        Ok(kept)
    }

    /// Keeps something under a key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.writes.insert(key.to_vec(), Some(value.to_vec()));
    }

    /// Keeps nothing under a key any more.
    pub fn remove(&mut self, key: &[u8]) {
        self.writes.insert(key.to_vec(), None);
    }
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transaction({} changes)", self.writes.len())
    }
}

/// What [`Transaction::range`] goes through.
#[derive(Debug)]
pub struct Range<'a> {
    transaction: &'a Transaction<'a>,
    /// None at the end.
    from: Option<Bound<Vec<u8>>>,
    to: Bound<Vec<u8>>,
}

impl Iterator for Range<'_> {
    type Item = Result<Entry, StoreError>;

    fn next(&mut self) -> Option<Result<Entry, StoreError>> {
        let from = self.from.take()?;
        let next = self.transaction.next(from.as_ref().map(Vec::as_slice)).transpose()?;
        next.map(|(key, value)| {
            let is_within = match &self.to {
                Bound::Included(last) => key <= *last,
                Bound::Excluded(end) => key < *end,
                Bound::Unbounded => true,
            };
            is_within.then(|| {
                self.from = Some(Bound::Excluded(key.clone()));
                (key, value)
            })
        })
        .transpose()
    }
}
