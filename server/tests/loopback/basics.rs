//! What every caller relies on.

use std::thread;
use std::time::{Duration, Instant};

use bowline_protocol::{
    Attempt, Cancel, CancelReason, Cause, Features, Frame, GoodbyeReason, How, Key, Label, Method,
    OptionSet, Request, Status, Takes, Tie, TrafficClass, Twin, codec, options,
};
use bowline_server::io::Limits;

use crate::peer::{Came, Peer, calling, plain, station};
use crate::service::{BLOW, ECHO, FAIL, HOLD, Hands, LOOK, PANIC, TELL, TIMES, YIELD};
use crate::{PATIENCE, eventually};

fn caller_done(request: Request) -> Cancel {
    let (attempt, reason) = (request.attempt, CancelReason::CallerDone);
    Cancel { attempt, reason, lifetime: Duration::ZERO }
}

#[test]
fn a_request_is_answered_with_what_the_handler_returns() {
    let server = Hands::default().serve();
    let mut client = Peer::client(server.address());
    client.request(plain(1), b"hello");
    assert_eq!(client.reply(), (plain(1).attempt, Status::Ok, b"hello".to_vec()));
}

#[test]
fn thousands_of_requests_in_flight_are_answered_each() {
    let limits = Limits { slots: 64, queue_requests: 5000, ..Limits::default() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let mut client = Peer::client(server.address());
    for seq in 1..=4000 {
        client.request(plain(seq), &vec![seq as u8; seq as usize % 300]);
    }
    let mut seen: Vec<u64> = (0..4000)
        .map(|_| {
            let (attempt, status, payload) = client.reply();
            assert_eq!(status, Status::Ok);
            assert_eq!(payload, vec![attempt.seq.0 as u8; attempt.seq.0 as usize % 300]);
            attempt.seq.0
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=4000).collect::<Vec<_>>());
}

#[test]
fn frames_may_come_in_pieces_of_any_size() {
    let server = Hands::default().serve();
    let mut client = Peer::client(server.address());
    let mut bytes = Vec::new();
    for seq in 1..=3 {
        let frame = bowline_protocol::Frame::Request(plain(seq), b"in pieces");
        bowline_protocol::codec::encode(&frame, &mut bytes);
    }
    bytes.chunks(17).for_each(|piece| client.send_bytes(piece));
    (0..3).for_each(|_| assert_eq!(client.reply().2, b"in pieces"));
}

#[test]
fn a_failure_of_the_service_reaches_the_caller_as_it_is() {
    let server = Hands::default().serve();
    let mut client = Peer::client(server.address());
    client.request(calling(FAIL, 1), b"");
    assert_eq!(client.reply(), (plain(1).attempt, Status::App(7), b"no luck".to_vec()));
}

#[test]
fn a_panic_fails_its_own_call_and_no_other() {
    let server = Hands::default().serve();
    let mut client = Peer::client(server.address());
    for seq in 1..=9 {
        client.request(calling(if seq == 5 { PANIC } else { ECHO }, seq), b"on");
    }
    for _ in 1..=9 {
        let (attempt, status, _) = client.reply();
        let expected = if attempt.seq.0 == 5 { Status::Failed } else { Status::Ok };
        assert_eq!(status, expected, "{attempt:?}");
    }
    let snapshot = server.control().snapshot();
    assert_eq!((snapshot.connections.panics, snapshot.copies.replied_failed), (1, 1));
    assert_eq!(snapshot.copies.running, 0, "the slot came free");
}

/// What it makes others do goes by that: the calls of a hedge are not hedged themselves.
#[test]
fn a_handler_is_told_which_of_a_calls_copies_it_runs_and_for_whom() {
    let server = Hands::default().serve();
    let mut client = Peer::client_with_options(server.address());
    let mut told = |request: Request, options: OptionSet| {
        let bytes = options.to_bytes();
        client.send(&Frame::RequestWith(request, bytes.as_options(), b""));
        loop {
            // A tied one says that it starts before.
            if let Came::Reply(_, told) = client.next() {
                return String::from_utf8(told).unwrap();
            }
        }
    };
    let copy = |seq, n, cause| {
        let attempt = Attempt { n, ..plain(seq).attempt };
        Request { attempt, cause, ..calling(TELL, seq) }
    };
    let tied = |seq, n| {
        let twin = Twin { station: station(2), n: 1 - n };
        Request { tie: Some(Tie { twin, window: PATIENCE }), ..copy(seq, n, Cause::First) }
    };
    let labelled = OptionSet {
        class: Some(TrafficClass(3)),
        label: Some(Label::new("ada")),
        ..OptionSet::NONE
    };
    let first = told(copy(1, 0, Cause::First), labelled);
    assert_eq!(first, r#"Primary, extra: false, (3, "ada")"#);
    for (request, expected) in [
        (tied(2, 0), "Primary, extra: false"),
        (tied(3, 1), "Secondary, extra: true"),
        (copy(4, 1, Cause::Hedge), "Hedge, extra: true"),
        (copy(5, 1, Cause::Redispatch), "Redispatch, extra: false"),
    ] {
        let told = told(request, OptionSet::NONE);
        assert_eq!(told, format!(r#"{expected}, (0, "nobody")"#));
    }
}

#[test]
fn a_handler_is_told_how_long_its_copy_waited_and_how_much_of_its_time_is_left() {
    const HOUR: Duration = Duration::from_secs(3600);
    const A_WHILE: Duration = Duration::from_millis(5);
    let hands = Hands::default();
    let server = hands.serve_with(|builder| builder.slots(1));
    let mut client = Peer::client(server.address());
    client.request(calling(HOLD, 1), b"");
    client.request(Request { remaining: HOUR, ..calling(TIMES, 2) }, b"");
    eventually("it waits", || server.control().snapshot().copies.queued == 1);
    let since = Instant::now();
    // Twice as long: within a turn the core's clock stands still.
    eventually("time passes", || since.elapsed() > 2 * A_WHILE);
    hands.open();
    client.reply();
    let (_, _, told) = client.reply();
    let mut told = told.as_chunks().0.iter().map(|time| u64::from_le_bytes(*time));
    let [left, by_deadline, waited] = [(); 3].map(|()| Duration::from_micros(told.next().unwrap()));
    assert!(waited > A_WHILE && waited < 2 * PATIENCE, "{waited:?}");
    for left in [left, by_deadline] {
        assert!(left < HOUR - A_WHILE && left > HOUR - 2 * PATIENCE, "{left:?}");
    }
}

#[test]
fn a_handler_hears_that_the_caller_is_done() {
    let hands = Hands::default();
    let server = hands.serve();
    let mut client = Peer::client(server.address());
    let call = calling(LOOK, 1);
    client.request(call, b"");
    hands.await_started(1);
    client.send(&bowline_protocol::Frame::Cancel(caller_done(call)));
    let ended = client.ended();
    assert_eq!((ended.attempt, ended.how), (call.attempt, How::Aborted));
    assert_eq!(hands.cancelled(), 1);
}

#[test]
fn a_handler_that_may_be_interrupted_is_dropped_at_its_await() {
    let hands = Hands::default();
    let server = hands.serve();
    let mut client = Peer::client(server.address());
    let call = calling(YIELD, 1);
    client.request(call, b"");
    hands.await_started(1);
    client.send(&bowline_protocol::Frame::Cancel(caller_done(call)));
    assert_eq!(client.ended().how, How::Aborted);
    assert_eq!(hands.dropped(), 1);
}

#[test]
fn a_handler_that_may_not_be_interrupted_runs_to_its_end() {
    let hands = Hands::default();
    let server = hands.serve();
    let mut client = Peer::client(server.address());
    let call = calling(HOLD, 1);
    client.request(call, b"");
    hands.await_started(1);
    client.send(&bowline_protocol::Frame::Cancel(caller_done(call)));
    eventually("it saw that it was cancelled", || hands.cancelled() > 0);
    assert_eq!(server.control().snapshot().copies.running, 1);
    hands.open();
    assert_eq!(client.ended().how, How::Aborted, "nobody waits for the answer");
}

#[test]
fn a_handler_hears_when_its_deadline_passes() {
    let hands = Hands::default();
    let server = hands.serve();
    let mut client = Peer::client(server.address());
    let call = Request { remaining: Duration::from_millis(20), ..calling(LOOK, 1) };
    client.request(call, b"");
    assert_eq!(client.ended().how, How::Aborted);
    assert_eq!(server.control().snapshot().copies.aborted_by_deadline, 1);
}

#[test]
fn a_copy_that_waits_in_vain_is_shed_though_no_slot_comes_free() {
    let hands = Hands::default();
    let server = hands.serve_with(|builder| builder.slots(1));
    let mut client = Peer::client(server.address());
    client.request(calling(HOLD, 1), b"");
    hands.await_started(1);
    client.request(Request { remaining: Duration::from_millis(5), ..plain(2) }, b"");
    let ended = client.ended();
    assert_eq!((ended.attempt, ended.how), (plain(2).attempt, How::Shed));
    hands.open();
    assert_eq!(client.reply().0, plain(1).attempt);
}

#[test]
fn copies_of_a_closed_connection_are_dropped_queued_and_running() {
    let hands = Hands::default();
    let server = hands.serve_with(|builder| builder.slots(1));
    let mut client = Peer::client(server.address());
    client.request(calling(YIELD, 1), b"");
    hands.await_started(1);
    (2..=50).for_each(|seq| client.request(plain(seq), b""));
    eventually("all wait", || server.control().snapshot().copies.queued == 49);
    drop(client);
    eventually("all are gone", || {
        let copies = server.control().snapshot().copies;
        (copies.dropped_queued, copies.dropped_running) == (49, 1)
    });
    assert_eq!((hands.started(), hands.dropped()), (1, 1));
}

#[test]
fn a_full_queue_says_when_to_come_back() {
    let hands = Hands::default();
    let limits = Limits { slots: 1, queue_requests: 2, ..Limits::default() };
    let server = hands.serve_with(|builder| builder.limits(limits));
    let mut client = Peer::client(server.address());
    (1..=4).for_each(|seq| client.request(calling(HOLD, seq), b""));
    let Came::Overloaded(refusal) = client.next() else { panic!("not refused") };
    assert_eq!(refusal.attempt, plain(4).attempt);
    assert!(refusal.retry_after > Duration::ZERO);
    hands.open();
    (0..3).for_each(|_| assert_eq!(client.reply().1, Status::Ok));
}

#[test]
fn a_reply_that_the_caller_does_not_take_is_told_and_breaks_no_connection() {
    let server = Hands::default().serve();
    let mut client = Peer::client(server.address());
    client.request(calling(BLOW, 1), &(2_u32 << 20).to_le_bytes());
    let (_, status, why) = client.reply();
    let why = String::from_utf8(why).unwrap();
    assert_eq!(status, Status::TooLarge);
    assert!(why.contains(" 2097152 bytes") && why.contains(" 1048576 "), "{why}");
    let snapshot = server.control().snapshot();
    assert_eq!((snapshot.connections.replies_too_large, snapshot.copies.replied_failed), (1, 0));
    client.request(calling(BLOW, 2), &1000_u32.to_le_bytes());
    assert_eq!(client.reply().2.len(), 1000);
}

#[test]
fn who_takes_next_to_nothing_is_told_by_the_status_alone() {
    let server = Hands::default().serve();
    let frame = options::MAX_LEN as u32 + 4;
    let (takes, whole) = (Takes { frame, payload: 4 }, Features::OPTIONS);
    for (features, most) in [(whole, frame), (whole.with(Features::SEGMENTS), 4)] {
        let mut client = Peer::client_taking(takes, features, server.address());
        for (seq, length) in [(1, 100_000), (2, most + 1)] {
            client.request(calling(BLOW, seq), &u32::to_le_bytes(length));
            let (_, status, why) = client.reply();
            assert_eq!((status, &*why), (Status::TooLarge, &b""[..]), "{length}");
        }
        client.request(calling(BLOW, 3), &most.to_le_bytes());
        assert_eq!(client.reply().2.len(), most as usize);
    }
}

#[test]
fn who_takes_no_words_is_told_which_failure_it_was() {
    let server = Hands::default().serve();
    let takes = Takes { frame: options::MAX_LEN as u32 + 4, payload: 4 };
    let features = Features::OPTIONS.with(Features::SEGMENTS);
    let mut client = Peer::client_taking(takes, features, server.address());
    for (method, failure) in [(Method(99), Status::NoSuchMethod), (PANIC, Status::Failed)] {
        client.request(calling(method, 1), b"");
        let (_, status, words) = client.reply();
        assert_eq!((status, &*words), (failure, &b""[..]));
    }
}

#[test]
fn what_is_too_large_for_one_caller_of_a_key_is_there_for_another() {
    let server = Hands::default().serve();
    let key = Some(Key { id: 1, fingerprint: 1 });
    let options = OptionSet { key, ..OptionSet::NONE }.to_bytes();
    let ask = |client: &mut Peer, seq| {
        let length = (2_u32 << 20).to_le_bytes();
        client.send(&Frame::RequestWith(calling(BLOW, seq), options.as_options(), &length));
        client.reply()
    };
    let mut one = Peer::client_with_options(server.address());
    assert_eq!(ask(&mut one, 1).1, Status::TooLarge);
    let takes = Takes { frame: 64 << 20, payload: 64 << 20 };
    let mut other = Peer::client_taking(takes, Features::OPTIONS, server.address());
    assert_eq!(ask(&mut other, 2).2.len(), 2 << 20);
    assert_eq!(ask(&mut one, 3).1, Status::TooLarge);
    let snapshot = server.control().snapshot();
    assert_eq!((snapshot.copies.started, snapshot.connections.replies_too_large), (1, 2));
}

#[test]
fn every_core_answers_on_the_shared_address_and_on_its_own_port() {
    let server = Hands::default().serve_with(|builder| builder.cores(3));
    let mut ports = server.ports().to_vec();
    for (core, port) in server.ports().iter().enumerate() {
        let mut client = Peer::client((server.address().ip(), *port).into());
        let hello = client.hello.clone().unwrap();
        assert_eq!(usize::from(hello.station().unwrap().core), core);
        assert_eq!(hello.ports, server.ports());
        client.request(plain(1), b"to you");
        assert_eq!(client.reply().2, b"to you");
    }
    let mut client = Peer::client(server.address());
    client.request(plain(1), b"to anyone");
    assert_eq!(client.reply().2, b"to anyone");
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 3);
}

#[test]
fn an_address_that_is_taken_is_an_error_that_says_so_on_any_number_of_cores() {
    let server = Hands::default().serve_with(|builder| builder.cores(2));
    for cores in [1, 2] {
        let builder = bowline_server::Server::builder().listen(server.address()).cores(cores);
        let error = builder.start(Hands::default()).unwrap_err().to_string();
        assert!(error.starts_with("can't listen at 127.0.0.1:"), "{error}");
    }
}

#[test]
fn what_can_not_be_is_refused_before_anything_starts() {
    let builder = || bowline_server::Server::builder().listen("127.0.0.1:0".parse().unwrap());
    let peer = |replica| (bowline_protocol::ReplicaId(replica), "127.0.0.1:1".parse().unwrap());
    let errors = [
        builder().cores(0).start(Hands::default()),
        builder().slots(0).start(Hands::default()),
        builder().peers([peer(0)]).start(Hands::default()),
        builder().peers([peer(2), peer(2)]).start(Hands::default()),
        builder()
            .limits(Limits { stall_time: Duration::ZERO, ..Limits::default() })
            .start(Hands::default()),
        builder()
            .limits(Limits { transfer_time: Duration::ZERO, ..Limits::default() })
            .start(Hands::default()),
        builder()
            .limits(Limits { outgoing_bytes: (128 << 10) - 1, ..Limits::default() })
            .start(Hands::default()),
    ]
    // As `main` prints what it returns.
    .map(|result| format!("{:?}", result.unwrap_err()));
    assert!(errors[0].contains("at least one core"), "{}", errors[0]);
    assert!(errors[1].contains("slots must be at least 1"), "{}", errors[1]);
    assert_eq!(errors[2], "replica 0 can't be a peer: it is this one");
    assert_eq!(errors[3], "replica 2 can't be a peer twice");
    for (error, what) in errors[4..].iter().zip(["stall_time is zero", "transfer_time is zero"]) {
        assert!(error.starts_with(what) && error.contains("give it a day"), "{error}");
    }
    assert!(errors[6].starts_with("outgoing_bytes is 131071"), "{}", errors[6]);
    assert!(errors[6].ends_with("make it 131072 or more"), "{}", errors[6]);
}

#[test]
fn a_server_that_shuts_down_finishes_what_it_has_and_says_goodbye() {
    let hands = Hands::default();
    let server = hands.serve();
    let mut client = Peer::attentive_client(server.address());
    client.request(calling(HOLD, 1), b"the last");
    hands.await_started(1);
    server.control().shut_down(PATIENCE);
    assert_eq!(client.next(), Came::GoAway);
    client.request(plain(2), b"too late");
    assert!(matches!(client.next(), Came::Overloaded(_)), "nothing new");
    hands.open();
    assert_eq!(client.reply().2, b"the last");
    let Came::Goodbye(reason, _) = client.next() else { panic!("no goodbye") };
    assert_eq!(reason, GoodbyeReason::Leaving);
    assert_eq!(client.next(), Came::Closed);
    server.join().unwrap();
}

#[test]
fn a_server_does_not_wait_longer_than_its_grace() {
    let hands = Hands::default();
    let server = hands.serve();
    let mut client = Peer::client(server.address());
    client.request(calling(HOLD, 1), b"");
    hands.await_started(1);
    server.shut_down(Duration::from_millis(1)).unwrap();
    assert!(matches!(client.next(), Came::Goodbye(GoodbyeReason::Leaving, _)));
}

#[test]
fn a_server_that_is_told_again_to_end_does_so_at_the_earlier_time() {
    for (first, second) in
        [(PATIENCE, Duration::from_millis(1)), (Duration::from_millis(1), PATIENCE)]
    {
        let hands = Hands::default();
        let server = hands.serve();
        let mut client = Peer::attentive_client(server.address());
        client.request(calling(HOLD, 1), b"");
        hands.await_started(1);
        let control = server.control().clone();
        control.shut_down(2 * first);
        control.shut_down(2 * second);
        let ends = thread::spawn(|| server.join());
        eventually("it has ended", || ends.is_finished());
        ends.join().unwrap().unwrap();
    }
}

#[test]
fn a_server_that_is_dropped_ends() {
    let server = Hands::default().serve_with(|builder| builder.cores(2));
    let mut client = Peer::client(server.address());
    drop(server);
    assert!(matches!(client.next(), Came::Goodbye(GoodbyeReason::Leaving, _)));
}

#[test]
fn the_times_of_all_cores_can_be_asked_for() {
    let server = Hands::default().serve_with(|builder| builder.cores(2));
    for port in server.ports() {
        let mut client = Peer::client((server.address().ip(), *port).into());
        (1..=10).for_each(|seq| client.request(plain(seq), b""));
        (1..=10).for_each(|_| assert_eq!(client.reply().1, Status::Ok));
    }
    let histograms = server.control().histograms().unwrap();
    let echo = histograms.methods.iter().find(|times| times.method == ECHO).unwrap();
    assert_eq!((echo.wait.len(), echo.service.len()), (20, 20));
}

bowline_protocol::service! {
    mod greeter("greeter") with bowline_protocol::service::Raw {
        1 => greet(String) -> String { idempotent };
        2 => wait(String) -> String { idempotent, interruptible };
    }
}

#[derive(Clone)]
struct Polite;

impl greeter::Server<bowline_server::Context> for Polite {
    async fn greet(
        &self,
        _: bowline_server::Context,
        name: String,
    ) -> Result<String, bowline_protocol::service::ServiceError> {
        match name.as_str() {
            "" => Err(bowline_protocol::service::ServiceError::new(44)),
            name => Ok(format!("hello, {name}")),
        }
    }

    async fn wait(
        &self,
        _: bowline_server::Context,
        _: String,
    ) -> Result<String, bowline_protocol::service::ServiceError> {
        std::future::pending().await
    }
}

#[test]
fn a_declared_service_is_served() {
    let any = "127.0.0.1:0".parse().unwrap();
    let service = bowline_server::Typed(greeter::Serving(Polite));
    let server = bowline_server::Server::builder().listen(any).start(service).unwrap();
    let mut client = Peer::client(server.address());
    client.request(plain(1), b"you");
    assert_eq!(client.reply().2, b"hello, you");
    client.request(plain(2), b"");
    assert_eq!(client.reply().1, Status::App(44));
    client.request(plain(3), b"\xff\xff");
    let Came::Reply(reply, _) = client.next() else { panic!("no reply") };
    assert_eq!((reply.status, reply.executed), (Status::BadRequest, true));
}

#[test]
fn a_declared_handler_that_may_be_interrupted_is_dropped_at_its_await() {
    let any = "127.0.0.1:0".parse().unwrap();
    let service = bowline_server::Typed(greeter::Serving(Polite));
    let server = bowline_server::Server::builder().listen(any).start(service).unwrap();
    let mut client = Peer::client(server.address());
    let call = Request { method: bowline_protocol::Method(2), ..plain(1) };
    client.request(call, b"for ever");
    eventually("it runs", || server.control().snapshot().copies.started == 1);
    client.send(&bowline_protocol::Frame::Cancel(caller_done(call)));
    let ended = client.ended();
    assert_eq!((ended.attempt, ended.how), (call.attempt, How::Aborted));
}

/// What crosses the goodbye is not listened to, but read: frames that lie across two pieces, too.
#[test]
fn a_client_that_goes_on_after_the_goodbye_has_not_broken_the_protocol() {
    let hands = Hands::default();
    let server = hands.serve();
    let mut client = Peer::client(server.address());
    // It keeps the server from its end meanwhile.
    let _other = Peer::client(server.address());
    server.control().shut_down(Duration::ZERO);
    while !matches!(client.next(), Came::Goodbye(..)) {}
    let mut requests = Vec::new();
    let frames = (1..=2_000).map(|seq| Frame::Request(plain(seq), &[7; 1_001]));
    frames.for_each(|frame| codec::encode(&frame, &mut requests));
    client.try_send_bytes(&requests);
    drop(client);
    let mut seen = server.control().snapshot();
    eventually("it has closed, or the server is over", || {
        let now = server.control().snapshot();
        if now.connections.accepted > 0 {
            seen = now;
        }
        seen.connections.closed > 0 || now.connections.accepted == 0
    });
    assert_eq!(seen.connections.protocol_errors, 0);
}

#[test]
fn a_server_says_whether_payloads_need_checksums_on_their_way_to_it() {
    for needed in [true, false] {
        let server = Hands::default().serve_with(|builder| builder.payload_checksums(needed));
        let client = Peer::client(server.address());
        let hello = client.hello.as_ref().expect("it said hello");
        assert_eq!(hello.features.has(Features::UNSUMMED), !needed);
    }
}

#[test]
fn a_request_that_crosses_the_go_away_is_answered_before_the_goodbye() {
    let server = Hands::default().serve();
    let mut client = Peer::attentive_client(server.address());
    let mut other = Peer::attentive_client(server.address());
    server.control().shut_down(PATIENCE);
    // All are told at once; this one has not read it yet.
    assert_eq!(other.next(), Came::GoAway);
    client.request(plain(1), b"x");
    assert_eq!(client.next(), Came::GoAway);
    assert!(
        matches!(client.next(), Came::Overloaded(refused) if refused.attempt == plain(1).attempt)
    );
    assert!(matches!(client.next(), Came::Goodbye(GoodbyeReason::Leaving, _)));
}

/// Whoever closes a socket in which something is unread takes back what the other side has not yet
/// got. A client in full flow must lose nothing for that, nor for what crosses the server's go-away:
/// each request is answered or refused.
#[test]
fn a_server_that_shuts_down_leaves_no_request_unanswered() {
    for _ in 0..10 {
        // On a slow machine the last ones wait for so long that they would be shed.
        let server = Hands::default().serve_with(|builder| builder.overload(None));
        let mut client = Peer::attentive_client(server.address());
        let control = server.control().clone();
        (1..=2_000).for_each(|seq| client.request(plain(seq), &[7; 100]));
        control.shut_down(PATIENCE);
        let mut told = 0;
        loop {
            match client.next() {
                Came::Reply(..) | Came::Overloaded(_) => told += 1,
                Came::GoAway => {}
                Came::Goodbye(reason, _) => {
                    assert_eq!(reason, GoodbyeReason::Leaving);
                    break;
                }
                other => panic!("{other:?} after {told}"),
            }
        }
        assert_eq!(told, 2_000);
        // It goes on talking to one who has said goodbye, and gets no reset for it.
        client.request(plain(3_000), &[7; 100_000]);
        assert_eq!(client.next(), Came::Closed);
        drop(client);
        server.join().unwrap();
    }
}
