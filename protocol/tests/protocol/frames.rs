//! What must hold of every frame: it comes out as it went in, however it was cut on its way, and
//! damage is an error and never another frame.

use bowline_protocol::options::{Label, MAX_LABEL, TraceContext};
use bowline_protocol::{
    Attempt, Cause, ClientId, Frame, HEADER_LEN, Inbox, Method, OptionSet, Request, Seq, WireError,
    codec,
};
use core::time::Duration;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::made::{Made, any_frame};

const LIMIT: u32 = 1 << 20;

/// Feeds `bytes` in pieces, and expects exactly `frames`.
fn expect_frames(pieces: &[&[u8]], frames: &[Made]) -> Result<(), TestCaseError> {
    let mut inbox = Inbox::new(LIMIT);
    let mut expected = frames.iter();
    for piece in pieces {
        let mut arrived = inbox.feed(piece);
        while let Some(frame) = arrived.next().expect("sound bytes") {
            let expected = expected.next().expect("no more frames than were sent");
            prop_assert_eq!(frame, expected.frame());
        }
    }
    prop_assert!(expected.next().is_none(), "fewer frames than were sent");
    prop_assert_eq!(inbox.waiting(), 0);
    Ok(())
}

/// Bytes that are not to make a frame, with a sound frame behind them: an error, or a wait.
fn expect_no_frame(bytes: &[u8]) -> Result<Option<WireError>, TestCaseError> {
    let mut inbox = Inbox::new(LIMIT);
    let mut arrived = inbox.feed(bytes);
    match arrived.next() {
        Ok(None) => Ok(None),
        Ok(Some(frame)) => Err(TestCaseError::fail(format!("became {frame:?}"))),
        Err(error) => Ok(Some(error)),
    }
}

/// Writes the checksums that make `bytes` a frame, whatever else they are.
fn seal(bytes: &mut [u8]) {
    let payload = &bytes[HEADER_LEN..];
    let (length, sum) = (payload.len() as u32, crc32fast::hash(payload));
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    let sum = crc32fast::hash(&bytes[4..HEADER_LEN]);
    bytes[0..4].copy_from_slice(&sum.to_le_bytes());
}

proptest! {
    #[test]
    fn a_frame_comes_out_as_it_went_in(made in any_frame(300)) {
        let bytes = made.bytes();
        let decoded = codec::decode(&bytes, LIMIT).expect("sound bytes");
        prop_assert_eq!(decoded, Some((Some(made.frame()), bytes.len())));
    }

    #[test]
    fn the_head_and_the_payload_make_the_whole(made in any_frame(300)) {
        let frame = made.frame();
        let mut bytes = Vec::new();
        let payload = codec::encode_head(&frame, &mut bytes);
        bytes.extend_from_slice(payload);
        prop_assert_eq!(bytes, made.bytes());
    }

    #[test]
    fn a_beginning_of_a_frame_waits_for_the_rest(made in any_frame(100)) {
        let bytes = made.bytes();
        for end in 0..bytes.len() {
            prop_assert_eq!(codec::decode(&bytes[..end], LIMIT), Ok(None));
        }
    }

    #[test]
    fn frames_survive_a_cut_at_any_place(frames in vec(any_frame(40), 1..4)) {
        let bytes: Vec<u8> = frames.iter().flat_map(Made::bytes).collect();
        for at in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(at);
            expect_frames(&[head, tail], &frames)?;
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        expect_frames(&single, &frames)?;
    }

    #[test]
    fn frames_survive_any_cutting(
        frames in vec(any_frame(2000), 1..8),
        cuts in vec(1_usize..3000, 1..20),
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(Made::bytes).collect();
        let (mut pieces, mut rest) = (Vec::new(), &bytes[..]);
        for cut in cuts {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = behind;
        }
        pieces.push(rest);
        expect_frames(&pieces, &frames)?;
    }

    #[test]
    fn a_frame_of_a_kind_that_may_be_unknown_is_skipped_wherever_it_is_cut(
        mut strange in vec(any::<u8>(), HEADER_LEN..HEADER_LEN + 40),
        kind in 0x80_u8..,
        after in any_frame(40),
    ) {
        (strange[4], strange[5]) = (codec::VERSION, kind);
        seal(&mut strange);
        let length = strange.len();
        let bytes = [strange, after.bytes()].concat();
        prop_assert_eq!(codec::decode(&bytes, LIMIT), Ok(Some((None, length))));
        for at in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(at);
            expect_frames(&[head, tail], core::slice::from_ref(&after))?;
        }
    }

    #[test]
    fn a_flipped_bit_is_an_error_and_never_another_frame(made in any_frame(60), after in any_frame(0)) {
        let bytes = made.bytes();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let stream = [&damaged[..], &after.bytes()].concat();
            let error = expect_no_frame(&stream)?;
            prop_assert!(
                matches!(error, Some(WireError::HeaderChecksum { .. } | WireError::PayloadChecksum { .. })),
                "bit {bit}: {error:?}"
            );
        }
    }

    #[test]
    fn bytes_at_random_are_no_frame_and_no_panic(bytes in vec(any::<u8>(), 0..300)) {
        expect_no_frame(&bytes)?;
    }

    /// Whoever can compute a checksum can send anything.
    #[test]
    fn whatever_is_under_sound_checksums_is_an_error_or_a_frame_that_can_be_sent_on(
        kind in 0_u8..20,
        flags in prop_oneof![Just(0_u16), any::<u16>()],
        options in prop_oneof![Just(0_u16), 0..60_u16],
        code in 0_u16..6,
        mut bytes in vec(prop_oneof![Just(0_u8), 0..4_u8, any::<u8>()], HEADER_LEN..HEADER_LEN + 60),
    ) {
        bytes[4..8].copy_from_slice(&[codec::VERSION, kind, flags.to_le_bytes()[0], flags.to_le_bytes()[1]]);
        bytes[14..16].copy_from_slice(&code.to_le_bytes());
        bytes[54..56].copy_from_slice(&options.to_le_bytes());
        seal(&mut bytes);
        if let Ok(Some((Some(frame), length))) = codec::decode(&bytes, LIMIT) {
            prop_assert_eq!(length, bytes.len());
            let mut again = Vec::new();
            codec::encode(&frame, &mut again);
            let (decoded, _) = codec::decode(&again, LIMIT).expect("sound").expect("whole");
            prop_assert_eq!(decoded, Some(frame));
        }
    }
}

