//! Tied pairs.

use super::*;
use crate::core::Token;

/// A call whose both copies are out: #0 at A, #1 at B.
fn pair(world: &mut World) -> CallKey {
    let policy = world.tied;
    both_out(world, policy)
}

/// The same, with a hedge to come.
fn hedged_pair(world: &mut World) -> CallKey {
    let policy = world.both;
    both_out(world, policy)
}

fn both_out(world: &mut World, policy: PolicyId) -> CallKey {
    let call = world.start(policy);
    world.pass(STAGGER);
    world.sends.clear();
    call
}

#[test]
fn both_copies_name_each_other_and_the_second_follows_after_the_stagger() {
    let mut world = World::new();
    let call = world.start(world.tied);
    let first = world.sends[0].1.tie.unwrap();
    assert_eq!(first.twin, Twin { station: station(B), n: 1 });
    assert_eq!(world.sent(), (A, 0, Cause::First));
    world.pass(STAGGER - Duration::from_nanos(1));
    world.nothing_sent();
    world.pass(Duration::from_nanos(1));
    let second = world.sends[0].1.tie.unwrap();
    assert_eq!(second.twin, Twin { station: station(A), n: 0 });
    assert_eq!(second.window, first.window);
    assert_eq!(world.sent(), (B, 1, Cause::First));
    world.ended(B, call, 1, How::Withdrawn);
    let done = world.ok(A, call, 0).unwrap();
    assert_eq!((done.outcome.tied, done.outcome.attempts), (true, 2));
    assert_eq!(world.cancelled(), [], "nothing is left to cancel");
    assert_eq!(world.calls.budget().level(), 256, "the token is back");
    world.at_rest();
}

#[test]
fn without_a_stagger_both_go_out_at_once() {
    let mut world = World::new();
    let tie = TiePolicy { stagger: Stagger::Fixed(Duration::ZERO), ..TiePolicy::default() };
    let tied = world.calls.register(Policy::Tied(tie)).unwrap();
    world.start(tied);
    assert_eq!(world.sends.len(), 2);
}

#[test]
fn the_stagger_follows_the_longer_of_both_round_trips() {
    let mut world = World::new();
    let tied = world.calls.register(Policy::tied()).unwrap();
    world.calls.on_rtt(A, US(100));
    world.calls.on_rtt(B, US(500));
    world.start(tied);
    world.sent();
    world.pass(US(499));
    world.nothing_sent();
    world.pass(US(1));
    assert_eq!(world.sent(), (B, 1, Cause::First));
}

#[test]
fn the_second_copy_goes_to_another_failure_domain() {
    let mut world = World::new();
    world.calls.add_replica(B, u32::from(A.0));
    world.start(world.tied);
    assert_eq!(world.sends[0].1.tie.unwrap().twin.station, station(C));
}

#[test]
fn without_a_token_or_a_second_replica_it_is_one_plain_copy() {
    let mut world = World::of_burst(0);
    let call = world.start(world.tied);
    assert_eq!(world.sends[0].1.tie, None);
    world.pass(STAGGER);
    assert_eq!(world.sends.len(), 1);
    assert!(!world.ok(A, call, 0).unwrap().outcome.tied);
    assert_eq!(world.calls.counters().denied.no_token, 1);

    let mut world = World::new();
    world.closed(B);
    world.closed(C);
    world.start(world.tied);
    assert_eq!(world.sends[0].1.tie, None);
    assert_eq!((world.calls.counters().denied.no_candidate, world.outstanding()), (1, 0));
}

#[test]
fn a_reply_before_the_stagger_leaves_the_second_copy_unsent_and_its_token_unspent() {
    let mut world = World::new();
    let call = world.start(world.tied);
    world.sent();
    assert_eq!(world.outstanding(), 1);
    world.ok(A, call, 0).unwrap();
    world.at_rest();
    world.pass(STAGGER);
    world.nothing_sent();
    assert_eq!(world.calls.counters().untied, 1);
    assert_eq!(world.calls.budget().level(), 256);
}

