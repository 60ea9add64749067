//! The end of a connection.
//!
//! The peer's end is the end of what is received, and no more: one may go on sending. An error ends
//! both directions for all handles. When the last handle is gone, what is queued is sent, and then
//! that there is no more; what still comes in is thrown away until the peer ends too. For if a
//! socket is closed with input that nobody read, the kernel resets the connection, and what the
//! peer has not got yet is lost.
//!
//! ```text
//!     Open ----- error ------> Failed ----- last handle gone ------+
//!      |                                                           v
//!      +-- last handle gone -> Seen off -- all sent and the ---> Closing -- last completion -> gone
//!                                          peer ended, or time's   ^
//!                                          up, or an error         |
//!     any, when the runtime ends ----------------------------------+
//! ```
//!
//! In closing, requests in flight are cancelled. The connection stays in the core's table, and its
//! descriptor open, until the last completion of each.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use super::Shutdown;
use super::connection::Connection;

pub(super) struct Ending {
    handles: Cell<u32>,
    /// The number of the error that ended it, or 0.
    failure: Cell<i32>,
    closing: Cell<bool>,
}

impl Default for Ending {
    /// For a connection with its first handle.
    fn default() -> Ending {
        Ending { handles: Cell::new(1), failure: Cell::new(0), closing: Cell::new(false) }
    }
}

impl Connection {
    pub(super) fn error(&self) -> Option<io::Error> {
        match self.ending.failure.get() {
            0 => None,
            number => Some(io::Error::from_raw_os_error(number)),
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.ending.failure.get() != 0
    }

    pub(super) fn is_closing(&self) -> bool {
        self.ending.closing.get()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.receiving.has_ended() || self.has_failed()
    }

    /// Notes an error that ends the connection, and tells all who wait.
    pub(super) fn fail(self: &Rc<Self>, error: i32) {
        if self.has_failed() {
            return;
        }
        self.ending.failure.set(error);
        // Both directions end: whatever is in flight completes soon.
        self.shut_down(libc::SHUT_RDWR);
        self.sending.forget();
        self.receiving.wake_reader();
        self.wake_drained();
    }

    pub(super) fn shut_down(&self, how: i32) {
        self.core().driver.borrow_mut().shutdown(self.fd(), how);
    }

    pub(super) fn shutdown(self: &Rc<Self>, how: Shutdown) {
        if matches!(how, Shutdown::Read | Shutdown::Both) {
            // The request in flight ends by it, or the next one does at once.
            self.shut_down(libc::SHUT_RD);
        }
        if matches!(how, Shutdown::Write | Shutdown::Both) {
            self.end_sending();
        }
    }

    pub(super) fn abort(self: &Rc<Self>) {
        self.fail(libc::ECONNABORTED);
    }

    pub(super) fn add_handle(&self) {
        self.ending.handles.set(self.ending.handles.get() + 1);
    }

    /// Gives a handle up. True if it was the last, and there is still something to send, or the
    /// peer has not said all: somebody has then to see to it, with a handle of their own.
    pub(super) fn drop_handle(self: &Rc<Self>) -> bool {
        self.ending.handles.set(self.ending.handles.get() - 1);
        if self.ending.handles.get() > 0 || self.is_closing() {
            return false;
        }
        let unfinished = !self.has_failed() && (self.queued() > 0 || !self.receiving.has_ended());
        if unfinished && !self.core().tasks.is_closed() && !self.receiving.turn_deaf() {
            return true;
        }
        self.close();
        false
    }

    /// Closes it as soon as the kernel has let go of it.
    pub(crate) fn close(self: &Rc<Self>) {
        if self.ending.closing.replace(true) {
            return;
        }
        if !self.has_failed() {
            self.ending.failure.set(libc::ECANCELED);
        }
        self.stop_receiving();
        self.stop_sending();
        self.finish();
    }

    /// Leaves the core's table, if closing and nothing is in flight. The descriptor is closed when
    /// the last reference goes.
    pub(super) fn finish(self: &Rc<Self>) {
        if self.receiving.is_in_flight() || self.sending.is_in_flight() {
            return;
        }
        let mut connections = self.core().connections.borrow_mut();
        let index = self.index() as usize;
        if connections.get(index).is_some_and(|held| Rc::ptr_eq(held, self)) {
            let held = connections.remove(index);
            drop(connections);
            drop(held);
        }
    }
}
