//! A store that survives the death of its process.

use std::boxed::Box;
use std::fmt;
use std::path::Path;
use std::vec::Vec;

use redb::{Builder, ConcurrencyMode, Database, ReadableTable, TableDefinition, WriteTransaction};

use super::{Batch, Entry, Space, Store, StoreError};

/// What the store may keep in memory, in bytes: what is hot, and not what a machine has.
const CACHE: usize = 64 << 20;

/// A file of the database redb. What was committed is on the disk.
///
/// If the file can't be read or written for a while, as the disk is full, transactions fail for so
/// long: the next one opens the file anew, and finds what was committed before.
pub struct Redb {
    open: Box<Open>,
    /// None if it failed, and could not be opened anew yet.
    database: Option<Database>,
}

type Open = dyn Fn() -> Result<Database, StoreError> + Send;

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
    /// All have to open it so. Their transactions take turns, reads of a [`Ledger`](super::Ledger) among
    /// them; and who opens it, or ends, waits for the one that another process has under way, for as
    /// long as that takes. A process that is stopped in the middle of one stops all.
    ///
    /// # Errors
    ///
    /// As [`Redb::open`].
    pub fn open_shared(path: impl AsRef<Path>) -> Result<Redb, StoreError> {
        Redb::open_as(path.as_ref(), ConcurrencyMode::MultiWriter)
    }

    fn open_as(path: &Path, mode: ConcurrencyMode) -> Result<Redb, StoreError> {
        let path = path.to_path_buf();
        Redb::open_by(move || {
            let made =
                Builder::new().set_cache_size(CACHE).set_concurrency_mode(mode).create(&path);
            made.map_err(|error| StoreError::new(format!("{}: {error}", path.display())))
        })
    }

    fn open_by(
        open: impl Fn() -> Result<Database, StoreError> + Send + 'static,
    ) -> Result<Redb, StoreError> {
        let database = open()?;
        Ok(Redb { open: Box::new(open), database: Some(database) })
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
        let begun = self.database.as_ref().map(Database::begin_write);
        if let Some(Ok(changes)) = begun {
            return Ok(Changes(changes));
        }
        // Once the file failed, the database does nothing more. It goes first, with its locks.
        self.database = None;
        let database = self.database.insert((self.open)()?);
        database.begin_write().map(Changes).map_err(StoreError::new)
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use redb::StorageBackend;
    use redb::backends::FileBackend;

    use super::*;

    /// A file on a disk that may be full.
    #[derive(Debug)]
    struct Disk {
        file: FileBackend,
        full: Arc<AtomicBool>,
    }

    impl Disk {
        fn has_room(&self) -> io::Result<()> {
            match self.full.load(Ordering::Relaxed) {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(()),
            }
        }
    }

    impl StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.has_room()?;
            self.file.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.file.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.has_room()?;
            self.file.write(offset, data)
        }
    }

    #[test]
    fn a_file_that_can_not_be_had_is_named_to_who_opens_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none").join("results");
        let error = Redb::open(&path).unwrap_err();
        // As `main` prints what it returns.
        assert!(format!("{error:?}").contains(path.to_str().unwrap()), "{error:?}");
    }

    #[test]
    fn a_store_whose_disk_was_full_works_again_once_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let (path, full) = (folder.path().join("results"), Arc::new(AtomicBool::new(false)));
        let mut store = Redb::open_by({
            let full = Arc::clone(&full);
            move || {
                let mut options = std::fs::File::options();
                let file = options.read(true).write(true).create(true).truncate(false);
                let file = FileBackend::new(file.open(&path).unwrap()).unwrap();
                let disk = Disk { file, full: Arc::clone(&full) };
                Builder::new().create_with_backend(disk).map_err(StoreError::new)
            }
        })
        .unwrap();
        let put = |store: &mut Redb, value: &[u8]| {
            let mut batch = store.begin()?;
            batch.put(Space::Effects, b"a", value)?;
            batch.commit()
        };
        put(&mut store, b"1").unwrap();
        full.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            put(&mut store, b"2").unwrap_err();
        }
        full.store(false, Ordering::Relaxed);
        let kept = |store: &mut Redb| store.begin().unwrap().get(Space::Effects, b"a").unwrap();
        assert_eq!(kept(&mut store), Some(b"1".to_vec()));
        put(&mut store, b"3").unwrap();
        assert_eq!(kept(&mut store), Some(b"3".to_vec()));
    }
}
