//! What clients may have under way: granted, given back when its end is written, and kept to.

use bowline_protocol::{Credit, Features, GoodbyeReason};
use bowline_server::io::Limits;

use crate::eventually;
use crate::peer::{Came, Peer, calling, plain};
use crate::service::{BLOW, HOLD, Hands};

const WINDOW: Credit = Credit { requests: 4, bytes: 2 << 20 };

fn limits() -> Limits {
    Limits { credit: WINDOW, ..Limits::default() }
}

#[test]
fn a_client_that_ignores_its_credit_is_disconnected_with_a_reason_and_counted() {
    let hands = Hands::default();
    let server = hands.serve_with(|builder| builder.limits(limits()));
    let mut client = Peer::client_that(Features::CREDIT, server.address());
    assert_eq!(client.ack.unwrap().grant, Some(WINDOW));
    for seq in 1..=5 {
        client.request(calling(HOLD, seq), b"");
    }
    let Came::Goodbye(reason, why) = client.next() else { panic!("it was let through") };
    assert_eq!(reason, GoodbyeReason::Credit);
    assert!(why.contains("request 5 came, and only 4 were granted"), "{why}");
    eventually("it is counted", || server.control().snapshot().connections.credit_exceeded == 1);
    hands.open();
}

#[test]
fn bytes_are_granted_as_requests_are() {
    let server = Hands::default().serve_with(|builder| builder.limits(limits()));
    let mut client = Peer::client_that(Features::CREDIT, server.address());
    for seq in 1..=3 {
        client.request(calling(HOLD, seq), &vec![0; 1_000_000]);
    }
    let Came::Goodbye(reason, why) = client.next() else { panic!("it was let through") };
    assert_eq!(reason, GoodbyeReason::Credit);
    assert!(why.contains("3000000 bytes"), "{why}");
}

#[test]
fn credit_comes_back_with_what_ends_requests() {
    let server = Hands::default().serve_with(|builder| builder.limits(limits()));
    let mut client = Peer::client_that(Features::CREDIT, server.address());
    for seq in 1..=4 {
        client.request(plain(seq), &[7; 100]);
    }
    let (mut replies, mut granted) = (0, WINDOW);
    // What is less than half of the window is not granted yet: so one may be left, if three ended first.
    while replies < 4 || granted.requests < 7 {
        match client.next() {
            Came::Reply(..) => replies += 1,
            Came::Credit(credit) => granted = credit,
            other => panic!("{other:?}"),
        }
    }
    let ended = granted.requests - WINDOW.requests;
    assert_eq!(granted.bytes, WINDOW.bytes + 100 * ended);
}

#[test]
fn who_does_not_read_runs_dry_and_what_it_holds_is_bounded_by_its_credit() {
    let limits = Limits { outgoing_bytes: 128 << 20, ..limits() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let features = Features::CREDIT.with(Features::OPTIONS).with(Features::SEGMENTS);
    let mut client = Peer::client_that(features, server.address());
    for seq in 1..=4 {
        client.request(calling(BLOW, seq), &(16_u32 << 20).to_le_bytes());
    }
    // Nothing is granted before half of them are read, and it is not cut off either: four replies are
    // all that it can ever have waiting.
    let mut came = 0;
    loop {
        match client.next() {
            Came::Opening(_, _, first) => came += first,
            Came::Segment(_, _, length) => came += length,
            Came::Credit(_) => break,
            other => panic!("{other:?} before its replies were read"),
        }
    }
    assert!(came >= 32 << 20, "credit came after {came} bytes, and not with the end of replies");
}

#[test]
fn a_client_that_does_not_count_is_granted_nothing_and_bound_to_nothing() {
    let server = Hands::default().serve_with(|builder| builder.limits(limits()));
    let mut client = Peer::client(server.address());
    assert_eq!(client.ack.unwrap().grant, None);
    for seq in 1..=20 {
        client.request(plain(seq), b"on");
    }
    (0..20).for_each(|_| assert_eq!(client.reply().2, b"on"));
}
