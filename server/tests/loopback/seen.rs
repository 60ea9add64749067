//! What a server shows of itself.

use std::time::Duration;

use bowline_protocol::{
    Credit, Features, Frame, How, Key, Label, Method, MethodInfo, OptionSet, Request, ServiceInfo,
    Status, Takes, TrafficClass,
};
use bowline_runtime::exposition::fetch;

use bowline_server::io::Limits;
use bowline_server::io::once::Ledger;
use bowline_server::{Context, Failure, Payload, Server, Service};

use crate::eventually;
use crate::mesh::{Pair, pair};
use crate::peer::{Peer, calling, plain, tied, twin_of};
use crate::service::{BLOW, ECHO, FAIL, HOLD, Hands, TELL, YIELD};

/// The value of the sample of this name that has all these labels.
fn value(page: &str, name: &str, labels: &[&str]) -> f64 {
    let is_it = |line: &&str| {
        line.split(['{', ' ']).next() == Some(name)
            && labels.iter().all(|label| line.contains(label))
    };
    let line = page.lines().find(is_it);
    let line = line.unwrap_or_else(|| panic!("no {name} with {labels:?} in:\n{page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_page_tells_calls_ends_times_and_the_loop() {
    let hands = Hands::default();
    let server = hands.serve_with(|builder| {
        builder.zone("a").metrics("127.0.0.1:0".parse().unwrap()).shares([3, 1])
    });
    let address = server.metrics_address().unwrap();
    let mut client = Peer::client_with_options(server.address());
    for seq in 1..=3 {
        let label = Some(Label::new("tenant \"9\""));
        let options = OptionSet { class: Some(TrafficClass(1)), label, ..OptionSet::NONE };
        client.send(&Frame::RequestWith(plain(seq), options.to_bytes().as_options(), b""));
        client.reply();
    }
    client.request(calling(FAIL, 4), b"");
    client.reply();
    client.request(calling(HOLD, 5), b"");
    hands.await_started(5);
    for again in 0..2 {
        let page = fetch(address).unwrap();
        let of = ["replica=\"1\"", "zone=\"a\"", "service=\"test\""];
        let echo = ["method=\"echo\"", "class=\"1\"", "tenant=\"tenant \\\"9\\\"\"", "cache=\"\""];
        assert_eq!(value(&page, "bowline_calls_total", &[&of[..], &echo].concat()), 3.0);
        assert_eq!(value(&page, "bowline_copies_ended_total", &["end=\"replied\""]), 4.0);
        assert_eq!(value(&page, "bowline_copies_running", &of), 1.0);
        let times = value(&page, "bowline_service_seconds_count", &["method=\"echo\""]);
        assert_eq!(times, 3.0, "handed over once, and kept; asked {again} times before");
        let all = ["le=\"+Inf\"", "method=\"echo\""];
        assert_eq!(value(&page, "bowline_queue_wait_seconds_bucket", &all), 3.0);
        assert!(value(&page, "bowline_loop_turns_total", &["core=\"0\""]) > 0.0);
        let visits = |what| value(&page, "bowline_page_visits_total", &[what]);
        assert_eq!(visits("what=\"admitted\""), f64::from(again + 1));
        assert_eq!(visits("what=\"gave_way\""), 0.0);
        assert!(page.ends_with("# EOF\n"));
    }
    assert_eq!(server.control().histograms().unwrap().methods[0].service.len(), 3);
    hands.open();
}

#[test]
fn a_page_tells_what_credit_is_left_and_what_waits_for_its_clients_to_read() {
    let credit = Credit { requests: 8, bytes: 4 << 20 };
    let limits = Limits { credit, outgoing_bytes: 256 << 20, ..Limits::default() };
    let server = Hands::default().serve_with(|builder| builder.limits(limits));
    let of = |name: &str| value(&server.control().page(), name, &["core=\"0\""]);
    let takes = Takes { frame: 64 << 20, payload: 64 << 20 };
    let mut client = Peer::client_taking(takes, Features::CREDIT, server.address());
    assert_eq!(of("bowline_credit_left_requests"), 8.0);
    assert_eq!(of("bowline_credit_left_bytes"), (4 << 20) as f64);
    // More than the socket buffers of both sides hold, and nobody reads.
    client.request(calling(BLOW, 1), &(32_u32 << 20).to_le_bytes());
    eventually("its end waits for the client", || of("bowline_credit_withheld_requests") == 1.0);
    assert_eq!(of("bowline_credit_withheld_bytes"), 4.0);
    assert_eq!(of("bowline_credit_left_requests"), 7.0);
    assert_eq!(of("bowline_clients"), 1.0);
}

#[test]
fn a_page_tells_where_replies_came_from() {
    let server = Hands::default().serve();
    let mut client = Peer::client_with_options(server.address());
    for seq in 1..=3 {
        client.request(calling(if seq == 2 { ECHO } else { TELL }, seq), b"");
        client.reply();
    }
    let page = server.control().page();
    let calls = |labels: [&str; 2]| value(&page, "bowline_calls_total", &labels);
    assert_eq!(calls(["method=\"tell\"", "cache=\"told\""]), 2.0);
    assert_eq!(calls(["method=\"echo\"", "cache=\"\""]), 1.0);
}

#[test]
fn a_page_tells_how_copies_ended_and_what_twins_had_to_do_with_it() {
    let Pair { hands, server, mut mouth, ear: _ear } = pair(3);
    let snapshot = || server.control().snapshot();
    let mut client = Peer::client(server.address());
    let mut orphan = Peer::client(server.address());
    let runs = tied(YIELD, 1, 1);
    client.request(runs, b"");
    client.request(calling(HOLD, 2), b"");
    orphan.request(calling(YIELD, 3), b"");
    hands.await_started(3);
    // No copy has ended so far: none is refused as it would wait too long.
    client.request(Request { remaining: Duration::from_millis(1), ..plain(4) }, b"");
    assert_eq!(client.ended().how, How::Shed);
    let waits = tied(ECHO, 5, 1);
    client.request(waits, b"");
    eventually("it waits", || snapshot().copies.queued == 1);
    mouth.send(&Frame::Cancel(twin_of(waits)));
    assert_eq!(client.ended().how, How::Withdrawn);
    // A tombstone is there for a second, which may pass where the machine stands still.
    let mut runs_into_a_tombstone = |made: &u64| {
        let late = tied(ECHO, 100 + made, 1);
        mouth.send(&Frame::Cancel(twin_of(late)));
        eventually("a tombstone is made", || snapshot().copies.tombstones_made == *made);
        client.request(Request { remaining: Duration::from_millis(1), ..late }, b"");
        client.ended().how == How::Withdrawn
    };
    let made = (1..20).find(&mut runs_into_a_tombstone).expect("a copy that runs into a tombstone");
    client.request(calling(Method(99), 7), b"");
    assert_eq!(client.reply().1, Status::NoSuchMethod);
    mouth.send(&Frame::Cancel(twin_of(runs)));
    assert_eq!(client.ended().how, How::Aborted);
    drop(orphan);
    eventually("nothing runs for nobody", || snapshot().copies.running == 1);

    let page = server.control().page();
    let of = |name: &str, label: &str| value(&page, &format!("bowline_{name}"), &[label]);
    for (end, times) in [
        ("aborted_by_twin", 1),
        ("shed_expired", made),
        ("withdrawn_by_twin", 1),
        ("withdrawn_by_tombstone", 1),
        ("dropped_running", 1),
    ] {
        assert_eq!(of("copies_ended_total", &format!("end=\"{end}\"")), times as f64, "{end}");
    }
    assert_eq!(of("requests_rejected_total", "reason=\"no_method\""), 1.0);
    assert_eq!(of("double_starts_total", ""), 1.0);
    assert_eq!(of("cancels_total", "what=\"sent\""), 1.0);
    assert_eq!(of("cancels_total", "what=\"received\""), 2.0 + made as f64);
    assert_eq!(of("tombstones_total", "what=\"hit\""), 1.0);
    assert_eq!(of("mesh_up", "core=\"0\""), 1.0);
    assert_eq!(of("slots", "core=\"0\""), 3.0);
    assert_eq!(of("orphan_seconds_count", ""), 1.0);
    assert_eq!(of("stop_seconds_count", ""), 2.0);
    hands.open();
}

#[test]
fn a_page_tells_what_would_have_been_shed() {
    let server = Hands::default().serve_with(|builder| builder.shed_in_the_dark(true));
    let mut client = Peer::client(server.address());
    client.request(Request { remaining: Duration::ZERO, ..plain(1) }, b"late");
    assert_eq!(client.reply().2, b"late");
    let page = server.control().page();
    let dark = |reason| value(&page, "bowline_shedding_dark_total", &[reason]);
    assert_eq!((dark("reason=\"too_late\""), dark("reason=\"wait\"")), (1.0, 0.0));
}

/// Has an effect in its store of results for each key.
#[derive(Clone)]
struct Bank(Ledger);

impl Service for Bank {
    type Reply = Vec<u8>;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("bank", const { &[MethodInfo::new(ECHO, "deposit").keyed()] })
    }

    async fn call(&self, context: Context, _: Payload) -> Result<Vec<u8>, Failure> {
        context.once(&self.0, |_| Ok(Vec::new())).await
    }
}

#[test]
fn a_page_tells_what_happens_in_the_store_of_results() {
    let ledger = Ledger::in_memory();
    let builder = Server::builder().listen("127.0.0.1:0".parse().unwrap());
    let server = builder.watch_ledger(&ledger).start(Bank(ledger.clone())).unwrap();
    let mut client = Peer::client_with_options(server.address());
    for id in [7, 8] {
        let key = Some(Key { id, fingerprint: 1 });
        let options = OptionSet { key, ..OptionSet::NONE }.to_bytes();
        client.send(&Frame::RequestWith(plain(id as u64), options.as_options(), b""));
        assert_eq!(client.reply().1, Status::Ok);
    }
    let page = server.control().page();
    let results = |what| value(&page, "bowline_results_total", &[what]);
    assert_eq!(results("what=\"effects\""), 2.0);
    assert_eq!(results("what=\"commits\""), ledger.stats().commits as f64);
    assert_eq!(results("what=\"store_errors\""), 0.0);
    assert_eq!(server.control().ledger(), Some(ledger.stats()));
}

#[test]
fn calls_count_in_the_class_that_they_were_served_in() {
    let server = Hands::default().serve_with(|builder| builder.shares([3, 1]));
    let mut client = Peer::client_with_options(server.address());
    for (seq, class) in [(1, 1), (2, 0), (3, 9), (4, 200)] {
        let options = OptionSet { class: Some(TrafficClass(class)), ..OptionSet::NONE };
        client.send(&Frame::RequestWith(plain(seq), options.to_bytes().as_options(), b""));
        client.reply();
    }
    let page = server.control().page();
    let calls = |class| value(&page, "bowline_calls_total", &[class, "method=\"echo\""]);
    assert_eq!((calls("class=\"0\""), calls("class=\"1\"")), (3.0, 1.0));
    assert!(!page.contains("class=\"9\"") && !page.contains("class=\"200\""));
}

#[test]
fn a_server_that_ends_serves_its_page_no_more() {
    let server =
        Hands::default().serve_with(|builder| builder.metrics("127.0.0.1:0".parse().unwrap()));
    let address = server.metrics_address().unwrap();
    assert!(fetch(address).is_ok());
    drop(server);
    assert!(fetch(address).is_err());
}

#[test]
fn an_address_of_metrics_that_is_taken_is_an_error_by_name() {
    let server = Hands::default().serve();
    let taken = server.address();
    let builder = bowline_server::Server::builder().listen("127.0.0.1:0".parse().unwrap());
    let refused = builder.metrics(taken).start(Hands::default()).unwrap_err();
    assert!(refused.to_string().contains(&format!("can't serve metrics at {taken}")), "{refused}");
}
