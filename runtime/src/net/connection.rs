//! A connection: a socket with what was received and not yet read, and what was written and not yet
//! sent. Whether the socket is TCP's or Unix's makes no difference here.
//!
//! It has three sides, each with a file and a state machine of its own:
//!
//! - [`receiving`](super::receiving): from the kernel's buffers to the reader;
//! - [`sending`](super::sending): from writers to the kernel;
//! - [`ending`](super::ending): by the peer, an error, or when the last handle is gone.
//!
//! The core's table holds a connection until the kernel has completed the last request that names
//! it: so the kernel never uses memory, or a descriptor, that was freed, and a completion never
//! meets a stranger in the table.

use std::os::fd::{OwnedFd, RawFd};
use std::rc::Rc;

use super::ending::Ending;
use super::receiving::Receiving;
use super::sending::Sending;
use super::socket::Socket;
use crate::core::Core;
use crate::driver::{Kind, Request, Token};

pub(crate) struct Connection {
    socket: Socket,
    index: u32,
    pub(super) receiving: Receiving,
    pub(super) sending: Sending,
    pub(super) ending: Ending,
}

impl Connection {
    /// Takes a connected socket over. The caller holds the first handle.
    ///
    /// What it sends in requests of at least `zero_copy` bytes, if that is some, is not copied.
    pub(super) fn new(socket: Socket, zero_copy: Option<usize>) -> Rc<Connection> {
        let core = socket.core().clone();
        let mut connections = core.connections.borrow_mut();
        let entry = connections.vacant_entry();
        let connection = Rc::new(Connection {
            socket,
            index: entry.key() as u32,
            receiving: Receiving::default(),
            sending: Sending::new(zero_copy),
            ending: Ending::default(),
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

    /// Its place in the core's table.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    pub(super) fn token(&self, kind: Kind) -> Token {
        Token { kind, index: self.index }
    }

    /// Asks the kernel to end a request, whose last completion is still to come.
    pub(super) fn cancel(&self, kind: Kind) {
        let request = Request::Cancel { token: self.token(kind) };
        // SAFETY: the request points to nothing.
        unsafe { self.core().driver.borrow_mut().push(request, Token::NOBODY) };
    }
}
