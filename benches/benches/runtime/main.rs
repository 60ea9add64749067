//! What a runtime costs: Bowline's, and, if asked to, its peers beside it, at the same work.
//!
//! ```text
//! cargo bench -p bowline-bench --bench runtime
//! cargo bench -p bowline-bench --bench runtime --features peers
//! ```
//!
//! The times are those of one operation, when many are done one after the other on one thread (two
//! where it says so):
//!
//! | group | one operation |
//! |---|---|
//! | `task` | a task is made, runs, and wakes the one that awaits it |
//! | `timer: cancelled` | a deadline of a second is armed, and not met |
//! | `timer: fired` | a sleep of 10 us, and what it took longer than that, the thread's wake for the most part |
//! | `cross-core` | a message to a thread on another core and back; both sleep in between |
//! | `buffer` | an aligned buffer of 4 KiB is taken and given back |
//! | `echo 64 B` | 64 bytes over loopback and back, both ends on this thread |
//! | `read 4 KiB` | a block is read from a file past the page cache, one at a time |
//!
//! Each contestant runs as its documentation has it for one thread: tokio's runtime is the one of
//! the current thread, the others are on io_uring. What a crate has no way for is left out. A reader
//! is to look at differences of a factor, not of a percent: contestants run after each other, not in
//! turns, and a kernel's share is in most of these.

mod bowline;
#[cfg(feature = "peers")]
mod compio;
#[cfg(feature = "peers")]
mod glommio;
#[cfg(feature = "peers")]
mod monoio;
#[cfg(feature = "peers")]
mod tokio;

use core::time::Duration;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};

/// What is sent and comes back.
const FRAME: [u8; 64] = [7; 64];
/// What is read at once.
const BLOCK: usize = 4096;
/// The file's length in blocks.
const BLOCKS: u64 = 1024;
/// A sleep that fires.
const NAP: Duration = Duration::from_micros(10);
/// A deadline that is not met.
const FAR: Duration = Duration::from_secs(1);

/// Does an operation so many times, and tells how long all of them took. Setting up doesn't count.
type Work = fn(u64) -> Duration;
/// The same, with a file.
type Read = fn(&Path, u64) -> Duration;

/// One of those that are compared.
struct Contestant {
    name: &'static str,
    task: Work,
    cancelled: Work,
    fired: Work,
    cross_core: Option<Work>,
    buffer: Option<Work>,
    echo: Work,
    read: Read,
}

/// Runs two sides of something, each on a thread that stays on a core of its own. Left to the
/// scheduler, two threads that wake each other in turns may come to share a core, which is quicker,
/// and not what is asked. Returns what the first side does.
fn on_two_cores(one: impl FnOnce() -> Duration + Send, other: impl FnOnce() + Send) -> Duration {
    let cpus = core_affinity::get_core_ids().unwrap_or_default();
    let [ours, theirs, ..] = cpus[..] else {
        panic!("this takes two CPUs, and the process may use {}: see taskset", cpus.len())
    };
    let pin = |cpu: core_affinity::CoreId| {
        assert!(core_affinity::set_for_current(cpu), "CPU {} is not to be had", cpu.id);
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(theirs);
            other();
        });
        let one = scope.spawn(move || {
            pin(ours);
            one()
        });
        one.join().expect("a time")
    })
}

fn contestants() -> Vec<Contestant> {
    vec![
        bowline::CONTESTANT,
        #[cfg(feature = "peers")]
        tokio::CONTESTANT,
        #[cfg(feature = "peers")]
        monoio::CONTESTANT,
        #[cfg(feature = "peers")]
        glommio::CONTESTANT,
        #[cfg(feature = "peers")]
        compio::CONTESTANT,
    ]
}

fn group(criterion: &mut Criterion, name: &str, work: impl Fn(&Contestant) -> Option<Work>) {
    let mut group = criterion.benchmark_group(name);
    for contestant in contestants() {
        if let Some(work) = work(&contestant) {
            group.bench_function(contestant.name, |bencher| bencher.iter_custom(work));
        }
    }
    group.finish();
}

fn benches(criterion: &mut Criterion) {
    group(criterion, "task", |contestant| Some(contestant.task));
    group(criterion, "timer: cancelled", |contestant| Some(contestant.cancelled));
    group(criterion, "timer: fired", |contestant| Some(contestant.fired));
    group(criterion, "cross-core", |contestant| contestant.cross_core);
    group(criterion, "buffer", |contestant| contestant.buffer);
    group(criterion, "echo 64 B", |contestant| Some(contestant.echo));
    reads(criterion);
}

fn reads(criterion: &mut Criterion) {
    // Not in /tmp, which may be memory, and then has no direct I/O.
    let folder = tempfile::tempdir_in(".").expect("a folder here");
    let path = folder.path().join("blocks");
    let mut file = File::create(&path).expect("a file");
    file.write_all(&vec![7; BLOCK * BLOCKS as usize]).expect("room for the file");
    file.sync_all().expect("a disk");
    let mut group = criterion.benchmark_group("read 4 KiB");
    for contestant in contestants() {
        group.bench_function(contestant.name, |bencher| {
            bencher.iter_custom(|count| (contestant.read)(&path, count));
        });
    }
    group.finish();
}

/// Where read number `n` starts: anywhere, and the same for everybody.
fn offset_of(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % BLOCKS * BLOCK as u64
}

criterion_group! {
    name = all;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = benches
}
criterion_main!(all);
