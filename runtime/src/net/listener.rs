//! Accepting connections, of whatever family: one request that completes once for each.
//!
//! ```text
//!             accept()             too many wait to be taken
//!     Idle -------------> Armed ------------------------------> Stopping
//!      ^                    |                                      |
//!      +--------------------+--------------------------------------+
//!                          last completion
//! ```

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::socket::Socket;
use crate::core::Core;
use crate::driver::{Completion, Kind, Request, Token};
use crate::notify::{set_waker, wake};
use crate::operation::own;

/// How many connections the kernel keeps until they are accepted, if `net.core.somaxconn` allows.
pub(super) const BACKLOG: i32 = 4096;
/// So many accepted connections may wait for a task; then the kernel's own queue has to hold them.
const WAITING: usize = 128;

/// A listening socket, closed when dropped.
pub(super) struct Listener(Rc<Listening>);

/// The part of a listener that the core's table holds until it is closed.
pub(crate) struct Listening {
    socket: Socket,
    index: u32,
    state: Cell<State>,
    closing: Cell<bool>,
    accepted: RefCell<VecDeque<Socket>>,
    /// The number of an error that nobody was told of yet, or 0.
    failure: Cell<i32>,
    acceptor: RefCell<Option<Waker>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No request.
    Idle,
    /// A request is in flight.
    Armed,
    /// A request is in flight, and being cancelled.
    Stopping,
}

impl Listener {
    /// Takes a socket over that listens already.
    pub(super) fn new(core: &Rc<Core>, socket: OwnedFd) -> Listener {
        let mut listeners = core.listeners.borrow_mut();
        let entry = listeners.vacant_entry();
        let listening = Rc::new(Listening {
            socket: Socket::new(core, socket),
            index: entry.key() as u32,
            state: Cell::new(State::Idle),
            closing: Cell::new(false),
            accepted: RefCell::default(),
            failure: Cell::new(0),
            acceptor: RefCell::default(),
        });
        entry.insert(listening.clone());
        Listener(listening)
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.0.socket
    }

    pub(super) async fn accept(&self) -> io::Result<Socket> {
        poll_fn(|context| self.0.poll_accept(context)).await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Listening {
    fn token(&self) -> Token {
        Token { kind: Kind::Accept, index: self.index }
    }

    fn arm(&self) {
        self.state.set(State::Armed);
        self.socket.core().rearmed.set(true);
        let request = Request::AcceptMany { fd: self.socket.fd() };
        // SAFETY: the request points to nothing. The descriptor stays open until the last
        // completion, as the core's table holds `self`.
        unsafe { self.socket.core().driver.borrow_mut().push(request, self.token()) };
    }

    /// Cancels the accept, if there is one. Its last completion is still to come.
    fn stop(&self) {
        if self.state.get() == State::Armed {
            self.state.set(State::Stopping);
            let request = Request::Cancel { token: self.token() };
            // SAFETY: the request points to nothing.
            unsafe { self.socket.core().driver.borrow_mut().push(request, Token::NOBODY) };
        }
    }

    fn poll_accept(&self, context: &Context<'_>) -> Poll<io::Result<Socket>> {
        if let Some(accepted) = self.accepted.borrow_mut().pop_front() {
            return Poll::Ready(Ok(accepted));
        }
        if self.closing.get() {
            return Poll::Ready(Err(io::Error::from_raw_os_error(libc::ECANCELED)));
        }
        let failure = self.failure.replace(0);
        if failure != 0 {
            return Poll::Ready(Err(io::Error::from_raw_os_error(failure)));
        }
        if self.state.get() == State::Idle {
            self.arm();
        }
        set_waker(&self.acceptor, context);
        Poll::Pending
    }

    /// Takes note of a completion.
    pub(crate) fn accepted(self: &Rc<Self>, completion: Completion) {
        if completion.result >= 0 {
            // Owned at once: if nobody wants it any more it is closed, not leaked.
            let accepted = Socket::new(self.socket.core(), own(completion.result));
            if !self.closing.get() {
                self.accepted.borrow_mut().push_back(accepted);
            }
        }
        if !completion.more {
            self.state.set(State::Idle);
        }
        if self.closing.get() {
            self.finish();
            return;
        }
        match -completion.result {
            // A peer that went before it was accepted is no error of the listener.
            ..=0 | libc::EINTR | libc::EAGAIN | libc::ECONNABORTED | libc::ECANCELED => {}
            error => self.failure.set(error),
        }
        let waiting = self.accepted.borrow().len();
        if waiting >= WAITING {
            self.stop();
        } else if waiting == 0 && self.state.get() == State::Idle && self.failure.get() == 0 {
            self.arm();
        }
        let waker = self.acceptor.borrow_mut().take();
        if let Some(waker) = waker {
            wake(waker);
        }
    }

    pub(crate) fn close(self: &Rc<Self>) {
        if self.closing.replace(true) {
            return;
        }
        self.accepted.borrow_mut().clear();
        self.stop();
        self.finish();
    }

    /// Leaves the core's table once nothing is in flight.
    fn finish(self: &Rc<Self>) {
        if self.state.get() != State::Idle {
            return;
        }
        let mut listeners = self.socket.core().listeners.borrow_mut();
        let index = self.index as usize;
        if listeners.get(index).is_some_and(|held| Rc::ptr_eq(held, self)) {
            let held = listeners.remove(index);
            drop(listeners);
            drop(held);
        }
    }
}
