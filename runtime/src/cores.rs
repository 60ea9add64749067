//! Runtimes on several cores.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::thread;

use crate::builder::Builder;
use crate::error::Error;
use crate::handle::Handle;

/// Threads that run a runtime each. Dropping it detaches them.
#[derive(Debug)]
pub struct Cores<T> {
    threads: Vec<thread::JoinHandle<Option<T>>>,
    handles: Vec<Handle>,
}

impl Builder {
    /// Starts a thread with a runtime for each of the CPUs given, pinned to it, and runs on each
    /// the future that `make` makes when given the thread's place in the list.
    ///
    /// It returns when all runtimes stand, or none runs.
    ///
    /// ```
    /// use bowline_runtime::Runtime;
    ///
    /// let cores = Runtime::builder().cores([0, 0], |index| async move { index * 10 })?;
    /// assert_eq!(cores.join().unwrap(), [0, 10]);
    /// # Ok::<(), bowline_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first reason for which one of them could not be had.
    pub fn cores<C, F>(
        &self,
        cpus: impl IntoIterator<Item = usize>,
        make: C,
    ) -> Result<Cores<F::Output>, Error>
    where
        C: Fn(usize) -> F + Send + Sync + 'static,
        F: Future<Output: Send + 'static>,
    {
        let make = Arc::new(make);
        let mut cores = Cores { threads: Vec::new(), handles: Vec::new() };
        let mut starts = Vec::new();
        for (index, cpu) in cpus.into_iter().enumerate() {
            let (stand, stands) = mpsc::sync_channel(1);
            let (start, started) = mpsc::sync_channel::<()>(1);
            let (builder, make) = (self.clone().pin(Some(cpu)), make.clone());
            let body = move || {
                let runtime = match builder.build() {
                    Ok(runtime) => runtime,
                    Err(error) => {
                        let _ = stand.send(Err(error));
                        return None;
                    }
                };
                // Whoever waits for these has gone only if another core could not be had.
                stand.send(Ok(runtime.handle())).ok()?;
                started.recv().ok()?;
                Some(runtime.block_on(make(index)))
            };
            let thread = thread::Builder::new()
                .name(format!("bowline-{index}"))
                .spawn(body)
                .map_err(Error::io("starting a thread"))?;
            let handle = stands.recv().map_err(|_| Error::Io {
                what: "the thread of a core died",
                source: std::io::ErrorKind::BrokenPipe.into(),
            })??;
            cores.threads.push(thread);
            cores.handles.push(handle);
            starts.push(start);
        }
        for start in starts {
            // A thread that is gone has panicked, which `join` tells.
            let _ = start.send(());
        }
        Ok(cores)
    }
}

impl<T> Cores<T> {
    /// A way into each of the runtimes, in the order of the CPUs given.
    pub fn handles(&self) -> &[Handle] {
        &self.handles
    }

    /// Waits until all have ended, and gives what they gave, in the same order.
    ///
    /// # Errors
    ///
    /// The payload of the first, in this order, that panicked.
    pub fn join(self) -> thread::Result<Vec<T>> {
        let ended: Vec<thread::Result<Option<T>>> =
            self.threads.into_iter().map(thread::JoinHandle::join).collect();
        ended.into_iter().filter_map(thread::Result::transpose).collect()
    }
}
