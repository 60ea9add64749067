//! The files of replicas' blocks: made once, reused while they match, replaced atomically.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::block::{BLOCK_BYTES, DataSet};
use super::place::{Found, look, partial, room, sweep};
use crate::interrupt::Interrupt;
use crate::units::show_size;

/// Whether [`ensure_files`] found a file or wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It was there and holds this data set.
    Reused,
    /// It was missing or held an older data set.
    Written,
}

/// Why data files cannot be had. Each message names the path and what would help.
#[derive(Debug, Error)]
pub enum DataError {
    /// The folder or the file may not be written.
    #[error("cannot write {path}: {source}; give a writable place with {CURE}")]
    NotWritable {
        /// What could not be written.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Something stands there that this program did not make.
    #[error(
        "{path} is there and is {what}; it stays as it is: move it away, or name another place \
         with {CURE}"
    )]
    Foreign {
        /// What is in the way.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// There is less room than the files need, and nothing was written.
    #[error(
        "no room for {path}: {need} needed, {left} left on its file system; name another with \
         {CURE}, or a smaller --data-size"
    )]
    TooLarge {
        /// The folder.
        path: PathBuf,
        /// What the files need.
        need: String,
        /// What there is.
        left: String,
    },
    /// The file system is full, or the quota used up.
    #[error(
        "no room for {path} ({mib} MiB): {source}; name another file system with {CURE}, or a \
         smaller --data-size"
    )]
    Full {
        /// What did not fit.
        path: PathBuf,
        /// Size of the file.
        mib: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// A data file of other options, which a replica that runs by itself leaves alone.
    #[error(
        "{path} holds {size} of another --seed or --data-size; it stays as it is: give the options \
         that it was made with, remove it, or name another with --file FILE"
    )]
    Other {
        /// The file.
        path: PathBuf,
        /// How much it holds.
        size: String,
    },
    /// Another failure of the file system.
    #[error("cannot prepare {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another comparison uses the folder.
    #[error("{path} is in use by another comparison; wait for it, or name another with --data DIR")]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The user asked to end.
    #[error("interrupted while writing {path}, of which nothing is left")]
    Interrupted {
        /// The file.
        path: PathBuf,
    },
}

/// The options that name a place, of `compare` and of `serve`.
const CURE: &str = "--data DIR (serve: --file FILE)";

impl DataError {
    fn new(path: &Path, set: &DataSet, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                DataError::Full { path, mib: set.bytes() >> 20, source }
            }
            ErrorKind::PermissionDenied
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotADirectory
            | ErrorKind::AlreadyExists => DataError::NotWritable { path, source },
            _ => DataError::Io { path, source },
        }
    }
}

/// Keeps other comparisons out of a folder of data files, which is made if need be, until the value
/// is dropped or the process ends: one with another seed would replace the files under this one.
///
/// # Errors
/// [`DataError::InUse`]; the folder cannot be made or opened.
pub fn hold(folder: &Path) -> Result<File, DataError> {
    let failed = |source: io::Error| match source.kind() {
        ErrorKind::NotFound => DataError::Io { path: folder.to_owned(), source },
        _ => DataError::NotWritable { path: folder.to_owned(), source },
    };
    fs::create_dir_all(folder).map_err(failed)?;
    let held = File::open(folder).map_err(failed)?;
    match held.try_lock() {
        Err(TryLockError::WouldBlock) => Err(DataError::InUse { path: folder.to_owned() }),
        // A file system without locks keeps nobody out.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(held),
    }
}

/// Sees to it that every one of `paths`, which share a folder, holds the blocks of `set`.
///
/// The folder is made if need be. Only a data file of this program is ever replaced, and all paths
/// are looked at before anything is written. `progress` hears how many bytes were written since it
/// was last called. A file is written beside its place and renamed when it is whole and on the
/// device: a run that ends early leaves either the old file or none.
///
/// # Errors
/// [`DataError`]; nothing half-written is left behind.
pub fn ensure_files(
    paths: &[PathBuf],
    set: &DataSet,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Made>, DataError> {
    for path in paths {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|error| DataError::new(folder, set, error))?;
        }
        sweep(path);
    }
    let found = paths.iter().map(|path| ours(path, set)).collect::<Result<Vec<_>, _>>()?;
    if let Some(first) = paths.first() {
        check_room(folder(first), &found, set)?;
    }
    let files = paths.iter().zip(found);
    files
        .map(|(path, found)| match found {
            Found::Wanted => Ok(Made::Reused),
            _ => replace(path, set, interrupt, progress).map(|()| Made::Written),
        })
        .collect()
}

