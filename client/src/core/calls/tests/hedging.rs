//! Delayed hedges.

use super::*;
use crate::core::{Percentile, PolicyState};

#[test]
fn a_slow_call_is_hedged_after_the_delay_and_not_before() {
    let mut world = World::new();
    let call = world.start(world.hedged);
    world.sent();
    world.pass(HEDGE_DELAY - Duration::from_nanos(1));
    world.nothing_sent();
    world.pass(Duration::from_nanos(1));
    assert_eq!(world.sends[0].1.tie, None);
    assert_eq!(world.sent(), (B, 1, Cause::Hedge));
    let done = world.ok(B, call, 1).unwrap();
    assert_eq!((done.outcome.attempts, done.outcome.hedges), (2, 1));
    assert_eq!(done.outcome.winner.unwrap().cause, Cause::Hedge);
    assert_eq!(world.cancelled(), [(A, 0)], "on the wire, once");
    assert_eq!(world.ok(A, call, 0), None, "a late loser");
    let counters = world.calls.counters();
    assert_eq!((counters.hedges, counters.hedge_wins, counters.wasted), (1, 1, 1));
    world.at_rest();
}

#[test]
fn a_hedge_whose_reply_was_not_used_is_no_win() {
    let mut world = World::new();
    let call = world.start(world.hedged);
    world.pass(HEDGE_DELAY);
    assert!(world.ok(A, call, 0).is_some());
    assert_eq!(world.cancelled(), [(B, 1)]);
    world.ok(B, call, 1);
    assert_eq!((world.calls.counters().hedges, world.calls.counters().hedge_wins), (1, 0));
    world.at_rest();
}

#[test]
fn a_reply_as_the_timer_fires_leaves_no_hedge() {
    let mut world = World::new();
    let call = world.start(world.hedged);
    world.sent();
    world.now += HEDGE_DELAY;
    assert!(world.ok(A, call, 0).is_some());
    world.pass(Duration::ZERO);
    world.nothing_sent();
    world.at_rest();
}

#[test]
fn a_reply_in_the_same_turn_as_the_timer_leaves_the_hedge_unsent() {
    let mut world = World::new();
    let call = world.start(world.hedged);
    world.sent();
    world.now += HEDGE_DELAY;
    world.calls.on_timeout(world.now);
    assert!(world.ok(A, call, 0).is_some());
    world.nothing_sent();
    assert_eq!(world.calls.counters().attempts, 1);
    world.at_rest();
}

#[test]
fn an_error_while_the_hedge_is_out_is_held_until_the_hedge_answers() {
    let mut world = World::new();
    let call = world.start(world.hedged);
    world.pass(HEDGE_DELAY);
    assert_eq!(world.reply(A, call, 0, Status::Failed), None);
    world.waits();
    assert_eq!(world.ok(B, call, 1).unwrap().result, Ok(()));
    world.at_rest();
}

#[test]
fn a_rejection_does_not_beat_the_slow_primary() {
    let mut world = World::new();
    let call = world.start(world.hedged);
    world.pass(HEDGE_DELAY);
    world.overloaded(B, call, 1);
    world.waits();
    assert_eq!(world.ok(A, call, 0).unwrap().result, Ok(()));
    world.at_rest();
}

#[test]
fn an_error_with_the_hedge_still_pending_sends_the_next_copy_now() {
    let mut world = World::new();
    let call = world.start(world.hedged);
    world.sent();
    assert_eq!(world.reply(A, call, 0, Status::Failed), None);
    assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sent(), (C, 2, Cause::Hedge), "the new copy may be slow, too");
    world.ok(C, call, 2).unwrap();
    world.ended(B, call, 1, How::Withdrawn);
    world.at_rest();
}

#[test]
fn a_denied_hedge_is_a_no_op() {
    let mut world = World::of_burst(0);
    let call = world.start(world.hedged);
    world.sent();
    world.pass(HEDGE_DELAY);
    world.nothing_sent();
    assert_eq!(world.cancelled(), []);
    assert_eq!(world.calls.counters().denied.no_token, 1);
    world.pass(MS(20));
    assert_eq!(world.ok(A, call, 0).unwrap().result, Ok(()));
    world.at_rest();
}

#[test]
fn without_another_replica_there_is_no_hedge_but_a_counter() {
    let mut world = World::new();
    world.closed(B);
    world.closed(C);
    let call = world.start(world.hedged);
    world.sent();
    world.pass(HEDGE_DELAY);
    world.nothing_sent();
    assert_eq!(world.calls.counters().denied.no_candidate, 1);
    world.ok(A, call, 0).unwrap();
    world.at_rest();
}

