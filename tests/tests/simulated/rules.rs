//! The rules of tied requests, one by one, in worlds made for each.

use core::time::Duration;

use bowline_client::core::{BudgetConfig, PickRule, Policy, Stagger, TiePolicy};
use bowline_protocol::LinkConfig;
use bowline_tests::kernel::span::{Nanos, Span};
use bowline_tests::world::{Class, Fault, Look, Report, Scenario, ServerSetup, Surge, What};

use crate::hold;

const US: Nanos = 1_000;
const MS: Nanos = 1_000_000;

fn tied(stagger: Nanos) -> Policy {
    let stagger = Stagger::Fixed(Duration::from_nanos(stagger));
    Policy::Tied(TiePolicy { stagger, ..TiePolicy::default() })
}

/// One client, whose tied calls have copy #0 at server 0 and copy #1 at server 1; every call runs a
/// millisecond, every parcel takes 50 us, and a token is an exact account of an extra execution.
fn pair(seed: u64, stagger: Nanos) -> Scenario {
    let mut scenario = Scenario::calm(seed);
    scenario.servers = 2;
    scenario.pick = PickRule::First;
    scenario.classes = vec![Class::with(tied(stagger))];
    scenario.service.span = Span::Fixed(MS);
    scenario.delay = Span::Fixed(50 * US);
    scenario.turn = 0;
    scenario.gap = Span::Fixed(5 * MS);
    scenario.calls = 10;
    scenario.budget =
        BudgetConfig { per_second: 0.0, fraction: 0.0, burst: 1000, outstanding: 1000, drain: 0.0 };
    scenario.nothing_fails = true;
    scenario
}

/// The last calls of a run, which are made to see whether all is well again, are plain.
fn probes(report: &Report) -> u64 {
    2 * report.clients.len() as u64
}

#[test]
fn a_tied_call_runs_once_and_completes_once() {
    let report = hold(&pair(1, 200 * US));
    assert_eq!(report.succeeded, 10 + probes(&report));
    assert_eq!(
        report.starts, report.succeeded,
        "the stagger lets the first start cancel the second"
    );
    assert_eq!(report.double_starts, 0);
}

#[test]
fn the_starter_takes_the_twin_out_of_its_queue() {
    // Server 1 is busy with calls of its own client, so that tied copies wait there.
    let mut scenario = pair(2, 0);
    scenario.delay = Span::Fixed(10 * US);
    scenario.links = vec![(2, 1, Span::Fixed(5 * US))];
    scenario.gap = Span::Exponential { mean: 700 * US };
    scenario.calls = 200;
    scenario.service.look = Look::AtOnce;
    let report = hold(&scenario);
    let withdrew: u64 = report.servers.iter().map(|stats| stats.cancels_withdrew).sum();
    assert!(withdrew > 50, "{withdrew} copies were taken out of a queue");
}

#[test]
fn a_cancel_that_comes_before_its_request_leaves_a_tombstone() {
    let mut scenario = pair(3, 0);
    // The way from the client to server 1 is long; the mesh is fast.
    scenario.links = vec![(2, 1, Span::Fixed(600 * US))];
    let report = hold(&scenario);
    let hits: u64 = report.servers.iter().map(|stats| stats.tombstones_hit).sum();
    assert_eq!(hits, 10, "each second copy runs into the tombstone that its twin's start left");
    assert_eq!(report.starts, report.succeeded);
}

#[test]
fn losing_all_tombstones_is_harmless() {
    let mut scenario = pair(3, 0);
    scenario.links = vec![(2, 1, Span::Fixed(600 * US))];
    scenario.server.tombstones = 0;
    let report = hold(&scenario);
    assert_eq!(report.double_starts, 10, "without a tombstone each second copy starts, too");
    assert_eq!(report.succeeded, 10 + probes(&report));
}

