//! Processes that are killed: the comparison, and a replica under it.

use core::time::Duration;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Instant;

use bowline_bench::cli::{Command as Parsed, Policy, parse};
use bowline_bench::course::{Course, Driver};
use bowline_bench::data::DataSet;
use bowline_bench::faults::{Pattern, StallModel};
use bowline_bench::interrupt::Interrupt;
use bowline_bench::replicas::Cluster;
use bowline_bench::run::{Session, Setting, load};
use bowline_runtime::Runtime;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::command::{Comparison, PATIENCE, await_read, bowline, comparison, replica, run, text};

/// Gone, or a zombie that nobody has reaped yet.
fn is_dead(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
    let zombie =
        stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|s| s.starts_with(" Z")));
    zombie || test_kill_process(pid).is_err()
}

/// Waits until all of these are dead. A process closes its files a moment before it is: that its
/// pipes have ended is too early to look.
fn await_deaths(replicas: &[Pid]) {
    let began = Instant::now();
    while let Some(alive) = replicas.iter().find(|pid| !is_dead(**pid)) {
        assert!(began.elapsed() < PATIENCE, "replica {alive:?} lives on");
        std::thread::yield_now();
    }
}

#[test]
fn killing_the_comparison_leaves_no_replica_behind() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut comparison = Comparison::start(comparison(folder.path(), "60s"));
    assert_eq!(comparison.replicas.len(), 3);
    // One of them cannot even run: it is as a stall leaves it.
    kill_process(comparison.replicas[1], Signal::STOP).expect("it runs");
    comparison.signal(Signal::KILL);
    let status = comparison.child.wait().expect("a child");
    assert_eq!(status.signal(), Some(9));
    comparison.await_end_of_all();
    await_deaths(&comparison.replicas);
}

#[test]
fn ctrl_c_ends_with_a_report_and_leaves_no_replica_behind() {
    ends_with_a_report(Signal::INT);
}

#[test]
fn the_end_of_the_terminal_ends_with_a_report_and_leaves_no_replica_behind() {
    if !is_hang_up_ignored() {
        ends_with_a_report(Signal::HUP);
    }
}

/// Under nohup the end of the terminal is nobody's business.
pub(crate) fn is_hang_up_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    u64::from_str_radix(ignored.trim(), 16).expect("a mask") & 1 == 1
}

fn ends_with_a_report(signal: Signal) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let line = "--rate 300 --rounds 1 --warmup 0 --data-size 1MiB --service 1ms --duration 60s";
    let mut comparison = Comparison::start(bowline(folder.path(), line));
    comparison.await_read();
    comparison.signal(signal);
    let status = comparison.child.wait().expect("a child");
    assert_eq!(status.code(), Some(130));
    comparison.await_end_of_all();
    await_deaths(&comparison.replicas);
    let results = folder.path().join("bowline-report/results.json");
    let results = std::fs::read_to_string(results).expect("a report of what there was");
    assert!(results.contains("\"interrupted\": true"), "{results}");
}

#[test]
fn a_comparison_whose_replicas_have_all_died_ends_early_and_fails() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let line = "--rate 300 --rounds 1 --warmup 0 --data-size 1MiB --service 1ms --duration 600s";
    let mut comparison = Comparison::start(bowline(folder.path(), line));
    comparison.await_read();
    for replica in &comparison.replicas {
        kill_process(*replica, Signal::KILL).expect("it runs");
    }
    // Else this waits for longer than the test's patience.
    comparison.await_end_of_all();
    assert_eq!(comparison.child.wait().expect("a child").code(), Some(1));
    let results = folder.path().join("bowline-report/results.json");
    let results = std::fs::read_to_string(results).expect("a report of what there was");
    for said in ["replica 2 (process", "killed by signal 9", "no replica was left"] {
        assert!(results.contains(said), "{said}: {results}");
    }
    assert!(results.contains("\"ratios_void\": true"), "{results}");
}

#[test]
fn a_load_whose_replica_has_died_says_so_and_fails() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut replica, address) = replica(folder.path());
    // Calls have time enough to find that there is nobody, and the load lasts until one has begun.
    let line = format!(
        "load --replicas {address} --rate 100 --duration 10s --warmup 0 --deadline 30s --data-size 1MiB"
    );
    let mut load = bowline(folder.path(), &line);
    let load = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let load = load.expect("the program is there");
    await_read(address);
    replica.kill().and_then(|()| replica.wait()).expect("it runs");
    let ended = load.wait_with_output().expect("a child");
    let said = text(&ended.stdout);
    assert_eq!(ended.status.code(), Some(1), "{said} {}", text(&ended.stderr));
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("FAILED: tied: calls that failed: "), "{said}");
    assert!(words.contains(": no replica is connected"), "{said}");
}

