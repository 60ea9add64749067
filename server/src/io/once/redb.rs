//! A store that survives the death of its process.

use std::boxed::Box;
use std::fmt;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::string::{String, ToString};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;
use std::vec::Vec;

use redb::{
    Builder, ConcurrencyMode, Database, ReadTransaction, ReadableDatabase, ReadableTable,
    TableDefinition, TableError, TransactionError, WriteTransaction,
};

use super::{Batch, Entry, Reader, Space, Store, StoreError, View};

/// What the store may keep in memory, in bytes: what is hot, and not what a machine has.
const CACHE: usize = 64 << 20;
/// Other processes' transactions take a moment. It is told when one has been waited for so long.
const LONG: Duration = Duration::from_secs(1);

/// A file of the database redb. What was committed is on the disk.
///
/// If the file can't be read or written for a while, as the disk is full, transactions fail for so
/// long: the next one opens the file anew, and finds what was committed before.
pub struct Redb(Arc<File>);

struct File {
    path: PathBuf,
    open: Box<Open>,
    tell: fn(&Path),
    /// None if it failed, and could not be opened anew yet.
    database: RwLock<Option<Database>>,
}

type Open = dyn Fn() -> Result<Database, StoreError> + Send + Sync;

impl Redb {
    /// The store in this file, which is made if it is not there. No other process may have it open.
    ///
    /// # Errors
    ///
    /// [`StoreError`], if the file can't be had or is no such store.
    pub fn open(path: impl AsRef<Path>) -> Result<Redb, StoreError> {
        Redb::open_as(path.as_ref(), ConcurrencyMode::ExclusiveWriter, tell_of_others)
    }

    /// As [`Redb::open`], for several processes of one machine: replicas that share their results.
    /// All have to open it so. Their transactions take turns; who opens it, or begins one, waits for the
    /// one that another process has under way, for as long as that takes: a process that is stopped in
    /// the middle of one stops all. After a second of that a warning names the file. Reads of a
    /// [`Ledger`](super::Ledger) don't wait, and a ledger that ends does so for a second at most.
    ///
    /// # Errors
    ///
    /// As [`Redb::open`].
    pub fn open_shared(path: impl AsRef<Path>) -> Result<Redb, StoreError> {
        Redb::open_as(path.as_ref(), ConcurrencyMode::MultiWriter, tell_of_others)
    }

    fn open_as(path: &Path, mode: ConcurrencyMode, tell: fn(&Path)) -> Result<Redb, StoreError> {
        let file = path.to_path_buf();
        Redb::open_by(path, tell, move || {
            let create =
                || Builder::new().set_cache_size(CACHE).set_concurrency_mode(mode).create(&file);
            // Who has it alone finds it free, or fails.
            let made = match mode {
                ConcurrencyMode::ExclusiveWriter => create(),
                _ => or_tell(LONG, || tell(&file), create),
            };
            made.map_err(|error| StoreError::new(format!("{}: {error}", file.display())))
        })
    }

    fn open_by(
        path: &Path,
        tell: fn(&Path),
        open: impl Fn() -> Result<Database, StoreError> + Send + Sync + 'static,
    ) -> Result<Redb, StoreError> {
        let database = RwLock::new(Some(open()?));
        let (path, open) = (path.to_path_buf(), Box::new(open));
        Ok(Redb(Arc::new(File { path, open, tell, database })))
    }
}

fn tell_of_others(path: &Path) {
    tracing::warn!(
        store = %path.display(),
        "waits for another process, which has a transaction under way in the store of results, and may \
         be stopped in the middle of it: see who has the file open (`fuser -v FILE`), and let it go on, \
         or end it"
    );
}

/// Tells of it if that takes so long, and goes on.
fn or_tell<T>(long: Duration, tell: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (working, done) = channel::<()>();
        let watch = move || (done.recv_timeout(long) == Err(RecvTimeoutError::Timeout)).then(tell);
        // Where no thread is to be had, it is not told of.
        drop(thread::Builder::new().name("bowline-ledger".into()).spawn_scoped(scope, watch));
        let done = work();
        drop(working);
        done
    })
}

