//! Threads that are waited for when nobody needs them any more, but not for ever.

use std::string::ToString;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// A thread that ends once it has done what it was given.
pub(super) struct Worker {
    thread: JoinHandle<()>,
    /// Nothing is sent: its sender goes when the work is done.
    done: Receiver<()>,
}

impl Worker {
    /// What `work` owns is gone when it counts as done.
    pub(super) fn start(
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Worker> {
        let (working, done): (Sender<()>, _) = channel();
        let thread = thread::Builder::new().name(name.to_string()).spawn(move || {
            // The last of its variables to go.
            let _working = working;
            work();
        })?;
        Ok(Worker { thread, done })
    }

    /// Waits until it is done, but not longer than until then. Whether it is.
    pub(super) fn end(self, until: Instant) -> bool {
        // An effect can own a ledger, and so be the last who does. It ends by itself then.
        if self.thread.thread().id() == thread::current().id() {
            return true;
        }
        let left = until.saturating_duration_since(Instant::now());
        if self.done.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            return false;
        }
        if self.thread.join().is_err() {
            tracing::error!("the thread of a ledger panicked");
        }
        true
    }
}
