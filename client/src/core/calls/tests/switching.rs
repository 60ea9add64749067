//! Hedging that switches itself off, for each of its reasons.

use super::*;
use crate::core::{Notice, OffReason, Percentile, Placement, SwitchedOff};

const SLOW: Duration = Duration::from_millis(2);

/// Hedges after [`SLOW`], as no percentile implies.
const FIXED: Delay = Delay::Fixed(SLOW);

/// Makes two windows of calls, each of that fate, and long enough for hedges to fall due or not.
fn after_calls(world: &mut World, delay: Delay, fate: impl Fn(&mut World, CallKey)) -> PolicyId {
    let hedge = HedgePolicy { delay, ..HedgePolicy::default() };
    let policy = world.calls.register(Policy::Hedged(hedge)).unwrap();
    for _ in 0..600 {
        let call = world.start(policy);
        fate(world, call);
        world.pass(SLOW);
        world.sends.clear();
        world.at_rest();
    }
    policy
}

/// Hedges of these calls were switched off once, for that reason, and of no others.
#[track_caller]
fn switched_off(world: &mut World, policy: PolicyId, reason: OffReason, times: SwitchedOff) {
    assert_eq!(world.calls.counters().switched_off, times);
    assert_eq!(world.calls.policy_state(policy).unwrap().hedging, Some(false));
    let told = [(); 2].map(|()| {
        loop {
            match world.calls.poll_notice() {
                Some(Notice::Ejected { .. } | Notice::Readmitted { .. }) => {}
                other => break other,
            }
        }
    });
    assert_eq!(told, [Some(Notice::SwitchedOff { method: Method(3), policy, reason }), None]);
}

/// Every replica that is asked says so.
fn all_say(world: &mut World, call: CallKey, status: Status) {
    while let Some((replica, request)) = world.sends.pop() {
        world.reply(replica, call, request.attempt.n, status);
    }
}

/// Nobody answers before the hedge is out, if there is one; then the first copy does.
fn first_wins(world: &mut World, call: CallKey) {
    world.pass(SLOW);
    let sends = core::mem::take(&mut world.sends);
    world.ok(sends[0].0, call, 0).unwrap();
    if let Some(&(hedge, _)) = sends.get(1) {
        world.ended(hedge, call, 1, How::Withdrawn);
    }
}

#[test]
fn calls_that_fail_switch_hedging_off() {
    let mut world = World::new();
    let fails = |world: &mut World, call| all_say(world, call, Status::Failed);
    let policy = after_calls(&mut world, FIXED, fails);
    let times = SwitchedOff { errors: 1, ..SwitchedOff::default() };
    switched_off(&mut world, policy, OffReason::Errors, times);
}

#[test]
fn servers_that_say_how_much_waits_there_switch_hedging_off() {
    for (queued, queued_off) in [(64, 0), (65, 1)] {
        let mut world = World::new();
        world.load.queued = queued;
        let policy = after_calls(&mut world, FIXED, |world, call| all_say(world, call, Status::Ok));
        let times = SwitchedOff { queued: queued_off, ..SwitchedOff::default() };
        if queued_off == 0 {
            assert_eq!(world.calls.counters().switched_off, times);
        } else {
            switched_off(&mut world, policy, OffReason::Queued, times);
        }
    }
}

#[test]
fn hedges_that_never_win_switch_hedging_off() {
    let mut world = World::new();
    let policy = after_calls(&mut world, FIXED, first_wins);
    let times = SwitchedOff { no_wins: 1, ..SwitchedOff::default() };
    switched_off(&mut world, policy, OffReason::NoWins, times);
}

#[test]
fn far_more_hedges_than_the_percentile_implies_switch_hedging_off() {
    let mut world = World::new();
    let percentile =
        Percentile { fallback: Some(SLOW), least_samples: 1_000, ..Default::default() };
    let policy = after_calls(&mut world, Delay::Percentile(percentile), first_wins);
    let times = SwitchedOff { excess: 1, ..SwitchedOff::default() };
    switched_off(&mut world, policy, OffReason::Excess, times);
}

#[test]
fn hedges_that_win_leave_hedging_on() {
    let mut world = World::new();
    let policy = after_calls(&mut world, FIXED, |world, call| {
        world.pass(SLOW);
        let [(first, _), (hedge, _)] = world.sends[..] else { panic!("no hedge") };
        world.ok(hedge, call, 1).unwrap();
        world.ended(first, call, 0, How::Withdrawn);
    });
    assert_eq!(world.calls.counters().switched_off, SwitchedOff::default());
    assert_eq!(world.calls.policy_state(policy).unwrap().hedging, Some(true));
}

#[test]
fn hedges_of_calls_to_a_far_replica_are_judged_by_themselves() {
    let mut world = World::new();
    let far = Placement { distance: 1, domain: u32::from(C.0), ..Placement::default() };
    world.calls.place_replica(C, far).unwrap();
    let policy = after_calls(&mut world, FIXED, first_wins);
    assert_eq!(world.calls.counters().switched_off.no_wins, 1);
    let before = world.calls.counters().denied;
    world.closed(A);
    world.closed(B);
    world.start(policy);
    assert_eq!(world.sent(), (C, 0, Cause::First));
    world.pass(SLOW);
    let denied = world.calls.counters().denied - before;
    assert_eq!((denied.switched_off, denied.no_candidate), (0, 1), "it fell due");
}
