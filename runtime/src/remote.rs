//! How other threads reach a core.
//!
//! They put what they want into its inbox and, only if it sleeps, ring its bell. The list of
//! all runtimes finds a core by the number that its wakers carry; a core that has ended is not in
//! the list, and a wake for it does nothing. Each thread remembers whom it found, so that threads
//! which wake different cores touch nothing in common.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, PoisonError, Weak};

use crate::bell::Bell;
use crate::doze::Doze;
use crate::error::Error;
use crate::inbox::{Inbox, Job, Line};
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::task::waker::TaskId;

/// The part of a core that other threads see.
pub(crate) struct Remote {
    doze: Doze,
    inbox: Inbox,
    /// It is in the list of all runtimes no more, and its number may be another's. Set while the
    /// list is locked, as it is when the number is given again, which orders the two.
    unlisted: AtomicBool,
    bell: Bell,
}

impl Remote {
    pub(crate) fn new() -> io::Result<Remote> {
        Ok(Remote {
            doze: Doze::new(),
            inbox: Inbox::new(),
            unlisted: AtomicBool::new(false),
            bell: Bell::new()?,
        })
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Has the core wake a task.
    pub(crate) fn wake(&self, id: TaskId) {
        self.inbox.push_wake(id);
        self.rouse();
    }

    /// Gives the job back if too many wait.
    pub(crate) fn push_job(&self, line: Line, job: Job) -> Result<(), Job> {
        let pushed = self.inbox.push_job(line, job);
        self.rouse();
        pushed
    }

    pub(crate) fn push_order(&self, order: Job) {
        self.inbox.push_order(order);
        self.rouse();
    }

    /// Has the core look into its inbox, and ends its sleep. What it is to find was stored before.
    fn rouse(&self) {
        if self.doze.call() {
            self.bell.ring();
        }
    }

    /// Whether the core sleeps, and is called when something comes in.
    pub(crate) fn doze(&self) -> &Doze {
        &self.doze
    }
}

/// All runtimes of the process, each at the place that is its number.
#[cfg(not(loom))]
static RUNTIMES: RwLock<Vec<Option<Arc<Remote>>>> = RwLock::new(Vec::new());
#[cfg(loom)]
loom::lazy_static! {
    static ref RUNTIMES: RwLock<Vec<Option<Arc<Remote>>>> = RwLock::new(Vec::new());
}

thread_local! {
    /// Those of [`RUNTIMES`] that this thread has woken. It keeps none of them alive.
    static KNOWN: RefCell<Vec<Weak<Remote>>> = const { RefCell::new(Vec::new()) };
}

/// Wakes a task from a thread that is not its own.
pub(crate) fn wake(id: TaskId) {
    // Not while the thread is ending, when what it knew is gone.
    let known = KNOWN.try_with(|known| find_known(&mut known.borrow_mut(), id.runtime));
    if let Some(remote) = known.unwrap_or_else(|_| find(id.runtime)) {
        remote.wake(id);
    }
}

/// One that is listed no more is looked up anew, as another may have its number. That is seen here
/// in time: whoever made the waker of another's task knew that the number was free, and handed the
/// waker on to this thread.
fn find_known(known: &mut Vec<Weak<Remote>>, number: u16) -> Option<Arc<Remote>> {
    let place = usize::from(number);
    if let Some(remote) = known.get(place).and_then(Weak::upgrade)
        && !remote.unlisted.load(Ordering::Relaxed)
    {
        return Some(remote);
    }
    let remote = find(number)?;
    if known.len() <= place {
        known.resize_with(place + 1, Weak::new);
    }
    known[place] = Arc::downgrade(&remote);
    Some(remote)
}

fn find(number: u16) -> Option<Arc<Remote>> {
    let runtimes = RUNTIMES.read().unwrap_or_else(PoisonError::into_inner);
    runtimes.get(usize::from(number))?.clone()
}

/// A place in the list of all runtimes, kept until dropped.
pub(crate) struct Registration(u16);

impl Registration {
    pub(crate) fn new(remote: Arc<Remote>) -> Result<Registration, Error> {
        let mut runtimes = RUNTIMES.write().unwrap_or_else(PoisonError::into_inner);
        let place = runtimes.iter().position(Option::is_none).unwrap_or(runtimes.len());
        let number = u16::try_from(place).map_err(|_| Error::Io {
            what: "65536 runtimes exist already",
            source: io::ErrorKind::QuotaExceeded.into(),
        })?;
        if place == runtimes.len() {
            runtimes.push(None);
        }
        runtimes[place] = Some(remote);
        Ok(Registration(number))
    }

