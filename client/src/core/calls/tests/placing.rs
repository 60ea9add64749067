//! Where calls go: health, roles, distance, and how fast replicas are.

use super::*;
use crate::core::{EjectConfig, Notice, OffReason, Placement};
use bowline_protocol::{Label, OptionSet, TrafficClass};

fn place(world: &mut World, id: ReplicaId, change: impl FnOnce(&mut Placement)) {
    let mut placement = Placement { domain: u32::from(id.0), ..Placement::default() };
    change(&mut placement);
    world.calls.place_replica(id, placement).unwrap();
}

/// A call to A, which fails there and is answered elsewhere.
fn fail_at_a(world: &mut World) {
    let call = world.start(world.none);
    assert_eq!(world.sent().0, A);
    world.reply(A, call, 0, Status::Failed);
    let (next, n, _) = world.sent();
    assert!(world.ok(next, call, n).is_some());
}

#[test]
fn failures_in_a_row_eject_a_replica_and_a_probe_readmits_it() {
    let mut world = World::with(BudgetConfig::default(), |config| {
        config.eject = Some(EjectConfig { after: 3, first: MS(10), max: MS(100) });
    });
    (0..3).for_each(|_| fail_at_a(&mut world));
    assert_eq!(world.calls.poll_notice(), Some(Notice::Ejected { replica: A }));
    let call = world.start(world.none);
    assert_eq!(world.sent(), (B, 0, Cause::First), "A is left alone");
    world.ok(B, call, 0);
    world.pass(MS(10));
    let (probe, other) = (world.start(world.none), world.start(world.none));
    let asked: Vec<ReplicaId> = world.sends.drain(..).map(|(replica, _)| replica).collect();
    assert_eq!(asked, [A, B], "one probe");
    world.ok(B, other, 0);
    world.reply(A, probe, 0, Status::App(3));
    assert_eq!(world.calls.poll_notice(), Some(Notice::Readmitted { replica: A }));
    world.start(world.none);
    assert_eq!(world.sent().0, A);
    let counters = world.calls.counters();
    assert_eq!((counters.ejected, counters.readmitted), (1, 1));
    assert_eq!(world.calls.poll_notice(), None);
}

/// Having no such method tells neither that a replica is well nor that it is not.
#[test]
fn a_replica_that_has_not_the_method_is_neither_ejected_nor_readmitted_for_that() {
    let mut world = World::with(BudgetConfig::default(), |config| {
        config.eject = Some(EjectConfig { after: 3, first: MS(10), max: MS(100) });
    });
    let lacks = |world: &mut World| {
        let call = world.start(world.none);
        assert_eq!(world.sent().0, A);
        assert_eq!(world.reply(A, call, 0, Status::NoSuchMethod), None);
        assert!(world.ok(B, call, 1).is_some());
        world.sends.clear();
    };
    (0..9).for_each(|_| lacks(&mut world));
    assert_eq!(world.calls.counters().ejected, 0);
    (0..2).for_each(|_| fail_at_a(&mut world));
    lacks(&mut world);
    fail_at_a(&mut world);
    assert_eq!(world.calls.counters().ejected, 1, "the third of its failures");
    world.pass(MS(10));
    lacks(&mut world);
    assert_eq!(world.calls.counters().readmitted, 0, "that probe tells nothing");
}

#[test]
fn a_replica_that_lets_deadlines_pass_is_ejected_and_one_that_refuses_is_not() {
    let mut world = World::new();
    for _ in 0..5 {
        world.start(world.none);
        assert_eq!(world.sent().0, A);
        world.pass(DEADLINE);
    }
    assert_eq!(world.calls.counters().ejected, 1);
    let mut world = World::new();
    for _ in 0..20 {
        let call = world.start(world.none);
        let (first, ..) = world.sent();
        world.overloaded(first, call, 0);
        let (second, n, _) = world.sent();
        world.ok(second, call, n);
        world.pass(MS(200));
    }
    assert_eq!(world.calls.counters().ejected, 0);
}

