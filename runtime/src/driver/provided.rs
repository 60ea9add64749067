//! The buffers that the kernel receives into: a ring of them, mapped and shared with it.
//!
//! The kernel takes a buffer when there is something to receive, not before; so a thousand idle
//! connections need none. A filled buffer is ours until it is given back. Depending on the
//! [`ReceiveMode`] a completion tells of one buffer, of several that follow each other in the ring,
//! or of a part of one. A buffer goes back when nobody uses it: neither the kernel, which is done
//! with most as soon as there is anything in them, nor whoever has a part of it to read.

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
pub(crate) const LARGEST_PAGE: usize = 64 << 10;
/// Each buffer starts one cache line further into its page than the one before. Small messages
/// touch only the start of a buffer, and would else all fall into the same few sets of the cache.
const STAGGER: usize = 64;

/// How the kernel fills receive buffers.
///
/// For small messages the three cost the same. A stream over loopback costs a tenth less CPU time in
/// bundles if buffers are of 4 KiB, and some percent less if they are of 16 KiB; piece by piece it
/// costs the same (`cargo bench -p bowline-runtime-bench --bench receive_mode`, on Linux 6.18).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum ReceiveMode {
    /// One buffer at a time, which is then the reader's, however little is in it.
    #[default]
    Single,
    /// Several at a time, if more has arrived than one holds: a completion for all of them
    /// (RECVSEND_BUNDLE). For peers that send much at once, into buffers that are smaller. Of what
    /// one completion brings, a connection keeps its share of the buffers, a quarter, and the rest
    /// is copied. Used from 6.16 on: kernels before that have it, from 6.10, mix up what arrives.
    Bundles,
    /// Piece by piece: what arrives is put into a buffer after what is there already, until it is
    /// full (IOU_PBUF_RING_INC, 6.12). Small messages then take no more memory than they are long,
    /// and many readers share a buffer, which goes back when the last of them is done with it.
    Incremental,
}

/// What is promised of the kernel, and of whoever has parts. Were it not so, parts might overlap.
const ACCOUNT: &str = "the kernel fills what it was given, and each part is released once";

/// What is known of a buffer.
#[derive(Default)]
struct State {
    /// Who uses it: each reader of a part, and the kernel until it is done with it.
    users: Cell<u32>,
    /// How much of it is filled.
    filled: Cell<u32>,
    /// Where in the ring it stands, or last stood.
    place: Cell<u16>,
}

/// A part of a buffer that was filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    id: u16,
    offset: u32,
    length: u32,
}

pub(crate) struct ProvidedBuffers {
    ring: NonNull<BufRingEntry>,
    ring_layout: Layout,
    memory: NonNull<u8>,
    memory_layout: Layout,
    count: u16,
    size: u32,
    mode: ReceiveMode,
    /// How many entries were ever written, modulo 2^16.
    tail: Cell<u16>,
    /// How many the kernel has, as far as its completions tell.
    free: Cell<u16>,
    /// Something is in the one of them that the kernel fills next.
    begun: Cell<bool>,
    states: Box<[State]>,
    /// Which buffer stands at each place of the ring, or last stood there.
    order: Box<[Cell<u16>]>,
}