#[test]
fn if_the_first_ends_before_the_second_is_sent_the_tie_is_void_and_a_fresh_copy_goes_out_now() {
    let mut world = World::new();
    let call = world.start(world.tied);
    world.sent();
    world.ended(A, call, 0, How::Shed);
    assert_eq!(world.sends[0].1.tie, None, "untied");
    assert_eq!(world.sent(), (B, 2, Cause::Redispatch), "#1 is never used");
    world.pass(STAGGER);
    world.nothing_sent();
    assert_eq!(world.ok(B, call, 1), None);
    assert!(world.ok(B, call, 2).is_some());
    assert_eq!(world.calls.budget().level(), 256);
    world.at_rest();
}

#[test]
fn as_many_calls_are_tied_as_may_be_outstanding_however_small_the_burst() {
    let budget = BudgetConfig { burst: 1, outstanding: 50, ..BudgetConfig::default() };
    let mut world = World::with(budget, |_| {});
    let calls: Vec<CallKey> = (0..60).map(|_| world.start(world.tied)).collect();
    let counters = world.calls.counters();
    assert_eq!((counters.tied, counters.denied.outstanding), (50, 10));
    for call in calls {
        world.ok(A, call, 0);
    }
    assert_eq!(world.calls.budget().level(), 1);
    world.at_rest();
}

#[test]
fn a_void_tie_after_an_error_uses_the_token_that_the_second_copy_had() {
    let budget = BudgetConfig { burst: 1, fraction: 0.0, ..BudgetConfig::default() };
    let mut world = World::with(budget, |_| {});
    let call = world.start(world.tied);
    assert_eq!(world.reply(A, call, 0, Status::Failed), None);
    assert!(world.ok(B, call, 2).is_some());
    assert_eq!(world.calls.budget().level(), 0, "two ran, one of them extra");
    world.at_rest();
}

#[test]
fn a_copy_withdrawn_by_its_twin_leaves_its_token_for_one_more_copy() {
    let budget = BudgetConfig { burst: 1, fraction: 0.0, ..BudgetConfig::default() };
    let mut world = World::with(budget, |_| {});
    let call = pair(&mut world);
    world.ended(B, call, 1, How::Withdrawn);
    world.waits();
    world.closed(A);
    assert_eq!(world.sent(), (B, 2, Cause::Redispatch), "B has not failed it");
    assert_eq!(world.calls.counters().uncharged, 0);
    assert!(world.ok(B, call, 2).is_some());
    assert_eq!(world.calls.budget().level(), 0, "A may have run it");
    world.at_rest();
}

#[test]
fn a_starter_that_dies_after_it_cancelled_its_twin_loses_nothing_in_either_order() {
    for withdrawn_first in [true, false] {
        let mut world = World::new();
        let call = pair(&mut world);
        if withdrawn_first {
            world.ended(B, call, 1, How::Withdrawn);
            world.waits();
            world.closed(A);
        } else {
            world.closed(A);
            world.waits();
            world.nothing_sent();
            world.ended(B, call, 1, How::Withdrawn);
        }
        assert_eq!(world.sent(), (B, 2, Cause::Redispatch));
        assert!(world.ok(B, call, 2).is_some());
        world.at_rest();
    }
}

#[test]
fn both_withdrawn_is_answered_with_a_new_copy_at_once() {
    let mut world = World::new();
    let call = pair(&mut world);
    world.ended(A, call, 0, How::Withdrawn);
    world.ended(B, call, 1, How::Withdrawn);
    assert_eq!(world.sent(), (A, 2, Cause::Redispatch));
    assert!(world.ok(A, call, 2).is_some());
    assert_eq!(world.calls.budget().level(), 256, "one ran");
    world.at_rest();
}