#[test]
fn of_a_double_start_the_primary_goes_on_and_the_secondary_stops() {
    let report = hold(&pair(4, 0));
    assert_eq!(
        report.double_starts, 10,
        "both copies arrive at one time, and both servers are idle"
    );
    let sum = |count: fn(&bowline_server::core::Stats) -> u64| -> u64 {
        report.servers.iter().map(count).sum()
    };
    assert_eq!(sum(|stats| stats.cancels_ignored), 10, "by primaries");
    assert_eq!(sum(|stats| stats.aborted_by_twin), 10, "secondaries");
    assert_eq!(report.succeeded, 10 + probes(&report));
}

#[test]
fn without_a_mesh_the_client_relays_and_the_outcome_is_the_same() {
    for stagger in [0, 200 * US] {
        let mut scenario = pair(5, stagger);
        scenario.mesh = false;
        let report = hold(&scenario);
        let told: u64 = report.servers.iter().map(|stats| stats.starts_told).sum();
        let cancels: u64 = report.servers.iter().map(|stats| stats.cancels_sent).sum();
        assert_eq!(cancels, 0, "there is no mesh to send them on");
        assert!(told >= 10, "{told} starts were told to the client");
        let expected = if stagger == 0 { 10 } else { 0 };
        assert_eq!(report.double_starts, expected, "stagger {stagger}");
        let stopped: u64 = report.servers.iter().map(|stats| stats.aborted_by_twin).sum();
        assert_eq!(stopped, expected, "the relayed cancel stops the secondary");
    }
}

#[test]
fn a_starter_that_dies_after_it_cancelled_its_twin_loses_no_call() {
    // At any time in the life of one call the starter dies or falls silent, or the other server
    // does; the twin's withdrawal and the end of the starter's connection come in either order.
    let mut redispatches = 0;
    for starter in [0, 1] {
        let other = 1 - starter;
        for step in 0..60 {
            for what in [What::Kill(starter), What::Vanish(starter), What::Kill(other)] {
                let mut scenario = pair(6, 0);
                scenario.calls = 1;
                scenario.delay = Span::Fixed(30 * US);
                scenario.links = vec![(2, other, Span::Fixed(300 * US))];
                let at = scenario.warm_up + 5 * MS + step * 25 * US;
                scenario.faults = vec![Fault { at, lasts: 20 * MS, what }];
                let report = hold(&scenario);
                assert_eq!(report.succeeded, 1 + probes(&report), "{what:?} at {at}");
                redispatches += report.clients[0].redispatches;
            }
        }
    }
    assert!(redispatches > 60, "{redispatches} calls had to be sent again");
}

#[test]
fn a_server_that_wakes_from_a_stall_starts_no_copy_whose_cancel_has_arrived() {
    let mut scenario = pair(7, 0);
    scenario.calls = 0;
    scenario.server = ServerSetup { slots: 4, queue: 512, tombstones: 64 };
    scenario.service.span = Span::Fixed(200 * US);
    // Both servers stand still while a hundred pairs arrive; then the first wakes, and serves them.
    let frozen = |process, lasts| Fault { at: 3 * MS, lasts, what: What::Freeze(process) };
    let burst = Fault { at: 4 * MS, lasts: 1, what: What::Burst(2, 100) };
    scenario.faults = vec![frozen(0, 2 * MS), frozen(1, 20 * MS), burst];
    let report = hold(&scenario);
    assert_eq!(report.succeeded, 100 + probes(&report));
    assert_eq!(report.double_starts, 0, "the thawed server takes all cancels in before it starts");
    assert_eq!(report.servers[1].cancels_withdrew, 100);
    assert_eq!(report.servers[1].started, 0);
}

#[test]
fn tokens_of_copies_that_never_ran_come_back_and_those_of_double_starts_do_not() {
    // In a world of `pair` the account is judged at the end, to the token: here only that it is not
    // an empty one.
    let (never, always) = (hold(&pair(8, 200 * US)), hold(&pair(8, 0)));
    assert_eq!((never.double_starts, always.double_starts), (0, 10));
    assert_eq!(never.clients[0].tied, 10);
    assert_eq!(always.clients[0].tied, 10);
}

