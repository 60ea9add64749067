//! The spans of copies: who has one, and what it tells.

use std::time::{Duration, Instant};

use bowline_protocol::{Cancel, CancelReason, Frame, How, OptionSet, TraceContext};

use crate::eventually;
use crate::peer::{Came, Peer, calling, plain, tied};
use crate::service::{ECHO, FAIL, HOLD, Hands, LISTEN};

/// Far more than a turn takes, whose clock stands still.
const A_WHILE: Duration = Duration::from_millis(5);

/// The spans of the core's copies since it was asked first.
fn spans(client: &mut Peer, seq: u64) -> Vec<String> {
    client.request(calling(LISTEN, seq), b"");
    let (_, _, told) = client.reply();
    String::from_utf8(told).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn copies_whose_trace_is_sampled_have_a_span_with_their_end_and_others_have_none() {
    let hands = Hands::default();
    let server = hands.serve();
    let mut client = Peer::client_with_options(server.address());
    assert!(spans(&mut client, 1).is_empty());
    let traced = |flags| {
        let trace = Some(TraceContext { trace: [0xab; 16], parent: [2; 8], flags });
        OptionSet { trace, ..OptionSet::NONE }.to_bytes()
    };
    for (seq, method, flags) in [(11, ECHO, 1), (12, ECHO, 0), (13, FAIL, 1)] {
        client.send(&Frame::RequestWith(calling(method, seq), traced(flags).as_options(), b""));
        client.reply();
    }
    client.request(plain(14), b"");
    client.reply();
    // Four run, and one behind them waits until its caller is done.
    for seq in 20..24 {
        client.request(calling(HOLD, seq), b"");
    }
    client.send(&Frame::RequestWith(plain(30), traced(1).as_options(), b""));
    client.request(plain(31), b"");
    hands.await_started(9);
    for seq in [30, 31] {
        let (reason, lifetime) = (CancelReason::CallerDone, Duration::ZERO);
        client.send(&Frame::Cancel(Cancel { attempt: plain(seq).attempt, reason, lifetime }));
        assert_eq!(client.ended().how, How::Withdrawn);
    }
    hands.open();
    (0..4).for_each(|_| _ = client.reply());
    let spans = spans(&mut client, 40);
    let ends = [(11, "end=Ok "), (13, "end=App(7) "), (30, "end=\"withdrawn_by_caller\" ")];
    assert_eq!(spans.len(), ends.len(), "{spans:#?}");
    for (span, (seq, end)) in spans.iter().zip(ends) {
        let seq = format!("seq={seq} ");
        for part in ["client=9 ", &seq, "attempt=0 ", "waited_us=", "trace=00-abab", end] {
            assert!(span.contains(part), "no {part} in {span}");
        }
    }
}

/// Of the copies that nobody sampled. The numbers go on from copy to copy, tied or not.
#[test]
fn one_in_so_many_copies_has_a_span_and_a_tied_one_names_its_twin() {
    let server = Hands::default().serve_with(|builder| builder.spans(2).slots(1));
    let mut client = Peer::client(server.address());
    assert!(spans(&mut client, 1).is_empty());
    for seq in [11, 12, 13] {
        client.request(plain(seq), b"");
        client.reply();
    }
    client.request(tied(ECHO, 14, 1), b"");
    assert!(matches!(client.next(), Came::Started(_)), "there is no mesh");
    client.reply();
    let spans = spans(&mut client, 15);
    let [second, fourth] = &spans[..] else { panic!("two of four: {spans:#?}") };
    assert!(second.contains("seq=12 attempt=0 ") && !second.contains("twin="), "{second}");
    assert!(fourth.contains("seq=14 attempt=1 "), "{fourth}");
    assert!(fourth.contains("twin=#0 at 2.0 "), "{fourth}");
}

#[test]
fn a_span_tells_how_long_its_copy_waited() {
    let hands = Hands::default();
    let server = hands.serve_with(|builder| builder.spans(1).slots(1));
    let mut client = Peer::client(server.address());
    spans(&mut client, 1);
    client.request(calling(HOLD, 2), b"");
    client.request(plain(3), b"");
    eventually("it waits", || server.control().snapshot().copies.queued == 1);
    let since = Instant::now();
    eventually("time passes", || since.elapsed() > 2 * A_WHILE);
    hands.open();
    (0..2).for_each(|_| _ = client.reply());
    let spans = spans(&mut client, 4);
    let span = spans.iter().find(|span| span.contains("seq=3 ")).unwrap();
    let (_, waited) = span.split_once("waited_us=").unwrap();
    let waited = waited.split(' ').next().unwrap().parse().unwrap();
    assert!(Duration::from_micros(waited) > A_WHILE, "{span}");
}
