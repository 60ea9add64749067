//! What stands where a data file is to be, what was left beside it, and whether there is room.

use std::fs::{self, File, FileType};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use rustix::process::{Pid, test_kill_process};

use super::block::{BLOCK_BYTES, DataSet};

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing: a file may be made here.
    Nothing,
    /// The blocks that are wanted.
    Wanted,
    /// Another data set of ours, of so many bytes: it may be replaced.
    Older(u64),
    /// Anything else, which is somebody's: never to be touched.
    Foreign(&'static str),
}

/// Looks without changing anything. Only a regular file is ever opened: to open a device or a pipe
/// may already do something.
pub(super) fn look(path: &Path, set: &DataSet) -> io::Result<Found> {
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    if !there.is_file() {
        return Ok(Found::Foreign(kind(there.file_type())));
    }
    let file = File::open(path)?;
    let mut first = [0; BLOCK_BYTES];
    let older = match file.read_exact_at(&mut first, 0) {
        Ok(()) => DataSet::of_first_block(&first),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => None,
        Err(error) => return Err(error),
    };
    Ok(match older {
        Some(found) if found == *set && holds(&file, there.len(), set) => Found::Wanted,
        Some(_) => Found::Older(there.len()),
        None => Found::Foreign("not a data file of bowline"),
    })
}

/// Whether the file has the set's size and its blocks: the first, the last and 14 between.
/// (Readers verify every block that they get; this only has to tell sets apart.)
fn holds(file: &File, length: u64, set: &DataSet) -> bool {
    let mut bytes = [0; BLOCK_BYTES];
    length == set.bytes()
        && (0..16).map(|sample| sample * (set.blocks - 1) / 15).all(|block| {
            file.read_exact_at(&mut bytes, block * BLOCK_BYTES as u64).is_ok()
                && set.verify(block, &bytes).is_ok()
        })
}

fn kind(found: FileType) -> &'static str {
    match found {
        found if found.is_dir() => "a folder",
        found if found.is_symlink() => "a symbolic link",
        _ => "a device, a pipe or a socket",
    }
}

/// Bytes that the file system of `folder` has left, if it says.
pub(super) fn room(folder: &Path) -> Option<u64> {
    let found = statvfs(folder).ok()?;
    // Some network file systems do not know their size.
    (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
}

/// Where a file is written until it is whole. The process id keeps two runs that start together out
/// of each other's way, and tells whether the writer still lives.
pub(super) fn partial(path: &Path) -> PathBuf {
    path.with_extension(format!("{PARTIAL}{}", std::process::id()))
}

const PARTIAL: &str = "partial-";

/// Removes what writers of `path` that were killed have left.
///
/// A file is removed only if its name, its first block and a lock that nobody holds all say so: a
/// writer in another container may have a process id that means nothing here.
pub(super) fn sweep(path: &Path) {
    let Some(entries) = path.parent().and_then(|folder| fs::read_dir(folder).ok()) else { return };
    for entry in entries.flatten() {
        let name = entry.path();
        let writer =
            name.extension().and_then(|end| end.to_str()?.strip_prefix(PARTIAL)?.parse().ok());
        let (true, Some(writer)) = (name.file_stem() == path.file_stem(), writer) else { continue };
        if is_over(writer) && entry.file_type().is_ok_and(|found| found.is_file()) && is_left(&name)
        {
            fs::remove_file(&name).ok();
        }
    }
}

/// Whether no other process has that id.
fn is_over(process: i32) -> bool {
    let other = Pid::from_raw(process).filter(|_| process.unsigned_abs() != std::process::id());
    process > 0 && other.is_none_or(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// Whether a file is the beginning of a data set, and nobody writes it.
fn is_left(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let mut first = [0; BLOCK_BYTES];
    let ours = match file.read_exact_at(&mut first, 0) {
        Ok(()) => DataSet::of_first_block(&first).is_some(),
        Err(_) => file.metadata().is_ok_and(|found| found.len() == 0),
    };
    ours && file.try_lock().is_ok()
}