#[test]
fn without_a_token_a_tied_call_is_a_plain_one() {
    let mut scenario = pair(9, 0);
    scenario.budget = BudgetConfig { burst: 4, ..scenario.budget };
    let report = hold(&scenario);
    assert_eq!(report.clients[0].tied, 4, "a double start costs a token, and there are four");
    assert_eq!(report.clients[0].denied.no_token, 6);
    assert_eq!(report.double_starts, 4);
}

#[test]
fn a_cut_mesh_costs_double_work_and_nothing_else() {
    let mut scenario = pair(10, 200 * US);
    scenario.faults = vec![Fault { at: 0, lasts: 80 * MS, what: What::Part(0, 1) }];
    let report = hold(&scenario);
    assert_eq!(report.succeeded, 10 + probes(&report));
    let told: u64 = report.servers.iter().map(|stats| stats.starts_told).sum();
    assert!(told >= 10, "a server that can't tell its peer tells the client: {told}");
}

#[test]
fn a_call_whose_server_stands_still_goes_elsewhere() {
    for policy in [Policy::None, tied(0), Policy::hedged()] {
        let mut scenario = pair(11, 0);
        scenario.classes = vec![Class::with(policy)];
        let what = What::Freeze(0);
        scenario.faults = vec![Fault { at: 10 * MS, lasts: 2_000 * MS, what }];
        scenario.deadline = Span::Fixed(300 * MS);
        let report = hold(&scenario);
        assert_eq!(report.succeeded, 10 + probes(&report), "{policy:?}");
    }
}

#[test]
fn a_second_copy_whose_twin_never_went_out_is_not_tied() {
    // A client wakes to a call of its user and to the end of a connection, in this order: copy #0
    // was meant for that connection, and copy #1 is next in line.
    let mut scenario = pair(12, 0);
    scenario.calls = 0;
    let fault = |at, lasts, what| Fault { at, lasts, what };
    scenario.faults = vec![
        fault(3 * MS, 2 * MS, What::Freeze(2)),
        fault(3 * MS + 100 * US, 1, What::Burst(2, 1)),
        fault(4 * MS, 20 * MS, What::Kill(0)),
    ];
    let report = hold(&scenario);
    assert_eq!(report.succeeded, 1 + probes(&report));
    let alone = report.servers[1].rejected() + report.servers[1].cancels_sent;
    assert_eq!(alone, 0, "it is served, and no twin is told");
}

#[test]
fn a_copy_that_can_not_start_any_more_leaves_its_twin_alone() {
    // Server 0 stands still until the copies in its queue have expired; of their callers, who are
    // done by then, it has not heard. It looks at its queue before its timers.
    let second = Duration::from_secs(1);
    let mut scenario = pair(13, 0);
    scenario.calls = 0;
    scenario.timers_last = true;
    scenario.nothing_fails = false;
    scenario.deadline = Span::Fixed(20 * MS);
    scenario.service.span = Span::Fixed(5 * MS);
    scenario.service.look = Look::Never;
    scenario.link =
        LinkConfig { hello_timeout: second, ping_after: second, dead_after: 3 * second };
    let fault = |at, lasts, what| Fault { at, lasts, what };
    scenario.faults = vec![
        fault(3 * MS, 1, What::Burst(2, 8)),
        fault(3 * MS + 200 * US, 40 * MS, What::Freeze(0)),
        fault(3 * MS + 200 * US, 60 * MS, What::Block(2, 0)),
        fault(3 * MS + 200 * US, 60 * MS, What::Block(1, 0)),
    ];
    let report = hold(&scenario);
    let shed = report.servers[0].shed_expired + report.servers[0].shed_too_late;
    assert!(shed > 0, "copies expired in its queue: {:?}", report.servers[0]);
}

