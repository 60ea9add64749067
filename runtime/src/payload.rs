//! Payloads of messages: bytes that are owned, may be shared, and whose memory is used again.
//!
//! What arrives lies in receive buffers that all connections share, and what is sent may have to be
//! sent again: so payloads are copied out, or written, into memory from a [`Pool`], to which it
//! goes back with the last handle. In steady state nothing is allocated.
//!
//! ```
//! use std::rc::Rc;
//! use bowline_runtime::payload::Pool;
//!
//! let pool = Rc::new(Pool::default());
//! let payload = pool.copy(b"block 9");
//! let again = payload.clone(); // the same bytes, not a copy of them
//! assert_eq!(payload.as_ptr(), again.as_ptr());
//! drop(payload);
//! assert_eq!(again.into_vec(), b"block 9");
//! ```

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// Payloads above this are kept apart, in bytes, so that a few short ones don't hold the memory of
/// long ones.
const SHORT: usize = 64 << 10;
/// Memory beyond this is not kept, in bytes: one huge payload must not cost its size for ever.
const LONGEST_KEPT: usize = 8 << 20;
/// What a slot costs beside its bytes, in bytes.
const SLOT: usize = 64;
/// So many bytes of either kind are kept, at most.
const KEPT_BYTES: usize = 16 << 20;

/// Bytes of a message. It dereferences to them; clones share them.
#[derive(Clone)]
pub struct Payload {
    /// None: it is empty, and has no memory.
    bytes: Option<Rc<Vec<u8>>>,
    pool: Rc<Pool>,
}

impl Payload {
    /// The bytes themselves, taken out of the pool. They are copied if a clone shares them.
    pub fn into_vec(mut self) -> Vec<u8> {
        std::mem::take(self.as_mut())
    }

    /// An empty one from the same pool, for about so many bytes.
    pub fn sibling(&self, length: usize) -> Payload {
        self.pool.empty(length)
    }
}

impl AsMut<Vec<u8>> for Payload {
    /// The bytes, to be changed. They are copied first if a clone shares them.
    fn as_mut(&mut self) -> &mut Vec<u8> {
        Rc::make_mut(self.bytes.get_or_insert_default())
    }
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |bytes| bytes.as_slice())
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.pool.put_back(bytes);
        }
    }
}

/// Memory of payloads that were dropped, for those that come.
#[derive(Default)]
pub struct Pool {
    kept: RefCell<[Kept; 2]>,
}

#[derive(Default)]
struct Kept {
    slots: Vec<Rc<Vec<u8>>>,
    bytes: usize,
}

impl Pool {
    /// A payload with a copy of these bytes.
    pub fn copy(self: &Rc<Pool>, source: &[u8]) -> Payload {
        if source.is_empty() {
            return Payload { bytes: None, pool: self.clone() };
        }
        let mut payload = self.empty(source.len());
        payload.as_mut().extend_from_slice(source);
        payload
    }

    /// An empty payload, which about so many bytes are to be written to.
    pub fn empty(self: &Rc<Pool>, length: usize) -> Payload {
        let kept = &mut self.kept.borrow_mut()[usize::from(length > SHORT)];
        let slot = kept.slots.pop();
        kept.bytes -= slot.as_ref().map_or(0, |slot| slot.capacity() + SLOT);
        let slot = slot.unwrap_or_default();
        Payload { bytes: Some(slot), pool: self.clone() }
    }

    /// How much memory waits for payloads, in bytes: at most 16 MiB for short ones, and as much for
    /// long ones.
    pub fn kept(&self) -> usize {
        self.kept.borrow().iter().map(|kept| kept.bytes).sum()
    }

    fn put_back(&self, mut slot: Rc<Vec<u8>>) {
        // Else it is shared, and the last to have it puts it back.
        let Some(bytes) = Rc::get_mut(&mut slot) else { return };
        let capacity = bytes.capacity();
        let kept = &mut self.kept.borrow_mut()[usize::from(capacity > SHORT)];
        if capacity <= LONGEST_KEPT && kept.bytes + capacity + SLOT <= KEPT_BYTES {
            bytes.clear();
            kept.bytes += capacity + SLOT;
            kept.slots.push(slot);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("kept", &self.kept()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_once_its_payload_is_gone() {
        let pool = Rc::new(Pool::default());
        let first = pool.copy(&[7; 100]);
        assert_eq!(&first[..], [7; 100]);
        let memory = first.as_ptr();
        drop(first);
        let second = pool.copy(&[8; 50]);
        assert_eq!((&second[..], second.as_ptr()), (&[8; 50][..], memory));
    }

    #[test]
    fn memory_that_is_shared_goes_back_with_its_last_handle() {
        let pool = Rc::new(Pool::default());
        let first = pool.copy(&[7; 100]);
        let (second, memory) = (first.clone(), first.as_ptr());
        drop(first);
        assert_eq!(pool.kept(), 0);
        assert_eq!((&second[..], second.as_ptr()), (&[7; 100][..], memory));
        drop(second);
        assert_eq!(pool.copy(&[8]).as_ptr(), memory);
    }

    #[test]
    fn a_change_is_not_seen_by_those_who_share() {
        let pool = Rc::new(Pool::default());
        let first = pool.copy(b"shared");
        let mut second = first.clone();
        second.as_mut().extend_from_slice(b" no more");
        assert_eq!((&first[..], &second[..]), (&b"shared"[..], &b"shared no more"[..]));
        assert_eq!((first.into_vec(), second.into_vec()).0, b"shared");
    }

    #[test]
    fn what_is_taken_out_or_too_large_is_not_kept() {
        let pool = Rc::new(Pool::default());
        assert_eq!(pool.copy(b"mine").into_vec(), b"mine");
        drop(pool.copy(&vec![0; LONGEST_KEPT + 1]));
        assert_eq!(pool.kept(), SLOT, "what was taken out left a place for the next");
    }

    #[test]
    fn a_short_payload_does_not_take_the_memory_of_a_long_one() {
        let pool = Rc::new(Pool::default());
        let long = pool.copy(&vec![0; SHORT + 1]);
        let memory = long.as_ptr();
        drop(long);
        assert_ne!(pool.copy(b"short").as_ptr(), memory);
        assert_eq!(pool.copy(&vec![1; SHORT + 1]).as_ptr(), memory);
    }

    #[test]
    fn so_much_is_kept_and_no_more() {
        let pool = Rc::new(Pool::default());
        let many: Vec<_> = (0..40).map(|_| pool.copy(&vec![0; 1 << 20])).collect();
        drop(many);
        assert!(pool.kept() <= KEPT_BYTES, "{}", pool.kept());
    }
}
