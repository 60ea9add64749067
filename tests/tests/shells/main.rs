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

use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use plan::Plan;
use run::{Ran, run};

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// A seed takes some hundredths of a second, and some tenths under a sanitizer: one that takes this
/// long hangs.
const HANGS: Duration = Duration::from_secs(120);

/// Runs seeds that have to break nothing, two at a time. A failure is told of at once, as the other
/// thread may hang by the same bug; and a seed that hangs is told of when the other thread is done.
fn hold(
    seeds: impl IntoIterator<Item = u64, IntoIter: Send + 'static>,
    mut each: impl FnMut(u64, Ran),
) {
    let seeds = Arc::new(Mutex::new(seeds.into_iter()));
    let (tell, told) = mpsc::channel();
    let work = |tell: mpsc::Sender<_>| {
        let seeds = seeds.clone();
        move || {
            let next = || seeds.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some(seed) = next() {
                // Nobody listens any more once another has failed.
                if tell.send((seed, None)).is_err()
                    || tell.send((seed, Some(run(&Plan::new(seed))))).is_err()
                {
                    return;
                }
            }
        }
    };
    let workers = [thread::spawn(work(tell.clone())), thread::spawn(work(tell))];
    let mut under_way = BTreeSet::new();
    loop {
        match told.recv_timeout(HANGS) {
            Ok((seed, None)) => {
                under_way.insert(seed);
            }
            Ok((seed, Some(Ok(ran)))) => {
                under_way.remove(&seed);
                each(seed, ran);
            }
            Ok((seed, Some(Err(story)))) => panic!("{story}\nagain with BOWLINE_SEED={seed}"),
            Err(RecvTimeoutError::Timeout) => {
                let seed = under_way.first().expect("somebody works");
                panic!("of {under_way:?} nothing is heard\nagain with BOWLINE_SEED={seed}");
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    workers.into_iter().for_each(|worker| worker.join().expect("it told all that it had"));
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a list of descriptors").count()
}

/// The only test of seeds that runs in this process, for it counts the process's descriptors.
#[test]
fn every_call_ends_once_and_nothing_is_left_whatever_the_kernel_does() {
    if let Some(seed) = setting("BOWLINE_SEED") {
        println!("{:#?}", Plan::new(seed));
        hold([seed], |_, ran| println!("{ran:#?}"));
        return;
    }
    let seeds = setting("BOWLINE_SEEDS").unwrap_or(200);
    // What is made once in a process, and stays.
    hold([0], |_, _| {});
    let before = open_descriptors();
    let mut totals = Ran::default();
    hold(0..seeds, |_, ran| totals.add(&ran));
    println!("{seeds} seeds: {totals:?}");
    assert_eq!(open_descriptors(), before, "all descriptors were closed");
    // Many seeds together have seen everything that one may not.
    if seeds >= 100 {
        totals.saw_everything();
    }
    the_same_seed_makes_the_same_run();
}

fn the_same_seed_makes_the_same_run() {
    let mut hashes = BTreeSet::new();
    hold([1, 2, 3, 5, 1, 2, 3, 5], |seed, ran| {
        hashes.insert((seed, ran.hash));
    });
    assert_eq!(hashes.len(), 4, "{hashes:?}");
}
