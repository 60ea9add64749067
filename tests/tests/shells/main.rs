//! The whole shells, of servers and of a client, on the runtime's simulated driver: several cores in
//! one process, of which a seed decides who runs when, what the kernel does to each operation, and
//! what time it is. Slower than the simulated world, and nearer to what will run: short reads and
//! writes, resets, failing accepts, cancellations that race completions, missing buffers, processes
//! that stand still, servers that restart.
//!
//! `BOWLINE_SEEDS` sets how many seeds are run, `BOWLINE_SEED` the only one, and tells its story.

mod plan;
mod run;
mod store;
mod wire;

use std::sync::atomic::{AtomicU64, Ordering};

use plan::Plan;
use run::{Ran, run};

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs a seed that has to break nothing.
fn hold(seed: u64) -> Ran {
    match run(&Plan::new(seed)) {
        Ok(ran) => ran,
        Err(story) => panic!("{story}\nagain with BOWLINE_SEED={seed}"),
    }
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a list of descriptors").count()
}

/// The only test of seeds that runs in this process, for it counts the process's descriptors.
#[test]
fn every_call_ends_once_and_nothing_is_left_whatever_the_kernel_does() {
    if let Some(seed) = setting("BOWLINE_SEED") {
        println!("{:#?}\n{:#?}", Plan::new(seed), hold(seed));
        return;
    }
    let seeds = setting("BOWLINE_SEEDS").unwrap_or(200);
    // What is made once in a process, and stays.
    hold(0);
    let before = open_descriptors();
    let (next, totals) = (AtomicU64::new(0), std::sync::Mutex::new(Ran::default()));
    std::thread::scope(|scope| {
        let work = || {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    break;
                }
                let ran = hold(seed);
                totals.lock().expect("no seed has failed").add(&ran);
            }
        };
        let helper = scope.spawn(work);
        work();
        helper.join().expect("no seed has failed");
    });
    println!("{seeds} seeds: {:?}", totals.lock().expect("no seed has failed"));
    assert_eq!(open_descriptors(), before, "all descriptors were closed");
    // Many seeds together have seen everything that one may not.
    if seeds >= 100 {
        let totals = totals.lock().expect("no seed has failed");
        totals.saw_everything();
    }
    the_same_seed_makes_the_same_run();
}

fn the_same_seed_makes_the_same_run() {
    for seed in [1, 2, 3, 5] {
        assert_eq!(hold(seed).hash, hold(seed).hash, "seed {seed}");
    }
}
