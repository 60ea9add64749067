//! Large payloads in segments: cut and checked there, checked and put together here.

use std::hint::black_box;

use bowline_protocol::{
    Assembly, Attempt, ClientId, Features, Frame, Inbox, Load, OptionSet, Outbox, Peer, Reply, Seq,
    Status, Takes,
};
use bowline_time::Instant;
use criterion::{Criterion, Throughput};

const LENGTH: usize = 4 << 20;
const SEGMENT: u32 = 32 << 10;
/// What is handed to the kernel at a time.
const TURN: usize = 64 << 10;

fn reply() -> Reply {
    let attempt = Attempt { client: ClientId(7), seq: Seq(41), n: 0 };
    Reply { attempt, status: Status::Ok, executed: true, load: Load::default() }
}

fn push<'a>(outbox: &mut Outbox<&'a [u8]>, payload: &'a [u8]) {
    let features = Features::OPTIONS.with(Features::SEGMENTS);
    let peer = Peer { takes: Takes { frame: 1 << 20, payload: 64 << 20 }, features };
    outbox.push_reply(reply(), &OptionSet::NONE, payload, &peer).expect("the peer takes it");
}

fn receive(inbox: &mut Inbox, assembly: &mut Assembly, wire: &[u8]) {
    let mut frames = inbox.feed(wire);
    while let Some(frame) = frames.next().expect("sound bytes") {
        let arrived = match frame {
            Frame::ReplyWith(reply, options, first) => {
                assembly.open_reply(reply, &options, first, Vec::new())
            }
            Frame::Segment(segment, bytes) => assembly.segment(&segment, bytes, Instant::EPOCH),
            other => unreachable!("{other:?}"),
        };
        black_box(arrived.expect("sound segments"));
    }
}

pub(crate) fn benches(c: &mut Criterion) {
    let payload = vec![7_u8; LENGTH];
    let mut group = c.benchmark_group("segments");
    group.throughput(Throughput::Bytes(LENGTH as u64));
    group.bench_function("send_4MiB", |b| {
        let (mut outbox, mut wire) = (Outbox::new(SEGMENT), Vec::new());
        b.iter(|| {
            push(&mut outbox, &payload);
            while !outbox.is_empty() {
                wire.clear();
                outbox.fill(&mut wire, TURN, Instant::EPOCH);
            }
            outbox.poll_sent().map(|sent| sent.attempt)
        });
    });
    let (mut outbox, mut wire) = (Outbox::new(SEGMENT), Vec::new());
    push(&mut outbox, &payload);
    outbox.fill(&mut wire, usize::MAX, Instant::EPOCH);
    group.bench_function("receive_4MiB", |b| {
        let (mut inbox, mut assembly) = (Inbox::new(1 << 20), Assembly::new(64 << 20, 64 << 20));
        b.iter(|| receive(&mut inbox, &mut assembly, black_box(&wire)));
    });
    group.finish();
}
