//! Small worlds in which every order of events is tried.

use core::time::Duration;

use bowline_client::core::{Delay, HedgePolicy, PickRule, Policy, Stagger, TiePolicy};
use bowline_protocol::LinkConfig;
use bowline_tests::exhaust::{End, Loops, Orders, Searched, search};
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

/// Searches a world, of which no less is to be found than this: about half of what was when this was
/// written. So no search becomes empty unnoticed.
fn searched(scenario: &Scenario, loops: Loops, least: Least) -> Searched {
    let searched = found(scenario, loops, Orders::Unlike);
    least.judge(searched.states, searched.count(|_| true));
    searched
}

fn found(scenario: &Scenario, loops: Loops, orders: Orders) -> Searched {
    match search(scenario, HORIZON, loops, orders) {
        Ok(searched) => {
            println!("{searched:#?}");
            searched
        }
        Err(story) => panic!("{story}"),
    }
}

/// States and ends.
struct Least(u64, u64);

impl Least {
    fn judge(self, states: u64, ends: u64) {
        println!("{states} states, {ends} ends");
        assert!(states >= self.0 && ends >= self.1, "{states} states, {ends} ends: not searched");
    }
}

const fn failed(end: &End) -> bool {
    end.failed > 0
}

const fn double(end: &End) -> bool {
    end.double_starts > 0
}

#[test]
fn a_tied_call_over_a_mesh() {
    let found = searched(&timeless(Policy::Tied(tie(0)), 1), Loops::Whenever, Least(1_400, 170));
    assert_eq!(found.count(failed), 0);
    assert!(found.count(double) > 0, "both copies can start with no fault at all");
}

#[test]
fn a_tied_call_relayed_by_its_client() {
    let scenario = Scenario { mesh: false, ..timeless(Policy::Tied(tie(0)), 1) };
    assert_eq!(searched(&scenario, Loops::AtOnce, Least(100, 14)).count(failed), 0);
}

#[test]
fn a_staggered_tied_call() {
    for mesh in [true, false] {
        let scenario = Scenario { mesh, ..timeless(Policy::Tied(tie(1000)), 1) };
        assert_eq!(searched(&scenario, Loops::AtOnce, Least(160, 28)).count(failed), 0);
    }
}

#[test]
fn a_tied_call_without_tombstones() {
    let mut scenario = timeless(Policy::Tied(tie(0)), 1);
    scenario.server.tombstones = 0;
    assert_eq!(searched(&scenario, Loops::AtOnce, Least(100, 17)).count(failed), 0);
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
fn survives_any_fault(policy: Policy, mesh: bool, least: Least) {
    let (mut states, mut ends) = (0, 0);
    for fault in every_fault() {
        let mut scenario = Scenario { mesh, ..timeless(policy, 1) };
        scenario.faults = vec![fault];
        scenario.nothing_fails = true;
        let found = found(&scenario, Loops::AtOnce, Orders::Unlike);
        (states, ends) = (states + found.states, ends + found.count(|_| true));
    }
    least.judge(states, ends);
}

#[test]
fn a_plain_call_survives_any_one_fault() {
    survives_any_fault(Policy::None, true, Least(490, 60));
}

#[test]
fn a_tied_call_survives_any_one_fault() {
    survives_any_fault(Policy::Tied(tie(0)), true, Least(57_000, 5_000));
}

#[test]
fn a_relayed_tied_call_survives_any_one_fault() {
    survives_any_fault(Policy::Tied(tie(0)), false, Least(22_000, 2_200));
}

#[test]
fn a_staggered_tied_call_survives_any_one_fault() {
    survives_any_fault(Policy::Tied(tie(1000)), true, Least(230_000, 20_000));
}

#[test]
fn a_hedged_call_survives_any_one_fault() {
    survives_any_fault(Policy::Hedged(hedge()), true, Least(40_000, 4_900));
}

#[test]
fn a_call_that_asks_for_freshness_survives_a_replica_that_falls_behind() {
    let (mut states, mut ends) = (0, 0);
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
            let found = found(&scenario, Loops::AtOnce, Orders::Unlike);
            (states, ends) = (states + found.states, ends + found.count(|_| true));
            assert_eq!(found.count(failed), 0);
        }
    }
    Least(7_000, 400).judge(states, ends);
}

fn hedge() -> HedgePolicy {
    let delay = Delay::Fixed(Duration::from_micros(1));
    HedgePolicy { delay, ..HedgePolicy::default() }
}

#[test]
fn two_tied_calls_on_two_servers() {
    for mesh in [true, false] {
        let scenario = Scenario { mesh, ..timeless(Policy::Tied(tie(0)), 2) };
        let found = searched(&scenario, Loops::AtOnce, Least(50_000, 6_900));
        assert_eq!(found.count(failed), 0);
        assert!(found.count(double) > 0);
    }
}

#[test]
fn two_clients_with_a_tied_call_each() {
    // Relayed by their clients they go through four times as many states.
    let scenario = Scenario { clients: 2, ..timeless(Policy::Tied(tie(0)), 1) };
    let found = searched(&scenario, Loops::AtOnce, Least(107_000, 12_000));
    assert_eq!(found.count(failed), 0);
    assert!(found.count(double) > 0);
}

#[test]
fn a_call_that_must_not_run_twice_and_one_fault() {
    let mut scenario = timeless(Policy::Tied(tie(0)), 1);
    scenario.classes[0].idempotent = false;
    scenario.faults = vec![fault(What::Kill(0))];
    let found = searched(&scenario, Loops::AtOnce, Least(60, 9));
    assert!(found.count(failed) > 0, "a call that may have run is not sent again");
    assert_eq!(found.count(double), 0);
}

