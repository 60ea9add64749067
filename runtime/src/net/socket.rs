//! A descriptor that its driver closes.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use bowline_time::Duration;
use socket2::{Domain, SockAddr, Type};

use crate::core::Core;
use crate::driver::Request;
use crate::operation::{Kept, Operation};
use crate::timeout;

/// An open socket. It is closed by the driver that it belongs to, when no request names it.
pub(super) struct Socket {
    core: Rc<Core>,
    /// There until this is dropped.
    fd: Option<OwnedFd>,
}

impl Socket {
    pub(super) fn new(core: &Rc<Core>, fd: OwnedFd) -> Socket {
        Socket { core: core.clone(), fd: Some(fd) }
    }

    /// Connects a new stream socket, within `limit`.
    pub(super) async fn connect(address: SockAddr, limit: Duration) -> io::Result<Socket> {
        let core = crate::core::current();
        timeout(limit, async {
            loop {
                match Socket::connect_once(&core, address.clone()).await {
                    // A socket whose connecting was interrupted may connect yet, or not: the next
                    // attempt has a new one.
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    result => return result,
                }
            }
        })
        .await?
    }

    async fn connect_once(core: &Rc<Core>, address: SockAddr) -> io::Result<Socket> {
        let domain = Domain::from(i32::from(address.family()));
        let socket = socket2::Socket::new(domain, Type::STREAM, None)?;
        let socket = Rc::new(Socket::new(core, socket.into()));
        let address = Box::new(address);
        let request = Request::Connect {
            fd: socket.fd(),
            address: address.as_ptr().cast(),
            length: address.len(),
        };
        let kept =
            Kept { descriptor: Some(socket.clone()), memory: Some(address), ..Kept::default() };
        // SAFETY: the address is boxed and kept, as is the descriptor.
        let (result, kept) = unsafe { Operation::submit(core, request, kept) }.await;
        drop(kept);
        result?;
        Ok(Rc::into_inner(socket).expect("the operation is done, and was the only other owner"))
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        self.fd.as_ref().expect("it is there until this is dropped")
    }

    pub(super) fn fd(&self) -> RawFd {
        self.descriptor().as_raw_fd()
    }

    pub(super) fn core(&self) -> &Rc<Core> {
        &self.core
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take() {
            self.core.driver.borrow_mut().close(fd);
        }
    }
}