#[test]
fn a_replica_that_withdraws_a_copy_which_no_twin_stopped_has_failed_the_call() {
    let mut world = World::new();
    let call = world.start(world.none);
    for (at, n) in [(A, 0), (B, 1), (C, 2)] {
        assert_eq!((world.sends[0].0, world.sent().1), (at, n), "none is asked twice");
        // The first two say that a twin did: but the copy has none.
        world.ended(at, call, n, How::Withdrawn);
    }
    assert_eq!(world.result(), Err(ErrorKind::Shed), "three are connected");
    world.at_rest();
}

#[test]
fn a_replica_that_withdraws_whatever_it_is_sent_is_ejected() {
    let mut world = World::new();
    for _ in 0..5 {
        let call = world.start(world.none);
        world.ended(A, call, 0, How::Withdrawn);
        assert!(world.ok(B, call, 1).is_some());
    }
    assert_eq!(world.calls.counters().ejected, 1);
    world.sends.clear();
    world.start(world.none);
    assert_eq!(world.sent().0, B);
}

/// Its server stopped the copy, and not since its twin started.
fn stopped(world: &mut World, from: ReplicaId, call: CallKey, n: u16, how: How) {
    let ended = Ended { attempt: attempt(call, n), how, by: None, load: Load::default() };
    world.calls.on_ended(from, &ended, world.now);
    world.drain();
}

#[test]
fn a_copy_that_its_server_stopped_of_its_own_accord_as_it_ran_is_followed_only_for_a_token() {
    for burst in [0, 1] {
        let budget = BudgetConfig { burst, fraction: 0.0, ..BudgetConfig::default() };
        let mut world = World::with(budget, |_| {});
        let call = world.start(world.none);
        world.sends.clear();
        stopped(&mut world, A, call, 0, How::Aborted);
        assert_eq!(world.calls.counters().errors, 1);
        if burst == 0 {
            world.nothing_sent();
            assert_eq!(world.result(), Err(ErrorKind::Failed));
            assert_eq!(world.calls.counters().denied.no_token, 1);
        } else {
            assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
            assert!(world.ok(B, call, 1).is_some());
            assert_eq!(world.calls.budget().level(), 0, "two ran, one of them extra");
        }
        assert_eq!(world.calls.counters().uncharged, 0);
        world.at_rest();
    }
}

#[test]
fn a_copy_that_its_twin_stopped_is_followed_without_a_token_too_if_the_twin_is_lost() {
    let budget = BudgetConfig { burst: 1, fraction: 0.0, ..BudgetConfig::default() };
    let mut world = World::with(budget, |_| {});
    let call = pair(&mut world);
    // Another takes what there is.
    world.calls.budget().reserve(Token::Paid).unwrap();
    world.closed(A);
    world.ended(B, call, 1, How::Aborted);
    assert_eq!(world.sent(), (B, 2, Cause::Redispatch), "one fault fails no call");
    assert_eq!((world.calls.counters().errors, world.calls.counters().uncharged), (0, 1));
    assert!(world.ok(B, call, 2).is_some());
    world.calls.budget().settle(1, 0, 0);
    world.at_rest();
}

#[test]
fn a_copy_that_its_server_stopped_of_its_own_accord_fires_the_pending_hedge_now() {
    for how in [How::Aborted, How::Withdrawn] {
        let mut world = World::new();
        let call = hedged_pair(&mut world);
        stopped(&mut world, A, call, 0, how);
        assert_eq!(world.sent(), (C, 2, Cause::Hedge));
        world.ended(B, call, 1, How::Withdrawn);
        assert!(world.ok(C, call, 2).is_some());
        world.at_rest();
    }
}

#[test]
fn of_two_copies_that_are_said_to_have_stopped_each_other_and_no_third_the_error_says_what_became()
{
    let limits = crate::core::Limits { attempts: 2, ..Default::default() };
    for (how, kind) in [(How::Withdrawn, ErrorKind::Shed), (How::Aborted, ErrorKind::Failed)] {
        let mut world = World::new();
        world.calls.limit_copies(world.tied, limits).unwrap();
        let call = pair(&mut world);
        world.ended(A, call, 0, How::Withdrawn);
        world.ended(B, call, 1, how);
        assert_eq!(world.result(), Err(kind), "all three are connected");
        world.at_rest();
    }
}

