//! Tasks, on whatever threads, that wait for something to change.
//!
//! Who waits puts its waker down and then looks again; who changes something does so and then looks
//! for wakers. A fence stands between the two on either side, so that at least one sees the other.
//! Without anybody waiting, a change costs a fence and a load.

use std::task::Waker;

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering, fence},
};
use std::sync::PoisonError;
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering, fence},
};

pub(crate) struct Waiters {
    /// There may be wakers in the list.
    any: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Waiters {
    pub(crate) fn new() -> Waiters {
        Waiters { any: AtomicBool::new(false), wakers: Mutex::new(Vec::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
        // A waker's clone may panic, but leaves the list as it was.
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a waker down. The caller then looks again whether it has to wait at all.
    pub(crate) fn wait(&self, waker: &Waker) {
        let mut wakers = self.lock();
        if !wakers.iter().any(|other| other.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        self.any.store(true, Ordering::Relaxed);
        drop(wakers);
        fence(Ordering::SeqCst);
    }

    /// Wakes all who wait. To be called after the change.
    ///
    /// All, as some may not wait any more: a future that was dropped leaves its waker behind, and
    /// the one wake that there is must not go to it alone.
    pub(crate) fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        // Not more than are there now, as those that are woken may come back at once.
        let count = self.lock().len();
        for _ in 0..count {
            let waker = {
                let mut wakers = self.lock();
                let waker = (!wakers.is_empty()).then(|| wakers.remove(0));
                self.any.store(!wakers.is_empty(), Ordering::Relaxed);
                waker
            };
            match waker {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use loom::future::block_on;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    #[test]
    fn no_change_is_missed() {
        loom::model(|| {
            let waiters = Arc::new(Waiters::new());
            let value = Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (waiters, value) = (waiters.clone(), value.clone());
                    thread::spawn(move || {
                        value.fetch_add(1, Ordering::Relaxed);
                        waiters.wake_all();
                    })
                })
                .collect();
            block_on(poll_fn(|context| {
                if value.load(Ordering::Relaxed) == 2 {
                    return Poll::Ready(());
                }
                waiters.wait(context.waker());
                match value.load(Ordering::Relaxed) {
                    2 => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            }));
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}
