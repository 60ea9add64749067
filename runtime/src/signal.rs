//! Awaiting signals.
//!
//! A handler may do next to nothing: it counts, and writes to an eventfd of everybody who waits.
//! Those eventfds are never closed, but used again, so that a handler, on whatever thread it was
//! interrupted, never writes to a descriptor that has become something else.
//!
//! ```
//! use bowline_runtime::signal::{Signal, Signals};
//! use bowline_runtime::Runtime;
//!
//! Runtime::builder().build()?.block_on(async {
//!     let mut signals = Signals::new(&[Signal::Interrupt, Signal::Terminate]).unwrap();
//! #   std::process::Command::new("kill").args(["-TERM", &std::process::id().to_string()]).status().unwrap();
//!     assert_eq!(signals.next().await.unwrap(), Signal::Terminate);
//! });
//! # Ok::<(), bowline_runtime::Error>(())
//! ```

use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::core;
use crate::driver::{Request, Transfer};
use crate::operation::{Kept, Operation};

/// A signal that can be awaited.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Signal {
    /// SIGINT: somebody pressed Ctrl-C.
    Interrupt,
    /// SIGTERM: the process is to end.
    Terminate,
    /// SIGHUP: the terminal has gone, or a daemon is to read its configuration again.
    HangUp,
}

impl Signal {
    const ALL: [Signal; 3] = [Signal::Interrupt, Signal::Terminate, Signal::HangUp];

    fn number(self) -> i32 {
        match self {
            Signal::Interrupt => libc::SIGINT,
            Signal::Terminate => libc::SIGTERM,
            Signal::HangUp => libc::SIGHUP,
        }
    }
}

/// So many [`Signals`] can exist at once.
const MOST_WAITERS: usize = 64;

/// How often each signal came.
static CAME: [AtomicU64; Signal::ALL.len()] = [const { AtomicU64::new(0) }; Signal::ALL.len()];
/// The eventfds of those who wait, or waited; -1 where there never was one.
static EVENTS: [AtomicI32; MOST_WAITERS] = [const { AtomicI32::new(-1) }; MOST_WAITERS];
static TAKEN: Mutex<Taken> = Mutex::new(Taken { events: 0, signals: [false; Signal::ALL.len()] });

/// What is in use.
struct Taken {
    /// A bit for each of the eventfds.
    events: u64,
    /// Those that have our handler.
    signals: [bool; Signal::ALL.len()],
}

fn taken() -> MutexGuard<'static, Taken> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn handle(number: libc::c_int) {
    // SAFETY: the location of errno is the thread's own; it is put back as it was, for the code
    // that was interrupted.
    let errno = unsafe { *libc::__errno_location() };
    for (signal, came) in Signal::ALL.iter().zip(&CAME) {
        if signal.number() == number {
            came.fetch_add(1, Ordering::SeqCst);
        }
    }
    for event in &EVENTS {
        let fd = event.load(Ordering::SeqCst);
        if fd >= 0 {
            let one = 1_u64;
            // SAFETY: `write` may be called in a handler; it reads eight bytes from `one`. The
            // descriptor is an eventfd, as those are never closed.
            unsafe { libc::write(fd, (&raw const one).cast(), 8) };
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn install(signal: Signal) -> io::Result<()> {
    // SAFETY: all bits zero is a valid sigaction: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler does only what a handler may: see there.
    let result =
        unsafe { libc::sigaction(signal.number(), &raw const action, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The use of one of the eventfds.
struct Waiter(usize);

impl Waiter {
    fn new(signals: &[Signal]) -> io::Result<Waiter> {
        let mut taken = taken();
        let place = taken.events.trailing_ones() as usize;
        if place == MOST_WAITERS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        if EVENTS[place].load(Ordering::SeqCst) < 0 {
            // SAFETY: no memory is passed.
            let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            EVENTS[place].store(fd, Ordering::SeqCst);
        }
        for &signal in signals {
            if !taken.signals[signal as usize] {
                install(signal)?;
                taken.signals[signal as usize] = true;
            }
        }
        taken.events |= 1 << place;
        Ok(Waiter(place))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        taken().events &= !(1 << self.0);
    }
}

/// Some signals, to be awaited by a task of one runtime. From now on they do nothing else: the
/// process does not end by them, even when this is dropped.
pub struct Signals {
    waiter: Rc<Waiter>,
    /// Each signal, and how often it had come when last looked at.
    seen: Vec<(Signal, u64)>,
}

impl Signals {
    /// Waits for these. Those that came before don't count.
    ///
    /// # Errors
    ///
    /// What the kernel says; `QuotaExceeded` if 64 of these exist in the process.
    pub fn new(signals: &[Signal]) -> io::Result<Signals> {
        let waiter = Rc::new(Waiter::new(signals)?);
        let came = |signal: Signal| CAME[signal as usize].load(Ordering::SeqCst);
        let seen = signals.iter().map(|&signal| (signal, came(signal))).collect();
        Ok(Signals { waiter, seen })
    }

    /// The next signal. Several of one kind between two calls are one. Dropping the future loses
    /// none.
    ///
    /// # Errors
    ///
    /// If the runtime ends.
    ///
    /// # Panics
    ///
    /// Outside a runtime.
    pub async fn next(&mut self) -> io::Result<Signal> {
        loop {
            for (signal, seen) in &mut self.seen {
                let came = CAME[*signal as usize].load(Ordering::SeqCst);
                if std::mem::replace(seen, came) != came {
                    return Ok(*signal);
                }
            }
            let core = core::current();
            let mut count = core.pool.take_plain(8);
            let request = Request::Read(Transfer {
                fd: EVENTS[self.waiter.0].load(Ordering::SeqCst),
                place: None,
                data: count.as_mut_ptr(),
                length: 8,
                offset: 0,
                registered: false,
            });
            let kept = Kept {
                buffer: Some(count),
                descriptor: Some(self.waiter.clone()),
                ..Kept::default()
            };
            // SAFETY: the memory is the buffer's, which is kept. The descriptor is never closed.
            match unsafe { Operation::submit(&core, request, kept) }.await.0 {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}
