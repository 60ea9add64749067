//! `bowline simulate`: the machines of client and server in virtual time, under many policies.
//!
//! What runs is what runs on io_uring: the pure halves of client and server, with the frames that
//! they exchange, in the simulated world that also tests them. Time, network and service times are
//! the model's.

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
pub use turn::{Broken, turn};

use crate::cli::SimulateArgs;
use crate::faults::{Plan, StallModel};
use crate::interrupt::Interrupt;
use crate::output::say;
use crate::parameters;
use crate::progress::Progress;
use crate::random::Random;
use crate::report::{Folder, Origin, Regime, Report};
use crate::run::{RunEnd, RunError, publish};
use crate::stats::{Rounds, Slice};

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

/// Simulates every policy of the sweep, and reports.
///
/// # Errors
/// [`SimulateError`]
pub fn run(args: &SimulateArgs) -> Result<RunEnd, SimulateError> {
    let interrupt = Interrupt::on_signals().map_err(RunError::Signals)?;
    let started = SystemTime::now();
    let folder = Folder::open(&args.out).map_err(RunError::Report)?;
    let setting = Setting::new(&args.world, args.calls.get())?;
    let variants = variants(args);
    let threads = args.threads.map_or_else(cores, |threads| threads.get() as usize);
    say(format_args!(
        "Simulating {} policies, {} rounds of {} calls each, on {threads} threads.",
        variants.len(),
        args.rounds,
        args.calls
    ));
    let policies = rounds(args, &setting, &variants, threads, &interrupt)?;
    let report = Report {
        origin: Origin::Simulated,
        started,
        seed: args.seed,
        parameters: parameters::of_simulation(args, &setting),
        policies,
        regime: Some(Regime {
            service: Duration::from_nanos(setting.model.mean() as u64),
            cancel_delay: Duration::from_nanos(args.world.network.mean() as u64),
        }),
        interrupted: interrupt.asked(),
        failures: Vec::new(),
        notes: Vec::new(),
    };
    Ok(publish(&report, Some(&folder))?)
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
    interrupt: &Interrupt,
) -> Result<Vec<Rounds>, Broken> {
    let calls = u64::from(args.calls.get());
    let jobs = variants.len() * args.rounds.get() as usize;
    let progress = Progress::of_calls(calls * jobs as u64);
    // Round by round, so that what is there when the user has enough is comparable.
    let slices = run_all(jobs, threads, |job| {
        let (round, variant) = (job / variants.len(), &variants[job % variants.len()]);
        progress.doing(format!("round {}: {}", round + 1, variant.name));
        let (seed, stalls) = round_of(args, setting, round as u64);
        let mut before = 0;
        let slice = turn(setting, variant, seed, calls, &stalls, args.slowed, |ended| {
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

/// What is the same for all policies of a round: the seed of calls and service times, and the
/// stalls.
fn round_of(args: &SimulateArgs, setting: &Setting, round: u64) -> (u64, Plan) {
    let seed = Random::new(args.seed.wrapping_add(round), "simulation").bits();
    let stalls = StallModel {
        pattern: args.faults.faults.pattern(),
        length: args.faults.stall,
        gap: args.faults.stall_gap,
    };
    let lasts = setting.lasts(u64::from(args.calls.get()));
    let replicas = args.world.replicas.get() as usize;
    (seed, Plan::draw(seed, &stalls, replicas, lasts))
}
