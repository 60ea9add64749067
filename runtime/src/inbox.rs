//! What other threads ask of a core, until it has time for it.
//!
//! They may ask faster than the core can do it. So all that is bounded: of wakes, 1024 wait, and if
//! there are more, every task is woken, which is always allowed; of jobs, 4096 wait, and more are
//! refused. Orders, which end something, are never refused: there is no more of them than of what
//! they end. Jobs and orders stand in one line, so that an order finds begun what it is to end.

use crate::queue::{ArrayQueue, SegQueue};
use crate::task::waker::TaskId;

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// So many wakes can wait. In models it takes few to be too many.
const WAKES: usize = if cfg!(loom) { 1 } else { 1024 };
/// So many jobs can wait.
const JOBS: usize = if cfg!(loom) { 1 } else { 4096 };

/// What runs on the core.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

pub(crate) struct Inbox {
    wakes: ArrayQueue<TaskId>,
    wake_all: AtomicBool,
    asked: SegQueue<Asked>,
    /// How many jobs wait among what is asked, or are about to.
    jobs: AtomicUsize,
    refused: AtomicU64,
    /// Nobody will look any more.
    closed: AtomicBool,
}

enum Asked {
    Job(Job),
    Order(Job),
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox {
            wakes: ArrayQueue::new(WAKES),
            wake_all: AtomicBool::new(false),
            asked: SegQueue::new(),
            jobs: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Asks to wake a task.
    pub(crate) fn push_wake(&self, id: TaskId) {
        if self.wakes.push(id).is_err() {
            self.wake_all.store(true, Ordering::Release);
        }
    }

    /// Asks for a job. Gives it back if too many wait.
    pub(crate) fn push_job(&self, job: Job) -> Result<(), Job> {
        let one_more = |jobs| (jobs < JOBS).then_some(jobs + 1);
        if self.jobs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(job);
        }
        self.push(Asked::Job(job));
        Ok(())
    }

    /// Gives an order.
    pub(crate) fn push_order(&self, order: Job) {
        self.push(Asked::Order(order));
    }

    fn push(&self, asked: Asked) {
        self.asked.push(asked);
        // Beside the one in `close`: either that finds what was pushed, or this that it is closed.
        fence(Ordering::SeqCst);
        if self.is_closed() {
            self.clear();
        }
    }