#[test]
fn a_tombstone_stops_no_request_whose_twin_is_elsewhere() {
    // Server 2 claims, while copy #0 is on its way to server 0, that the copy's twin has started
    // there; but the twin is at server 1, which stands still.
    let mut scenario = pair(14, 0);
    scenario.servers = 3;
    scenario.calls = 0;
    scenario.links = vec![(3, 0, Span::Fixed(600 * US))];
    let fault = |at, lasts, what| Fault { at, lasts, what };
    scenario.faults = vec![
        fault(2 * MS + 900 * US, 5 * MS, What::Freeze(1)),
        fault(3 * MS, 1, What::Burst(3, 1)),
        fault(3 * MS + 200 * US, 1, What::Forge(2)),
    ];
    let report = hold(&scenario);
    assert!(report.servers[0].tombstones_made > 0, "the claim was remembered");
    assert_eq!(report.servers[0].tombstones_hit, 0, "and stopped nothing");
}

#[test]
fn what_a_server_counted_before_it_died_stays_in_the_report() {
    let mut scenario = Scenario::calm(15);
    scenario.servers = 1;
    scenario.calls = 20;
    scenario.gap = Span::Fixed(5 * MS);
    scenario.faults = vec![Fault { at: 50 * MS, lasts: MS, what: What::Kill(0) }];
    let report = hold(&scenario);
    assert_eq!(report.servers.len(), 2, "two lives");
    assert!(report.servers.iter().all(|stats| stats.started > 5), "{:?}", report.servers);
    assert_eq!(report.servers.iter().map(|stats| stats.started).sum::<u64>(), report.starts);
}

#[test]
fn in_a_surge_calls_come_so_much_faster_and_each_end_has_its_time() {
    let mut scenario = Scenario::calm(16);
    scenario.gap = Span::Fixed(4 * MS);
    scenario.calls = 100;
    scenario.surge = Some(Surge { from: 100 * MS, until: 140 * MS, percent: 400 });
    let report = hold(&scenario);
    let begun: Vec<Nanos> =
        report.ends.iter().zip(&report.latencies).map(|(end, took)| end - took).collect();
    let within = |from, until| begun.iter().filter(|&&at| from <= at && at < until).count();
    assert_eq!((within(56 * MS, 96 * MS), within(104 * MS, 140 * MS)), (10, 36));
    assert_eq!(within(144 * MS, 184 * MS), 10);
}

#[test]
fn a_server_without_power_is_found_out_by_its_silence_and_costs_no_call() {
    for (policy, mesh) in
        [(Policy::None, true), (tied(0), true), (tied(0), false), (Policy::hedged(), true)]
    {
        let mut scenario = pair(17, 0);
        scenario.mesh = mesh;
        scenario.classes = vec![Class::with(policy)];
        // Longer than a link is patient, so that it is not the machine's return that tells.
        scenario.faults = vec![Fault { at: 10 * MS, lasts: 60 * MS, what: What::Vanish(0) }];
        let report = hold(&scenario);
        assert_eq!(report.succeeded, 10 + probes(&report), "{policy:?}");
        let slowest = report.latencies.iter().max().copied().unwrap_or_default();
        assert!(slowest < 35 * MS, "{policy:?}: {slowest} ns, where links wait for 30 ms");
        assert!(report.clients[0].lost > 0, "{policy:?}: what it had is given up");
        // At the end the first choice is asked again.
        assert!(report.servers[0].started >= probes(&report), "{policy:?}");
    }
}

#[test]
fn a_call_that_loses_all_its_servers_waits_for_one_no_longer_than_its_client_is_patient() {
    // What is judged is that a timer sees to it: its deadline's would come much later.
    let mut scenario = pair(18, 0);
    scenario.calls = 1;
    scenario.deadline = Span::Fixed(5_000 * MS);
    let at = scenario.warm_up + 5 * MS + 500 * US;
    let kill = |server| Fault { at, lasts: 40 * MS, what: What::Kill(server) };
    scenario.faults = vec![kill(0), kill(1)];
    let report = hold(&scenario);
    assert_eq!(report.clients[0].stranded, 1, "it had no server to wait for: {report:?}");
    assert_eq!(report.succeeded, 1 + probes(&report));
}
