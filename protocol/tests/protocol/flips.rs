//! One bit is flipped, anywhere in all that one side says on a connection: what came before it
//! counts, and of the rest nothing does.

use core::time::Duration;

use bowline_protocol::frame::GoAway;
use bowline_protocol::{
    Assembly, Attempt, Cancel, CancelReason, Cause, ClientId, Credit, Ended, Features, Frame,
    Goodbye, GoodbyeReason, HEADER_LEN, Hello, HelloAck, How, Inbox, Key, Label, Link, LinkConfig,
    Load, Method, MethodInfo, OptionSet, Outbox, Overloaded, Peer, Ping, ReplicaId, Reply, Request,
    Seq, ServiceInfo, Started, Station, Status, Takes, Tie, TraceContext, TrafficClass, Twin,
    codec,
};
use bowline_time::Instant;

const CLIENT: ClientId = ClientId(0x0123_4567_89ab_cdef);
const HERE: Station = Station { replica: ReplicaId(2), core: 1 };
const TAKES: Takes = Takes { frame: 1 << 16, payload: 1 << 20 };
const METHODS: &[MethodInfo] = &[MethodInfo::new(Method(1), "read").idempotent()];
const ALL: Features =
    Features::OPTIONS.with(Features::SEGMENTS).with(Features::CREDIT).with(Features::GO_AWAY);

fn attempt(seq: u64) -> Attempt {
    Attempt { client: CLIENT, seq: Seq(seq), n: 0 }
}

fn hello(server: bool, features: Features) -> Hello {
    let hello = match server {
        true => Hello::server(HERE, vec![7000, 7001]),
        false => Hello::client(CLIENT),
    };
    let methods = Some(ServiceInfo::new("blocks", METHODS).to_methods());
    Hello { features, takes: Some(TAKES), methods, ..hello }
}

/// A link that knows nobody yet.
fn link(server: bool, features: Features) -> Link {
    let (me, config, now) = (hello(server, features), LinkConfig::default(), Instant::EPOCH);
    match server {
        true => Link::accepted(me, config, now),
        false => Link::dialled(me, Some(HERE.replica), config, now),
    }
}

fn options() -> OptionSet {
    OptionSet {
        key: Some(Key { id: 77, fingerprint: 78 }),
        class: Some(TrafficClass(2)),
        trace: Some(TraceContext { trace: [1; 16], parent: [2; 8], flags: 1 }),
        label: Some(Label::new("tenant")),
        ..OptionSet::NONE
    }
}

fn request(seq: u64) -> Request {
    let twin = Twin { station: HERE, n: 1 };
    Request {
        attempt: attempt(seq),
        method: Method(1),
        remaining: Duration::from_millis(5),
        cause: Cause::First,
        idempotent: true,
        tie: Some(Tie { twin, window: Duration::from_millis(1) }),
    }
}

fn reply(seq: u64) -> Reply {
    let load = Load { running: 1, queued: 2, wait: Duration::from_micros(3) };
    Reply { attempt: attempt(seq), status: Status::Ok, executed: true, load }
}

/// A payload in three pieces, and a small frame between them.
fn in_segments(server: bool, peer: &Peer, between: &Frame<'_>) -> Vec<Vec<u8>> {
    let (mut outbox, now) = (Outbox::new(20), Instant::EPOCH);
    let payload = b"a payload of fifty bytes, which go in three pieces".as_slice();
    match server {
        true => outbox.push_reply(reply(3), &options(), payload, peer),
        false => outbox.push_request(request(3), &options(), payload, peer, now),
    }
    .expect("the peer takes it");
    let mut frames = Vec::new();
    while !outbox.is_empty() {
        let mut bytes = Vec::new();
        outbox.fill(&mut bytes, 1, now);
        frames.extend([bytes, encoded(between, peer)]);
    }
    frames
}

fn encoded(frame: &Frame<'_>, peer: &Peer) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode_for(frame, peer.features, &mut bytes);
    bytes
}

