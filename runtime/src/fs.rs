//! Files: reads and writes at an offset, into and out of owned buffers.
//!
//! A buffer is given to an operation and comes back with its result. If the future is dropped
//! before, the operation is cancelled, and the buffer stays with it until the kernel has let go.
//!
//! ```
//! use bowline_runtime::fs::{File, OpenOptions};
//! use bowline_runtime::{Runtime, buffer};
//!
//! # fn main() -> std::io::Result<()> {
//! # let from = std::env::temp_dir().join(format!("bowline-copy-from-{}", std::process::id()));
//! # let to = std::env::temp_dir().join(format!("bowline-copy-to-{}", std::process::id()));
//! # std::fs::write(&from, vec![7; 300_000])?;
//! # let (source, target) = (from.clone(), to.clone());
//! Runtime::builder().build().unwrap().block_on(async move {
//!     let from = File::open(source, OpenOptions::new().read(true)).await?;
//!     let to = File::open(target, OpenOptions::new().write(true).create(true)).await?;
//!     let mut block = buffer::take(64 << 10);
//!     let mut offset = 0;
//!     loop {
//!         block.resize(64 << 10);
//!         let (read, filled) = from.read_at(block, offset).await;
//!         block = filled;
//!         block.resize(read?);
//!         if block.is_empty() {
//!             return to.sync_data().await;
//!         }
//!         let length = block.len() as u64;
//!         let (written, emptied) = to.write_all_at(block, offset).await;
//!         written?;
//!         block = emptied;
//!         offset += length;
//!     }
//! })?;
//! # assert!(std::fs::read(&to)? == vec![7; 300_000]);
//! # std::fs::remove_file(from)?;
//! # std::fs::remove_file(to)
//! # }
//! ```

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use crate::buffer::Buffer;
use crate::core::{self, Core};
use crate::driver::{Request, Token};
use crate::operation::{self, Kept, Operation};
use crate::yield_now;

/// How to open a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    direct: bool,
}

impl OpenOptions {
    /// Nothing is allowed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// To read it.
    #[must_use]
    pub fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// To write it.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// To create it if it doesn't exist, readable and writable by whom the umask allows.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// To create it, and to fail if it exists.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// To empty it.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// To bypass the page cache. Offsets and lengths must then be multiples of what
    /// [`File::direct_alignment`] says; buffers are aligned enough anyway.
    #[must_use]
    pub fn direct(mut self, direct: bool) -> Self {
        self.direct = direct;
        self
    }

    fn flags(self) -> io::Result<i32> {
        let access = match (self.read, self.write) {
            (true, false) => libc::O_RDONLY,
            (false, true) => libc::O_WRONLY,
            (true, true) => libc::O_RDWR,
            (false, false) => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let mut flags = access | libc::O_CLOEXEC;
        for (wanted, flag) in [
            (self.create, libc::O_CREAT),
            (self.create_new, libc::O_CREAT | libc::O_EXCL),
            (self.truncate, libc::O_TRUNC),
            (self.direct, libc::O_DIRECT),
        ] {
            flags |= if wanted { flag } else { 0 };
        }
        Ok(flags)
    }
}

/// What direct I/O on a file demands, as its file system tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectAlignment {
    /// Addresses are multiples of this, in bytes. [`buffer::ALIGNMENT`](crate::buffer::ALIGNMENT)
    /// is.
    pub memory: u32,
    /// Offsets and lengths are multiples of this, in bytes.
    pub offset: u32,
}

/// An open file. Clones share it; it is closed when the last, and the last operation, has gone.
#[derive(Clone)]
pub struct File {
    descriptor: Rc<Descriptor>,
}

/// A file's descriptor. Operations keep it open.
struct Descriptor {
    core: Rc<Core>,
    /// There until this is dropped.
    fd: Option<OwnedFd>,
}

impl Drop for Descriptor {
    /// Closing may wait for a device, or a network: the kernel does it aside, while there is a
    /// driver to ask it.
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        if self.core.tasks.is_closed() {
            return;
        }
        let request = Request::Close { fd: fd.into_raw_fd() };
        // SAFETY: the request points to nothing.
        unsafe { self.core.driver.borrow_mut().push(request, Token::NOBODY) };
    }
}

