//! One copy: its reply, its errors, its deadline, its caller.

use super::*;

#[test]
fn a_reply_ends_the_call_at_once_and_leaves_nothing() {
    let mut world = World::new();
    let call = world.start(world.none);
    assert_eq!(world.sent(), (A, 0, Cause::First));
    world.now += US(80);
    let done = world.ok(A, call, 0).unwrap();
    assert_eq!(done.result, Ok(()));
    assert_eq!((done.call, done.tag), (call, 42));
    assert_eq!((done.outcome.latency, done.outcome.attempts), (US(80), 1));
    assert_eq!(done.outcome.winner.unwrap().replica, A);
    assert_eq!(world.cancelled(), []);
    world.at_rest();
}

#[test]
fn the_request_says_what_is_left_less_the_reserve_and_the_round_trip() {
    let mut world = World::with(BudgetConfig::default(), |config| config.reserve = MS(1));
    world.calls.on_rtt(A, US(300));
    world.start(world.none);
    assert_eq!(world.sends[0].1.remaining, DEADLINE - MS(1) - US(300));
}

#[test]
fn the_reserve_never_takes_more_than_half_of_what_is_left() {
    let mut world = World::with(BudgetConfig::default(), |config| config.reserve = MS(400));
    world.start(world.none);
    assert_eq!(world.sends[0].1.remaining, DEADLINE / 2);
}

#[test]
fn the_deadline_ends_the_call_and_cancels_its_copy() {
    let mut world = World::new();
    let call = world.start(world.none);
    world.pass(DEADLINE - Duration::from_nanos(1));
    world.waits();
    world.pass(Duration::from_nanos(1));
    assert_eq!(world.result(), Err(ErrorKind::DeadlineExceeded));
    assert_eq!(world.cancelled(), [(A, 0)]);
    world.ended(A, call, 0, How::Aborted);
    world.at_rest();
}

#[test]
fn a_reply_that_comes_with_the_deadline_wins_if_it_is_handed_in_first() {
    let mut world = World::new();
    let call = world.start(world.none);
    world.now += DEADLINE;
    assert_eq!(world.ok(A, call, 0).unwrap().result, Ok(()));
    world.pass(Duration::ZERO);
    world.waits();
    world.at_rest();
}

#[test]
fn a_reply_after_the_deadline_is_a_late_loser_and_harmless() {
    let mut world = World::new();
    let call = world.start(world.none);
    world.pass(DEADLINE);
    world.result().unwrap_err();
    assert_eq!(world.ok(A, call, 0), None);
    world.at_rest();
    assert_eq!(world.calls.counters().wasted, 1);
}

#[test]
fn a_caller_that_drops_the_call_cancels_its_copy_and_hears_nothing_more() {
    let mut world = World::new();
    let call = world.start(world.none);
    assert!(world.calls.cancel(call, world.now));
    world.drain();
    assert_eq!(world.cancelled(), [(A, 0)]);
    assert!(!world.calls.cancel(call, world.now), "once");
    assert_eq!(world.ok(A, call, 0), None);
    world.pass(DEADLINE);
    world.waits();
    world.at_rest();
}

#[test]
fn a_call_that_is_dropped_before_its_copy_went_out_sends_nothing() {
    let mut world = World::new();
    let call = world.calls.start(world.now, world.spec(world.tied)).unwrap();
    world.calls.cancel(call, world.now);
    world.drain();
    world.nothing_sent();
    assert_eq!(world.cancelled(), []);
    assert_eq!(world.calls.counters().attempts, 0);
    world.at_rest();
}

#[test]
fn a_shed_copy_is_sent_again_at_once_elsewhere() {
    let mut world = World::new();
    let call = world.start(world.none);
    world.sent();
    world.ended(A, call, 0, How::Shed);
    assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
    assert_eq!(world.outstanding(), 0, "it never ran: the next copy is no extra one");
    world.overloaded(B, call, 1);
    assert_eq!(world.sent(), (C, 2, Cause::Redispatch));
    assert_eq!(world.ok(C, call, 2).unwrap().result, Ok(()));
    world.at_rest();
}

