//! A store that survives the death of its process.

use std::fmt;
use std::path::Path;
use std::vec::Vec;

use redb::{Builder, ConcurrencyMode, Database, ReadableTable, TableDefinition, WriteTransaction};

use super::{Batch, Entry, Space, Store, StoreError};

/// What the store may keep in memory, in bytes: what is hot, and not what a machine has.
const CACHE: usize = 64 << 20;

/// A file of the database redb. What was committed is on the disk.
pub struct Redb {
    database: Database,
}

impl Redb {
    /// The store in this file, which is made if it is not there. No other process may have it open.
    ///
    /// # Errors
    ///
    /// [`StoreError`], if the file can't be had or is no such store.
    pub fn open(path: impl AsRef<Path>) -> Result<Redb, StoreError> {
        Redb::open_as(path.as_ref(), ConcurrencyMode::ExclusiveWriter)
    }

    /// As [`Redb::open`], for several processes of one machine: replicas that share their results.
    /// All have to open it so. Their transactions take turns.
    ///
    /// # Errors
    ///
    /// As [`Redb::open`].
    pub fn open_shared(path: impl AsRef<Path>) -> Result<Redb, StoreError> {
        Redb::open_as(path.as_ref(), ConcurrencyMode::MultiWriter)
    }

    fn open_as(path: &Path, mode: ConcurrencyMode) -> Result<Redb, StoreError> {
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE).set_concurrency_mode(mode);
        Ok(Redb { database: builder.create(path).map_err(StoreError::new)? })
    }
}

impl fmt::Debug for Redb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redb")
    }
}

impl Store for Redb {
    type Batch<'a> = Changes;

    fn begin(&mut self) -> Result<Changes, StoreError> {
        self.database.begin_write().map(Changes).map_err(StoreError::new)
    }
}

/// A write transaction of the database.
pub struct Changes(WriteTransaction);

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changes")
    }
}

type Table<'a> = redb::Table<'a, &'static [u8], &'static [u8]>;

impl Changes {
    fn table(&self, space: Space) -> Result<Table<'_>, StoreError> {
        let name = match space {
            Space::Effects => "effects",
            Space::Results => "results",
            Space::Order => "order",
        };
        self.0.open_table(TableDefinition::new(name)).map_err(StoreError::new)
    }
}

type Guards<'a> = (redb::AccessGuard<'a, &'static [u8]>, redb::AccessGuard<'a, &'static [u8]>);

fn owned((key, value): Guards<'_>) -> Entry {
    (key.value().to_vec(), value.value().to_vec())
}

impl Batch for Changes {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let table = self.table(space)?;
        let kept = table.get(key).map_err(StoreError::new)?;
        Ok(kept.map(|value| value.value().to_vec()))
    }

    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.table(space)?.insert(key, value).map(drop).map_err(StoreError::new)
    }

    fn remove(&mut self, space: Space, key: &[u8]) -> Result<(), StoreError> {
        self.table(space)?.remove(key).map(drop).map_err(StoreError::new)
    }

    fn first(&self, space: Space) -> Result<Option<Entry>, StoreError> {
        let table = self.table(space)?;
        let first = table.first().map_err(StoreError::new)?;
        Ok(first.map(owned))
    }

    fn last(&self, space: Space) -> Result<Option<Entry>, StoreError> {
        let table = self.table(space)?;
        let last = table.last().map_err(StoreError::new)?;
        Ok(last.map(owned))
    }

    fn commit(self) -> Result<(), StoreError> {
        self.0.commit().map_err(StoreError::new)
    }
}
