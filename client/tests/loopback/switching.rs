//! Hedging that switches itself off and on, and replicas that are left alone and taken back: each time
//! is told once.

use std::time::Duration;

use bowline_client::Client;
use bowline_client::core::{
    AutoOff, Delay, EjectConfig, HedgePolicy, Percentile, Policy, PolicyId,
};
use bowline_protocol::Status;

use crate::ear::{lines, listen};
use crate::server::{Answer, LONG, READ, Server, World, config, run};
use crate::told::until;

const SOON: Duration = Duration::from_millis(1);

/// Hedged, and judged as often as can be.
fn watchful(delay: Delay) -> Policy {
    let auto_off = AutoOff {
        window: Duration::from_millis(10),
        least_calls: 1,
        max_pushback: 0.001,
        // A machine that stands still makes calls late.
        max_errors: 1.0,
        off_for: Duration::ZERO,
        ..AutoOff::default()
    };
    Policy::Hedged(HedgePolicy { delay, auto_off: Some(auto_off), ..HedgePolicy::default() })
}

async fn call(world: &World, policy: PolicyId, deadline: Duration) {
    // Whether it succeeds is not what is looked at.
    drop(world.client.call(READ, b"x").idempotent().policy(policy).deadline(deadline).await);
}

/// The lines of that level that say so, once there are so many at least.
async fn told(level: &str, what: &str, times: u64) -> Vec<String> {
    let said = || lines(level).into_iter().filter(|line| line.contains(what)).collect::<Vec<_>>();
    until(|| said().len() as u64 >= times).await;
    said()
}

#[test]
fn pushback_switches_hedging_off_with_a_warning_and_on_again_with_a_word() {
    run(async {
        let world = World::new().await;
        let policy = world.client.register(watchful(Delay::Fixed(SOON))).unwrap();
        let counters = || world.client.counters();
        listen();
        world.servers[..2].iter().for_each(|server| server.answer.set(Answer::Refuse));
        while counters().switched_off.pushback == 0 {
            call(&world, policy, LONG).await;
        }
        world.servers.iter().for_each(|server| server.answer.set(Answer::Echo));
        while counters().switched_on < counters().switched_off.pushback {
            call(&world, policy, LONG).await;
        }
        // Once, unless the machine stood still for a whole window.
        let times = counters().switched_on;
        let off = "WARN hedging is off for a while method=1 policy=PolicyId(1) reason=Pushback";
        assert_eq!(told("WARN", "hedging", times).await, vec![off; times as usize]);
        let on = "INFO hedging is on again, on probation method=1 policy=PolicyId(1)";
        assert_eq!(told("INFO", "hedging", times).await, vec![on; times as usize]);
    });
}

#[test]
fn far_more_slow_calls_than_the_percentile_implies_are_told_as_an_alarm() {
    run(async {
        let world = World::new().await;
        let percentile =
            Percentile { fallback: Some(SOON), least_samples: 1 << 32, ..Percentile::default() };
        let policy = world.client.register(watchful(Delay::Percentile(percentile))).unwrap();
        listen();
        world.servers[0].answer.set(Answer::Wait);
        while world.client.counters().switched_off.excess == 0 {
            // Once hedging is off nobody answers.
            call(&world, policy, Duration::from_secs(1)).await;
        }
        let told = told("WARN", "hedging", 1).await;
        let alarm = "WARN far more calls are slow than the percentile implies: hedging is off for a \
                     while method=1 policy=PolicyId(1)";
        assert_eq!(told, [alarm]);
    });
}

#[test]
fn an_ejection_is_told_of_when_it_comes_to_pass_though_no_timer_is_due() {
    run(async {
        let servers = [1].map(Server::start);
        let mut config = config(&servers);
        config.core.eject = Some(EjectConfig { after: 1, ..EjectConfig::default() });
        let client = Client::connect(config).await.unwrap();
        listen();
        // Of two calls the later is due no sooner than the timer that the first one set.
        for answer in [Answer::Echo, Answer::Fail(Status::Failed)] {
            servers[0].answer.set(answer);
            let _ = client.call(READ, b"x").deadline(100 * LONG).await;
        }
        let ejected = "WARN ejected: it fails again and again replica=1";
        assert_eq!(told("WARN", "ejected", 1).await, [ejected]);
    });
}

#[test]
fn a_replica_that_is_ejected_or_readmitted_is_told_of_once() {
    run(async {
        let eject = EjectConfig { after: 1, first: SOON, max: SOON };
        let world = World::with(|config| config.core.eject = Some(eject)).await;
        let policy = world.client.register(watchful(Delay::Fixed(SOON))).unwrap();
        listen();
        world.servers[0].answer.set(Answer::Fail(Status::Failed));
        while world.client.counters().ejected == 0 {
            call(&world, policy, LONG).await;
        }
        world.servers[0].answer.set(Answer::Echo);
        let ejected = "WARN ejected: it fails again and again replica=1";
        assert_eq!(told("WARN", "ejected", 1).await, [ejected]);
        while world.client.counters().readmitted == 0 {
            call(&world, policy, LONG).await;
        }
        let readmitted = "INFO readmitted: it does its work again replica=1";
        assert_eq!(told("INFO", "readmitted", 1).await, [readmitted]);
        assert_eq!(told("WARN", "ejected", 1).await, [ejected]);
    });
}
