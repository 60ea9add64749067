use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::contain::contain;
use crate::task::waker::TaskId;

/// An event within a core: one task awaits it, others make it happen.
///
/// Happenings don't count: any number of [`notify`](Notify::notify) before the task looks are one.
/// None is lost: if nobody waits, the next to wait finds it. Nothing allocates.
///
/// It is for one waiting task at a time; if a second one waits, it takes the first one's place.
///
/// ```
/// use std::rc::Rc;
/// use bowline_runtime::{Notify, Runtime, spawn};
///
/// let runtime = Runtime::builder().build()?;
/// runtime.block_on(async {
///     let event = Rc::new(Notify::new());
///     let waiting = spawn({
///         let event = event.clone();
///         async move { event.notified().await }
///     });
///     event.notify();
///     waiting.await.unwrap();
/// });
/// # Ok::<(), bowline_runtime::Error>(())
/// ```
#[derive(Default)]
pub struct Notify {
    happened: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl Notify {
    /// An event that has not happened.
    pub const fn new() -> Self {
        Notify { happened: Cell::new(false), waiting: RefCell::new(None) }
    }

    /// Makes it happen.
    pub fn notify(&self) {
        self.happened.set(true);
        let waker = self.waiting.borrow_mut().take();
        if let Some(waker) = waker {
            wake(waker);
        }
    }

    /// Waits until it happens, and takes note: the next wait is for the next time. Dropping the
    /// future loses nothing.
    pub fn notified(&self) -> Notified<'_> {
        Notified { event: self }
    }
}

/// The future of [`Notify::notified`].
#[must_use = "futures do nothing unless awaited"]
pub struct Notified<'a> {
    event: &'a Notify,
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.event.happened.take() {
            return Poll::Ready(());
        }
        set_waker(&self.event.waiting, context);
        Poll::Pending
    }
}

/// Wakes somebody on behalf of others: the completions and timers after it are other tasks'.
pub(crate) fn wake(waker: Waker) {
    match TaskId::of(&waker) {
        Some(task) => task.wake(),
        None => contain("a waker", || waker.wake()),
    }
}

/// Drops on behalf of the loop what a user gave it.
pub(crate) fn let_go<T>(value: T) {
    contain("a destructor", || drop(value));
}

/// Notes whom to wake, without a clone where it is noted already. The waker that is replaced is
/// dropped when the cell is free again, as its destructor may be anything.
pub(crate) fn set_waker(cell: &RefCell<Option<Waker>>, context: &Context<'_>) {
    let current = cell.borrow().as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
    if !current {
        let waker = context.waker().clone();
        let replaced = cell.borrow_mut().replace(waker);
        drop(replaced);
    }
}