impl File {
    /// What the database has for it. One that has failed is opened anew.
    fn of<T>(
        &self,
        mut begin: impl FnMut(&Database) -> Result<T, TransactionError>,
    ) -> Result<T, StoreError> {
        if let Some(database) = &*self.database.read().unwrap_or_else(PoisonError::into_inner)
            && let Ok(begun) = begin(database)
        {
            return Ok(begun);
        }
        let mut kept = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // Who came first has opened it anew, perhaps.
        if let Some(database) = &*kept
            && let Ok(begun) = begin(database)
        {
            return Ok(begun);
        }
        // Once the file failed, the database does nothing more. It goes first, with its locks.
        *kept = None;
        let database = kept.insert((self.open)()?);
        begin(database).map_err(StoreError::new)
    }

    fn begin(&self, database: &Database) -> Result<WriteTransaction, TransactionError> {
        match database.try_begin_write() {
            Err(TransactionError::WouldBlock) => {
                or_tell(LONG, || (self.tell)(&self.path), || database.begin_write())
            }
            begun => begun,
        }
    }
}

impl fmt::Debug for Redb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redb({})", self.place())
    }
}

impl Store for Redb {
    type Batch<'a> = Changes;
    type Reader = Readings;

    fn begin(&mut self) -> Result<Changes, StoreError> {
        self.0.of(|database| self.0.begin(database)).map(Changes)
    }

    fn reader(&self) -> Readings {
        Readings(self.0.clone())
    }

    fn place(&self) -> String {
        self.0.path.display().to_string()
    }
}

/// Reads a [`Redb`]: what was committed when it begins, without waiting for transactions.
pub struct Readings(Arc<File>);

impl fmt::Debug for Readings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Readings({})", self.0.path.display())
    }
}

impl Reader for Readings {
    fn read(&mut self, read: &mut dyn FnMut(&dyn View)) -> Result<(), StoreError> {
        let moment = self.0.of(|database| database.begin_read())?;
        read(&Moment(moment));
        Ok(())
    }
}

/// What was committed at one moment.
struct Moment(ReadTransaction);

impl Moment {
    fn table(&self, space: Space) -> Result<Option<impl ReadableTable<Bytes, Bytes>>, StoreError> {
        match self.0.open_table(table(space)) {
            Ok(table) => Ok(Some(table)),
            // Nothing was ever kept there.
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(StoreError::new(error)),
        }
    }
}

impl View for Moment {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.table(space)?.map_or(Ok(None), |table| kept(&table, key))
    }

    fn next(&self, space: Space, from: Bound<&[u8]>) -> Result<Option<Entry>, StoreError> {
        self.table(space)?.map_or(Ok(None), |table| next(&table, from))
    }
}

/// A write transaction of the database.
pub struct Changes(WriteTransaction);

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changes")
    }
}

type Bytes = &'static [u8];

const fn table(space: Space) -> TableDefinition<'static, Bytes, Bytes> {
    TableDefinition::new(match space {
        Space::Effects => "effects",
        Space::Results => "results",
        Space::Order => "order",
    })
}

fn kept(
    table: &impl ReadableTable<Bytes, Bytes>,
    key: &[u8],
) -> Result<Option<Vec<u8>>, StoreError> {
    let kept = table.get(key).map_err(StoreError::new)?;
    Ok(kept.map(|value| value.value().to_vec()))
}

fn next(
    table: &impl ReadableTable<Bytes, Bytes>,
    from: Bound<&[u8]>,
) -> Result<Option<Entry>, StoreError> {
    let mut rest = table.range::<&[u8]>((from, Bound::Unbounded)).map_err(StoreError::new)?;
    let next = rest.next().transpose().map_err(StoreError::new)?;
    Ok(next.map(owned))
}

type Guards<'a> = (redb::AccessGuard<'a, Bytes>, redb::AccessGuard<'a, Bytes>);

fn owned((key, value): Guards<'_>) -> Entry {
    (key.value().to_vec(), value.value().to_vec())
}

impl Changes {
    fn table(&self, space: Space) -> Result<redb::Table<'_, Bytes, Bytes>, StoreError> {
        self.0.open_table(table(space)).map_err(StoreError::new)
    }
}

