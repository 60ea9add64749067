//! Large payloads, by clients that don't go on to the end, don't read, or send more than may be.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bowline_protocol::{
    Attempt, Cancel, CancelReason, Features, Frame, GoodbyeReason, How, OptionSet, PayloadOf,
    Request, Segment, Status, Takes, Tie, Twin,
};
use bowline_server::io::{Limits, Running};

use crate::peer::{Came, Peer, calling, plain, station};
use crate::service::{BLOW, ECHO, Hands};
use crate::{PATIENCE, eventually};

const SEGMENTS: Features = Features::OPTIONS.with(Features::SEGMENTS);

fn client(server: SocketAddr) -> Peer {
    Peer::client_that(SEGMENTS, server)
}

/// Who stands still for a while, as tests do on a slow machine, has not stalled.
fn limits() -> Limits {
    Limits { stall_time: PATIENCE, transfer_time: PATIENCE, ..Limits::default() }
}

/// Opens a request of `total` bytes with the first thousand of them.
fn open(client: &mut Peer, request: Request, total: u32) {
    let options = OptionSet::NONE.opening(total);
    client.send(&Frame::RequestWith(request, options.as_options(), &[1; 1000]));
}

/// Sends the rest of it.
fn go_on(client: &mut Peer, attempt: Attempt, total: u32) {
    let mut offset = 1000;
    while offset < total {
        let bytes = vec![1; (total - offset).min(50_000) as usize];
        client.send(&Frame::Segment(Segment { attempt, of: PayloadOf::Request, offset }, &bytes));
        offset += bytes.len() as u32;
    }
}

fn caller_done(attempt: Attempt) -> Frame<'static> {
    let (reason, lifetime) = (CancelReason::CallerDone, Duration::ZERO);
    Frame::Cancel(Cancel { attempt, reason, lifetime })
}

/// All frames until an echo that is sent now comes back: nothing that belongs before it is left.
fn until_echo(client: &mut Peer) -> Vec<Came> {
    client.request(calling(ECHO, 1 << 20), b"echo");
    let mut before = Vec::new();
    loop {
        match client.next() {
            Came::Reply(reply, _) if reply.attempt.seq.0 == 1 << 20 => return before,
            Came::Closed => panic!("closed after {before:?}"),
            other => before.push(other),
        }
    }
}

fn no_room(server: &Running) -> u64 {
    server.control().snapshot().connections.requests_no_room
}

