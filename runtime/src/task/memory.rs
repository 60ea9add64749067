//! Memory for tasks: blocks in classes of size, kept when freed.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::UnsafeCell;
use std::ptr::NonNull;

/// Blocks of 128, 256 and so on to 16 384 bytes are kept; larger ones are not.
const SMALLEST: usize = 128;
const CLASSES: usize = 8;
/// All blocks are aligned to this, so that no two share a cache line.
const ALIGNMENT: usize = 64;

/// Free blocks, by class.
pub(crate) struct Blocks {
    free: UnsafeCell<[Vec<NonNull<u8>>; CLASSES]>,
}

impl Blocks {
    pub(crate) fn new() -> Blocks {
        Blocks { free: UnsafeCell::new(Default::default()) }
    }

    /// Memory for such a thing. It is uninitialized.
    pub(crate) fn take(&self, layout: Layout) -> NonNull<u8> {
        let (class, layout) = classify(layout);
        if let Some(class) = class {
            // SAFETY: the cell is reached only within this function and `put_back`, neither of
            // which calls anything that could come back here while the reference lives; and only
            // by one thread, as `Blocks` is not Sync.
            let free = unsafe { &mut (*self.free.get())[class] };
            if let Some(block) = free.pop() {
                return block;
            }
        }
        // SAFETY: the size is not zero: a class has at least SMALLEST, and a cell has a header.
        let block = unsafe { std::alloc::alloc(layout) };
        NonNull::new(block).unwrap_or_else(|| handle_alloc_error(layout))
    }

    /// Takes memory back.
    ///
    /// # Safety
    ///
    /// The block came from `take` with the same layout, of these `Blocks`, and is not used any more.
    pub(crate) unsafe fn put_back(&self, block: NonNull<u8>, layout: Layout) {
        let (class, layout) = classify(layout);
        match class {
            // SAFETY: as in `take`.
            Some(class) => unsafe { (*self.free.get())[class].push(block) },
            // SAFETY: it was allocated with this layout, by `take`.
            None => unsafe { std::alloc::dealloc(block.as_ptr(), layout) },
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for (class, free) in self.free.get_mut().iter_mut().enumerate() {
            for block in free.drain(..) {
                // SAFETY: blocks of a class are allocated with the class's layout.
                unsafe { std::alloc::dealloc(block.as_ptr(), class_layout(class)) };
            }
        }
    }
}

fn class_layout(class: usize) -> Layout {
    Layout::from_size_align(SMALLEST << class, ALIGNMENT).expect("a small power of two")
}

/// The class for a layout and the layout to allocate with; the latter alone if there is no class.
fn classify(layout: Layout) -> (Option<usize>, Layout) {
    let size = layout.size().max(SMALLEST).next_power_of_two();
    let class = (size / SMALLEST).ilog2() as usize;
    if class < CLASSES && layout.align() <= ALIGNMENT {
        (Some(class), class_layout(class))
    } else {
        (None, layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_used_again_by_whatever_fits_its_class() {
        let blocks = Blocks::new();
        let small = Layout::new::<[u64; 10]>();
        let block = blocks.take(small);
        // SAFETY: taken with this layout, and not used.
        unsafe { blocks.put_back(block, small) };
        let other = Layout::new::<[u8; 128]>();
        assert_eq!(blocks.take(other), block);
        // SAFETY: taken with this layout, and not used.
        unsafe { blocks.put_back(block, other) };
        let huge = Layout::from_size_align(1 << 20, 4096).unwrap();
        let block = blocks.take(huge);
        assert_eq!(block.addr().get() % 4096, 0);
        // SAFETY: taken with this layout, and not used.
        unsafe { blocks.put_back(block, huge) };
    }
}
