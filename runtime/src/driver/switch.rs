//! The seam between the runtime and what drives it: io_uring, or, in tests, a simulation of it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::ptr::NonNull;

use bowline_time::Instant;
use io_uring::types::BufRingEntry;

use super::provided::{GROUP, ReceiveMode};
use super::ring::Ring;
#[cfg(feature = "simulated-driver")]
use super::sim::Sim;
use super::{Completion, Request, Token};
use crate::clock::Clock;
use crate::error::Error;
use crate::metrics::Counters;

/// The kernel's flag for rings of buffers that it may fill piece by piece.
pub(crate) const INCREMENTAL: u16 = 2;

/// Why a submission thread goes with one mode only.
const UNORDERED: &str = "where a thread of the kernel's takes requests, completions may overtake \
                         each other, and nobody could tell which part of a buffer is whose";
const UNTRUSTED: &str = "this kernel has no bundles (6.10), or is older than 6.16 and may mix up \
                         the order of what it receives in them";

pub(crate) enum Driver {
    Ring(Ring),
    #[cfg(feature = "simulated-driver")]
    Sim(Box<Sim>),
}

/// Calls the same method of whichever driver it is.
macro_rules! either {
    ($self:ident, $driver:ident => $ring:expr, $sim:expr) => {
        match $self {
            Driver::Ring($driver) => $ring,
            #[cfg(feature = "simulated-driver")]
            Driver::Sim($driver) => $sim,
        }
    };
}

/// A runtime whose ring fails can do nothing any more, and its tasks would wait for ever.
fn broken<T>(error: io::Error) -> T {
    panic!(
        "io_uring_enter failed for good ({error}): completions may be lost, and no request of this \
         runtime is known to end any more; drop the runtime and build another"
    )
}

impl Driver {
    /// Queues a request.
    ///
    /// # Safety
    ///
    /// Memory that the request points to stays valid, and unmoved, until the last completion with
    /// this token has come out of [`Driver::next`], or for ever: the kernel writes into what
    /// it reads into, and reads the rest, at any time until then, even when the ring is closed.
    #[inline]
    pub(crate) unsafe fn push(&mut self, request: Request, token: Token) {
        // SAFETY: passed on to the caller.
        either!(self, driver => unsafe { driver.push(request, token) }, driver.push(request, token));
    }

    /// The ring that other threads can post messages to, by its descriptor; None if they can't.
    pub(crate) fn mailbox(&self) -> Option<RawFd> {
        either!(self, driver => driver.mailbox(), { let _ = driver; None })
    }

    /// How many requests have not seen their last completion.
    pub(crate) fn in_flight(&self) -> usize {
        either!(self, driver => driver.in_flight(), driver.in_flight())
    }

    /// Whether [`Driver::next`] would bring something that happened.
    #[inline]
    pub(crate) fn has_completions(&mut self) -> bool {
        either!(self, driver => driver.has_completions(), driver.has_completions())
    }

    /// Whether there are sends to be done at once, or done, of which nobody was told. That they are
    /// done ends no wait.
    #[inline]
    pub(crate) fn has_untold(&self) -> bool {
        either!(self, driver => driver.has_untold(), driver.has_untold())
    }

    /// Hands over all requests, without waiting for anything.
    #[inline]
    pub(crate) fn submit(&mut self, counters: &Counters) {
        self.try_submit(counters).unwrap_or_else(broken);
    }

    /// Hands over all requests and waits for a completion, until the deadline if there is one.
    /// It may return before either.
    #[inline]
    pub(crate) fn wait(&mut self, counters: &Counters, clock: &Clock, deadline: Option<Instant>) {
        self.try_wait(counters, clock, deadline).unwrap_or_else(broken);
    }

    /// Looks for completions. At most so many come out of [`Driver::next`].
    #[inline]
    pub(crate) fn look(&mut self, counters: &Counters) -> usize {
        self.try_look(counters).unwrap_or_else(broken)
    }

