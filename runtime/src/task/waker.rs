//! Wakers that point to nothing.
//!
//! A waker is Send and Sync and may outlive its task, its runtime and its thread. Rather than count
//! references, it carries a number in place of a pointer: which runtime, which task, and the
//! task's generation. Cloning and dropping it costs nothing. Waking looks the number up: on the
//! runtime's own thread in its table, elsewhere in the list of all runtimes. A number that names
//! nothing any more wakes nobody; at worst, after a generation has come round, it wakes somebody in
//! vain, which every future must bear.

use std::mem::ManuallyDrop;
use std::ptr;
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::remote;

const _: () = assert!(usize::BITS == 64, "a waker's number needs the width of a pointer");

/// The number of a task.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct TaskId {
    /// The runtime's place in the list of all.
    pub(crate) runtime: u16,
    pub(crate) generation: u16,
    pub(crate) index: u32,
}

impl TaskId {
    fn to_data(self) -> *const () {
        let number = usize::from(self.runtime) << 48
            | usize::from(self.generation) << 32
            | self.index as usize;
        ptr::without_provenance(number)
    }

    fn from_data(data: *const ()) -> TaskId {
        let number = data.addr();
        TaskId {
            runtime: (number >> 48) as u16,
            generation: (number >> 32) as u16,
            index: number as u32,
        }
    }

    /// The waker, not to be dropped: that would do nothing, but take an indirect call.
    pub(crate) fn waker(self) -> ManuallyDrop<Waker> {
        // SAFETY: the functions uphold the contract of a waker on any thread and at any time, as
        // none of them dereferences the pointer; see each.
        ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(self.to_data(), &FUNCTIONS)) })
    }

    /// Whom a waker wakes, if it is one of ours.
    pub(crate) fn of(waker: &Waker) -> Option<TaskId> {
        ptr::eq(waker.vtable(), &raw const FUNCTIONS).then(|| TaskId::from_data(waker.data()))
    }

    pub(crate) fn wake(self) {
        crate::core::try_with(|core| match core {
            Some(core) if core.id == self.runtime => core.wake(self),
            _ => remote::wake(self),
        });
    }
}

static FUNCTIONS: RawWakerVTable = RawWakerVTable::new(
    |data| RawWaker::new(data, &FUNCTIONS),
    |data| TaskId::from_data(data).wake(),
    |data| TaskId::from_data(data).wake(),
    |_| {},
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_survives_being_a_pointer() {
        let id = TaskId { runtime: 0xfedc, generation: 0xba98, index: 0x7654_3210 };
        assert_eq!(TaskId::from_data(id.to_data()), id);
        let waker = id.waker();
        assert!(waker.will_wake(&id.waker()));
        let other = TaskId { generation: 1, ..id };
        assert!(!waker.will_wake(&other.waker()));
        assert_eq!(TaskId::of(&waker), Some(id));
        assert_eq!(TaskId::of(Waker::noop()), None);
    }
}
