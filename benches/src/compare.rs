//! `bowline compare`: every policy against the same replicas, calls and stalls.

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

use bowline_runtime::Runtime;

use crate::cli::CompareArgs;
use crate::course::Course;
use crate::data::{DataError, DataSet, Made, ensure_files, hold};
use crate::faults::{Pattern, StallModel};
use crate::interrupt::Interrupt;
use crate::output::say;
use crate::parameters;
use crate::progress::Progress;
use crate::replicas::{Cluster, LaunchError};
use crate::report::{Folder, Origin, Report};
use crate::run::{RunEnd, RunError, Session, Setting, load, publish};
use crate::serve_config::{ConfigError, resolve};
use crate::setup::Machine;
use crate::units::show_size;

/// Replicas that are started when none are given.
const REPLICAS: usize = 3;
/// How often replicas are started anew, should another program take a port in between.
const LAUNCHES: usize = 3;

/// Runs the whole comparison.
///
/// # Errors
/// [`RunError`]
pub fn run(args: &CompareArgs) -> Result<RunEnd, RunError> {
    match compare(args) {
        Err(RunError::Data(error @ DataError::Interrupted { .. })) => {
            say(format_args!("bowline: {error}"));
            Ok(RunEnd::Interrupted)
        }
        ended => ended,
    }
}

fn compare(args: &CompareArgs) -> Result<RunEnd, RunError> {
    let interrupt = Interrupt::on_signals().map_err(RunError::Signals)?;
    let started = SystemTime::now();
    // Both before a minute is spent in vain: the folder, and io_uring.
    let folder = Folder::open(&args.out)?;
    let runtime = Runtime::builder().build()?;
    let set = DataSet::of_size(args.load.seed, args.replica.data_size);
    // To the end of the run, for as long as the replicas read.
    let own = args.replicas.is_empty();
    let _held = own.then(|| hold(&args.data)).transpose()?;
    let cluster = match args.replicas.as_slice() {
        [] => Some(Arc::new(launch(args, &set, &interrupt)?)),
        _ => None,
    };
    let addresses = match &cluster {
        Some(cluster) => cluster.addresses(),
        None => resolve_all(&args.replicas)?,
    };
    let setting = Setting {
        addresses: &addresses,
        cluster,
        policies: &args.policies,
        args: &args.policy,
        load: &args.load,
        set,
        interrupt: interrupt.clone(),
    };
    let mut session = Session::begin(runtime, setting)?;
    let course = course(args, addresses.len(), &set);
    let policies = session.run(&course, args.load.warmup)?;
    if let Some(cluster) = &session.live.cluster {
        cluster.stop();
    }
    let files = if own { data_files(args) } else { Vec::new() };
    let report = Report {
        origin: Origin::Measured(Machine::read()),
        heading: Vec::new(),
        started,
        seed: args.load.seed,
        parameters: parameters::of_compare(args, session.clock),
        policies,
        regime: session.regime(),
        interrupted: interrupt.asked(),
        failures: session.live.failures.sentences(&addresses, &files),
        notes: session.live.notes,
    };
    publish(&report, Some(&folder))
}

/// The addresses of replicas that run already.
///
/// # Errors
/// One leads nowhere.
pub fn resolve_all(replicas: &[String]) -> Result<Vec<SocketAddr>, ConfigError> {
    replicas.iter().map(|replica| resolve(replica)).collect()
}

fn course(args: &CompareArgs, replicas: usize, set: &DataSet) -> Course {
    let own = args.replicas.is_empty();
    let pattern = if own { args.faults.faults.pattern() } else { Pattern::Off };
    Course {
        policies: args.policies.clone(),
        rounds: args.rounds.get(),
        seed: args.load.seed,
        load: load(&args.load, args.turn(), set),
        stalls: StallModel { pattern, length: args.faults.stall, gap: args.faults.stall_gap },
        replicas,
    }
}

/// The files of our own replicas, by number.
fn data_files(args: &CompareArgs) -> Vec<PathBuf> {
    (0..REPLICAS).map(|n| args.data.join(format!("replica-{n}.dat"))).collect()
}

/// Makes the data files and starts the replicas, on this thread, which outlives them.
fn launch(args: &CompareArgs, set: &DataSet, interrupt: &Interrupt) -> Result<Cluster, RunError> {
    let program = env::current_exe().map_err(RunError::Program)?;
    let files = data_files(args);
    make_files(&files, set, &args.data, interrupt)?;
    let mut launches = 1;
    loop {
        match Cluster::launch(REPLICAS, !args.no_mesh, |n| replica(&program, args, n, &files[n])) {
            Err(LaunchError::NotReady { .. }) if launches < LAUNCHES => launches += 1,
            launched => {
                let cluster = launched?;
                let places = cluster.addresses().into_iter().enumerate();
                let named =
                    places.map(|(n, at)| format!("{at} (process {})", cluster.process_id(n)));
                say(format_args!("Replicas: {}.", named.collect::<Vec<_>>().join(", ")));
                return Ok(cluster);
            }
        }
    }
}

fn make_files(
    files: &[PathBuf],
    set: &DataSet,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<(), DataError> {
    let progress = Progress::of_bytes(set.bytes() * files.len() as u64);
    progress.doing(format!("writing {}", folder.display()));
    let made = ensure_files(files, set, interrupt, &mut |bytes| progress.advance(bytes))?;
    let written = made.iter().filter(|made| **made == Made::Written).count();
    drop(progress);
    let what = if written == 0 { "reused".to_owned() } else { format!("{written} written") };
    let (count, size) = (files.len(), show_size(set.bytes()));
    say(format_args!("Data: {count} files of {size} in {}, {what}.", folder.display()));
    Ok(())
}

/// The command of a replica that lives for this process alone.
fn replica(program: &Path, args: &CompareArgs, number: usize, file: &Path) -> Command {
    let how = &args.replica;
    let mut command = Command::new(program);
    command
        .args(["serve", "--managed", "--listen", "127.0.0.1:0"])
        .args(["--die-with-parent", &std::process::id().to_string()])
        .args(["--replica", &number.to_string()])
        .arg("--file")
        .arg(file)
        .args(["--seed", &args.load.seed.to_string()])
        .args(["--data-size", &format!("{}B", how.data_size)])
        .args(["--slots", &how.slots.to_string()])
        .args(["--queue", &how.queue.to_string()])
        .args(["--service", &format!("{}ns", how.service.as_nanos())])
        .args(["--service-spread", &how.service_spread.to_string()]);
    command
}