    /// The next completion of those that were looked for.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Completion> {
        either!(self, driver => driver.next(), driver.next())
    }

    /// Cancels everything and waits, but not for ever, until nothing is in flight. It doesn't panic,
    /// as destructors call it: if the ring fails there is nothing to wait for.
    pub(crate) fn drain(
        &mut self,
        counters: &Counters,
        clock: &Clock,
        deadline: Instant,
        into: &mut VecDeque<Completion>,
    ) -> bool {
        // SAFETY: the request points to nothing.
        unsafe { self.push(Request::CancelAll, Token::NOBODY) };
        loop {
            let looked = self.try_submit(counters).and_then(|()| self.try_look(counters));
            into.extend(std::iter::from_fn(|| self.next()));
            if self.in_flight() == 0 {
                return true;
            }
            if looked.is_err()
                || clock.now() >= deadline
                || self.try_wait(counters, clock, Some(deadline)).is_err()
            {
                return false;
            }
        }
    }

    #[inline]
    fn try_submit(&mut self, counters: &Counters) -> io::Result<()> {
        either!(self, driver => driver.submit(counters), { driver.submit(); Ok(()) })
    }

    #[inline]
    fn try_wait(
        &mut self,
        counters: &Counters,
        clock: &Clock,
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        either!(self, driver => driver.wait(counters, clock, deadline),
            { driver.wait(&mut || clock.now(), deadline); Ok(()) })
    }

    #[inline]
    fn try_look(&mut self, counters: &Counters) -> io::Result<usize> {
        either!(self, driver => driver.look(counters), Ok(driver.look(counters)))
    }

    /// Shows the ring of receive buffers to the kernel. Returns how it fills them: as is wanted, or,
    /// if it can't do that or is not trusted to, one at a time.
    ///
    /// # Safety
    ///
    /// The ring has `count` entries, is aligned to a page, and lives as long as the driver.
    pub(crate) unsafe fn register_buffers(
        &mut self,
        entries: NonNull<BufRingEntry>,
        count: u16,
        wanted: ReceiveMode,
    ) -> Result<ReceiveMode, Error> {
        either!(self,
            driver => {
                let address = entries.as_ptr() as u64;
                let register = |flags| {
                    // SAFETY: passed on to the caller.
                    unsafe {
                        driver.submitter().register_buf_ring_with_flags(address, count, GROUP, flags)
                    }
                };
                let features = driver.features();
                let refused = match wanted {
                    ReceiveMode::Single => None,
                    // Completions have to come in the order in which buffers were filled.
                    _ if features.polled => Some(UNORDERED.into()),
                    ReceiveMode::Bundles if features.bundles => None,
                    ReceiveMode::Bundles => Some(UNTRUSTED.into()),
                    ReceiveMode::Incremental => match register(INCREMENTAL) {
                        Ok(()) => return Ok(wanted),
                        Err(error) => Some(error.to_string()),
                    },
                };
                register(0).map_err(Error::of_buffers)?;
                if let Some(error) = refused {
                    tracing::warn!(?wanted, error, "receive buffers are filled one at a time");
                    return Ok(ReceiveMode::Single);
                }
                Ok(wanted)
            },
            {
                driver.register_buffers(entries, count, wanted == ReceiveMode::Incremental);
                Ok(wanted)
            }
        )
    }

    /// Makes places for files, all empty.
    pub(crate) fn register_files(&mut self, count: u32) -> io::Result<()> {
        either!(self, driver => driver.register_files(count), { let _ = (driver, count); Ok(()) })
    }

    /// Puts a file at a place, or, if it is -1, takes away what is there. Requests under way keep
    /// what they have.
    pub(crate) fn set_file(&mut self, place: u32, fd: RawFd) -> io::Result<()> {
        either!(self, driver => driver.set_file(place, fd), { let _ = (driver, place, fd); Ok(()) })
    }

    /// Has the kernel pin memory, so that transfers need not.
    ///
    /// # Safety
    ///
    /// The memory is valid for as long as requests are in flight that name it.
    pub(crate) unsafe fn register_memory(
        &mut self,
        memory: NonNull<u8>,
        length: usize,
    ) -> io::Result<()> {
        // SAFETY: passed on to the caller.
        either!(self, driver => unsafe { driver.register_memory(memory, length) },
            { let _ = (driver, memory, length); Ok(()) })
    }

    /// Shuts a socket down, for reading, writing or both, as `shutdown(2)` does.
    pub(crate) fn shutdown(&mut self, fd: RawFd, how: i32) {
        match self {
            // SAFETY: no memory is passed. It can fail if the connection is gone, and then no harm
            // is done.
            Driver::Ring(_) => unsafe {
                libc::shutdown(fd, how);
            },
            #[cfg(feature = "simulated-driver")]
            Driver::Sim(sim) => sim.shutdown(fd, how),
        }
    }

    /// Has a socket forget, at once, what its peer has not acknowledged, and reset the connection.
    /// Requests that wait for that to be acknowledged end.
    pub(crate) fn disconnect(&mut self, fd: RawFd) {
        match self {
            Driver::Ring(_) => {
                // SAFETY: all bits zero is a valid address; its family, 0, is AF_UNSPEC.
                let nowhere: libc::sockaddr = unsafe { std::mem::zeroed() };
                let length = size_of::<libc::sockaddr>() as libc::socklen_t;
                // SAFETY: the address is valid during the call. That it fails only means that the
                // connection is gone already.
                unsafe { libc::connect(fd, &raw const nowhere, length) };
            }
            #[cfg(feature = "simulated-driver")]
            Driver::Sim(sim) => sim.shutdown(fd, libc::SHUT_RDWR),
        }
    }

    /// Closes a socket that no request in flight names.
    pub(crate) fn close(&mut self, fd: OwnedFd) {
        match self {
            Driver::Ring(_) => drop(fd),
            #[cfg(feature = "simulated-driver")]
            Driver::Sim(sim) => sim.close(fd),
        }
    }
}
