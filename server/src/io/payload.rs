//! The bytes of a request, for as long as it waits and runs.
//!
//! What arrives lies in a receive buffer that all connections share, so it is copied out at once
//! (64 bytes take a nanosecond). The memory comes from a pool, and goes back when the handler lets
//! go of it: in steady state nothing is allocated.

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::vec::Vec;

/// A slot that grew beyond this is not kept, in bytes: one huge request must not cost its size for
/// ever.
const KEPT_CAPACITY: usize = 256 << 10;
/// So many bytes are kept in all, at most.
const KEPT_BYTES: usize = 16 << 20;

/// The payload of a request. It dereferences to its bytes.
pub struct Payload {
    bytes: Vec<u8>,
    pool: Rc<Pool>,
}

impl Payload {
    /// The bytes themselves, taken out of the pool.
    pub fn into_vec(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// An empty one from the same pool.
    pub(super) fn sibling(&self) -> Payload {
        Payload { bytes: self.pool.take(), pool: self.pool.clone() }
    }

    pub(super) const fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.bytes.len())
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.pool.put_back(std::mem::take(&mut self.bytes));
    }
}

/// Memory of payloads that were dropped, for those that come.
#[derive(Default)]
pub(super) struct Pool {
    kept: RefCell<Kept>,
}

#[derive(Default)]
struct Kept {
    slots: Vec<Vec<u8>>,
    bytes: usize,
}

impl Pool {
    /// A payload with a copy of these bytes.
    pub(super) fn copy(self: &Rc<Self>, source: &[u8]) -> Payload {
        let mut bytes = if source.is_empty() { Vec::new() } else { self.take() };
        bytes.extend_from_slice(source);
        Payload { bytes, pool: self.clone() }
    }

    fn take(&self) -> Vec<u8> {
        let mut kept = self.kept.borrow_mut();
        let slot = kept.slots.pop().unwrap_or_default();
        kept.bytes -= slot.capacity();
        slot
    }

    fn put_back(&self, mut slot: Vec<u8>) {
        let capacity = slot.capacity();
        let mut kept = self.kept.borrow_mut();
        if capacity == 0 || capacity > KEPT_CAPACITY || kept.bytes + capacity > KEPT_BYTES {
            return;
        }
        slot.clear();
        kept.bytes += capacity;
        kept.slots.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_once_its_payload_is_gone() {
        let pool = Rc::new(Pool::default());
        let first = pool.copy(&[7; 100]);
        assert_eq!(&first[..], [7; 100]);
        let memory = first.as_ptr();
        drop(first);
        let second = pool.copy(&[8; 50]);
        assert_eq!((&second[..], second.as_ptr()), (&[8; 50][..], memory));
    }

    #[test]
    fn what_is_taken_out_or_too_large_is_not_kept() {
        let pool = Rc::new(Pool::default());
        assert_eq!(pool.copy(b"mine").into_vec(), b"mine");
        drop(pool.copy(&vec![0; KEPT_CAPACITY + 1]));
        assert_eq!(pool.kept.borrow().bytes, 0);
    }
}
