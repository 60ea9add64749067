//! How a core that sleeps is woken by another thread, be it a core or not.
//!
//! Where the kernel can, the thread itself has it post a completion to the sleeper's ring: one
//! system call, after which the sleeper has nothing to read and nothing to ask for anew. (Between
//! two cores that sleep in turns, there and back, medians of seven: 35.3 us by messages, 37.9 us by
//! eventfds, with 5 % less CPU time, on Linux 6.18 in a virtual machine.) Elsewhere, and where the
//! kernel refuses that, it writes to an eventfd, of which the core has a read in flight. Either way
//! the wake is the sleeper's, in its ring, when the call returns. A request in the ring of whoever
//! wakes would spare the call, but wait until that ring is submitted: and a task that wakes a core
//! may then wait for its thread, in place, for ever.
//!
//! A refusal that will not pass, such as a sandbox's around one thread, is remembered: from then on
//! all wakes of that core are written, which costs one call in place of two.
//!
//! A ring is named by a descriptor's number, which may be another's once the ring is closed. So it is
//! named under a lock, and the core takes its name away, under the same lock, before it closes it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::PoisonError;

use crate::driver::{Token, message};
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Bell {
    event: OwnedFd,
    name: Name,
}

/// By what name the core's ring is called.
struct Name {
    /// None: the ring takes no messages, or is about to be closed.
    ring: RwLock<Option<RawFd>>,
    /// A message was refused, and so would be the next.
    refused: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        // Blocking: a read of it through the ring then waits, in place of failing with EAGAIN.
        // SAFETY: no memory is passed.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and nobody else has it.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        Ok(Bell { event, name: Name::new() })
    }

    /// What the core reads from, to be woken.
    pub(crate) fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Names the ring that messages go to; None takes the name away. When this returns no thread
    /// uses the name that was there before.
    pub(crate) fn name(&self, ring: Option<RawFd>) {
        self.name.set(ring);
    }

    /// Wakes the core.
    pub(crate) fn ring(&self) {
        if !self.name.call(|ring| message::post(ring, Token::WAKE)) {
            let one = 1_u64;
            // SAFETY: eight bytes are read from `one`. The write would block if the counter neared
            // 2^64, but each sleep adds at most one, and the core reads it when it wakes.
            unsafe { libc::write(self.event(), (&raw const one).cast(), 8) };
        }
    }
}

impl Name {
    fn new() -> Name {
        Name { ring: RwLock::new(None), refused: AtomicBool::new(false) }
    }

    fn set(&self, ring: Option<RawFd>) {
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = ring;
    }

    /// Posts a message to the ring, if there is one that takes it. The name is not taken away before
    /// that is done.
    fn call(&self, post: impl FnOnce(RawFd) -> io::Result<()>) -> bool {
        if self.refused.load(Ordering::Relaxed) {
            return false;
        }
        let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
        match ring.map(post) {
            Some(Ok(())) => true,
            Some(Err(error)) => {
                if is_for_good(&error) {
                    // Whoever misses it asks once more.
                    self.refused.store(true, Ordering::Relaxed);
                }
                false
            }
            None => false,
        }
    }
}

