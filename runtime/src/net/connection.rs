//! A connection: what was received and not yet read, and what was written and not yet sent.
//!
//! **Receiving.** One request stays armed and completes once for each filled buffer. When the
//! reader lags so far that the connection would take too many of the buffers that all share, it is
//! cancelled, and armed again when the reader has caught up. When no buffer is free the kernel ends
//! it, and the connection is parked until one is; for that, what other readers have not come to is
//! copied out of its buffers, so that a reader that never comes starves nobody.
//!
//! ```text
//!            receive()                    no buffer
//!     Idle ------------> Armed ---------------------------> Parked
//!      ^  last completion |  ^         buffers are free        |
//!      |<-----------------+  +---------------------------------+
//!      |                  | reader lags, or closing
//!      +---- Stopping <---+
//! ```
//!
//! **Sending.** There are two buffers: one that fills, and one that the kernel sends from, at most
//! one request at a time. At a flush, if no request is in flight, they change places. What was
//! written in a turn leaves together at its end; but who has [`FULL_SEND`] does not wait for that.
//!
//! **Closing.** When the last handle is gone, what is queued is sent, and then that there is no more;
//! what still comes in is thrown away until the peer ends too. For if a socket is closed with input
//! that nobody read, the kernel resets the connection, and what the peer has not got yet is lost.
//! After that, or when the time for it is up, requests in flight are cancelled. The connection stays in the core's table, and its descriptor open,
//! until the last completion of each: so the kernel never sends from memory that was freed, and a
//! completion never meets a stranger in the table.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::Shutdown;
use super::lease::{Chunk, Lease};
use super::outgoing::Outgoing;
use super::socket::Socket;
use crate::core::Core;
use crate::driver::provided::GROUP;
use crate::driver::{Completion, Kind, Request, Token};
use crate::notify::{set_waker, wake};

/// So many bytes that are queued leave before the turn ends, so that the peer works on them while
/// this core goes on. With less, a request of the kernel's costs more than it gains; with one at the
/// end of the turn only, two cores that have many calls between them take turns. (64 B calls, 128 of
/// them on one connection: 0.62 M/s without, 0.98-1.08 M/s with 4 KiB, 1.0-1.1 M/s with 8 KiB,
/// 0.75 M/s with 2 KiB.)
const FULL_SEND: usize = 8 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receiving {
    /// No request.
    Idle,
    /// A request is in flight.
    Armed,
    /// A request is in flight, and being cancelled.
    Stopping,
    /// No request, as there was no buffer.
    Parked,
}

pub(crate) struct Connection {
    socket: Socket,
    index: u32,
    handles: Cell<u32>,
    receiving: Cell<Receiving>,
    inbox: RefCell<VecDeque<Chunk>>,
    reader: RefCell<Option<Waker>>,
    /// The peer has said all.
    ended: Cell<bool>,
    /// What comes in is thrown away.
    deaf: Cell<bool>,
    filling: RefCell<Vec<u8>>,
    sending: RefCell<Outgoing>,
    /// It is in the core's list of dirty connections.
    dirty: Cell<bool>,
    /// The number of the error that ended it, or 0.
    failure: Cell<i32>,
    closing: Cell<bool>,
}

impl Connection {
    /// Takes a connected socket over. The caller holds the first handle.
    pub(super) fn new(socket: Socket) -> Rc<Connection> {
        let core = socket.core().clone();
        let mut connections = core.connections.borrow_mut();
        let entry = connections.vacant_entry();
        let connection = Rc::new(Connection {
            socket,
            index: entry.key() as u32,
            handles: Cell::new(1),
            receiving: Cell::new(Receiving::Idle),
            inbox: RefCell::default(),
            reader: RefCell::default(),
            ended: Cell::new(false),
            deaf: Cell::new(false),
            filling: RefCell::default(),
            sending: RefCell::default(),
            dirty: Cell::new(false),
            failure: Cell::new(0),
            closing: Cell::new(false),
        });
        entry.insert(connection.clone());
        connection
    }

    pub(super) fn core(&self) -> &Rc<Core> {
        self.socket.core()
    }

    pub(super) fn fd(&self) -> RawFd {
        self.socket.fd()
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        self.socket.descriptor()
    }