#[test]
fn a_hedge_goes_to_another_failure_domain_where_there_is_one() {
    let mut world = World::new();
    world.calls.add_replica(B, u32::from(A.0));
    world.start(world.hedged);
    world.sent();
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sent(), (C, 1, Cause::Hedge));
    world.closed(C);
    assert_eq!(world.sends.len(), 0, "A is still at it");
    world.calls.on_connected(C, station(C));
    world.calls.add_replica(C, u32::from(A.0));
    world.start(world.hedged);
    world.sent();
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sent(), (B, 1, Cause::Hedge), "the same domain is better than none");
}

#[test]
fn no_hedge_when_too_little_time_would_be_left() {
    let mut world = World::new();
    let spec = world.spec(world.hedged);
    let spec = Spec { deadline: world.now + HEDGE_DELAY + US(100), ..spec };
    world.try_start(spec).unwrap();
    world.sent();
    assert_eq!(world.calls.counters().denied.too_late, 1, "it is not even planned");
    world.pass(HEDGE_DELAY);
    world.nothing_sent();
    assert_eq!(world.calls.counters().denied.too_late, 1);
}

#[test]
fn large_payloads_and_calls_of_extra_copies_are_not_hedged() {
    let mut world = World::new();
    let spec = world.spec(world.both);
    world.try_start(Spec { size: 1 << 17, ..spec }).unwrap();
    world.try_start(Spec { from_extra: true, ..spec }).unwrap();
    world.try_start(Spec { idempotent: false, ..spec }).unwrap();
    assert_eq!(world.sends.len(), 3);
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sends.len(), 3);
    let denied = world.calls.counters().denied;
    assert_eq!((denied.too_large, denied.from_extra, denied.not_idempotent), (2, 1, 1));
}

#[test]
fn without_samples_a_percentile_hedges_nothing() {
    let mut world = World::new();
    let learned = world.calls.register(Policy::hedged()).unwrap();
    world.start(learned);
    world.sent();
    world.pass(MS(49));
    world.nothing_sent();
    assert_eq!(world.calls.counters().denied.no_delay, 1);
}

#[test]
fn the_percentile_of_what_copies_took_becomes_the_delay() {
    let mut world = World::new();
    let learned = world.calls.register(Policy::hedged()).unwrap();
    for _ in 0..200 {
        let call = world.start(world.none);
        world.now += MS(2);
        world.ok(A, call, 0).unwrap();
    }
    world.sends.clear();
    world.start(learned);
    world.sent();
    world.pass(US(1970));
    world.nothing_sent();
    world.pass(US(60));
    assert_eq!(world.sent().2, Cause::Hedge);
}

#[test]
fn copies_that_were_stopped_teach_that_they_took_longer() {
    let mut world = World::new();
    let learned = world.calls.register(Policy::hedged()).unwrap();
    for number in 0..400 {
        let call = world.start(world.none);
        world.now += MS(2);
        match number % 2 {
            0 => drop(world.ok(A, call, 0).unwrap()),
            _ => {
                world.calls.cancel(call, world.now);
                world.ended(A, call, 0, How::Aborted);
            }
        }
    }
    world.start(learned);
    assert_eq!(world.calls.counters().denied.too_late, 1, "the delay is the maximum, a second");
}

#[test]
fn fast_errors_do_not_teach_the_delay() {
    let mut world = World::new();
    for _ in 0..200 {
        let call = world.start(world.none);
        world.reply(A, call, 0, Status::BadRequest).unwrap();
    }
    let learned = world.calls.register(Policy::hedged()).unwrap();
    world.start(learned);
    assert_eq!(world.calls.counters().denied.no_delay, 1);
}

#[test]
fn a_call_has_no_more_hedges_than_it_may() {
    let mut world = World::new();
    let hedge = HedgePolicy { max_hedges: 2, ..HedgePolicy::default() };
    let hedge = HedgePolicy { delay: Delay::Fixed(HEDGE_DELAY), ..hedge };
    world.calls.add_replica(ReplicaId(4), 4);
    world.calls.on_connected(ReplicaId(4), station(ReplicaId(4)));
    let two = world.calls.register(Policy::Hedged(hedge)).unwrap();
    let call = world.start(two);
    for expected in [(A, 0, Cause::First), (B, 1, Cause::Hedge), (C, 2, Cause::Hedge)] {
        assert_eq!(world.sent(), expected);
        world.pass(HEDGE_DELAY);
    }
    world.nothing_sent();
    assert_eq!(world.outstanding(), 2);
    world.ok(A, call, 0).unwrap();
    assert_eq!(world.cancelled(), [(B, 1), (C, 2)]);
    world.ended(B, call, 1, How::Aborted);
    world.ended(C, call, 2, How::Withdrawn);
    world.at_rest();
    assert_eq!(world.calls.budget().level(), 255, "one ran, one came back");
}

