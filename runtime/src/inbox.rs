//! What other threads ask of a core, until it has time for it.
//!
//! They may ask faster than the core can do it. So all that is bounded: of wakes, 1024 wait, and if
//! there are more, every task is woken, which is always allowed; of jobs, 4096 wait in a line, and
//! more are refused. Orders, which end something, are never refused: there is no more of them than
//! of what they end. They stand in line with jobs, so that an order finds begun what it is to end.
//! Background jobs have a line of their own, as they may have to wait for long, and nothing is to
//! wait behind them.

use std::cell::Cell;
use std::rc::Rc;

use crate::queue::{ArrayQueue, SegQueue};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::task::Stage;
use crate::task::waker::TaskId;

/// So many wakes can wait. In models it takes few to be too many.
const WAKES: usize = if cfg!(loom) { 1 } else { 1024 };
/// So many jobs can wait.
const JOBS: usize = if cfg!(loom) { 1 } else { 4096 };

/// Spawns a task on the core, which keeps the place it is given until it begins.
pub(crate) type Job = Box<dyn FnOnce(Place) + Send>;

/// Which line something stands in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// Jobs of all stages but the last, and orders.
    Front,
    /// Jobs of [`Stage::Background`].
    Background,
}

impl Line {
    pub(crate) const ALL: [Line; 2] = [Line::Front, Line::Background];

    pub(crate) fn of(stage: Stage) -> Line {
        if stage == Stage::Background { Line::Background } else { Line::Front }
    }
}

/// So many tasks of one line may be taken in and not have begun. Were all taken in at once, and not
/// all polled in a turn, each turn's would queue up behind those of the turn before, without end,
/// and whoever is woken behind them all.
const UNBEGUN: usize = 256;

/// The core's count of tasks of one line that were taken in and have not begun.
#[derive(Clone, Default)]
pub(crate) struct Places(Rc<Cell<usize>>);

impl Places {
    /// How many more may be taken in.
    pub(crate) fn left(&self) -> usize {
        UNBEGUN - self.0.get()
    }

    pub(crate) fn take(&self) -> Place {
        self.0.set(self.0.get() + 1);
        Place(self.clone())
    }
}

/// Kept by a task until it begins, or is dropped without.
pub(crate) struct Place(Places);

impl Drop for Place {
    fn drop(&mut self) {
        let taken = &self.0.0;
        taken.set(taken.get() - 1);
    }
}

pub(crate) struct Inbox {
    wakes: ArrayQueue<TaskId>,
    wake_all: AtomicBool,
    lines: [Waiting; 2],
    refused: AtomicU64,
    /// Nobody will look any more.
    closed: AtomicBool,
}

/// What waits in a line.
struct Waiting {
    asked: SegQueue<Asked>,
    /// How many jobs are among that, or about to be.
    jobs: AtomicUsize,
}

enum Asked {
    Job(Job),
    Order(Job),
}

impl Waiting {
    fn new() -> Waiting {
        Waiting { asked: SegQueue::new(), jobs: AtomicUsize::new(0) }
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
}

impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox {
            wakes: ArrayQueue::new(WAKES),
            wake_all: AtomicBool::new(false),
            lines: [Waiting::new(), Waiting::new()],
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
    pub(crate) fn push_job(&self, line: Line, job: Job) -> Result<(), Job> {
        let one_more = |jobs| (jobs < JOBS).then_some(jobs + 1);
        let waiting = &self.lines[line as usize].jobs;
        if waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(job);
        }
        self.push(line, Asked::Job(job));
        Ok(())
    }

    /// Gives an order.
    pub(crate) fn push_order(&self, order: Job) {
        self.push(Line::Front, Asked::Order(order));
    }

    fn push(&self, line: Line, asked: Asked) {
        self.lines[line as usize].asked.push(asked);
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

    pub(crate) fn has_wakes(&self) -> bool {
        !self.wakes.is_empty() || self.wake_all.load(Ordering::Acquire)
    }

    /// Whether there are jobs or orders.
    pub(crate) fn has_asked(&self, line: Line) -> bool {
        !self.lines[line as usize].asked.is_empty()
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
    pub(crate) fn take_asked(&self, line: Line, most: usize) -> impl Iterator<Item = Job> {
        std::iter::from_fn(move || self.lines[line as usize].pop()).take(most)
    }

    /// Drops what came, and from now on whatever comes: who awaits results is told.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.clear();
    }

    fn clear(&self) {
        for line in &self.lines {
            while let Some(asked) = line.pop() {
                drop(asked);
            }
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
        (held, Box::new(move |_| drop(kept)))
    }

    /// Does what waits, up to so many.
    fn run(inbox: &Inbox, most: usize) -> usize {
        let places = Places::default();
        inbox.take_asked(Line::Front, most).map(|job| job(places.take())).count()
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
                    assert!(inbox.push_job(Line::Front, job).is_ok());
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
                move || (inbox.push_job(Line::Front, job).is_ok(), held)
            };
            let asking = thread::spawn(ask(inbox.clone()));
            let (mine, held) = ask(inbox.clone())();
            assert!(inbox.lines[0].jobs.load(Ordering::Relaxed) <= JOBS);
            let mut done = run(&inbox, 1);
            let (others, held_by_other) = asking.join().unwrap();
            done += run(&inbox, 2);
            assert_eq!(done, usize::from(mine) + usize::from(others));
            assert_eq!(inbox.refused(), 2 - done as u64);
            assert_eq!((Arc::strong_count(&held), Arc::strong_count(&held_by_other)), (1, 1));
            assert_eq!(inbox.lines[0].jobs.load(Ordering::Relaxed), 0);
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
                    let begin = Box::new(move |_| *begins.lock().unwrap() = true);
                    assert!(inbox.push_job(Line::Front, begin).is_ok());
                    let end = Box::new(move |_| assert!(*begun.lock().unwrap()));
                    inbox.push_order(end);
                }
            });
            run(&inbox, 1);
            run(&inbox, 1);
            asking.join().unwrap();
            run(&inbox, 2);
            assert!(!inbox.has_asked(Line::Front) && *begun.lock().unwrap());
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
                        if doze.call() {
                            event.happen();
                        }
                    })
                })
                .collect();
            let (inbox, doze, event) = &*shared;
            let mut woken = vec![false; wakers as usize];
            loop {
                if doze.wake_up() {
                    if inbox.take_wake_all() {
                        // One asked and found the other there: both are to be woken.
                        break;
                    }
                    inbox.take_wakes().for_each(|id| woken[id.index as usize] = true);
                }
                if woken.iter().all(|&woken| woken) {
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
    fn a_wake_reaches_a_core_that_falls_asleep() {
        every_task_is_woken(1);
    }

    #[test]
    fn wakes_that_find_no_place_wake_all() {
        every_task_is_woken(2);
    }
}
