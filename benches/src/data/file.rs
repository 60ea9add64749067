//! The file of a replica's blocks: made once, reused while it matches, replaced atomically.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::block::{BLOCK_BYTES, DataSet};

/// Whether [`ensure_file`] found the file or wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It was there and holds this data set.
    Reused,
    /// It was missing or held something else.
    Written,
}

/// Why a data file cannot be had. Each message names the path and what would help.
#[derive(Debug, Error)]
pub enum DataError {
    /// The folder or the file may not be written.
    #[error("cannot write {path}: {source}; give a writable folder with --data DIR")]
    NotWritable {
        /// What could not be written.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file system is full, or the quota used up.
    #[error(
        "no room for {path} ({mib} MiB): {source}; choose another file system with --data DIR \
         or a smaller --data-size"
    )]
    Full {
        /// What did not fit.
        path: PathBuf,
        /// Size of the file.
        mib: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// Another failure of the file system.
    #[error("cannot prepare {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

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

/// Sees to it that `path` holds the blocks of `set`, and makes its folder if need be.
///
/// `progress` hears how many bytes were written since it was last called. A file is written
/// beside its place and renamed when it is whole and on the device: a run that is interrupted
/// leaves either the old file or none.
///
/// # Errors
/// [`DataError`]; nothing half-written is left behind.
pub fn ensure_file(
    path: &Path,
    set: &DataSet,
    progress: &mut dyn FnMut(u64),
) -> Result<Made, DataError> {
    if holds(path, set) {
        return Ok(Made::Reused);
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| DataError::new(folder, set, error))?;
    }
    // The process id keeps two runs that start together out of each other's way.
    let partial = path.with_extension(format!("partial-{}", std::process::id()));
    let written = write(&partial, set, progress).and_then(|()| fs::rename(&partial, path));
    match written {
        Ok(()) => Ok(Made::Written),
        Err(error) => {
            fs::remove_file(&partial).ok();
            Err(DataError::new(path, set, error))
        }
    }
}

/// Whether the file has the set's size and its blocks: the first, the last and 14 between.
/// (Readers verify every block that they get; this only has to tell sets apart.)
fn holds(path: &Path, set: &DataSet) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let sized = file.metadata().is_ok_and(|data| data.is_file() && data.len() == set.bytes());
    let mut bytes = [0; BLOCK_BYTES];
    sized
        && (0..16).map(|sample| sample * (set.blocks - 1) / 15).all(|block| {
            file.read_exact_at(&mut bytes, block * BLOCK_BYTES as u64).is_ok()
                && set.verify(block, &bytes).is_ok()
        })
}

fn write(path: &Path, set: &DataSet, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
    /// Blocks between two reports of progress: 1 MiB.
    const REPORT_EVERY: u64 = 256;
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut bytes = [0; BLOCK_BYTES];
    for block in 0..set.blocks {
        set.fill(block, &mut bytes);
        file.write_all(&bytes)?;
        if (block + 1) % REPORT_EVERY == 0 {
            progress(REPORT_EVERY * BLOCK_BYTES as u64);
        }
    }
    progress(set.blocks % REPORT_EVERY * BLOCK_BYTES as u64);
    file.into_inner()?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: DataSet = DataSet { seed: 7, blocks: 300 };

    fn ensure(path: &Path, set: &DataSet) -> Result<Made, DataError> {
        ensure_file(path, set, &mut |_| {})
    }

    #[test]
    fn a_file_is_written_once_and_then_reused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("deep/er/replica-0.dat");
        let mut reported = 0;
        assert_eq!(
            ensure_file(&path, &SET, &mut |bytes| reported += bytes).expect("writable"),
            Made::Written
        );
        assert_eq!(reported, SET.bytes());
        assert_eq!(ensure(&path, &SET).expect("readable"), Made::Reused);

        let content = fs::read(&path).expect("readable");
        assert_eq!(content.len() as u64, SET.bytes());
        for (number, bytes) in (0..).zip(content.chunks(BLOCK_BYTES)) {
            assert_eq!(SET.verify(number, bytes), Ok(()));
        }
        let left = fs::read_dir(path.parent().expect("a folder")).expect("readable").count();
        assert_eq!(left, 1, "no partial file stays behind");
    }

    #[test]
    fn a_file_of_another_size_or_seed_or_with_damage_is_replaced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("replica-0.dat");
        ensure(&path, &DataSet { seed: 7, blocks: 299 }).expect("writable");
        assert_eq!(ensure(&path, &SET).expect("writable"), Made::Written);
        assert_eq!(ensure(&path, &DataSet { seed: 8, ..SET }).expect("writable"), Made::Written);
        fs::write(&path, vec![0; SET.bytes() as usize]).expect("writable");
        assert_eq!(ensure(&path, &SET).expect("writable"), Made::Written);
        assert_eq!(ensure(&path, &SET).expect("readable"), Made::Reused);
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

    #[test]
    fn a_write_that_fails_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("replica-0.dat");
        fs::create_dir(&path).expect("writable"); // a file cannot take a folder's place
        ensure(&path, &SET).expect_err("in the way");
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    /// `/dev/full` answers every write with ENOSPC.
    #[test]
    fn a_full_disk_is_told_apart_and_its_cure_named() {
        let source = write(Path::new("/dev/full"), &SET, &mut |_| {}).expect_err("always full");
        let message = DataError::new(Path::new("x/replica-0.dat"), &SET, source).to_string();
        assert!(message.starts_with("no room for x/replica-0.dat (1 MiB)"), "{message}");
        assert!(message.contains("--data-size"), "{message}");
    }
}