#[test]
fn an_end_before_anything_was_measured_keeps_the_last_report() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let good = run(comparison(folder.path(), "300ms"));
    assert!(good.status.success());
    let report = folder.path().join("bowline-report/results.json");
    let before = std::fs::read_to_string(&report).expect("a report");

    // The warm-up outlasts the test's patience, so that the signal falls into it.
    let line = "--rate 300 --rounds 1 --warmup 600s --data-size 1MiB --service 1ms";
    let mut comparison = Comparison::start(bowline(folder.path(), line));
    comparison.signal(Signal::INT);
    let status = comparison.child.wait().expect("a child");
    assert_eq!(status.code(), Some(130));
    let said = comparison.await_end_of_all();
    assert!(said.contains("before anything was measured"), "{said}");
    assert_eq!(std::fs::read_to_string(&report).expect("a report"), before);
}

/// Waits until `child` writes a file into `folder`.
fn await_partial(folder: &Path, child: &mut Child) {
    let began = Instant::now();
    let entries = || std::fs::read_dir(folder).into_iter().flatten().flatten();
    while !entries().any(|entry| entry.metadata().is_ok_and(|file| file.len() > 0)) {
        if let Some(status) = child.try_wait().expect("a child") {
            let mut said = String::new();
            child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
            panic!("it ended ({status}) and has written nothing: {said}");
        }
        assert!(began.elapsed() < PATIENCE, "nothing is written");
        std::thread::yield_now();
    }
}

#[test]
fn a_signal_while_data_is_written_ends_it_and_leaves_nothing() {
    for (line, signal) in [
        ("compare --data data --data-size 1GiB", Signal::INT),
        ("serve --file data/blocks.dat --data-size 1GiB --listen 127.0.0.1:0", Signal::TERM),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let data = folder.path().join("data");
        std::fs::create_dir(&data).expect("writable");
        let mut command = bowline(folder.path(), line);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program is there");
        await_partial(&data, &mut child);
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
        kill_process(pid.expect("a process id"), signal).expect("it runs");
        let status = child.wait().expect("a child");
        assert_eq!(status.code(), Some(130), "{line}");
        assert_eq!(std::fs::read_dir(&data).expect("readable").count(), 0, "{line}");
        let mut said = String::new();
        child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert!(said.contains("interrupted while writing"), "{line}: {said}");
    }
}

/// A replica dies while tied calls are queued and run on it: each of them has its deadline before
/// it, and another replica to go to.
#[test]
fn killing_a_replica_loses_no_call() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let set = DataSet::of_size(1, 1 << 20);
    let cluster = Cluster::launch(3, true, |number| {
        let parent = std::process::id();
        // The parent is this test's thread, which ends when the test does.
        bowline(
            folder.path(),
            &format!(
                "serve --managed --listen 127.0.0.1:0 --replica {number} --file {number}.dat \
                 --data-size 1MiB --service 5ms --slots 2 --die-with-parent {parent}"
            ),
        )
    });
    let cluster = Arc::new(cluster.expect("replicas"));
    let Ok(Parsed::Load(args)) =
        parse("bowline load --replicas x:1 --rate 400 --deadline 20s".split_whitespace())
    else {
        panic!("options of a load");
    };
    let setting = Setting {
        addresses: &cluster.addresses(),
        cluster: Some(cluster.clone()),
        policies: &[Policy::Tied],
        args: &args.settings,
        load: &args.load,
        set,
        interrupt: Interrupt::default(),
    };
    let runtime = Runtime::builder().build().expect("io_uring");
    let mut session = Session::begin(runtime, setting).expect("all replicas are there");
    let course = Course {
        policies: vec![Policy::Tied],
        rounds: 1,
        seed: 1,
        load: load(&args.load, Duration::from_secs(2), &set),
        stalls: StallModel { pattern: Pattern::Off, length: Duration::ZERO, gap: Duration::ZERO },
        replicas: 3,
    };
    let victim = i32::try_from(cluster.process_id(1)).ok().and_then(Pid::from_raw);
    let mut victim = Some(victim.expect("a process id"));
    let slice = session
        .live
        .turn(Policy::Tied, &course.round(1), &mut |elapsed| {
            if let Some(victim) = victim.take_if(|_| elapsed > Duration::from_millis(500)) {
                kill_process(victim, Signal::KILL).expect("it runs");
            }
        })
        .expect("the turn goes on");
    let failures = session.live.failures.sentences(&cluster.addresses(), &[]);
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains("replica 1 (process"), "{failures:?}");
    assert!(failures[0].contains("killed by signal 9 in round 1, tied"), "{failures:?}");
    assert_eq!(victim, None, "it was killed in the middle of the turn");
    let counters = slice.counters;
    assert!(counters.calls > 500, "{counters:?}");
    assert_eq!(counters.ok, counters.calls, "{counters:?}");
    assert_eq!(counters.in_deadline, counters.calls, "{counters:?}");
}
