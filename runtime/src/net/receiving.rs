//! The receiving side of a connection.
//!
//! One request stays armed and completes as buffers are filled, parts of which go to the inbox.
//! When the reader lags so far that the connection would take too many of the buffers that all
//! share, the request is cancelled, and made again when the reader has caught up. When no buffer is
//! free the kernel ends it, and the connection is parked until one is.
//!
//! ```text
//!                first receive(), or                no buffer
//!                 the reader caught up     +------------------------> Parked
//!     Idle ----------------------> Armed --+                          |   ^
//!      ^                            |  ^   |     buffers are free     |   |
//!      |    the kernel ended it     |  +------------------------------+   |
//!      +----------------------------+      |                              |
//!      |                                   | the reader lags, or closing  | no buffer
//!      |        last completion            v                              |
//!      +------------------------------- Stopping -------------------------+
//! ```
//!
//! Nobody is parked for long. What readers have not come to is copied out of its buffers when there
//! are none left; and when few are, what readers do take is a copy. So one in eight buffers, or the
//! only one, is never in anybody's hands, and whoever keeps a lease for as long as it likes keeps
//! it from nobody.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::connection::Connection;
use super::lease::{Chunk, Lease};
use crate::core::Core;
use crate::driver::provided::{GROUP, ReceiveMode};
use crate::driver::{Completion, Kind, Request};
use crate::notify::{set_waker, wake};

/// A connection whose reader lags may have one in so many of all receive buffers.
const MOST_OF_BUFFERS: u16 = 4;
/// While there is nothing yet in no more than one in so many of all receive buffers, leases are
/// copies.
const KEPT_OF_BUFFERS: u16 = 8;

#[derive(Default)]
pub(super) struct Receiving {
    state: Cell<State>,
    inbox: RefCell<VecDeque<Chunk>>,
    /// What is in the inbox takes so much memory.
    held: Cell<usize>,
    reader: RefCell<Option<Waker>>,
    /// The peer has said all.
    ended: Cell<bool>,
    /// What comes in is thrown away.
    deaf: Cell<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    /// No request: nobody wanted one yet, or the reader lags.
    #[default]
    Idle,
    /// A request is in flight.
    Armed,
    /// A request is in flight, and being cancelled.
    Stopping,
    /// No request, as there was no buffer.
    Parked,
}

impl Receiving {
    /// Whether the kernel has a request.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.state.get(), State::Armed | State::Stopping)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Throws away what is there and what will come. True if it did so already.
    pub(super) fn turn_deaf(&self) -> bool {
        let was = self.deaf.replace(true);
        self.clear();
        was
    }

    pub(super) fn clear(&self) {
        self.inbox.borrow_mut().clear();
        self.held.set(0);
    }

    pub(super) fn wake_reader(&self) {
        let waker = self.reader.borrow_mut().take();
        if let Some(waker) = waker {
            wake(waker);
        }
    }
}

impl Connection {
    /// How much memory what it has to read may take before it is paused.
    fn share(&self) -> usize {
        let buffers = &self.core().buffers;
        usize::from(buffers.count() / MOST_OF_BUFFERS).max(1) * buffers.size()
    }

    /// What a part takes: a buffer, or, where others have the rest of that, what it is long and its
    /// place in the inbox.
    fn taken_by(&self, chunk: &Chunk) -> usize {
        let buffers = &self.core().buffers;
        match buffers.mode() {
            ReceiveMode::Incremental => chunk.len() + size_of::<Chunk>(),
            _ => buffers.size(),
        }
    }

    pub(super) fn poll_receive(&self, context: &Context<'_>) -> Poll<io::Result<Option<Lease>>> {
        if let Some(lease) = self.take_lease() {
            return Poll::Ready(Ok(Some(lease)));
        }
        if let Some(error) = self.error() {
            return Poll::Ready(Err(error));
        }
        if self.receiving.ended.get() {
            return Poll::Ready(Ok(None));
        }
        if self.receiving.state.get() == State::Idle {
            self.arm();
        }
        set_waker(&self.receiving.reader, context);
        Poll::Pending
    }

    pub(super) fn take_lease(&self) -> Option<Lease> {
        let mut chunk = self.receiving.inbox.borrow_mut().pop_front()?;
        let left = self.receiving.held.get() - self.taken_by(&chunk);
        self.receiving.held.set(left);
        let buffers = &self.core().buffers;
        if buffers.untouched() <= buffers.count() / KEPT_OF_BUFFERS {
            self.note_copies(u64::from(chunk.copy()));
        }
        if self.receiving.state.get() == State::Idle && left <= self.share() / 2 {
            self.arm();
        }
        Some(Lease(chunk))
    }

    /// Gives the buffers back that its reader has not come to, and keeps copies.
    pub(crate) fn relieve(&self) {
        let mut copied = 0;
        // From the youngest: once one was copied, so were all before it.
        for chunk in self.receiving.inbox.borrow_mut().iter_mut().rev() {
            if !chunk.copy() {
                break;
            }
            copied += 1;
        }
        self.note_copies(copied);
    }

