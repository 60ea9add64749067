//! What was received, in the buffer that the kernel put it into or in a copy.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use crate::core::Core;
use crate::driver::provided::Part;

/// Bytes that arrived, in one of the runtime's receive buffers. Dereferences to them.
///
/// The buffer goes back to the kernel when the lease is dropped, and all others of it are. While it
/// is held, other connections have one buffer less: what must be kept for long is better copied. The
/// runtime does that itself when few buffers are left, so that no lease is ever waited for;
/// [`Metrics::copies`](crate::Metrics::copies) tells how often.
pub struct Lease(pub(super) Chunk);

/// What a connection has received and nobody has read.
pub(super) enum Chunk {
    Leased(Leased),
    /// A copy, made when others lacked the buffer, or few were left.
    Copied(Vec<u8>),
}

/// The use of a part of a receive buffer that the kernel has filled.
pub(super) struct Leased {
    core: Rc<Core>,
    part: Part,
}

impl Chunk {
    /// For a part that the kernel has just filled, and of which nobody else knows.
    pub(super) fn new(core: Rc<Core>, part: Part) -> Chunk {
        Chunk::Leased(Leased { core, part })
    }

    /// Gives the buffer back, if there is one, and keeps a copy. False if it was one already.
    pub(super) fn copy(&mut self) -> bool {
        let Chunk::Leased(leased) = self else { return false };
        *self = Chunk::Copied(leased.to_vec());
        true
    }
}

impl Deref for Leased {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the part is released when this is dropped, not before.
        unsafe { self.core.buffers.filled(self.part) }
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.core.buffers.release(self.part);
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Chunk::Leased(leased) => leased,
            Chunk::Copied(bytes) => bytes,
        }
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes)", self.len())
    }
}
