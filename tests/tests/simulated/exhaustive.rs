//! Small worlds in which every order of events is tried.

use core::time::Duration;

use bowline_client::core::{Delay, HedgePolicy, PickRule, Policy, Stagger, TiePolicy};
use bowline_protocol::LinkConfig;
use bowline_tests::exhaust::{Loops, Searched, search};
use bowline_tests::kernel::span::{Nanos, Span};
use bowline_tests::world::{Asks, Class, Fault, Lag, Lags, Look, Scenario, Teller, What};

const SECOND: Nanos = 1_000_000_000;
/// Timers that may fire at any moment are due within this.
const HORIZON: Nanos = 20_000_000;

fn tie(stagger: Nanos) -> TiePolicy {
    let stagger = Stagger::Fixed(Duration::from_nanos(stagger));
    TiePolicy { stagger, window: Duration::from_secs(1), ..TiePolicy::default() }
}

/// A world without time: everything takes none, so that only the order of things counts.
fn timeless(policy: Policy, calls: u64) -> Scenario {
    let hour = Duration::from_secs(3600);
    let mut scenario = Scenario::calm(1);
    scenario.servers = 2;
    scenario.pick = PickRule::First;
    scenario.calls = calls;
    scenario.gap = Span::Fixed(0);
    scenario.delay = Span::Fixed(0);
    scenario.turn = 0;
    scenario.deadline = Span::Fixed(3600 * SECOND);
    scenario.service.span = Span::Fixed(0);
    scenario.service.look = Look::AtOnce;
    // Links are as patient as can be: no pings, and nobody dials again.
    scenario.link = LinkConfig { hello_timeout: hour, ping_after: hour, dead_after: 3 * hour };
    scenario.classes = vec![Class::with(policy)];
    scenario.settle = 10 * SECOND;
    scenario
}

fn fault(what: What) -> Fault {
    // From the first call on it may strike at any moment; it ends when all is over.
    Fault { at: Scenario::calm(1).warm_up, lasts: SECOND, what }
}

fn searched(scenario: &Scenario, loops: Loops) -> Searched {
    match search(scenario, HORIZON, loops) {
        Ok(searched) => {
            println!("{searched:?}");
            searched
        }
        Err(story) => panic!("{story}"),
    }
}

#[test]
fn a_tied_call_over_a_mesh() {
    let found = searched(&timeless(Policy::Tied(tie(0)), 1), Loops::Whenever);
    assert_eq!(found.failures, 0);
    assert!(found.double_starts > 0, "both copies can start with no fault at all");
}

#[test]
fn a_tied_call_relayed_by_its_client() {
    let scenario = Scenario { mesh: false, ..timeless(Policy::Tied(tie(0)), 1) };
    assert_eq!(searched(&scenario, Loops::AtOnce).failures, 0);
}

#[test]
fn a_staggered_tied_call() {
    for mesh in [true, false] {
        let scenario = Scenario { mesh, ..timeless(Policy::Tied(tie(1000)), 1) };
        assert_eq!(searched(&scenario, Loops::AtOnce).failures, 0);
    }
}

#[test]
fn a_tied_call_without_tombstones() {
    let mut scenario = timeless(Policy::Tied(tie(0)), 1);
    scenario.server.tombstones = 0;
    assert_eq!(searched(&scenario, Loops::AtOnce).failures, 0);
}

/// Whatever can befall one call: a server dies, stands still (until the end, or any shorter while),
/// or a connection breaks, each at every point.
fn every_fault() -> impl Iterator<Item = Fault> {
    let kills = [What::Kill(0), What::Kill(1)];
    let cuts = [What::Cut(0, 2), What::Cut(1, 2), What::Cut(0, 1)];
    let freezes = [What::Freeze(0), What::Freeze(1)];
    let short = freezes.map(|what| Fault { lasts: 1, ..fault(what) });
    kills.into_iter().chain(cuts).chain(freezes).map(fault).chain(short)
}

/// Tries each fault at every point of one call.
fn survives_any_fault(policy: Policy, mesh: bool) {
    let mut states = 0;
    for fault in every_fault() {
        let mut scenario = Scenario { mesh, ..timeless(policy, 1) };
        scenario.faults = vec![fault];
        scenario.nothing_fails = true;
        states += searched(&scenario, Loops::AtOnce).states;
    }
    println!("{states} states in all");
}

#[test]
fn a_plain_call_survives_any_one_fault() {
    survives_any_fault(Policy::None, true);
}

#[test]
fn a_tied_call_survives_any_one_fault() {
    survives_any_fault(Policy::Tied(tie(0)), true);
}

#[test]
fn a_relayed_tied_call_survives_any_one_fault() {
    survives_any_fault(Policy::Tied(tie(0)), false);
}

#[test]
fn a_staggered_tied_call_survives_any_one_fault() {
    survives_any_fault(Policy::Tied(tie(1000)), true);
}

#[test]
fn a_hedged_call_survives_any_one_fault() {
    survives_any_fault(Policy::Hedged(hedge()), true);
}

#[test]
fn a_call_that_asks_for_freshness_survives_a_replica_that_falls_behind() {
    for (policy, mesh) in [
        (Policy::None, true),
        (Policy::Tied(tie(0)), true),
        (Policy::Tied(tie(0)), false),
        (Policy::Tied(tie(1000)), true),
        (Policy::Hedged(hedge()), true),
    ] {
        for (server, told_by) in
            [(0, Teller::Replica), (1, Teller::Replica), (0, Teller::Handler), (1, Teller::Handler)]
        {
            let mut scenario = Scenario { mesh, ..timeless(policy, 1) };
            let replicas = vec![Lag { told_by, ..Lag::NONE }; 2];
            scenario.lags = Some(Lags { every: 1, replicas });
            scenario.classes[0].asks = Some(Asks { written: Some(0), within: None });
            scenario.faults = vec![fault(What::FallBehind(server, SECOND))];
            scenario.nothing_fails = true;
            assert_eq!(searched(&scenario, Loops::AtOnce).failures, 0);
        }
    }
}

fn hedge() -> HedgePolicy {
    let delay = Delay::Fixed(Duration::from_micros(1));
    HedgePolicy { delay, ..HedgePolicy::default() }
}

#[test]
fn two_tied_calls_on_two_servers() {
    for mesh in [true, false] {
        let scenario = Scenario { mesh, ..timeless(Policy::Tied(tie(0)), 2) };
        let found = searched(&scenario, Loops::AtOnce);
        assert_eq!(found.failures, 0);
        assert!(found.double_starts > 0);
    }
}

#[test]
fn two_clients_with_a_tied_call_each() {
    // Relayed by their clients they go through four times as many states.
    let scenario = Scenario { clients: 2, ..timeless(Policy::Tied(tie(0)), 1) };
    let found = searched(&scenario, Loops::AtOnce);
    assert_eq!(found.failures, 0);
    assert!(found.double_starts > 0);
}

#[test]
fn a_call_that_must_not_run_twice_and_one_fault() {
    let mut scenario = timeless(Policy::Tied(tie(0)), 1);
    scenario.classes[0].idempotent = false;
    scenario.faults = vec![fault(What::Kill(0))];
    let found = searched(&scenario, Loops::AtOnce);
    assert!(found.failures > 0, "a call that may have run is not sent again");
    assert_eq!(found.double_starts, 0);
}