#[test]
fn when_all_have_failed_it_the_call_ends_with_the_error_that_says_most() {
    let mut world = World::new();
    let call = world.start(world.none);
    world.overloaded(A, call, 0);
    world.reply(B, call, 1, Status::Failed);
    world.ended(C, call, 2, How::Shed);
    let done = world.done.pop().unwrap();
    let error = done.result.unwrap_err();
    assert_eq!((error.kind, error.executed), (ErrorKind::Failed, Executed::Yes));
    assert_eq!(done.outcome.attempts, 3);
    world.at_rest();
}

#[test]
fn an_overload_everywhere_says_when_to_ask_again() {
    let mut world = World::new();
    let call = world.start(world.none);
    world.overloaded(A, call, 0);
    world.overloaded(B, call, 1);
    world.overloaded(C, call, 2);
    let error = world.done[0].result.unwrap_err();
    assert_eq!((error.kind, error.executed), (ErrorKind::Overloaded, Executed::No));
    assert_eq!(error.after, Some(MS(3)));
}

#[test]
fn an_error_reply_as_the_last_word_is_handed_over_with_its_payload() {
    let mut world = World::new();
    let call = world.start(world.none);
    assert_eq!(world.reply(A, call, 0, Status::Failed), None, "B may do better");
    assert_eq!(world.reply(B, call, 1, Status::Failed), None, "C may do better");
    let done = world.reply(C, call, 2, Status::Failed).unwrap();
    assert_eq!(done.result.unwrap_err().kind, ErrorKind::Failed);
    world.at_rest();
}

#[test]
fn a_services_own_error_is_its_answer_and_asks_nobody_else() {
    let mut world = World::new();
    let call = world.start(world.none);
    let done = world.reply(A, call, 0, Status::App(1)).unwrap();
    assert_eq!(done.result.unwrap_err().kind, ErrorKind::App(1));
    assert_eq!(world.sent(), (A, 0, Cause::First));
    assert_eq!(world.calls.budget().level(), 256, "and is nobody's failure");
    world.at_rest();
}

#[test]
fn a_fatal_error_ends_the_call_at_once() {
    let mut world = World::new();
    let call = world.start(world.none);
    let done = world.reply(A, call, 0, Status::BadRequest).unwrap();
    let error = done.result.unwrap_err();
    assert_eq!((error.kind, error.executed), (ErrorKind::BadRequest, Executed::No));
    world.at_rest();
}

#[test]
fn a_call_that_must_not_run_twice_is_sent_again_only_if_it_certainly_never_ran() {
    let mut world = World::new();
    let spec = Spec { idempotent: false, ..world.spec(world.tied) };
    let call = world.try_start(spec).unwrap();
    assert_eq!(world.sent(), (A, 0, Cause::First));
    world.pass(STAGGER);
    world.nothing_sent();
    world.ended(A, call, 0, How::Shed);
    assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
    world.closed(B);
    let error = world.done[0].result.unwrap_err();
    assert_eq!((error.kind, error.executed), (ErrorKind::ConnectionLost, Executed::Unknown));
    world.nothing_sent();
    world.at_rest();
}

#[test]
fn a_verdict_of_the_users_own_decides_what_is_good() {
    let mut world = World::new();
    let classifier = Classifier::new(|status, _| match status {
        Status::App(1) => crate::core::Verdict::Good,
        Status::App(2) => crate::core::Verdict::Fatal,
        other => crate::core::Verdict::of(other),
    });
    let policy = world.calls.register_with(Policy::None, classifier).unwrap();
    let call = world.start(policy);
    let done = world.reply(A, call, 0, Status::App(1)).unwrap();
    assert_eq!(done.result, Ok(()));
    let call = world.start(policy);
    let done = world.reply(A, call, 0, Status::App(2)).unwrap();
    assert_eq!(done.result.unwrap_err().kind, ErrorKind::App(2));
}

#[test]
fn a_copy_that_the_server_stopped_for_its_deadline_is_not_sent_again_if_no_answer_could_come() {
    for (rtt, sent) in [(US(300), 1), (US(100), 2)] {
        let mut world = World::new();
        [A, B, C].into_iter().for_each(|replica| world.calls.on_rtt(replica, rtt));
        let call = world.start(world.none);
        world.pass(DEADLINE - US(200));
        let (attempt, load) = (attempt(call, 0), Load::default());
        let ended = Ended { attempt, how: How::Aborted, by: None, load };
        world.calls.on_ended(A, &ended, world.now);
        world.drain();
        assert_eq!(world.sends.len(), sent);
        if sent == 1 {
            assert_eq!(world.result(), Err(ErrorKind::DeadlineExceeded));
            world.at_rest();
        }
    }
}

