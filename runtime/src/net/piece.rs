//! What is sent without being copied.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use bytes::Bytes;

use crate::buffer::Buffer;

/// Bytes to send that are handed over whole, and not copied. Whatever they are made from stays
/// theirs until the kernel has taken the last of them, or the connection has failed and the kernel
/// has let go.
///
/// ```
/// use bowline_runtime::net::Piece;
///
/// for piece in [Piece::from(vec![1, 2, 3]), Piece::from(bytes::Bytes::from_static(&[1, 2, 3]))] {
///     assert_eq!(piece[..], [1, 2, 3]);
/// }
/// ```
pub struct Piece(Owner);

/// Each keeps its bytes where they are however it is moved itself, and nobody changes them: that is
/// what the kernel relies on.
enum Owner {
    Buffer(Buffer),
    Bytes(Bytes),
    Shared(Rc<[u8]>),
    Vec(Vec<u8>),
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Owner::Buffer(buffer) => buffer,
            Owner::Bytes(bytes) => bytes,
            Owner::Shared(bytes) => bytes,
            Owner::Vec(bytes) => bytes,
        }
    }
}

impl From<Buffer> for Piece {
    fn from(buffer: Buffer) -> Piece {
        Piece(Owner::Buffer(buffer))
    }
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Piece {
        Piece(Owner::Bytes(bytes))
    }
}

impl From<Rc<[u8]>> for Piece {
    fn from(bytes: Rc<[u8]>) -> Piece {
        Piece(Owner::Shared(bytes))
    }
}

impl From<Vec<u8>> for Piece {
    fn from(bytes: Vec<u8>) -> Piece {
        Piece(Owner::Vec(bytes))
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes)", self.len())
    }
}
