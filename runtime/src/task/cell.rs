//! The place where a task's future lives, and its output after it.
//!
//! The table holds a pointer to the cell and doesn't know the future's type; the first field of
//! every cell is a table of the functions that do.

use std::alloc::Layout;
use std::future::Future;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

use super::Label;
use super::join::JoinError;
use crate::contain::{contain, describe, tell};

/// A pointer to a cell of whatever type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Erased(NonNull<Head>);

/// What is at the start of every cell.
struct Head {
    functions: &'static Functions,
    label: std::cell::Cell<Label>,
}

struct Functions {
    layout: Layout,
    poll: unsafe fn(Erased, &mut Context<'_>) -> Poll<Ended>,
    abort: unsafe fn(Erased),
    clear: unsafe fn(Erased),
    take: unsafe fn(Erased, *mut ()),
}

/// How a task came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    Finished,
    Panicked,
}

#[repr(C)]
pub(crate) struct Cell<F: Future> {
    head: Head,
    content: Content<F>,
}

enum Content<F: Future> {
    Running(F),
    Ended(Result<F::Output, JoinError>),
    Empty,
}

impl<F: Future> Cell<F> {
    const FUNCTIONS: Functions = Functions {
        layout: Layout::new::<Cell<F>>(),
        poll: Self::poll,
        abort: Self::abort,
        clear: Self::clear,
        take: Self::take,
    };

    pub(crate) const LAYOUT: Layout = Layout::new::<Cell<F>>();

    /// A cell for a future that was made into a task there. Until it is given a name it is called
    /// by its type.
    pub(crate) fn new(future: F, spawned: &'static Location<'static>) -> Cell<F> {
        let label = Label { name: std::any::type_name::<F>(), spawned };
        let head = Head { functions: &Self::FUNCTIONS, label: std::cell::Cell::new(label) };
        Cell { head, content: Content::Running(future) }
    }

    /// Writes a cell into a block of memory.
    ///
    /// # Safety
    ///
    /// The memory is as large and as aligned as [`Cell::LAYOUT`] says, and nobody else's.
    pub(crate) unsafe fn write(
        memory: NonNull<u8>,
        future: F,
        spawned: &'static Location<'static>,
    ) -> Erased {
        let cell = memory.cast::<Cell<F>>();
        // SAFETY: by the caller's promise it is valid for this write.
        unsafe { cell.write(Cell::new(future, spawned)) };
        Erased(cell.cast())
    }

    /// A pointer to a cell that stands somewhere else than in a block.
    pub(crate) fn erase(cell: NonNull<Cell<F>>) -> Erased {
        Erased(cell.cast())
    }

    /// # Safety
    ///
    /// `cell` is a `Cell<F>`, pinned, and nobody else has a reference into it.
    unsafe fn content<'a>(cell: Erased) -> &'a mut Content<F> {
        // SAFETY: by the caller's promise.
        unsafe { &mut cell.0.cast::<Cell<F>>().as_mut().content }
    }

    /// # Safety
    ///
    /// As for `content`.
    unsafe fn poll(cell: Erased, context: &mut Context<'_>) -> Poll<Ended> {
        // SAFETY: by the caller's promise.
        let content = unsafe { Self::content(cell) };
        let Content::Running(future) = content else { return Poll::Ready(Ended::Finished) };
        // SAFETY: the future is never moved: it is dropped where it stands, by `replace`.
        let future = unsafe { Pin::new_unchecked(future) };
        let (output, ended) = match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => (Ok(output), Ended::Finished),
            Err(payload) => {
                let panic = describe(&*payload);
                tell(|| tracing::error!(task = %cell.label(), panic, "a task panicked"));
                (Err(JoinError::panicked(payload)), Ended::Panicked)
            }
        };
        replace(content, Content::Ended(output));
        Poll::Ready(ended)
    }

    /// # Safety
    ///
    /// As for `content`.
    unsafe fn abort(cell: Erased) {
        // SAFETY: by the caller's promise.
        let content = unsafe { Self::content(cell) };
        if let Content::Running(_) = content {
            replace(content, Content::Ended(Err(JoinError::aborted())));
        }
    }

    /// # Safety
    ///
    /// As for `content`.
    unsafe fn clear(cell: Erased) {
        // SAFETY: by the caller's promise.
        replace(unsafe { Self::content(cell) }, Content::Empty);
    }

    /// # Safety
    ///
    /// As for `content`, and `into` points to an `Option<Result<F::Output, JoinError>>`.
    unsafe fn take(cell: Erased, into: *mut ()) {
        // SAFETY: by the caller's promise.
        let content = unsafe { Self::content(cell) };
        if let Content::Ended(_) = content
            && let Content::Ended(output) = std::mem::replace(content, Content::Empty)
        {
            // SAFETY: by the caller's promise about `into`.
            unsafe { into.cast::<Option<Result<F::Output, JoinError>>>().write(Some(output)) };
        }
    }
}

