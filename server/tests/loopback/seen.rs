//! What a server shows of itself.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use bowline_protocol::{
    Cancel, CancelReason, Credit, Features, Frame, How, Key, Label, MethodInfo, OptionSet,
    ServiceInfo, Status, Takes, TraceContext, TrafficClass,
};
use bowline_runtime::exposition::fetch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use bowline_server::io::Limits;
use bowline_server::io::once::Ledger;
use bowline_server::{Context, Failure, Payload, Server, Service};

use crate::eventually;
use crate::peer::{Peer, calling, plain};
use crate::service::{BLOW, ECHO, FAIL, HOLD, Hands};

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

/// Keeps the spans of copies, and how they ended.
#[derive(Default)]
struct Ear {
    next: AtomicU64,
    spans: Mutex<BTreeMap<u64, String>>,
}

/// Writes fields down.
struct Pen<'a>(&'a mut String);

impl Visit for Pen<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Ear {
    fn write(&self, id: u64, record: impl FnOnce(&mut Pen<'_>)) {
        record(&mut Pen(self.spans.lock().unwrap().entry(id).or_default()));
    }

    fn heard(&self, part: &str) -> Vec<String> {
        self.spans.lock().unwrap().values().filter(|span| span.contains(part)).cloned().collect()
    }
}

impl Subscriber for &'static Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "bowline::copy"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = 1 + self.next.fetch_add(1, Ordering::Relaxed);
        self.write(id, |pen| span.record(pen));
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.write(span.into_u64(), |pen| values.record(pen));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn copies_whose_trace_is_sampled_have_a_span_with_their_end_and_others_have_none() {
    static EAR: LazyLock<Ear> = LazyLock::new(Ear::default);
    let ear: &'static Ear = &EAR;
    tracing::subscriber::set_global_default(ear).unwrap();
    let hands = Hands::default();
    let server = hands.serve();
    let mut client = Peer::client_with_options(server.address());
    for (seq, method, flags) in [(7001, ECHO, 1), (7002, ECHO, 0), (7003, FAIL, 1)] {
        let trace = Some(TraceContext { trace: [0xab; 16], parent: [2; 8], flags });
        let options = OptionSet { trace, ..OptionSet::NONE }.to_bytes();
        client.send(&Frame::RequestWith(calling(method, seq), options.as_options(), b""));
        client.reply();
    }
    client.request(plain(7004), b"");
    client.reply();
    // Four run, and one behind them waits until its caller is done.
    let sampled = Some(TraceContext { trace: [0xab; 16], parent: [2; 8], flags: 1 });
    let sampled = OptionSet { trace: sampled, ..OptionSet::NONE }.to_bytes();
    for seq in 7010..7014 {
        client.request(calling(HOLD, seq), b"");
    }
    client.send(&Frame::RequestWith(plain(7020), sampled.as_options(), b""));
    client.request(plain(7021), b"");
    hands.await_started(8);
    for seq in [7020, 7021] {
        let (reason, lifetime) = (CancelReason::CallerDone, Duration::ZERO);
        client.send(&Frame::Cancel(Cancel { attempt: plain(seq).attempt, reason, lifetime }));
        assert_eq!(client.ended().how, How::Withdrawn);
    }
    // Its span is told in the turn of its end: one that is answered later comes after it.
    hands.open();
    (0..4).for_each(|_| _ = client.reply());
    let [span] = &ear.heard("seq=7020 ")[..] else { panic!("one span for one that never ran") };
    for part in ["waited_us=", "trace=00-abab", "end=\"withdrawn_by_caller\""] {
        assert!(span.contains(part), "no {part} in {span}");
    }
    assert!(ear.heard("seq=7021 ").is_empty());
    for (seq, end) in [(7001, "end=Ok"), (7003, "end=App(7)")] {
        let [span] = &ear.heard(&format!("seq={seq} "))[..] else { panic!("one span for {seq}") };
        for part in ["client=9 ", "attempt=0 ", "waited_us=", "trace=00-abab", end] {
            assert!(span.contains(part), "no {part} in {span}");
        }
    }
    assert!(ear.heard("seq=7002 ").is_empty() && ear.heard("seq=7004 ").is_empty());
}
