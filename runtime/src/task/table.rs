//! The table of a core's tasks, and the queues of those that are ready.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::panic::Location;
use std::task::{Context, Poll, Waker};

use super::cell::{self, Ended, Erased};
use super::join::JoinError;
use super::memory::Blocks;
use super::waker::TaskId;
use super::{Label, Stage};
use crate::metrics::Counters;
use crate::notify::wake;

/// It is in a queue, to be polled.
const QUEUED: u8 = 1;
/// It is being polled, or its future being dropped.
const RUNNING: u8 = 2;
/// Its future is gone; its output may be there.
const ENDED: u8 = 4;
/// Nobody will take its output.
const DETACHED: u8 = 8;
/// It is to be ended in place of its next poll.
const ABORTED: u8 = 16;
/// Its cell is not ours to free.
const BORROWED: u8 = 32;

#[derive(Default)]
struct Slot {
    /// None if the slot is free.
    cell: Option<Erased>,
    generation: u16,
    flags: u8,
    stage: Stage,
    joiner: Option<Waker>,
}

/// The tasks of a core.
///
/// No user code (a poll, a destructor, a foreign waker) ever runs while anything in here is
/// borrowed: it may spawn, wake, abort and detach at will.
pub(crate) struct Tasks {
    runtime: u16,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    ready: [RefCell<VecDeque<u32>>; Stage::COUNT],
    /// A bit for each stage of which a task is ready.
    stages: Cell<u8>,
    /// Those that woke themselves while they ran. They wait for the next turn.
    yielded: RefCell<Vec<TaskId>>,
    /// How many of those are background tasks.
    yielded_background: Cell<usize>,
    blocks: Blocks,
    live: Cell<usize>,
    /// A task that was adopted has ended: whoever runs the loop for it is to be told.
    adopted_ended: Cell<bool>,
    /// Set when the runtime ends: what is spawned now ends at once.
    closed: Cell<bool>,
}

impl Tasks {
    pub(crate) fn new(runtime: u16) -> Tasks {
        Tasks {
            runtime,
            slots: RefCell::default(),
            free: RefCell::default(),
            ready: Default::default(),
            stages: Cell::new(0),
            yielded: RefCell::default(),
            yielded_background: Cell::new(0),
            blocks: Blocks::new(),
            live: Cell::new(0),
            adopted_ended: Cell::new(false),
            closed: Cell::new(false),
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.live.get()
    }

    /// Makes a task of a future. It is ready.
    pub(crate) fn spawn<F: Future + 'static>(
        &self,
        stage: Stage,
        future: F,
        spawned: &'static Location<'static>,
    ) -> TaskId {
        let memory = self.blocks.take(cell::Cell::<F>::LAYOUT);
        // SAFETY: the memory was taken for this layout.
        let cell = unsafe { cell::Cell::write(memory, future, spawned) };
        let id = self.insert(cell, stage, 0);
        if self.closed.get() {
            self.abort(id);
            self.poll(id.index);
        }
        id
    }

    /// Makes a task of a future that stands elsewhere.
    ///
    /// # Safety
    ///
    /// The cell stays where it is until `forget`.
    pub(crate) unsafe fn adopt(&self, cell: Erased) -> TaskId {
        self.adopted_ended.set(false);
        self.insert(cell, Stage::Work, BORROWED)
    }

