//! Beside peers that mean harm others are served, and what those cost has a bound.

use bowline_protocol::{Features, Frame, OptionSet, Request, codec};
use bowline_server::io::{Limits, Running};

use crate::eventually;
use crate::peer::{Peer, calling, plain};
use crate::service::{BLOW, Hands, WEIGH};

const MIB: i64 = 1 << 20;

/// A client that wants little, and weighs what the server's thread holds.
struct Beside {
    client: Peer,
    next: u64,
    /// What was held before anybody else came.
    before: i64,
}

impl Beside {
    fn new(server: &Running) -> Beside {
        let mut beside = Beside { client: Peer::client(server.address()), next: 0, before: 0 };
        beside.before = beside.growth();
        beside
    }

    /// Is served, and hears how many bytes more are held.
    fn growth(&mut self) -> i64 {
        self.next += 1;
        self.client.request(calling(WEIGH, self.next), b"");
        let (_, _, held) = self.client.reply();
        i64::from_le_bytes(held.try_into().unwrap()) - self.before
    }
}

/// They announce as much as may be, send some of it, and then a byte now and then.
#[test]
fn requests_that_never_end_hold_nobody_up_and_cost_what_came_of_them() {
    const EACH: i64 = 16;
    // None of them is given up for its slowness, however slow the machine is.
    let patience = crate::PATIENCE;
    let limits = Limits { stall_time: patience, transfer_time: patience, ..Limits::default() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut beside = Beside::new(&server);
    let segments = Features::OPTIONS.with(Features::SEGMENTS);
    let (mut framed, mut opened) = (Vec::new(), Vec::new());
    let payload = vec![0; MIB as usize];
    codec::encode(&Frame::Request(plain(1), &payload), &mut framed);
    let opening = OptionSet::NONE.opening(MIB as u32);
    let request = Request { remaining: crate::PATIENCE, ..plain(1) };
    codec::encode(&Frame::RequestWith(request, opening.as_options(), &[0; 1000]), &mut opened);
    codec::encode(&Frame::Request(plain(2), &payload), &mut opened);
    let mut slow: Vec<(Peer, &[u8])> = [&framed, &opened]
        .into_iter()
        .flat_map(|bytes| (0..EACH).map(move |_| bytes))
        .map(|bytes| (Peer::client_that(segments, server.address()), &bytes[..]))
        .collect();
    for round in 0..100 {
        for (peer, rest) in &mut slow {
            let (now, later) = rest.split_at(if round == 0 { 1_500 } else { 1 });
            peer.send_bytes(now);
            *rest = later;
        }
        let growth = beside.growth();
        assert!(growth < EACH * MIB / 4, "{growth} bytes, {} were announced", 3 * EACH * MIB);
    }
    let snapshot = server.control().snapshot();
    assert_eq!((snapshot.clients, snapshot.assembling as i64), (1 + 2 * EACH as usize, EACH * MIB));
    assert_eq!(snapshot.copies.accepted, beside.next);
}

#[test]
fn replies_that_are_not_read_hold_nobody_up_and_cost_no_more_than_may_wait() {
    let limits = Limits { outgoing_total: 4 << 20, outgoing_bytes: 1 << 30, ..Limits::default() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut beside = Beside::new(&server);
    let mut client = Peer::client(server.address());
    for seq in 1..=64 {
        client.try_request(calling(BLOW, seq), &(1_u32 << 20).to_le_bytes());
        let growth = beside.growth();
        // It is looked how much waits once a millisecond, in which some more may come.
        assert!(growth <= 16 * MIB, "{growth} bytes after {seq} replies");
    }
    drop(client);
    eventually("nothing of it is left", || beside.growth() < MIB);
}
