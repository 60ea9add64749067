//! Frames to bytes and back.
//!
//! A frame is a header of [`HEADER_LEN`] bytes and a payload. Every field has one place in the
//! header, whatever the frame; the places that a frame does not use are zero. All numbers are
//! little-endian. The header's checksum covers the rest of the header, and is tested before any
//! other field is believed, so a damaged length is never waited for; the payload has its own, which
//! covers the options alone where the receiver wants none of the service's bytes.
//!
//! | offset | type | field | used by |
//! |--:|---|---|---|
//! | 0 | u32 | checksum of bytes 4 to 63 | all |
//! | 4 | u8 | version | all |
//! | 5 | u8 | kind | all |
//! | 6 | u16 | flags | all |
//! | 8 | u32 | length of the payload, bytes | all |
//! | 12 | u16 | n: the attempt | all that name a copy |
//! | 14 | u16 | code: method, status, reason, how, direction, or role | most |
//! | 16 | u64 | client; bytes of credit | all that name a copy, a client's hello; hello-ack, credit |
//! | 24 | u64 | seq; a ping's token; requests of credit | all that name a copy; ping, pong; hello-ack, credit |
//! | 32 | u64 | span, ns: remaining, lifetime, retry after, or time to drain | request, cancel, overloaded, go-away |
//! | 40 | u32 | tie window, us; a segment's offset, bytes | request; segment |
//! | 44 | u16 | other replica | request, cancel, a server's hello |
//! | 46 | u16 | other core | request, cancel, a server's hello |
//! | 48 | u16 | other n | request, cancel, ended |
//! | 50 | u16 | running | reply, ended, overloaded |
//! | 52 | u16 | queued | reply, ended, overloaded |
//! | 54 | u16 | length of the options, bytes | request, reply |
//! | 56 | u32 | queue wait, us | reply, ended, overloaded |
//! | 60 | u32 | checksum of the payload; 0 if it is empty | all |
//!
//! Checksums are CRC-32/ISO-HDLC (zlib's).

use alloc::vec::Vec;

use crate::frame::Frame;
use crate::hello::Features;

mod error;
mod header;
mod read;
pub(crate) mod section;
mod write;

pub use error::WireError;
pub(crate) use header::Header;
pub(crate) use read::frame_of;

/// The version that this crate speaks.
pub const VERSION: u8 = 1;

/// Length of a frame's header, in bytes: one cache line.
pub const HEADER_LEN: usize = 64;

/// The longest payload that any side should say it takes, in bytes.
pub const MAX_PAYLOAD: u32 = 64 << 20;

/// The longest payload of a hello, in bytes: room for a few hundred methods and cores, and all
/// that a stranger can make a receiver hold.
pub const MAX_HELLO: u32 = 16 << 10;

/// The longest sentence in a goodbye, in bytes.
pub const MAX_GOODBYE: u32 = 1 << 10;

/// Appends `frame` to `out`: one header, one payload. A goodbye's text is cut at [`MAX_GOODBYE`].
///
/// # Panics
///
/// If the payload is longer than 4 GiB, or a hello than 64 KiB in one section. Limits far below
/// those are the senders' business.
pub fn encode(frame: &Frame<'_>, out: &mut Vec<u8>) {
    encode_for(frame, Features::NONE, out);
}

/// As [`encode`], for a side of these features: without a checksum of the service's bytes, if it
/// wants none ([`Features::UNSUMMED`]).
///
/// # Panics
///
/// As [`encode`].
pub fn encode_for(frame: &Frame<'_>, features: Features, out: &mut Vec<u8>) {
    let payload = encode_head_for(frame, features, out);
    out.extend_from_slice(payload);
}

/// Appends to `out` all of `frame` but the opaque payload that must follow it: for who sends that
/// from where it lies. Its checksum is in the header already, so it must not change any more.
///
/// # Panics
///
/// As [`encode`].
pub fn encode_head<'a>(frame: &Frame<'a>, out: &mut Vec<u8>) -> &'a [u8] {
    encode_head_for(frame, Features::NONE, out)
}

fn encode_head_for<'a>(frame: &Frame<'a>, features: Features, out: &mut Vec<u8>) -> &'a [u8] {
    let mut header = write::header_of(frame);
    if features.has(Features::UNSUMMED) {
        header = header.unsummed();
    }
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    let payload = write::body_of(frame, out);
    let body = &out[start + HEADER_LEN..];
    header.length = u32::try_from(body.len() + payload.len()).expect("at most 4 GiB");
    let summed = if header.is_unsummed() { &[] } else { payload };
    header.payload_checksum = match (body, summed) {
        ([], alone) | (alone, []) => header::checksum(alone),
        (body, payload) => {
            let mut sum = crc32fast::Hasher::new();
            sum.update(body);
            sum.update(payload);
            sum.finalize()
        }
    };
    out[start..start + HEADER_LEN].copy_from_slice(&header.to_bytes());
    payload
}

/// The frame at the head of `bytes`, with the number of bytes it takes: `Ok(None)` while it is not
/// there whole, `Ok(Some((None, len)))` for a frame that is to be skipped.
///
/// What a later version may add is no error where taking no notice will do: flags from 0x0100 up, and
/// sections from 0x8000 up. A status that is not known comes as [`Status::Failed`](crate::Status::Failed).
///
/// # Errors
///
/// [`WireError`], as soon as the bytes can't become a frame, and for a payload above `limit` bytes.
pub fn decode(bytes: &[u8], limit: u32) -> Result<Option<(Option<Frame<'_>>, usize)>, WireError> {
    let Some(header) = whole(bytes, limit)? else {
        return Ok(None);
    };
    let frame = frame_of(&header, &bytes[HEADER_LEN..header.frame_len()])?;
    Ok(Some((frame, header.frame_len())))
}

/// The header of the frame at the head of `bytes`, if that is there whole and undamaged.
#[inline]
pub(crate) fn whole(bytes: &[u8], limit: u32) -> Result<Option<Header>, WireError> {
    let Some(head) = bytes.first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    let header = Header::parse(head, limit)?;
    let Some(payload) = bytes.get(HEADER_LEN..header.frame_len()) else {
        return Ok(None);
    };
    header.verify(payload)?;
    Ok(Some(header))
}

/// As much of a text as `limit` bytes hold, cut between two characters of UTF-8.
pub(crate) fn head_of_text(text: &[u8], limit: usize) -> &[u8] {
    let mut end = text.len().min(limit);
    while end < text.len() && end > 0 && text[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &text[..end]
}
