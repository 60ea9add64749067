//! Policies that change while calls run, are on trial, or only thought of.

use super::*;
use crate::core::{Candidate, Percentile};

fn fixed(delay: Duration) -> Policy {
    Policy::Hedged(HedgePolicy { delay: Delay::Fixed(delay), ..HedgePolicy::default() })
}

#[test]
fn a_call_that_is_under_way_keeps_its_policy_and_the_next_has_the_new_one() {
    let mut world = World::new();
    let old = world.start(world.hedged);
    world.calls.replace(world.hedged, fixed(MS(1))).unwrap();
    let new = world.start(world.hedged);
    world.sends.clear();
    world.pass(MS(1));
    let (_, request) = world.sends[0];
    assert_eq!((world.sends.len(), request.attempt.seq), (1, new.seq()));
    world.sends.clear();
    world.pass(MS(4));
    let (_, request) = world.sends[0];
    assert_eq!((world.sends.len(), request.attempt.seq), (1, old.seq()));
    for call in [old, new] {
        world.ok(A, call, 0);
        world.ended(B, call, 1, How::Withdrawn);
    }
    world.at_rest();
}

#[test]
fn a_reply_is_judged_by_the_name_and_hedges_by_the_policy_of_old_after_any_change() {
    let mut world = World::new();
    let call = world.start(world.hedged);
    world.calls.replace(world.hedged, Policy::None).unwrap();
    world.sends.clear();
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sent(), (B, 1, Cause::Hedge));
    assert!(world.ok(B, call, 1).is_some());
    world.ended(A, call, 0, How::Aborted);
    world.at_rest();
}

#[test]
fn the_switch_stops_what_is_due_and_announced_and_all_that_begins() {
    let mut world = World::new();
    let switch = world.calls.config().switch.clone();
    let (hedged, tied) = (world.start(world.hedged), world.start(world.tied));
    world.sends.clear();
    switch.turn_off();
    let late = world.start(world.tied);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    world.pass(HEDGE_DELAY);
    world.nothing_sent();
    assert_eq!(world.calls.counters().denied.killed, 3);
    // A copy in the place of one that ended still goes.
    world.overloaded(A, late, 0);
    assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
    assert!(world.ok(B, late, 1).is_some());
    for call in [hedged, tied] {
        assert!(world.ok(A, call, 0).is_some());
    }
    switch.turn_on();
    let call = world.start(world.hedged);
    world.sends.clear();
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sends.len(), 1);
    world.ok(A, call, 0);
    world.ok(B, call, 0);
}

#[test]
fn a_share_of_the_calls_runs_the_policy_on_trial_and_the_figures_are_apart() {
    let mut world = World::new();
    let plain = world.calls.register(Policy::None).unwrap();
    world.calls.try_out(plain, fixed(MS(1)), 0.25).unwrap();
    for _ in 0..1000 {
        let call = world.start(plain);
        world.pass(MS(2));
        assert!(world.ok(A, call, 0).is_some());
        if world.sends.len() == 2 {
            world.ended(B, call, 1, How::Withdrawn);
        }
        world.sends.clear();
    }
    let trial = world.calls.trial(plain).unwrap();
    assert!((200..300).contains(&trial.canary.ok), "{}", trial.canary.ok);
    assert_eq!(trial.canary.hedges, trial.canary.ok);
    assert_eq!((trial.stable.hedges, trial.stable.ok), (0, 1000 - trial.canary.ok));
    world.at_rest();
}

#[test]
fn a_method_pays_out_of_its_own_budget_and_the_clients() {
    let mut world = World::new();
    let one = BudgetConfig { fraction: 0.0, per_second: 0.0, burst: 1, ..BudgetConfig::default() };
    let own = std::sync::Arc::new(Budget::new(one).unwrap());
    world.calls.limit(world.hedged, Some(own.clone())).unwrap();
    let first = world.start(world.hedged);
    let second = world.start(world.hedged);
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sends.len(), 3, "one hedge of two");
    assert_eq!(world.calls.counters().denied.method_no_token, 1);
    assert_eq!((own.level(), world.outstanding()), (0, 1));
    for call in [first, second] {
        world.ok(A, call, 0);
        world.ended(B, call, 1, How::Withdrawn);
    }
    assert_eq!((own.level(), own.outstanding()), (1, 0), "it came back to both");
    assert_eq!(world.calls.budget().level(), 256);
    world.at_rest();
}

#[test]
fn a_method_has_no_more_second_copies_out_than_its_own_budget_allows() {
    let mut world = World::new();
    let one = BudgetConfig { outstanding: 1, ..BudgetConfig::default() };
    let own = std::sync::Arc::new(Budget::new(one).unwrap());
    world.calls.limit(world.tied, Some(own.clone())).unwrap();
    let (first, _) = (world.start(world.tied), world.start(world.tied));
    let denied = world.calls.counters().denied;
    assert_eq!((denied.method_outstanding, denied.method_no_token, denied.no_token), (1, 0, 0));
    assert_eq!((own.outstanding(), world.outstanding()), (1, 1));
    world.ok(A, first, 0).unwrap();
    world.start(world.tied);
    assert_eq!(world.calls.counters().denied.method_outstanding, 1, "it has come back");
}

