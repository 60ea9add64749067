#![no_main]

use bowline_fuzz::{LIMIT, seal};
use bowline_protocol::codec;
use libfuzzer_sys::fuzz_target;

// Whatever the bytes are, decoding ends in a frame, an error or a wait; and a frame can be sent on
// and means the same there.
fuzz_target!(|data: &[u8]| {
    let _ = codec::decode(data, LIMIT);
    let mut bytes = data.to_vec();
    seal(&mut bytes);
    let Ok(Some((Some(frame), length))) = codec::decode(&bytes, LIMIT) else { return };
    assert_eq!(length, bytes.len());
    let mut again = Vec::new();
    codec::encode(&frame, &mut again);
    let decoded = codec::decode(&again, LIMIT).expect("what was encoded is sound");
    assert_eq!(decoded, Some((Some(frame), again.len())));
});