#[test]
fn when_all_replicas_are_ejected_calls_go_to_them_all_the_same() {
    let mut world = World::with(BudgetConfig::default(), |config| {
        config.eject = Some(EjectConfig { after: 1, ..EjectConfig::default() });
    });
    let call = world.start(world.none);
    for (n, replica) in (0..).zip([A, B, C]) {
        world.reply(replica, call, n, Status::Failed);
    }
    assert_eq!(world.calls.counters().ejected, 3);
    world.sends.clear();
    let call = world.start(world.none);
    assert_eq!(world.sent().0, A);
    assert!(world.ok(A, call, 0).is_some());
}

#[test]
fn every_copy_of_a_call_goes_to_a_replica_that_serves_its_method_and_key() {
    let mut world = World::new();
    place(&mut world, A, |a| a.methods = Some(vec![Method(9)]));
    place(&mut world, B, |b| b.keys = vec![0..=99]);
    place(&mut world, C, |c| c.keys = vec![50..=199]);
    let both = Spec { shard_key: Some(70), ..world.spec(world.both) };
    let call = world.try_start(both).unwrap();
    world.pass(STAGGER);
    let mut asked: Vec<ReplicaId> = world.sends.drain(..).map(|(replica, _)| replica).collect();
    asked.sort();
    assert_eq!(asked, [B, C]);
    world.pass(HEDGE_DELAY);
    world.nothing_sent();
    world.calls.cancel(call, world.now);
    // Only C has this one; nobody that one.
    world.try_start(Spec { shard_key: Some(150), ..world.spec(world.tied) }).unwrap();
    assert_eq!(world.sent().0, C);
    world.closed(C);
    world.waits();
    world.nothing_sent();
    let nowhere = Spec { shard_key: Some(500), ..world.spec(world.none) };
    assert_eq!(world.try_start(nowhere).unwrap_err().kind, ErrorKind::NoReplica);
}

#[test]
fn the_nearer_replica_is_asked_whatever_its_load_and_a_second_copy_leaves_the_domain_first() {
    let mut world = World::new();
    place(&mut world, A, |a| a.distance = 1);
    place(&mut world, C, |c| c.domain = u32::from(B.0));
    let call = world.start(world.hedged);
    assert_eq!(world.sent().0, B);
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sent().0, A, "C is nearer, and fails with B");
    assert!(world.ok(B, call, 0).is_some());
    world.closed(B);
    world.closed(C);
    world.start(world.none);
    assert_eq!(world.sent().0, A, "a farther one is better than none");
}

#[test]
fn a_hedge_does_not_go_to_a_replica_that_is_slow_itself() {
    let mut world = World::with(BudgetConfig::default(), |config| {
        config.pick = PickRule::RoundRobin;
    });
    for _ in 0..90 {
        let call = world.start(world.none);
        let (replica, n, _) = world.sent();
        world.pass(if replica == B { MS(10) } else { MS(1) });
        world.ok(replica, call, n);
    }
    for _ in 0..30 {
        world.start(world.hedged);
        world.pass(HEDGE_DELAY);
        let [_, (hedge, _)] = world.sends[..] else { panic!("{:?}", world.sends) };
        assert_ne!(hedge, B);
        world.sends.clear();
    }
}

#[test]
fn where_all_replicas_become_slow_at_once_hedges_go_to_them_all_the_same() {
    let mut world = World::with(BudgetConfig::default(), |config| {
        config.pick = PickRule::RoundRobin;
    });
    for call in 0..160 {
        let took = if call < 90 { MS(1) } else { MS(40) };
        let call = world.start(world.none);
        let (replica, n, _) = world.sent();
        world.pass(took);
        world.ok(replica, call, n);
    }
    assert!(
        world.calls.replicas().all(|replica| replica.slowness > 3.0),
        "by what they took before"
    );
    world.start(world.hedged);
    world.pass(HEDGE_DELAY);
    assert_eq!(world.sends.len(), 2);
}

#[test]
fn a_caller_that_gives_up_at_once_makes_no_replica_slow() {
    let mut world = World::new();
    let dropped = world.start(world.hedged);
    world.now += Duration::from_nanos(1);
    world.calls.cancel(dropped, world.now);
    world.ended(A, dropped, 0, How::Withdrawn);
    for _ in 0..100 {
        world.sends.clear();
        let call = world.start(world.hedged);
        world.pass(HEDGE_DELAY);
        let [_, (hedge, _)] = world.sends[..] else { panic!("{:?}", world.calls.counters()) };
        world.pass(MS(1));
        world.ok(hedge, call, 1).unwrap();
        world.ended(A, call, 0, How::Withdrawn);
    }
}

