//! A call with a key has its effect once in each store of results: so it keeps to one.

use bowline_protocol::OptionSet;
use bowline_protocol::options::Key;

use super::*;
use crate::core::Placement;

pub(super) const KEYED: &[MethodInfo] =
    &[MethodInfo::new(Method(3), "pay").idempotent().keyed().duplicable(1 << 10)];
pub(super) const UNKEYED: &[MethodInfo] = &[MethodInfo::new(Method(3), "pay").duplicable(1 << 10)];

impl World {
    /// These replicas share a store of results.
    fn share(&mut self, replicas: &[ReplicaId]) {
        self.promise(KEYED);
        for &id in replicas {
            let domain = u32::from(id.0);
            let placement = Placement { domain, results: Some(5), ..Placement::default() };
            self.calls.place_replica(id, placement).unwrap();
        }
    }

    /// All say that of the method.
    pub(super) fn promise(&mut self, methods: &'static [MethodInfo]) {
        [A, B, C].into_iter().for_each(|id| self.promise_at(id, methods));
    }

    /// One says that of its methods.
    pub(super) fn promise_at(&mut self, id: ReplicaId, methods: &'static [MethodInfo]) {
        self.calls.on_methods(id, Some(&ServiceInfo::new("bank", methods).to_methods()));
    }

    /// A call that must not run twice, and has a key.
    fn pay(&mut self, policy: PolicyId) -> CallKey {
        let key = Some(Key { id: 9, fingerprint: 7 });
        let options = OptionSet { key, ..OptionSet::NONE };
        let spec = Spec { options, idempotent: false, ..self.spec(policy) };
        self.try_start(spec).unwrap()
    }

    /// One that the first replica may have run fails with its connection, though the replica comes back.
    fn ends_with_its_connection(mut self) {
        self.pay(self.none);
        self.sent();
        self.closed(A);
        self.connected(A);
        self.nothing_sent();
        assert_eq!(self.result(), Err(ErrorKind::ConnectionLost));
        self.at_rest();
    }
}

#[test]
fn without_a_shared_store_a_call_with_a_key_has_one_copy() {
    for policy in [|world: &World| world.tied, |world: &World| world.hedged] {
        let mut world = World::new();
        world.share(&[B, C]);
        let call = world.pay(policy(&world));
        assert_eq!(world.sent().0, A);
        world.pass(HEDGE_DELAY);
        world.nothing_sent();
        assert_eq!(world.calls.counters().denied.not_shared, 1);
        assert!(world.ok(A, call, 0).is_some());
        world.at_rest();
    }
}

#[test]
fn its_second_copy_goes_to_a_replica_of_the_same_store_though_another_is_as_near() {
    for policy in [|world: &World| world.tied, |world: &World| world.hedged] {
        let mut world = World::new();
        world.promise(KEYED);
        world.share(&[A, C]);
        world.pay(policy(&world));
        assert_eq!(world.sent().0, A);
        world.pass(HEDGE_DELAY);
        let (second, n, _) = world.sent();
        assert_eq!((second, n), (C, 1), "B would be next");
    }
}

#[test]
fn a_replica_that_does_not_keep_the_method_s_results_gets_no_second_copy() {
    let mut world = World::new();
    world.share(&[A, B, C]);
    world.promise(UNKEYED);
    world.pay(world.hedged);
    assert_eq!(world.sent().0, A);
    world.pass(HEDGE_DELAY);
    world.nothing_sent();
    assert_eq!(world.calls.counters().denied.not_allowed, 1);
}

#[test]
fn once_it_may_have_run_it_waits_for_the_replica_that_has_it() {
    let mut world = World::new();
    world.promise(KEYED);
    let call = world.pay(world.none);
    world.sent();
    world.closed(A);
    world.nothing_sent();
    world.waits();
    world.connected(A);
    assert_eq!(world.sent(), (A, 1, Cause::Redispatch));
    assert!(world.ok(A, call, 1).is_some());
    world.at_rest();
}

#[test]
fn where_the_results_are_shared_it_goes_on_at_another() {
    let mut world = World::new();
    world.share(&[A, C]);
    let call = world.pay(world.none);
    world.sent();
    world.closed(A);
    assert_eq!(world.sent(), (C, 1, Cause::Redispatch), "not B");
    world.closed(C);
    world.nothing_sent();
    world.connected(C);
    assert_eq!(world.sent(), (C, 2, Cause::Redispatch));
    assert!(world.ok(C, call, 2).is_some());
    world.at_rest();
}

#[test]
fn a_key_that_the_method_does_not_keep_protects_nothing() {
    let mut world = World::new();
    world.promise(UNKEYED);
    world.ends_with_its_connection();
}

#[test]
fn what_certainly_never_ran_may_go_anywhere() {
    let mut world = World::new();
    world.promise(KEYED);
    let call = world.pay(world.none);
    world.sent();
    world.overloaded(A, call, 0);
    assert_eq!(world.sent(), (B, 1, Cause::Redispatch));
    world.closed(B);
    world.nothing_sent();
    world.waits();
    world.pass(DEADLINE);
    assert_eq!(world.result(), Err(ErrorKind::ConnectionLost));
    world.at_rest();
}

#[test]
fn a_caller_who_holds_it_idempotent_needs_no_shared_store() {
    let mut world = World::new();
    let key = Some(Key { id: 9, fingerprint: 7 });
    let options = OptionSet { key, ..OptionSet::NONE };
    let spec = world.spec(world.tied);
    world.try_start(Spec { options, ..spec }).unwrap();
    world.pass(STAGGER);
    assert_eq!(world.sends.len(), 2);
}

#[test]
fn a_replica_that_says_nothing_of_its_methods_keeps_nothing_by_keys() {
    let mut world = World::new();
    for id in [A, B, C] {
        world.calls.on_methods(id, None);
    }
    world.ends_with_its_connection();
}

#[test]
fn a_replica_that_is_not_told_keys_keeps_nothing_by_them() {
    let mut world = World::new();
    world.promise(KEYED);
    world.calls.on_options(A, false);
    world.ends_with_its_connection();
}

#[test]
fn a_copy_is_held_against_the_store_that_its_replica_had_when_it_went_there() {
    let mut world = World::new();
    world.share(&[A]);
    world.pay(world.none);
    assert_eq!(world.sent().0, A);
    // What was A's store is B's, and A has another, which C has, too.
    for (id, store) in [(A, 6), (C, 6), (B, 5)] {
        let placement = Placement { results: Some(store), ..Placement::default() };
        world.calls.place_replica(id, placement).unwrap();
    }
    world.closed(A);
    assert_eq!(world.sent(), (B, 1, Cause::Redispatch), "the store that A had");
}
