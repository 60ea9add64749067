//! What the fuzz targets share: a fuzzer does not guess checksums, so these are written for it.
#![forbid(unsafe_code)]

use bowline_protocol::{HEADER_LEN, codec};

/// The largest payload that a target's receiver takes.
pub const LIMIT: u32 = 1 << 16;

/// Makes `bytes` pass for a frame, whatever else they are: version, length and both checksums.
pub fn seal(bytes: &mut [u8]) {
    let Some(payload) = bytes.get(HEADER_LEN..) else { return };
    let (length, sum) = (payload.len() as u32, crc32fast::hash(summed(bytes, payload)));
    bytes[4] = codec::VERSION;
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    let sum = crc32fast::hash(&bytes[4..HEADER_LEN]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
}

/// What of the payload its checksum covers: all, or of some frames the options alone.
fn summed<'a>(header: &[u8], payload: &'a [u8]) -> &'a [u8] {
    let (kind, flags) = (header[5], header[6]);
    let has = |flag| flags & flag != 0;
    let options = usize::from(u16::from_le_bytes([header[54], header[55]]));
    match kind {
        5 | 8 if has(0x20) && has(0x10) => payload.get(..options).unwrap_or(payload),
        5 | 8 | 12 if has(0x20) => &[],
        _ => payload,
    }
}

/// The next byte of the fuzzer's input; 0 when it is used up.
pub fn next(data: &mut &[u8]) -> u8 {
    let Some((first, rest)) = data.split_first() else { return 0 };
    *data = rest;
    *first
}

/// The next `length` bytes of the fuzzer's input, or as many as are left.
pub fn take<'a>(data: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = data.split_at(length.min(data.len()));
    *data = rest;
    taken
}

/// A frame out of the fuzzer's input: sealed, or as it comes.
pub fn next_frame(data: &mut &[u8]) -> Vec<u8> {
    let (mode, length) = (next(data), usize::from(next(data)));
    let mut bytes = vec![0; HEADER_LEN];
    let header = take(data, HEADER_LEN - 5);
    bytes[5..5 + header.len()].copy_from_slice(header);
    bytes.extend_from_slice(take(data, length));
    if mode != 0 {
        seal(&mut bytes);
    }
    bytes
}
