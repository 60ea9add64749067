//! Building a runtime.

use std::io;
use std::sync::Arc;

use bowline_time::Duration;

use crate::buffer::Region;
use crate::core::{Core, Settings, is_entered};
use crate::driver::provided::{MOST_BUFFERS, ProvidedBuffers, ReceiveMode};
use crate::driver::ring::Ring;
#[cfg(feature = "simulated-driver")]
use crate::driver::sim::{Faults, Sim, Simulation};
use crate::driver::switch::Driver;
use crate::error::Error;
use crate::probe;
use crate::remote::{Registration, Remote};
use crate::runtime::Runtime;

/// How a runtime is to be. [`Runtime::builder`] gives the default.
#[derive(Clone, Debug)]
pub struct Builder {
    cpu: Option<usize>,
    entries: u32,
    completions: Option<u32>,
    buffer_count: u16,
    buffer_size: u32,
    receive_mode: ReceiveMode,
    submission_thread: Option<Duration>,
    file_places: u32,
    registered_buffers: (usize, usize),
    patience: Duration,
    busy_poll: Duration,
    settings: Settings,
    #[cfg(feature = "simulated-driver")]
    simulated: Option<Simulated>,
}

/// Which simulation takes the place of io_uring.
#[cfg(feature = "simulated-driver")]
#[derive(Clone, Debug)]
enum Simulated {
    /// One of its own, by a seed.
    Alone(u64, Faults),
    /// One that others take part in.
    With(Simulation),
}

impl Builder {
    pub(crate) fn new() -> Builder {
        Builder {
            cpu: None,
            entries: 1024,
            completions: None,
            buffer_count: 256,
            buffer_size: 16 << 10,
            receive_mode: ReceiveMode::Single,
            submission_thread: None,
            file_places: 64,
            registered_buffers: (0, 0),
            patience: Duration::from_secs(5),
            busy_poll: Duration::ZERO,
            settings: Settings {
                spin: Duration::ZERO,
                budget: Duration::from_micros(200),
                background_percent: 10,
                stall: None,
                linger: Duration::from_secs(5),
                zero_copy: None,
            },
            #[cfg(feature = "simulated-driver")]
            simulated: None,
        }
    }

    /// Pins the thread to a CPU. Default: not pinned.
    #[must_use]
    pub fn pin(mut self, cpu: Option<usize>) -> Builder {
        self.cpu = cpu;
        self
    }

    /// For how long, at most, the thread looks for something to do before it sleeps. A wake from sleep
    /// costs tens of microseconds; spinning costs a CPU. So it adapts: it looks that long as long as
    /// it finds something, half as long each time it did not, soon not at all where work comes rarely,
    /// and again once work comes as soon as it would have been found.
    /// [`Metrics::spins_in_vain`](crate::Metrics::spins_in_vain) tells how often it looked for nothing.
    /// Default: not at all.
    #[must_use]
    pub fn spin(mut self, spin: Duration) -> Builder {
        self.settings.spin = spin;
        self
    }

    /// For how long a wait polls the network cards that connections come from, in whole
    /// microseconds, before the thread sleeps (NAPI busy polling). It spares the interrupt and part
    /// of the wake, and costs a CPU while it lasts; connections of the same machine gain nothing.
    /// Where the kernel can't, a warning event says so. Default: not at all.
    #[must_use]
    pub fn busy_poll(mut self, time: Duration) -> Builder {
        self.busy_poll = time;
        self
    }

    /// For how long the tasks of a stage run before the loop turns to look for input. It bounds the
    /// delay that many short tasks cause, not that of one long poll. Input is looked for during two
    /// budgets at most. Default: 200 µs.
    #[must_use]
    pub fn budget(mut self, budget: Duration) -> Builder {
        self.settings.budget = budget;
        self
    }

    /// What part of the time tasks of [`Stage::Background`](crate::Stage::Background) get while
    /// others are ready too, in percent: from 1 to 50. It is measured by the clock, poll by poll.
    /// Default: 10.
    #[must_use]
    pub fn background_share(mut self, percent: u8) -> Builder {
        self.settings.background_percent = percent;
        self
    }

    /// Reports each poll of a task that takes so long, or longer: in a warning, which names the
    /// task, and in [`Metrics::stalls`](crate::Metrics::stalls). Watching costs two readings of the
    /// clock, some 20 ns, a poll. A task is called by [its name](crate::JoinHandle::named), or else its future's type, and
    /// by where it was spawned. Default: not watched.
    #[must_use]
    pub fn stall(mut self, limit: Option<Duration>) -> Builder {
        self.settings.stall = limit;
        self
    }

