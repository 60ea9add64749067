//! The descriptor of an open file: what keeps it open, and how it is closed.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use super::status::DirectAlignment;
use crate::buffer;
use crate::core::Core;
use crate::driver::Request;
use crate::operation::{Kept, Operation};

/// Operations keep it open, and its place with it.
pub(crate) struct Descriptor {
    pub(crate) core: Rc<Core>,
    /// There until it is closed.
    fd: Option<OwnedFd>,
    /// Where it stands among the files registered.
    place: Option<u32>,
    /// What offsets and lengths of transfers are multiples of.
    step: usize,
}

impl Descriptor {
    pub(super) fn new(core: Rc<Core>, fd: OwnedFd) -> Descriptor {
        Descriptor { core, fd: Some(fd), place: None, step: 1 }
    }

    /// Minds the alignment that direct I/O demands. Where it isn't told, that of buffers will do.
    pub(super) fn set_direct(&mut self, alignment: Option<DirectAlignment>) {
        self.step = alignment.map_or(buffer::ALIGNMENT, |alignment| alignment.offset as usize);
    }

    /// Gives it a place among the files registered, if there is one.
    pub(super) fn register(&mut self) {
        let Some(fd) = &self.fd else { return };
        let place = self.core.places.borrow_mut().pop();
        self.place = place.filter(|&place| {
            let set = self.core.driver.borrow_mut().set_file(place, fd.as_raw_fd());
            set.is_ok() || {
                self.core.places.borrow_mut().push(place);
                false
            }
        });
        if self.place.is_none() {
            self.core.counters.unregistered_files.add(1);
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    pub(super) fn place(&self) -> Option<u32> {
        self.place
    }

    pub(super) fn step(&self) -> usize {
        self.step
    }

    /// Closes it. That may wait for a device, or a network: the kernel does it aside, as long as
    /// there is a driver to ask it.
    pub(super) fn close(&mut self) -> Option<Operation> {
        let fd = self.fd.take()?;
        if self.core.tasks.is_closed() {
            return None;
        }
        if let Some(place) = self.place.take() {
            let emptied = self.core.driver.borrow_mut().set_file(place, -1);
            // A place that isn't empty would keep the file open; but it can be used again.
            self.core.places.borrow_mut().push(place);
            if let Err(error) = emptied {
                tracing::warn!(%error, "a registered file stays open until its place is used again");
            }
        }
        let request = Request::Close { fd: fd.into_raw_fd() };
        // SAFETY: the request points to nothing, and nobody else has the descriptor.
        Some(unsafe { Operation::submit(&self.core, request, Kept::default()) })
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // Nobody waits for it; the operation tells of an error by itself.
        drop(self.close());
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd;

    use super::*;
    use crate::fs::File;
    use crate::{Runtime, metrics, yield_now};

    /// A file of which the kernel will say, as it is closed, that there is none.
    fn bad() -> File {
        // SAFETY: no descriptor has this number, which is above every limit: so none is closed that
        // is somebody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(i32::MAX - 1) };
        File { descriptor: Rc::new(Descriptor::new(crate::core::current(), fd)) }
    }

    #[test]
    fn an_error_of_closing_is_told_or_else_counted() {
        Runtime::builder().build().unwrap().block_on(async {
            let error = bad().close().await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADF));
            assert_eq!(metrics().close_errors, 0, "it was told");
            drop(bad());
            while metrics().close_errors == 0 {
                yield_now().await;
            }
            let (file, shared) = (bad(), bad());
            let clone = shared.clone();
            assert!(shared.close().await.is_ok(), "a clone is left");
            drop((file, clone));
            while metrics().close_errors < 3 {
                yield_now().await;
            }
        });
    }
}
