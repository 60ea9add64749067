//! How one thread sleeps while others may want it: the protocol without what it guards.
//!
//! The sleeper announces that it will sleep and then looks once more for work. Whoever brings work
//! puts it down and then looks whether the other sleeps. Between what each does and what it looks
//! at stands a fence, so that at least one of the two sees the other: no work is slept over. Only
//! whoever finds the other asleep pays for waking it, and only the first to do so.
//!
//! The flag is only ever swapped, so that its changes stand in one order of which all know.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Whether the thread sleeps, or is about to.
pub(crate) struct Doze {
    asleep: AtomicBool,
}

impl Doze {
    pub(crate) fn new() -> Doze {
        Doze { asleep: AtomicBool::new(false) }
    }

    /// Announces sleep. False if there is work after all: then the thread is awake.
    pub(crate) fn fall_asleep(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.asleep.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if has_work() {
            self.wake_up();
            return false;
        }
        true
    }

    /// Ends the sleep, from within.
    pub(crate) fn wake_up(&self) {
        self.asleep.swap(false, Ordering::AcqRel);
    }

    /// To be called by who has put work down. True if the thread sleeps, and it is for the caller
    /// to wake it.
    #[must_use = "the caller has to wake the sleeper"]
    pub(crate) fn is_to_be_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel)
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
                        if doze.is_to_be_woken() {
                            event.happen();
                        }
                    })
                })
                .collect();
            let mut done = 0;
            while done < bringers {
                done += work.swap(0, Ordering::Relaxed);
                if done < bringers && doze.fall_asleep(|| work.load(Ordering::Relaxed) > 0) {
                    event.wait();
                    doze.wake_up();
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