fn request(payload: &[u8]) -> Frame<'_> {
    let request = Request {
        attempt: Attempt { client: ClientId(1), seq: Seq(2), n: 3 },
        method: Method(4),
        remaining: Duration::from_millis(5),
        cause: Cause::First,
        idempotent: false,
        tie: None,
    };
    Frame::Request(request, payload)
}

fn encoded(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode(frame, &mut bytes);
    bytes
}

/// A sound frame of this kind, its header changed by `change`.
fn sealed(kind: u8, payload: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LEN];
    bytes[4..6].copy_from_slice(&[codec::VERSION, kind]);
    bytes.extend_from_slice(payload);
    change(&mut bytes);
    seal(&mut bytes);
    bytes
}

#[test]
fn a_payload_that_lies_whole_is_read_where_it_lies() {
    let bytes = encoded(&request(b"block 9"));
    let mut inbox = Inbox::new(LIMIT);
    let mut frames = inbox.feed(&bytes);
    let Ok(Some(Frame::Request(_, payload))) = frames.next() else { panic!("a request") };
    assert_eq!(payload.as_ptr(), bytes[HEADER_LEN..].as_ptr());
}

#[test]
fn a_payload_is_refused_by_its_header_before_it_is_there() {
    let bytes = encoded(&request(&[7; 101]));
    let error = codec::decode(&bytes[..HEADER_LEN], 100);
    assert_eq!(error, Err(WireError::TooLong { frame: "request", length: 101, limit: 100 }));
    assert!(codec::decode(&bytes, 101).is_ok_and(|frame| frame.is_some()));
}

#[test]
fn an_unknown_kind_is_refused_by_its_header() {
    for kind in [0, 15, 0x7f] {
        let bytes = sealed(kind, &[0; 9], |_| {});
        assert_eq!(codec::decode(&bytes[..HEADER_LEN], LIMIT), Err(WireError::Kind(kind)));
    }
}

#[test]
fn a_payload_where_none_belongs_is_refused() {
    for kind in [2, 3, 4, 6, 7, 9, 10, 13, 14] {
        let error = codec::decode(&sealed(kind, b"x", |_| {}), LIMIT).unwrap_err();
        assert!(matches!(error, WireError::TooLong { length: 1, limit: 0, .. }), "{kind}: {error}");
    }
    let hello = sealed(1, &[0; codec::MAX_HELLO as usize + 1], |_| {});
    let hello = codec::decode(&hello, LIMIT);
    assert!(matches!(hello, Err(WireError::TooLong { frame: "hello", .. })));
}

#[test]
fn of_unknown_flags_the_lower_half_ends_the_connection_and_the_upper_says_nothing() {
    for kind in [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14] {
        let critical = sealed(kind, b"", |bytes| bytes[6] = 0x80);
        let critical = codec::decode(&critical, LIMIT);
        assert!(matches!(critical, Err(WireError::Flags { flags: 0x80, .. })), "{kind}");
        let other = sealed(kind, b"", |bytes| bytes[7] = 0x80);
        let other = codec::decode(&other, LIMIT);
        assert!(matches!(other, Ok(Some((Some(_), HEADER_LEN)))), "{kind}: {other:?}");
    }
}

