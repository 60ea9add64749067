//! How one thread sleeps while others may want it: the protocol without what it guards.
//!
//! Whoever brings work puts it down and then calls. A call stands until the thread takes it: it does
//! not fall asleep over one, and once it has taken it, it sees all that was put down before. Only the
//! call that finds it asleep has to wake it.
//!
//! The state is only ever swapped by who calls, so that its changes stand in one order of which all
//! know, and a call that follows another hands on what that one had to show.

use crate::sync::atomic::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
/// Asleep, or about to be.
const ASLEEP: u8 = 1;
/// Wanted, be it awake or not.
const CALLED: u8 = 2;

/// Whether the thread sleeps, and whether it is wanted.
pub(crate) struct Doze {
    state: AtomicU8,
}

impl Doze {
    pub(crate) fn new() -> Doze {
        Doze { state: AtomicU8::new(AWAKE) }
    }

    /// Announces sleep. False if the thread was called: then it is awake.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Ends the sleep, if there was one, and takes the call, if there is one. True if there is: then
    /// there may be work, and what is not taken now has to be remembered.
    pub(crate) fn wake_up(&self) -> bool {
        self.state.load(Ordering::Relaxed) != AWAKE
            && self.state.swap(AWAKE, Ordering::Acquire) == CALLED
    }

    /// Whether the thread was called since it woke up last.
    pub(crate) fn is_called(&self) -> bool {
        self.state.load(Ordering::Relaxed) == CALLED
    }

    /// To be called by who has put work down. True if the thread sleeps, and it is for the caller
    /// to wake it.
    #[must_use = "the caller has to wake the sleeper"]
    pub(crate) fn call(&self) -> bool {
        self.state.swap(CALLED, Ordering::Release) == ASLEEP
    }
}

#[cfg(all(test, loom))]
pub(crate) mod model {
    use loom::sync::{Condvar, Mutex};

    /// What an eventfd is: a count that can be added to, and waited for.
    #[derive(Default)]
    pub(crate) struct Event {
        count: Mutex<usize>,
        changed: Condvar,
    }

    impl Event {
        pub(crate) fn happen(&self) {
            *self.count.lock().unwrap() += 1;
            self.changed.notify_one();
        }

        pub(crate) fn wait(&self) {
            let mut count = self.count.lock().unwrap();
            while *count == 0 {
                count = self.changed.wait(count).unwrap();
            }
            *count = 0;
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    use super::model::Event;
    use super::*;

    /// A wake that is lost shows as a deadlock, which loom finds.
    fn nothing_is_slept_over(bringers: usize) {
        loom::model(move || {
            let doze = Arc::new(Doze::new());
            let work = Arc::new(AtomicUsize::new(0));
            let event = Arc::new(Event::default());
            let threads: Vec<_> = (0..bringers)
                .map(|_| {
                    let (doze, work, event) = (doze.clone(), work.clone(), event.clone());
                    thread::spawn(move || {
                        work.fetch_add(1, Ordering::Relaxed);
                        if doze.call() {
                            event.happen();
                        }
                    })
                })
                .collect();
            let mut done = 0;
            loop {
                if doze.wake_up() {
                    done += work.swap(0, Ordering::Relaxed);
                }
                if done == bringers {
                    break;
                }
                if doze.fall_asleep() {
                    event.wait();
                }
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn one_who_brings_work_is_not_slept_over() {
        nothing_is_slept_over(1);
    }

    #[test]
    fn two_who_bring_work_are_not_slept_over() {
        nothing_is_slept_over(2);
    }
}