/// All that a client says to a side that wants this.
fn of_a_client(peer: &Peer) -> Vec<Vec<u8>> {
    let by = Twin { station: HERE, n: 1 };
    let lifetime = Duration::from_millis(2);
    let started = CancelReason::TwinStarted { by };
    let cancel = |reason| Frame::Cancel(Cancel { attempt: attempt(1), reason, lifetime });
    let bytes = options().to_bytes();
    let beginning = [
        Frame::Hello(hello(false, ALL)),
        Frame::HelloAck(HelloAck { obeys_cancels: true, grant: None }),
        Frame::Ping(Ping { token: 9 }),
        Frame::Request(request(1), b"block 9"),
        Frame::RequestWith(request(2), bytes.as_options(), b"block 10"),
    ];
    let end = [
        cancel(started),
        cancel(CancelReason::CallerDone),
        Frame::Goodbye(Goodbye { reason: GoodbyeReason::Leaving }, b"enough"),
    ];
    let mut frames: Vec<_> = beginning.iter().map(|frame| encoded(frame, peer)).collect();
    frames.extend(in_segments(false, peer, &Frame::Request(request(4), b"small")));
    frames.extend(end.iter().map(|frame| encoded(frame, peer)));
    frames
}

/// All that a server says to a side that wants this.
fn of_a_server(peer: &Peer) -> Vec<Vec<u8>> {
    let (load, credit) = (Load::default(), Credit { requests: 9, bytes: 99 });
    let after = Duration::from_millis(1);
    let label = OptionSet { label: Some(Label::new("cache")), ..OptionSet::NONE }.to_bytes();
    let beginning = [
        Frame::Hello(hello(true, ALL)),
        Frame::HelloAck(HelloAck { obeys_cancels: false, grant: Some(credit) }),
        Frame::Pong(Ping { token: 9 }),
        Frame::Reply(reply(1), b"block 9"),
        Frame::ReplyWith(reply(2), label.as_options(), b"block 10"),
        Frame::Started(Started { attempt: attempt(5) }),
    ];
    let end = [
        Frame::Ended(Ended { attempt: attempt(5), how: How::Withdrawn, by: Some(1), load }),
        Frame::Overloaded(Overloaded { attempt: attempt(6), retry_after: after, load }),
        Frame::Credit(Credit { requests: 20, bytes: 200 }),
        Frame::GoAway(GoAway { within: Duration::from_secs(1) }),
        Frame::Goodbye(Goodbye { reason: GoodbyeReason::Leaving }, b"enough"),
    ];
    let mut frames: Vec<_> = beginning.iter().map(|frame| encoded(frame, peer)).collect();
    frames.extend(in_segments(true, peer, &Frame::Reply(reply(4), b"small")));
    frames.extend(end.iter().map(|frame| encoded(frame, peer)));
    frames
}

/// What a side makes of bytes that come in pieces of so many: what each frame meant, and what ended
/// the connection.
fn heard(server: bool, features: Features, bytes: &[u8], piece: usize) -> (Vec<String>, String) {
    let now = Instant::EPOCH;
    let (mut link, inbox) = (link(server, features), Inbox::new(TAKES.frame));
    let mut inbox = inbox.with_features(features);
    let mut assembly: Assembly = Assembly::new(TAKES.payload, 1 << 20);
    let mut events = Vec::new();
    for piece in bytes.chunks(piece) {
        let mut frames = inbox.feed(piece);
        loop {
            let frame = match frames.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => return (events, error.to_string()),
            };
            let event = match link.on_frame(&frame, now) {
                Ok(event) => event,
                Err(error) => return (events, error.to_string()),
            };
            let arrived = match &frame {
                Frame::RequestWith(request, options, first) => {
                    assembly.open_request(*request, options, first, Vec::new(), now)
                }
                Frame::ReplyWith(reply, options, first) => {
                    assembly.open_reply(*reply, options, first, Vec::new())
                }
                Frame::Segment(segment, bytes) => assembly.segment(segment, bytes, now),
                frame => {
                    events.push(format!("{event:?} {frame:?}"));
                    continue;
                }
            };
            events.push(format!("{event:?} {:?}", arrived.expect("what came whole follows")));
        }
    }
    (events, String::new())
}

