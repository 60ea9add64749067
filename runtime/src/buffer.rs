//! Owned, aligned, pooled memory for files.
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

/// Keeps memory of buffers that were dropped for those that will be taken. Every runtime has one.
#[derive(Clone, Default)]
pub(crate) struct Pool {
    kept: Rc<RefCell<Kept>>,
}

#[derive(Default)]
struct Kept {
    classes: [Vec<Memory>; CLASSES],
    /// Blocks of the region that the kernel knows, all of one capacity.
    registered: Vec<Memory>,
    registered_capacity: usize,
}

impl Kept {
    fn take(&mut self, capacity: usize) -> Option<Memory> {
        if capacity == self.registered_capacity
            && let Some(memory) = self.registered.pop()
        {
            return Some(memory);
        }
        self.take_plain(capacity)
    }

    fn take_plain(&mut self, capacity: usize) -> Option<Memory> {
        self.classes[class_of(capacity)?].pop()
    }
}

impl Pool {
    /// An empty pool.
    pub(crate) fn new() -> Pool {
        Pool::default()
    }

    /// A buffer of `length` bytes. Its content is whatever it held last, or zeros.
    pub(crate) fn take(&self, length: usize) -> Buffer {
        self.take_by(Kept::take, length)
    }

    /// The same, but never of the region: its blocks are few, and made for transfers.
    pub(crate) fn take_plain(&self, length: usize) -> Buffer {
        self.take_by(Kept::take_plain, length)
    }

    fn take_by(&self, take: fn(&mut Kept, usize) -> Option<Memory>, length: usize) -> Buffer {
        let capacity = capacity_for(length).expect(IMPOSSIBLE);
        let kept = take(&mut self.kept.borrow_mut(), capacity);
        let memory = kept.unwrap_or_else(|| Memory::allocate(capacity));
        Buffer { memory: Some(memory), length, pool: self.clone() }
    }

    /// Adds the blocks of a region that the kernel knows; there is one region in a pool. They are
    /// taken before others of their capacity, and come back whatever else the pool keeps.
    pub(crate) fn add_region(&self, region: Region) {
        let region = Rc::new(region);
        let mut kept = self.kept.borrow_mut();
        debug_assert!(kept.registered.is_empty(), "one region is all that a pool can have");
        kept.registered_capacity = region.capacity;
        kept.registered = (0..region.count).map(|index| Region::block(&region, index)).collect();
    }

    /// Whether the buffer lies in this pool's region.
    pub(crate) fn has_registered(&self, buffer: &Buffer) -> bool {
        buffer.is_registered() && Rc::ptr_eq(&self.kept, &buffer.pool.kept)
    }

    fn put_back(&self, memory: Memory) {
        let mut kept = self.kept.borrow_mut();
        if memory.region.is_some() {
            kept.registered.push(memory);
            return;
        }
        let Some(class) = class_of(memory.capacity) else { return };
        let kept = &mut kept.classes[class];
        if (kept.len() + 1) * memory.capacity <= KEPT_BYTES {
            kept.push(memory);
        }
    }
}

/// Why there is always a capacity, and a layout.
const IMPOSSIBLE: &str = "a buffer smaller than half of memory";

fn capacity_for(length: usize) -> Option<usize> {
    length.max(ALIGNMENT).checked_next_power_of_two()
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

/// Blocks of memory, all in one piece, of which the kernel is told once.
pub(crate) struct Region {
    start: NonNull<u8>,
    count: usize,
    capacity: usize,
}

impl Region {
    /// So many blocks for buffers of `length` bytes; None if there is no such memory.
    pub(crate) fn new(count: usize, length: usize) -> Option<Region> {
        let capacity = capacity_for(length)?;
        let layout = Self::layout(count, capacity).filter(|layout| layout.size() > 0)?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some(Region { start, count, capacity })
    }

    fn layout(count: usize, capacity: usize) -> Option<Layout> {
        Layout::from_size_align(count.checked_mul(capacity)?, ALIGNMENT).ok()
    }

    /// Where it starts, and its length.
    pub(crate) fn memory(&self) -> (NonNull<u8>, usize) {
        (self.start, self.count * self.capacity)
    }

    fn block(region: &Rc<Region>, index: usize) -> Memory {
        // SAFETY: the index is below the count, so that the block lies in the region.
        let start = unsafe { region.start.add(index * region.capacity) };
        Memory { start, capacity: region.capacity, region: Some(region.clone()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let Some(layout) = Self::layout(self.count, self.capacity) else { return };
        // SAFETY: it was allocated with this layout, and none of its blocks is left: each holds the
        // region. What the kernel pinned of it, it lets go when it likes.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), layout) };
    }
}

/// Aligned memory, initialized.
struct Memory {
    start: NonNull<u8>,
    capacity: usize,
    /// Whose it is, if it is not alone.
    region: Option<Rc<Region>>,
}

impl Memory {
    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, ALIGNMENT).expect(IMPOSSIBLE)
    }

    fn allocate(capacity: usize) -> Memory {
        let layout = Self::layout(capacity);
        // SAFETY: the size is not zero, as every capacity is at least ALIGNMENT.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Memory { start, capacity, region: None }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.region.is_some() {
            return;
        }
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

    /// Whether it lies in memory that the kernel was told of once for all, see
    /// [`Builder::registered_buffers`](crate::Builder::registered_buffers).
    pub fn is_registered(&self) -> bool {
        self.memory().region.is_some()
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

    fn fill(pool: &Pool, count: usize, length: usize) {
        drop((0..count).map(|_| pool.take(length)).collect::<Vec<Buffer>>());
    }

    #[test]
    fn memory_is_taken_again_and_never_grows_beyond_what_is_kept() {
        let pool = Pool::new();
        let first = pool.take(5000);
        assert_eq!(first.capacity(), 8192);
        assert!(first.iter().all(|&byte| byte == 0));
        let address = first.start();
        drop(first);
        assert_eq!(pool.take(8192).start(), address);
        fill(&pool, 20, 2 << 20);
        let kept = pool.kept.borrow().classes[CLASSES - 1].len();
        assert_eq!(kept, KEPT_BYTES / (2 << 20));
        drop(pool.take(4 << 20));
    }

    #[test]
    fn blocks_of_a_region_are_taken_first_and_always_come_back() {
        let pool = Pool::new();
        fill(&pool, 8, 8192);
        pool.add_region(Region::new(2, 5000).unwrap());
        assert!(!pool.take_plain(8192).is_registered(), "it was not asked for");
        let (first, second, third) = (pool.take(8192), pool.take(4097), pool.take(8192));
        assert!(pool.has_registered(&first) && pool.has_registered(&second));
        assert!(!third.is_registered(), "the region has two blocks");
        assert!(!pool.take(4096).is_registered(), "another capacity");
        assert!(!Pool::new().has_registered(&first), "another pool's");
        let taken = first.start();
        drop((first, third));
        assert_eq!(pool.take(8192).start(), taken);
        drop(pool);
        assert_eq!(second[4096], 0, "a buffer outlives its pool");
        assert!(Region::new(usize::MAX / 2, 8192).is_none());
        assert!(Region::new(1, usize::MAX).is_none());
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
