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
//! # Programs
//!
//! An echo server, and a client of it:
//!
//! ```
//! use bowline_runtime::net::{ListenOptions, TcpListener, TcpStream};
//! use bowline_runtime::{Runtime, Stage, spawn_at};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! Runtime::builder().build()?.block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0".parse()?, ListenOptions::default())?;
//!     let address = listener.local_addr()?;
//!     // A server's readers run at the stage of the turn at which input is applied.
//!     drop(spawn_at(Stage::Input, async move {
//!         while let Ok(stream) = listener.accept().await {
//!             drop(spawn_at(Stage::Input, async move {
//!                 while let Ok(Some(bytes)) = stream.receive().await {
//!                     stream.send(&bytes);
//!                 }
//!             }));
//!         }
//!     }));
//!     let stream = TcpStream::connect(address, Duration::from_secs(1)).await?;
//!     stream.send(b"hello");
//!     assert_eq!(&stream.receive().await?.ok_or("the server ended")?[..], b"hello");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! A file is copied in [`fs`], and many blocks are read at once by [`fs::Batch`]. Two cores that
//! talk to each other, in messages that need no lock and no allocation:
//!
//! ```
//! use bowline_runtime::{Runtime, channel};
//! use std::sync::Mutex;
//!
//! let (ask, questions) = channel::bounded::<u64>(16);
//! let (tell, answers) = channel::bounded::<u64>(16);
//! // Each core takes the ends that are its own.
//! let (asking, answering) = (Mutex::new(Some((ask, answers))), Mutex::new(Some((tell, questions))));
//! let cores = Runtime::builder().cores([0, 0], move |core| {
//!     let asking = asking.lock().unwrap().take_if(|_| core == 0);
//!     let answering = answering.lock().unwrap().take_if(|_| core == 1);
//!     async move {
//!         let mut sum = 0;
//!         if let Some((ask, mut answers)) = asking {
//!             for number in 1..=10 {
//!                 ask.send(number).await.unwrap();
//!                 sum += answers.receive().await.unwrap();
//!             }
//!         }
//!         if let Some((tell, mut questions)) = answering {
//!             while let Some(number) = questions.receive().await {
//!                 tell.send(number * number).await.unwrap();
//!             }
//!         }
//!         sum
//!     }
//! })?;
//! assert_eq!(cores.join().unwrap(), [385, 0]);
//! # Ok::<(), bowline_runtime::Error>(())
//! ```
//!
//! A program on tokio that has its files read here, and awaits them there:
//!
//! ```
//! use bowline_runtime::fs::{File, OpenOptions};
//! use bowline_runtime::{Runtime, buffer};
//! use std::sync::mpsc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (give, take) = mpsc::channel();
//! let (stop, stopped) = bowline_runtime::channel::bounded::<()>(1);
//! let core = std::thread::spawn(move || {
//!     let runtime = Runtime::builder().build()?;
//!     give.send(runtime.handle()).expect("main waits for it");
//!     let mut stopped = stopped;
//!     runtime.block_on(async { stopped.receive().await });
//!     Ok::<(), bowline_runtime::Error>(())
//! });
//! let storage = take.recv()?;
//! let tokio = tokio::runtime::Builder::new_current_thread().build()?;
//! let zeros = tokio.block_on(async {
//!     // The closure makes the future over there: what it holds need not be Send, its output must.
//!     let reading = storage.spawn(|| async {
//!         let file = File::open("/dev/zero", OpenOptions::new().read(true)).await?;
//!         let (result, block) = file.read_exact_at(buffer::take(4096), 0).await;
//!         result.map(|()| block.iter().filter(|&&byte| byte == 0).count())
//!     });
//!     reading.await
//! });
//! assert_eq!(zeros??, 4096);
//! // With the last sender gone, the core's future ends.
//! drop(stop);
//! core.join().expect("no panic")?;
//! # Ok(())
//! # }
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
//!    Where no task of steps 4 to 6 is ready and no timer due there is nothing to apply it before:
//!    then one round is enough, and what else has arrived comes in as step 7 enters the kernel.
//! 3. The clock is read again, for [`now`] in the rest of the turn, and timers expire.
//! 4. Ready tasks of [`Stage::Decide`] run. What they send is submitted to the kernel before step 5.
//! 5. Ready tasks of [`Stage::Work`] run, the default, until there are none or the time set by
//!    [`Builder::budget`] is up.
//! 6. Ready tasks of [`Stage::Background`] run, until anything else is to be done; if it is, for
//!    their [share](Builder::background_share) of the time.
//! 7. Each connection with something to send makes one request of it; all requests are submitted,
//!    and, if nothing is ready, the thread sleeps until a completion or the next timer.
//!
//! A task that queues 8 KiB or more on a connection does not wait for step 4 or 7: when it has been
//! polled, whatever its stage, all that connections have to say until then is submitted, so that
//! peers begin on it.
//!
//! A task that wakes itself while it runs, as [`yield_now`] does, runs again in the next turn.
//!
//! # Panics
//!
//! A task that panics ends, and nothing else does: it is dropped, whoever awaits it is told by a
//! [`JoinError`], an error event names it and its message though nobody awaits it, and
//! [`Metrics::panics`] counts it. The core goes on, as the connections and files of all others hang
//! on it. A panic of the future that [`Runtime::block_on`] was given comes out of there.
//!
//! That is the only policy here, for the language has the other one: a program that is to end with its
//! first panic is built with `panic = "abort"`, or ends itself in a hook
//! ([`std::panic::set_hook`]), which runs before anything is dropped.
//!
//! # Memory
//!
//! The kernel never holds a borrow. What it reads from or writes to is owned by the runtime until
//! the kernel has let go, whatever futures are dropped meanwhile; when a runtime ends it waits for
//! that, and if it waits in vain it leaks the memory rather than free it.

mod bell;
pub mod buffer;
mod builder;
pub mod channel;
pub mod clock;
mod contain;
mod core;
mod cores;
#[cfg(feature = "counting-allocator")]
pub mod counting;
mod doze;
mod driver;
mod error;
pub mod exposition;
pub mod fs;
mod handle;
mod histogram;
mod inbox;
mod marks;
mod metrics;
pub mod net;
mod notify;
mod operation;
pub mod payload;
mod probe;
mod promise;
mod queue;
mod remote;
mod runtime;
mod share;
pub mod signal;
mod spin;
mod sync;
mod task;
mod timer;
mod turn;
mod waiters;

pub use bowline_time::{Duration, Instant};
pub use builder::Builder;
pub use cores::Cores;
pub use driver::provided::ReceiveMode;
#[cfg(feature = "simulated-driver")]
pub use driver::sim::{Faults, Lane, Simulation, Traffic};
pub use error::{Error, OLDEST_KERNEL, cure};
pub use handle::Handle;
pub use histogram::Histogram;
pub use metrics::{Metrics, metrics};
pub use notify::{Notified, Notify};
pub use probe::{Answer, Feature, Report, Use, probe};
pub use promise::{Lost, RemoteHandle};
pub use runtime::{Runtime, spawn, spawn_at};
pub use task::{JoinError, JoinHandle, Stage};
pub use timer::{
    Elapsed, Sleep, clock_now, now, sleep, sleep_until, timeout, timeout_at, yield_now,
};
