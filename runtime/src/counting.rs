//! An allocator that counts, thread by thread: proof that a steady state allocates nothing, and that
//! what is long is put into no more places than it has to be.
//!
//! ```
//! use bowline_runtime::counting::{CountingAllocator, allocations, held_bytes};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let (before, held) = (allocations(), held_bytes());
//! let mut four = vec![5_u8; 4];
//! assert_eq!((allocations() - before, held_bytes() - held), (1, 4));
//! four.reserve_exact(20);
//! assert_eq!(held_bytes() - held, 24);
//! drop(four);
//! assert_eq!((allocations() - before, held_bytes() - held), (2, 0));
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LARGE_ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// From so many bytes on an allocation is a large one.
pub const LARGE: usize = 8 << 10;

/// The system's allocator, with a count of its calls.
#[derive(Debug)]
pub struct CountingAllocator;

/// How often this thread has allocated or reallocated, if [`CountingAllocator`] is the global
/// allocator.
pub fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// As [`allocations`], of those of [`LARGE`] bytes or more alone.
pub fn large_allocations() -> u64 {
    LARGE_ALLOCATIONS.with(Cell::get)
}

/// The bytes that this thread has allocated and not freed, if [`CountingAllocator`] is the global
/// allocator. What another thread frees counts on; what this one frees for another is taken off.
pub fn held_bytes() -> i64 {
    HELD.with(Cell::get)
}

fn count(size: usize) {
    hold(size as i64);
    ALLOCATIONS.with(|count| count.set(count.get() + 1));
    if size >= LARGE {
        LARGE_ALLOCATIONS.with(|count| count.set(count.get() + 1));
    }
}

fn hold(bytes: i64) {
    HELD.with(|held| held.set(held.get() + bytes));
}

// SAFETY: every call is passed on to the system's allocator, which keeps the contract. Counting
// allocates nothing: the thread-locals need neither initialization nor destruction.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: passed on as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: passed on as it came.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        hold(-(layout.size() as i64));
        // SAFETY: passed on as it came.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64));
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(pointer, layout) }
    }
}
