//! Peers that are broken, or mean harm, cost themselves their connection and others nothing.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use bowline_protocol::{
    Attempt, ClientId, Ended, Features, Frame, GoodbyeReason, Hello, How, LinkConfig, Load, Method,
    Request, Status, codec, options,
};
use bowline_server::io::Limits;

use crate::eventually;
use crate::peer::{CLIENT, Came, FakeReplica, Peer, calling, plain};
use crate::service::{BLOW, HOLD, Hands};

fn goodbye(peer: &mut Peer) -> (GoodbyeReason, String) {
    loop {
        match peer.next() {
            Came::Goodbye(reason, why) => return (reason, why),
            Came::Closed => panic!("closed without a word"),
            _ => {}
        }
    }
}

fn raw(server: &bowline_server::io::Running) -> Peer {
    Peer::raw(TcpStream::connect(server.address()).unwrap())
}

#[test]
fn bytes_that_are_not_the_protocol_end_the_connection_with_a_sentence() {
    let server = Hands::default().serve();
    let mut stranger = raw(&server);
    stranger.send_bytes(&[b'G'; 200]);
    let (reason, why) = goodbye(&mut stranger);
    assert_eq!(reason, GoodbyeReason::Protocol);
    assert!(why.contains("not Bowline"), "{why}");
    eventually("it is counted", || server.control().snapshot().connections.protocol_errors == 1);
}

#[test]
fn a_damaged_frame_ends_the_connection_and_drops_its_copies() {
    let server = Hands::default().serve();
    let mut client = Peer::client(server.address());
    let mut bytes = Vec::new();
    codec::encode(&Frame::Request(plain(1), b"payload"), &mut bytes);
    *bytes.last_mut().unwrap() ^= 1;
    client.send_bytes(&bytes);
    assert_eq!(goodbye(&mut client).0, GoodbyeReason::Protocol);
    assert_eq!(server.control().snapshot().copies.accepted, 0);
}

#[test]
fn a_request_before_the_hello_is_out_of_turn() {
    let server = Hands::default().serve();
    let mut stranger = raw(&server);
    stranger.send(&Frame::Request(plain(1), b""));
    assert_eq!(goodbye(&mut stranger).0, GoodbyeReason::Protocol);
}