    fn token(&self, kind: Kind) -> Token {
        Token { kind, index: self.index }
    }

    // Receiving.

    /// How many filled buffers a connection may keep before it is paused.
    fn share(&self) -> usize {
        (usize::from(self.core().buffers.count()) / 4).max(1)
    }

    pub(super) fn poll_receive(&self, context: &Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        if let Some(lease) = self.take_lease() {
            return Poll::Ready(Ok(Some(lease)));
        }
        if let Some(error) = self.error() {
            return Poll::Ready(Err(error));
        }
        if self.ended.get() {
            return Poll::Ready(Ok(None));
        }
        if self.receiving.get() == Receiving::Idle {
            self.arm();
        }
        set_waker(&self.reader, context);
        Poll::Pending
    }

    pub(super) fn take_lease(&self) -> Option<Lease> {
        let (chunk, left) = {
            let mut inbox = self.inbox.borrow_mut();
            (inbox.pop_front()?, inbox.len())
        };
        if self.receiving.get() == Receiving::Idle && left <= self.share() / 2 {
            self.arm();
        }
        Some(Lease(chunk))
    }

    fn arm(&self) {
        if self.ended.get() || self.closing.get() || self.failure.get() != 0 {
            return;
        }
        self.receiving.set(Receiving::Armed);
        self.core().rearmed.set(true);
        let request = Request::ReceiveMany { fd: self.fd(), group: GROUP };
        // SAFETY: the request points to nothing: the kernel receives into the buffers of the group.
        unsafe { self.core().driver.borrow_mut().push(request, self.token(Kind::Receive)) };
    }

    /// Cancels the receive, if there is one. Its last completion is still to come.
    fn stop(&self) {
        if self.receiving.get() == Receiving::Armed {
            self.receiving.set(Receiving::Stopping);
            self.core().rearmed.set(true);
            self.cancel(Kind::Receive);
        }
    }

    fn cancel(&self, kind: Kind) {
        let request = Request::Cancel { token: self.token(kind) };
        // SAFETY: the request points to nothing.
        unsafe { self.core().driver.borrow_mut().push(request, Token::NOBODY) };
    }

    /// Receives again, after no buffer was free. False if nobody wants it to.
    pub(crate) fn unpark(&self) -> bool {
        if self.receiving.get() != Receiving::Parked {
            return false;
        }
        self.receiving.set(Receiving::Idle);
        self.arm();
        self.receiving.get() == Receiving::Armed
    }

    /// Takes note of a completion of the receive.
    pub(crate) fn received(self: &Rc<Self>, completion: Completion) {
        if let Some(buffer) = completion.buffer {
            self.take_in(buffer, completion.result);
        }
        let was = self.receiving.get();
        if !completion.more {
            self.receiving.set(Receiving::Idle);
        }
        match completion.result {
            1.. => {}
            0 => self.ended.set(true),
            error => self.receive_failed(-error, was),
        }
        let lags = self.inbox.borrow().len() >= self.share();
        match self.receiving.get() {
            Receiving::Armed if lags => {
                self.core().counters.pauses.add(1);
                self.stop();
            }
            Receiving::Idle if !lags => self.arm(),
            _ => {}
        }
        if self.closing.get() {
            self.finish();
        } else if completion.result != -libc::ENOBUFS {
            self.wake_reader();
        }
    }

    fn take_in(&self, buffer: u16, result: i32) {
        self.core().buffers.taken();
        match u32::try_from(result) {
            Ok(length @ 1..) if !self.closing.get() && !self.deaf.get() => {
                self.core().counters.bytes_received.add(u64::from(length));
                let chunk = Chunk::new(self.core().clone(), buffer, length);
                self.inbox.borrow_mut().push_back(chunk);
            }
            _ => self.core().buffers.give(buffer),
        }
    }

    fn receive_failed(self: &Rc<Self>, error: i32, was: Receiving) {
        match error {
            libc::ENOBUFS if !self.closing.get() => {
                self.receiving.set(Receiving::Parked);
                self.core().counters.parks.add(1);
                self.core().parked.borrow_mut().push_back(self.clone());
            }
            // Not an end: the request can be made again.
            libc::ENOBUFS | libc::EINTR | libc::EAGAIN => {}
            libc::ECANCELED if was == Receiving::Stopping => {}
            error => self.fail(error),
        }
    }

