//! Connections over TCP, and how they are listened for.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::{fmt, io};

use bowline_time::Duration;
use socket2::{Domain, Protocol, SockAddr, SockRef, TcpKeepalive, Type};

use super::listener::{BACKLOG, Listener};
use super::socket::Socket;
use super::stream::Stream;

/// How to listen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Several sockets, one a core, listen on the address, and the kernel deals connections out
    /// among them. Default: no.
    pub reuse_port: bool,
    /// The address may be bound while connections of an earlier listener linger. Default: yes.
    pub reuse_address: bool,
    /// How many connections the kernel keeps until they are accepted. Default: 4096, or what
    /// `net.core.somaxconn` allows.
    pub backlog: i32,
    /// A v6 address takes v6 connections only, and not v4 ones in disguise. Default: no.
    pub only_v6: bool,
    /// Whether accepted connections are probed while they are idle. Default: not.
    pub keepalive: Option<Keepalive>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions {
            reuse_port: false,
            reuse_address: true,
            backlog: BACKLOG,
            only_v6: false,
            keepalive: None,
        }
    }
}

impl ListenOptions {
    /// Sets [`ListenOptions::reuse_port`].
    #[must_use]
    pub fn reuse_port(mut self, reuse_port: bool) -> Self {
        self.reuse_port = reuse_port;
        self
    }

    /// Sets [`ListenOptions::keepalive`].
    #[must_use]
    pub fn keepalive(mut self, keepalive: Option<Keepalive>) -> Self {
        self.keepalive = keepalive;
        self
    }
}

/// When the kernel probes an idle connection, so that a peer which lost power, or the way to it, is
/// not waited for for ever. The connection then fails with `TimedOut`. Times are in whole seconds,
/// rounded down, and at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// How long nothing has come before the first probe.
    pub idle: Duration,
    /// How long after a probe the next one follows.
    pub interval: Duration,
    /// After so many probes without an answer the connection fails.
    pub probes: u32,
}

impl Default for Keepalive {
    /// Ten seconds, then three probes of five seconds each: a peer is given up after 25 s. (The
    /// kernel's own defaults wait for more than two hours.)
    fn default() -> Self {
        Keepalive { idle: Duration::from_secs(10), interval: Duration::from_secs(5), probes: 3 }
    }
}

impl Keepalive {
    fn set(keepalive: Option<Keepalive>, socket: SockRef<'_>) -> io::Result<()> {
        let Some(Keepalive { idle, interval, probes }) = keepalive else {
            return socket.set_keepalive(false);
        };
        let second = Duration::from_secs(1);
        let times = TcpKeepalive::new()
            .with_time(idle.max(second))
            .with_interval(interval.max(second))
            .with_retries(probes.max(1));
        socket.set_tcp_keepalive(&times)
    }
}

/// A socket that takes TCP connections in.
pub struct TcpListener {
    listener: Listener,
}

impl TcpListener {
    /// Listens at an address. Port 0 lets the kernel choose one.
    ///
    /// # Errors
    ///
    /// What the kernel says, such as `AddrInUse`.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    pub fn bind(address: SocketAddr, options: ListenOptions) -> io::Result<TcpListener> {
        let core = crate::core::current();
        let socket =
            socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(options.reuse_address)?;
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        if address.is_ipv6() {
            socket.set_only_v6(options.only_v6)?;
        }
        // Accepted sockets inherit it.
        Keepalive::set(options.keepalive, SockRef::from(&socket))?;
        socket.bind(&address.into())?;
        socket.listen(options.backlog)?;
        Ok(TcpListener { listener: Listener::new(&core, socket.into()) })
    }

    /// The address it listens at.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        as_ip(SockRef::from(self.listener.socket().descriptor()).local_addr()?)
    }

    /// The next connection. Dropping the future loses none.
    ///
    /// # Errors
    ///
    /// What the kernel says, such as that the process has too many descriptors. The listener goes
    /// on; the caller may want to wait a little before it does.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        Ok(TcpStream::new(self.listener.accept().await?))
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fd = self.listener.socket().fd();
        f.debug_struct("TcpListener").field("fd", &fd).finish_non_exhaustive()
    }
}

/// How far what was written to a [`TcpStream`] has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// Bytes that the peer's kernel has acknowledged, in all. The way in which they are counted begins
    /// with 0 or 1.
    pub acknowledged: u64,
    /// Bytes that were written, and have not been acknowledged; more by what the kernel has taken of a
    /// send that is not done.
    pub outstanding: u64,
}