    /// How many jobs were refused so far.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.has_wakes() && !self.has_asked()
    }

    pub(crate) fn has_wakes(&self) -> bool {
        !self.wakes.is_empty() || self.wake_all.load(Ordering::Acquire)
    }

    /// Whether there are jobs or orders.
    pub(crate) fn has_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Whether all tasks are to be woken.
    pub(crate) fn take_wake_all(&self) -> bool {
        self.wake_all.load(Ordering::Relaxed) && self.wake_all.swap(false, Ordering::AcqRel)
    }

    /// All wakes that there are now.
    pub(crate) fn take_wakes(&self) -> impl Iterator<Item = TaskId> {
        let waiting = self.wakes.len();
        std::iter::from_fn(|| self.wakes.pop()).take(waiting)
    }

    /// Jobs and orders, as they came, up to so many.
    pub(crate) fn take_asked(&self, most: usize) -> impl Iterator<Item = Job> {
        std::iter::from_fn(|| self.pop()).take(most)
    }

    fn pop(&self) -> Option<Job> {
        match self.asked.pop()? {
            Asked::Job(job) => {
                self.jobs.fetch_sub(1, Ordering::Relaxed);
                Some(job)
            }
            Asked::Order(order) => Some(order),
        }
    }

    /// Drops what came, and from now on whatever comes: who awaits results is told.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.clear();
    }

    fn clear(&self) {
        while let Some(asked) = self.pop() {
            drop(asked);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;
    use std::sync::Arc;

    use super::*;
    use crate::doze::Doze;
    use crate::doze::model::Event;

    fn task(index: u32) -> TaskId {
        TaskId { runtime: 0, generation: 0, index }
    }

    /// What is dropped with a job that is not done.
    fn job() -> (Arc<()>, Job) {
        let held = Arc::new(());
        let kept = held.clone();
        (held, Box::new(move || drop(kept)))
    }

    #[test]
    fn what_is_asked_as_it_closes_is_not_left_in_it() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::new());
            let (held_by_job, job) = job();
            let (held_by_order, order) = self::job();
            let asking = thread::spawn({
                let inbox = inbox.clone();
                move || {
                    assert!(inbox.push_job(job).is_ok());
                    inbox.push_order(order);
                }
            });
            inbox.close();
            asking.join().unwrap();
            assert_eq!(Arc::strong_count(&held_by_job), 1);
            assert_eq!(Arc::strong_count(&held_by_order), 1);
        });
    }

    #[test]
    fn no_more_wait_than_may_and_each_is_done_or_refused() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::new());
            let ask = |inbox: Arc<Inbox>| {
                let (held, job) = job();
                move || (inbox.push_job(job).is_ok(), held)
            };
            let asking = thread::spawn(ask(inbox.clone()));
            let (mine, held) = ask(inbox.clone())();
            assert!(inbox.jobs.load(Ordering::Relaxed) <= JOBS);
            let mut done = inbox.take_asked(1).map(|job| job()).count();
            let (others, held_by_other) = asking.join().unwrap();
            done += inbox.take_asked(2).map(|job| job()).count();
            assert_eq!(done, usize::from(mine) + usize::from(others));
            assert_eq!(inbox.refused(), 2 - done as u64);
            assert_eq!((Arc::strong_count(&held), Arc::strong_count(&held_by_other)), (1, 1));
            assert_eq!(inbox.jobs.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn an_order_comes_after_what_its_thread_asked_for_before() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::new());
            let begun = Arc::new(std::sync::Mutex::new(false));
            let asking = thread::spawn({
                let (inbox, begun) = (inbox.clone(), begun.clone());
                move || {
                    let begins = begun.clone();
                    let begin = Box::new(move || *begins.lock().unwrap() = true);
                    assert!(inbox.push_job(begin).is_ok());
                    let end = Box::new(move || assert!(*begun.lock().unwrap()));
                    inbox.push_order(end);
                }
            });
            inbox.take_asked(1).for_each(|job| job());
            inbox.take_asked(1).for_each(|job| job());
            asking.join().unwrap();
            inbox.take_asked(2).for_each(|job| job());
            assert!(!inbox.has_asked() && *begun.lock().unwrap());
        });
    }

    /// A core that sleeps whenever it finds nothing, until each of the tasks was woken. A wake that
    /// is lost shows as a deadlock, which loom finds.
    fn every_task_is_woken(wakers: u32) {
        loom::model(move || {
            let shared = Arc::new((Inbox::new(), Doze::new(), Event::default()));
            let threads: Vec<_> = (0..wakers)
                .map(|index| {
                    let shared = shared.clone();
                    thread::spawn(move || {
                        let (inbox, doze, event) = &*shared;
                        inbox.push_wake(task(index));
                        if doze.is_to_be_woken() {
                            event.happen();
                        }
                    })
                })
                .collect();
            let (inbox, doze, event) = &*shared;
            let mut woken = vec![false; wakers as usize];
            loop {
                if inbox.take_wake_all() {
                    // One asked and found the other there: both are to be woken.
                    break;
                }
                inbox.take_wakes().for_each(|id| woken[id.index as usize] = true);
                if woken.iter().all(|&woken| woken) {
                    break;
                }
                if doze.fall_asleep(|| !inbox.is_empty()) {
                    event.wait();
                    doze.wake_up();
                } else {
                    // Somebody is about to have asked.
                    thread::yield_now();
                }
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn a_wake_reaches_a_core_that_falls_asleep() {
        every_task_is_woken(1);
    }

    #[test]
    fn wakes_that_find_no_place_wake_all() {
        every_task_is_woken(2);
    }
}