    /// Removes a task that was adopted. Its cell is the caller's again.
    pub(crate) fn forget(&self, id: TaskId) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[id.index as usize];
        if slot.flags & ENDED == 0 {
            self.live.set(self.live.get() - 1);
        }
        self.free_slot(slot, id.index);
    }

    fn insert(&self, cell: Erased, stage: Stage, flags: u8) -> TaskId {
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(Slot::default());
            (slots.len() - 1) as u32
        });
        let slot = &mut slots[index as usize];
        slot.cell = Some(cell);
        slot.stage = stage;
        slot.flags = flags | QUEUED;
        self.live.set(self.live.get() + 1);
        self.queue(stage, index);
        TaskId { runtime: self.runtime, generation: slot.generation, index }
    }

    /// Makes a task ready, if it lives and isn't.
    pub(crate) fn wake(&self, id: TaskId) -> bool {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(id.index as usize) else { return false };
        // A free slot has a generation too.
        let lives = slot.cell.is_some() && slot.flags & (QUEUED | ENDED) == 0;
        if slot.generation != id.generation || !lives {
            return false;
        }
        slot.flags |= QUEUED;
        if slot.flags & RUNNING != 0 {
            self.yielded.borrow_mut().push(id);
            let background = usize::from(slot.stage == Stage::Background);
            self.yielded_background.set(self.yielded_background.get() + background);
        } else {
            self.queue(slot.stage, id.index);
        }
        true
    }

    /// Makes every task ready.
    pub(crate) fn wake_all(&self) {
        let count = self.slots.borrow().len() as u32;
        for index in 0..count {
            let generation = self.slots.borrow()[index as usize].generation;
            self.wake(TaskId { runtime: self.runtime, generation, index });
        }
    }

    fn queue(&self, stage: Stage, index: u32) {
        self.ready[stage as usize].borrow_mut().push_back(index);
        self.stages.set(self.stages.get() | 1 << stage as u8);
    }

    pub(crate) fn is_ready(&self, stage: Stage) -> bool {
        self.stages.get() & 1 << stage as u8 != 0
    }

    /// Whether a task of any later stage is ready.
    pub(crate) fn is_ready_after(&self, stage: Stage) -> bool {
        self.stages.get() >> (stage as u8 + 1) != 0
    }

    /// Whether the task that was adopted has ended.
    pub(crate) fn adopted_ended(&self) -> bool {
        self.adopted_ended.get()
    }

    /// Whether any task is ready, be it only in the next turn.
    pub(crate) fn any_ready(&self) -> bool {
        self.stages.get() != 0 || !self.yielded.borrow().is_empty()
    }

    /// Whether any task that is not a background task is ready, be it only in the next turn.
    pub(crate) fn is_urgent(&self) -> bool {
        self.yielded.borrow().len() > self.yielded_background.get()
            || self.stages.get() & ((1 << Stage::Background as u8) - 1) != 0
    }

    /// Makes those ready that yielded in the turn before.
    #[inline]
    pub(crate) fn begin_turn(&self) {
        if !self.yielded.borrow().is_empty() {
            self.queue_yielded();
        }
    }

    #[inline(never)]
    fn queue_yielded(&self) {
        let mut yielded = self.yielded.borrow_mut();
        let slots = self.slots.borrow();
        self.yielded_background.set(0);
        for id in yielded.drain(..) {
            let slot = &slots[id.index as usize];
            if slot.generation == id.generation {
                self.queue(slot.stage, id.index);
            }
        }
    }

    /// The next ready task of a stage.
    pub(crate) fn next(&self, stage: Stage) -> Option<u32> {
        if !self.is_ready(stage) {
            return None;
        }
        let mut queue = self.ready[stage as usize].borrow_mut();
        let next = queue.pop_front();
        if queue.is_empty() {
            self.stages.set(self.stages.get() & !(1 << stage as u8));
        }
        next
    }

    /// Polls a task that was queued. Says how it ended, if it did.
    pub(crate) fn poll(&self, index: u32) -> Option<Ended> {
        let (cell, id, aborted) = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[index as usize];
            let cell = slot.cell?;
            if slot.flags & (ENDED | RUNNING) != 0 {
                return None;
            }
            slot.flags = slot.flags & !QUEUED | RUNNING;
            let id = TaskId { runtime: self.runtime, generation: slot.generation, index };
            (cell, id, slot.flags & ABORTED != 0)
        };
        let ended = if aborted {
            // SAFETY: the slot has the cell until the task has ended; RUNNING, which was not set,
            // keeps all others out of it.
            unsafe { cell.abort() };
            Ended::Finished
        } else {
            let waker = id.waker();
            // SAFETY: as above.
            match unsafe { cell.poll(&mut Context::from_waker(&waker)) } {
                Poll::Ready(ended) => ended,
                Poll::Pending => {
                    self.slots.borrow_mut()[index as usize].flags &= !RUNNING;
                    return None;
                }
            }
        };
        self.end(index, cell);
        Some(ended)
    }

    /// Notes that a task has ended, and tells who awaits it.
    fn end(&self, index: u32, cell: Erased) {
        self.live.set(self.live.get() - 1);
        let (detached, joiner) = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[index as usize];
            slot.flags |= ENDED;
            self.adopted_ended.set(self.adopted_ended.get() || slot.flags & BORROWED != 0);
            (slot.flags & DETACHED != 0, slot.joiner.take())
        };
        if detached {
            // SAFETY: RUNNING is still set.
            unsafe { cell.clear() };
            self.release(index, cell);
            return;
        }
        self.slots.borrow_mut()[index as usize].flags &= !RUNNING;
        if let Some(joiner) = joiner {
            wake(joiner);
        }
    }

    /// Frees the slot and the cell of a task that has ended and whose cell is empty.
    fn release(&self, index: u32, cell: Erased) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[index as usize];
        debug_assert!(slot.flags & BORROWED == 0);
        self.free_slot(slot, index);
        // SAFETY: the memory was taken for this layout. Its content was dropped, and the slot, the
        // only one to point to it, doesn't any more.
        unsafe { self.blocks.put_back(cell.memory(), cell.layout()) };
    }

    fn free_slot(&self, slot: &mut Slot, index: u32) {
        slot.cell = None;
        slot.flags = 0;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.borrow_mut().push(index);
    }

    /// See [`JoinHandle::abort`](super::JoinHandle::abort).
    pub(crate) fn abort(&self, id: TaskId) {
        {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[id.index as usize];
            if slot.generation != id.generation || slot.flags & ENDED != 0 {
                return;
            }
            slot.flags |= ABORTED;
        }
        self.wake(id);
    }

    pub(crate) fn has_ended(&self, id: TaskId) -> bool {
        let slots = self.slots.borrow();
        let slot = &slots[id.index as usize];
        slot.generation != id.generation || slot.flags & ENDED != 0
    }

    /// Takes the output if the task has ended, and notes whom to wake if it has not.
    ///
    /// # Safety
    ///
    /// `T` is the output of the task's future. The output was not taken yet, nor the task detached.
    pub(crate) unsafe fn poll_join<T>(
        &self,
        id: TaskId,
        context: &Context<'_>,
    ) -> Poll<Result<T, JoinError>> {
        let (ended, noted, cell) = {
            let slot = &self.slots.borrow()[id.index as usize];
            debug_assert_eq!(slot.generation, id.generation);
            let noted = slot.joiner.as_ref().is_some_and(|one| one.will_wake(context.waker()));
            (slot.flags & ENDED != 0, noted, slot.cell)
        };
        if !ended && !noted {
            let joiner = context.waker().clone();
            let replaced = self.slots.borrow_mut()[id.index as usize].joiner.replace(joiner);
            drop(replaced);
        }
        if !ended {
            return Poll::Pending;
        }
        let Some(cell) = cell else { return Poll::Ready(Err(JoinError::aborted())) };
        // SAFETY: the task has ended, so that nothing of the cell runs; `T` the caller promises.
        let output = unsafe { cell.take() };
        self.release(id.index, cell);
        Poll::Ready(output.unwrap_or_else(|| Err(JoinError::aborted())))
    }

    /// Notes that nobody will take the output.
    pub(crate) fn detach(&self, id: TaskId) {
        let (cell, joiner) = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[id.index as usize];
            debug_assert_eq!(slot.generation, id.generation);
            slot.flags |= DETACHED;
            let ended = slot.flags & (ENDED | RUNNING) == ENDED;
            (slot.cell.filter(|_| ended), slot.joiner.take())
        };
        drop(joiner);
        if let Some(cell) = cell {
            self.slots.borrow_mut()[id.index as usize].flags |= RUNNING;
            // SAFETY: the task has ended, and RUNNING keeps all others out of its cell.
            unsafe { cell.clear() };
            self.release(id.index, cell);
        }
    }

    /// Ends all tasks, and those that their destructors spawn.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        let mut index = 0;
        loop {
            match self.slots.borrow_mut().get_mut(index) {
                Some(slot) => slot.flags |= ABORTED,
                None => return,
            }
            self.poll(index as u32);
            index += 1;
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Polls a task that was queued, and counts that.
    pub(crate) fn poll_counted(&self, index: u32, counters: &Counters) {
        counters.polls.add(1);
        if self.poll(index) == Some(Ended::Panicked) {
            counters.panics.add(1);
        }
    }

    pub(crate) fn label(&self, index: u32) -> Option<Label> {
        self.slots.borrow().get(index as usize)?.cell.map(Erased::label)
    }

    /// See [`JoinHandle::named`](super::JoinHandle::named).
    pub(crate) fn set_name(&self, id: TaskId, name: &'static str) {
        let slots = self.slots.borrow();
        let slot = &slots[id.index as usize];
        if let Some(cell) = slot.cell.filter(|_| slot.generation == id.generation) {
            cell.set_name(name);
        }
    }
}
