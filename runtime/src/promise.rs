//! An output that is made on one thread and awaited, or waited for, on another.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

use crate::notify::wake;
use crate::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Why there is no output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Lost {
    /// The runtime ended, or the task panicked, before there was one.
    #[error("the task ended without an output: it panicked, or its runtime ended")]
    Ended,
    /// The task never began: the runtime was not keeping up with what other threads ask of it.
    #[error(
        "the task was refused, as 4096 others wait for that runtime already: await some of their \
         handles before spawning more"
    )]
    Refused,
}

enum Outcome<T> {
    Open(Option<Waker>),
    Kept(T),
    Broken,
    Refused,
    Taken,
}

struct Shared<T> {
    outcome: Mutex<Outcome<T>>,
    settled: Condvar,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Outcome<T>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, outcome: Outcome<T>) {
        let mut guard = self.lock();
        if let Outcome::Open(_) = &*guard
            && let Outcome::Open(waker) = std::mem::replace(&mut *guard, outcome)
        {
            drop(guard);
            self.settled.notify_all();
            if let Some(waker) = waker {
                wake(waker);
            }
        }
    }
}

/// To be kept by who makes the output. Dropped before, it is broken, and who waits is told.
pub(crate) struct Promise<T>(Arc<Shared<T>>);

impl<T> Promise<T> {
    pub(crate) fn keep(self, output: T) {
        self.0.settle(Outcome::Kept(output));
    }

    /// What settles that there will be no output, as nobody was found to make it.
    pub(crate) fn refusal(&self) -> impl FnOnce() + use<T> {
        let shared = self.0.clone();
        move || shared.settle(Outcome::Refused)
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.0.settle(Outcome::Broken);
    }
}

pub(crate) fn promise<T>() -> (Promise<T>, RemoteHandle<T>) {
    let shared =
        Arc::new(Shared { outcome: Mutex::new(Outcome::Open(None)), settled: Condvar::new() });
    (Promise(shared.clone()), RemoteHandle(shared))
}

/// A claim on the output of a task that runs on another thread. It is a future for any executor.
#[must_use = "dropping it detaches the task; bind it to `_` to say so, or await it"]
pub struct RemoteHandle<T>(Arc<Shared<T>>);

impl<T> RemoteHandle<T> {
    /// Blocks this thread until the output is there. Not for use inside a runtime.
    ///
    /// # Errors
    ///
    /// [`Lost`] says why there will be none.
    pub fn wait(self) -> Result<T, Lost> {
        let mut outcome = self.0.lock();
        while let Outcome::Open(_) = *outcome {
            outcome = self.0.settled.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
        take(&mut outcome)
    }
}

fn take<T>(outcome: &mut Outcome<T>) -> Result<T, Lost> {
    match std::mem::replace(outcome, Outcome::Taken) {
        Outcome::Kept(output) => Ok(output),
        Outcome::Refused => Err(Lost::Refused),
        _ => Err(Lost::Ended),
    }
}

impl<T> Future for RemoteHandle<T> {
    type Output = Result<T, Lost>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Cloned, and the old one dropped, while nothing is locked: either may come back here.
        let waker = context.waker().clone();
        let mut outcome = self.0.lock();
        if let Outcome::Open(open) = &mut *outcome {
            let replaced = open.replace(waker);
            drop(outcome);
            drop(replaced);
            return Poll::Pending;
        }
        Poll::Ready(take(&mut outcome))
    }
}

impl<T> fmt::Debug for RemoteHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteHandle").finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::future::block_on;
    use loom::thread;

    use super::*;

    /// One thread keeps the promise, or breaks it; the other claims what was promised. A wake that is
    /// lost shows as a deadlock, which loom finds.
    fn is_told(
        settle: impl Fn(Promise<u32>) + Copy + Send + Sync + 'static,
        claim: impl Fn(RemoteHandle<u32>) -> Result<u32, Lost> + Sync + Send + 'static,
        expected: Result<u32, Lost>,
    ) {
        loom::model(move || {
            let (promise, handle) = promise();
            let settling = thread::spawn(move || settle(promise));
            assert_eq!(claim(handle), expected);
            settling.join().unwrap();
        });
    }

    #[test]
    fn who_blocks_for_an_output_gets_it_or_hears_that_there_is_none() {
        is_told(|promise| promise.keep(5), RemoteHandle::wait, Ok(5));
        is_told(drop, RemoteHandle::wait, Err(Lost::Ended));
    }

    #[test]
    fn who_awaits_an_output_gets_it_or_hears_that_there_is_none() {
        is_told(|promise| promise.keep(5), block_on, Ok(5));
        is_told(drop, block_on, Err(Lost::Ended));
    }

    #[test]
    fn a_refusal_is_what_is_told_though_the_promise_breaks_right_after() {
        let refuse = |promise: Promise<u32>| {
            let refusal = promise.refusal();
            refusal();
            drop(promise);
        };
        is_told(refuse, RemoteHandle::wait, Err(Lost::Refused));
        is_told(refuse, block_on, Err(Lost::Refused));
    }

    #[test]
    fn who_moves_to_another_waker_is_woken_by_that() {
        loom::model(|| {
            let (promise, mut handle) = promise();
            let settling = thread::spawn(move || promise.keep(5));
            let first = Pin::new(&mut handle).poll(&mut Context::from_waker(Waker::noop()));
            let output = match first {
                Poll::Ready(output) => output,
                Poll::Pending => block_on(handle),
            };
            assert_eq!(output, Ok(5));
            settling.join().unwrap();
        });
    }

    #[test]
    fn an_output_that_nobody_claims_is_dropped_once() {
        loom::model(|| {
            let (promise, handle) = promise();
            let output = std::sync::Arc::new(());
            let kept = output.clone();
            let settling = thread::spawn(move || promise.keep(kept));
            drop(handle);
            settling.join().unwrap();
            assert_eq!(std::sync::Arc::strong_count(&output), 1);
        });
    }
}