/// What the search leaves out comes to what it follows: in worlds so small that all orders can be
/// followed, too.
#[test]
fn the_orders_that_are_left_out_come_to_no_other_end() {
    for (policy, mesh, what) in [
        (Policy::None, false, Some(What::Kill(0))),
        (Policy::None, false, Some(What::Cut(0, 2))),
        (Policy::None, true, Some(What::Cut(0, 2))),
        (Policy::Hedged(hedge()), false, None),
    ] {
        let mut scenario = Scenario { mesh, ..timeless(policy, 1) };
        scenario.faults = what.map(fault).into_iter().collect();
        let [few, all] =
            [Orders::Unlike, Orders::All].map(|orders| found(&scenario, Loops::AtOnce, orders));
        let [fewer, more] = [&few, &all].map(|found| found.count(|_| true));
        println!("{fewer} of {more} courses, {} of {} states", few.states, all.states);
        assert!(fewer < more, "nothing was left out");
        assert!(few.ends.keys().eq(all.ends.keys()), "{few:#?}, where {all:#?} is to be had");
        // With a fault no course is left out but for one that comes to the same states.
        assert!(what.is_none() || few.states == all.states);
    }
}

/// A plain call that may have server 0's only slot when a tied one comes: then a copy waits in its
/// queue until its twin takes it out.
fn behind_a_plain_call(mesh: bool) -> Scenario {
    let mut scenario = Scenario { mesh, ..timeless(Policy::None, 2) };
    let tied = Class { only: Some(2), ..Class::with(Policy::Tied(tie(0))) };
    scenario.classes = vec![Class { only: Some(1), ..Class::plain() }, tied];
    scenario.nothing_fails = true;
    scenario
}

/// The starter, or the server of the copy that waits, dies or is cut off from the client: the news of
/// that and of the withdrawal come in either order.
fn survives_a_fault_with_a_copy_in_a_queue(mesh: bool, what: What, least: Least) {
    let mut scenario = behind_a_plain_call(mesh);
    scenario.faults = vec![fault(what)];
    let found = searched(&scenario, Loops::AtOnce, least);
    assert_eq!(found.count(failed), 0);
    let withdrawn = found.count(|end| end.withdrawn > 0);
    assert!(withdrawn > 0, "no copy was taken out of a queue");
}

#[test]
fn a_copy_waits_in_a_queue_and_its_twins_server_dies() {
    for mesh in [true, false] {
        survives_a_fault_with_a_copy_in_a_queue(mesh, What::Kill(1), Least(3_400, 230));
    }
}

#[test]
fn a_copy_waits_in_a_queue_and_its_server_dies() {
    survives_a_fault_with_a_copy_in_a_queue(false, What::Kill(0), Least(3_900, 230));
}

#[test]
fn a_copy_waits_in_a_queue_and_a_connection_breaks() {
    for (mesh, server) in [(true, 0), (true, 1), (false, 0), (false, 1)] {
        survives_a_fault_with_a_copy_in_a_queue(mesh, What::Cut(server, 2), Least(5_000, 280));
    }
}

#[test]
fn a_tied_call_and_a_broken_connection_in_shared_turns() {
    for mesh in [true, false] {
        let mut scenario = Scenario { mesh, ..timeless(Policy::Tied(tie(0)), 1) };
        scenario.faults = vec![fault(What::Cut(0, 2))];
        scenario.nothing_fails = true;
        assert_eq!(searched(&scenario, Loops::Whenever, Least(54_000, 2_200)).count(failed), 0);
    }
}

#[test]
fn a_tied_call_whose_client_dies() {
    for mesh in [true, false] {
        let mut scenario = Scenario { mesh, ..timeless(Policy::Tied(tie(0)), 1) };
        scenario.faults = vec![fault(What::Kill(2))];
        assert_eq!(searched(&scenario, Loops::AtOnce, Least(1_600, 80)).count(failed), 0);
    }
}

#[test]
fn a_tied_call_that_one_server_has_no_room_for() {
    for mesh in [true, false] {
        let mut scenario = behind_a_plain_call(mesh);
        (scenario.calls, scenario.server.queue) = (3, 1);
        // The first two calls are plain, and may take server 0's slot and its queue.
        scenario.classes[0].only = None;
        scenario.classes[1] = Class { only: Some(3), weight: 1 << 40, ..scenario.classes[1] };
        let found = searched(&scenario, Loops::AtOnce, Least(2_200, 270));
        assert!(found.count(|end| end.refused > 0) > 0, "nothing was refused");
        assert_eq!(found.count(failed), 0);
    }
}

#[test]
fn a_tied_call_of_which_copies_end_in_errors() {
    // Which copies do is drawn by the seed: none, either, or both.
    let (mut good, mut bad) = (0, 0);
    for seed in 1..=8 {
        for mesh in [true, false] {
            let mut scenario = Scenario { seed, mesh, ..timeless(Policy::Tied(tie(0)), 1) };
            scenario.service.error_permille = 500;
            let found = searched(&scenario, Loops::AtOnce, Least(60, 9));
            (good, bad) = (good + found.count(|end| !failed(end)), bad + found.count(failed));
        }
    }
    println!("{good} ends in a result, {bad} in an error");
    assert!(good > 0 && bad > 0);
}

#[test]
fn a_tied_call_with_a_hedge_behind_it() {
    let policy = Policy::TiedThenHedged(tie(0), hedge());
    let scenario = Scenario { servers: 3, mesh: false, ..timeless(policy, 1) };
    let found = searched(&scenario, Loops::AtOnce, Least(10_000, 900));
    assert_eq!(found.count(failed), 0);
    assert!(found.count(|end| end.sends > 2) > 0, "there was no hedge");
}
