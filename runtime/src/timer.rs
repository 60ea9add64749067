//! Waiting for a time.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bowline_time::{Duration, Instant, TimerKey};

use crate::core::{self, Core};

/// What a core's wheel carries: whom to wake.
pub(crate) type Timers = bowline_time::Wheel<Waker>;

/// The time at which this turn of the loop began or, from [`Stage::Decide`](crate::Stage::Decide)
/// on, at which its input was applied: what every task of the turn calls now.
///
/// It costs nothing, and is the same for all that arrived together. [`clock_now`] reads the clock.
///
/// # Panics
///
/// Outside a runtime.
pub fn now() -> Instant {
    core::with(|core| core.now.get())
}

/// The time as the clock shows it.
///
/// # Panics
///
/// Outside a runtime.
pub fn clock_now() -> Instant {
    core::with(|core| core.clock.now())
}

/// Waits until `deadline`. Not a nanosecond less; in an idle runtime, some 50 µs more.
///
/// # Panics
///
/// When first polled outside a runtime.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, armed: None }
}

/// Waits for `duration`, from now as the clock shows it.
///
/// # Panics
///
/// Outside a runtime.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(clock_now() + duration)
}

/// The future of [`sleep`] and [`sleep_until`].
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    deadline: Instant,
    armed: Option<(Rc<Core>, TimerKey)>,
}

impl Sleep {
    /// When it ends.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Changes when it ends.
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.disarm();
    }

    fn disarm(&mut self) {
        if let Some((core, key)) = self.armed.take() {
            let waker = core.timers.borrow_mut().cancel(key);
            drop(waker);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if let Some((core, key)) = &this.armed {
            if core.now.get() >= this.deadline {
                this.disarm();
                return Poll::Ready(());
            }
            let timers = core.timers.borrow();
            if timers.get(*key).is_some_and(|waker| waker.will_wake(context.waker())) {
                return Poll::Pending;
            }
            drop(timers);
            this.disarm();
        }
        let core = core::current();
        if core.now.get() >= this.deadline {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let key = core.timers.borrow_mut().arm(this.deadline, waker);
        this.armed = Some((core, key));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// The time was up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the time was up")]
pub struct Elapsed;

impl From<Elapsed> for std::io::Error {
    fn from(_: Elapsed) -> Self {
        std::io::ErrorKind::TimedOut.into()
    }
}

/// Gives a future so much time, from now as the clock shows it. If it takes longer it is dropped.
///
/// ```
/// use std::time::Duration;
/// use bowline_runtime::{Runtime, timeout};
///
/// let runtime = Runtime::builder().build()?;
/// runtime.block_on(async {
///     assert!(timeout(Duration::from_millis(1), std::future::pending::<()>()).await.is_err());
///     assert_eq!(timeout(Duration::from_secs(60), async { 5 }).await, Ok(5));
/// });
/// # Ok::<(), bowline_runtime::Error>(())
/// ```
///
/// # Errors
///
/// [`Elapsed`] if the time was up first.
///
/// # Panics
///
/// Outside a runtime.
pub async fn timeout<F: Future>(duration: Duration, future: F) -> Result<F::Output, Elapsed> {
    timeout_at(clock_now() + duration, future).await
}

/// As [`timeout`], with the time at which to give up.
///
/// # Errors
///
/// [`Elapsed`] if the time was up first.
pub async fn timeout_at<F: Future>(deadline: Instant, future: F) -> Result<F::Output, Elapsed> {
    let mut future = std::pin::pin!(future);
    let mut sleep = std::pin::pin!(sleep_until(deadline));
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        sleep.as_mut().poll(context).map(|()| Err(Elapsed))
    })
    .await
}

/// Lets everything else that is ready run, in this turn and in the next, and comes back then.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
