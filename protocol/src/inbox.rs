//! Bytes in pieces of any size, frames out.
//!
//! A frame that lies whole in the piece it came with is read where it lies. One that does not is
//! put together here, and costs one copy; what waits is never more than one frame.

use alloc::vec::Vec;

use crate::codec::{self, HEADER_LEN, WireError};
use crate::frame::Frame;

/// The receiving end of a connection: holds what has arrived of a frame that is not there whole.
#[derive(Debug)]
pub struct Inbox {
    partial: Vec<u8>,
    /// The partial frame became whole and was lent; it is let go before anything else.
    lent: bool,
    limit: u32,
}

impl Inbox {
    /// An inbox that takes payloads of up to `limit` bytes.
    pub const fn new(limit: u32) -> Inbox {
        Inbox { partial: Vec::new(), lent: false, limit }
    }

    /// The frames that `bytes` bring, after what came before them. To be asked until there is no
    /// more: only then has the rest been put by for the next piece.
    pub const fn feed<'a>(&'a mut self, bytes: &'a [u8]) -> Frames<'a> {
        Frames { inbox: self, bytes }
    }

    /// How many bytes wait for the rest of their frame.
    pub const fn waiting(&self) -> usize {
        if self.lent { 0 } else { self.partial.len() }
    }

    /// Moves bytes from `bytes` to the partial frame until that is whole, or the bytes are used up.
    /// Returns how many it took.
    fn complete(&mut self, bytes: &[u8]) -> Result<usize, WireError> {
        let head = bytes.len().min(HEADER_LEN.saturating_sub(self.partial.len()));
        self.partial.extend_from_slice(&bytes[..head]);
        let Some(whole) = codec::frame_len(&self.partial, self.limit)? else {
            return Ok(head);
        };
        let body = (bytes.len() - head).min(whole - self.partial.len());
        self.partial.extend_from_slice(&bytes[head..head + body]);
        Ok(head + body)
    }
}

/// The frames of one piece of input; lends each until the next is asked for.
#[derive(Debug)]
pub struct Frames<'a> {
    inbox: &'a mut Inbox,
    bytes: &'a [u8],
}

impl Frames<'_> {
    /// The next frame, or None when the rest has been put by.
    ///
    /// # Errors
    ///
    /// [`WireError`]; the connection is of no use after it.
    #[expect(clippy::should_implement_trait, reason = "it lends, which no iterator can")]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        if self.inbox.lent {
            self.inbox.partial.clear();
            self.inbox.lent = false;
        }
        if !self.inbox.partial.is_empty() {
            let taken = self.inbox.complete(self.bytes)?;
            self.bytes = &self.bytes[taken..];
            match codec::decode(&self.inbox.partial, self.inbox.limit)? {
                None => return Ok(None),
                Some((None, _)) => self.inbox.partial.clear(),
                Some((Some(_), _)) => self.inbox.lent = true,
            }
        }
        if self.inbox.lent {
            let frame = codec::decode(&self.inbox.partial, self.inbox.limit)?;
            return Ok(frame.and_then(|(frame, _)| frame));
        }
        self.next_whole()
    }

    /// The next frame that lies whole in what is left of this piece.
    fn next_whole(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        while let Some((frame, length)) = codec::decode(self.bytes, self.inbox.limit)? {
            self.bytes = &self.bytes[length..];
            if frame.is_some() {
                return Ok(frame);
            }
        }
        self.inbox.partial.extend_from_slice(self.bytes);
        self.bytes = &[];
        Ok(None)
    }
}