    fn wake_reader(&self) {
        let waker = self.reader.borrow_mut().take();
        if let Some(waker) = waker {
            wake(waker);
        }
    }

    // Sending.

    /// Has `write` append to what will be sent at the next flush.
    pub(super) fn send_with<T>(self: &Rc<Self>, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut writing = Writing::new(self);
        let result = write(&mut writing.bytes);
        writing.kept = writing.bytes.len();
        result
    }

    fn mark_dirty(self: &Rc<Self>) {
        // Once it is closing nothing leaves; and a core that has ended flushes nobody.
        if !self.closing.get() && !self.dirty.replace(true) {
            self.core().dirty.borrow_mut().push(self.clone());
        }
    }

    /// Bytes that the kernel has not taken yet.
    pub(super) fn queued(&self) -> usize {
        self.filling.borrow().len() + self.sending.borrow().queued()
    }

    pub(super) fn poll_drained(&self, limit: usize, context: &Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.error() {
            return Poll::Ready(Err(error));
        }
        if self.queued() <= limit {
            return Poll::Ready(Ok(()));
        }
        let waits = |(at, waker): &(usize, Waker)| *at == limit && waker.will_wake(context.waker());
        if !self.sending.borrow().waiting.iter().any(waits) {
            let waker = context.waker().clone();
            self.sending.borrow_mut().waiting.push((limit, waker));
        }
        Poll::Pending
    }

    /// Makes a request to send what there is, unless one is in flight.
    pub(crate) fn flush(&self) {
        self.dirty.set(false);
        let mut sending = self.sending.borrow_mut();
        if sending.is_in_flight() || self.failure.get() != 0 || self.closing.get() {
            return;
        }
        let Some((data, length)) = sending.next(&mut self.filling.borrow_mut()) else {
            if sending.shut {
                self.shut_down(libc::SHUT_WR);
            }
            return;
        };
        let request = Request::Send { fd: self.fd(), data, length };
        self.core().counters.sends.add(1);
        // SAFETY: what is sent is neither touched nor dropped while it is in flight, which the last
        // completion ends: the core's table holds the connection until then. If the core ends
        // before, it leaks itself with the table.
        unsafe { self.core().driver.borrow_mut().push(request, self.token(Kind::Send)) };
    }

    /// Takes note of the completion of a send.
    pub(crate) fn sent(self: &Rc<Self>, result: i32) {
        {
            let taken = usize::try_from(result).unwrap_or(0);
            self.core().counters.bytes_sent.add(taken as u64);
            let mut sending = self.sending.borrow_mut();
            sending.completed(taken);
            if self.failure.get() != 0 {
                sending.forget();
            }
        }
        match -result {
            ..=0 | libc::EINTR | libc::EAGAIN => {}
            libc::ECANCELED if self.closing.get() => {}
            error => self.fail(error),
        }
        if self.closing.get() {
            self.finish();
            return;
        }
        if self.queued() > 0 || self.sending.borrow().shut {
            self.mark_dirty();
        }
        self.wake_drained();
    }

    /// Wakes those who wait for what is queued to become as little as it is.
    fn wake_drained(&self) {
        let queued = self.queued();
        let failed = self.failure.get() != 0;
        loop {
            let waker = {
                let waiting = &mut self.sending.borrow_mut().waiting;
                let ready = waiting.iter().position(|(limit, _)| failed || queued <= *limit);
                ready.map(|ready| waiting.swap_remove(ready).1)
            };
            let Some(waker) = waker else { return };
            wake(waker);
        }
    }

    // Ending.

    pub(super) fn error(&self) -> Option<io::Error> {
        match self.failure.get() {
            0 => None,
            number => Some(io::Error::from_raw_os_error(number)),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.get() || self.failure.get() != 0
    }

    /// Notes an error that ends the connection, and tells all who wait.
    fn fail(self: &Rc<Self>, error: i32) {
        if self.failure.get() != 0 {
            return;
        }
        self.failure.set(error);
        // Both directions end: whatever is in flight completes soon.
        self.shut_down(libc::SHUT_RDWR);
        *self.filling.borrow_mut() = Vec::new();
        self.sending.borrow_mut().forget();
        self.wake_reader();
        self.wake_drained();
    }

    fn shut_down(&self, how: i32) {
        self.core().driver.borrow_mut().shutdown(self.fd(), how);
    }

    pub(super) fn shutdown(self: &Rc<Self>, how: Shutdown) {
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            self.shut_down(libc::SHUT_RD);
            if self.receiving.get() == Receiving::Parked {
                // There is no request that would end by it.
                self.ended.set(true);
                self.wake_reader();
            }
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.sending.borrow_mut().shut = true;
            self.mark_dirty();
        }
    }

