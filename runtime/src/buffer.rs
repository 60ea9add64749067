//! Owned, aligned, pooled memory for files and for payloads.
//!
//! A [`Buffer`] is a place that the kernel may read from or write to for as long as an operation
//! takes, which no borrow can promise: so it is handed to the operation and comes back with its
//! result. All are aligned to [`ALIGNMENT`], which suits direct I/O on every known device. When
//! dropped, a buffer goes back to its pool; taking one again then allocates nothing.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

/// What the address of every buffer is a multiple of, in bytes.
pub const ALIGNMENT: usize = 4096;

/// Classes of size: 4 KiB, 8 KiB and so on to 2 MiB. Larger ones are not kept.
const CLASSES: usize = 10;
/// At most so many bytes of each class are kept.
const KEPT_BYTES: usize = 16 << 20;

/// Keeps memory of buffers that were dropped for those that will be taken.
///
/// Every runtime has a pool, and [`take`] takes from that; another can be made where a part of a
/// program is to have its own.
#[derive(Clone, Default)]
pub struct Pool {
    classes: Rc<RefCell<[Vec<Memory>; CLASSES]>>,
}

impl Pool {
    /// An empty pool.
    pub fn new() -> Pool {
        Pool::default()
    }

    /// A buffer of `length` bytes. Its content is whatever it held last, or zeros.
    pub fn take(&self, length: usize) -> Buffer {
        let capacity = capacity_for(length);
        let kept = class_of(capacity).and_then(|class| self.classes.borrow_mut()[class].pop());
        let memory = kept.unwrap_or_else(|| Memory::allocate(capacity));
        Buffer { memory: Some(memory), length, pool: self.clone() }
    }

    /// Makes sure that `count` buffers of `length` bytes can be taken without allocation, as far
    /// as the pool keeps so many: it keeps 16 MiB of each size up to 2 MiB.
    pub fn reserve(&self, count: usize, length: usize) {
        let taken: Vec<Buffer> = (0..count).map(|_| self.take(length)).collect();
        drop(taken);
    }

    fn put_back(&self, memory: Memory) {
        let Some(class) = class_of(memory.capacity) else { return };
        let kept = &mut self.classes.borrow_mut()[class];
        if (kept.len() + 1) * memory.capacity <= KEPT_BYTES {
            kept.push(memory);
        }
    }
}

fn capacity_for(length: usize) -> usize {
    length.max(ALIGNMENT).next_power_of_two()
}

fn class_of(capacity: usize) -> Option<usize> {
    let class = (capacity / ALIGNMENT).ilog2() as usize;
    (class < CLASSES).then_some(class)
}

/// A buffer of `length` bytes from the current runtime's pool. Its content is whatever it held
/// last, or zeros.
///
/// # Panics
///
/// Outside a runtime.
pub fn take(length: usize) -> Buffer {
    crate::core::with(|core| core.pool.take(length))
}

/// Aligned memory, initialized.
struct Memory {
    start: NonNull<u8>,
    capacity: usize,
}

impl Memory {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT).expect("a buffer smaller than half of memory")
    }

    fn allocate(capacity: usize) -> Memory {
        let layout = Self::layout(capacity);
        // SAFETY: the size is not zero, as every capacity is at least ALIGNMENT.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Memory { start, capacity }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `start` was allocated with this layout, and its owner is gone. The kernel has no
        // part in it: an operation owns the buffers that it was given until its last completion.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), Self::layout(self.capacity)) };
    }
}

/// Owned memory, aligned to [`ALIGNMENT`]. It dereferences to its bytes.
///
/// ```
/// use bowline_runtime::{Runtime, buffer};
///
/// let runtime = Runtime::builder().build()?;
/// runtime.block_on(async {
///     let mut block = buffer::take(4096);
///     block.fill(7);
///     block.resize(100);
///     assert_eq!(block.as_ptr().addr() % buffer::ALIGNMENT, 0);
///     assert_eq!(&block[..], [7; 100]);
/// });
/// # Ok::<(), bowline_runtime::Error>(())
/// ```
pub struct Buffer {
    /// Always there until the buffer is dropped.
    memory: Option<Memory>,
    length: usize,
    pool: Pool,
}

impl Buffer {
    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("a buffer that was not dropped has memory")
    }

    /// How long it can become.
    pub fn capacity(&self) -> usize {
        self.memory().capacity
    }

    /// Makes it longer or shorter. Bytes that are uncovered hold what they last held.
    ///
    /// # Panics
    ///
    /// If `length` is above the capacity.
    pub fn resize(&mut self, length: usize) {
        assert!(length <= self.capacity(), "a buffer does not grow beyond its capacity");
        self.length = length;
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.memory().start.as_ptr()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is initialized from its allocation on, and at least `length` long.
        unsafe { std::slice::from_raw_parts(self.start(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and `self`, borrowed for as long as the slice, is the sole owner.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.pool.put_back(memory);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.length, self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_again_and_never_grows_beyond_what_is_kept() {
        let pool = Pool::new();
        let first = pool.take(5000);
        assert_eq!(first.capacity(), 8192);
        assert!(first.iter().all(|&byte| byte == 0));
        let address = first.start();
        drop(first);
        assert_eq!(pool.take(8192).start(), address);
        pool.reserve(20, 2 << 20);
        let kept = pool.classes.borrow()[CLASSES - 1].len();
        assert_eq!(kept, KEPT_BYTES / (2 << 20));
        drop(pool.take(4 << 20));
    }

    #[test]
    fn a_buffer_outlives_the_handle_of_its_pool() {
        let pool = Pool::new();
        let mut buffer = pool.take(10);
        drop(pool);
        buffer.fill(1);
        assert_eq!(&buffer[..], [1; 10]);
    }
}