#[test]
fn a_double_start_spends_the_token() {
    let mut world = World::new();
    let call = pair(&mut world);
    world.ended(B, call, 1, How::Aborted);
    assert!(world.ok(A, call, 0).is_some());
    let counters = world.calls.counters();
    assert_eq!((counters.both_started, counters.executions, counters.wasted), (1, 2, 1));
    assert_eq!(world.calls.budget().level(), 255);
    world.at_rest();
}

#[test]
fn the_winner_cancels_the_twin_that_is_still_out_and_a_late_withdrawal_returns_the_token() {
    let mut world = World::new();
    let call = pair(&mut world);
    assert!(world.ok(A, call, 0).is_some());
    assert_eq!(world.cancelled(), [(B, 1)]);
    assert_eq!(world.outstanding(), 1, "it may still run");
    world.ended(B, call, 1, How::Withdrawn);
    assert_eq!(world.calls.budget().level(), 256);
    world.at_rest();
}

#[test]
fn a_start_is_relayed_to_the_twin_with_its_reason_and_origin_and_once() {
    let mut world = World::new();
    let call = pair(&mut world);
    world.started(A, call, 0);
    world.started(A, call, 0);
    let [(B, cancel)] = world.cancels[..] else { panic!("{:?}", world.cancels) };
    let by = Twin { station: station(A), n: 0 };
    assert_eq!(cancel.attempt, attempt(call, 1));
    assert_eq!(cancel.reason, CancelReason::TwinStarted { by });
    assert_eq!(cancel.lifetime, TiePolicy::default().window);
    world.cancels.clear();
    assert!(world.ok(A, call, 0).is_some());
    assert_eq!(world.cancelled(), [(B, 1)], "the caller is done, even after a relay");
}

#[test]
fn a_relayed_cancel_is_not_remembered_past_the_deadline() {
    let mut world = World::new();
    let call = pair(&mut world);
    world.pass(DEADLINE - STAGGER - MS(1));
    world.started(A, call, 0);
    assert_eq!(world.cancels[0].1.lifetime, MS(1));
}

#[test]
fn both_starts_are_relayed_as_they_come() {
    let mut world = World::new();
    let call = pair(&mut world);
    world.started(A, call, 0);
    world.started(B, call, 1);
    let to: Vec<_> = world.cancels.iter().map(|(to, cancel)| (*to, cancel.attempt.n)).collect();
    assert_eq!(to, [(B, 1), (A, 0)]);
    assert_eq!(world.calls.counters().both_started, 1);
}

#[test]
fn a_start_that_is_told_before_the_second_copy_is_sent_drops_that() {
    let mut world = World::new();
    let call = world.start(world.tied);
    world.sent();
    world.started(A, call, 0);
    world.pass(STAGGER);
    world.nothing_sent();
    assert_eq!(world.cancels, []);
    assert!(world.ok(A, call, 0).is_some());
    world.at_rest();
}

#[test]
fn a_start_that_is_told_in_the_turn_of_the_second_copy_drops_that() {
    let mut world = World::new();
    let call = world.start(world.tied);
    world.sent();
    world.now += STAGGER;
    world.calls.on_timeout(world.now);
    world.started(A, call, 0);
    world.nothing_sent();
    assert_eq!(world.cancels, []);
    assert!(world.ok(A, call, 0).is_some());
    world.at_rest();
}

#[test]
fn the_second_copy_is_not_sent_to_another_core_than_the_first_was_told() {
    let mut world = World::new();
    let call = world.start(world.tied);
    world.sent();
    world.closed(B);
    world.calls.on_connected(B, Station { replica: B, core: 0 });
    world.pass(STAGGER);
    world.nothing_sent();
    assert!(world.ok(A, call, 0).is_some());
    world.at_rest();
}

