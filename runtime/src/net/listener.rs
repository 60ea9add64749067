//! Accepting connections: one request that completes once for each.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::{fmt, io};

use socket2::{Domain, Protocol, SockRef, Type};

use super::socket::Socket;
use super::stream::TcpStream;
use crate::core;
use crate::driver::{Completion, Kind, Request, Token};
use crate::notify::{set_waker, wake};
use crate::operation::own;

/// So many accepted connections may wait for a task; then the kernel's own queue has to hold them.
const WAITING: usize = 128;

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
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions { reuse_port: false, reuse_address: true, backlog: 4096, only_v6: false }
    }
}

impl ListenOptions {
    /// Sets [`ListenOptions::reuse_port`].
    #[must_use]
    pub fn reuse_port(mut self, reuse_port: bool) -> Self {
        self.reuse_port = reuse_port;
        self
    }
}

/// The part of a listener that the core's table holds while a request is in flight.
pub(crate) struct Listening {
    socket: Socket,
    index: u32,
    armed: Cell<bool>,
    closing: Cell<bool>,
    accepted: RefCell<VecDeque<Socket>>,
    /// The number of an error that nobody was told of yet, or 0.
    failure: Cell<i32>,
    acceptor: RefCell<Option<Waker>>,
}

impl Listening {
    fn token(&self) -> Token {
        Token { kind: Kind::Accept, index: self.index }
    }

    fn arm(&self) {
        self.armed.set(true);
        self.socket.core().rearmed.set(true);
        let request = Request::AcceptMany { fd: self.socket.fd() };
        // SAFETY: the request points to nothing. The descriptor stays open until the last
        // completion, as the core's table holds `self`.
        unsafe { self.socket.core().driver.borrow_mut().push(request, self.token()) };
    }

    fn cancel(&self) {
        let request = Request::Cancel { token: self.token() };
        // SAFETY: the request points to nothing.
        unsafe { self.socket.core().driver.borrow_mut().push(request, Token::NOBODY) };
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
        if !self.armed.get() {
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
            self.armed.set(false);
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
        if waiting >= WAITING && self.armed.get() {
            self.cancel();
        } else if waiting == 0 && !self.armed.get() && self.failure.get() == 0 {
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
        if self.armed.get() {
            self.cancel();
        }
        self.finish();
    }

    /// Leaves the core's table once nothing is in flight.
    fn finish(self: &Rc<Self>) {
        if self.armed.get() {
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

/// A socket that takes TCP connections in.
pub struct TcpListener {
    listening: Rc<Listening>,
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
        let core = core::current();
        let socket =
            socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(options.reuse_address)?;
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        if address.is_ipv6() {
            socket.set_only_v6(options.only_v6)?;
        }
        socket.bind(&address.into())?;
        socket.listen(options.backlog)?;
        let mut listeners = core.listeners.borrow_mut();
        let entry = listeners.vacant_entry();
        let listening = Rc::new(Listening {
            socket: Socket::new(&core, socket.into()),
            index: entry.key() as u32,
            armed: Cell::new(false),
            closing: Cell::new(false),
            accepted: RefCell::default(),
            failure: Cell::new(0),
            acceptor: RefCell::default(),
        });
        entry.insert(listening.clone());
        Ok(TcpListener { listening })
    }

    /// The address it listens at.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let address = SockRef::from(self.listening.socket.descriptor()).local_addr()?;
        address.as_socket().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// The next connection. Dropping the future loses none.
    ///
    /// # Errors
    ///
    /// What the kernel says, such as that the process has too many descriptors. The listener goes
    /// on; the caller may want to wait a little before it does.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        let accepted = poll_fn(|context| self.listening.poll_accept(context)).await?;
        Ok(TcpStream::new(accepted))
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.listening.close();
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener")
            .field("fd", &self.listening.socket.fd())
            .finish_non_exhaustive()
    }
}
