#![no_main]

use bowline_fuzz::{LIMIT, next, next_frame};
use bowline_protocol::{Inbox, WireError, codec};
use libfuzzer_sys::fuzz_target;

/// What comes out of an inbox that is fed in these pieces, encoded again, and its error.
fn fed<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, Option<WireError>, usize) {
    let (mut inbox, mut out) = (Inbox::new(LIMIT), Vec::new());
    for piece in pieces {
        let mut frames = inbox.feed(piece);
        loop {
            match frames.next() {
                Ok(Some(frame)) => codec::encode(&frame, &mut out),
                Ok(None) => break,
                Err(error) => return (out, Some(error), 0),
            }
        }
    }
    (out, None, inbox.waiting())
}

// However a stream is cut, the same frames come out of it, and the same error.
fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let cuts: Vec<usize> = (0..next(&mut data) % 8).map(|_| usize::from(next(&mut data))).collect();
    let mut stream = Vec::new();
    while !data.is_empty() {
        stream.extend(next_frame(&mut data));
    }
    let (mut pieces, mut rest) = (Vec::new(), &stream[..]);
    for cut in cuts {
        let (piece, behind) = rest.split_at(cut.min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces.push(rest);
    let whole = fed([&stream[..]].into_iter());
    assert_eq!(fed(pieces.into_iter()), whole);
    assert_eq!(fed(stream.chunks(1)), whole);
});