/// The frame in which that byte lies: its number, its name, and where in it that is.
fn place(frames: &[Vec<u8>], mut at: usize) -> (usize, &'static str, usize) {
    for (number, frame) in frames.iter().enumerate() {
        if at < frame.len() {
            let decoded = codec::decode(frame, TAKES.frame).expect("sound").expect("whole").0;
            return (number, decoded.expect("a known kind").name(), at);
        }
        at -= frame.len();
    }
    panic!("beyond the end")
}

/// Where in a frame the service's own bytes begin, if it has such.
fn opaque_from(frame: &[u8]) -> usize {
    let [kind, flags] = [frame[5], frame[6]];
    let options = u16::from_le_bytes([frame[54], frame[55]]);
    match kind {
        5 | 8 if flags & 0x10 != 0 => HEADER_LEN + usize::from(options),
        5 | 8 | 12 => HEADER_LEN,
        _ => frame.len(),
    }
}

fn every_flip(server: bool, features: Features) {
    let peer = Peer { takes: TAKES, features };
    let frames = if server { of_a_client(&peer) } else { of_a_server(&peer) };
    let sound = frames.concat();
    let (expected, end) = heard(server, features, &sound, usize::MAX);
    assert_eq!(
        (expected.len(), &end[..]),
        (frames.len() - 1, "it said goodbye: it is shutting down")
    );
    for bit in 0..sound.len() * 8 {
        let mut damaged = sound.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // In one piece, and every few bits in small ones.
        let piece = if bit % 11 == 0 { 50 } else { usize::MAX };
        let (events, error) = heard(server, features, &damaged, piece);
        let (number, name, at) = place(&frames, bit / 8);
        if features.has(Features::UNSUMMED) && at >= opaque_from(&frames[number]) {
            // That is what this side wanted: it is the service's business.
            assert_eq!((events.len(), error), (expected.len(), end.clone()), "bit {bit}");
            continue;
        }
        assert_eq!(events, expected[..number.min(expected.len())], "bit {bit}: {error}");
        assert!(error.contains("checksum"), "bit {bit} of a {name} frame: {error}");
        // The byte of the kind itself may be the damaged one.
        assert!(at == 5 || error.contains(name), "bit {bit} of a {name} frame: {error}");
    }
}

#[test]
fn a_flipped_bit_in_what_a_client_says_is_an_error_that_names_its_frame() {
    every_flip(true, ALL);
}

#[test]
fn a_flipped_bit_in_what_a_server_says_is_an_error_that_names_its_frame() {
    every_flip(false, ALL);
}

#[test]
fn without_checksums_of_payloads_headers_and_options_are_guarded_all_the_same() {
    every_flip(true, ALL.with(Features::UNSUMMED));
    every_flip(false, ALL.with(Features::UNSUMMED));
}

#[test]
fn who_wants_checksums_takes_no_payload_without_and_names_its_frame() {
    let without = Peer { takes: TAKES, features: ALL.with(Features::UNSUMMED) };
    for (server, frames) in [(true, of_a_client(&without)), (false, of_a_server(&without))] {
        let unsummed = |frame: &Vec<u8>| frame[6] & 0x20 != 0 && matches!(frame[5], 5 | 8 | 12);
        let first = frames.iter().position(unsummed).expect("some have none");
        let (_, name, _) = place(&frames, frames[..first].concat().len());
        for piece in [50, usize::MAX] {
            let (events, error) = heard(server, ALL, &frames.concat(), piece);
            assert_eq!(events.len(), first, "{error}");
            assert!(error.contains(name) && error.contains("no checksum"), "{error}");
        }
    }
}
