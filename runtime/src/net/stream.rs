//! A connection as its users see it, of whatever family.

use std::future::poll_fn;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::{fmt, io};

use super::connection::Connection;
use super::drained::Drained;
use super::piece::Piece;
use super::socket::Socket;
use super::{Lease, Shutdown};
use crate::{spawn, timeout};

/// A connection: what [`TcpStream`](super::TcpStream) and [`UnixStream`](super::UnixStream) have in
/// common, and what they are made into where the difference does not matter. Clones are handles of
/// the same one, cheap to make.
///
/// When the last is dropped, what was queued is still sent, then the peer is told that there is no
/// more, and what it sends meanwhile is thrown away until it ends too; then the connection is
/// closed. All that has [a while](crate::Builder::linger). After that, and at once if the runtime
/// ends or the last handle is dropped while it does not run, the connection is closed as it is: what
/// the peer has not got then may be lost. [`Stream::abort`] waits for nothing.
///
/// One task at a time receives; any may send.
pub struct Stream {
    connection: Rc<Connection>,
}

impl Stream {
    pub(super) fn new(socket: Socket, zero_copy: Option<usize>) -> Stream {
        Stream { connection: Connection::new(socket, zero_copy) }
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        self.connection.descriptor()
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

    /// As [`Stream::receive`], for futures written by hand. One waker is kept, the latest.
    ///
    /// # Errors
    ///
    /// As [`Stream::receive`].
    pub fn poll_receive(&self, context: &Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        self.connection.poll_receive(context)
    }

    /// The next bytes that have arrived already, if any. For a reader that takes all there are
    /// before it waits with [`Stream::receive`], which also tells of the end and of errors.
    pub fn try_receive(&self) -> Option<Lease> {
        self.connection.take_lease()
    }

    /// Queues bytes. They leave with all else that is queued: before the turn ends, or, once 8 KiB
    /// are queued, when the task that is running has been polled.
    ///
    /// It always succeeds: a connection that has failed forgets them, and tells of its failure in
    /// [`Stream::receive`], [`Stream::drained`] and [`Stream::error`]. There is no limit
    /// but memory; who sends much watches [`Stream::queued`] or awaits [`Stream::drained`].
    pub fn send(&self, bytes: &[u8]) {
        self.connection.send(bytes);
    }

    /// Lets `write` append to the outgoing buffer, as an encoder does. What is in it already must
    /// stay. See [`Stream::send`].
    pub fn send_with<T>(&self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.connection.send_with(write)
    }

    /// Queues bytes as [`Stream::send`] does, after what was queued before, without copying them:
    /// the connection keeps them until the kernel has taken them. For what is large; what is shorter
    /// than 2 KiB is copied all the same, as that costs less.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use bowline_runtime::net::{ListenOptions, TcpListener, TcpStream};
    /// # use bowline_runtime::{Runtime, buffer};
    /// # Runtime::builder().build()?.block_on(async {
    /// # let any = "127.0.0.1:0".parse().unwrap();
    /// # let listener = TcpListener::bind(any, ListenOptions::default()).unwrap();
    /// # let address = listener.local_addr().unwrap();
    /// # let stream = TcpStream::connect(address, Duration::from_secs(1)).await.unwrap();
    /// let mut block = buffer::take(64 << 10);
    /// block.fill(7);
    /// stream.send(b"the block:");
    /// stream.send_piece(block);
    /// assert_eq!(stream.queued(), 10 + (64 << 10));
    /// # });
    /// # Ok::<(), bowline_runtime::Error>(())
    /// ```
    pub fn send_piece(&self, piece: impl Into<Piece>) {
        self.connection.send_piece(piece.into());
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
        Drained::new(&self.connection, limit).await
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
}

/// For socket options that have no method here. To read from it, write to it or shut it down would
/// confuse the connection.
impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.descriptor().as_fd()
    }
}

impl Clone for Stream {
    fn clone(&self) -> Stream {
        self.connection.add_handle();
        Stream { connection: self.connection.clone() }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.connection.drop_handle() {
            see_off(self.clone());
        }
    }
}

/// Sends what is left and waits for the peer's end, if it doesn't take too long, and then drops the
/// last handle.
fn see_off(stream: Stream) {
    let core = stream.connection.core().clone();
    let linger = core.settings.linger;
    if crate::core::try_with(|current| current.is_some_and(|current| current.id == core.id)) {
        drop(spawn(async move {
            // Whatever comes of it, there is no more to do: an error has ended it, as does the time.
            let _ = timeout(linger, finish(&stream)).await;
        }));
    }
}

async fn finish(stream: &Stream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write);
    stream.drained(0).await?;
    while stream.receive().await?.is_some() {}
    Ok(())
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("fd", &self.connection.fd()).finish_non_exhaustive()
    }
}
