//! What the page says of whom, and what it keeps from a terminal.

use std::format;

use bowline_protocol::Credit;
use bowline_runtime::Metrics;

use super::super::stats::Snapshot;
use super::super::tally::Rows;
use super::*;

#[test]
fn labels_from_outside_command_no_terminal_and_break_no_line() {
    assert_eq!(
        printable("a\u{1b}[2J\0\r\n\u{85}\u{2028}z"),
        "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}z"
    );
    assert_eq!(printable("zoë \"9\""), "zoë \"9\"");
}

fn text(page: Page) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(page));
    let mut text = String::new();
    text::encode(&mut text, &registry).unwrap();
    text
}

fn of_one_core(snapshot: Snapshot, runtime: Metrics) -> Page {
    let times = || Histogram::new(2).unwrap();
    let histograms =
        Histograms { methods: Vec::new(), stop: times(), orphan: times(), held: times() };
    let core = Collected {
        snapshot,
        slots: 6_000,
        overloaded: true,
        rows: Rows::default(),
        runtime,
        histograms: Box::new(histograms),
    };
    Page { cores: [core].into(), names: Vec::new(), ledger: None, visits: None }
}

/// A counter that is renamed must not fall out of its family without a word.
#[test]
fn every_counter_is_on_the_page_once_with_its_value() {
    let from = |first: u64| move |place: usize| first + place as u64;
    let snapshot = Snapshot {
        copies: Stats::from_values(std::array::from_fn(from(7_000))),
        connections: IoStats::from_values(std::array::from_fn(from(8_000))),
        ..Snapshot::default()
    };
    let ledger = LedgerStats::from_values(std::array::from_fn(from(9_000)));
    let page = of_one_core(snapshot, Metrics::default());
    let text = text(Page { ledger: Some(ledger), ..page });
    let copies = Stats::NAMES.into_iter().zip(snapshot.copies.values());
    let connections = IoStats::NAMES.into_iter().zip(snapshot.connections.values());
    let results = LedgerStats::NAMES.into_iter().zip(ledger.values());
    for (name, value) in copies.chain(connections).chain(results) {
        let ending = format!(" {value}");
        let found: Vec<&str> = text.lines().filter(|line| line.ends_with(&ending)).collect();
        let [line] = found[..] else { panic!("{name} is in {found:?}") };
        let what = name.rsplit('_').next().unwrap();
        assert!(line.contains(what), "{name} is in {line}");
    }
}

#[test]
fn what_a_core_has_now_and_what_its_loop_counted_is_on_the_page_by_its_name() {
    let snapshot = Snapshot {
        clients: 6_001,
        credit_left: Credit { requests: 6_002, bytes: 6_003 },
        credit_withheld: Credit { requests: 6_004, bytes: 6_005 },
        mesh_up: 6_006,
        mesh_kept: 6_007,
        tombstones: 6_008,
        assembling: 6_009,
        ..Snapshot::default()
    };
    let mut runtime = Metrics::default();
    runtime.live_tasks = 5_000;
    runtime.free_buffers = 5_001;
    runtime.requests_in_flight = 5_002;
    runtime.turns = 5_003;
    runtime.enters = 5_004;
    runtime.waits = 5_005;
    runtime.polls = 5_006;
    runtime.stalls = 5_007;
    runtime.parks = 5_008;
    runtime.overflows = 5_009;
    runtime.budgets_exhausted = 5_010;
    runtime.inputs_cut_short = 5_011;
    runtime.bytes_sent = 5_012;
    runtime.bytes_received = 5_013;
    let text = text(of_one_core(snapshot, runtime));
    for (name, value) in [
        ("slots", 6_000),
        ("overloaded", 1),
        ("clients", 6_001),
        ("credit_left_requests", 6_002),
        ("credit_left_bytes", 6_003),
        ("credit_withheld_requests", 6_004),
        ("credit_withheld_bytes", 6_005),
        ("mesh_up", 6_006),
        ("mesh_kept", 6_007),
        ("tombstones_live", 6_008),
        ("assembling_bytes", 6_009),
        ("loop_live_tasks", 5_000),
        ("loop_free_buffers", 5_001),
        ("loop_in_flight", 5_002),
        ("loop_turns_total", 5_003),
        ("loop_enters_total", 5_004),
        ("loop_waits_total", 5_005),
        ("loop_polls_total", 5_006),
        ("loop_stalls_total", 5_007),
        ("loop_parks_total", 5_008),
        ("loop_overflows_total", 5_009),
        ("loop_budgets_exhausted_total", 5_010),
        ("loop_inputs_cut_short_total", 5_011),
        ("loop_sent_bytes_total", 5_012),
        ("loop_received_bytes_total", 5_013),
    ] {
        let line = format!("{name}{{core=\"0\"}} {value}");
        assert!(text.lines().any(|told| told == line), "no {line} in:\n{text}");
    }
}