/// Whether the kernel would refuse the next message, too: it can't send them, or may not. Else it had
/// no memory or no room just then.
fn is_for_good(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EOPNOTSUPP)
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use io_uring::IoUring;

    use super::*;

    /// How often a core that reads the event would have been woken by it.
    fn written(bell: &Bell) -> u64 {
        let mut count = 0_u64;
        let mut polled = libc::pollfd { fd: bell.event(), events: libc::POLLIN, revents: 0 };
        // SAFETY: the structs live as long as the calls; a read is of eight bytes.
        unsafe {
            if libc::poll(&raw mut polled, 1, 0) == 1 {
                libc::read(bell.event(), (&raw mut count).cast(), 8);
            }
        }
        count
    }

    #[test]
    fn a_ring_whose_name_was_taken_away_gets_no_message() {
        let bell = Bell::new().unwrap();
        let mut ring = IoUring::new(8).unwrap();
        bell.ring();
        assert_eq!(written(&bell), 1, "it has no name yet");
        bell.name(Some(ring.as_raw_fd()));
        bell.ring();
        let came = ring.completion().map(|entry| entry.user_data()).collect::<Vec<_>>();
        // Kernels before 6.13 can't, and then the event was written to.
        assert_eq!(came.len() as u64 + written(&bell), 1);
        assert!(came.iter().all(|&data| data == Token::WAKE.to_user_data()));
        // From here on the number may be another's.
        bell.name(None);
        bell.ring();
        assert!(ring.completion().is_empty());
        assert_eq!(written(&bell), 1);
    }

    #[test]
    fn a_message_that_is_refused_is_written_instead() {
        let bell = Bell::new().unwrap();
        bell.name(Some(bell.event()));
        bell.ring();
        assert_eq!(written(&bell), 1);
    }

    #[test]
    fn who_was_refused_for_good_is_not_asked_again() {
        for (errno, for_good) in [
            (libc::EPERM, true),
            (libc::ENOSYS, true),
            (libc::EINVAL, true),
            (libc::ENOMEM, false),
            (libc::EOVERFLOW, false),
        ] {
            assert_eq!(is_for_good(&io::Error::from_raw_os_error(errno)), for_good, "{errno}");
        }
        let bell = Bell::new().unwrap();
        let mut ring = IoUring::new(8).unwrap();
        bell.name(Some(ring.as_raw_fd()));
        bell.name.refused.store(true, Ordering::Relaxed);
        bell.ring();
        assert!(ring.completion().is_empty());
        assert_eq!(written(&bell), 1);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    use super::*;
    use crate::doze::Doze;
    use crate::doze::model::Event;

    /// A core and its bell: the ring's descriptor is closed at the core's end, and its number may then
    /// be another's.
    struct Core {
        doze: Doze,
        work: AtomicUsize,
        name: Name,
        closed: AtomicBool,
        event: Event,
    }

    impl Core {
        /// Brings work from another thread. `refused` is what the kernel says to a message, if it does
        /// not take it.
        fn bring(&self, refused: Option<i32>) {
            self.work.fetch_add(1, Ordering::Relaxed);
            if self.doze.call() && !self.name.call(|_| self.post(refused)) {
                self.event.happen();
            }
        }

        fn post(&self, refused: Option<i32>) -> io::Result<()> {
            assert!(!self.closed.load(Ordering::Relaxed), "a message to whose the number is now");
            match refused {
                Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                None => Ok(self.event.happen()),
            }
        }

        /// Sleeps until so much work has come.
        fn work(&self, most: usize) {
            let mut done = 0;
            while done < most {
                if self.doze.wake_up() {
                    done += self.work.swap(0, Ordering::Relaxed);
                } else if self.doze.fall_asleep() {
                    self.event.wait();
                }
            }
        }

        /// Ends, awake: a timer or a request of its own has ended the sleep before.
        fn end(&self) {
            self.doze.fall_asleep();
            self.doze.wake_up();
            self.name.set(None);
            self.closed.store(true, Ordering::Relaxed);
        }
    }

    /// What a core does while two threads bring it work. A wake that is lost shows as a deadlock, which
    /// loom finds.
    fn model(refused: Option<i32>, run: fn(&Core)) {
        loom::model(move || {
            let core = Arc::new(Core {
                doze: Doze::new(),
                work: AtomicUsize::new(0),
                name: Name::new(),
                closed: AtomicBool::new(false),
                event: Event::default(),
            });
            core.name.set(Some(7));
            let bringers = [(); 2].map(|()| {
                let core = core.clone();
                thread::spawn(move || core.bring(refused))
            });
            run(&core);
            bringers.into_iter().for_each(|bringer| bringer.join().unwrap());
        });
    }

    #[test]
    fn a_name_that_was_taken_away_is_used_by_nobody() {
        model(None, Core::end);
    }

    #[test]
    fn a_core_is_woken_whatever_the_kernel_says_to_a_message() {
        for refused in [None, Some(libc::ENOMEM), Some(libc::EPERM)] {
            model(refused, |core| core.work(2));
        }
    }
}