#[test]
fn the_deadline_with_a_hedge_out_cancels_both() {
    let mut world = World::new();
    let call = world.start(world.hedged);
    world.pass(HEDGE_DELAY);
    world.pass(DEADLINE);
    assert_eq!(world.result(), Err(ErrorKind::DeadlineExceeded));
    assert_eq!(world.cancelled(), [(A, 0), (B, 1)]);
    world.ended(A, call, 0, How::Aborted);
    world.ended(B, call, 1, How::Withdrawn);
    world.at_rest();
}

#[test]
fn when_all_replicas_slow_down_executions_stay_within_the_budget_under_every_policy() {
    let budget = BudgetConfig { per_second: 0.0, burst: 10, outstanding: 20, ..Default::default() };
    for policy in 0..4 {
        let mut world = World::with(budget, |_| {});
        let policy = [world.none, world.hedged, world.tied, world.both][policy];
        for _ in 0..1000 {
            let call = world.start(policy);
            world.pass(STAGGER);
            // Both copies start, since neither server hears of the other in time, and so does the
            // hedge.
            world.pass(HEDGE_DELAY + MS(10));
            for (replica, request) in core::mem::take(&mut world.sends) {
                world.ok(replica, call, request.attempt.n);
            }
        }
        let counters = world.calls.counters();
        // 5 % of a thousand calls, the burst, and with ties what may be outstanding.
        let lent = if counters.tied > 0 { 20 } else { 0 };
        assert!(counters.executions <= 1000 + 50 + 10 + lent, "{}", counters.executions);
        assert_eq!(counters.executions, counters.attempts);
        let denied = counters.denied.no_token;
        assert!(policy == world.none || denied > 900, "{denied} were denied");
        world.at_rest();
    }
}

#[test]
fn hedging_switches_itself_off_when_servers_push_back_and_comes_back_later() {
    let mut world = World::new();
    for _ in 0..1000 {
        let call = world.start(world.hedged);
        let (refuses, ..) = world.sent();
        world.overloaded(refuses, call, 0);
        let (serves, ..) = world.sent();
        world.pass(MS(1));
        world.ok(serves, call, 1).unwrap();
    }
    world.pass(MS(10));
    let before = world.calls.counters();
    world.sends.clear();
    let call = world.start(world.hedged);
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sends.len(), 1, "no hedge");
    world.ok(world.sends[0].0, call, 0).unwrap();
    assert_eq!(world.calls.counters().switched_off.pushback, 1);
    assert_eq!(world.calls.counters().denied.switched_off, before.denied.switched_off + 1);
    assert_eq!(world.calls.policy_state(world.hedged).unwrap().hedging, Some(false));
    world.pass(Duration::from_secs(5));
    world.sends.clear();
    world.start(world.hedged);
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sends.len(), 2, "on again");
    assert_eq!(world.calls.counters().switched_on, 1);
    assert_eq!(world.calls.policy_state(world.hedged).unwrap().hedging, Some(true));
}

#[test]
fn the_state_of_a_policy_tells_its_delay_as_it_was_found_last_and_its_own_budget() {
    let mut world = World::new();
    let percentile = Percentile { fallback: Some(MS(7)), ..Percentile::default() };
    let hedge = HedgePolicy { delay: Delay::Percentile(percentile), ..HedgePolicy::default() };
    let learning = world.calls.register(Policy::Hedged(hedge)).unwrap();
    let own = Budget::new(BudgetConfig { burst: 3, ..BudgetConfig::default() }).unwrap();
    world.calls.limit(learning, Some(own.into())).unwrap();
    let state = |world: &World, id| world.calls.policy_state(id);
    let plain =
        PolicyState { hedging: None, delay: None, budget_level: None, budget_outstanding: None };
    let (hedging, budget_level, budget_outstanding) = (Some(true), Some(3), Some(0));
    let expected = PolicyState { hedging, budget_level, budget_outstanding, ..plain };
    assert_eq!(state(&world, learning), Some(expected));
    world.start(learning);
    world.pass(MS(7));
    let expected = PolicyState {
        delay: Some(MS(7)),
        budget_level: Some(2),
        budget_outstanding: Some(1),
        ..expected
    };
    assert_eq!(state(&world, learning), Some(expected), "one hedge is out");
    assert_eq!(state(&world, world.none), Some(plain));
    assert_eq!(state(&world, PolicyId(99)), None);
}
