//! Servers that tell each other which copy starts.

use std::net::SocketAddr;
use std::time::Duration;

use bowline_protocol::{
    Attempt, Cancel, CancelReason, Features, Frame, Goodbye, GoodbyeReason, Hello, How, LinkConfig,
    OptionSet, ReplicaId, Request, Started, Station, Tie, Twin, codec,
};
use bowline_server::io::Running;

use crate::eventually;
use crate::peer::{Came, FakeReplica, Peer, calling, plain, station, tied, twin_of};
use crate::service::{ECHO, HOLD, Hands, YIELD};

const SEGMENTS: Features = Features::OPTIONS.with(Features::SEGMENTS);

/// A server with a peer that is under the test's hands: the peer's ear for the server's cancels,
/// and its mouth for its own.
pub(crate) struct Pair {
    pub(crate) hands: Hands,
    pub(crate) server: Running,
    pub(crate) ear: Peer,
    pub(crate) mouth: Peer,
}

pub(crate) fn pair(slots: u32) -> Pair {
    let fake = FakeReplica::new(2);
    let hands = Hands::default();
    let peers = [(ReplicaId(2), fake.address().into())];
    let server = hands.serve_with(|builder| builder.slots(slots).peers(peers));
    let mouth = fake.dialled();
    let ear = fake.dial(server.address());
    eventually("the mesh is up", || {
        let snapshot = server.control().snapshot();
        snapshot.mesh_up == 1 && snapshot.connections.mesh_dialled == 1
    });
    Pair { hands, server, ear, mouth }
}

#[test]
fn a_copy_that_starts_is_told_to_the_twins_core_and_not_to_the_client() {
    let mut pair = pair(4);
    let mut client = Peer::client(pair.server.address());
    client.request(tied(ECHO, 1, 0), b"tied");
    let by = Twin { station: station(1), n: 0 };
    let Came::Cancel(cancel) = pair.ear.next() else { panic!("no cancel") };
    assert_eq!(cancel.attempt, Attempt { n: 1, ..plain(1).attempt });
    assert_eq!(cancel.reason, CancelReason::TwinStarted { by });
    assert_eq!(client.reply().2, b"tied", "the first that the client hears");
}

#[test]
fn without_a_mesh_the_client_is_told() {
    let server = Hands::default().serve();
    let mut client = Peer::client(server.address());
    let copy = tied(ECHO, 1, 0);
    client.request(copy, b"");
    assert_eq!(client.next(), Came::Started(Started { attempt: copy.attempt }));
    assert_eq!(client.reply().0, copy.attempt);
}

#[test]
fn the_client_is_told_again_once_the_mesh_is_down() {
    let Pair { server, ear, .. } = pair(4);
    drop(ear);
    eventually("the mesh is down", || server.control().snapshot().mesh_up == 0);
    let mut client = Peer::client(server.address());
    client.request(tied(ECHO, 1, 0), b"");
    assert!(matches!(client.next(), Came::Started(_)));
}

#[test]
fn a_twins_cancel_withdraws_a_copy_that_waits() {
    let mut pair = pair(1);
    let mut client = Peer::client(pair.server.address());
    client.request(calling(HOLD, 1), b"");
    pair.hands.await_started(1);
    let copy = tied(ECHO, 2, 1);
    client.request(copy, b"");
    eventually("it waits", || pair.server.control().snapshot().copies.queued == 1);
    pair.mouth.send(&Frame::Cancel(twin_of(copy)));
    let ended = client.ended();
    assert_eq!((ended.attempt, ended.how, ended.by), (copy.attempt, How::Withdrawn, Some(0)));
}

#[test]
fn a_twins_cancel_that_comes_first_withdraws_the_copy_on_arrival() {
    let mut pair = pair(4);
    let copy = tied(ECHO, 1, 1);
    pair.mouth.send(&Frame::Cancel(twin_of(copy)));
    eventually("a tombstone waits", || pair.server.control().snapshot().tombstones == 1);
    let mut client = Peer::client(pair.server.address());
    client.request(copy, b"");
    assert_eq!(client.ended().how, How::Withdrawn);
    assert_eq!(pair.hands.started(), 0);
}

/// Opens a copy's request, of which more is to come than its first bytes.
fn open(client: &mut Peer, request: Request) {
    let options = OptionSet::NONE.opening(1 << 20);
    client.send(&Frame::RequestWith(request, options.as_options(), &[1; 1000]));
}