#[test]
fn a_request_above_the_limit_is_refused_by_its_header() {
    let limits = Limits { request_bytes: 1000, ..Limits::default() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut client = Peer::client(server.address());
    let mut bytes = Vec::new();
    codec::encode(&Frame::Request(plain(1), &[0; 2000]), &mut bytes);
    client.send_bytes(&bytes[..64]);
    let (_, why) = goodbye(&mut client);
    // What it takes, and room for options.
    let limit = 1000 + options::MAX_LEN;
    assert!(why.contains(&format!("2000 bytes, more than the limit of {limit}")), "{why}");
}

#[test]
fn what_only_a_server_says_has_no_place_here() {
    let server = Hands::default().serve();
    let mut client = Peer::client(server.address());
    let attempt = plain(1).attempt;
    let ended = Ended { attempt, how: How::Shed, by: None, load: Load::default() };
    client.send(&Frame::Ended(ended));
    let (reason, why) = goodbye(&mut client);
    assert_eq!(reason, GoodbyeReason::Protocol);
    assert!(why.contains("a frame (ended)"), "{why}");
}

#[test]
fn a_request_in_another_clients_name_ends_the_connection() {
    let server = Hands::default().serve();
    let mut liar = Peer::client(server.address());
    let attempt = Attempt { client: ClientId(10), ..plain(1).attempt };
    liar.request(Request { attempt, ..plain(1) }, b"");
    let (reason, why) = goodbye(&mut liar);
    assert_eq!(reason, GoodbyeReason::Protocol);
    assert!(why.contains("another client"), "{why}");
    assert_eq!(server.control().snapshot().copies.accepted, 0);
}

#[test]
fn a_server_makes_no_calls() {
    let server = Hands::default().serve();
    let mut replica = FakeReplica::new(2).dial(server.address());
    replica.request(plain(1), b"");
    assert_eq!(goodbye(&mut replica).0, GoodbyeReason::Protocol);
}

/// One that has learned another's id says hello with it, and is first to use a name.
#[test]
fn who_knows_anothers_names_can_not_have_its_calls_refused() {
    let hands = Hands::default();
    let server = hands.serve();
    let mut thief = Peer::client(server.address());
    thief.request(calling(HOLD, 1), b"");
    hands.await_started(1);
    let mut client = Peer::client(server.address());
    client.request(plain(1), b"mine");
    assert_eq!(client.reply(), (plain(1).attempt, Status::Ok, b"mine".to_vec()));
    hands.open();
    assert_eq!(thief.reply().0, plain(1).attempt);
}

#[test]
fn who_never_says_hello_is_sent_away() {
    let link = LinkConfig { hello_timeout: Duration::from_millis(20), ..LinkConfig::default() };
    let server = Hands::default().serve_with(|builder| builder.link(link));
    let mut stranger = raw(&server);
    assert_eq!(goodbye(&mut stranger).0, GoodbyeReason::Silent);
    eventually("it is counted", || server.control().snapshot().connections.silent == 1);
    assert_eq!(server.control().snapshot().clients, 0);
}

/// And is not given the time that it had for its hello.
#[test]
fn who_falls_silent_is_sent_away() {
    let link = LinkConfig {
        ping_after: Duration::from_millis(10),
        dead_after: Duration::from_millis(40),
        hello_timeout: Duration::from_secs(3600),
    };
    let server = Hands::default().serve_with(|builder| builder.link(link));
    let client = Peer::client(server.address());
    // Nobody reads the pings, and nobody answers them.
    eventually("it is given up", || server.control().snapshot().connections.silent == 1);
    drop(client);
}

/// One that sends a byte now and then is no better than one that sends nothing: only whole frames
/// are a sign of life.
#[test]
fn who_never_ends_a_frame_is_sent_away() {
    let link = LinkConfig {
        ping_after: Duration::from_millis(10),
        dead_after: Duration::from_millis(40),
        ..LinkConfig::default()
    };
    let server = Hands::default().serve_with(|builder| builder.link(link));
    let mut client = Peer::client(server.address());
    let mut bytes = Vec::new();
    codec::encode(&Frame::Request(plain(1), &[0; 1 << 20]), &mut bytes);
    let mut rest = bytes.iter();
    eventually("it is given up", || {
        if let Some(byte) = rest.next() {
            client.try_send_bytes(&[*byte]);
        }
        server.control().snapshot().connections.silent == 1
    });
    assert_eq!(server.control().snapshot().copies.accepted, 0);
}

#[test]
fn who_does_not_read_its_replies_is_disconnected_at_the_bound() {
    let transfer_time = Duration::from_millis(100);
    let segments = Features::OPTIONS.with(Features::SEGMENTS);
    let limits = Limits { outgoing_bytes: 4 << 20, transfer_time, ..Limits::default() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut client = Peer::client_that(segments, server.address());
    let mut other = Peer::client(server.address());
    // More than the bound and the socket buffers of both sides hold together, and longer than any
    // reply was that the server knows of.
    client.request(calling(BLOW, 1), &(60_u32 << 20).to_le_bytes());
    eventually("it is cut off", || server.control().snapshot().connections.slow_readers == 1);
    other.request(plain(1), b"unharmed");
    assert_eq!(other.reply().2, b"unharmed");
    eventually("its copies are gone", || server.control().snapshot().copies.running == 0);
    assert!(server.control().snapshot().copies.reconcile());
}

/// Copies are held back for who does not read; what is answered as it comes is not.
#[test]
fn what_no_handler_answers_counts_for_the_bound_as_well() {
    let transfer_time = Duration::from_secs(3600);
    let limits = Limits { outgoing_bytes: 128 << 10, transfer_time, ..Limits::default() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut client = Peer::client(server.address());
    let mut requests = Vec::new();
    for seq in 1..=1000 {
        codec::encode(&Frame::Request(calling(Method(999), seq), b"?"), &mut requests);
    }
    eventually("it is cut off", || {
        client.try_send_bytes(&requests);
        server.control().snapshot().connections.slow_readers == 1
    });
}

#[test]
fn who_has_most_queued_is_disconnected_when_all_together_have_too_much() {
    let limits = Limits { outgoing_total: 4 << 20, outgoing_bytes: 1 << 30, ..Limits::default() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let segments = Features::OPTIONS.with(Features::SEGMENTS);
    let mut client = Peer::client_that(segments, server.address());
    let mut other = Peer::client(server.address());
    // More than the bound and the socket buffers of both sides hold together, and longer than any
    // reply was that the server knows of.
    client.request(calling(BLOW, 1), &(60_u32 << 20).to_le_bytes());
    eventually("it is cut off", || server.control().snapshot().connections.outgoing_full > 0);
    other.request(plain(1), b"unharmed");
    assert_eq!(other.reply().2, b"unharmed");
    eventually("it is gone", || server.control().snapshot().clients == 1);
}

#[test]
fn who_reads_may_have_more_waiting_than_who_does_not() {
    let limits = Limits { outgoing_total: 64 << 20, outgoing_bytes: 1 << 30, ..Limits::default() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let segments = Features::OPTIONS.with(Features::SEGMENTS);
    let [mut leaves, mut reads] = [(); 2].map(|()| Peer::client_that(segments, server.address()));
    // They get more than anybody could foresee, or they would be made to wait.
    for seq in 3..43 {
        reads.request(calling(BLOW, seq), &4_u32.to_le_bytes());
        reads.reply();
    }
    leaves.request(calling(BLOW, 1), &(40_u32 << 20).to_le_bytes());
    assert!(matches!(leaves.next(), Came::Opening(..)));
    // What came this moment counts as kept for a second: less than what is left for longer.
    let begun = Instant::now();
    eventually("time passes", || begun.elapsed() > Duration::from_millis(1_500));
    reads.request(plain(1), b"");
    reads.reply();
    reads.request(calling(BLOW, 2), &(60_u32 << 20).to_le_bytes());
    let mut missing = 60 << 20;
    while missing > 0 {
        missing -= match reads.next() {
            Came::Opening(_, _, length) | Came::Segment(_, _, length) => length,
            other => panic!("{other:?}, and {missing} bytes are missing"),
        };
    }
    eventually("the other is gone", || server.control().snapshot().clients == 1);
    let connections = server.control().snapshot().connections;
    assert_eq!((connections.outgoing_full, connections.slow_readers), (1, 0));
}

/// However long that little has waited: to cut such a client off would make no room.
#[test]
fn who_floods_goes_rather_than_who_has_little_waiting() {
    let limits = Limits { outgoing_total: 64 << 20, outgoing_bytes: 1 << 30, ..Limits::default() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let segments = Features::OPTIONS.with(Features::SEGMENTS);
    let [mut slow, mut floods] = [(); 2].map(|()| Peer::client_that(segments, server.address()));
    slow.request(calling(BLOW, 1), &(15_u32 << 20).to_le_bytes());
    let Came::Opening(_, _, mut came) = slow.next() else { panic!("no reply") };
    let begun = Instant::now();
    eventually("time passes", || begun.elapsed() > Duration::from_millis(2));
    for seq in 2..=5 {
        floods.try_request(calling(BLOW, seq), &(60_u32 << 20).to_le_bytes());
    }
    eventually("it is gone", || server.control().snapshot().clients == 1);
    while came < 15 << 20 {
        came += match slow.next() {
            Came::Segment(_, _, length) => length,
            other => panic!("{other:?} after {came} bytes"),
        };
    }
    assert_eq!(server.control().snapshot().connections.outgoing_full, 1);
}

#[test]
fn one_address_has_so_many_connections_and_no_more() {
    let limits = Limits { connections_per_address: 2, ..Limits::default() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let (first, _second) = (Peer::client(server.address()), Peer::client(server.address()));
    let (reason, why) = goodbye(&mut raw(&server));
    assert_eq!(reason, GoodbyeReason::Stranger);
    assert!(why.contains("this address has as many"), "{why}");
    assert_eq!(server.control().snapshot().connections.turned_away_by_address, 1);
    drop(first);
    eventually("there is room again", || server.control().snapshot().clients == 1);
    drop(Peer::client(server.address()));
}

#[test]
fn sockets_that_were_told_goodbye_are_held_open_only_so_many_at_a_time() {
    let server = Hands::default().serve();
    let mut held = Vec::new();
    eventually("one is cut off", || {
        let mut stranger = raw(&server);
        stranger.send_bytes(&[b'G'; 64]);
        held.push(stranger);
        server.control().snapshot().connections.not_seen_off > 0
    });
    assert!(held.len() > 64);
    let mut client = Peer::client(server.address());
    client.request(plain(1), b"on");
    assert_eq!(client.reply().2, b"on");
}

/// It has not read the server's hello, so that its kernel closes with a reset, when the server has
/// read what it sent.
#[test]
fn a_reset_in_the_middle_of_a_frame_leaves_nothing_behind() {
    let server = Hands::default().serve();
    let mut bytes = Vec::new();
    codec::encode(&Frame::Hello(Hello::client(CLIENT)), &mut bytes);
    codec::encode(&Frame::Request(plain(1), &[0; 1000]), &mut bytes);
    let received = || server.control().collect()[0].runtime.bytes_received;
    let mut sent = 0;
    for cut in [10, bytes.len() - 900, bytes.len() - 1] {
        let mut stranger = raw(&server);
        stranger.send_bytes(&bytes[..cut]);
        sent += cut as u64;
        eventually("all that was sent has been read", || received() == sent);
        stranger.await_unread();
        drop(stranger);
    }
    eventually("all are gone", || {
        let snapshot = server.control().snapshot();
        snapshot.clients == 0 && snapshot.connections.closed == 3
    });
    assert_eq!(server.control().snapshot().copies.accepted, 0);
    let mut client = Peer::client(server.address());
    client.request(plain(1), b"on");
    assert_eq!(client.reply().2, b"on");
}

#[test]
fn connections_beyond_the_limit_are_turned_away_with_a_sentence() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let first = Peer::client(server.address());
    let _second = Peer::client(server.address());
    let mut third = raw(&server);
    let (reason, why) = goodbye(&mut third);
    assert_eq!(reason, GoodbyeReason::Stranger);
    assert!(why.contains("as many connections"), "{why}");
    drop(first);
    eventually("there is room again", || server.control().snapshot().clients == 1);
    let mut fourth = Peer::client(server.address());
    fourth.request(plain(1), b"welcome");
    assert_eq!(fourth.reply().2, b"welcome");
}

#[test]
fn a_second_hello_is_out_of_turn() {
    let server = Hands::default().serve();
    let mut client = Peer::client(server.address());
    client.send(&Frame::Hello(Hello::client(CLIENT)));
    assert_eq!(goodbye(&mut client).0, GoodbyeReason::Protocol);
}

#[test]
fn a_ping_is_answered_while_handlers_run() {
    let hands = Hands::default();
    let server = hands.serve();
    let mut client = Peer::client(server.address());
    client.request(calling(HOLD, 1), b"");
    hands.await_started(1);
    client.ping(77);
    assert_eq!(server.control().snapshot().copies.running, 1);
    hands.open();
    assert_eq!(client.reply().0, plain(1).attempt);
}

/// Ten thousand connections' worth of noise: whatever comes, the server stays up and forgets it.
#[test]
fn noise_leaves_nothing_behind() {
    let server = Hands::default().serve();
    let mut frame = Vec::new();
    codec::encode(&Frame::Hello(Hello::client(CLIENT)), &mut frame);
    codec::encode(&Frame::Request(plain(1), b"some payload"), &mut frame);
    let mut random = 1_u64;
    for _ in 0..300 {
        let mut bytes = frame.clone();
        for _ in 0..3 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (random >> 33) as usize % bytes.len();
            bytes[at] ^= (random >> 20) as u8;
        }
        bytes.truncate(bytes.len() - (random >> 40) as usize % 50);
        let mut stranger = raw(&server);
        stranger.send_bytes(&bytes);
    }
    eventually("all are gone", || {
        let snapshot = server.control().snapshot();
        snapshot.clients == 0 && snapshot.connections.closed >= 300
    });
    let copies = server.control().snapshot().copies;
    assert!(copies.reconcile() && copies.queued + copies.running == 0);
}
