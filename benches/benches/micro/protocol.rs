//! Frames to bytes and back.
//!
//! Each is to take tens of nanoseconds at 64 bytes: of those some ten are checksums (8 ns for so many
//! bytes, and again for the header). At 4096 bytes the checksum and the copy are nearly all of it;
//! "without a checksum" tells which.

use core::hint::black_box;
use core::time::Duration;

use bowline_protocol::{
    Attempt, Cause, ClientId, Features, Frame, Inbox, Method, Reply, Request, Seq, Status, codec,
};
use criterion::{BenchmarkId, Criterion, Throughput};

/// A payload of the size of a small argument, and one of a block of storage.
const PAYLOADS: [usize; 2] = [64, 4096];
/// The largest payload that the receiver takes, in bytes.
const LIMIT: u32 = 1 << 20;
/// Frames that arrive in one piece where senders coalesce.
const BATCH: u64 = 32;

fn attempt() -> Attempt {
    Attempt { client: ClientId(7), seq: Seq(1), n: 0 }
}

fn request() -> Request {
    Request {
        attempt: attempt(),
        method: Method(1),
        remaining: Duration::from_millis(50),
        cause: Cause::First,
        idempotent: true,
        tie: None,
    }
}

fn reply() -> Reply {
    Reply { attempt: attempt(), status: Status::Ok, executed: true, load: Default::default() }
}

pub(crate) fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("protocol");
    for bytes in PAYLOADS {
        let payload = vec![0x5a; bytes];
        group.throughput(Throughput::Bytes(bytes as u64));
        let mut out = Vec::with_capacity(LIMIT as usize);
        group.bench_function(BenchmarkId::new("encode request", bytes), |b| {
            b.iter(|| {
                out.clear();
                codec::encode(black_box(&Frame::Request(request(), &payload)), &mut out);
            });
        });
        group.bench_function(BenchmarkId::new("encode request without a checksum", bytes), |b| {
            b.iter(|| {
                out.clear();
                let frame = Frame::Request(request(), &payload);
                codec::encode_for(black_box(&frame), Features::UNSUMMED, &mut out);
            });
        });
        for (name, frame) in [
            ("decode request", Frame::Request(request(), &payload)),
            ("decode reply", Frame::Reply(reply(), &payload)),
        ] {
            out.clear();
            codec::encode(&frame, &mut out);
            group.bench_function(BenchmarkId::new(name, bytes), |b| {
                b.iter(|| codec::decode(black_box(&out), LIMIT).map(|frame| frame.is_some()));
            });
        }
    }
    let mut batch = Vec::new();
    for _ in 0..BATCH {
        codec::encode(&Frame::Reply(reply(), &[0x5a; 64]), &mut batch);
    }
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function("take 32 replies of 64 bytes out of one piece", |b| {
        let mut inbox = Inbox::new(LIMIT);
        b.iter(|| {
            let mut frames = inbox.feed(black_box(&batch));
            let mut taken = 0;
            while let Ok(Some(_)) = frames.next() {
                taken += 1;
            }
            assert_eq!(taken, BATCH);
        });
    });
    group.finish();
}
