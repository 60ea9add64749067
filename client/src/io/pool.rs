use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// Buffers kept for the next payload, at most.
const KEPT: usize = 1024;
/// Larger ones are not kept: a few large payloads should not bind memory for good.
const LARGEST_KEPT: usize = 64 << 10;

/// Buffers that are used again.
#[derive(Default)]
pub(crate) struct Pool {
    free: RefCell<Vec<Vec<u8>>>,
}

impl Pool {
    /// A buffer with these bytes.
    pub(crate) fn copy(self: &Rc<Self>, bytes: &[u8]) -> Buffer {
        let mut buffer = self.free.borrow_mut().pop().unwrap_or_default();
        buffer.extend_from_slice(bytes);
        Buffer { bytes: buffer, pool: self.clone() }
    }
}

/// A payload in a buffer that goes back to its client when it is dropped.
pub struct Buffer {
    bytes: Vec<u8>,
    pool: Rc<Pool>,
}

impl Buffer {
    /// The bytes, for good.
    pub fn into_vec(mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut free = self.pool.free.borrow_mut();
        if bytes.capacity() > 0 && bytes.capacity() <= LARGEST_KEPT && free.len() < KEPT {
            bytes.clear();
            free.push(bytes);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_is_dropped_serves_the_next_payload() {
        let pool = Rc::new(Pool::default());
        let first = pool.copy(b"a payload");
        let at = first.as_ptr();
        drop(first);
        let second = pool.copy(b"another");
        assert_eq!((&second[..], second.as_ptr()), (&b"another"[..], at));
        assert_eq!(second.into_vec(), b"another");
        assert!(pool.free.borrow().is_empty());
    }

    #[test]
    fn large_buffers_are_not_kept() {
        let pool = Rc::new(Pool::default());
        drop(pool.copy(&vec![0; LARGEST_KEPT + 1]));
        assert!(pool.free.borrow().is_empty());
    }
}