    fn note_copies(&self, copied: u64) {
        if copied > 0 {
            self.count_copies(copied);
        }
    }

    #[cold]
    fn count_copies(&self, copied: u64) {
        let copies = &self.core().counters.copies;
        if copies.get() == 0 {
            tracing::warn!(
                buffers = self.core().buffers.count(),
                "few receive buffers are free, and what arrives is copied: readers lag, or keep \
                 leases; if that is as it should be, build the runtime with more buffers"
            );
        }
        copies.add(copied);
    }

    fn arm(&self) {
        if self.receiving.ended.get() || self.is_closing() || self.has_failed() {
            return;
        }
        self.receiving.state.set(State::Armed);
        self.core().rearmed.set(true);
        let bundles = self.core().buffers.mode() == ReceiveMode::Bundles;
        let request = Request::ReceiveMany { fd: self.fd(), group: GROUP, bundles };
        // SAFETY: the request points to nothing: the kernel receives into the buffers of the group.
        unsafe { self.core().driver.borrow_mut().push(request, self.token(Kind::Receive)) };
    }

    /// Cancels the receive, if there is one. Its last completion is still to come.
    fn pause(&self) {
        if self.receiving.state.get() == State::Armed {
            self.receiving.state.set(State::Stopping);
            self.core().rearmed.set(true);
            self.cancel(Kind::Receive);
        }
    }

    /// Wants no more, as the connection closes.
    pub(super) fn stop_receiving(self: &Rc<Self>) {
        self.receiving.clear();
        if self.receiving.state.get() == State::Parked {
            self.receiving.state.set(State::Idle);
            self.core().parked.borrow_mut().retain(|parked| !Rc::ptr_eq(parked, self));
        }
        self.pause();
    }

    /// Receives again, after no buffer was free. False if nobody wants it to.
    pub(crate) fn unpark(&self) -> bool {
        if self.receiving.state.get() != State::Parked {
            return false;
        }
        self.receiving.state.set(State::Idle);
        self.arm();
        self.receiving.state.get() == State::Armed
    }

    /// Takes note of a completion of the receive.
    #[inline]
    pub(crate) fn received(self: &Rc<Self>, completion: Completion) {
        let copied = completion.buffer.map_or(0, |buffer| self.take_in(buffer, &completion));
        let was = self.receiving.state.get();
        if !completion.more {
            self.receiving.state.set(State::Idle);
        }
        match completion.result {
            1.. => {}
            0 => self.receiving.ended.set(true),
            error => self.receive_failed(-error, was),
        }
        let lags = self.receiving.held.get() >= self.share();
        match self.receiving.state.get() {
            State::Armed if lags => self.hold_back(),
            State::Idle if !lags => self.arm(),
            _ => {}
        }
        if self.is_closing() {
            self.finish();
        } else if completion.result != -libc::ENOBUFS {
            self.receiving.wake_reader();
        }
        self.note_copies(copied);
    }

    /// The reader lags: nothing more is received until it has caught up.
    #[cold]
    fn hold_back(&self) {
        self.core().counters.pauses.add(1);
        self.pause();
    }

    /// Takes note of what was filled. Returns how much of it was copied, in parts: to be told when
    /// all else is noted, as whoever hears of it may panic.
    fn take_in(&self, first: u16, completion: &Completion) -> u64 {
        let Core { buffers, counters, .. } = &**self.core();
        let length = u32::try_from(completion.result).unwrap_or(0);
        let wanted = length > 0 && !self.is_closing() && !self.receiving.deaf.get();
        if wanted {
            counters.bytes_received.add(u64::from(length));
        }
        // A bundle may be of more buffers than the connection is to have.
        let (share, bundles) = (self.share(), buffers.mode() == ReceiveMode::Bundles);
        let mut copied = 0;
        buffers.taken(first, length, completion.buffer_more, |part| match wanted {
            true => {
                let mut chunk = Chunk::new(self.core().clone(), part);
                let held = self.receiving.held.get();
                copied += u64::from(bundles && held >= share && chunk.copy());
                self.receiving.held.set(held + self.taken_by(&chunk));
                self.receiving.inbox.borrow_mut().push_back(chunk);
            }
            false => buffers.release(part),
        });
        if wanted {
            self.core().unread.borrow_mut().insert(self.index());
        }
        copied
    }

    #[cold]
    fn receive_failed(self: &Rc<Self>, error: i32, was: State) {
        match error {
            libc::ENOBUFS if !self.is_closing() => {
                self.receiving.state.set(State::Parked);
                self.core().counters.parks.add(1);
                self.core().parked.borrow_mut().push_back(self.clone());
            }
            // Not an end: the request can be made again.
            libc::ENOBUFS | libc::EINTR | libc::EAGAIN => {}
            libc::ECANCELED if was == State::Stopping => {}
            error => self.fail(error),
        }
    }
}