    /// How many requests are handed to the kernel at once. More than that are handed over in several
    /// calls; none is refused. The kernel rounds it up to a power of two. Default: 1024.
    #[must_use]
    pub fn entries(mut self, entries: u32) -> Builder {
        self.entries = entries;
        self
    }

    /// How many completions the kernel can post before it has to put them aside, which is slow.
    /// Default: four times as many as there are entries.
    #[must_use]
    pub fn completions(mut self, completions: u32) -> Builder {
        self.completions = Some(completions);
        self
    }

    /// The receive buffers that all connections of the runtime share: how many, rounded up to a
    /// power of two and at most 32 768, and of how many bytes each. Default: 256 of 16 KiB.
    #[must_use]
    pub fn buffers(mut self, count: u16, size: u32) -> Builder {
        self.buffer_count = count;
        self.buffer_size = size;
        self
    }

    /// How the kernel fills the receive buffers. Where it can't do it so, or has a thread that takes
    /// requests, it fills one at a time, and a warning says why;
    /// [`Runtime::receive_mode`] tells which it is. Default: [`ReceiveMode::Single`].
    #[must_use]
    pub fn receive_mode(mut self, mode: ReceiveMode) -> Builder {
        self.receive_mode = mode;
        self
    }

    /// Has a thread of the kernel's take requests (SQPOLL), which sleeps when there were none for
    /// `idle`. The core then hardly ever enters the kernel, which helps where it has a second CPU to
    /// give away that does nothing else, requests are many, and calls are dear; on a CPU that
    /// somebody else wants too, it makes everything slower.
    ///
    /// The order of [the turn](crate#the-turn) is looser with it: what a stage asks of the kernel is
    /// under way before the next stage, but may not have been done. Receive buffers are filled
    /// [one at a time](ReceiveMode::Single). Where the kernel refuses the
    /// thread, a warning says so, and the core hands its requests over by itself. Default: none.
    #[must_use]
    pub fn submission_thread(mut self, idle: Option<Duration>) -> Builder {
        self.submission_thread = idle;
        self
    }

    /// Places for files that are [registered](crate::fs::OpenOptions::registered) with the kernel.
    /// Default: 64.
    #[must_use]
    pub fn registered_files(mut self, places: u32) -> Builder {
        self.file_places = places;
        self
    }

    /// Buffers of `size` bytes, `count` of them, whose memory the kernel pins once for all, so that
    /// transfers of files need not: this pays with direct I/O in small blocks.
    /// [`buffer::take`](crate::buffer::take) gives them out first, for lengths of up to `size` and
    /// more than half of it (`size` is rounded up to a power of two, and to 4 KiB at least).
    ///
    /// Without CAP_IPC_LOCK such memory is limited by RLIMIT_MEMLOCK, and in any case to 1 GiB. If
    /// the kernel refuses it, a warning says why and what helps, and buffers are as they always
    /// are. Default: none.
    #[must_use]
    pub fn registered_buffers(mut self, count: usize, size: usize) -> Builder {
        self.registered_buffers = (count, size);
        self
    }