impl ProvidedBuffers {
    /// Buffers of `size` bytes, `count` of them, a power of two; all belong to the kernel. Where it
    /// can't do what `mode` says, it fills one at a time.
    pub(crate) fn new(
        driver: &mut Driver,
        count: u16,
        size: u32,
        mode: ReceiveMode,
    ) -> Result<ProvidedBuffers, Error> {
        let stride = size as usize + STAGGER;
        let too_large = |_| Error::Io {
            what: "receive buffers larger than all memory",
            source: std::io::ErrorKind::InvalidInput.into(),
        };
        let page = page_size();
        let ring_layout = paged::<BufRingEntry>(usize::from(count), page).map_err(too_large)?;
        let memory_layout = paged::<u8>(stride * usize::from(count), page).map_err(too_large)?;
        let mut buffers = ProvidedBuffers {
            ring: allocate(ring_layout).cast(),
            ring_layout,
            memory: allocate(memory_layout),
            memory_layout,
            count,
            size,
            tail: Cell::new(0),
            mode,
            free: Cell::new(0),
            begun: Cell::new(false),
            states: (0..count).map(|_| State::default()).collect(),
            order: (0..count).map(Cell::new).collect(),
        };
        // SAFETY: the ring is page-aligned and has `count` entries. It is freed when `buffers` is
        // dropped; its owner does that only after the driver is closed with nothing in flight,
        // which unregisters it, or never.
        buffers.mode = unsafe { driver.register_buffers(buffers.ring, count, mode)? };
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

    /// How many bytes each holds.
    pub(crate) fn size(&self) -> usize {
        self.size as usize
    }

    /// How many of those it has put nothing into.
    pub(crate) fn untouched(&self) -> u16 {
        self.free.get() - u16::from(self.begun.get())
    }

    pub(crate) fn mode(&self) -> ReceiveMode {
        self.mode
    }

    /// Takes note that the kernel put `length` bytes into a buffer and those that follow it; it
    /// `goes_on` with the last of them, or is done with all. Each part is `each`'s, to be released.
    ///
    /// The kernel does not tell where in a buffer it put them: that follows from what it told before,
    /// and so this has to be called in the order in which the kernel filled. Completions come in that
    /// order where only this thread has the kernel do their work (DEFER_TASKRUN): no place of the
    /// queue becomes free meanwhile, so that after one that found none all others overflow too, in
    /// order. Elsewhere the mode is `Single`, which needs no order.
    #[inline]
    pub(crate) fn taken(&self, first: u16, length: u32, goes_on: bool, mut each: impl FnMut(Part)) {
        self.begun.set(goes_on);
        let (mut id, mut left) = (first, length);
        loop {
            let state = self.state(id);
            let offset = state.filled.get();
            let length = left.min(self.room(state));
            left -= length;
            state.filled.set(offset + length);
            match goes_on && left == 0 {
                true => state.users.set(state.users.get() + 1),
                // The kernel is done with it, and the reader has its place among the users.
                false => self.free.set(self.free.get().checked_sub(1).expect(ACCOUNT)),
            }
            // Before the part is released, as the buffer then may get another place.
            let next = (left > 0).then(|| self.following(state));
            each(Part { id, offset, length });
            let Some(next) = next else { return };
            assert!(length > 0, "{ACCOUNT}");
            id = next;
        }
    }

    fn state(&self, id: u16) -> &State {
        &self.states[usize::from(id)]
    }

    /// How much the kernel could put into a buffer that it has put something into now.
    fn room(&self, state: &State) -> u32 {
        if self.mode != ReceiveMode::Bundles {
            return self.size - state.filled.get();
        }
        // In the last of a bundle the kernel notes how much it wanted of it. If nothing came then,
        // that is all that it puts there the next time.
        // SAFETY: the place is below `count`, so the entry lies in the ring. The kernel is done with
        // it: it wrote it before the completion that tells of the buffer, which was read after an
        // acquiring load of the queue's tail. Nobody else's reference to it is around.
        unsafe { self.ring.add(usize::from(state.place.get())).read_volatile() }.len()
    }

    /// The buffer that was given after this one.
    fn following(&self, state: &State) -> u16 {
        let place = state.place.get().wrapping_add(1) & (self.count - 1);
        self.order[usize::from(place)].get()
    }

    fn start(&self, id: u16) -> NonNull<u8> {
        assert!(id < self.count);
        // SAFETY: by the assertion the buffer, of `size` bytes and a stagger, lies in the memory.
        unsafe { self.memory.add(usize::from(id) * (self.size as usize + STAGGER)) }
    }

    /// The bytes of a part.
    ///
    /// # Safety
    ///
    /// The part was not released, and isn't while the slice is used.
    pub(crate) unsafe fn filled(&self, part: Part) -> &[u8] {
        debug_assert!(part.offset + part.length <= self.size);
        // SAFETY: by `taken` the part lies in its buffer, whose memory was zeroed when it was made.
        // Nobody writes to it: the kernel does not before the buffer is given, and if it goes on
        // with it now, then beyond the part, as parts were told of in the order in which it filled
        // them; and we never do.
        unsafe {
            let start = self.start(part.id).add(part.offset as usize);
            std::slice::from_raw_parts(start.as_ptr(), part.length as usize)
        }
    }

    /// Lets go of a part. When nobody uses the buffer any more the kernel gets it.
    pub(crate) fn release(&self, part: Part) {
        let state = self.state(part.id);
        let users = state.users.get().checked_sub(1).expect(ACCOUNT);
        state.users.set(users);
        if users == 0 {
            self.give(part.id);
        }
    }

    /// Gives a buffer to the kernel. Nobody uses it.
    fn give(&self, id: u16) {
        let start = self.start(id);
        let state = self.state(id);
        state.users.set(1);
        state.filled.set(0);
        let tail = self.tail.get();
        let place = tail & (self.count - 1);
        state.place.set(place);
        self.order[usize::from(place)].set(id);
        // SAFETY: the place is below `count`, so the entry lies in the ring. The kernel reads it
        // only after the tail has passed it, which is below; it was read the last time around
        // before its buffer, one of `count`, could be filled and come back.
        let entry = unsafe { self.ring.add(usize::from(place)).as_mut() };
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