#[test]
fn a_copy_whose_request_is_on_its_way_is_withdrawn_by_its_twin() {
    let mut pair = pair(4);
    let mut client = Peer::client_that(SEGMENTS, pair.server.address());
    let copy = tied(ECHO, 1, 1);
    open(&mut client, copy);
    eventually("it is on its way", || pair.server.control().snapshot().assembling > 0);
    let other = CancelReason::TwinStarted { by: Twin { station: station(3), n: 0 } };
    pair.mouth.send(&Frame::Cancel(Cancel { reason: other, ..twin_of(copy) }));
    pair.mouth.send(&Frame::Cancel(twin_of(copy)));
    let ended = client.ended();
    assert_eq!((ended.attempt, ended.how, ended.by), (copy.attempt, How::Withdrawn, Some(0)));
    let snapshot = pair.server.control().snapshot();
    assert_eq!((snapshot.copies.cancels_refused, snapshot.copies.cancels_on_the_way), (1, 1));
    assert_eq!((snapshot.tombstones, snapshot.assembling), (0, 0));
}

#[test]
fn a_twins_cancel_that_comes_before_a_request_in_segments_spares_it_the_rest() {
    let mut pair = pair(4);
    let copy = tied(ECHO, 1, 1);
    pair.mouth.send(&Frame::Cancel(twin_of(copy)));
    eventually("a tombstone waits", || pair.server.control().snapshot().tombstones == 1);
    let mut client = Peer::client_that(SEGMENTS, pair.server.address());
    open(&mut client, copy);
    let ended = client.ended();
    assert_eq!((ended.attempt, ended.how, ended.by), (copy.attempt, How::Withdrawn, Some(0)));
    assert_eq!(pair.server.control().snapshot().assembling, 0);
}

#[test]
fn a_running_secondary_is_interrupted_by_its_twin_and_a_primary_is_not() {
    let mut pair = pair(4);
    let mut client = Peer::client(pair.server.address());
    let (primary, secondary) = (tied(YIELD, 1, 0), tied(YIELD, 2, 1));
    client.request(primary, b"");
    client.request(secondary, b"");
    pair.hands.await_started(2);
    pair.mouth.send(&Frame::Cancel(twin_of(primary)));
    pair.mouth.send(&Frame::Cancel(twin_of(secondary)));
    let ended = client.ended();
    assert_eq!((ended.attempt, ended.how), (secondary.attempt, How::Aborted));
    pair.hands.open();
    assert_eq!(client.reply().0, primary.attempt);
    assert_eq!(pair.server.control().snapshot().copies.double_starts, 2);
}

/// Its cancels are obeyed only where the server dialled it: whoever can connect could say that it
/// is a peer.
#[test]
fn a_cancel_on_a_connection_that_the_server_did_not_dial_is_refused() {
    let mut pair = pair(1);
    let mut client = Peer::client(pair.server.address());
    client.request(calling(HOLD, 1), b"");
    pair.hands.await_started(1);
    let copy = tied(ECHO, 2, 1);
    client.request(copy, b"");
    eventually("it waits", || pair.server.control().snapshot().copies.queued == 1);
    pair.ear.send(&Frame::Cancel(twin_of(copy)));
    let mut other = Peer::client(pair.server.address());
    other.send(&Frame::Cancel(twin_of(copy)));
    eventually("both are refused", || pair.server.control().snapshot().copies.cancels_refused == 2);
    pair.hands.open();
    let mut answered = [client.reply().0.seq.0, client.reply().0.seq.0];
    answered.sort_unstable();
    assert_eq!(answered, [1, 2]);
}

#[test]
fn a_stranger_that_answers_at_a_peers_address_is_not_believed() {
    let fake = FakeReplica::new(3);
    let peers = [(ReplicaId(2), fake.address().into())];
    let server = Hands::default().serve_with(|builder| builder.peers(peers));
    let stream = std::panic::catch_unwind(|| fake.dialled());
    assert!(stream.is_err(), "it must not be acknowledged");
    let io = || server.control().snapshot().connections;
    eventually("the attempt counts as failed", || io().mesh_failed > 0);
    assert_eq!(io().mesh_dialled, 0);
}

#[test]
fn who_claims_to_be_a_replica_that_is_no_peer_hears_nothing() {
    let server = Hands::default().serve();
    let fake = FakeReplica::new(2);
    let _ear = fake.dial(server.address());
    let mut client = Peer::client(server.address());
    client.request(tied(ECHO, 1, 0), b"");
    assert!(matches!(client.next(), Came::Started(_)), "the client relays");
}

/// It would grow the mesh, and hear of every copy that a client says is tied to it.
#[test]
fn a_core_that_the_peer_does_not_have_hears_nothing() {
    let fake = FakeReplica::new(2);
    let peers = [(ReplicaId(2), fake.address().into())];
    let server = Hands::default().serve_with(|builder| builder.peers(peers));
    let _mouth = fake.dialled();
    let _ear = fake.dial_as(7, server.address());
    eventually("it is counted", || server.control().snapshot().connections.mesh_unknown == 1);
    assert_eq!(server.control().snapshot().mesh_up, 0);
    let twin = Twin { station: Station { core: 7, ..station(2) }, n: 1 };
    let tie = Some(Tie { twin, window: Duration::from_secs(5) });
    let mut client = Peer::client(server.address());
    client.request(Request { tie, ..plain(1) }, b"");
    assert!(matches!(client.next(), Came::Started(_)), "the client relays");
}

