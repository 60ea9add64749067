//! An allocator that counts, thread by thread: proof that a steady state allocates nothing, and that
//! what is long is put into no more places than it has to be.
//!
//! ```
//! use bowline_runtime::counting::{CountingAllocator, allocations};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator;
//!
//! let before = allocations();
//! drop(Box::new(5));
//! assert_eq!(allocations() - before, 1);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LARGE_ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
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

fn count(size: usize) {
    ALLOCATIONS.with(|count| count.set(count.get() + 1));
    if size >= LARGE {
        LARGE_ALLOCATIONS.with(|count| count.set(count.get() + 1));
    }
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
        // SAFETY: passed on as it came.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(pointer, layout) }
    }
}
