//! The steady state of every machine allocates nothing.

use std::time::Duration;

use bowline_protocol::options::{Label, TrafficClass};
use bowline_protocol::{
    Arrived, Assembly, Attempt, Cause, ClientId, Credit, Features, Frame, Granter, HEADER_LEN,
    Hello, Inbox, Link, LinkConfig, Load, Method, OptionSet, Outbox, Peer, ReplicaId, Reply,
    Request, Seq, Spender, Station, Status, Takes, codec,
};
use bowline_runtime::counting::{CountingAllocator, allocations};
use bowline_time::Instant;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Runs `turn` until all memory is there, and then expects that it takes no more.
fn allocates_nothing(what: &str, mut turn: impl FnMut()) {
    (0..10).for_each(|_| turn());
    let before = allocations();
    (0..1_000).for_each(|_| turn());
    assert_eq!(allocations() - before, 0, "{what}");
}

fn attempt() -> Attempt {
    Attempt { client: ClientId(7), seq: Seq(41), n: 0 }
}

fn request() -> Request {
    Request {
        attempt: attempt(),
        method: Method(3),
        remaining: Duration::from_millis(5),
        cause: Cause::First,
        idempotent: true,
        tie: None,
    }
}

fn receive(inbox: &mut Inbox, bytes: &[u8]) -> usize {
    let mut frames = inbox.feed(bytes);
    let mut count = 0;
    while frames.next().expect("sound bytes").is_some() {
        count += 1;
    }
    count
}

#[test]
fn frames_with_and_without_options_whole_and_in_pieces() {
    let (mut out, mut inbox) = (Vec::new(), Inbox::new(1 << 16));
    allocates_nothing("frames", || {
        let options = OptionSet {
            class: Some(TrafficClass(1)),
            label: Some(Label::new("tenant")),
            ..OptionSet::default()
        };
        let options = options.to_bytes();
        out.clear();
        codec::encode(&Frame::Request(request(), &[1; 64]), &mut out);
        codec::encode(&Frame::RequestWith(request(), options.as_options(), &[1; 64]), &mut out);
        assert_eq!(receive(&mut inbox, &out), 2);
        let pieces: usize = out.chunks(50).map(|piece| receive(&mut inbox, piece)).sum();
        assert_eq!(pieces, 2);
    });
}

#[test]
fn links_that_are_up() {
    let (config, mut now) = (LinkConfig::default(), Instant::EPOCH);
    let server = Hello::server(Station::default(), vec![7000]);
    let mut ends = [
        Link::dialled(Hello::client(ClientId(1)), Some(ReplicaId(0)), config, now),
        Link::accepted(server, config, now),
    ];
    let mut turn = |step| {
        now += step;
        for from in [0, 1, 0, 1] {
            ends[from].on_timeout(now).expect("the other side is there");
            while let Some(frame) = ends[from].poll_transmit(now) {
                ends[1 - from].on_frame(&frame, now).expect("the other side is sound");
            }
        }
        assert!(ends.iter().all(Link::is_up));
    };
    turn(Duration::ZERO);
    allocates_nothing("links", || turn(Duration::from_millis(300)));
}

#[test]
fn large_payloads_on_their_way_out() {
    let features = Features::OPTIONS.with(Features::SEGMENTS);
    let peer = Peer { takes: Takes { frame: 1 << 16, payload: 1 << 24 }, features };
    let (mut outbox, mut wire, payload) = (Outbox::new(4096), Vec::new(), vec![7; 100_000]);
    let reply =
        Reply { attempt: attempt(), status: Status::Ok, executed: true, load: Load::default() };
    allocates_nothing("an outbox", || {
        let pushed = outbox.push_reply(reply, &OptionSet::default(), &payload[..], &peer);
        pushed.expect("the peer takes it");
        while outbox.poll_sent().is_none() {
            wire.clear();
            outbox.fill(&mut wire, 16_384, Instant::EPOCH);
        }
    });
}

#[test]
fn large_payloads_on_their_way_in_to_memory_that_is_lent() {
    let features = Features::OPTIONS.with(Features::SEGMENTS);
    let peer = Peer { takes: Takes { frame: 1 << 16, payload: 1 << 24 }, features };
    let (mut outbox, mut wire, payload) = (Outbox::new(4096), Vec::new(), vec![7; 100_000]);
    let now = Instant::EPOCH;
    outbox.push_request(request(), &OptionSet::default(), &payload[..], &peer, now).expect("taken");
    outbox.fill(&mut wire, usize::MAX, now);
    let (mut inbox, mut assembly) = (Inbox::new(1 << 16), Assembly::new(1 << 24, 1 << 24));
    let mut lent = Some(Vec::with_capacity(payload.len()));
    let place = lent.as_ref().map(|memory: &Vec<u8>| memory.as_ptr());
    // In pieces that cut frames in two: those are put together in the inbox first.
    for piece in [usize::MAX, 5000] {
        allocates_nothing("an assembly", || {
            for piece in wire.chunks(piece) {
                let mut frames = inbox.feed(piece);
                while let Some(frame) = frames.next().expect("sound bytes") {
                    let arrived = match frame {
                        Frame::RequestWith(request, options, first) => {
                            let memory = lent.take().expect("one at a time");
                            assembly.open_request(request, &options, first, memory, now)
                        }
                        Frame::Segment(segment, bytes) => assembly.segment(&segment, bytes, now),
                        other => panic!("{other:?}"),
                    };
                    if let Arrived::Request(_, _, mut memory) = arrived.expect("sound segments") {
                        assert_eq!((Some(memory.as_ptr()), memory.len()), (place, payload.len()));
                        memory.clear();
                        lent = Some(memory);
                    }
                }
            }
            assert!(lent.is_some());
        });
    }
}

#[test]
fn a_payload_that_is_sent_from_where_it_lies() {
    let (mut out, payload) = (Vec::new(), vec![7; 100_000]);
    allocates_nothing("a head", || {
        out.clear();
        let rest = codec::encode_head(&Frame::Request(request(), &payload), &mut out);
        assert_eq!((rest.as_ptr(), out.len()), (payload.as_ptr(), HEADER_LEN));
    });
}

#[test]
fn credit() {
    let mut granter = Granter::new(Credit { requests: 4, bytes: 1_000 });
    let mut spender = Spender::new(Some(granter.granted()));
    allocates_nothing("credit", || {
        assert!(spender.try_request(100));
        granter.on_request(100).expect("it was granted");
        granter.give_back(Credit { requests: 1, bytes: 100 });
        if let Some(credit) = granter.poll_grant() {
            spender.on_credit(credit);
        }
    });
}