#[test]
fn an_error_of_one_copy_is_held_while_the_other_lives() {
    let mut world = World::new();
    let call = pair(&mut world);
    assert_eq!(world.reply(A, call, 0, Status::Failed), None);
    world.nothing_sent();
    assert_eq!(world.ok(B, call, 1).unwrap().result, Ok(()));
    world.at_rest();
}

#[test]
fn tied_copies_that_both_fail_are_followed_by_a_third() {
    let mut world = World::new();
    let call = pair(&mut world);
    world.reply(A, call, 0, Status::Failed);
    world.closed(B);
    assert_eq!(world.sent(), (C, 2, Cause::Redispatch));
    assert!(world.ok(C, call, 2).is_some());
    world.at_rest();
}

#[test]
fn a_pair_whose_starter_is_slow_earns_a_hedge_elsewhere() {
    let mut world = World::new();
    let call = hedged_pair(&mut world);
    world.ended(B, call, 1, How::Withdrawn);
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sends[0].1.tie, None);
    assert_eq!(world.sent(), (B, 2, Cause::Hedge), "B has no live and no failed copy");
    assert_eq!(world.outstanding(), 1, "the withdrawn copy had left its token");
    assert!(world.ok(B, call, 2).is_some());
    world.ended(A, call, 0, How::Aborted);
    world.at_rest();
}

#[test]
fn a_hedge_beside_two_live_copies_goes_to_a_third_replica() {
    let mut world = World::new();
    let call = hedged_pair(&mut world);
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sent(), (C, 2, Cause::Hedge));
    assert_eq!(world.outstanding(), 2);
    world.ok(C, call, 2).unwrap();
    assert_eq!(world.cancelled(), [(A, 0), (B, 1)]);
}

#[test]
fn an_error_of_one_tied_copy_fires_the_pending_hedge_now() {
    let mut world = World::new();
    let call = hedged_pair(&mut world);
    assert_eq!(world.reply(A, call, 0, Status::Failed), None);
    assert_eq!(world.sent(), (C, 2, Cause::Hedge));
}

#[test]
fn there_is_no_hedge_while_the_second_copy_is_announced_and_unsent() {
    let mut world = World::new();
    let tie = TiePolicy { stagger: Stagger::Fixed(MS(2)), ..TiePolicy::default() };
    let hedge = HedgePolicy { delay: Delay::Fixed(MS(1)), ..HedgePolicy::default() };
    let policy = world.calls.register(Policy::TiedThenHedged(tie, hedge)).unwrap();
    world.start(policy);
    world.sent();
    world.pass(MS(1));
    world.nothing_sent();
    world.pass(MS(1));
    let sent: Vec<_> = world.sends.iter().map(|(_, request)| request.cause).collect();
    assert_eq!(sent, [Cause::First, Cause::Hedge]);
}

#[test]
fn the_deadline_before_the_second_copy_sends_none() {
    let mut world = World::new();
    let spec = Spec { deadline: world.now + US(100), ..world.spec(world.tied) };
    let call = world.try_start(spec).unwrap();
    world.sent();
    world.pass(US(100));
    assert_eq!(world.result(), Err(ErrorKind::DeadlineExceeded));
    assert_eq!(world.cancelled(), [(A, 0)]);
    world.pass(STAGGER);
    world.nothing_sent();
    world.ended(A, call, 0, How::Withdrawn);
    world.at_rest();
}

#[test]
fn the_deadline_with_both_copies_out_cancels_both() {
    let mut world = World::new();
    let call = pair(&mut world);
    world.pass(DEADLINE);
    assert_eq!(world.result(), Err(ErrorKind::DeadlineExceeded));
    assert_eq!(world.cancelled(), [(A, 0), (B, 1)]);
    world.ended(A, call, 0, How::Withdrawn);
    world.ended(B, call, 1, How::Withdrawn);
    assert_eq!(world.calls.budget().level(), 255, "a missed deadline drains; nothing ran");
    world.at_rest();
}