#[test]
fn a_replica_that_is_taken_out_finishes_what_it_has_and_gets_nothing_new() {
    let mut world = World::new();
    let call = world.start(world.none);
    assert_eq!(world.sent().0, A);
    world.calls.remove_replica(A);
    assert_eq!(world.calls.in_flight(A), 1);
    let next = world.start(world.none);
    assert_eq!(world.sent().0, B);
    assert!(world.ok(A, call, 0).is_some() && world.ok(B, next, 0).is_some());
    assert_eq!(world.calls.in_flight(A), 0);
    world.calls.restore_replica(A);
    world.start(world.none);
    assert_eq!(world.sent().0, A);
}

#[test]
fn calls_of_another_class_size_label_or_distance_do_not_teach_the_delay() {
    let (hit, other) = (Label::new("hit"), Label::new("other"));
    let mut world = World::with(BudgetConfig::default(), |config| config.labels = vec![hit]);
    place(&mut world, C, |c| c.distance = 1);
    let least_samples = 10;
    let percentile = crate::core::Percentile { least_samples, ..Default::default() };
    let delay = Delay::Percentile(percentile);
    let hedge = HedgePolicy { delay, auto_off: None, ..HedgePolicy::default() };
    let policy = world.calls.register(Policy::Hedged(hedge)).unwrap();
    for _ in 0..50 {
        let call = world.start(world.none);
        world.pass(MS(2));
        world.ok(A, call, 0);
    }
    let slow = OptionSet { class: Some(TrafficClass(1)), ..OptionSet::NONE };
    let labelled = |label| OptionSet { label: Some(label), ..OptionSet::NONE };
    let of = [
        (Spec { options: slow, ..world.spec(policy) }, 1),
        (Spec { size: 5000, ..world.spec(policy) }, 2),
        (Spec { options: labelled(hit), ..world.spec(policy) }, 3),
        (Spec { options: labelled(other), ..world.spec(policy) }, 3),
    ];
    for (spec, denied) in of {
        world.try_start(spec).unwrap();
        assert_eq!(world.calls.counters().denied.no_delay, denied);
    }
    world.sends.clear();
    let call = world.start(policy);
    // What has to go to the far replica in the end takes longer there than anyone knows.
    world.overloaded(A, call, 0);
    world.overloaded(B, call, 1);
    assert_eq!(world.sends.pop().unwrap().0, C);
    assert_eq!(world.calls.counters().denied.no_delay, 4);
    world.pass(MS(3));
    world.sends.clear();
    world.start(policy);
    world.pass(MS(3));
    assert_eq!(world.sends.len(), 2, "its own kind is hedged");
}

#[test]
fn each_switch_of_hedging_is_told_once() {
    let mut world = World::new();
    for _ in 0..1000 {
        let call = world.start(world.hedged);
        let (refuses, ..) = world.sent();
        world.overloaded(refuses, call, 0);
        let (serves, ..) = world.sent();
        world.pass(MS(2));
        world.ok(serves, call, 1).unwrap();
    }
    let (method, policy) = (Method(3), world.hedged);
    let reason = OffReason::Pushback;
    let told = world.calls.poll_notice();
    assert_eq!(told, Some(Notice::SwitchedOff { method, policy, reason }));
    assert_eq!(world.calls.poll_notice(), None);
    world.pass(Duration::from_secs(6));
    world.start(world.hedged);
    assert_eq!(world.calls.poll_notice(), Some(Notice::SwitchedOn { method, policy }));
}

#[test]
fn a_replica_that_moves_gets_nothing_where_it_is_though_it_is_connected_there_again() {
    let mut world = World::new();
    world.calls.move_replica(A);
    world.closed(A);
    world.connected(A);
    world.start(world.none);
    assert_eq!(world.sent().0, B);
    // Calls wait for it while there is no other.
    [B, C].into_iter().for_each(|replica| world.calls.remove_replica(replica));
    world.start(world.none);
    world.nothing_sent();
    world.closed(A);
    world.calls.restore_replica(A);
    world.nothing_sent();
    world.connected(A);
    assert_eq!(world.sent().0, A);
}
