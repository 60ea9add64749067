//! What a file is: its size, its times, and what direct I/O on it demands.

use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// What direct I/O on a file demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectAlignment {
    /// Addresses are multiples of this, in bytes. [`buffer::ALIGNMENT`](crate::buffer::ALIGNMENT)
    /// is.
    pub memory: u32,
    /// Offsets and lengths are multiples of this, in bytes.
    pub offset: u32,
}

/// What a file was when it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// How long it is, in bytes.
    pub size: u64,
    /// How many bytes of the device are set aside for it.
    pub allocated: u64,
    /// When its content was last changed.
    pub modified: SystemTime,
    /// Whether it is a regular file: neither a directory nor a device, for example.
    pub is_regular: bool,
}

/// What has to be asked for a [`Status`].
pub(super) const STATUS: u32 = libc::STATX_BASIC_STATS;

impl Status {
    pub(super) fn new(status: &libc::statx) -> Status {
        let time = status.stx_mtime;
        let nanos = Duration::from_nanos(u64::from(time.tv_nsec));
        let seconds = Duration::from_secs(time.tv_sec.unsigned_abs());
        let modified = match time.tv_sec {
            0.. => SystemTime::UNIX_EPOCH + seconds + nanos,
            _ => SystemTime::UNIX_EPOCH - seconds + nanos,
        };
        Status {
            size: status.stx_size,
            // In units of 512 bytes, whatever the device's are.
            allocated: status.stx_blocks * 512,
            modified,
            is_regular: u32::from(status.stx_mode) & libc::S_IFMT == libc::S_IFREG,
        }
    }
}

/// Asks at once, without the ring.
pub(super) fn ask(fd: RawFd, mask: u32) -> io::Result<libc::statx> {
    // SAFETY: all bits zero is a valid statx, which is numbers only.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is a string that ends in zero, and `status` is where it may write.
    let result =
        unsafe { libc::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, mask, &raw mut status) };
    if result == 0 { Ok(status) } else { Err(io::Error::last_os_error()) }
}

/// What the file system tells, or else the device under it.
pub(super) fn direct_alignment(fd: RawFd) -> io::Result<Option<DirectAlignment>> {
    let status = ask(fd, libc::STATX_DIOALIGN | libc::STATX_TYPE)?;
    if status.stx_mask & libc::STATX_DIOALIGN != 0 {
        let (memory, offset) = (status.stx_dio_mem_align, status.stx_dio_offset_align);
        // Zero says that there is no direct I/O on this file.
        return Ok((offset != 0).then_some(DirectAlignment { memory, offset }));
    }
    let is_device = u32::from(status.stx_mode) & libc::S_IFMT == libc::S_IFBLK;
    let (major, minor) = match is_device {
        true => (status.stx_rdev_major, status.stx_rdev_minor),
        false => (status.stx_dev_major, status.stx_dev_minor),
    };
    let block = logical_block(Path::new("/sys/dev/block"), major, minor);
    Ok(block.map(|block| DirectAlignment { memory: block, offset: block }))
}

/// A device's logical block, in bytes, as sysfs tells it; that of a partition is its disk's.
fn logical_block(devices: &Path, major: u32, minor: u32) -> Option<u32> {
    let device = devices.join(format!("{major}:{minor}"));
    let queues = ["queue", "../queue"].map(|queue| device.join(queue).join("logical_block_size"));
    let text = queues.iter().find_map(|path| std::fs::read_to_string(path).ok())?;
    text.trim().parse().ok().filter(|block: &u32| block.is_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_the_block_of_its_disk() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("8:0");
        std::fs::create_dir_all(disk.join("queue")).unwrap();
        std::fs::create_dir_all(disk.join("8:1")).unwrap();
        std::fs::write(disk.join("queue/logical_block_size"), "512\n").unwrap();
        assert_eq!(logical_block(folder.path(), 8, 0), Some(512));
        assert_eq!(logical_block(&disk, 8, 1), Some(512));
        assert_eq!(logical_block(folder.path(), 9, 0), None, "a file system without a device");
        std::fs::write(disk.join("queue/logical_block_size"), "none").unwrap();
        assert_eq!(logical_block(folder.path(), 8, 0), None);
    }

    #[test]
    fn times_before_the_epoch_are_times() {
        // SAFETY: all bits zero is a valid statx.
        let mut status: libc::statx = unsafe { std::mem::zeroed() };
        status.stx_mtime.tv_sec = -1;
        status.stx_mtime.tv_nsec = 250_000_000;
        let before = SystemTime::UNIX_EPOCH.duration_since(Status::new(&status).modified);
        assert_eq!(before.unwrap(), Duration::from_millis(750));
    }
}
