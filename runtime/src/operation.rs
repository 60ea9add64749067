//! One-shot operations: file I/O and the like.
//!
//! An operation's slot owns all that the kernel may touch, the buffer and the descriptor above all,
//! from submission to the last completion. The future in a task's hands is a mere claim on the
//! result. If it is dropped before, the operation is cancelled and its slot orphaned: the slot
//! lives on until the kernel has let go, and closes a descriptor that an orphan still brings.

use std::any::Any;
use std::future::Future;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::buffer::Buffer;
use crate::core::Core;
use crate::driver::{Completion, Kind, Request, Token};
use crate::notify::wake;

/// What an operation keeps alive, and gives back when it is done.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) buffer: Option<Buffer>,
    /// Whatever keeps the descriptor open.
    #[expect(dead_code, reason = "kept for its destructor, which is not to run before")]
    pub(crate) descriptor: Option<Rc<dyn Any>>,
    /// Other memory that the kernel reads.
    #[expect(dead_code, reason = "kept for the kernel, which reads it")]
    pub(crate) memory: Option<Box<dyn Any>>,
}

pub(crate) struct Slot {
    state: State,
    kept: Kept,
    effect: Effect,
}

/// What else an operation does, which matters if nobody waits for its end.
#[derive(Clone, Copy)]
enum Effect {
    None,
    /// The result is a descriptor, which has to be closed if nobody takes it.
    Opens,
    /// It closes this descriptor, and has to, whoever waits.
    Closes(RawFd),
}

impl Effect {
    fn of(request: &Request) -> Effect {
        match request {
            Request::Open { .. } => Effect::Opens,
            Request::Close { fd } => Effect::Closes(*fd),
            _ => Effect::None,
        }
    }

    /// Closes what the kernel was to close, if it was cancelled before.
    fn complete(self, result: i32) {
        if let Effect::Closes(fd) = self
            && result == -libc::ECANCELED
        {
            drop(own(fd));
        }
    }
}

enum State {
    Running(Option<Waker>),
    /// Nobody waits any more.
    Orphaned,
    Done(i32),
}

/// An operation under way.
pub(crate) struct Operation {
    core: Rc<Core>,
    index: usize,
    finished: bool,
}

impl Operation {
    /// Submits a request.
    ///
    /// # Safety
    ///
    /// All memory that the request points to is owned by `kept`, on the heap, and what the kernel
    /// writes to is reached by nobody else; the descriptor it names is owned by `kept` too.
    pub(crate) unsafe fn submit(core: &Rc<Core>, request: Request, kept: Kept) -> Operation {
        let effect = Effect::of(&request);
        if core.tasks.is_closed() {
            // Nobody would ever reap it.
            effect.complete(-libc::ECANCELED);
            let slot = Slot { state: State::Done(-libc::ECANCELED), kept, effect };
            let index = core.operations.borrow_mut().insert(slot);
            return Operation { core: core.clone(), index, finished: false };
        }
        let slot = Slot { state: State::Running(None), kept, effect };
        let index = core.operations.borrow_mut().insert(slot);
        let token = Token::new(Kind::Operation, index);
        // SAFETY: the slot owns `kept`, and is freed only in `completed` or, after that, by
        // whoever takes the result. If the core ends before, it leaks itself with all slots.
        unsafe { core.driver.borrow_mut().push(request, token) };
        Operation { core: core.clone(), index, finished: false }
    }

    /// Whether it runs, and is to wake somebody else than it would.
    fn is_waker_new(&self, context: &Context<'_>) -> bool {
        match &self.core.operations.borrow()[self.index].state {
            State::Running(Some(waker)) => !waker.will_wake(context.waker()),
            State::Running(None) => true,
            State::Done(_) | State::Orphaned => false,
        }
    }
}

impl Future for Operation {
    type Output = (io::Result<u32>, Kept);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        // Cloned before anything is borrowed: a foreign waker may do anything meanwhile.
        let new = this.is_waker_new(context).then(|| context.waker().clone());
        let mut operations = this.core.operations.borrow_mut();
        let slot = &mut operations[this.index];
        match &mut slot.state {
            State::Done(result) => {
                let result = *result;
                let slot = operations.remove(this.index);
                this.finished = true;
                Poll::Ready((to_result(result), slot.kept))
            }
            State::Running(waker) => {
                if let Some(new) = new {
                    let replaced = waker.replace(new);
                    drop(operations);
                    drop(replaced);
                }
                Poll::Pending
            }
            State::Orphaned => unreachable!("an orphan has no future"),
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let mut operations = self.core.operations.borrow_mut();
        let slot = &mut operations[self.index];
        if let State::Done(result) = slot.state {
            let slot = operations.remove(self.index);
            drop(operations);
            slot.discard(&self.core, result);
            return;
        }
        let effect = slot.effect;
        let was = std::mem::replace(&mut slot.state, State::Orphaned);
        drop(operations);
        drop(was);
        if let Effect::Closes(_) = effect {
            return;
        }
        let token = Token::new(Kind::Operation, self.index);
        // SAFETY: the request points to nothing.
        unsafe { self.core.driver.borrow_mut().push(Request::Cancel { token }, Token::NOBODY) };
    }
}

impl Slot {
    /// Sees to a result that nobody takes.
    fn discard(self, core: &Core, result: i32) {
        match self.effect {
            Effect::Opens if result >= 0 => drop(own(result)),
            Effect::Closes(_) if result < 0 && result != -libc::ECANCELED => {
                core.counters.close_errors.add(1);
                let error = io::Error::from_raw_os_error(-result);
                tracing::warn!(%error, "closing a file failed: what was written may be lost");
            }
            _ => {}
        }
    }
}

/// Takes note of a completion.
pub(crate) fn completed(core: &Core, completion: Completion) {
    debug_assert!(!completion.more);
    let index = completion.token.index as usize;
    let mut operations = core.operations.borrow_mut();
    let Some(slot) = operations.get_mut(index) else { return };
    slot.effect.complete(completion.result);
    match std::mem::replace(&mut slot.state, State::Done(completion.result)) {
        State::Orphaned => {
            let slot = operations.remove(index);
            drop(operations);
            slot.discard(core, completion.result);
        }
        State::Running(waker) => {
            drop(operations);
            if let Some(waker) = waker {
                wake(waker);
            }
        }
        State::Done(_) => unreachable!("an operation completes once"),
    }
}

/// What a result is, in Rust's terms.
pub(crate) fn to_result(result: i32) -> io::Result<u32> {
    u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

/// Owns a descriptor that the kernel has just made for us.
pub(crate) fn own(result: i32) -> OwnedFd {
    debug_assert!(result >= 0);
    // SAFETY: the number comes from a completion, which nobody else saw.
    unsafe { OwnedFd::from_raw_fd(result) }
}
