//! The sending side of a connection.
//!
//! There are two batches: one that fills, and one that the kernel sends from, by at most one
//! request at a time. At a flush, if no request is in flight and all of the second is sent, they
//! change places: so messages that are written in a turn travel together, at its end. But who has
//! [`FULL_SEND`] does not wait for that.
//!
//! ```text
//!              send()                flush, at a turn's end
//!     Empty ----------> Filled -------------------------------> In flight
//!       ^                 ^                                       |   ^
//!       |                 |   completion, and there is more       |   | flush
//!       |                 +---------------------------------------+---+
//!       |    completion, and all is sent                          |
//!       +---------------------------------------------------------+
//!                then, if asked to: shutdown(SHUT_WR)
//! ```
//!
//! A batch of small messages that nobody waits for is sent [at once](crate::driver::at_once); if
//! there is no room for all of it, what is left is sent by a request that waits for some.
//!
//! Memory that the kernel sends from is neither touched nor freed while a request is in flight. A
//! request that does not copy is in flight until the peer has acknowledged the bytes, which the
//! kernel tells with a second completion; so a connection that closes before forgets them. That it
//! then counts as the one request that there is bounds what a connection keeps locked. One request
//! sends a megabyte at most: so those who wait for what is queued to become less see it become less.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use slab::Slab;

use super::batch::Batch;
use super::connection::Connection;
use super::drained::Waiting;
use super::outgoing::Outgoing;
use super::piece::Piece;
use crate::driver::{Completion, Kind};
use crate::notify::{let_go, wake};

/// So many bytes that are queued leave before the turn ends, so that the peer works on them while
/// this core goes on. With less, a request of the kernel's costs more than it gains; with one at the
/// end of the turn only, two cores that have many calls between them take turns. (64 B calls, 128 of
/// them on one connection: 0.62 M/s without, 0.98-1.08 M/s with 4 KiB, 1.0-1.1 M/s with 8 KiB,
/// 0.75 M/s with 2 KiB.)
const FULL_SEND: usize = 8 << 10;
/// A piece that is shorter is copied: that costs less than a part of its own.
const SHORTEST_PIECE: usize = 2 << 10;

#[derive(Default)]
pub(super) struct Sending {
    filling: RefCell<Batch>,
    out: RefCell<Outgoing>,
    in_flight: Cell<bool>,
    /// From how many bytes on a request does not copy.
    zero_copy: Cell<Option<usize>>,
    /// The request in flight does not copy.
    lent: Cell<bool>,
    /// The next request copies, whatever its length.
    copy_once: Cell<bool>,
    /// The result of the request in flight, if it came but the kernel still needs the memory.
    told: Cell<Option<i32>>,
    /// To be shut down for writing when all is sent.
    shut: Cell<bool>,
    /// It is in the core's list of dirty connections.
    dirty: Cell<bool>,
    /// Who waits until at most so many bytes are queued.
    pub(super) waiting: RefCell<Slab<Waiting>>,
}

impl Sending {
    pub(super) fn new(zero_copy: Option<usize>) -> Sending {
        Sending { zero_copy: Cell::new(zero_copy), ..Sending::default() }
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight.get()
    }

    /// Forgets what is not sent, but what the kernel may still read.
    pub(super) fn forget(&self) {
        let filling = std::mem::take(&mut *self.filling.borrow_mut());
        drop(filling);
        if !self.in_flight.get() {
            let out = std::mem::take(&mut self.out.borrow_mut().batch);
            drop(out);
        }
    }
}

impl Connection {
    /// Appends to what will be sent at the next flush.
    pub(super) fn send(self: &Rc<Self>, bytes: &[u8]) {
        if !self.has_failed() && !self.sending.shut.get() {
            self.sending.filling.borrow_mut().small_mut().extend_from_slice(bytes);
            self.mark_filled();
        }
    }

    /// Has `write` append, as it likes.
    pub(super) fn send_with<T>(self: &Rc<Self>, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut writing = Writing::new(self);
        let result = write(writing.batch.small_mut());
        writing.kept = writing.batch.small_mut().len();
        result
    }

    /// Appends what is not to be copied, unless it is short.
    pub(super) fn send_piece(self: &Rc<Self>, piece: Piece) {
        if piece.len() < SHORTEST_PIECE {
            self.send(&piece);
        } else if !self.has_failed() && !self.sending.shut.get() {
            self.sending.filling.borrow_mut().push(piece);
            self.mark_filled();
        }
    }

    /// Something was appended to what fills.
    #[inline]
    fn mark_filled(self: &Rc<Self>) {
        let length = self.sending.filling.borrow().queued();
        if length > 0 {
            self.mark_dirty();
        }
        if length >= FULL_SEND && !self.sending.in_flight.get() {
            self.core().full_send.set(true);
        }
    }

    fn mark_dirty(self: &Rc<Self>) {
        // Once it is closing nothing leaves; and a core that has ended flushes nobody.
        if !self.is_closing() && !self.sending.dirty.replace(true) {
            self.core().dirty.borrow_mut().push_back(self.clone());
        }
    }

    /// Bytes that the kernel has not taken yet.
    pub(super) fn queued(&self) -> usize {
        self.sending.filling.borrow().queued() + self.sending.out.borrow().batch.queued()
    }

    /// Sends what is queued, and then that there is no more.
    pub(super) fn end_sending(self: &Rc<Self>) {
        self.sending.shut.set(true);
        self.mark_dirty();
    }

