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
//!         if read? == 0 {
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

mod batch;
mod descriptor;
mod status;
mod transfer;

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use crate::buffer::Buffer;
use crate::core;
use crate::driver::Request;
use crate::operation::{self, Kept, Operation};
use crate::yield_now;

pub use batch::Batch;
use descriptor::Descriptor;
pub use status::{DirectAlignment, Status};
use transfer::{Amount, Direction, Transfer, may_try_again};

/// How to open a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    direct: bool,
    registered: bool,
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

    /// To register it with the kernel, which spares a lookup with each transfer and costs a call
    /// when it is opened and one when it is closed: for a file that is read for long. Where all
    /// [places](crate::Builder::registered_files) are taken it is opened all the same, and counted
    /// in [`Metrics::unregistered_files`](crate::Metrics::unregistered_files).
    #[must_use]
    pub fn registered(mut self, registered: bool) -> Self {
        self.registered = registered;
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

/// An open file. Clones share it; it is closed when the last, and the last operation, has gone.
#[derive(Clone)]
pub struct File {
    descriptor: Rc<Descriptor>,
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
        let mut descriptor = Descriptor::new(core, operation::own(result? as i32));
        if options.direct {
            descriptor.set_direct(status::direct_alignment(descriptor.fd())?);
        }
        if options.registered {
            descriptor.register();
        }
        Ok(File { descriptor: Rc::new(descriptor) })
    }

    /// Closes the file, and tells what the kernel says of it: some file systems tell only now that
    /// what was written could not be kept. If a clone of it is left, or an operation under way, the
    /// file is closed with that, and nothing is told here. An error of a file that is dropped goes
    /// to [`Metrics::close_errors`](crate::Metrics::close_errors) and a warning.
    ///
    /// # Errors
    ///
    /// What the kernel says. The file is closed all the same.
    pub async fn close(self) -> io::Result<()> {
        let Ok(mut descriptor) = Rc::try_unwrap(self.descriptor) else { return Ok(()) };
        match descriptor.close() {
            Some(closing) => closing.await.0.map(drop),
            None => Ok(()),
        }
    }

    /// Reads at `offset` as much as the buffer is long, and gives it back, as long as what was read.
    /// That is less if the file ends before, and may be less in between.
    ///
    /// # Errors
    ///
    /// What the kernel says. `InvalidInput`, from direct I/O, means that something isn't aligned.
    pub async fn read_at(&self, buffer: Buffer, offset: u64) -> (io::Result<usize>, Buffer) {
        Transfer::new(self, buffer, offset, Direction::Read, Amount::Some).await
    }

    /// Writes the buffer at `offset`, or as much of it as the kernel takes, and gives it back.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub async fn write_at(&self, buffer: Buffer, offset: u64) -> (io::Result<usize>, Buffer) {
        Transfer::new(self, buffer, offset, Direction::Write, Amount::Some).await
    }

    /// Fills the buffer from `offset` on.
    ///
    /// # Errors
    ///
    /// What the kernel says; `UnexpectedEof` if the file ends before.
    pub async fn read_exact_at(&self, buffer: Buffer, offset: u64) -> (io::Result<()>, Buffer) {
        let transfer = Transfer::new(self, buffer, offset, Direction::Read, Amount::Whole);
        let (result, buffer) = transfer.await;
        (result.map(drop), buffer)
    }

    /// Writes all of the buffer at `offset`.
    ///
    /// # Errors
    ///
    /// What the kernel says; `WriteZero` if it takes no more.
    pub async fn write_all_at(&self, buffer: Buffer, offset: u64) -> (io::Result<()>, Buffer) {
        let transfer = Transfer::new(self, buffer, offset, Direction::Write, Amount::Whole);
        let (result, buffer) = transfer.await;
        (result.map(drop), buffer)
    }

    fn fd(&self) -> RawFd {
        self.descriptor.fd()
    }

    /// Whether it stands among the [files registered](OpenOptions::registered).
    pub fn is_registered(&self) -> bool {
        self.descriptor.place().is_some()
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
        let mut tries = 0;
        loop {
            // SAFETY: the requests of the two callers point to nothing; the descriptor is kept.
            let operation =
                unsafe { Operation::submit(&self.descriptor.core, request, self.keep(None)) };
            match operation.await.0 {
                Err(error) if may_try_again(&error, &mut tries) => {
                    self.descriptor.core.counters.file_retries.add(1);
                    yield_now().await;
                }
                result => return result.map(drop),
            }
        }
    }

    /// How long the file is, in bytes. The call may wait for a network, if the file is beyond one;
    /// [`File::status`] does not.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn size(&self) -> io::Result<u64> {
        Ok(status::ask(self.fd(), libc::STATX_SIZE)?.stx_size)
    }

    /// What the file is: how long, and when changed. Other tasks run while it is found out.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub async fn status(&self) -> io::Result<Status> {
        let core = &self.descriptor.core;
        let buffer = core.pool.take_plain(size_of::<libc::statx>());
        let into = buffer.start().cast();
        let request = Request::Status { fd: self.fd(), mask: status::STATUS, into };
        // SAFETY: the memory is the buffer's, is large and aligned enough, and is kept, as is the
        // descriptor.
        let (result, kept) =
            unsafe { Operation::submit(core, request, self.keep(Some(buffer))) }.await;
        result?;
        let buffer = kept.buffer.expect("an operation gives back what it was given");
        // SAFETY: the buffer is as long as a statx, and aligned; any bytes are one.
        Ok(Status::new(unsafe { &*buffer.start().cast::<libc::statx>() }))
    }

    /// What direct I/O on it demands, as the file system tells it (Linux 6.1), or else as the
    /// device under it does. None if it can't be had, or neither tells.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn direct_alignment(&self) -> io::Result<Option<DirectAlignment>> {
        status::direct_alignment(self.fd())
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("fd", &self.fd()).finish_non_exhaustive()
    }
}
