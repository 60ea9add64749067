//! What is refused at the start.

use super::*;

fn refused(world: &mut World, spec: Spec<&'static str>) -> ErrorKind {
    let error = world.try_start(spec).unwrap_err();
    assert_eq!(error.executed, Executed::No);
    assert_eq!((world.calls.counters().refused, world.sends.len()), (1, 0));
    error.kind
}

#[test]
fn more_calls_than_may_wait_are_refused_until_one_is_done() {
    let mut world = World::with(BudgetConfig::default(), |config| config.max_calls = 2);
    let call = world.start(world.none);
    world.start(world.none);
    world.sends.clear();
    let spec = world.spec(world.none);
    assert_eq!(refused(&mut world, spec), ErrorKind::TooManyCalls);
    world.ok(A, call, 0).unwrap();
    world.start(world.none);
}

#[test]
fn a_payload_above_the_limit_is_refused() {
    let mut world = World::new();
    let spec = Spec { size: (1 << 20) + 1, ..world.spec(world.none) };
    assert_eq!(refused(&mut world, spec), ErrorKind::PayloadTooLarge);
}

#[test]
fn a_deadline_that_has_passed_is_refused() {
    let mut world = World::new();
    let spec = Spec { deadline: world.now, ..world.spec(world.none) };
    assert_eq!(refused(&mut world, spec), ErrorKind::DeadlineExceeded);
}

#[test]
fn without_a_replica_and_without_patience_a_call_is_refused() {
    let mut world = World::with(BudgetConfig::default(), |config| config.patience = MS(0));
    [A, B, C].into_iter().for_each(|replica| world.closed(replica));
    let spec = world.spec(world.none);
    assert_eq!(refused(&mut world, spec), ErrorKind::NoReplica);
}

#[test]
fn a_replica_that_was_never_added_is_not_connected() {
    let mut world = World::new();
    assert!(!world.calls.on_connected(ReplicaId(9), station(ReplicaId(9))));
    world.closed(ReplicaId(9));
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let config = Config { max_calls: 0, ..Config::default() };
    let error = Calls::<()>::new(ClientId(7), config).err().unwrap();
    assert_eq!(error.to_string(), "max_calls is 0, but must be 1 to 16777216");
    let mut world = World::new();
    let hedge = HedgePolicy { max_hedges: 7, ..HedgePolicy::default() };
    let error = world.calls.register(Policy::Hedged(hedge)).unwrap_err();
    assert_eq!(error.field, "hedge.max_hedges");
}

#[test]
fn a_payload_goes_to_the_replicas_that_take_it_and_is_refused_if_none_does() {
    let mut world = World::new();
    world.calls.on_takes(A, 0);
    world.calls.on_takes(B, 7);
    world.calls.on_takes(C, 9);
    let call = world.start(world.none);
    assert_eq!(world.sent(), (B, 0, Cause::First));
    world.closed(B);
    assert_eq!(world.sent(), (C, 1, Cause::Redispatch));
    assert!(world.ok(C, call, 1).is_some());
    let spec = Spec { size: 10, ..world.spec(world.none) };
    assert_eq!(refused(&mut world, spec), ErrorKind::PayloadTooLarge);
    world.at_rest();
}

#[test]
fn a_payload_waits_for_a_replica_that_takes_it_though_a_smaller_one_is_connected() {
    let mut world = World::new();
    [A, B, C].into_iter().for_each(|replica| world.closed(replica));
    let call = world.start(world.tied);
    world.calls.on_takes(A, 6);
    world.connected(A);
    world.waits();
    world.nothing_sent();
    world.connected(B);
    assert_eq!(world.sent(), (B, 0, Cause::First));
    assert!(world.ok(B, call, 0).is_some());
    world.at_rest();
}

#[test]
fn a_call_that_waited_is_told_that_it_is_too_large_for_all() {
    let mut world = World::new();
    [A, B, C].into_iter().for_each(|replica| world.closed(replica));
    world.start(world.none);
    [A, B, C].into_iter().for_each(|replica| world.calls.on_takes(replica, 6));
    world.connected(C);
    assert_eq!(world.result(), Err(ErrorKind::PayloadTooLarge));
    world.at_rest();
}

#[test]
fn a_call_is_tied_and_hedged_only_among_replicas_that_allow_it() {
    const ONCE: &[MethodInfo] = &[MethodInfo::new(Method(3), "read").idempotent()];
    const TWICE: &[MethodInfo] = &[MethodInfo::new(Method(3), "read").idempotent().duplicable(9)];
    let [once, twice] = [ONCE, TWICE].map(|methods| ServiceInfo::new("it", methods).to_methods());
    let mut world = World::new();
    world.calls.on_methods(A, Some(&once));
    for policy in [world.tied, world.hedged, world.both] {
        let call = world.start(policy);
        world.pass(HEDGE_DELAY);
        assert_eq!(world.sent(), (A, 0, Cause::First));
        assert!(world.ok(A, call, 0).is_some());
    }
    assert_eq!(world.calls.counters().denied.not_allowed, 3);
    // A does, B does not: C is the next.
    world.calls.on_methods(A, Some(&twice));
    world.calls.on_methods(B, Some(&once));
    let call = world.start(world.both);
    world.pass(HEDGE_DELAY);
    let asked: Vec<ReplicaId> = world.sends.drain(..).map(|(replica, _)| replica).collect();
    assert_eq!(asked, [A, C], "the hedge finds nobody");
    assert!(world.ok(A, call, 0).is_some());
    assert_eq!(world.calls.counters().denied.not_allowed, 3);
}

#[test]
fn a_call_has_no_more_copies_than_its_policy_allows() {
    let mut world = World::new();
    let three = crate::core::Limits { attempts: 3, ..Default::default() };
    world.calls.limit_copies(world.both, three).unwrap();
    let call = world.start(world.both);
    world.pass(STAGGER);
    assert_eq!(world.sends.len(), 2, "a pair");
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sends.len(), 3, "and a hedge");
    for (n, replica) in [A, B].into_iter().enumerate() {
        world.overloaded(replica, call, n as u16);
        world.waits();
    }
    world.overloaded(C, call, 2);
    assert_eq!(world.result(), Err(ErrorKind::Overloaded));
    assert_eq!((world.sends.len(), world.calls.counters().denied.attempts), (3, 1));
    world.at_rest();

    let one = crate::core::Limits { attempts: 1, ..Default::default() };
    world.calls.limit_copies(world.both, one).unwrap();
    world.sends.clear();
    let call = world.start(world.both);
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sends.len(), 1, "neither a pair nor a hedge");
    world.overloaded(A, call, 0);
    assert_eq!(world.result(), Err(ErrorKind::Overloaded));
    world.at_rest();
}

#[test]
fn a_copy_that_was_announced_and_never_sent_is_none_of_those_that_a_call_may_have() {
    let mut world = World::new();
    let two = crate::core::Limits { attempts: 2, ..Default::default() };
    world.calls.limit_copies(world.tied, two).unwrap();
    let call = world.start(world.tied);
    assert_eq!(world.sent().0, A);
    world.overloaded(A, call, 0);
    let (second, n, _) = world.sent();
    assert!(world.ok(second, call, n).is_some());
    world.at_rest();
}
