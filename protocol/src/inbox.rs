//! Bytes in pieces of any size, frames out.
//!
//! A frame that lies whole in the piece it came with is read where it lies, and nothing is
//! allocated (but for a hello). One that does not is put together here, and costs one copy; what
//! waits is never more than one frame.

use alloc::vec::Vec;

use crate::codec::{self, HEADER_LEN, Header, WireError};
use crate::frame::Frame;
use crate::hello::Features;

/// The most memory that an empty inbox keeps, in bytes: a large frame's is given back.
const KEPT: usize = 64 << 10;

/// The receiving end of a connection: holds what has arrived of a frame that is not there whole.
#[derive(Debug)]
pub struct Inbox {
    partial: Vec<u8>,
    /// The partial frame's header, once it is there and sound.
    header: Option<Header>,
    /// The partial frame became whole and was lent; it is let go before anything else.
    lent: bool,
    /// What was wrong. After that nothing says where a frame begins, so none comes any more.
    broken: Option<WireError>,
    limit: u32,
    /// Payloads have to have checksums.
    sums: bool,
}

impl Inbox {
    /// An inbox that takes payloads of up to `limit` bytes.
    pub const fn new(limit: u32) -> Inbox {
        Inbox { partial: Vec::new(), header: None, lent: false, broken: None, limit, sums: true }
    }

    /// Takes what a side with these features may be sent: payloads without checksums, if it says
    /// that it wants none ([`Features::UNSUMMED`]). Before, a frame that has such is an error.
    #[must_use]
    pub const fn with_features(mut self, features: Features) -> Inbox {
        self.sums = !features.has(Features::UNSUMMED);
        self
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

    fn let_go(&mut self) {
        self.lent = false;
        self.header = None;
        self.partial.clear();
        if self.partial.capacity() > KEPT {
            self.partial = Vec::new();
        }
    }

    /// Moves bytes from the front of `bytes` to the partial frame until that is whole, or they are
    /// used up. Returns its header once it is whole and undamaged.
    fn complete(&mut self, bytes: &mut &[u8]) -> Result<Option<Header>, WireError> {
        let header = match self.header {
            Some(header) => header,
            None => {
                self.take(bytes, HEADER_LEN);
                let Some(head) = self.partial.first_chunk::<HEADER_LEN>() else {
                    return Ok(None);
                };
                *self.header.insert(Header::parse(head, self.limit)?)
            }
        };
        self.take(bytes, header.frame_len());
        if self.partial.len() < header.frame_len() {
            return Ok(None);
        }
        header.verify(&self.partial[HEADER_LEN..])?;
        Ok(Some(header))
    }

    /// Moves bytes until the partial frame has `length` of them, or they are used up.
    fn take(&mut self, bytes: &mut &[u8], length: usize) {
        let missing = length.saturating_sub(self.partial.len());
        let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
        self.partial.extend_from_slice(taken);
        *bytes = rest;
    }
}

/// The frames of one piece of input; lends each until the next is asked for.
#[derive(Debug)]
#[must_use = "bytes that are not asked for are lost"]
pub struct Frames<'a> {
    inbox: &'a mut Inbox,
    bytes: &'a [u8],
}

impl Frames<'_> {
    /// The next frame, or None when the rest has been put by.
    ///
    /// # Errors
    ///
    /// [`WireError`]; the connection is of no use after it, and says the same for ever.
    #[expect(clippy::should_implement_trait, reason = "it lends, which no iterator can")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        if let Some(error) = self.inbox.broken {
            return Err(error);
        }
        if self.inbox.lent {
            self.inbox.let_go();
        }
        let header = match self.until_there() {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(None),
            Err(error) => return Err(*self.inbox.broken.insert(error)),
        };
        if self.inbox.sums && header.is_unsummed() {
            let error = WireError::Unsummed { frame: header.name() };
            return Err(*self.inbox.broken.insert(error));
        }
        let payload = if self.inbox.lent {
            &self.inbox.partial[HEADER_LEN..]
        } else {
            let (whole, rest) = self.bytes.split_at(header.frame_len());
            self.bytes = rest;
            &whole[HEADER_LEN..]
        };
        codec::frame_of(&header, payload).inspect_err(|error| self.inbox.broken = Some(*error))
    }

    /// The header of the next frame that is there whole and undamaged: in the inbox, which then
    /// counts as lent, or at the front of what is left of this piece. Frames to be skipped are.
    #[inline]
    fn until_there(&mut self) -> Result<Option<Header>, WireError> {
        while !self.inbox.partial.is_empty() {
            let Some(header) = self.inbox.complete(&mut self.bytes)? else {
                return Ok(None);
            };
            if !header.is_ignorable() {
                self.inbox.lent = true;
                return Ok(Some(header));
            }
            self.inbox.let_go();
        }
        while let Some(header) = codec::whole(self.bytes, self.inbox.limit)? {
            if !header.is_ignorable() {
                return Ok(Some(header));
            }
            self.bytes = &self.bytes[header.frame_len()..];
        }
        self.inbox.partial.extend_from_slice(self.bytes);
        self.bytes = &[];
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::frame::{Goodbye, GoodbyeReason, PayloadOf, Segment};
    use crate::id::Attempt;

    fn segment(length: usize) -> Vec<u8> {
        let segment = Segment { attempt: Attempt::default(), of: PayloadOf::Reply, offset: 0 };
        let mut bytes = Vec::new();
        codec::encode(&Frame::Segment(segment, &vec![1; length]), &mut bytes);
        bytes
    }

    fn drain(inbox: &mut Inbox, bytes: &[u8]) -> usize {
        let mut frames = inbox.feed(bytes);
        let mut count = 0;
        while frames.next().expect("sound bytes").is_some() {
            count += 1;
        }
        count
    }

    #[test]
    fn frames_that_lie_whole_take_no_memory() {
        let mut inbox = Inbox::new(1 << 20);
        let bytes = [segment(64), segment(70_000), segment(1)].concat();
        assert_eq!(drain(&mut inbox, &bytes), 3);
        assert_eq!(inbox.partial.capacity(), 0);
    }

    #[test]
    fn the_memory_of_a_small_frame_is_kept_and_that_of_a_large_one_given_back() {
        let mut inbox = Inbox::new(1 << 20);
        for (length, kept) in [(1_000, true), (300 << 10, false)] {
            let bytes = segment(length);
            let (head, tail) = bytes.split_at(100);
            assert_eq!(drain(&mut inbox, head), 0);
            assert_eq!(inbox.waiting(), 100);
            assert_eq!(drain(&mut inbox, tail), 1);
            assert_eq!(inbox.partial.capacity() > 0, kept);
        }
    }

    #[test]
    fn the_damage_of_a_frame_in_pieces_is_found_when_it_is_whole() {
        let mut bytes = segment(200);
        bytes[150] ^= 1;
        let mut inbox = Inbox::new(1 << 20);
        assert_eq!(drain(&mut inbox, &bytes[..263]), 0);
        let goodbye = Frame::Goodbye(Goodbye { reason: GoodbyeReason::Leaving }, b"");
        codec::encode(&goodbye, &mut bytes);
        let error = inbox.feed(&bytes[263..]).next().unwrap_err();
        assert!(matches!(error, WireError::PayloadChecksum { frame: "segment", .. }));
    }
}