#[test]
fn a_key_decides_who_is_asked_first_and_next_whatever_the_policy() {
    let mut world = World::new();
    let order = |world: &mut World, policy, key| {
        let call = world.try_start(Spec { shard_key: Some(key), ..world.spec(policy) }).unwrap();
        world.pass(HEDGE_DELAY);
        let asked: Vec<ReplicaId> = world.sends.drain(..).map(|(replica, _)| replica).collect();
        assert!(world.calls.cancel(call, world.now));
        world.drain();
        asked
    };
    let (none, hedged, pair) = (world.none, world.hedged, world.tied);
    let mut firsts = Vec::new();
    for key in 0..50 {
        let tied = order(&mut world, pair, key);
        assert_eq!(order(&mut world, none, key), tied[..1]);
        assert_eq!(order(&mut world, hedged, key), tied);
        firsts.push(tied[0]);
    }
    assert!([A, B, C].iter().all(|replica| firsts.contains(replica)));
}

#[test]
fn a_copy_goes_again_past_a_replica_that_is_too_far_for_what_is_left() {
    let mut world = World::new();
    world.calls.on_rtt(B, DEADLINE);
    let call = world.start(world.none);
    world.sends.clear();
    world.pass(MS(1));
    world.closed(A);
    assert_eq!(world.sent(), (C, 1, Cause::Redispatch));
    assert!(world.ok(C, call, 1).is_some());
    world.at_rest();
}

#[test]
fn a_copy_that_had_not_begun_to_leave_when_its_replica_did_goes_elsewhere_whatever_it_does() {
    let mut world = World::new();
    let spec = Spec { idempotent: false, ..world.spec(world.none) };
    let call = world.try_start(spec).unwrap();
    world.sends.clear();
    world.calls.on_leaving(A);
    world.calls.on_left_behind(A, attempt(call, 0), world.now);
    world.drain();
    assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
    assert!(world.ok(B, call, 1).is_some());
    world.at_rest();
}

/// As one does that was sent, and lost with the connection.
#[test]
fn a_copy_that_its_last_replica_left_behind_waits_for_that_to_come_back() {
    let mut world = World::new();
    [B, C].into_iter().for_each(|replica| world.closed(replica));
    world.pass(DEADLINE / 2);
    let spec = Spec { idempotent: false, ..world.spec(world.none) };
    let call = world.try_start(spec).unwrap();
    world.calls.on_leaving(A);
    world.calls.on_left_behind(A, attempt(call, 0), world.now);
    world.closed(A);
    world.sends.clear();
    world.connected(A);
    world.drain();
    assert_eq!(world.sent(), (A, 1, Cause::Redispatch));
    assert!(world.ok(A, call, 1).is_some());
    world.at_rest();
}

#[test]
fn when_all_that_are_left_are_too_far_the_deadline_is_held_to_have_passed() {
    let mut world = World::new();
    let call = world.start(world.none);
    [A, B, C].into_iter().for_each(|replica| world.calls.on_rtt(replica, DEADLINE));
    world.calls.on_cut(A, attempt(call, 0), 7, world.now);
    world.drain();
    assert_eq!(world.result(), Err(ErrorKind::DeadlineExceeded));
    world.at_rest();
}

#[test]
fn a_copy_that_its_server_stops_before_its_time_is_up_has_failed_and_is_not_late() {
    for (after, kind) in [(1, ErrorKind::Failed), (40, ErrorKind::DeadlineExceeded)] {
        let mut world = World::with(BudgetConfig::default(), |config| config.reserve = MS(10));
        let spec = Spec { idempotent: false, ..world.spec(world.none) };
        let call = world.try_start(spec).unwrap();
        world.pass(MS(after));
        let attempt = attempt(call, 0);
        let ended = Ended { attempt, how: How::Aborted, by: None, load: Load::default() };
        world.calls.on_ended(A, &ended, world.now);
        world.drain();
        assert_eq!(world.result(), Err(kind));
        let late = u64::from(kind == ErrorKind::DeadlineExceeded);
        assert_eq!(world.calls.counters().deadline_missed, late);
        world.at_rest();
    }
}