impl File {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// What the kernel says; `InvalidInput` if it is to be neither read nor written, or the path
    /// has a zero byte.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    pub async fn open(path: impl AsRef<Path>, options: OpenOptions) -> io::Result<File> {
        let core = core::current();
        let path = CString::new(path.as_ref().as_os_str().as_bytes())?;
        let request = Request::Open { path: path.as_ptr(), flags: options.flags()?, mode: 0o666 };
        let kept = Kept { memory: Some(Box::new(path)), ..Kept::default() };
        // SAFETY: the path's bytes are on the heap, and kept.
        let (result, _) = unsafe { Operation::submit(&core, request, kept) }.await;
        let fd = Some(operation::own(result? as i32));
        Ok(File { descriptor: Rc::new(Descriptor { core, fd }) })
    }

    /// Reads at `offset` as much as the buffer is long, and gives it back. The number of bytes is
    /// less if the file ends before, and may be less in between.
    ///
    /// # Errors
    ///
    /// What the kernel says. `InvalidInput`, from direct I/O, means that something isn't aligned.
    pub async fn read_at(&self, buffer: Buffer, offset: u64) -> (io::Result<usize>, Buffer) {
        self.transfer(buffer, offset, 0, false).await
    }

    /// Writes the buffer at `offset`, or as much of it as the kernel takes, and gives it back.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub async fn write_at(&self, buffer: Buffer, offset: u64) -> (io::Result<usize>, Buffer) {
        self.transfer(buffer, offset, 0, true).await
    }

    /// Fills the buffer from `offset` on.
    ///
    /// # Errors
    ///
    /// What the kernel says; `UnexpectedEof` if the file ends before.
    pub async fn read_exact_at(&self, buffer: Buffer, offset: u64) -> (io::Result<()>, Buffer) {
        self.transfer_all(buffer, offset, false, io::ErrorKind::UnexpectedEof).await
    }

    /// Writes all of the buffer at `offset`.
    ///
    /// # Errors
    ///
    /// What the kernel says; `WriteZero` if it takes no more.
    pub async fn write_all_at(&self, buffer: Buffer, offset: u64) -> (io::Result<()>, Buffer) {
        self.transfer_all(buffer, offset, true, io::ErrorKind::WriteZero).await
    }

    async fn transfer_all(
        &self,
        mut buffer: Buffer,
        offset: u64,
        write: bool,
        short: io::ErrorKind,
    ) -> (io::Result<()>, Buffer) {
        let mut done = 0;
        while done < buffer.len() {
            let (result, same) = self.transfer(buffer, offset + done as u64, done, write).await;
            buffer = same;
            match result {
                Ok(0) => return (Err(short.into()), buffer),
                Ok(length) => done += length,
                Err(error) => return (Err(error), buffer),
            }
        }
        (Ok(()), buffer)
    }

    /// Moves what the buffer has from `skip` on.
    async fn transfer(
        &self,
        mut buffer: Buffer,
        offset: u64,
        skip: usize,
        write: bool,
    ) -> (io::Result<usize>, Buffer) {
        loop {
            let fd = self.fd();
            let data = buffer[skip..].as_mut_ptr();
            let length = (buffer.len() - skip).min(1 << 30) as u32;
            let request = match write {
                true => Request::Write { fd, data, length, offset },
                false => Request::Read { fd, data, length, offset },
            };
            let kept = self.keep(Some(buffer));
            // SAFETY: the memory is the buffer's, which is kept, as is the descriptor.
            let (result, kept) =
                unsafe { Operation::submit(&self.descriptor.core, request, kept) }.await;
            buffer = kept.buffer.expect("an operation gives back what it was given");
            match result {
                Err(error) if is_passing(&error) => yield_now().await,
                result => return (result.map(|length| length as usize), buffer),
            }
        }
    }

    fn fd(&self) -> RawFd {
        self.descriptor.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    fn keep(&self, buffer: Option<Buffer>) -> Kept {
        Kept { buffer, descriptor: Some(self.descriptor.clone()), ..Kept::default() }
    }

    /// Has data and metadata written to the device.
    ///
    /// # Errors
    ///
    /// What the kernel says. What failed to be written may be lost.
    pub async fn sync_all(&self) -> io::Result<()> {
        self.sync(false).await
    }

    /// Has data written to the device, and of the metadata what is needed to read it.
    ///
    /// # Errors
    ///
    /// What the kernel says. What failed to be written may be lost.
    pub async fn sync_data(&self) -> io::Result<()> {
        self.sync(true).await
    }

    async fn sync(&self, data_only: bool) -> io::Result<()> {
        self.plain(Request::Sync { fd: self.fd(), data_only }).await
    }

    /// Makes sure that the device has room for `length` bytes from `offset` on; the file grows if
    /// it is shorter.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub async fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.plain(Request::Allocate { fd: self.fd(), offset, length }).await
    }

    /// Makes a request that points to no memory.
    async fn plain(&self, request: Request) -> io::Result<()> {
        loop {
            // SAFETY: the requests of the two callers point to nothing; the descriptor is kept.
            let operation =
                unsafe { Operation::submit(&self.descriptor.core, request, self.keep(None)) };
            match operation.await.0 {
                Err(error) if is_passing(&error) => yield_now().await,
                result => return result.map(drop),
            }
        }
    }

    /// How long the file is, in bytes. The call does not wait for the device.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn size(&self) -> io::Result<u64> {
        Ok(self.statx(libc::STATX_SIZE)?.stx_size)
    }

    /// What direct I/O on it demands; None if it can't be had, or the file system doesn't tell.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn direct_alignment(&self) -> io::Result<Option<DirectAlignment>> {
        let status = self.statx(libc::STATX_DIOALIGN)?;
        let alignment = DirectAlignment {
            memory: status.stx_dio_mem_align,
            offset: status.stx_dio_offset_align,
        };
        let told = status.stx_mask & libc::STATX_DIOALIGN != 0 && alignment.offset != 0;
        Ok(told.then_some(alignment))
    }

    fn statx(&self, mask: libc::c_uint) -> io::Result<libc::statx> {
        // SAFETY: all bits zero is a valid statx, which is numbers only.
        let mut status: libc::statx = unsafe { std::mem::zeroed() };
        // SAFETY: the path is a string that ends in zero, and `status` is where it may write.
        let result = unsafe {
            libc::statx(self.fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, mask, &raw mut status)
        };
        if result == 0 { Ok(status) } else { Err(io::Error::last_os_error()) }
    }
}

/// Whether the same request may well succeed in the next turn.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("fd", &self.fd()).finish_non_exhaustive()
    }
}