#[test]
fn what_the_clients_budget_denies_the_methods_gets_back() {
    let mut world = World::of_burst(0);
    let own = std::sync::Arc::new(Budget::new(BudgetConfig::default()).unwrap());
    world.calls.limit(world.tied, Some(own.clone())).unwrap();
    let call = world.start(world.tied);
    assert_eq!(world.calls.counters().denied.no_token, 1);
    assert_eq!((own.level(), own.outstanding()), (256, 0));
    assert!(world.ok(A, call, 0).is_some());
}

/// Of a hundred calls ten take 20 ms, all others 2 ms; replicas take turns.
fn shadowed(candidates: &[Candidate]) -> World {
    let mut world = World::with(BudgetConfig::default(), |config| {
        config.pick = PickRule::RoundRobin;
    });
    let plain = world.calls.register(Policy::None).unwrap();
    world.calls.shadow(plain, candidates).unwrap();
    for number in 0..1000 {
        let call = world.start(plain);
        let (replica, n, _) = world.sent();
        world.pass(if number % 10 == 9 { MS(20) } else { MS(2) });
        assert!(world.ok(replica, call, n).is_some());
    }
    world.nothing_sent();
    world.none = plain;
    world
}

#[test]
fn candidates_say_what_they_would_have_launched_and_won_and_send_nothing() {
    let percentile = Percentile { quantile: 0.85, ..Percentile::default() };
    let candidates = [
        Candidate::Hedge(Delay::Fixed(MS(5))),
        Candidate::Hedge(Delay::Fixed(MS(30))),
        Candidate::Hedge(Delay::Percentile(percentile)),
        Candidate::Tie(Stagger::Fixed(US(100))),
    ];
    let world = shadowed(&candidates);
    let [five, thirty, learned, tied] = world.calls.shadows(world.none) else { panic!() };
    assert_eq!((five.calls, five.launched, five.won), (1000, 100, 100));
    assert!((6_900_000..7_200_000).contains(&five.latency.max()), "{}", five.latency.max());
    assert_eq!((thirty.calls, thirty.launched), (1000, 0));
    assert!((850..1000).contains(&learned.calls), "none before it has samples: {}", learned.calls);
    assert!((80..=100).contains(&learned.won), "{}", learned.won);
    assert_eq!((tied.launched, tied.won), (1000, 100), "it is for the slow ones that it helps");
}

#[test]
fn a_call_that_misses_its_deadline_counts_as_one_that_a_second_copy_would_have_saved() {
    let mut world = World::new();
    let plain = world.calls.register(Policy::None).unwrap();
    world.calls.shadow(plain, &[Candidate::Hedge(Delay::Fixed(MS(5)))]).unwrap();
    let call = world.start(plain);
    world.pass(MS(1));
    world.ok(A, call, 0);
    world.closed(A);
    let call = world.start(plain);
    world.pass(MS(1));
    world.ok(B, call, 0);
    world.start(plain);
    world.pass(DEADLINE);
    assert_eq!(world.result(), Err(ErrorKind::DeadlineExceeded));
    let [shadow] = world.calls.shadows(plain) else { panic!() };
    assert_eq!((shadow.calls, shadow.launched, shadow.won), (3, 1, 1));
}

#[test]
fn picks_ejection_and_retries_follow_another_configuration_while_calls_run() {
    let mut world = World::new();
    let under_way = world.start(world.none);
    assert_eq!(world.sent().0, A);
    let rule = RetryConfig { most: 1, first: MS(2), max: MS(2) };
    let config = Config { pick: PickRule::RoundRobin, retry: Some(rule), ..Config::default() };
    world.calls.follow(&config).unwrap();
    let firsts = [(); 3].map(|()| {
        world.start(world.none);
        world.sent().0
    });
    assert_eq!(firsts, [A, B, C]);
    for (n, replica) in [A, B, C].into_iter().enumerate() {
        world.overloaded(replica, under_way, n as u16);
    }
    world.waits();
    let wrong = Config { patience: MS(3_600_001), ..config };
    assert_eq!(world.calls.follow(&wrong).unwrap_err().field, "patience");
}

#[test]
fn who_is_ejected_when_ejection_is_switched_off_is_asked_again() {
    let mut world = World::new();
    for _ in 0..5 {
        let call = world.start(world.none);
        world.reply(A, call, 0, Status::Failed);
        world.ok(B, call, 1);
    }
    world.sends.clear();
    world.start(world.none);
    assert_eq!(world.sent().0, B, "A is ejected");
    let config = Config { eject: None, pick: PickRule::First, ..Config::default() };
    world.calls.follow(&config).unwrap();
    world.start(world.none);
    assert_eq!(world.sent().0, A);
}
