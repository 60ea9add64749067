//! Which of several replicas calls go to, by when they came and what their replies tell.

use super::*;

fn picking(rule: PickRule, change: impl FnOnce(&mut Config)) -> World {
    World::with(BudgetConfig::default(), |config| {
        config.pick = rule;
        change(config);
    })
}

/// Makes so many calls, one after the other: how many went to each replica. `says` how long a replica
/// takes, and how many copies it tells that it runs.
fn shares(world: &mut World, calls: u32, says: impl Fn(ReplicaId) -> (Duration, u16)) -> [u32; 3] {
    let mut shares = [0; 3];
    for _ in 0..calls {
        let call = world.start(world.none);
        let (replica, n, _) = world.sent();
        let (takes, running) = says(replica);
        world.pass(takes);
        world.load.running = running;
        assert!(world.ok(replica, call, n).is_some());
        shares[usize::from(replica.0 - A.0)] += 1;
    }
    shares
}

#[test]
fn a_replica_that_comes_back_warms_up_to_its_share_from_its_first_call_on() {
    let warm_up = Duration::from_secs(1);
    let mut world = picking(PickRule::PowerOfTwo, |config| config.warm_up = warm_up);
    shares(&mut world, 600, |_| (MS(2), 0));
    world.closed(B);
    world.connected(B);
    // It is not the connection that warms.
    world.pass(warm_up);
    let [_, cold, _] = shares(&mut world, 600, |_| (US(150), 0));
    assert!((5..60).contains(&cold), "an eighth of a third: {cold} of 600");
    world.pass(warm_up);
    let [_, warm, _] = shares(&mut world, 600, |_| (US(150), 0));
    assert!((150..250).contains(&warm), "a third: {warm} of 600");
}

#[test]
fn what_a_replica_says_of_its_load_keeps_calls_away_while_it_is_fresh() {
    let mut world = picking(PickRule::PowerOfTwo, |_| {});
    let busy = |replica| (US(100), if replica == A { 10 } else { 0 });
    assert_eq!(shares(&mut world, 300, busy)[0], 1, "until it has said so");
    world.pass(Config::default().load_lifetime);
    assert_eq!(shares(&mut world, 300, busy)[0], 1, "it says so again");
}

#[test]
fn a_replica_is_hot_by_what_it_and_others_report_until_its_report_is_used_up() {
    let mut world = picking(PickRule::HotCold, |_| {});
    world.closed(C);
    // From now on more than three is much.
    shares(&mut world, 64, |_| (MS(1), 3));
    world.closed(B);
    assert_eq!(shares(&mut world, 1, |_| (MS(1), 12)), [1, 0, 0]);
    world.connected(B);
    assert_eq!(shares(&mut world, 1, |_| (MS(1), 3)), [0, 1, 0], "A is hot");
    let in_flight = |world: &World| [A, B].map(|replica| world.calls.in_flight(replica));
    for _ in 0..8 {
        world.start(world.none);
    }
    assert_eq!(in_flight(&world), [0, 8], "B comes to be hot as well, but less so");
    for _ in 8..200 {
        world.start(world.none);
    }
    // No reply has come since: what they said is by now no reason to prefer the one or the other.
    assert_eq!(in_flight(&world), [100, 100]);
}

#[test]
fn by_what_answers_take_the_fastest_replica_gets_the_most_and_the_slowest_hardly_any() {
    let mut world = picking(PickRule::C3 { clients: 1 }, |_| {});
    let [slow, fair, fast] = shares(&mut world, 300, |replica| match replica {
        A => (MS(8), 0),
        B => (MS(4), 0),
        _ => (MS(2), 0),
    });
    // One a second goes to each to see.
    assert!(slow <= 2 && fair <= 2 && fast >= 296, "{slow} {fair} {fast}");
}