impl View for Changes {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        kept(&self.table(space)?, key)
    }

    fn next(&self, space: Space, from: Bound<&[u8]>) -> Result<Option<Entry>, StoreError> {
        next(&self.table(space)?, from)
    }
}

impl Batch for Changes {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.table(space)?.insert(key, value).map(drop).map_err(StoreError::new)
    }

    fn remove(&mut self, space: Space, key: &[u8]) -> Result<(), StoreError> {
        self.table(space)?.remove(key).map(drop).map_err(StoreError::new)
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
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::TryRecvError;
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

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
        let mut store = Redb::open_by(&path.clone(), |_| (), {
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
        assert_eq!(read(&store), Some(b"1".to_vec()));
        let kept = |store: &mut Redb| store.begin().unwrap().get(Space::Effects, b"a").unwrap();
        assert_eq!(kept(&mut store), Some(b"1".to_vec()));
        put(&mut store, b"3").unwrap();
        assert_eq!(kept(&mut store), Some(b"3".to_vec()));
    }

    /// What is kept under "a", in a transaction that only reads.
    fn read(store: &Redb) -> Option<Vec<u8>> {
        let mut kept = None;
        let shown = store.reader().read(&mut |view| {
            kept = view.get(Space::Effects, b"a").unwrap();
            let first = view.next(Space::Effects, Bound::Unbounded).unwrap();
            assert_eq!(first.map(|(_, value)| value), kept);
        });
        shown.unwrap();
        kept
    }

    #[test]
    fn who_reads_sees_what_another_process_has_committed_and_does_not_wait_for_its_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let (store, mut other) = (Redb::open_shared(&path), Redb::open_shared(&path).unwrap());
        let store = store.unwrap();
        assert_eq!(read(&store), None, "nothing was ever kept");
        for (value, before) in [(b"1", None), (b"2", Some(b"1".to_vec()))] {
            let mut batch = other.begin().unwrap();
            batch.put(Space::Effects, b"a", value).unwrap();
            let (store, (seen, sees)) = (Redb(store.0.clone()), channel());
            drop(thread::spawn(move || seen.send(read(&store))));
            assert_eq!(sees.recv_timeout(60 * LONG).expect("it waits"), before);
            batch.commit().unwrap();
        }
        assert_eq!(read(&store), Some(b"2".to_vec()));
    }

    #[test]
    fn who_waits_for_another_process_to_open_the_file_or_to_begin_tells_of_it() {
        static TOLD: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let mut other = Redb::open_shared(&path).unwrap();
        // The batch of the other one ends when that is told.
        let mut while_it_is_held = |work: &(dyn Fn() + Sync)| {
            let held = other.begin().unwrap();
            thread::scope(|scope| {
                let (done, is_done) = channel::<()>();
                scope.spawn(move || {
                    work();
                    drop(done);
                });
                let end = Instant::now() + 60 * LONG;
                while TOLD.lock().unwrap().pop().as_ref() != Some(&path) {
                    assert_eq!(is_done.try_recv(), Err(TryRecvError::Empty), "it waits");
                    assert!(Instant::now() < end, "it is never told");
                    thread::yield_now();
                }
                drop(held);
            });
        };
        let tell = |path: &Path| TOLD.lock().unwrap().push(path.to_path_buf());
        let store = Mutex::new(None);
        while_it_is_held(&|| {
            let opened = Redb::open_as(&path, ConcurrencyMode::MultiWriter, tell);
            *store.lock().unwrap() = Some(opened.unwrap());
        });
        while_it_is_held(&|| {
            let mut store = store.lock().unwrap();
            drop(store.as_mut().unwrap().begin().unwrap());
        });
    }

    #[test]
    fn what_takes_long_is_told_of_while_it_does_and_what_does_not_is_not() {
        let (tell, told) = channel();
        or_tell(
            Duration::ZERO,
            move || tell.send(()).unwrap(),
            || {
                told.recv_timeout(60 * LONG).expect("nobody was told");
            },
        );
        assert_eq!(or_tell(Duration::MAX, || panic!("it did not take long"), || 7), 7);
    }
}