/// It dialled before this side's own dial learned that it is there.
#[test]
fn a_core_that_comes_before_the_peer_told_of_it_hears_cancels_once_it_has() {
    let fake = FakeReplica::new(2);
    let peers = [(ReplicaId(2), fake.address().into())];
    let server = Hands::default().serve_with(|builder| builder.peers(peers));
    let _ear = fake.dial_as(1, server.address());
    eventually("it is counted", || server.control().snapshot().connections.mesh_unknown == 1);
    let _mouth = fake.answer(0, 2);
    eventually("it is welcome", || server.control().snapshot().mesh_up == 1);
}

/// Each start is told once, however many say that they are that core, and while one of them is
/// there it is told.
#[test]
fn only_the_newest_connection_of_a_peers_core_hears_and_an_older_one_again_after_it() {
    let fake = FakeReplica::new(2);
    let peers = [(ReplicaId(2), fake.address().into())];
    let server = Hands::default().serve_with(|builder| builder.peers(peers));
    let _mouth = fake.dialled();
    let mut older = fake.dial(server.address());
    eventually("the mesh is up", || server.control().snapshot().mesh_up == 1);
    let mut newer = fake.dial(server.address());
    eventually("it is replaced", || server.control().snapshot().connections.mesh_replaced == 1);
    let mut client = Peer::client(server.address());
    let mut hears = |ear: &mut Peer, seq| {
        client.request(tied(ECHO, seq, 0), b"");
        let Came::Cancel(cancel) = ear.next() else { panic!("no cancel") };
        assert_eq!(cancel.attempt.seq.0, seq);
        assert_eq!(client.reply().0.seq.0, seq);
    };
    hears(&mut newer, 1);
    drop(newer);
    eventually("it is gone", || server.control().snapshot().clients == 2);
    hears(&mut older, 2);
    drop(older);
    eventually("the mesh is down", || server.control().snapshot().mesh_up == 0);
}

#[test]
fn a_peer_is_found_by_its_name_and_whoever_else_is_not_there_holds_nothing_up() {
    let fake = FakeReplica::new(2);
    let named = format!("localhost:{}", fake.address().port());
    // A name that nobody has, as a standard says, or knows, where nobody is asked.
    let nobody = "store-3.invalid:7000".parse().unwrap();
    let peers = [(ReplicaId(2), named.parse().unwrap()), (ReplicaId(3), nobody)];
    let server = Hands::default().serve_with(|builder| builder.peers(peers));
    let mut client = Peer::client(server.address());
    client.request(plain(1), b"alone");
    assert_eq!(client.reply().2, b"alone");
    let _mouth = fake.dialled();
    let io = || server.control().snapshot().connections;
    eventually("the other is counted", || io().mesh_dialled == 1 && io().mesh_unresolved > 0);
    // An address of this host at which nobody answers is no failure, where another one did.
    let io = io();
    assert_eq!(io.mesh_failed, io.mesh_unresolved);
}

/// A client is served far more often meanwhile; a core that dials all the time does so in each turn.
#[test]
fn a_peer_that_is_not_there_is_dialled_now_and_then_and_not_all_the_time() {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let nobody = SocketAddr::from(([127, a | 64, b, c], 7303));
    let peers = [(ReplicaId(2), nobody.into())];
    let server = Hands::default().serve_with(|builder| builder.peers(peers));
    let failed = || server.control().snapshot().connections.mesh_failed;
    let mut client = Peer::client(server.address());
    for seq in 1..=2_000 {
        client.request(plain(seq), b"");
        client.reply();
    }
    let dials = failed();
    assert!(dials < 200, "{dials} dials");
    eventually("it is dialled again", || failed() > dials);
}

#[test]
fn cores_that_a_peer_has_no_more_are_not_dialled_any_more() {
    let fake = FakeReplica::new(2);
    let peers = [(ReplicaId(2), fake.address().into())];
    let server = Hands::default().serve_with(|builder| builder.peers(peers));
    let kept = || server.control().snapshot().mesh_kept;
    assert_eq!(kept(), 1);
    let first = fake.answer(0, 3);
    eventually("all are dialled", || kept() == 3);
    drop(first);
    // It is one core now, whichever connection it is asked on.
    let mut answered = Vec::new();
    eventually("only that one is dialled", || {
        answered.extend(fake.answer_if_dialled(0, 1));
        kept() == 1
    });
}