#[test]
fn a_reply_that_is_cut_on_its_way_ends_with_one_terminal_frame_and_frees_the_connection() {
    let server = Hands::default().serve();
    let mut client = client(server.address());
    let request = calling(BLOW, 1);
    client.request(request, &(64_u32 << 20).to_le_bytes());
    // As it reads nothing yet, most of the reply can't have left.
    let Came::Opening(reply, total, first) = client.next() else { panic!("no reply") };
    assert_eq!((reply.attempt, total), (request.attempt, 64 << 20));
    client.send(&caller_done(request.attempt));
    let mut came = first;
    let ended = loop {
        match client.next() {
            Came::Segment(attempt, offset, length) => {
                assert_eq!((attempt, offset as usize), (request.attempt, came));
                came += length;
            }
            Came::Ended(ended) => break ended,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((ended.attempt, ended.how), (request.attempt, How::Aborted));
    assert!(came < 64 << 20, "it was cut");
    assert_eq!(until_echo(&mut client), [], "nothing comes after its end");
    let snapshot = server.control().snapshot();
    assert_eq!(snapshot.connections.replies_cut, 1);
    assert_eq!(snapshot.copies.cancels_on_the_way, 1);
}

#[test]
fn a_cancel_for_a_reply_that_has_left_changes_nothing() {
    let server = Hands::default().serve();
    let mut client = client(server.address());
    client.request(calling(BLOW, 1), &100_000_u32.to_le_bytes());
    let mut came = 0;
    while came < 100_000 {
        came += match client.next() {
            Came::Opening(_, _, length) | Came::Segment(_, _, length) => length,
            other => panic!("{other:?}"),
        };
    }
    client.send(&caller_done(plain(1).attempt));
    assert_eq!(until_echo(&mut client), []);
}

#[test]
fn a_request_that_is_taken_back_on_its_way_is_withdrawn_and_the_rest_of_it_skipped() {
    let server = Hands::default().serve();
    let mut client = client(server.address());
    open(&mut client, plain(1), 1 << 20);
    client.send(&caller_done(plain(1).attempt));
    let ended = client.ended();
    assert_eq!((ended.attempt, ended.how, ended.by), (plain(1).attempt, How::Withdrawn, None));
    go_on(&mut client, plain(1).attempt, 1 << 20);
    assert_eq!(until_echo(&mut client), []);
    let snapshot = server.control().snapshot();
    assert_eq!(snapshot.connections.requests_withdrawn, 1);
    assert_eq!((snapshot.copies.cancels_on_the_way, snapshot.copies.cancels_late), (1, 0));
    assert!(snapshot.copies.reconcile());
}

#[test]
fn a_request_on_its_way_is_withdrawn_by_its_own_twin_only() {
    let server = Hands::default().serve();
    let mut client = client(server.address());
    let twin = |n| Twin { station: station(2), n };
    let tie = Some(Tie { twin: twin(1), window: Duration::from_millis(10) });
    let request = Request { tie, ..plain(1) };
    let started = |by| {
        let reason = CancelReason::TwinStarted { by };
        Frame::Cancel(Cancel { attempt: request.attempt, reason, lifetime: Duration::ZERO })
    };
    open(&mut client, request, 1 << 20);
    client.send(&started(twin(9)));
    assert_eq!(until_echo(&mut client), [], "that is not its twin");
    client.send(&started(twin(1)));
    let ended = client.ended();
    assert_eq!((ended.how, ended.by), (How::Withdrawn, Some(1)));
}

#[test]
fn what_the_budget_has_no_room_for_is_refused_and_what_it_has_goes_on() {
    let limits = Limits { assembly_bytes: 1 << 20, ..limits() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let (mut first, mut second) = (client(server.address()), client(server.address()));
    open(&mut first, plain(1), 700_000);
    assert_eq!(until_echo(&mut first), [], "it is on its way");
    // The budget is one for all connections.
    open(&mut second, plain(2), 700_000);
    let Came::Overloaded(refusal) = second.next() else { panic!("there was room") };
    assert_eq!(refusal.attempt, plain(2).attempt);
    assert!(refusal.retry_after > Duration::ZERO);
    go_on(&mut second, plain(2).attempt, 700_000);
    assert_eq!((until_echo(&mut second), no_room(&server)), (vec![], 1));
    go_on(&mut first, plain(1).attempt, 700_000);
    let mut came = 0;
    while came < 700_000 {
        came += match first.next() {
            Came::Opening(_, 700_000, length) | Came::Segment(_, _, length) => length,
            other => panic!("{other:?}"),
        };
    }
    open(&mut second, plain(3), 700_000);
    assert_eq!(until_echo(&mut second), [], "there is room again");
}

#[test]
fn one_connection_has_half_of_the_room_and_leaves_the_rest_to_others() {
    let limits = Limits { assembly_bytes: 4 << 20, ..limits() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let (mut greedy, mut other) = (client(server.address()), client(server.address()));
    for seq in 1..=4 {
        open(&mut greedy, plain(seq), 1 << 20);
    }
    for seq in 3..=4 {
        let Came::Overloaded(refusal) = greedy.next() else { panic!("it has all of it") };
        assert_eq!(refusal.attempt, plain(seq).attempt);
    }
    open(&mut other, plain(1), 1 << 20);
    assert_eq!((until_echo(&mut other), no_room(&server)), (vec![], 2));
}

/// Whoever takes back what it began, and begins anew at once, leaves no gap that others could find.
#[test]
fn who_has_most_on_its_way_gives_way_to_who_has_less_and_never_the_other_way_round() {
    let limits = Limits { assembly_bytes: 4 << 20, ..limits() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut greedy = [(); 2].map(|()| client(server.address()));
    let mut other = client(server.address());
    for client in &mut greedy {
        (1..=2).for_each(|seq| open(client, plain(seq), 1 << 20));
        assert_eq!(until_echo(client), [], "they have all of it");
    }
    open(&mut other, plain(1), 1 << 20);
    assert_eq!(until_echo(&mut other), []);
    let mut shed = greedy.each_mut().map(until_echo);
    shed.sort_by_key(Vec::len);
    let [kept, shed] = shed;
    let [Came::Ended(ended)] = &shed[..] else { panic!("{shed:?}") };
    assert_eq!((kept, ended.attempt, ended.how), (vec![], plain(2).attempt, How::Shed));
    // Who had to give way has as much as the other now, and who has more gives no other way than that.
    for client in &mut greedy {
        open(client, plain(3), 1 << 20);
        assert!(matches!(until_echo(client)[..], [Came::Overloaded(_)]));
    }
    let attempt = plain(1).attempt;
    go_on(&mut other, attempt, 1 << 20);
    assert!(matches!(other.next(), Came::Opening(reply, ..) if reply.attempt == attempt));
    assert_eq!(server.control().snapshot().connections.requests_displaced, 1);
}

/// Or it would never come through, however often its client tries: something smaller is always next.
#[test]
fn a_large_request_that_is_alone_on_its_connection_comes_through_beside_small_ones() {
    let limits = Limits { assembly_bytes: 1 << 20, ..limits() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let (mut large, mut small) = (client(server.address()), client(server.address()));
    let mut same = client(server.address());
    open(&mut large, plain(1), 1 << 20);
    assert_eq!(until_echo(&mut large), [], "it has all of the room");
    open(&mut same, plain(1), 1 << 19);
    assert!(matches!(until_echo(&mut same)[..], [Came::Overloaded(_)]), "it is to ask again");
    // Some room is kept for small ones, also for those that come behind the large one.
    open(&mut small, plain(1), 60_000);
    assert_eq!(until_echo(&mut small), []);
    go_on(&mut small, plain(1).attempt, 60_000);
    let Came::Opening(reply, ..) = small.next() else { panic!("no echo of the small one") };
    assert_eq!(reply.attempt, plain(1).attempt);
    open(&mut large, plain(2), 60_000);
    assert_eq!(until_echo(&mut large), []);
    go_on(&mut large, plain(1).attempt, 1 << 20);
    let Came::Opening(reply, ..) = large.next() else { panic!("no echo of the large one") };
    assert_eq!(reply.attempt, plain(1).attempt);
    assert_eq!(server.control().snapshot().connections.requests_displaced, 0);
}

/// However long it says that it has: pongs go on, and that is all.
#[test]
fn requests_that_their_client_stops_sending_are_shed_and_leave_their_room() {
    let stall_time = Duration::from_millis(100);
    let limits = Limits { assembly_bytes: 1 << 20, stall_time, ..limits() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut client = client(server.address());
    let request = Request { remaining: Duration::from_nanos(u64::MAX), ..plain(1) };
    open(&mut client, request, 1 << 20);
    let mut came = Vec::new();
    eventually("it is shed", || {
        came.extend(until_echo(&mut client));
        !came.is_empty()
    });
    let [Came::Ended(ended)] = &came[..] else { panic!("{came:?}") };
    assert_eq!((ended.attempt, ended.how), (request.attempt, How::Shed));
    assert_eq!(server.control().snapshot().connections.requests_stalled, 1);
    open(&mut client, plain(2), 1 << 20);
    assert_eq!((until_echo(&mut client), no_room(&server)), (vec![], 0));
}

/// Each byte is a sign that it is still at it; but a budget is not to be held by that.
#[test]
fn who_sends_a_byte_at_a_time_gives_way_to_one_that_needs_the_room() {
    eventually("no test that stands still itself is in the way", slow_one_gives_way);
}

/// False if the slow one stalled, as its test stood still.
fn slow_one_gives_way() -> bool {
    // What it sends is a part now and then: it does not stall, but it would take hours.
    let (stall_time, transfer_time) = (Duration::from_secs(3), Duration::from_secs(4));
    let limits = Limits { assembly_bytes: 1 << 20, stall_time, transfer_time, ..limits() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let (mut slow, mut other) = (client(server.address()), client(server.address()));
    let request = Request { remaining: Duration::from_secs(3600), ..plain(1) };
    open(&mut slow, request, 1 << 20);
    let (mut offset, mut came) = (1000, until_echo(&mut slow));
    eventually("it gives way", || {
        let segment = Segment { attempt: request.attempt, of: PayloadOf::Request, offset };
        slow.send(&Frame::Segment(segment, b"x"));
        offset += 1;
        came.extend(until_echo(&mut slow));
        open(&mut other, plain(u64::from(offset)), 1 << 20);
        until_echo(&mut other).is_empty()
    });
    came.extend(until_echo(&mut slow));
    let [Came::Ended(ended)] = &came[..] else { panic!("{came:?}") };
    assert_eq!((ended.attempt, ended.how), (request.attempt, How::Shed));
    let counted = server.control().snapshot().connections;
    assert_eq!(counted.requests_slow + counted.requests_stalled, 1);
    counted.requests_slow == 1
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_request_leaves_its_room_to_others() {
    let limits = Limits { assembly_bytes: 1 << 20, ..limits() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut first = client(server.address());
    open(&mut first, plain(1), 700_000);
    until_echo(&mut first);
    drop(first);
    eventually("it is gone", || server.control().snapshot().clients == 0);
    let mut second = client(server.address());
    open(&mut second, plain(1), 700_000);
    assert_eq!((until_echo(&mut second), no_room(&server)), (vec![], 0));
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_reply_harms_nobody() {
    let server = Hands::default().serve();
    let mut first = client(server.address());
    first.request(calling(BLOW, 1), &(32_u32 << 20).to_le_bytes());
    assert!(matches!(first.next(), Came::Opening(..)));
    drop(first);
    eventually("it is gone", || server.control().snapshot().clients == 0);
    let mut second = client(server.address());
    assert_eq!(until_echo(&mut second), []);
    assert!(server.control().snapshot().copies.reconcile());
}

#[test]
fn a_request_whose_deadline_passes_on_its_way_is_shed() {
    let server = Hands::default().serve();
    let mut client = client(server.address());
    let request = Request { remaining: Duration::from_millis(5), ..plain(1) };
    open(&mut client, request, 1 << 20);
    let ended = client.ended();
    assert_eq!((ended.attempt, ended.how), (request.attempt, How::Shed));
    assert_eq!(server.control().snapshot().connections.requests_late, 1);
}

#[test]
fn who_does_not_read_its_large_replies_is_cut_off_though_it_goes_on_to_speak() {
    let transfer_time = Duration::from_millis(300);
    let limits = Limits { outgoing_bytes: 20 << 20, transfer_time, ..limits() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut client = client(server.address());
    // Longer than any reply was that the server knows of: else it would be held back.
    client.request(calling(BLOW, 1), &(60_u32 << 20).to_le_bytes());
    let mut spoken = Instant::now();
    eventually("it is cut off", || {
        if spoken.elapsed() > Duration::from_millis(20) {
            spoken = Instant::now();
            client.try_request(plain(100), b"it lives");
        }
        server.control().snapshot().connections.slow_readers == 1
    });
    assert_eq!(server.control().snapshot().connections.silent, 0);
    eventually("its copies are gone", || server.control().snapshot().copies.running == 0);
    assert!(server.control().snapshot().copies.reconcile());
}

#[test]
fn who_reads_may_ask_for_more_at_once_than_may_wait_for_who_does_not() {
    let limits = Limits { outgoing_bytes: 1 << 20, ..limits() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut client = client(server.address());
    for seq in 1..=24 {
        client.request(calling(BLOW, seq), &(4_u32 << 20).to_le_bytes());
    }
    let mut missing = 24 * (4_usize << 20);
    while missing > 0 {
        missing -= match client.next() {
            Came::Opening(_, _, length) | Came::Segment(_, _, length) => length,
            other => panic!("{other:?}, and {missing} bytes are missing"),
        };
    }
    assert_eq!(server.control().snapshot().connections.slow_readers, 0);
}

/// The bound is for who does not read, and one that knows no segments may read as well as others.
#[test]
fn who_understands_no_segments_may_ask_for_more_at_once_than_may_wait_too() {
    let limits = Limits { outgoing_bytes: 128 << 10, ..limits() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut client = Peer::client_that(Features::OPTIONS, server.address());
    for seq in 1..=24 {
        client.request(calling(BLOW, seq), &1_000_000_u32.to_le_bytes());
    }
    for _ in 1..=24 {
        let (_, status, payload) = client.reply();
        assert_eq!((status, payload.len()), (Status::Ok, 1_000_000));
    }
    assert_eq!(server.control().snapshot().connections.slow_readers, 0);
}

#[test]
fn segments_that_do_not_follow_end_the_connection_by_name() {
    let server = Hands::default().serve();
    let mut client = client(server.address());
    open(&mut client, plain(1), 1 << 20);
    let segment = Segment { attempt: plain(1).attempt, of: PayloadOf::Request, offset: 999 };
    client.send(&Frame::Segment(segment, b"x"));
    let Came::Goodbye(reason, why) = client.next() else { panic!("it was taken") };
    assert_eq!(reason, GoodbyeReason::Protocol);
    assert!(why.contains("begins at 999 and should at 1000"), "{why}");
}

#[test]
fn a_server_that_drains_sends_replies_that_are_on_their_way_to_their_end() {
    let server = Hands::default().serve();
    let mut client = client(server.address());
    client.request(calling(BLOW, 1), &(16_u32 << 20).to_le_bytes());
    let Came::Opening(_, _, mut came) = client.next() else { panic!("no reply") };
    server.control().shut_down(PATIENCE);
    loop {
        match client.next() {
            Came::Segment(_, _, length) => came += length,
            Came::Goodbye(reason, _) => {
                assert_eq!((reason, came), (GoodbyeReason::Leaving, 16 << 20));
                return;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_server_whose_time_to_drain_is_up_ends_though_a_slow_reader_reads_on() {
    let server = Hands::default().serve();
    let mut client = client(server.address());
    client.request(calling(BLOW, 1), &(64_u32 << 20).to_le_bytes());
    let Came::Opening(..) = client.next() else { panic!("no reply") };
    server.control().shut_down(Duration::ZERO);
    // It says goodbye, and most of the reply is still to go; now the client reads on.
    loop {
        match client.next() {
            Came::Segment(..) => {}
            Came::Goodbye(GoodbyeReason::Leaving, _) => break,
            other => panic!("{other:?}"),
        }
    }
    let (ended, ends) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(server.join()));
    ends.recv_timeout(PATIENCE).expect("it spins").expect("it ends in good order");
}

#[test]
fn no_frame_of_a_reply_is_larger_than_its_client_takes() {
    let server = Hands::default().serve();
    let takes = Takes { frame: 1024, payload: 1 << 20 };
    let mut client = Peer::client_taking(takes, SEGMENTS, server.address());
    client.request(calling(BLOW, 1), &5000_u32.to_le_bytes());
    let mut came = 0;
    while came < 5000 {
        let length = match client.next() {
            Came::Opening(_, _, length) | Came::Segment(_, _, length) => length,
            other => panic!("{other:?}"),
        };
        assert!(length <= 1024, "a frame of {length}");
        came += length;
    }
}
