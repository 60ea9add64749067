//! The way into a runtime for programs on other threads: futures that are made there, whose output
//! comes back.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

use crate::inbox::Line;
#[cfg(doc)]
use crate::promise::Lost;
use crate::promise::{RemoteHandle, promise};
use crate::remote::Remote;
use crate::runtime::spawn_from;
use crate::task::Stage;

/// A way into a runtime from any thread.
///
/// ```
/// use bowline_runtime::{Handle, Runtime};
///
/// let (send, receive) = std::sync::mpsc::channel();
/// let core = std::thread::spawn(move || {
///     let runtime = Runtime::builder().build().unwrap();
///     send.send(runtime.handle()).unwrap();
///     runtime.block_on(std::future::pending::<()>());
/// });
/// let handle: Handle = receive.recv().unwrap();
///
/// // Await it in whatever executor there is, or block on it, as here.
/// let sum = handle.spawn(|| async { 40 + 2 });
/// assert_eq!(sum.wait().unwrap(), 42);
/// ```
#[derive(Clone)]
pub struct Handle {
    remote: Arc<Remote>,
}

impl Handle {
    pub(crate) fn new(remote: Arc<Remote>) -> Handle {
        Handle { remote }
    }

    /// Runs a future on the runtime. It is made there, by the closure, and need not be Send; its
    /// output comes back. Dropping the [`RemoteHandle`] detaches the task.
    ///
    /// The runtime takes in what has come once a turn, but no more than 256 that have not begun, so
    /// that what else it does goes on however much comes. If 4096 wait already it is swamped, or
    /// stuck: this one is refused, which the handle tells ([`Lost::Refused`]) and
    /// [`Metrics::remote_refused`](crate::Metrics::remote_refused) counts. What is spawned at
    /// [`Stage::Background`] is counted apart, so that nothing else waits for it.
    ///
    /// Whoever calls this, wakes a task or sends to a channel of a core that sleeps makes a system
    /// call: `io_uring_register` where the kernel can send a message (6.13), else `write`. A filter
    /// of system calls on that thread has to let both through.
    #[track_caller]
    pub fn spawn<C, F>(&self, make: C) -> RemoteHandle<F::Output>
    where
        C: FnOnce() -> F + Send + 'static,
        F: Future<Output: Send> + 'static,
    {
        self.spawn_at(Stage::Work, make)
    }

    /// As [`Handle::spawn`], with the stage at which the task is to run.
    #[track_caller]
    pub fn spawn_at<C, F>(&self, stage: Stage, make: C) -> RemoteHandle<F::Output>
    where
        C: FnOnce() -> F + Send + 'static,
        F: Future<Output: Send> + 'static,
    {
        let (promise, handle) = promise();
        let (refuse, spawned) = (promise.refusal(), Location::caller());
        let job = Box::new(move |place| {
            drop(spawn_from(spawned, stage, async move {
                drop(place);
                promise.keep(make().await);
            }));
        });
        if let Err(job) = self.remote.push_job(Line::of(stage), job) {
            refuse();
            drop(job);
        }
        handle
    }

    /// Runs a closure on the runtime, and never refuses it: for what ends something that was begun
    /// there, a cancellation or a shutdown, which must not be lost when a core is swamped. What
    /// this thread has spawned before, but at [`Stage::Background`], is polled before. Once the
    /// runtime has ended it does nothing.
    ///
    /// Orders are not bounded by a number. Give no more of them than there are things to end.
    #[track_caller]
    pub fn order(&self, end: impl FnOnce() + Send + 'static) {
        let spawned = Location::caller();
        let order = move |place| {
            drop(spawn_from(spawned, Stage::Work, async move {
                drop(place);
                end();
            }));
        };
        self.remote.push_order(Box::new(order));
    }

    /// Whether the runtime has ended.
    pub fn is_closed(&self) -> bool {
        self.remote.inbox().is_closed()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}
