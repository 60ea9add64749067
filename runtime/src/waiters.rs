//! Tasks, on whatever threads, that wait in line for something to change.
//!
//! Who waits takes a place in the line and then looks again; who changes something does so and then
//! looks for a line. A fence stands between the two on either side, so that at least one sees the
//! other. Without anybody waiting, a change costs a fence and a load.
//!
//! A change that serves one wakes one, the first in line. Who was woken and gives up before using
//! the change has to pass the wake on, or the next in line would sleep beside it. Nobody's waker is
//! cloned, woken or dropped while the line is locked, as each may come back here.

use std::sync::PoisonError;
use std::task::Waker;

use slab::Slab;

use crate::notify::wake;
use crate::sync::atomic::{AtomicBool, Ordering, fence};
use crate::sync::{Mutex, MutexGuard};

/// No place: the end of the line.
const NONE: usize = usize::MAX;

pub(crate) struct Waiters {
    /// There may be somebody in the line.
    any: AtomicBool,
    line: Mutex<Line>,
}

/// Where somebody stands in the line of one [`Waiters`], if anywhere. Whoever has it leaves the
/// line before dropping it.
#[derive(Default)]
pub(crate) struct Place(Option<usize>);

impl Waiters {
    pub(crate) fn new() -> Waiters {
        Waiters { any: AtomicBool::new(false), line: Mutex::new(Line::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        // Nothing in here panics while it is locked.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits at `place`: where it stands already, or else at the end of the line. The caller then
    /// looks again whether it has to wait at all.
    pub(crate) fn wait(&self, place: &mut Place, waker: &Waker) {
        let waker = waker.clone();
        let mut line = self.lock();
        let replaced = line.stand(place, waker);
        self.any.store(true, Ordering::Relaxed);
        drop(line);
        drop(replaced);
        fence(Ordering::SeqCst);
    }

    /// Leaves the line. True if it was woken since it came: if it does not use what changed, it has
    /// to wake another.
    #[must_use = "a wake that is not used has to be passed on"]
    pub(crate) fn leave(&self, place: &mut Place) -> bool {
        let Some(key) = place.0.take() else { return false };
        let mut line = self.lock();
        let waker = line.remove(key);
        self.any.store(!line.is_empty(), Ordering::Relaxed);
        drop(line);
        waker.is_none()
    }

    /// Uses a wake up, if there was one, for the attempt that the caller is about to make. Who was
    /// not woken keeps its place.
    pub(crate) fn use_wake(&self, place: &mut Place) {
        if let Some(key) = place.0
            && self.lock().remove_woken(key)
        {
            place.0 = None;
        }
    }

    /// Wakes the first in line. To be called after a change that serves one.
    pub(crate) fn wake_one(&self) {
        fence(Ordering::SeqCst);
        if self.any.load(Ordering::Relaxed) {
            self.wake_first();
        }
    }

    /// Wakes all who wait. To be called after a change that concerns all.
    pub(crate) fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        // Not more than are there now, as those that are woken may come back at once.
        let count = self.lock().places.len();
        for _ in 0..count {
            self.wake_first();
        }
    }

    fn wake_first(&self) {
        let mut line = self.lock();
        let waker = line.next();
        self.any.store(!line.is_empty(), Ordering::Relaxed);
        drop(line);
        if let Some(waker) = waker {
            wake(waker);
        }
    }
}

/// A list linked by index, in a slab, so that who gives up leaves at no cost wherever it stands.
struct Line {
    places: Slab<Standing>,
    first: usize,
    last: usize,
}

struct Standing {
    /// None once woken: it is out of the line then, and its owner has yet to see that.
    waker: Option<Waker>,
    before: usize,
    after: usize,
}

impl Line {
    fn new() -> Line {
        Line { places: Slab::new(), first: NONE, last: NONE }
    }

    fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Gives the waker that it replaces, if any.
    fn stand(&mut self, place: &mut Place, waker: Waker) -> Option<Waker> {
        if let Some(key) = place.0 {
            let standing = &mut self.places[key];
            if standing.waker.is_some() {
                return standing.waker.replace(waker);
            }
            self.places.remove(key);
        }
        let standing = Standing { waker: Some(waker), before: self.last, after: NONE };
        let key = self.places.insert(standing);
        match self.places.get_mut(self.last) {
            Some(last) => last.after = key,
            None => self.first = key,
        }
        self.last = key;
        place.0 = Some(key);
        None
    }

    /// Takes the first out of the line. Its place stays until its owner gives it up.
    fn next(&mut self) -> Option<Waker> {
        let first = self.first;
        let waker = self.places.get_mut(first)?.waker.take();
        self.unlink(first);
        waker
    }

    /// Gives a place up. None if who stood there was woken.
    fn remove(&mut self, key: usize) -> Option<Waker> {
        if self.places[key].waker.is_some() {
            self.unlink(key);
        }
        self.places.remove(key).waker
    }

    fn remove_woken(&mut self, key: usize) -> bool {
        let woken = self.places[key].waker.is_none();
        if woken {
            self.places.remove(key);
        }
        woken
    }

    fn unlink(&mut self, key: usize) {
        let Standing { before, after, .. } = self.places[key];
        match self.places.get_mut(before) {
            Some(before) => before.after = after,
            None => self.first = after,
        }
        match self.places.get_mut(after) {
            Some(after) => after.before = before,
            None => self.last = before,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    /// Notes in what order wakers are woken.
    struct Numbered(usize, Arc<Mutex<Vec<usize>>>);

    impl Wake for Numbered {
        fn wake(self: Arc<Self>) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    fn line_of(count: usize) -> (Waiters, Vec<Place>, Arc<Mutex<Vec<usize>>>) {
        let (waiters, woken) = (Waiters::new(), Arc::default());
        let places = (0..count).map(|number| {
            let mut place = Place::default();
            let waker = Waker::from(Arc::new(Numbered(number, Arc::clone(&woken))));
            waiters.wait(&mut place, &waker);
            place
        });
        let places = places.collect();
        (waiters, places, woken)
    }

    #[test]
    fn the_first_in_line_is_woken_first_and_who_left_is_not() {
        let (waiters, mut places, woken) = line_of(5);
        for left in [0, 2, 4] {
            assert!(!waiters.leave(&mut places[left]));
        }
        for _ in 0..5 {
            waiters.wake_one();
        }
        assert_eq!(*woken.lock().unwrap(), [1, 3]);
        assert!(waiters.leave(&mut places[1]), "the wake is to be passed on");
        assert!(waiters.leave(&mut places[3]));
        assert!(waiters.lock().places.is_empty());
        assert!(!waiters.any.load(Ordering::Relaxed));
    }

    #[test]
    fn who_waits_on_keeps_its_place_and_who_was_woken_goes_to_the_end() {
        let (waiters, mut places, woken) = line_of(3);
        let again = Waker::from(Arc::new(Numbered(10, woken.clone())));
        waiters.use_wake(&mut places[0]);
        waiters.wait(&mut places[0], &again);
        waiters.wake_one();
        waiters.use_wake(&mut places[0]);
        waiters.wait(&mut places[0], &again);
        waiters.wake_all();
        assert_eq!(*woken.lock().unwrap(), [10, 1, 2, 10]);
    }

    /// Does with its waiters whatever locks them, when it is cloned, woken or dropped.
    struct Reentrant(Arc<Waiters>, Arc<AtomicUsize>);

    impl Wake for Reentrant {
        fn wake(self: Arc<Self>) {
            self.0.wake_one();
        }
    }

    impl Drop for Reentrant {
        fn drop(&mut self) {
            self.0.wake_one();
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakers_may_do_anything() {
        let waiters = Arc::new(Waiters::new());
        let dropped = Arc::default();
        let mut place = Place::default();
        for _ in 0..3 {
            let waker = Waker::from(Arc::new(Reentrant(waiters.clone(), Arc::clone(&dropped))));
            waiters.wait(&mut place, &waker);
        }
        waiters.wake_one();
        assert!(waiters.leave(&mut place));
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::future::block_on;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;
    use std::future::poll_fn;
    use std::task::{Context, Poll};

    use super::*;

    /// What a channel's room is: each that is freed wakes one, and one uses it.
    struct Rooms {
        free: AtomicUsize,
        waiters: Waiters,
    }

    impl Rooms {
        fn new() -> Arc<Rooms> {
            Arc::new(Rooms { free: AtomicUsize::new(0), waiters: Waiters::new() })
        }

        fn free(&self) {
            self.free.fetch_add(1, Ordering::AcqRel);
            self.waiters.wake_one();
        }

        fn try_use(&self) -> bool {
            self.free
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1))
                .is_ok()
        }

        fn poll_use(&self, place: &mut Place, context: &Context<'_>) -> Poll<()> {
            self.waiters.use_wake(place);
            for last in [false, true] {
                if self.try_use() {
                    return Poll::Ready(());
                }
                if !last {
                    self.waiters.wait(place, context.waker());
                }
            }
            Poll::Pending
        }

        fn leave(&self, place: &mut Place) {
            if self.waiters.leave(place) {
                self.waiters.wake_one();
            }
        }
    }

    /// A wake that is lost shows as a deadlock, which loom finds.
    #[test]
    fn each_room_serves_one_who_waits() {
        // In all orders it takes hours.
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let rooms = Rooms::new();
            let freeing = thread::spawn({
                let rooms = rooms.clone();
                move || (0..2).for_each(|_| rooms.free())
            });
            for _ in 0..2 {
                let mut place = Place::default();
                block_on(poll_fn(|context| rooms.poll_use(&mut place, context)));
                rooms.leave(&mut place);
            }
            freeing.join().unwrap();
        });
    }

    #[test]
    fn who_gives_up_passes_its_wake_on() {
        loom::model(|| {
            let rooms = Rooms::new();
            // The first in line, which will never use what it is woken for.
            let mut first = Place::default();
            rooms.waiters.wait(&mut first, Waker::noop());
            let changing = thread::spawn({
                let rooms = rooms.clone();
                move || {
                    rooms.free();
                    rooms.leave(&mut first);
                }
            });
            let mut place = Place::default();
            block_on(poll_fn(|context| rooms.poll_use(&mut place, context)));
            rooms.leave(&mut place);
            changing.join().unwrap();
        });
    }
}
