use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::{fmt, io};

use bowline_time::Duration;
use socket2::{Domain, Protocol, SockAddr, SockRef, Type};

use super::connection::Connection;
use super::socket::Socket;
use super::{Lease, Shutdown};
use crate::core;
use crate::driver::Request;
use crate::operation::{Kept, Operation};
use crate::{spawn, timeout};

/// A TCP connection. Clones are handles of the same one, cheap to make.
///
/// When the last is dropped, what was queued is still sent, then the peer is told that there is no
/// more, and what it sends meanwhile is thrown away until it ends too; then the connection is
/// closed. All that has [a while](crate::Builder::linger). After that, and at once if the runtime
/// ends or the last handle is dropped while it does not run, the connection is closed as it is: what
/// the peer has not got then may be lost. [`TcpStream::abort`] waits for nothing.
///
/// One task at a time receives; any may send.
pub struct TcpStream {
    connection: Rc<Connection>,
}

impl TcpStream {
    pub(super) fn new(socket: Socket) -> TcpStream {
        // Small messages are not to wait for the acknowledgement of others. If the peer is gone
        // already this fails; the first receive tells.
        let _ = SockRef::from(socket.descriptor()).set_tcp_nodelay(true);
        TcpStream { connection: Connection::new(socket) }
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
        let core = core::current();
        let socket =
            socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        let socket = Rc::new(Socket::new(&core, socket.into()));
        let address = Box::new(SockAddr::from(address));
        let request = Request::Connect {
            fd: socket.fd(),
            address: address.as_ptr().cast(),
            length: address.len(),
        };
        let kept =
            Kept { descriptor: Some(socket.clone()), memory: Some(address), ..Kept::default() };
        // SAFETY: the address is boxed and kept, as is the descriptor.
        let connecting = unsafe { Operation::submit(&core, request, kept) };
        let (result, kept) = timeout(limit, connecting).await?;
        drop(kept);
        result?;
        let socket =
            Rc::into_inner(socket).expect("the operation is done, and was the only other owner");
        Ok(TcpStream::new(socket))
    }

    /// The next bytes that arrive, as they come; None when the peer has said all.
    ///
    /// Dropping the future loses nothing: what arrives meanwhile is there for the next call.
    ///
    /// # Errors
    ///
    /// What ended the connection, be it while receiving or while sending. What arrived before is
    /// given first.
    pub async fn receive(&self) -> io::Result<Option<Lease>> {
        poll_fn(|context| self.poll_receive(context)).await
    }

    /// As [`TcpStream::receive`], for futures written by hand. One waker is kept, the latest.
    ///
    /// # Errors
    ///
    /// As [`TcpStream::receive`].
    pub fn poll_receive(&self, context: &Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        self.connection.poll_receive(context)
    }

    /// The next bytes that have arrived already, if any. For a reader that takes all there are
    /// before it waits with [`TcpStream::receive`], which also tells of the end and of errors.
    pub fn try_receive(&self) -> Option<Lease> {
        self.connection.take_lease()
    }

    /// Queues bytes. They leave at the next flush of this turn, with all else that is queued.
    ///
    /// It always succeeds: a connection that has failed forgets them, and tells of its failure in
    /// [`TcpStream::receive`], [`TcpStream::drained`] and [`TcpStream::error`]. There is no limit
    /// but memory; who sends much watches [`TcpStream::queued`] or awaits [`TcpStream::drained`].
    pub fn send(&self, bytes: &[u8]) {
        self.connection.send_with(|out| out.extend_from_slice(bytes));
    }

    /// Lets `write` append to the outgoing buffer, as an encoder does. What is in it already must
    /// stay. See [`TcpStream::send`].
    pub fn send_with<T>(&self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.connection.send_with(write)
    }

    /// How many bytes are queued that the kernel has not taken.
    pub fn queued(&self) -> usize {
        self.connection.queued()
    }

    /// Waits until at most `limit` bytes are queued.
    ///
    /// # Errors
    ///
    /// What ended the connection.
    pub async fn drained(&self, limit: usize) -> io::Result<()> {
        poll_fn(|context| self.connection.poll_drained(limit, context)).await
    }

    /// What ended the connection, if an error did.
    pub fn error(&self) -> Option<io::Error> {
        self.connection.error()
    }

    /// Whether the peer has said all, or an error ended it. There may be something to receive yet.
    pub fn is_ended(&self) -> bool {
        self.connection.has_ended()
    }

    /// Says that no more will be sent, once what is queued is, or that no more is wanted.
    pub fn shutdown(&self, how: Shutdown) {
        self.connection.shutdown(how);
    }

    /// Ends the connection at once, for all handles, with the error `ConnectionAborted`. What is
    /// queued is not sent.
    pub fn abort(&self) {
        self.connection.abort();
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// If the connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let address = SockRef::from(self.connection.descriptor()).peer_addr()?;
        address.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// This side's address.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = SockRef::from(self.connection.descriptor()).local_addr()?;
        address.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Whether small messages leave without waiting. It is on from the start.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        SockRef::from(self.connection.descriptor()).set_tcp_nodelay(nodelay)
    }
}

impl Clone for TcpStream {
    fn clone(&self) -> TcpStream {
        self.connection.add_handle();
        TcpStream { connection: self.connection.clone() }
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        if self.connection.drop_handle() {
            see_off(self.clone());
        }
    }
}

/// Sends what is left and waits for the peer's end, if it doesn't take too long, and then drops the
/// last handle.
fn see_off(stream: TcpStream) {
    let core = stream.connection.core().clone();
    let linger = core.settings.linger;
    if crate::core::try_with(|current| current.is_some_and(|current| current.id == core.id)) {
        drop(spawn(async move {
            // Whatever comes of it, there is no more to do: an error has ended it, as does the time.
            let _ = timeout(linger, finish(&stream)).await;
        }));
    }
}

async fn finish(stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write);
    stream.drained(0).await?;
    while stream.receive().await?.is_some() {}
    Ok(())
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream").field("fd", &self.connection.fd()).finish_non_exhaustive()
    }
}