#[test]
fn another_version_is_named() {
    let bytes = sealed(3, b"", |bytes| bytes[4] = 9);
    assert_eq!(codec::decode(&bytes, LIMIT), Err(WireError::Version(9)));
    let page = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(codec::decode(page, LIMIT), Err(WireError::Http));
}

#[test]
fn a_tie_to_itself_is_refused() {
    let of_request = sealed(5, b"", |bytes| bytes[6] = 2);
    let of_cancel = sealed(6, b"", |bytes| bytes[6] = 1);
    for bytes in [of_request, of_cancel] {
        let error = codec::decode(&bytes, LIMIT).unwrap_err();
        assert!(matches!(error, WireError::Field { field: "twin", .. }), "{error}");
    }
}

#[test]
fn a_broken_inbox_stays_broken() {
    let mut bytes = encoded(&request(b"block 9"));
    bytes[70] ^= 1;
    let mut inbox = Inbox::new(LIMIT);
    let error = inbox.feed(&bytes).next().unwrap_err();
    assert_eq!(inbox.feed(&encoded(&request(b"sound"))).next(), Err(error));
}

#[test]
fn sections_are_refused_twice_out_of_order_and_cut_short() {
    let label = [&[0x03, 0x80, 1, 0][..], b"a"].concat();
    let class = [0x01, 0x80, 1, 0, 7];
    let decode = |options: &[u8]| {
        let bytes = sealed(5, options, |bytes| {
            bytes[6] = 1 << 4;
            bytes[54..56].copy_from_slice(&(options.len() as u16).to_le_bytes());
        });
        codec::decode(&bytes, LIMIT).map(|frame| frame.is_some())
    };
    assert_eq!(decode(&[&class[..], &label].concat()), Ok(true));
    let section = |tag| Err(WireError::Section { frame: "request", tag });
    assert_eq!(decode(&[&label[..], &class].concat()), section(0x8001));
    assert_eq!(decode(&[class, class].concat()), section(0x8001));
    assert_eq!(decode(&class[..4]), section(0));
    assert_eq!(decode(&[9, 0, 0, 0]), section(9), "unknown, and below 0x8000");
    assert_eq!(decode(&[9, 0x90, 0, 0]), Ok(true), "unknown, and above");
}

#[test]
fn a_total_below_what_is_there_is_refused() {
    let set = OptionSet::default().opening(3);
    let Frame::Request(request, _) = request(b"") else { unreachable!() };
    let bytes = encoded(&Frame::RequestWith(request, set.as_options(), b"four"));
    let error = codec::decode(&bytes, LIMIT).unwrap_err();
    assert_eq!(error, WireError::Field { frame: "request", field: "total", value: 3 });
}

#[test]
fn a_traceparent_is_taken_as_the_standard_has_it() {
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parse = |version: &str, trace: &str, parent: &str, rest: &str| {
        let text = format!("{version}-{trace}-{parent}-{rest}");
        TraceContext::from_traceparent(&text).map(|context| context.to_string())
    };
    let (parent, sound) = ("00f067aa0ba902b7", Some(format!("00-{trace}-00f067aa0ba902b7-01")));
    assert_eq!(parse("00", trace, parent, "01"), sound);
    assert_eq!(parse("cc", trace, parent, "01-more"), sound, "of a later version what is known");
    assert_eq!(parse("cc", trace, parent, "01more"), None);
    assert_eq!(parse("00", trace, parent, "01-more"), None);
    assert_eq!(parse("ff", trace, parent, "01"), None);
    assert_eq!(parse("00", &trace.to_uppercase(), parent, "01"), None);
    assert_eq!(parse("00", &"0".repeat(32), parent, "01"), None);
    assert_eq!(parse("00", trace, &"0".repeat(16), "01"), None);
    assert_eq!(parse("00", &trace[1..], parent, "012"), None);
    assert_eq!(parse("00", trace, parent, "0"), None);
}

#[test]
fn a_long_label_is_cut_between_characters() {
    let label = "é".repeat(20);
    let set = OptionSet { label: Some(Label::new(&label)), ..OptionSet::default() }.to_bytes();
    assert_eq!(set.as_options().label(), Some(&label[..MAX_LABEL]));
    let label = format!("x{label}");
    let set = OptionSet { label: Some(Label::new(&label)), ..OptionSet::default() }.to_bytes();
    assert_eq!(set.as_options().label(), Some(&label[..MAX_LABEL - 1]));
}

#[test]
fn a_goodbye_is_cut_between_characters() {
    let text = "é".repeat(600);
    let goodbye = bowline_protocol::Goodbye { reason: bowline_protocol::GoodbyeReason::Protocol };
    let bytes = encoded(&Frame::Goodbye(goodbye, format!("x{text}").as_bytes()));
    let decoded = codec::decode(&bytes, 0).unwrap().unwrap().0;
    let Some(Frame::Goodbye(_, cut)) = decoded else { panic!("a goodbye") };
    assert_eq!(cut.len(), 1023);
    assert!(core::str::from_utf8(cut).is_ok());
}