/// Refuses a data file of this program that holds another set: it may be another replica's own.
///
/// # Errors
/// [`DataError::Other`]; or what stands there is no data file at all.
pub fn refuse_other(path: &Path, set: &DataSet) -> Result<(), DataError> {
    match ours(path, set)? {
        Found::Older(bytes) => {
            Err(DataError::Other { path: path.to_owned(), size: show_size(bytes) })
        }
        Found::Wanted | Found::Nothing | Found::Foreign(_) => Ok(()),
    }
}

/// What stands at `path`, if this program may replace it.
fn ours(path: &Path, set: &DataSet) -> Result<Found, DataError> {
    match look(path, set).map_err(|error| DataError::new(path, set, error))? {
        Found::Foreign(what) => Err(DataError::Foreign { path: path.to_owned(), what }),
        found => Ok(found),
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Each new file stands beside its older one until it is whole; so the need is greatest either then
/// or at the end.
fn check_room(folder: &Path, found: &[Found], set: &DataSet) -> Result<(), DataError> {
    let (mut need, mut freed) = (0_u64, 0);
    let mut total = 0_u64;
    for found in found.iter().filter(|found| **found != Found::Wanted) {
        total = total.saturating_add(set.bytes());
        need = need.max(total.saturating_sub(freed));
        freed += if let Found::Older(bytes) = found { *bytes } else { 0 };
    }
    match room(folder) {
        Some(left) if left < need => Err(DataError::TooLarge {
            path: folder.to_owned(),
            need: show_size(need),
            left: show_size(left),
        }),
        _ => Ok(()),
    }
}

fn replace(
    path: &Path,
    set: &DataSet,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(u64),
) -> Result<(), DataError> {
    let failed = |error| DataError::new(path, set, error);
    let partial = partial(path);
    // Never through a link, never over a file: this fails where anything stands.
    let file = File::create_new(&partial).map_err(|error| DataError::new(&partial, set, error))?;
    // For `sweep`. Where a file system has no locks, the process id alone has to tell.
    file.try_lock().ok();
    let placed = match write(file, set, interrupt, progress) {
        Ok(true) => {
            // What has come there meanwhile is not ours to replace either.
            ours(path, set).and_then(|_| fs::rename(&partial, path).map_err(failed))
        }
        Ok(false) => Err(DataError::Interrupted { path: path.to_owned() }),
        Err(error) => Err(failed(error)),
    };
    if placed.is_err() {
        fs::remove_file(&partial).ok();
    }
    placed
}

/// Writes all blocks; false if the user asked to end before.
fn write(
    file: File,
    set: &DataSet,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(u64),
) -> io::Result<bool> {
    /// Blocks between two reports of progress: 1 MiB.
    const REPORT_EVERY: u64 = 256;
    /// Blocks between two waits for the device, 64 MiB: so that the last wait, which no signal
    /// ends, is a short one.
    const SYNC_EVERY: u64 = 64 * REPORT_EVERY;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let mut bytes = [0; BLOCK_BYTES];
    for block in 0..set.blocks {
        if interrupt.asked() {
            return Ok(false);
        }
        set.fill(block, &mut bytes);
        file.write_all(&bytes)?;
        if (block + 1) % REPORT_EVERY == 0 {
            progress(REPORT_EVERY * BLOCK_BYTES as u64);
        }
        if (block + 1) % SYNC_EVERY == 0 {
            file.flush()?;
            file.get_ref().sync_data()?;
        }
    }
    progress(set.blocks % REPORT_EVERY * BLOCK_BYTES as u64);
    file.into_inner()?.sync_all()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const SET: DataSet = DataSet { seed: 7, blocks: 300 };

    fn ensure(path: &Path, set: &DataSet) -> Result<Made, DataError> {
        let made = ensure_files(&[path.to_owned()], set, &Interrupt::default(), &mut |_| {})?;
        Ok(made[0])
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("readable");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("readable").file_name();
        let mut names: Vec<_> =
            entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_written_once_and_then_reused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("deep/er/replica-0.dat");
        let mut reported = 0;
        let made =
            ensure_files(std::slice::from_ref(&path), &SET, &Interrupt::default(), &mut |bytes| {
                reported += bytes
            });
        assert_eq!(made.expect("writable"), [Made::Written]);
        assert_eq!(reported, SET.bytes());
        assert_eq!(ensure(&path, &SET).expect("readable"), Made::Reused);

        let content = fs::read(&path).expect("readable");
        assert_eq!(content.len() as u64, SET.bytes());
        for (number, bytes) in (0..).zip(content.chunks(BLOCK_BYTES)) {
            assert_eq!(SET.verify(number, bytes), Ok(()));
        }
        let left = names(path.parent().expect("a folder"));
        assert_eq!(left, ["replica-0.dat"], "no partial file stays behind");
    }

    #[test]
    fn a_data_file_of_another_size_or_seed_or_with_damage_is_replaced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("replica-0.dat");
        ensure(&path, &DataSet { seed: 7, blocks: 299 }).expect("writable");
        assert_eq!(ensure(&path, &SET).expect("writable"), Made::Written);
        assert_eq!(ensure(&path, &DataSet { seed: 8, ..SET }).expect("writable"), Made::Written);
        assert_eq!(ensure(&path, &SET).expect("writable"), Made::Written);
        let mut damaged = fs::read(&path).expect("readable");
        damaged[299 * BLOCK_BYTES + 100] ^= 1;
        fs::write(&path, &damaged).expect("writable");
        assert_eq!(ensure(&path, &SET).expect("writable"), Made::Written);
        assert_eq!(ensure(&path, &SET).expect("readable"), Made::Reused);
    }

    #[test]
    fn what_is_not_a_data_file_stays_as_it_is() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("important.txt");
        for content in [vec![], b"precious\n".to_vec(), vec![b'p'; SET.bytes() as usize]] {
            fs::write(&path, &content).expect("writable");
            let message = ensure(&path, &SET).expect_err("somebody's file").to_string();
            assert!(message.contains("important.txt") && message.contains("--file"), "{message}");
            assert_eq!(fs::read(&path).expect("readable"), content);
        }
        let link = folder.path().join("link");
        symlink(&path, &link).expect("writable");
        let message = ensure(&link, &SET).expect_err("a link").to_string();
        assert!(message.contains("symbolic link"), "{message}");
        let socket = folder.path().join("socket");
        let _bound = std::os::unix::net::UnixListener::bind(&socket).expect("writable");
        let message = ensure(&socket, &SET).expect_err("a node").to_string();
        assert!(message.contains("a device, a pipe or a socket"), "{message}");
        assert_eq!(names(folder.path()), ["important.txt", "link", "socket"]);
    }

    #[test]
    fn a_folder_has_one_comparison_at_a_time() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let folder = parent.path().join("data");
        let held = hold(&folder).expect("free");
        let message = hold(&folder).expect_err("held").to_string();
        assert!(message.contains("in use") && message.contains("--data DIR"), "{message}");
        drop(held);
        hold(&folder).expect("free again");
    }

    #[test]
    fn one_foreign_file_keeps_all_from_being_written() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let paths = ["a.dat", "b.dat"].map(|name| folder.path().join(name));
        fs::write(&paths[1], "precious").expect("writable");
        ensure_files(&paths, &SET, &Interrupt::default(), &mut |_| {}).expect_err("in the way");
        assert_eq!(names(folder.path()), ["b.dat"]);
    }

    #[test]
    fn the_wish_to_end_is_heard_while_writing_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("replica-0.dat");
        // 64 MiB: were the wish not heard, the bytes that were told would say so.
        let set = DataSet { seed: 7, blocks: 1 << 14 };
        let interrupt = Interrupt::default();
        let mut written = 0;
        let ended = ensure_files(&[path], &set, &interrupt, &mut |bytes| {
            written += bytes;
            assert!(written <= 2 << 20, "it goes on");
            interrupt.ask();
        });
        assert!(matches!(ended, Err(DataError::Interrupted { .. })), "{ended:?}");
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn what_cannot_fit_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let set = DataSet::of_size(1, 8_000_000_000_000_000);
        let mut written = false;
        let paths = [folder.path().join("replica-0.dat")];
        let error = ensure_files(&paths, &set, &Interrupt::default(), &mut |_| written = true);
        let message = error.expect_err("8 PB").to_string();
        assert!(message.contains("needed") && message.contains("--data-size"), "{message}");
        assert!(!written && names(folder.path()).is_empty());
    }

    #[test]
    fn room_is_counted_with_what_older_files_give_back() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let left = room(folder.path()).expect("a local file system");
        let set = DataSet::of_size(1, left / 10 * 4);
        let older = Found::Older(set.bytes());
        check_room(folder.path(), &[older; 9], &set).expect("one at a time");
        check_room(folder.path(), &[Found::Wanted; 9], &set).expect("nothing to write");
        check_room(folder.path(), &[Found::Nothing; 9], &set).expect_err("nine times 40 %");
    }

    #[test]
    fn a_replica_that_runs_by_itself_leaves_the_data_of_other_options_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("replica-0.dat");
        refuse_other(&path, &SET).expect("nothing there");
        ensure(&path, &SET).expect("writable");
        refuse_other(&path, &SET).expect("the same data");
        for other in [DataSet { seed: 8, ..SET }, DataSet { blocks: 200, ..SET }] {
            let refused = refuse_other(&path, &other).expect_err("other data").to_string();
            assert!(refused.contains("replica-0.dat") && refused.contains("--file"), "{refused}");
        }
    }

    #[test]
    fn what_killed_writers_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("replica-0.dat");
        let mut block = [0; BLOCK_BYTES];
        SET.fill(0, &mut block);
        let mut gone = std::process::Command::new("true").spawn().expect("a program");
        gone.wait().expect("a child");
        let (gone, lives) = (gone.id(), std::os::unix::process::parent_id());
        let put = |name: String, content: &[u8]| {
            fs::write(folder.path().join(name), content).expect("writable");
        };
        put(format!("replica-0.partial-{gone}"), &block);
        put(format!("replica-0.partial-{lives}"), &block);
        put(format!("replica-1.partial-{gone}"), &block);
        put(format!("replica-0.partial-{gone}0000"), b"notes of mine");
        ensure(&path, &SET).expect("writable");
        let mut stay = [
            "replica-0.dat".to_owned(),
            format!("replica-0.partial-{lives}"),
            format!("replica-0.partial-{gone}0000"),
            format!("replica-1.partial-{gone}"),
        ];
        stay.sort();
        assert_eq!(names(folder.path()), stay);
    }

    #[test]
    fn a_folder_that_is_a_file_is_refused_by_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let blocked = folder.path().join("blocked");
        fs::write(&blocked, "").expect("writable");
        let error = ensure(&blocked.join("replica-0.dat"), &SET).expect_err("not a folder");
        let message = error.to_string();
        assert!(message.contains("blocked") && message.contains("--data DIR"), "{message}");
    }

    /// `/dev/full` answers every write with ENOSPC.
    #[test]
    fn a_full_disk_is_told_apart_and_its_cure_named() {
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let source = write(full, &SET, &Interrupt::default(), &mut |_| {}).expect_err("full");
        let message = DataError::new(Path::new("x/replica-0.dat"), &SET, source).to_string();
        assert!(message.starts_with("no room for x/replica-0.dat (1 MiB)"), "{message}");
        assert!(message.contains("--data-size"), "{message}");
    }
}
