//! What an effect sees of the store, and what it leaves there.

use std::collections::BTreeMap;
use std::vec::Vec;

use super::{Batch, Space, StoreError};

/// One call's changes: they become durable together with the call's key and result, or, if the
/// effect fails, are forgotten. What it reads is what all transactions before it left.
pub struct Transaction<'a> {
    read: &'a Read<'a>,
    writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// Reads what was there before.
type Read<'a> = dyn Fn(&[u8]) -> Result<Option<Vec<u8>>, StoreError> + 'a;

impl Transaction<'_> {
    /// Runs an effect on a batch. Its changes are made only if it succeeds.
    pub(super) fn run<B: Batch, T, E: From<StoreError>>(
        batch: &mut B,
        effect: impl FnOnce(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let read = |key: &[u8]| batch.get(Space::Effects, key);
        let mut transaction = Transaction { read: &read, writes: BTreeMap::new() };
        let result = effect(&mut transaction)?;
        for (key, value) in std::mem::take(&mut transaction.writes) {
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
            None => (self.read)(key),
        }
    }

    /// Keeps something under a key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.writes.insert(key.to_vec(), Some(value.to_vec()));
    }

    /// Forgets what was written.
    pub(super) fn forget(&mut self) {
        self.writes.clear();
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
