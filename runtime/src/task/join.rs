//! What a spawner gets.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::waker::TaskId;
use crate::core::Core;

/// A claim on a task's output. Awaiting it gives the output, or says why there is none.
///
/// Dropping it detaches the task, which goes on by itself.
#[must_use = "dropping it detaches the task; bind it to `_` to say so, or await it"]
pub struct JoinHandle<T> {
    core: Rc<Core>,
    id: TaskId,
    taken: bool,
    output: PhantomData<T>,
}

impl<T> JoinHandle<T> {
    /// # Safety
    ///
    /// `T` is the output of the task's future, and no other handle of the task exists.
    pub(crate) unsafe fn new(core: Rc<Core>, id: TaskId) -> Self {
        JoinHandle { core, id, taken: false, output: PhantomData }
    }

    /// Gives the task a name, by which what is logged of it calls it: that it
    /// [held its core](crate::Builder::stall), or panicked. Without one it is called by its future's
    /// type; where it was spawned is told in any case.
    ///
    /// ```
    /// # bowline_runtime::Runtime::builder().build()?.block_on(async {
    /// let task = bowline_runtime::spawn(async { 42 }).named("answer");
    /// assert_eq!(task.await.unwrap(), 42);
    /// # });
    /// # Ok::<(), bowline_runtime::Error>(())
    /// ```
    pub fn named(self, name: &'static str) -> Self {
        self.core.tasks.set_name(self.id, name);
        self
    }

    /// Ends the task, unless it has ended. Its future is dropped before its next poll would have
    /// been, and never later than in the runtime's next turn. The handle then gives
    /// [`JoinError::is_aborted`].
    pub fn abort(&self) {
        self.core.tasks.abort(self.id);
    }

    /// Whether the task has ended, in whatever way.
    pub fn is_finished(&self) -> bool {
        self.taken || self.core.tasks.has_ended(self.id)
    }
}

impl<T> Unpin for JoinHandle<T> {}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(!self.taken, "a JoinHandle was polled after it had given its output");
        // SAFETY: `T` is the task's output, as was promised to `new`.
        let output = unsafe { self.core.tasks.poll_join(self.id, context) };
        self.taken = output.is_ready();
        output
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if !self.taken {
            self.core.tasks.detach(self.id);
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("task", &self.id.index).finish_non_exhaustive()
    }
}

/// Why a task has no output.
pub struct JoinError(Reason);

enum Reason {
    Aborted,
    Panicked(Box<dyn Any + Send>),
}

impl JoinError {
    pub(crate) fn aborted() -> JoinError {
        JoinError(Reason::Aborted)
    }

    pub(crate) fn panicked(payload: Box<dyn Any + Send>) -> JoinError {
        JoinError(Reason::Panicked(payload))
    }

    /// Whether the task was aborted, or its runtime ended before it.
    pub fn is_aborted(&self) -> bool {
        matches!(self.0, Reason::Aborted)
    }

    /// Whether the task panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Reason::Panicked(_))
    }

    /// What the task panicked with, for [`std::panic::resume_unwind`].
    ///
    /// # Errors
    ///
    /// The error itself, if it was no panic.
    pub fn into_panic(self) -> Result<Box<dyn Any + Send>, JoinError> {
        match self.0 {
            Reason::Panicked(payload) => Ok(payload),
            reason => Err(JoinError(reason)),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reason::Aborted => f.write_str("the task was aborted"),
            Reason::Panicked(payload) => {
                write!(f, "the task panicked: {}", crate::contain::describe(&**payload))
            }
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl std::error::Error for JoinError {}
