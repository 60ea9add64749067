//! What a server shows of itself.

use bowline_protocol::{Frame, Label, OptionSet, TrafficClass};
use bowline_runtime::exposition::fetch;

use crate::peer::{Peer, calling, plain};
use crate::service::{FAIL, HOLD, Hands};

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
        assert!(page.ends_with("# EOF\n"));
    }
    assert_eq!(server.control().histograms().unwrap().methods[0].service.len(), 3);
    hands.open();
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
