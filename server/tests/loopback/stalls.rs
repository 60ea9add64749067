//! A server that wakes from a stall: what has arrived counts before anything starts.

use bowline_protocol::{Frame, How, ReplicaId, Request, codec};
use bowline_server::io::Limits;

use crate::eventually;
use crate::mesh::{Pair, pair};
use crate::peer::{Came, FakeReplica, Peer, calling, plain, tied, twin_of};
use crate::service::{ECHO, Hands, STALL};

const COPIES: u64 = 100;

fn secondary(seq: u64) -> Request {
    tied(ECHO, seq, 1)
}

/// A server whose only slot is taken by a handler that will block the whole core, the connection on
/// which it hears its peer's cancels, and a client.
fn about_to_stall(hands: &Hands) -> (bowline_server::io::Running, Peer, Peer) {
    let fake = FakeReplica::new(2);
    let peers = [(ReplicaId(2), fake.address().into())];
    let limits = Limits::default();
    let server = hands.serve_with(|builder| builder.limits(limits).slots(1).peers(peers));
    let mouth = fake.dialled();
    eventually("the mesh is up", || server.control().snapshot().connections.mesh_dialled == 1);
    let mut client = Peer::client(server.address());
    client.request(calling(STALL, 1_000), b"");
    hands.await_started(1);
    (server, mouth, client)
}

fn all_withdrawn(client: &mut Peer) {
    let (mut withdrawn, mut replies) = (0, 0);
    for _ in 0..=COPIES {
        match client.next() {
            Came::Ended(ended) => {
                assert_eq!((ended.how, ended.by), (How::Withdrawn, Some(0)));
                withdrawn += 1;
            }
            Came::Reply(reply, _) => {
                assert_eq!(reply.attempt.seq.0, 1_000, "a copy whose cancel had arrived ran");
                replies += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((withdrawn, replies), (COPIES, 1));
}

#[test]
fn of_a_hundred_queued_copies_none_starts_whose_cancel_arrived_during_the_stall() {
    let hands = Hands::default();
    let (server, mut mouth, mut client) = about_to_stall(&hands);
    (1..=COPIES).for_each(|seq| client.request(secondary(seq), b"some bytes"));
    eventually("all wait", || server.control().snapshot().copies.queued == COPIES);

    hands.stall();
    (1..=COPIES).for_each(|seq| mouth.send(&Frame::Cancel(twin_of(secondary(seq)))));
    hands.open();

    all_withdrawn(&mut client);
    assert_eq!(hands.started(), 1);
    assert_eq!(server.control().snapshot().copies.withdrawn_by_twin, COPIES);
}

/// Requests and cancels both lie in the sockets when the server wakes, in whatever order it reads
/// them: far more than one receive buffer of each.
#[test]
fn of_copies_that_arrived_during_the_stall_none_starts_whose_cancel_did_as_well() {
    let hands = Hands::default();
    let (server, mut mouth, mut client) = about_to_stall(&hands);
    hands.stall();
    let mut bytes = Vec::new();
    for seq in 1..=COPIES {
        codec::encode(&Frame::Request(secondary(seq), &[7; 900]), &mut bytes);
    }
    client.send_bytes(&bytes);
    (1..=COPIES).for_each(|seq| mouth.send(&Frame::Cancel(twin_of(secondary(seq)))));
    hands.open();

    all_withdrawn(&mut client);
    assert_eq!(hands.started(), 1);
    assert_eq!(server.control().snapshot().copies.withdrawn(), COPIES);
}

/// What is decided in a turn is with the kernel before what starts in it runs.
#[test]
fn a_twin_hears_that_a_copy_starts_while_its_handler_already_stalls_the_core() {
    let Pair { hands, server, mut ear, mouth: _mouth } = pair(1);
    let mut client = Peer::client(server.address());
    hands.stall_soon();
    let copy = tied(STALL, 1, 0);
    client.request(copy, b"");
    hands.await_stall();
    let Came::Cancel(cancel) = ear.next() else { panic!("no cancel") };
    assert_eq!(cancel.attempt, tied(STALL, 1, 1).attempt);
    hands.open();
    assert_eq!(client.reply().0, copy.attempt);
}

#[test]
fn a_core_that_stalls_holds_no_other_up() {
    let hands = Hands::default();
    let server = hands.serve_with(|builder| builder.cores(2));
    let [mut first, mut second] = [0, 1].map(|core| {
        Peer::client(std::net::SocketAddr::new(server.address().ip(), server.ports()[core]))
    });
    first.request(calling(STALL, 1), b"");
    hands.stall();
    for seq in 1..=100 {
        second.request(plain(seq), b"on");
        assert_eq!(second.reply().2, b"on");
    }
    hands.open();
    first.reply();
}

#[test]
fn copies_whose_client_went_during_the_stall_do_not_start() {
    let hands = Hands::default();
    let (server, _mouth, mut client) = about_to_stall(&hands);
    (1..=COPIES).for_each(|seq| client.request(plain(seq), b""));
    eventually("all wait", || server.control().snapshot().copies.queued == COPIES);
    hands.stall();
    drop(client);
    hands.open();
    eventually("all are gone", || server.control().snapshot().copies.dropped_queued == COPIES);
    assert_eq!(hands.started(), 1);
}