    /// Makes a request to send what there is, unless one is in flight.
    #[inline]
    pub(crate) fn flush(&self) {
        self.sending.dirty.set(false);
        if self.sending.in_flight.get() || self.has_failed() || self.is_closing() {
            return;
        }
        let mut out = self.sending.out.borrow_mut();
        // What is left of a batch is so because there was no room.
        let mut is_awaited = self.sending.shut.get() || !self.sending.waiting.borrow().is_empty();
        if out.batch.queued() == 0 {
            std::mem::swap(&mut out.batch, &mut *self.sending.filling.borrow_mut());
        } else {
            is_awaited = true;
        }
        let zero_copy = self.sending.zero_copy.get().filter(|_| !self.sending.copy_once.take());
        let Some(request) = out.request(self.fd(), zero_copy, is_awaited) else {
            if self.sending.shut.get() {
                self.shut_down(libc::SHUT_WR);
            }
            return;
        };
        self.sending.in_flight.set(true);
        self.sending.lent.set(request.is_zero_copy());
        self.core().counters.sends.add(1);
        self.core().counters.zero_copy_sends.add(u64::from(request.is_zero_copy()));
        // SAFETY: the batch and the vector are neither touched nor dropped while it is in flight,
        // which the last completion ends: the core's table holds the connection until then. If the
        // core ends before, it leaks itself with the table.
        unsafe { self.core().driver.borrow_mut().push(request, self.token(Kind::Send)) };
    }

    /// Cancels the send in flight, if there is one.
    pub(super) fn stop_sending(&self) {
        if self.sending.told.get().is_some() {
            // It waits for the peer, and nothing else ends it.
            self.core().driver.borrow_mut().disconnect(self.fd());
        } else if self.sending.in_flight.get() {
            self.cancel(Kind::Send);
        }
    }

    /// Takes note of a completion of a send.
    #[inline]
    pub(crate) fn sent(self: &Rc<Self>, completion: Completion) {
        if completion.more {
            return self.sent_but_needed(completion.result);
        }
        let result = self.sending.told.take().unwrap_or(completion.result);
        let taken = usize::try_from(result).unwrap_or(0);
        self.core().counters.bytes_sent.add(taken as u64);
        self.sending.in_flight.set(false);
        self.let_go_of(taken);
        if self.has_failed() {
            self.sending.forget();
        }
        if result < 0 {
            self.send_failed(-result);
        }
        if self.is_closing() {
            self.finish();
            return;
        }
        if self.queued() > 0 || self.sending.shut.get() {
            self.mark_dirty();
        }
        if !self.sending.waiting.borrow().is_empty() {
            self.wake_drained();
        }
    }

    /// The result of a send has come, but the kernel still needs the memory.
    #[cold]
    fn sent_but_needed(&self, result: i32) {
        self.sending.told.set(Some(result));
        if self.is_closing() {
            self.stop_sending();
        }
    }

    #[cold]
    fn send_failed(self: &Rc<Self>, error: i32) {
        match error {
            libc::EINTR | libc::EAGAIN => {}
            libc::ECANCELED if self.is_closing() => {}
            libc::EOPNOTSUPP | libc::EINVAL if self.sending.lent.get() => {
                self.sending.zero_copy.set(None);
                self.core().counters.zero_copy_refused.add(1);
            }
            // No more memory may be locked for now: others, or other connections, have it.
            libc::ENOMEM | libc::ENOBUFS if self.sending.lent.get() => {
                self.sending.copy_once.set(true);
                self.core().counters.zero_copy_refused.add(1);
            }
            error => self.fail(error),
        }
    }

    /// Lets go of so many bytes that were sent, piece by piece: the destructor of one may be anything,
    /// and come back here.
    fn let_go_of(&self, mut bytes: usize) {
        loop {
            let piece = self.sending.out.borrow_mut().batch.take_sent(&mut bytes);
            let Some(piece) = piece else { return };
            let_go(piece);
        }
    }

    /// Wakes those who wait for what is queued to become as little as it is.
    pub(super) fn wake_drained(&self) {
        let places = self.sending.waiting.borrow().capacity();
        let queued = self.queued();
        let failed = self.has_failed();
        for place in 0..places {
            let waker = match self.sending.waiting.borrow_mut().get_mut(place) {
                Some(waiting) if failed || queued <= waiting.limit => waiting.waker.take(),
                _ => None,
            };
            if let Some(waker) = waker {
                wake(waker);
            }
        }
    }
}

/// A connection's filling batch, taken out of it while user code appends, which may come back.
struct Writing<'a> {
    connection: &'a Rc<Connection>,
    batch: Batch,
    /// How many small bytes were there before.
    before: usize,
    /// So many of them are to be sent: if user code panics, all but what it appended.
    kept: usize,
}

impl<'a> Writing<'a> {
    fn new(connection: &'a Rc<Connection>) -> Self {
        let mut batch = std::mem::take(&mut *connection.sending.filling.borrow_mut());
        let before = batch.small_mut().len();
        Writing { connection, batch, before, kept: before }
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let connection = self.connection;
        let mut batch = std::mem::take(&mut self.batch);
        if connection.has_failed() {
            return;
        }
        // What was queued before a shutdown still leaves.
        let kept = if connection.sending.shut.get() { self.before } else { self.kept };
        batch.truncate(kept);
        let mut place = connection.sending.filling.borrow_mut();
        if place.queued() > 0 {
            // Somebody sent while this was being written, and was done first. What stood here
            // before either goes before both.
            batch.append(std::mem::take(&mut *place));
        }
        *place = batch;
        drop(place);
        connection.mark_filled();
    }
}
