//! By how much timers are late: on the simulated driver, to the nanosecond of its clock.
//!
//! `ROUNDS` sets how many worlds are tried.

mod common;

use std::time::Duration;

use bowline_runtime::{
    Faults, Runtime, Simulation, Stage, clock_now, metrics, sleep, spawn, spawn_at, yield_now,
};
use common::{accept_one, listen, rounds, run, run_on};

/// The most that passes while a core looks for completions, in nanoseconds.
const PACE: u32 = 5_000;
/// So often it does in a turn at most, but for what it is called back for.
const LOOKS: u32 = 64;

#[test]
fn a_timer_is_late_by_no_more_than_a_turn_however_much_there_is_to_do() {
    const SLEEPS: u64 = 20;
    for seed in 0..rounds(5) as u64 {
        let faults = Faults { pace: PACE, ..Faults::default() };
        let simulation = Simulation::new(seed, faults, 1);
        run_on(&Runtime::builder().simulate_in(&simulation).build().unwrap(), async {
            // A flood, and work without end.
            let (listener, address) = listen();
            let (client, server) = accept_one(&listener, address).await;
            client.send(&[1; 10_000]);
            for stream in [client, server] {
                drop(spawn_at(Stage::Input, async move {
                    while let Ok(Some(lease)) = stream.receive().await {
                        stream.send(&lease);
                    }
                }));
            }
            drop(spawn(async {
                loop {
                    yield_now().await;
                }
            }));
            let most = Duration::from_nanos((LOOKS * PACE).into());
            for _ in 0..SLEEPS {
                let due = clock_now() + Duration::from_millis(1);
                sleep(Duration::from_millis(1)).await;
                let now = clock_now();
                assert!(now >= due && now - due <= most, "seed {seed}: {:?} late", now - due);
            }
            let metrics = metrics();
            let lateness = &metrics.timer_lateness;
            assert!(lateness.count() >= SLEEPS && lateness.largest() > 0);
            assert!(lateness.largest() <= most.as_nanos() as u64, "{}", lateness.largest());
            assert!(metrics.bytes_received > 100_000, "there was little to do");
        });
    }
}

#[test]
fn the_kernel_delays_no_timer_of_a_core_to_spare_a_wake() {
    run(async {
        // SAFETY: no memory is passed.
        assert_eq!(unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }, 1);
    });
}