/// A TCP connection: a [`Stream`], and what only TCP has.
#[derive(Clone)]
pub struct TcpStream(Stream);

impl TcpStream {
    fn new(socket: Socket) -> TcpStream {
        // Small messages are not to wait for the acknowledgement of others. If the peer is gone
        // already this fails; the first receive tells.
        let _ = SockRef::from(socket.descriptor()).set_tcp_nodelay(true);
        let zero_copy = socket.core().settings.zero_copy;
        TcpStream(Stream::new(socket, zero_copy))
    }

    /// Connects, within `limit`.
    ///
    /// # Errors
    ///
    /// What the kernel says, or `TimedOut` if it took too long.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    pub async fn connect(address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
        Ok(TcpStream::new(Socket::connect(address.into(), limit).await?))
    }

    fn socket(&self) -> SockRef<'_> {
        SockRef::from(self.0.descriptor())
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// If the connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        as_ip(self.socket().peer_addr()?)
    }

    /// This side's address.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        as_ip(self.socket().local_addr()?)
    }

    /// How far what was written has come. It takes two system calls.
    ///
    /// # Errors
    ///
    /// If the connection is gone.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use bowline_runtime::net::{ListenOptions, TcpListener, TcpStream};
    /// # use bowline_runtime::Runtime;
    /// # Runtime::builder().build()?.block_on(async {
    /// # let any = "127.0.0.1:0".parse().unwrap();
    /// # let listener = TcpListener::bind(any, ListenOptions::default()).unwrap();
    /// # let address = listener.local_addr().unwrap();
    /// # let stream = TcpStream::connect(address, Duration::from_secs(1)).await.unwrap();
    /// let before = stream.delivery().unwrap();
    /// stream.send(b"hello");
    /// assert_eq!(stream.delivery().unwrap().outstanding, 5);
    /// # let peer = listener.accept().await.unwrap();
    /// peer.receive().await.unwrap().expect("hello");
    /// // What it has received its kernel has acknowledged, or is about to.
    /// while stream.delivery().unwrap().acknowledged < before.acknowledged + 5 {
    ///     bowline_runtime::yield_now().await;
    /// }
    /// # });
    /// # Ok::<(), bowline_runtime::Error>(())
    /// ```
    pub fn delivery(&self) -> io::Result<Delivery> {
        let fd = self.0.descriptor().as_raw_fd();
        let mut unacknowledged: libc::c_int = 0;
        // SAFETY: the descriptor is open for as long as this handle is, and the kernel writes an int.
        check(unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut unacknowledged) })?;
        let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: as above; the kernel writes `length` bytes at most, which is what there is.
        check(unsafe {
            libc::getsockopt(
                fd,
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        })?;
        // SAFETY: it is made of integers, of which zero is one; what the kernel did not write is zero.
        let info = unsafe { info.assume_init() };
        let outstanding = self.queued() as u64 + u64::try_from(unacknowledged).unwrap_or_default();
        Ok(Delivery { acknowledged: info.tcpi_bytes_acked, outstanding })
    }

    /// Whether small messages leave without waiting. It is on from the start.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket().set_tcp_nodelay(nodelay)
    }

    /// How many bytes the kernel takes that it has not sent yet, beside those that it sent and that are
    /// not acknowledged; from the start it is some megabytes. All that it has taken lies before what is
    /// sent next, be that small and urgent, and can't be taken back.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn set_unsent_limit(&self, bytes: u32) -> io::Result<()> {
        self.socket().set_tcp_notsent_lowat(bytes)
    }

    /// Has the kernel probe the connection while it is idle, or not. It is off from the start, but
    /// for what [`ListenOptions::keepalive`] says.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn set_keepalive(&self, keepalive: Option<Keepalive>) -> io::Result<()> {
        Keepalive::set(keepalive, self.socket())
    }

    /// After how long without an acknowledgement of what was sent the connection fails, with
    /// `TimedOut`. None leaves it to the kernel, whose retries take about a quarter of an hour. In
    /// milliseconds, rounded down.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn set_user_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.socket().set_tcp_user_timeout(limit)
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn as_ip(address: SockAddr) -> io::Result<SocketAddr> {
    address.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
}

impl Deref for TcpStream {
    type Target = Stream;

    fn deref(&self) -> &Stream {
        &self.0
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        stream.0
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