    /// How long a connection that is dropped may take to send what it still holds, and its peer to
    /// end. Default: 5 s.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Builder {
        self.settings.linger = linger;
        self
    }

    /// From how many bytes on, up to the 1 MiB of one request, what is sent over TCP is not copied
    /// into the kernel but sent from where it is. It pays, if at all, from some tens of kilobytes
    /// on, and where the network card takes part: the kernel has to pin pages and tell when it is
    /// done, and copies after all what goes over loopback. So there is no threshold that suits all:
    /// `cargo bench -p bowline-runtime-bench --bench zero_copy` finds it, between two hosts of yours, and
    /// [`Metrics::zero_copy_sends`](crate::Metrics::zero_copy_sends) tells how often it was met.
    ///
    /// A connection has one such request at a time, until its peer has acknowledged it: what it
    /// keeps locked is bounded by that, and it sends no more than 1 MiB a round trip. What else is
    /// queued meanwhile, however short, leaves after it. Where it can't be done, the
    /// bytes are copied, and [`Metrics::zero_copy_refused`](crate::Metrics::zero_copy_refused)
    /// counts it: all bytes of a connection that can't do it, and those of one request while the
    /// user has as much memory locked as `RLIMIT_MEMLOCK` allows, often 8 MiB, which a few slow
    /// peers use up. Default: everything is copied.
    #[must_use]
    pub fn zero_copy(mut self, threshold: Option<usize>) -> Builder {
        self.settings.zero_copy = threshold;
        self
    }

    /// How long the runtime waits at its end for the kernel to let go of its memory. After that,
    /// the memory is leaked, and an error event says so. Default: 5 s.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Builder {
        self.patience = patience;
        self
    }

    /// Uses no io_uring, but a simulation of what it may do, driven by a seed. For tests.
    #[cfg(feature = "simulated-driver")]
    #[must_use]
    pub fn simulate(mut self, seed: u64, faults: Faults) -> Builder {
        self.simulated = Some(Simulated::Alone(seed, faults));
        self
    }

    /// Uses no io_uring, but has the runtime take part in a simulation, under its clock and on its
    /// network, with all others that do. For tests.
    #[cfg(feature = "simulated-driver")]
    #[must_use]
    pub fn simulate_in(mut self, simulation: &Simulation) -> Builder {
        self.simulated = Some(Simulated::With(simulation.clone()));
        self
    }

    fn driver(&self, entries: u32, completions: u32) -> Result<Driver, Error> {
        #[cfg(feature = "simulated-driver")]
        match &self.simulated {
            Some(Simulated::Alone(seed, faults)) => {
                return Ok(Driver::Sim(Box::new(Sim::alone(*seed, *faults, completions))));
            }
            Some(Simulated::With(simulation)) => {
                return Ok(Driver::Sim(Box::new(Sim::new(simulation.world(), completions))));
            }
            None => {}
        }
        let mut ring = match Ring::new(entries, completions, self.submission_thread) {
            Err(error) if self.submission_thread.is_some() => {
                tracing::warn!(%error, "no thread of the kernel's takes requests: the core does");
                Ring::new(entries, completions, None)?
            }
            ring => ring?,
        };
        probe::tell_shortcomings(&ring.features());
        if !self.busy_poll.is_zero() {
            ring.busy_poll(self.busy_poll);
        }
        Ok(Driver::Ring(ring))
    }

    /// Makes the runtime, for this thread. It is bound to it. The thread stays pinned, if it is to
    /// be, and its timers precise (a timer slack of 1 ns), when the runtime has ended.
    ///
    /// # Errors
    ///
    /// [`Error`] says why it is not to be had, and what helps.
    pub fn build(&self) -> Result<Runtime, Error> {
        if is_entered() {
            return Err(Error::Nested);
        }
        if let Some(cpu) = self.cpu
            && !core_affinity::set_for_current(core_affinity::CoreId { id: cpu })
        {
            return Err(Error::Pin { cpu });
        }
        lower_timer_slack();
        let entries = self.entries.max(2);
        let completions = self.completions.unwrap_or(entries.saturating_mul(4)).max(entries);
        // First, so that nothing can fail any more once the kernel knows the receive buffers: they
        // must not be freed before the driver.
        let remote = Arc::new(Remote::new().map_err(Error::io("eventfd"))?);
        let registration = Registration::new(remote.clone())?;
        let mut driver = self.driver(entries, completions)?;
        let count = self.buffer_count.clamp(1, MOST_BUFFERS).next_power_of_two();
        let size = self.buffer_size.max(1);
        let buffers = ProvidedBuffers::new(&mut driver, count, size, self.receive_mode)?;
        let places = register_files(&mut driver, self.file_places);
        let region = register_buffers(&mut driver, self.registered_buffers);
        let core = Core::new(self.settings, driver, buffers, remote, registration);
        core.places.replace(places);
        if let Some(region) = region {
            core.pool.add_region(region);
        }
        Ok(Runtime::new(core, self.patience))
    }
}

/// Makes places for files: the numbers of those that there are then.
fn register_files(driver: &mut Driver, count: u32) -> Vec<u32> {
    if count == 0 {
        return Vec::new();
    }
    match driver.register_files(count) {
        Ok(()) => (0..count).rev().collect(),
        Err(error) => {
            tracing::warn!(%error, count, "no files can be registered: each transfer looks its up");
            Vec::new()
        }
    }
}

/// Makes memory that the kernel knows; None if it is not to be, or can't be had.
fn register_buffers(driver: &mut Driver, (count, size): (usize, usize)) -> Option<Region> {
    if count == 0 {
        return None;
    }
    let refused = |error: io::Error| {
        let error = Error::of_region(error);
        tracing::warn!(%error, count, size, "no buffers are registered: each transfer pins its own");
    };
    let Some(region) = Region::new(count, size) else {
        refused(io::ErrorKind::OutOfMemory.into());
        return None;
    };
    let (memory, length) = region.memory();
    // SAFETY: the blocks of the region keep it, and requests keep the blocks that they name.
    match unsafe { driver.register_memory(memory, length) } {
        Ok(()) => Some(region),
        Err(error) => {
            refused(error);
            None
        }
    }
}

/// The kernel may delay a timer by this thread's slack, 50 µs by default, to batch wakes.
fn lower_timer_slack() {
    // SAFETY: no memory is passed. If it fails, timers are later, and the metrics tell.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}
