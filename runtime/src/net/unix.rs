//! Unix sockets: connections within a machine, found by a path or by a name.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::linux::fs::MetadataExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use bowline_time::Duration;
use socket2::{Domain, SockAddr, Type};

use super::listener::{BACKLOG, Listener};
use super::socket::Socket;
use super::stream::Stream;

/// Where a Unix socket listens.
///
/// Written out, a name stands behind an `@`, as `ss` and `/proc/net/unix` show it:
///
/// ```
/// use bowline_runtime::net::UnixAddr;
///
/// let path = UnixAddr::from("/run/store.sock");
/// let name = UnixAddr::from("@store");
/// assert_eq!(name, UnixAddr::Name(b"store".to_vec()));
/// assert_eq!((path.to_string(), name.to_string()), ("/run/store.sock".into(), "@store".into()));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum UnixAddr {
    /// In the file system: who may write to that file may connect. Of 1 to 107 bytes.
    Path(PathBuf),
    /// In the abstract namespace of the network namespace: no file, and anybody may connect. Of
    /// 1 to 107 bytes, which may be any.
    Name(Vec<u8>),
}

impl From<&str> for UnixAddr {
    fn from(text: &str) -> UnixAddr {
        match text.strip_prefix('@') {
            Some(name) => UnixAddr::Name(name.into()),
            None => UnixAddr::Path(text.into()),
        }
    }
}

impl From<&Path> for UnixAddr {
    fn from(path: &Path) -> UnixAddr {
        UnixAddr::Path(path.into())
    }
}

impl fmt::Display for UnixAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnixAddr::Path(path) => path.display().fmt(f),
            UnixAddr::Name(name) => write!(f, "@{}", String::from_utf8_lossy(name)),
        }
    }
}

const MISSING: &str = "there is no such socket: is the server started, and its directory there?";
const REFUSED: &str = "nobody listens: the server has ended, or is not started";
const FORBIDDEN: &str =
    "permission denied: the socket and its directory have to be writable to this user";
const TAKEN: &str = "somebody listens there already: stop it, or choose another address";

impl UnixAddr {
    fn to_socket(&self) -> io::Result<SockAddr> {
        let (empty, made) = match self {
            UnixAddr::Path(path) => (path.as_os_str().is_empty(), SockAddr::unix(path)),
            UnixAddr::Name(name) => {
                let name = [b"\0", &name[..]].concat();
                (name.len() == 1, SockAddr::unix(OsStr::from_bytes(&name)))
            }
        };
        // The kernel would choose a name for one that is empty.
        made.ok().filter(|_| !empty).ok_or_else(|| {
            let cure = "must be of 1 to 107 bytes, in a path none of them zero: choose another";
            self.error(io::ErrorKind::InvalidInput, cure)
        })
    }

    fn error(&self, kind: io::ErrorKind, what: &str) -> io::Error {
        io::Error::new(kind, format!("{self}: {what}"))
    }

    /// Says what helps, where it is known.
    fn explain(&self, error: io::Error) -> io::Error {
        let cure = match error.kind() {
            io::ErrorKind::NotFound => MISSING,
            io::ErrorKind::ConnectionRefused => REFUSED,
            io::ErrorKind::PermissionDenied => FORBIDDEN,
            io::ErrorKind::AddrInUse => TAKEN,
            _ => return self.error(error.kind(), &error.to_string()),
        };
        self.error(error.kind(), cure)
    }
}

/// A socket that takes connections of this machine in. When it is dropped its path is removed,
/// unless another has taken it meanwhile.
///
/// ```
/// use std::time::Duration;
/// use bowline_runtime::net::{UnixAddr, UnixListener, UnixStream};
/// use bowline_runtime::{Runtime, spawn};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let address = UnixAddr::from(format!("@echo-{}", std::process::id()).as_str());
/// Runtime::builder().build()?.block_on(async {
///     let listener = UnixListener::bind(&address)?;
///     drop(spawn(async move {
///         let stream = listener.accept().await?;
///         while let Some(bytes) = stream.receive().await? {
///             stream.send(&bytes);
///         }
///         Ok::<(), std::io::Error>(())
///     }));
///     let stream = UnixStream::connect(&address, Duration::from_secs(1)).await?;
///     stream.send(b"hello");
///     assert_eq!(&stream.receive().await?.expect("an echo")[..], b"hello");
///     Ok(())
/// })
/// # }
/// ```
pub struct UnixListener {
    listener: Listener,
    address: UnixAddr,
    /// The path's file, as long as it is this listener's.
    file: Option<FileId>,
}

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(path: &Path) -> io::Result<FileId> {
        let metadata = std::fs::symlink_metadata(path)?;
        Ok(FileId { device: metadata.st_dev(), inode: metadata.st_ino() })
    }
}

