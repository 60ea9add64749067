//! What budgets are for: all servers slow down at once, and surges come on top of what is ordinary.

use super::*;

/// Three servers, and calls that earn second copies as they succeed, a `fraction` of one each. Some
/// may fail.
fn on_a_budget(load: f64, policy: Policy, fraction: f64, burst: u32, outstanding: u32) -> Scenario {
    Scenario {
        budget: BudgetConfig { per_second: 0.0, fraction, burst, outstanding, drain: 1.0 },
        nothing_fails: false,
        ..queues(3, load, policy)
    }
}

fn all_slow_down(policy: Policy) -> Scenario {
    let slow = |server| Fault {
        at: 2_000 * SERVICE,
        lasts: 10_000 * SERVICE,
        what: What::Slow(server, 1_000),
    };
    Scenario {
        calls: 20_000,
        deadline: Span::Fixed(1_000 * SERVICE),
        faults: (0..3).map(slow).collect(),
        ..on_a_budget(0.3, policy, 0.05, 20, 64)
    }
}

/// What the calls of such a world earned, and could use at once.
fn earned(client: &Counters) -> f64 {
    0.05 * client.ok as f64 + 20.0
}

#[test]
fn when_everything_slows_down_hedges_stay_within_their_budget() {
    let mut scenario = all_slow_down(hedged(3.0));
    scenario.server.slots = 8;
    let (report, _) = run(&scenario);
    let client = &report.clients[0];
    let most = earned(client);
    println!("{} hedges of {} calls, at most {most}", client.hedges, client.calls);
    assert!(client.hedges as f64 <= most);
    assert!(client.denied.no_token > 5_000, "nearly every call would have hedged: {client:?}");
}

#[test]
fn when_everything_slows_down_ties_stay_within_their_budget_and_get_back_what_was_withdrawn() {
    for policy in [tied(0), tied_then_hedged(3.0)] {
        // Messages take so long that of an idle pair both copies start; of a busy one the second is
        // withdrawn.
        let mut scenario = all_slow_down(policy);
        scenario.delay = Span::Fixed(SERVICE / 10);
        scenario.service.look = Look::Never;
        let (report, _) = run(&scenario);
        let client = &report.clients[0];
        let earned = earned(client);
        let Counters { tied, withdrawn, wasted, .. } = client;
        println!("{wasted} of {tied} pairs ran twice, {withdrawn} were withdrawn; {earned} earned");
        assert!(*wasted as f64 <= earned + 64.0, "executions beyond one a call: {client:?}");
        assert!(*tied as f64 > 1.2 * earned, "tokens come back with what is withdrawn: {client:?}");
        assert!(
            client.denied.no_token > 5_000,
            "nearly every call would have been tied: {client:?}"
        );
    }
}

#[test]
fn after_a_surge_latency_comes_back_to_what_it_was() {
    let retry = RetryConfig { most: 3, first: HOUR / 3_600_000, max: HOUR / 360_000 };
    for (policy, retry) in [
        (Policy::None, None),
        (hedged(2.0), None),
        (tied(0), None),
        // What is tried again is more load just when there is too much.
        (Policy::None, Some(retry)),
        (tied(0), Some(retry)),
    ] {
        let mut scenario = on_a_budget(0.5, policy, 0.1, 100, 100);
        scenario.retry = retry;
        scenario.calls = 30_000;
        scenario.deadline = Span::Fixed(50 * SERVICE);
        // Fifty times in a row so many calls at once as the servers do in a hundred service times.
        let burst =
            |n: u64| Fault { at: (5_000 + 20 * n) * SERVICE, lasts: 1, what: What::Burst(3, 300) };
        scenario.faults = (0..50).map(burst).collect();
        let report = World::new(scenario, false).run();
        assert!(report.broken.is_none(), "{:?}", report.broken);
        let mean =
            |part: &[Nanos]| part.iter().sum::<Nanos>() as f64 / part.len() as f64 / SERVICE as f64;
        let all = &report.latencies;
        let (before, after) = (mean(&all[500..5_000]), mean(&all[all.len() - 5_000..]));
        println!("{policy:?}: {before:.3} before, {after:.3} after, {} failed", report.failed);
        assert_eq!(report.clients[0].retries > 0, retry.is_some(), "{:?}", report.clients[0]);
        assert!(after < before * 1.3, "{before:.3} before the surge, {after:.3} after it");
    }
}

#[test]
fn a_surge_is_worked_off_as_a_fluid_would_be() {
    let (servers, load, burst, times) = (3_u32, 0.5, 3_000, 10);
    for (name, policy) in [("none", Policy::None), ("tied", tied(0))] {
        let mut calm = queues(servers as usize, load, policy);
        calm.calls = 100_000;
        calm.client.max_calls = 1 << 16;
        let mut surges = calm.clone();
        // Each is worked off in 2000 service times, well before the next.
        surges.faults = (1..=times)
            .map(|n| Fault { at: 6_000 * n * SERVICE, lasts: 1, what: What::Burst(3, burst) })
            .collect();
        let total = |scenario: Scenario| {
            let report = World::new(scenario, false).run();
            assert!(report.broken.is_none(), "{:?}", report.broken);
            let calls = report.latencies.len() as f64;
            (report.latencies.iter().sum::<Nanos>() as f64 / SERVICE as f64, calls)
        };
        let (before, calls) = total(calm);
        let (with, more) = total(surges);
        assert!((more - calls - (burst * times) as f64).abs() < 0.5, "every call is answered");
        let waited = (with - before / calls * more) / times as f64;
        // All at once: so many times the capacity for no time.
        let (burst, short) = (burst as f64, 1e-6);
        let surge = 1.0 + burst / (f64::from(servers) * short);
        let theory = backlog(servers, load, surge, short).waited;
        close(&format!("waited in all after a burst, {name}"), waited, theory, 0.05);
    }
}
