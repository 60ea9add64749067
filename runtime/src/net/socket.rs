use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use crate::core::Core;

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