    pub(crate) fn number(&self) -> u16 {
        self.0
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut runtimes = RUNTIMES.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(remote) = runtimes[usize::from(self.0)].take() {
            remote.unlisted.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_thread_that_has_woken_a_core_needs_no_lock_to_do_so_again() {
        let remote = Arc::new(Remote::new().unwrap());
        let registration = Registration::new(remote.clone()).unwrap();
        let id = TaskId { runtime: registration.number(), generation: 0, index: 7 };
        let (go, wait) = mpsc::channel::<()>();
        let (done, told) = mpsc::channel();
        let waker = std::thread::spawn(move || {
            loop {
                wake(id);
                done.send(()).unwrap();
                if wait.recv().is_err() {
                    return;
                }
            }
        });
        told.recv().unwrap();
        let locked = RUNTIMES.write().unwrap_or_else(PoisonError::into_inner);
        go.send(()).unwrap();
        let woken = told.recv_timeout(Duration::from_secs(10));
        drop(locked);
        woken.expect("it waits for a lock that all threads share");
        drop(go);
        waker.join().unwrap();
        assert_eq!(remote.inbox.take_wakes().count(), 2);
    }

    #[test]
    fn a_number_that_is_given_again_names_the_new_one() {
        let first = Arc::new(Remote::new().unwrap());
        let mut known = Vec::new();
        let registration = Registration::new(first.clone()).unwrap();
        let number = registration.number();
        assert!(Arc::ptr_eq(&find_known(&mut known, number).unwrap(), &first));
        drop(registration);
        // Whoever has the number now, if anybody, it is not the first, which lives still.
        let found = find_known(&mut known, number);
        assert!(found.is_none_or(|found| !Arc::ptr_eq(&found, &first)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;

    /// A runtime that was woken from here, and of which somebody keeps a handle even when it ends.
    fn known() -> (Registration, Vec<Weak<Remote>>, Arc<Remote>) {
        let remote = Arc::new(Remote::new().unwrap());
        let registration = Registration::new(remote.clone()).unwrap();
        let mut known = Vec::new();
        assert!(find_known(&mut known, registration.number()).is_some());
        (registration, known, remote)
    }

    /// Another thread ends a runtime that this one has woken, while this one makes another and wakes a
    /// task of that.
    #[test]
    fn a_wake_reaches_the_runtime_that_has_the_number_now() {
        loom::model(|| {
            let (first, mut known, _handle) = known();
            let ending = thread::spawn(move || drop(first));
            let remote = Arc::new(Remote::new().unwrap());
            let second = Registration::new(remote.clone()).unwrap();
            let found = find_known(&mut known, second.number()).expect("it is in the list");
            assert!(Arc::ptr_eq(&found, &remote));
            ending.join().unwrap();
        });
    }

    /// The waker of a task is handed to another thread, which has woken the number before.
    #[test]
    fn a_waker_that_is_handed_over_wakes_whom_it_was_made_for() {
        loom::model(|| {
            let (first, mut known, _handle) = known();
            let (hand, handed) = loom::sync::mpsc::channel();
            let making = thread::spawn(move || {
                drop(first);
                let second = Registration::new(Arc::new(Remote::new().unwrap())).unwrap();
                let id = TaskId { runtime: second.number(), generation: 0, index: 7 };
                hand.send(id).unwrap();
                second
            });
            let id = handed.recv().unwrap();
            find_known(&mut known, id.runtime).expect("it is in the list").wake(id);
            let second = making.join().unwrap();
            let found = find(second.number()).unwrap();
            assert_eq!(found.inbox.take_wakes().collect::<Vec<_>>(), [id]);
        });
    }
}
