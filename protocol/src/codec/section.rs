//! Sections: what a frame may say beside its fixed fields, each with a tag and a length.
//!
//! Tag (u16), length of the value (u16), value; in ascending order of their tags, none twice. A
//! receiver that does not know a tag of [`IGNORABLE`] or above skips the section; any other ends
//! the connection.

use alloc::vec::Vec;

use super::WireError;

/// Of a hello: the payloads that the sender takes.
pub(super) const TAKES: u16 = 1;
/// Of a hello: the methods that the sender knows.
pub(super) const METHODS: u16 = 2;
/// From here on a receiver that does not know the tag skips the section.
pub(crate) const IGNORABLE: u16 = 0x8000;

/// Appends one section.
pub(super) fn write(tag: u16, value: &[u8], out: &mut Vec<u8>) {
    let length = u16::try_from(value.len()).expect("a section of at most 64 KiB");
    out.extend_from_slice(&tag.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(value);
}

/// The sections in a row of bytes; ends at the first that is malformed.
#[derive(Clone, Debug)]
pub(crate) struct Sections<'a> {
    frame: &'static str,
    bytes: &'a [u8],
    last: Option<u16>,
}

impl<'a> Sections<'a> {
    pub(crate) const fn new(frame: &'static str, bytes: &'a [u8]) -> Sections<'a> {
        Sections { frame, bytes, last: None }
    }

    fn first(&self) -> Option<(u16, &'a [u8], &'a [u8])> {
        let (&[t0, t1, l0, l1], rest) = self.bytes.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_le_bytes([l0, l1]));
        let (value, rest) = rest.split_at_checked(length)?;
        Some((u16::from_le_bytes([t0, t1]), value, rest))
    }
}

impl<'a> Iterator for Sections<'a> {
    type Item = Result<(u16, &'a [u8]), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.bytes.is_empty() {
            return None;
        }
        let first = self.first();
        let tag = first.map_or(0, |(tag, ..)| tag);
        match first {
            Some((tag, value, rest)) if self.last.is_none_or(|last| last < tag) => {
                self.bytes = rest;
                self.last = Some(tag);
                Some(Ok((tag, value)))
            }
            _ => {
                self.bytes = &[];
                Some(Err(WireError::Section { frame: self.frame, tag }))
            }
        }
    }
}
