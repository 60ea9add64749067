//! A thread-per-core io_uring runtime for request/response services on Linux.
//!
//! One [`Runtime`] is one thread with one io_uring. Its tasks are ordinary futures that need not be
//! Send; they never move to another thread, and what they share they share without locks. For more
//! cores, run more runtimes.
//!
//! ```
//! use std::time::Duration;
//! use bowline_runtime::{Runtime, sleep, spawn};
//!
//! let runtime = Runtime::builder().build()?;
//! let sum = runtime.block_on(async {
//!     let part = spawn(async {
//!         sleep(Duration::from_millis(1)).await;
//!         40
//!     });
//!     part.await.unwrap() + 2
//! });
//! assert_eq!(sum, 42);
//! # Ok::<(), bowline_runtime::Error>(())
//! ```
//!
//! # The turn
//!
//! The loop of a runtime goes round in turns, and the order within a turn is part of the interface:
//!
//! 1. The clock is read; [`now`] shows that time.
//! 2. Completions are reaped and the ready tasks of [`Stage::Input`] run, again and again until the
//!    sockets are dry. So all that has arrived is applied before step 4. Sockets that don't run dry
//!    end this after 64 rounds, or two [budgets](Builder::budget): what was reaped until then is
//!    applied, the rest has to wait for the next turn, and [`Metrics::inputs_cut_short`] counts it.
//! 3. The clock is read again, for [`now`] in the rest of the turn, and timers expire.
//! 4. Ready tasks of [`Stage::Decide`] run. What they send is submitted to the kernel before step 5.
//! 5. Ready tasks of [`Stage::Work`] run, the default, until there are none or the time set by
//!    [`Builder::budget`] is up.
//! 6. Ready tasks of [`Stage::Background`] run, until anything else is to be done; if it is, for
//!    their [share](Builder::background_share) of the time.
//! 7. Each connection with something to send makes one request of it; all requests are submitted,
//!    and, if nothing is ready, the thread sleeps until a completion or the next timer.
//!
//! A task that wakes itself while it runs, as [`yield_now`] does, runs again in the next turn.
//!
//! # Memory
//!
//! The kernel never holds a borrow. What it reads from or writes to is owned by the runtime until
//! the kernel has let go, whatever futures are dropped meanwhile; when a runtime ends it waits for
//! that, and if it waits in vain it leaks the memory rather than free it.

pub mod buffer;
pub mod channel;
pub mod clock;
mod core;
mod cores;
#[cfg(feature = "counting-allocator")]
pub mod counting;
mod doze;
mod driver;
mod error;
pub mod exposition;
pub mod fs;
mod histogram;
mod metrics;
pub mod net;
mod notify;
mod operation;
mod probe;
mod remote;
mod runtime;
mod share;
pub mod signal;
mod task;
mod timer;
mod turn;
mod waiters;

pub use bowline_time::{Duration, Instant};
pub use cores::Cores;
#[cfg(feature = "simulated-driver")]
pub use driver::sim::{Faults, Lane, Simulation, Traffic};
pub use error::{Error, OLDEST_KERNEL};
pub use histogram::Histogram;
pub use metrics::{Metrics, metrics};
pub use notify::{Notified, Notify};
pub use probe::{Answer, Feature, Report, Use, probe};
pub use remote::{Handle, Lost, RemoteHandle};
pub use runtime::{Builder, Runtime, spawn, spawn_at};
pub use task::{JoinError, JoinHandle, Stage};
pub use timer::{
    Elapsed, Sleep, clock_now, now, sleep, sleep_until, timeout, timeout_at, yield_now,
};