    pub(super) fn abort(self: &Rc<Self>) {
        self.fail(libc::ECONNABORTED);
    }

    pub(super) fn add_handle(&self) {
        self.handles.set(self.handles.get() + 1);
    }

    /// Gives a handle up. True if it was the last, and there is still something to send, or the
    /// peer has not said all: somebody has then to see to it, with a handle of their own.
    pub(super) fn drop_handle(self: &Rc<Self>) -> bool {
        self.handles.set(self.handles.get() - 1);
        if self.handles.get() > 0 || self.closing.get() {
            return false;
        }
        let unfinished = self.failure.get() == 0 && (self.queued() > 0 || !self.ended.get());
        if unfinished && !self.deaf.replace(true) && !self.core().tasks.is_closed() {
            self.empty_inbox();
            return true;
        }
        self.close();
        false
    }

    /// Closes it as soon as the kernel has let go of it.
    pub(crate) fn close(self: &Rc<Self>) {
        if self.closing.replace(true) {
            return;
        }
        if self.failure.get() == 0 {
            self.failure.set(libc::ECANCELED);
        }
        self.empty_inbox();
        if self.receiving.get() == Receiving::Parked {
            self.receiving.set(Receiving::Idle);
            self.core().parked.borrow_mut().retain(|parked| !Rc::ptr_eq(parked, self));
        }
        self.stop();
        if self.sending.borrow().is_in_flight() {
            self.cancel(Kind::Send);
        }
        self.finish();
    }

    fn empty_inbox(&self) {
        self.inbox.borrow_mut().clear();
    }

    /// Gives the buffers back that its reader has not come to, and keeps copies.
    pub(crate) fn relieve(&self) {
        self.inbox.borrow_mut().iter_mut().for_each(Chunk::copy);
    }

    /// Leaves the core's table, if closing and nothing is in flight. The descriptor is closed when
    /// the last reference goes.
    fn finish(self: &Rc<Self>) {
        let receiving = matches!(self.receiving.get(), Receiving::Armed | Receiving::Stopping);
        if receiving || self.sending.borrow().is_in_flight() {
            return;
        }
        let mut connections = self.core().connections.borrow_mut();
        let index = self.index as usize;
        if connections.get(index).is_some_and(|held| Rc::ptr_eq(held, self)) {
            let held = connections.remove(index);
            drop(connections);
            drop(held);
        }
    }
}

/// A connection's outgoing buffer, taken out of it while user code appends, which may come back.
struct Writing<'a> {
    connection: &'a Rc<Connection>,
    bytes: Vec<u8>,
    /// How much was there before.
    before: usize,
    /// So much of it is to be sent: if user code panics, all but what it appended.
    kept: usize,
}

impl<'a> Writing<'a> {
    fn new(connection: &'a Rc<Connection>) -> Self {
        let bytes = std::mem::take(&mut *connection.filling.borrow_mut());
        Writing { connection, before: bytes.len(), kept: bytes.len(), bytes }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let connection = self.connection;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(self.kept);
        if connection.failure.get() != 0 {
            bytes = Vec::new();
        } else if connection.sending.borrow().shut {
            // What was queued before the shutdown still leaves.
            bytes.truncate(self.before);
        }
        let dirty = !bytes.is_empty();
        let full = bytes.len() >= FULL_SEND;
        let mut place = connection.filling.borrow_mut();
        if place.is_empty() {
            *place = bytes;
        } else {
            // Somebody sent while this was being written, and was done first. What stood here
            // before either goes before both.
            bytes.extend_from_slice(&place);
            *place = bytes;
        }
        drop(place);
        if dirty {
            connection.mark_dirty();
        }
        if full && !connection.sending.borrow().is_in_flight() {
            connection.core().full_send.set(true);
        }
    }
}
