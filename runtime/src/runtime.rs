//! Running a runtime, and ending it.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::pin;
use std::ptr::NonNull;
use std::rc::Rc;

use bowline_time::Duration;

use crate::builder::Builder;
use crate::clock::Source;
use crate::core::{Core, Entered};
use crate::driver::provided::ReceiveMode;
use crate::handle::Handle;
use crate::metrics::Metrics;
use crate::task::Stage;
use crate::task::cell::Cell;
use crate::task::join::JoinHandle;

/// A thread's runtime: an io_uring, the tasks, timers, connections and files on it.
///
/// When it is dropped all its tasks are; what is in flight is cancelled, and the kernel waited for
/// until it has let go of all memory. See the [crate's documentation](crate) for an example.
///
/// It is its thread's, and so is all that lives in it, as the kernel takes its requests from that
/// thread alone:
///
/// ```compile_fail,E0277
/// let runtime = bowline_runtime::Runtime::builder().build().unwrap();
/// std::thread::spawn(move || drop(runtime));
/// ```
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<bowline_runtime::net::TcpStream>();
/// ```
pub struct Runtime {
    core: ManuallyDrop<Rc<Core>>,
    patience: Duration,
}

impl Runtime {
    /// How a runtime is to be.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// One that gives up after so long, at its end, to wait for the kernel.
    pub(crate) fn new(core: Rc<Core>, patience: Duration) -> Runtime {
        Runtime { core: ManuallyDrop::new(core), patience }
    }

    /// Runs a future to its end, and all tasks meanwhile. Tasks that have not ended then go on in
    /// the next `block_on`.
    ///
    /// # Panics
    ///
    /// If the future does, and if the thread is inside a runtime already.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let entered = Entered::enter(&self.core).expect("this thread is inside a runtime already");
        let mut cell = pin!(Cell::new(future, Location::caller()));
        // SAFETY: the future is not moved out of the cell.
        let pointer = NonNull::from(unsafe { cell.as_mut().get_unchecked_mut() });
        let erased = Cell::erase(pointer);

        /// Removes the task from the table even if the loop panics.
        struct Adopted<'a>(&'a Core, crate::task::waker::TaskId);
        impl Drop for Adopted<'_> {
            fn drop(&mut self) {
                self.0.tasks.forget(self.1);
            }
        }
        // SAFETY: the cell is pinned on this stack, below `adopted`, which ends before it.
        let adopted = Adopted(&self.core, unsafe { self.core.tasks.adopt(erased) });
        while !self.core.tasks.adopted_ended() {
            self.core.turn();
        }
        drop(adopted);
        // SAFETY: the task has ended, nothing else refers to the cell, and the type is its own.
        let output = unsafe { erased.take::<F::Output>() };
        drop(entered);
        match output {
            Some(Ok(output)) => output,
            Some(Err(error)) => match error.into_panic() {
                Ok(payload) => std::panic::resume_unwind(payload),
                Err(error) => panic!("{error}"),
            },
            None => unreachable!("the task ended, and nobody took its output"),
        }
    }

    /// Makes a task of a future, to run in the next [`block_on`](Runtime::block_on).
    #[track_caller]
    pub fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        spawn_on(&self.core, Stage::Work, future, Location::caller())
    }

    /// A way in for other threads.
    pub fn handle(&self) -> Handle {
        Handle::new(self.core.remote.clone())
    }

    pub(crate) fn clock_source(&self) -> Source {
        self.core.clock.source()
    }

    /// How the kernel fills the receive buffers: as the builder was told, if it can.
    pub fn receive_mode(&self) -> ReceiveMode {
        self.core.buffers.mode()
    }

    /// What it has counted.
    pub fn metrics(&self) -> Metrics {
        self.core.metrics()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Destructors that run now see this runtime, even inside another one.
        let entered = Entered::enter_within(&self.core);
        // If this unwinds the core is leaked, as the kernel may still hold memory.
        let drained = self.core.close(self.patience);
        drop(entered);
        if drained {
            // SAFETY: it is dropped here only, and `self` is gone after.
            unsafe { ManuallyDrop::drop(&mut self.core) };
        } else {
            let requests = self.core.metrics().requests_in_flight;
            tracing::error!(
                requests,
                "the kernel still holds memory of a runtime that ended: leaking it"
            );
        }
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("id", &self.core.id).finish_non_exhaustive()
    }
}

fn spawn_on<F: Future + 'static>(
    core: &Rc<Core>,
    stage: Stage,
    future: F,
    spawned: &'static Location<'static>,
) -> JoinHandle<F::Output> {
    core.counters.spawns.add(1);
    let id = core.tasks.spawn(stage, future, spawned);
    // SAFETY: the task is of this future, and this is its first handle.
    unsafe { JoinHandle::new(core.clone(), id) }
}

/// Makes a task of a future, on the current runtime, at [`Stage::Work`].
///
/// It need not be Send, and nothing is allocated once as many tasks of its size have lived at once,
/// up to 16 KiB each and an alignment of 64 bytes.
///
/// # Panics
///
/// Outside a runtime.
#[track_caller]
pub fn spawn<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    spawn_at(Stage::Work, future)
}

/// Makes a task of a future, on the current runtime, which runs at a stage of the turn.
///
/// # Panics
///
/// Outside a runtime.
#[track_caller]
pub fn spawn_at<F: Future + 'static>(stage: Stage, future: F) -> JoinHandle<F::Output> {
    spawn_from(Location::caller(), stage, future)
}

/// The same, on behalf of who stands elsewhere.
pub(crate) fn spawn_from<F: Future + 'static>(
    spawned: &'static Location<'static>,
    stage: Stage,
    future: F,
) -> JoinHandle<F::Output> {
    spawn_on(&crate::core::current(), stage, future, spawned)
}

#[cfg(all(test, feature = "simulated-driver"))]
mod tests {
    use super::*;
    use crate::Faults;

    #[test]
    fn a_core_is_leaked_whose_memory_the_kernel_never_lets_go_and_freed_where_it_does() {
        let ends = [(1000, Duration::ZERO, true), (500, Duration::from_secs(60), false)];
        for (delay, patience, leaked) in ends {
            let faults = Faults { delay, ..Faults::default() };
            let runtime =
                Runtime::builder().patience(patience).simulate(1, faults).build().unwrap();
            let core = Rc::downgrade(&runtime.core);
            drop(runtime);
            assert_eq!(core.strong_count() > 0, leaked, "delay {delay}");
        }
    }
}
