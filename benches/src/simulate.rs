//! `bowline simulate`: the machines of client and server in virtual time, under many policies.
//!
//! What runs is what runs on io_uring: the pure halves of client and server, with the frames that
//! they exchange, in the simulated world that also tests them. Time, network and service times are
//! the model's.

mod faults;
mod jobs;
mod setting;
mod sweep;
mod turn;

use core::time::Duration;
use std::thread;
use std::time::SystemTime;

use thiserror::Error;

pub use jobs::run_all;
pub use setting::{Setting, SettingError};
pub use sweep::{Variant, variants};
pub use turn::{Broken, Course, play, turn};

use crate::cli::{Offered, SimulateArgs};
use crate::faults::{Plan, StallModel};
use crate::interrupt::Interrupt;
use crate::output::{print, say};
use crate::parameters;
use crate::progress::Progress;
use crate::random::Random;
use crate::report::{Folder, Origin, Point, Regime, Report, ReportError, SIMULATED, overview};
use crate::run::{RunEnd, RunError, publish};
use crate::stats::{Rounds, Slice};
use crate::units::three_digits;

/// Why nothing was simulated.
#[derive(Debug, Error)]
pub enum SimulateError {
    /// The cluster cannot be made as it was described.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A rule was broken.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The report's folder, signals, or standard output.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl SimulateError {
    /// Whether it is the command line that is wrong, rather than a file that it names.
    pub fn is_usage(&self) -> bool {
        matches!(self, SimulateError::Setting(SettingError::Together(_)))
    }
}

/// Simulates every policy of the sweep at every load, and reports.
///
/// # Errors
/// [`SimulateError`]
pub fn run(args: &SimulateArgs) -> Result<RunEnd, SimulateError> {
    let interrupt = Interrupt::on_signals().map_err(RunError::Signals)?;
    let offered = args.offered();
    let settings =
        offered.iter().map(|&offered| Setting::new(&args.world, offered, args.calls.get()));
    let settings: Vec<Setting> = settings.collect::<Result<_, _>>()?;
    let (folders, whole) = folders(args, &offered).map_err(RunError::Report)?;
    let variants = variants(args);
    let threads = args.threads.map_or_else(cores, |threads| threads.get() as usize);
    say(format_args!("Simulating {} on {threads} threads.", amount(args, &offered, &variants)));
    let jobs = u64::from(args.rounds.get()) * (variants.len() * settings.len()) as u64;
    let progress = Progress::of_calls(u64::from(args.calls.get()) * jobs);
    let mut points = Vec::new();
    for ((setting, offered), folder) in settings.iter().zip(&offered).zip(&folders) {
        let started = SystemTime::now();
        let policies = rounds(args, setting, &variants, threads, &progress, &interrupt)?;
        let heading = match (settings.len(), points.len()) {
            (1, _) => vec![SIMULATED.to_owned(), String::new()],
            (_, 0) => vec![SIMULATED.to_owned(), String::new(), title(setting)],
            _ => vec![String::new(), title(setting)],
        };
        let report = Report {
            origin: Origin::Simulated,
            heading,
            started,
            seed: args.seed,
            parameters: parameters::of_simulation(args, setting),
            policies,
            regime: Some(Regime {
                service: Duration::from_nanos(setting.model.mean() as u64),
                cancel_delay: Duration::from_nanos(args.world.network.mean() as u64),
            }),
            interrupted: interrupt.asked(),
            failures: Vec::new(),
            notes: Vec::new(),
        };
        let end = progress.hidden(|| publish(&report, Some(folder)))?;
        points.push(Point {
            name: offered.to_string(),
            at: setting.load(),
            policies: report.policies,
        });
        if settings.len() == 1 || end == RunEnd::Interrupted {
            return Ok(end);
        }
    }
    drop(progress);
    let mut lines = vec![String::new(), overview(&points)];
    if let Some(folder) = whole {
        let picture = folder.write_loads(&points).map_err(RunError::Report)?;
        lines.push(format!("Picture: {}", picture.display()));
    }
    print(lines.join("\n")).map_err(RunError::Output)?;
    Ok(RunEnd::Whole)
}

/// A folder for each load; of several each has its own, within that of the whole.
fn folders(
    args: &SimulateArgs,
    offered: &[Offered],
) -> Result<(Vec<Folder>, Option<Folder>), ReportError> {
    if offered.len() == 1 {
        return Ok((vec![Folder::open(&args.out)?], None));
    }
    let whole = Folder::open_for_loads(&args.out)?;
    let each = offered.iter().map(|offered| Folder::open(&args.out.join(offered.folder())));
    Ok((each.collect::<Result<_, _>>()?, Some(whole)))
}

fn amount(args: &SimulateArgs, offered: &[Offered], variants: &[Variant]) -> String {
    let loads = match offered.len() {
        1 => String::new(),
        loads => format!(" at {loads} loads"),
    };
    let (policies, rounds, calls) = (variants.len(), args.rounds, args.calls);
    format!("{policies} policies{loads}, {rounds} rounds of {calls} calls each,")
}

/// What stands above the table of one load of several.
fn title(setting: &Setting) -> String {
    let (rate, load) = (three_digits(setting.rate), 100.0 * setting.load());
    format!("At {rate} calls a second, {load:.1} % of the slots:")
}

/// As many threads as can run at a time.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// All turns: of each policy its slices, of the rounds that are complete.
fn rounds(
    args: &SimulateArgs,
    setting: &Setting,
    variants: &[Variant],
    threads: usize,
    progress: &Progress,
    interrupt: &Interrupt,
) -> Result<Vec<Rounds>, Broken> {
    let jobs = variants.len() * args.rounds.get() as usize;
    // Round by round, so that what is there when the user has enough is comparable.
    let slices = run_all(jobs, threads, |job| {
        let (round, variant) = (job / variants.len(), &variants[job % variants.len()]);
        progress.doing(format!("round {}: {}", round + 1, variant.name));
        let mut before = 0;
        let course = course(args, setting, round as u64);
        let slice = turn(setting, variant, &course, |ended| {
            progress.advance(ended - before);
            before = ended;
            !interrupt.asked()
        });
        slice.transpose()
    });
    let mut complete: Vec<Rounds> = variants
        .iter()
        .map(|variant| Rounds { policy: variant.name.clone(), slices: Vec::new() })
        .collect();
    let mut slices = slices.into_iter();
    for _ in 0..args.rounds.get() {
        let round: Vec<Slice> = slices
            .by_ref()
            .take(variants.len())
            .map_while(|slice| slice)
            .collect::<Result<_, _>>()?;
        if round.len() < variants.len() {
            break;
        }
        complete.iter_mut().zip(round).for_each(|(rounds, slice)| rounds.slices.push(slice));
    }
    Ok(complete)
}

/// What is the same for all policies of a round: the seed of calls and service times, and what goes
/// wrong.
fn course(args: &SimulateArgs, setting: &Setting, round: u64) -> Course {
    let seed = Random::new(args.seed.wrapping_add(round), "simulation").bits();
    let stalls = StallModel {
        pattern: args.faults.faults.pattern(),
        length: args.faults.stall,
        gap: args.faults.stall_gap,
    };
    let calls = u64::from(args.calls.get());
    let replicas = args.world.replicas.get() as usize;
    let plan = Plan::draw(seed, &stalls, replicas, setting.lasts(calls));
    let faults = faults::faults(&plan, &args.fault_kinds, seed, setting.warm_up());
    Course { seed, calls, faults, surge: None }
}
