//! The buffers that the kernel receives into: a ring of them, mapped and shared with it.
//!
//! The kernel takes a buffer when there is something to receive, not before; so a thousand idle
//! connections need none. A filled buffer is ours until it is given back.

use std::alloc::{Layout, LayoutError, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

use super::switch::Driver;
use crate::error::Error;

/// The number of the only group.
pub(crate) const GROUP: u16 = 0;
/// The kernel's own limit.
pub(crate) const MOST_BUFFERS: u16 = 1 << 15;
/// No kernel that we know of has larger pages.
const LARGEST_PAGE: usize = 64 << 10;
/// Each buffer starts one cache line further into its page than the one before. Small messages
/// touch only the start of a buffer, and would else all fall into the same few sets of the cache.
const STAGGER: usize = 64;

pub(crate) struct ProvidedBuffers {
    ring: NonNull<BufRingEntry>,
    ring_layout: Layout,
    memory: NonNull<u8>,
    memory_layout: Layout,
    count: u16,
    size: u32,
    /// How many entries were ever written, modulo 2^16.
    tail: Cell<u16>,
    /// How many the kernel has, as far as its completions tell.
    free: Cell<u16>,
    /// For which connection each was last filled.
    takers: Box<[Cell<u32>]>,
}

impl ProvidedBuffers {
    /// Buffers of `size` bytes, `count` of them, a power of two; all belong to the kernel.
    pub(crate) fn new(
        driver: &mut Driver,
        count: u16,
        size: u32,
    ) -> Result<ProvidedBuffers, Error> {
        let stride = size as usize + STAGGER;
        let too_large = |_| Error::Io {
            what: "receive buffers larger than all memory",
            source: std::io::ErrorKind::InvalidInput.into(),
        };
        let page = page_size();
        let ring_layout = paged::<BufRingEntry>(usize::from(count), page).map_err(too_large)?;
        let memory_layout = paged::<u8>(stride * usize::from(count), page).map_err(too_large)?;
        let buffers = ProvidedBuffers {
            ring: allocate(ring_layout).cast(),
            ring_layout,
            memory: allocate(memory_layout),
            memory_layout,
            count,
            size,
            tail: Cell::new(0),
            free: Cell::new(0),
            takers: vec![Cell::new(u32::MAX); usize::from(count)].into(),
        };
        // SAFETY: the ring is page-aligned and has `count` entries. It is freed when `buffers` is
        // dropped; its owner does that only after the driver is closed with nothing in flight,
        // which unregisters it, or never.
        unsafe { driver.register_buffers(buffers.ring, count)? };
        for id in 0..count {
            buffers.give(id);
        }
        Ok(buffers)
    }

    /// How many buffers the kernel can still fill.
    pub(crate) fn free(&self) -> u16 {
        self.free.get()
    }

    pub(crate) fn count(&self) -> u16 {
        self.count
    }

    /// Notes that the kernel filled one for a connection, which has this place in the core's table.
    pub(crate) fn taken(&self, id: u16, connection: u32) {
        self.free.set(self.free.get() - 1);
        self.takers[usize::from(id)].set(connection);
    }

    /// The places of the connections that may have a buffer: one for each buffer.
    pub(crate) fn takers(&self) -> impl Iterator<Item = usize> {
        self.takers.iter().map(|taker| taker.get() as usize)
    }

    fn start(&self, id: u16) -> NonNull<u8> {
        assert!(id < self.count);
        // SAFETY: by the assertion the buffer, of `size` bytes and a stagger, lies in the memory.
        unsafe { self.memory.add(usize::from(id) * (self.size as usize + STAGGER)) }
    }

    /// The first `length` bytes of a buffer that was taken.
    ///
    /// # Safety
    ///
    /// The buffer was filled by the kernel and not given back, and isn't while the slice is used.
    pub(crate) unsafe fn filled(&self, id: u16, length: u32) -> &[u8] {
        debug_assert!(length <= self.size);
        // SAFETY: the bytes lie in the buffer and are initialized: the memory was zeroed when it
        // was made. Nobody writes to them: the kernel does not, as the buffer isn't its own, and
        // we never do.
        unsafe { std::slice::from_raw_parts(self.start(id).as_ptr(), length as usize) }
    }

    /// Gives a buffer to the kernel. The caller has no slice of it any more.
    pub(crate) fn give(&self, id: u16) {
        let start = self.start(id);
        let tail = self.tail.get();
        let index = usize::from(tail & (self.count - 1));
        // SAFETY: the index is below `count`, so the entry lies in the ring. The kernel reads it
        // only after the tail has passed it, which is below; it was read the last time around
        // before its buffer, one of `count`, could be filled and come back.
        let entry = unsafe { self.ring.add(index).as_mut() };
        entry.set_addr(start.as_ptr() as u64);
        entry.set_len(self.size);
        entry.set_bid(id);
        let tail = tail.wrapping_add(1);
        self.tail.set(tail);
        self.free.set(self.free.get() + 1);
        // SAFETY: `ring` points to the first entry of a ring, and its memory is initialized. The
        // tail in it is 2 bytes, aligned, shared with the kernel and so accessed atomically; the
        // setters above leave it alone, as it is the unused field of the first entry.
        unsafe {
            let shared = BufRingEntry::tail(self.ring.as_ptr()).cast_mut();
            AtomicU16::from_ptr(shared).store(tail, Ordering::Release);
        }
    }
}

impl Drop for ProvidedBuffers {
    fn drop(&mut self) {
        // SAFETY: both were allocated with these layouts. The kernel has neither any more: see
        // `new`. No slice of a buffer is left: leases hold what holds this.
        unsafe {
            std::alloc::dealloc(self.ring.as_ptr().cast(), self.ring_layout);
            std::alloc::dealloc(self.memory.as_ptr(), self.memory_layout);
        }
    }
}

/// Whole pages for so many.
fn paged<T>(count: usize, page: usize) -> Result<Layout, LayoutError> {
    Ok(Layout::array::<T>(count)?.align_to(page)?.pad_to_align())
}

/// How large a page is. The kernel refuses a ring that doesn't start at one of its own pages, which
/// are of 4 KiB on x86, and of 4, 16 or 64 KiB on ARM.
fn page_size() -> usize {
    // SAFETY: no memory is passed.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(LARGEST_PAGE)
}

/// Zeroed memory, which the system lends without touching it where it is large.
fn allocate(layout: Layout) -> NonNull<u8> {
    assert!(layout.size() > 0);
    // SAFETY: the layout is not of size zero.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_starts_at_a_page_however_large_pages_are() {
        for page in [4096, 16 << 10, LARGEST_PAGE] {
            for count in [1, 256, MOST_BUFFERS] {
                let layout = paged::<BufRingEntry>(usize::from(count), page).unwrap();
                assert_eq!(layout.align(), page);
                assert_eq!(layout.size() % page, 0, "it shares its last page with nothing");
                assert!(layout.size() >= usize::from(count) * size_of::<BufRingEntry>());
            }
        }
        assert!(page_size().is_power_of_two() && page_size() >= 4096);
    }
}