#[test]
fn a_starter_that_dies_after_its_cancel_leaves_the_client_to_send_the_call_again() {
    let mut pair = pair(1);
    let mut client = Peer::client(pair.server.address());
    client.request(calling(HOLD, 1), b"");
    pair.hands.await_started(1);
    let copy = tied(ECHO, 2, 1);
    client.request(copy, b"");
    pair.mouth.send(&Frame::Cancel(twin_of(copy)));
    drop(pair.mouth);
    drop(pair.ear);
    assert_eq!(client.ended().how, How::Withdrawn, "the client knows at once");
    pair.hands.open();
    assert_eq!(client.reply().0, plain(1).attempt);
    let again = Attempt { n: 2, ..plain(2).attempt };
    client.request(Request { attempt: again, ..plain(2) }, b"again");
    assert_eq!(client.reply(), (again, bowline_protocol::Status::Ok, b"again".to_vec()));
}

/// The starter's last words: its cancel comes with its goodbye, in one write, and nothing comes
/// after it that would wake the core. (No ping for an hour, and time enough for all copies.)
#[test]
fn a_cancel_that_comes_with_the_goodbye_is_told_at_once() {
    const HOUR: Duration = Duration::from_secs(3600);
    let fake = FakeReplica::new(2);
    let hands = Hands::default();
    let link = LinkConfig { ping_after: HOUR, dead_after: HOUR, ..LinkConfig::default() };
    let peers = [(ReplicaId(2), fake.address().into())];
    let server = hands.serve_with(|builder| builder.slots(1).link(link).peers(peers));
    let mut mouth = fake.dialled();
    drop(fake);
    let mut client = Peer::client(server.address());
    client.request(plain(1), b"");
    assert_eq!(client.reply().0, plain(1).attempt);
    client.request(Request { remaining: HOUR, ..calling(HOLD, 2) }, b"");
    hands.await_started(2);
    let copy = Request { remaining: HOUR, ..tied(ECHO, 3, 1) };
    client.request(copy, b"");
    eventually("it waits", || {
        let snapshot = server.control().snapshot();
        snapshot.copies.queued == 1 && snapshot.connections.mesh_dialled == 1
    });
    let mut bytes = Vec::new();
    codec::encode(&Frame::Cancel(twin_of(copy)), &mut bytes);
    let goodbye = Goodbye { reason: GoodbyeReason::Leaving };
    codec::encode(&Frame::Goodbye(goodbye, b""), &mut bytes);
    mouth.send_bytes(&bytes);
    assert_eq!(client.ended().how, How::Withdrawn);
    hands.open();
}

/// Both servers are real, with two cores each: every core ends up with a link to every core.
#[test]
fn every_core_finds_every_core_of_its_peers_and_finds_them_again() {
    // Addresses of this process alone, with ports that no system gives away: nobody else takes one
    // before a server is there, or while it starts anew.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let address = |port| SocketAddr::from(([127, a | 64, b, c], port));
    let (first, second) = (address(7301), address(7302));
    let serve = |replica: u16, own, other: u16, address| {
        let peers = [(ReplicaId(other), SocketAddr::into(address))];
        Hands::default().serve_with(|builder| {
            builder.replica(ReplicaId(replica)).listen(own).cores(2).peers(peers)
        })
    };
    let full = |server: &Running| server.control().snapshots().iter().all(|core| core.mesh_up == 2);
    let one = serve(1, first, 2, second);
    let two = serve(2, second, 1, first);
    eventually("the mesh is whole", || full(&one) && full(&two));

    two.shut_down(Duration::ZERO).unwrap();
    eventually("the loss is noticed", || one.control().snapshot().mesh_up == 0);
    let two = serve(2, second, 1, first);
    eventually("the mesh is whole again, on new ports", || full(&one) && full(&two));

    let port = |server: &Running, core: usize| (server.address().ip(), server.ports()[core]).into();
    for core in 0..2 {
        let twin = Twin { station: Station { core, ..station(2) }, n: 1 };
        let tie = Some(Tie { twin, window: Duration::from_secs(5) });
        let mut client = Peer::client(port(&one, 1));
        client.request(Request { tie, ..plain(core.into()) }, b"");
        assert_eq!(client.reply().0, plain(core.into()).attempt);
        eventually("that very core got the cancel", || {
            two.control().snapshots()[usize::from(core)].tombstones == 1
        });
    }
}

#[test]
fn a_server_says_who_it_is_and_where_its_cores_are() {
    let pair = pair(1);
    let hello: &Hello = pair.mouth.hello.as_ref().unwrap();
    assert_eq!(hello.station(), Some(station(1)));
    assert_eq!(hello.ports, [pair.server.address().port()]);
    assert!(pair.mouth.ack.unwrap().obeys_cancels);
    assert!(!pair.ear.ack.unwrap().obeys_cancels);
}
