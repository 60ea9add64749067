//! Many clients whose replies wait: who reads is made to wait, and who doesn't goes.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use bowline_protocol::{Features, Frame, Key, OptionSet, Request};
use bowline_server::io::Limits;

use crate::peer::{Came, Peer, calling};
use crate::service::{BLOW, Hands};
use crate::{PATIENCE, eventually};

const SEGMENTS: Features = Features::OPTIONS.with(Features::SEGMENTS);
/// How long each reply is.
const REPLY: usize = 1 << 20;
/// So many of them are more than the kernel keeps of one connection.
const MANY: u64 = 16;

/// One that has asked for so many replies.
fn asking(server: SocketAddr, replies: u64) -> Peer {
    let mut client = Peer::client_that(SEGMENTS, server);
    for seq in 1..=replies {
        let request = Request { remaining: 10 * PATIENCE, ..calling(BLOW, seq) };
        client.request(request, &(REPLY as u32).to_le_bytes());
    }
    client
}

/// Reads so many replies.
fn read(client: &mut Peer, replies: u64) {
    let mut missing = replies as usize * REPLY;
    while missing > 0 {
        missing -= match client.next() {
            Came::Opening(_, _, length) | Came::Segment(_, _, length) => length,
            other => panic!("{other:?}, and {missing} bytes are missing"),
        };
    }
}

#[test]
fn many_who_read_get_all_they_asked_for_though_it_is_more_than_may_wait() {
    let limits = Limits {
        outgoing_bytes: 4 << 20,
        outgoing_total: 8 << 20,
        transfer_time: PATIENCE,
        ..Limits::default()
    };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    // From now on it is known how long the replies are.
    read(&mut asking(server.address(), 1), 1);
    let mut clients: Vec<_> = (0..12).map(|_| asking(server.address(), MANY)).collect();
    let copies = || server.control().snapshot().copies;
    eventually("copies are held back", || copies().held > 0 && copies().running == 0);
    let waits = copies();
    assert!(waits.queued > 0 && waits.reconcile(), "{waits:#?}");
    thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| read(client, MANY));
        }
    });
    let snapshot = server.control().snapshot();
    let connections = snapshot.connections;
    assert_eq!((connections.outgoing_full, connections.slow_readers), (0, 0));
    assert_eq!((snapshot.clients, snapshot.copies.replied), (12, 1 + 12 * MANY));
    assert!(!server.control().histograms().unwrap().held.is_empty());
}

#[test]
fn who_does_not_read_at_all_goes_once_others_have_no_room_and_they_go_on() {
    let limits = Limits {
        outgoing_bytes: 1 << 30,
        outgoing_total: 8 << 20,
        transfer_time: Duration::from_secs(2),
        ..Limits::default()
    };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    // From now on it is known how long the replies are: so no more than may wait ever does.
    read(&mut asking(server.address(), 1), 1);
    let mut hoarders: Vec<_> = (0..12).map(|_| asking(server.address(), MANY)).collect();
    let connections = || server.control().snapshot().connections;
    eventually("some of them go", || {
        let copies = server.control().snapshot().copies;
        // All of them have had their share, by chance, and nobody waits for room: one more does.
        if copies.running == 0 && copies.queued == copies.held {
            hoarders.push(asking(server.address(), MANY));
        }
        connections().outgoing_full > 0
    });
    read(&mut asking(server.address(), 1), 1);
    assert!(server.control().snapshot().copies.holds_of_all > 0);
    assert_eq!(connections().slow_readers, 0);
}

/// Asks for a reply under a key.
fn ask_by_key(client: &mut Peer, key: u64) {
    let options = Some(Key { id: key.into(), fingerprint: 1 });
    let options = OptionSet { key: options, ..OptionSet::NONE }.to_bytes();
    let request = Request { remaining: 10 * PATIENCE, ..calling(BLOW, key) };
    let size = (REPLY as u32).to_le_bytes();
    client.send(&Frame::RequestWith(request, options.as_options(), &size));
}

#[test]
fn who_asks_by_key_for_what_was_answered_and_does_not_read_has_nobody_cut_off() {
    const KEYS: u64 = 12;
    let limits = Limits {
        outgoing_bytes: 4 << 20,
        outgoing_total: 8 << 20,
        transfer_time: 10 * PATIENCE,
        ..Limits::default()
    };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut reads = Peer::client_that(SEGMENTS, server.address());
    let mut ask = |seq| {
        reads.request(calling(BLOW, seq), &30_000_u32.to_le_bytes());
        assert_eq!(reads.reply().2.len(), 30_000);
    };
    ask(1);
    let mut first = Peer::client_that(SEGMENTS, server.address());
    for key in 1..=KEYS {
        ask_by_key(&mut first, key);
        read(&mut first, 1);
    }
    let mut hoarders = [(); 12].map(|()| Peer::client_that(SEGMENTS, server.address()));
    for hoarder in &mut hoarders {
        (1..=KEYS).for_each(|key| ask_by_key(hoarder, key));
    }
    let copies = || server.control().snapshot().copies;
    eventually("they are held back", || {
        let copies = copies();
        copies.held > 0 && copies.replied_by_key + copies.queued == 12 * KEYS
    });
    (2..=100).for_each(&mut ask);
    let connections = server.control().snapshot().connections;
    assert_eq!((connections.outgoing_full, connections.slow_readers), (0, 0));
    thread::scope(|scope| {
        for hoarder in &mut hoarders {
            scope.spawn(|| read(hoarder, KEYS));
        }
    });
    assert_eq!((copies().replied_by_key, copies().started), (12 * KEYS, 100 + KEYS));
}