/// Drops what is there, in place, and puts something else there. A panic of the destructor ends
/// here: it is the task's, and nobody waits for it.
fn replace<F: Future>(content: &mut Content<F>, with: Content<F>) {
    struct Put<'a, F: Future>(&'a mut Content<F>, MaybeUninit<Content<F>>);
    impl<F: Future> Drop for Put<'_, F> {
        fn drop(&mut self) {
            // SAFETY: `self.1` is initialized, and read but once, here. `self.0` was dropped in
            // place, or as much of it as there was before it panicked.
            unsafe { std::ptr::write(self.0, self.1.assume_init_read()) };
        }
    }
    contain("the destructor of a task", || {
        let put = Put(content, MaybeUninit::new(with));
        // SAFETY: it is valid, and overwritten, not dropped again, by the destructor of `put`,
        // which runs even if this panics.
        unsafe { std::ptr::drop_in_place(put.0) };
    });
}

impl Erased {
    fn functions(self) -> &'static Functions {
        // SAFETY: every cell starts with a head (`repr(C)`), and the table holds pointers only of
        // cells that live.
        unsafe { self.0.as_ref().functions }
    }

    fn label_cell(&self) -> &std::cell::Cell<Label> {
        // SAFETY: as above. What runs in the cell is its content, which the head is no part of.
        unsafe { &self.0.as_ref().label }
    }

    pub(crate) fn layout(self) -> Layout {
        self.functions().layout
    }

    pub(crate) fn label(self) -> Label {
        self.label_cell().get()
    }

    pub(crate) fn set_name(self, name: &'static str) {
        self.label_cell().set(Label { name, ..self.label() });
    }

    pub(crate) fn memory(self) -> NonNull<u8> {
        self.0.cast()
    }

    /// Polls the future; if it ends, its output is kept.
    ///
    /// # Safety
    ///
    /// The cell lives and is pinned, and no other function of it is running.
    pub(crate) unsafe fn poll(self, context: &mut Context<'_>) -> Poll<Ended> {
        // SAFETY: the functions are those of the cell's own type; the rest the caller promises.
        unsafe { (self.functions().poll)(self, context) }
    }

    /// Drops the future, if it has not ended, and keeps as its output that it was aborted.
    ///
    /// # Safety
    ///
    /// As for `poll`.
    pub(crate) unsafe fn abort(self) {
        // SAFETY: as in `poll`.
        unsafe { (self.functions().abort)(self) }
    }

    /// Drops whatever is in it. Its memory may then be used for something else.
    ///
    /// # Safety
    ///
    /// As for `poll`.
    pub(crate) unsafe fn clear(self) {
        // SAFETY: as in `poll`.
        unsafe { (self.functions().clear)(self) }
    }

    /// Takes the output out, if the task has ended and it was not taken.
    ///
    /// # Safety
    ///
    /// As for `poll`, and `T` is the output of the cell's future.
    pub(crate) unsafe fn take<T>(self) -> Option<Result<T, JoinError>> {
        let mut output: Option<Result<T, JoinError>> = None;
        // SAFETY: as in `poll`; `output` has the type that `take` wants.
        unsafe { (self.functions().take)(self, (&raw mut output).cast()) };
        output
    }
}