impl UnixListener {
    /// Listens at an address. A socket that stands at a path and at which nobody listens any more,
    /// as a server that was killed leaves it, is replaced. While somebody else has a lock on the
    /// path's directory, as `flock(1)` takes it, this waits, and the core with it, for 200 ms at
    /// most.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if somebody listens there; `AlreadyExists` if what stands at the path is no
    /// socket; `InvalidInput` if the address is empty or too long. Each says what helps.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    pub fn bind(address: &UnixAddr) -> io::Result<UnixListener> {
        let core = crate::core::current();
        let target = address.to_socket()?;
        let (socket, file) = match address {
            UnixAddr::Name(_) => (listen(&target).map_err(|error| address.explain(error))?, None),
            UnixAddr::Path(path) => {
                let _alone = lock_directory(path);
                let listened = match listen(&target) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                        remove_stale(address, path, &target)?;
                        listen(&target)
                    }
                    result => result,
                };
                let socket = listened.map_err(|error| address.explain(error))?;
                (socket, Some(FileId::of(path)?))
            }
        };
        let listener = Listener::new(&core, socket);
        Ok(UnixListener { listener, address: address.clone(), file })
    }

    /// The address it listens at.
    pub fn local_addr(&self) -> &UnixAddr {
        &self.address
    }

    /// The next connection. Dropping the future loses none.
    ///
    /// # Errors
    ///
    /// As for [`TcpListener::accept`](super::TcpListener::accept).
    pub async fn accept(&self) -> io::Result<UnixStream> {
        Ok(UnixStream(Stream::new(self.listener.accept().await?, None)))
    }
}

fn listen(address: &SockAddr) -> io::Result<OwnedFd> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// How often the lock of a directory is tried for, and what passes between two attempts: 200 ms in
/// all. Those who bind hold it for a moment only; a stranger may hold it for as long as it likes.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Holds off others that look whether the same path is stale, until it is dropped. Where it can't
/// be had, as on some network file systems, or if a stranger has it, two servers that start at the
/// same moment may both believe that the path is theirs.
fn lock_directory(path: &Path) -> Option<File> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = File::open(directory.unwrap_or(Path::new("."))).ok()?;
    for _ in 0..LOCK_ATTEMPTS {
        match directory.try_lock() {
            Ok(()) => return Some(directory),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    None
}

/// Removes the socket that stands in the way, if nobody listens at it.
fn remove_stale(address: &UnixAddr, path: &Path, target: &SockAddr) -> io::Result<()> {
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        let cure = "exists and is no socket: remove it, or choose another path";
        return Err(address.error(io::ErrorKind::AlreadyExists, cure));
    }
    let probe = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // It does not wait: a listener whose queue is full is one all the same.
    probe.set_nonblocking(true)?;
    match probe.connect(target) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|error| address.explain(error))
        }
        _ => Err(address.explain(io::ErrorKind::AddrInUse.into())),
    }
}

impl Drop for UnixListener {
    fn drop(&mut self) {
        if let UnixAddr::Path(path) = &self.address
            && self.file.is_some()
            && FileId::of(path).ok() == self.file
        {
            // If that fails the path stays, and the next to bind it replaces it.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnixListener").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A connection within this machine: a [`Stream`].
#[derive(Clone)]
pub struct UnixStream(Stream);

impl UnixStream {
    /// Connects, within `limit`.
    ///
    /// # Errors
    ///
    /// What the kernel says, and what helps; `TimedOut` if it took too long, as it does while the
    /// listener's queue is full.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    pub async fn connect(address: &UnixAddr, limit: Duration) -> io::Result<UnixStream> {
        let connected = Socket::connect(address.to_socket()?, limit).await;
        let socket = connected.map_err(|error| address.explain(error))?;
        Ok(UnixStream(Stream::new(socket, None)))
    }
}

impl Deref for UnixStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.0
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Stream {
        stream.0
    }
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
