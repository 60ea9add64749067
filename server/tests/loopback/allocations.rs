//! In steady state a request costs no allocation, however it ends.

use std::net::SocketAddr;
use std::time::Duration;

use bowline_protocol::service::{Raw, ServiceError};
use bowline_protocol::{
    Cancel, CancelReason, Features, Frame, Freshness, Key, Label, Method, OptionSet, PayloadOf,
    ReplicaId, Request, Segment, TraceContext, TrafficClass, codec,
};
use bowline_runtime::yield_now;
use bowline_server::io::{Holding, Limits};
use bowline_server::{Context, Server, Typed};

use crate::peer::{Came, FakeReplica, Peer, calling, plain, tied, twin_of};
use crate::service::{COUNT, ECHO, Hands, LOOK, ONCE};
use crate::{ear, eventually};

/// Copies in a round.
const COPIES: u64 = 200;

/// A client that counts what the server's thread allocates.
struct Watch {
    client: Peer,
    next: u64,
}

impl Watch {
    fn count(&mut self) -> u64 {
        self.next += 1;
        self.client.request(calling(COUNT, self.next), b"");
        let (_, _, payload) = self.client.reply();
        u64::from_le_bytes(payload.try_into().unwrap())
    }

    /// Runs rounds until one allocates nothing: what is kept for later use has then grown as far
    /// as such rounds need it.
    ///
    /// # Panics
    ///
    /// If all rounds allocate.
    fn settles(&mut self, mut round: impl FnMut(&mut Peer, u64)) {
        let mut spent = Vec::new();
        for _ in 0..200 {
            let before = self.count();
            round(&mut self.client, self.next + 1);
            self.next += COPIES;
            // One is for the count itself.
            spent.push(self.count() - before - 1);
            // One quiet round may be luck, if one in a few copies allocates; three are not.
            if spent.ends_with(&[0, 0, 0]) {
                return;
            }
        }
        panic!("still allocating: {spent:?}");
    }
}

fn send_all(client: &mut Peer, requests: impl Iterator<Item = Request>) {
    let mut bytes = Vec::new();
    requests.for_each(|request| {
        codec::encode(&Frame::Request(request, &[7; 100]), &mut bytes);
    });
    client.send_bytes(&bytes);
}

fn limits() -> Limits {
    Limits { slots: 8, ..Limits::default() }
}

#[test]
fn plain_requests_allocate_nothing() {
    let server = Hands::default().serve_with(|builder| builder.limits(limits()));
    let mut watch = Watch { client: Peer::client(server.address()), next: 0 };
    watch.settles(|client, first| {
        send_all(client, (first..first + COPIES).map(plain));
        (0..COPIES).for_each(|_| _ = client.reply());
    });
}

#[test]
fn tied_withdrawn_and_aborted_requests_allocate_nothing() {
    let fake = FakeReplica::new(2);
    let peers = [(ReplicaId(2), fake.address().into())];
    let server = Hands::default().serve_with(|builder| builder.limits(limits()).peers(peers));
    let mut mouth = fake.dialled();
    let mut ear = fake.dial(server.address());
    eventually("the mesh is up", || {
        let snapshot = server.control().snapshot();
        snapshot.mesh_up == 1 && snapshot.connections.mesh_dialled == 1
    });
    let mut watch = Watch { client: Peer::client(server.address()), next: 0 };
    watch.settles(|client, first| {
        // Half of them wait until they are cancelled, running or queued; the others are answered.
        let copies = |method| (first..first + COPIES / 2).map(move |seq| tied(method, seq, 1));
        let echoes = (first + COPIES / 2..first + COPIES).map(|seq| tied(ECHO, seq, 1));
        send_all(client, copies(LOOK).chain(echoes));
        copies(LOOK).for_each(|copy| mouth.send(&Frame::Cancel(twin_of(copy))));
        for _ in 0..COPIES {
            assert!(matches!(client.next(), Came::Ended(_) | Came::Reply(..)));
        }
        // Each that started has told its twin's core.
        for _ in 0..COPIES / 2 {
            assert!(matches!(ear.next(), Came::Cancel(_)));
        }
    });
}

/// Of a call that was done, and of whose key all later ones are told the result.
#[test]
fn keyed_duplicates_allocate_nothing() {
    let server = Hands::default().serve_with(|builder| builder.limits(limits()));
    let client = Peer::client_with_options(server.address());
    let mut watch = Watch { client, next: 0 };
    let key = Key { id: 9, fingerprint: 1 };
    let options = OptionSet { key: Some(key), ..OptionSet::NONE }.to_bytes();
    watch.settles(|client, first| {
        let mut bytes = Vec::new();
        for seq in first..first + COPIES {
            let frame = Frame::RequestWith(calling(ONCE, seq), options.as_options(), &[7; 100]);
            codec::encode(&frame, &mut bytes);
        }
        client.send_bytes(&bytes);
        (0..COPIES).for_each(|_| assert_eq!(client.reply().2, [7; 100]));
    });
    assert_eq!(server.control().snapshot().copies.keys, 1);
}

