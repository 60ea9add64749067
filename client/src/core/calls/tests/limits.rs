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
