//! How other threads reach a core.
//!
//! They put what they want into its inbox and, only if it sleeps, ring its bell. The list of
//! all runtimes finds a core by the number that its wakers carry; a core that has ended is not in
//! the list, and a wake for it does nothing. Each thread remembers whom it found, so that threads
//! which wake different cores touch nothing in common.

use std::cell::RefCell;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::task::{Context, Poll, Waker};
use std::{fmt, io};

use crate::bell::Bell;
use crate::core;
use crate::doze::Doze;
use crate::error::Error;
use crate::inbox::{Inbox, Job};
use crate::notify;
use crate::runtime::spawn_from;
use crate::task::Stage;
use crate::task::waker::TaskId;

/// The part of a core that other threads see.
pub(crate) struct Remote {
    doze: Doze,
    inbox: Inbox,
    /// It is in the list of all runtimes no more, and its number may be another's.
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
    fn push_job(&self, job: Job) -> Result<(), Job> {
        let pushed = self.inbox.push_job(job);
        self.rouse();
        pushed
    }

    fn push_order(&self, order: Job) {
        self.inbox.push_order(order);
        self.rouse();
    }

    /// Ends the core's sleep. What it is to find was stored before.
    fn rouse(&self) {
        if self.doze.is_to_be_woken() {
            self.bell.ring();
        }
    }

    /// Announces that the core will sleep. False if it must not, as something came in.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.doze.fall_asleep(|| !self.inbox.is_empty())
    }

    pub(crate) fn wake_up(&self) {
        self.doze.wake_up();
    }
}

/// All runtimes of the process, each at the place that is its number.
static RUNTIMES: RwLock<Vec<Option<Arc<Remote>>>> = RwLock::new(Vec::new());

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
        && !remote.unlisted.load(Ordering::Acquire)
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
            remote.unlisted.store(true, Ordering::Release);
        }
    }
}

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
    /// [`Metrics::remote_refused`](crate::Metrics::remote_refused) counts.
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
        let (shared, spawned) = (promise.0.clone(), Location::caller());
        let job = Box::new(move || {
            drop(spawn_from(spawned, stage, async move {
                core::with(|core| core.begin_asked());
                promise.keep(make().await);
            }));
        });
        if let Err(job) = self.remote.push_job(job) {
            shared.settle(Outcome::Refused);
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
        let order = move || {
            drop(spawn_from(spawned, Stage::Work, async move {
                core::with(|core| core.begin_asked());
                end();
            }));
        };
        self.remote.push_order(Box::new(order));
    }

    /// Whether the runtime has ended.
    pub fn is_closed(&self) -> bool {
        self.remote.inbox.is_closed()
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

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
    settled: std::sync::Condvar,
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
                notify::wake(waker);
            }
        }
    }
}

struct Promise<T>(Arc<Shared<T>>);

impl<T> Promise<T> {
    fn keep(self, output: T) {
        self.0.settle(Outcome::Kept(output));
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.0.settle(Outcome::Broken);
    }
}

fn promise<T>() -> (Promise<T>, RemoteHandle<T>) {
    let shared = Arc::new(Shared {
        outcome: Mutex::new(Outcome::Open(None)),
        settled: std::sync::Condvar::new(),
    });
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