bowline_protocol::service! {
    /// Methods of very different sizes.
    mod sizes("sizes") with Raw {
        /// Keeps next to nothing while it waits.
        1 => small(Vec<u8>) -> ();
        /// Keeps more than any block for a task has.
        2 => large(Vec<u8>) -> ();
        /// How often the core's thread has allocated.
        10 => count(Vec<u8>) -> Vec<u8>;
    }
}

#[derive(Clone)]
struct Sizes;

impl sizes::Server<Context> for Sizes {
    async fn small(&self, _: Context, _: Vec<u8>) -> Result<(), ServiceError> {
        yield_now().await;
        Ok(())
    }

    async fn large(&self, _: Context, request: Vec<u8>) -> Result<(), ServiceError> {
        let mut kept = [0_u8; 32 << 10];
        kept[..request.len()].copy_from_slice(&request);
        yield_now().await;
        std::hint::black_box(&kept);
        Ok(())
    }

    async fn count(&self, _: Context, _: Vec<u8>) -> Result<Vec<u8>, ServiceError> {
        Ok(bowline_runtime::counting::allocations().to_le_bytes().to_vec())
    }
}

/// A future is as large as all that it may hold: were one made for all methods, each call would take
/// the memory of the largest, which is more here than what is kept for the next.
#[test]
fn a_call_takes_the_memory_that_its_own_method_needs() {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let builder = Server::builder().replica(ReplicaId(1)).listen(any).limits(limits());
    let held = || Some(Freshness::version(1));
    let server = builder.start(Holding(Typed(sizes::Serving(Sizes)), held)).unwrap();
    let mut watch = Watch { client: Peer::client(server.address()), next: 0 };
    let small = |client: &mut Peer, first| {
        // Of a payload that is decoded where it lies: none.
        for seq in first..first + COPIES {
            client.request(Request { idempotent: false, ..calling(Method(1), seq) }, b"");
        }
        (0..COPIES).for_each(|_| _ = client.reply());
    };
    watch.settles(small);
    let before = watch.count();
    watch.client.request(calling(Method(2), 1 << 40), b"");
    watch.client.reply();
    assert!(watch.count() - before > 1, "the large one does take more");
    watch.settles(small);
}

#[test]
fn shed_and_refused_requests_allocate_nothing() {
    let limits = Limits { slots: 1, queue_requests: 50, ..Limits::default() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut watch = Watch { client: Peer::client(server.address()), next: 0 };
    watch.settles(|client, first| {
        let holder = calling(LOOK, first);
        send_all(client, core::iter::once(holder));
        let hurry = |seq| Request { remaining: Duration::from_millis(2), ..plain(seq) };
        send_all(client, (first + 1..first + COPIES).map(hurry));
        // The first ends only when all others have: refused at once, or shed by their timers.
        for _ in 1..COPIES {
            assert!(matches!(client.next(), Came::Ended(_) | Came::Overloaded(_)));
        }
        let (reason, lifetime) = (CancelReason::CallerDone, Duration::ZERO);
        client.send(&Frame::Cancel(Cancel { attempt: holder.attempt, reason, lifetime }));
        assert!(matches!(client.next(), Came::Ended(_)));
    });
}

/// Nor does that their traces are sampled: the core asks whether anybody listens, and nobody does.
#[test]
fn requests_with_options_and_in_segments_allocate_nothing() {
    ear::install();
    let server = Hands::default().serve_with(|builder| builder.limits(limits()));
    let features = Features::OPTIONS.with(Features::SEGMENTS).with(Features::CREDIT);
    let mut watch = Watch { client: Peer::client_that(features, server.address()), next: 0 };
    let options = OptionSet {
        key: None,
        class: Some(TrafficClass(1)),
        trace: Some(TraceContext { trace: [1; 16], parent: [2; 8], flags: 1 }),
        label: Some(Label::new("tenant")),
        ..OptionSet::NONE
    };
    watch.settles(|client, first| {
        // Half of them whole, and a few in segments both ways.
        let (small, large) = (COPIES / 2, 5);
        for seq in first..first + small {
            let bytes = options.to_bytes();
            client.send(&Frame::RequestWith(plain(seq), bytes.as_options(), &[7; 100]));
        }
        for seq in first + small..first + small + large {
            let opening = options.opening(100_000);
            client.send(&Frame::RequestWith(plain(seq), opening.as_options(), &[7; 40_000]));
            let (attempt, of) = (plain(seq).attempt, PayloadOf::Request);
            let segment = Segment { attempt, of, offset: 40_000 };
            client.send(&Frame::Segment(segment, &[7; 60_000]));
        }
        let (mut ended, mut came) = (0, 0);
        while ended < small || came < 100_000 * large as usize {
            match client.next() {
                Came::Reply(..) => ended += 1,
                Came::Opening(_, _, length) | Came::Segment(_, _, length) => came += length,
                Came::Credit(_) => {}
                other => panic!("{other:?}"),
            }
        }
    });
}
