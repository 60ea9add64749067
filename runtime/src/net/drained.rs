//! Waiting until a connection has less to send.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::connection::Connection;

/// Who waits until at most so many bytes are queued.
pub(super) struct Waiting {
    pub(super) limit: usize,
    /// None once woken.
    pub(super) waker: Option<Waker>,
}

/// Waits until at most so many bytes are queued.
pub(super) struct Drained<'a> {
    connection: &'a Connection,
    limit: usize,
    place: Option<usize>,
}

impl<'a> Drained<'a> {
    pub(super) fn new(connection: &'a Connection, limit: usize) -> Drained<'a> {
        Drained { connection, limit, place: None }
    }
}

impl Future for Drained<'_> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.connection.error() {
            return Poll::Ready(Err(error));
        }
        if self.connection.queued() <= self.limit {
            return Poll::Ready(Ok(()));
        }
        // Cloned before anything is borrowed: a foreign waker may do anything meanwhile.
        let waker = Some(context.waker().clone());
        let mut waiting = self.connection.sending.waiting.borrow_mut();
        let replaced = match self.place {
            Some(place) => std::mem::replace(&mut waiting[place].waker, waker),
            None => {
                let place = waiting.insert(Waiting { limit: self.limit, waker });
                drop(waiting);
                self.place = Some(place);
                return Poll::Pending;
            }
        };
        drop(waiting);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Drained<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let left = self.connection.sending.waiting.borrow_mut().remove(place);
            drop(left);
        }
    }
}
