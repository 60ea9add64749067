use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use crate::core::Core;

/// Bytes that arrived, in one of the runtime's receive buffers. Dereferences to them.
///
/// The buffer goes back to the kernel when the lease is dropped. While it is held, other
/// connections have one buffer less: what must be kept for long is better copied.
pub struct Lease {
    core: Rc<Core>,
    buffer: u16,
    length: u32,
}

impl Lease {
    /// For a buffer that the kernel has just filled, and that has no other lease.
    pub(super) fn new(core: Rc<Core>, buffer: u16, length: u32) -> Lease {
        Lease { core, buffer, length }
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer was filled, and is given back when this is dropped, not before.
        unsafe { self.core.buffers.filled(self.buffer, self.length) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.core.buffers.give(self.buffer);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes)", self.length)
    }
}
