//! Small worlds in which every order of events is tried.

use core::time::Duration;

use bowline_client::core::{Delay, HedgePolicy, PickRule, Policy, Stagger, TiePolicy};
use bowline_protocol::LinkConfig;
use bowline_tests::exhaust::{Loops, Searched, search};
use bowline_tests::kernel::span::{Nanos, Span};
use bowline_tests::world::{Class, Fault, Look, Scenario, What};

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

#[test]
fn a_tied_call_and_one_fault() {
    for what in [What::Kill(1), What::Cut(0, 2), What::Cut(1, 2)] {
        let mut scenario = timeless(Policy::Tied(tie(0)), 1);
        scenario.faults = vec![fault(what)];
        assert_eq!(searched(&scenario, Loops::AtOnce).failures, 0, "{what:?}");
    }
}

#[test]
fn a_relayed_tied_call_and_one_fault() {
    for what in [What::Kill(0), What::Kill(1), What::Cut(0, 2), What::Cut(1, 2)] {
        let mut scenario = Scenario { mesh: false, ..timeless(Policy::Tied(tie(0)), 1) };
        scenario.faults = vec![fault(what)];
        assert_eq!(searched(&scenario, Loops::AtOnce).failures, 0, "{what:?}");
    }
}

#[test]
fn a_staggered_tied_call_and_one_fault() {
    for what in [What::Cut(0, 2), What::Cut(1, 2)] {
        let mut scenario = timeless(Policy::Tied(tie(1000)), 1);
        scenario.faults = vec![fault(what)];
        assert_eq!(searched(&scenario, Loops::AtOnce).failures, 0, "{what:?}");
    }
}

#[test]
fn a_hedged_call_and_one_fault() {
    let delay = Delay::Fixed(Duration::from_micros(1));
    let policy = Policy::Hedged(HedgePolicy { delay, ..HedgePolicy::default() });
    for what in [What::Kill(0), What::Cut(1, 2)] {
        let mut scenario = timeless(policy, 1);
        scenario.faults = vec![fault(what)];
        assert_eq!(searched(&scenario, Loops::AtOnce).failures, 0, "{what:?}");
    }
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
