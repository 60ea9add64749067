//! What every run of calls against replicas has in common: links, warm-up, report.

use core::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bowline_runtime::{Runtime, clock};
use thiserror::Error;

use crate::cli::{LoadShape, Policy, PolicyArgs};
use crate::course::{Course, Driver};
use crate::data::{DataError, DataSet};
use crate::driver::Live;
use crate::failures::Failures;
use crate::faults::{Pattern, StallModel};
use crate::figures::{Figures, Served};
use crate::frontend::{Frontend, FrontendError};
use crate::interrupt::Interrupt;
use crate::output::{print, say};
use crate::progress::Progress;
use crate::replicas::{Cluster, LaunchError};
use crate::report::{Folder, Origin, Regime, Report, ReportError, sweep_table, table};
use crate::schedule::{Arrivals, Load};
use crate::serve_config::ConfigError;
use crate::stats::Rounds;
use crate::text::wrapped;

/// Why there is no result.
#[derive(Debug, Error)]
pub enum RunError {
    /// An address.
    #[error(transparent)]
    Address(#[from] ConfigError),
    /// A data file.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The report's folder.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The replicas' processes.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The client's event loop.
    #[error(transparent)]
    Runtime(#[from] bowline_runtime::Error),
    /// The connections to the replicas.
    #[error(transparent)]
    Frontend(#[from] FrontendError),
    /// Signals.
    #[error("cannot listen for Ctrl-C: {0}")]
    Signals(io::Error),
    /// What there is to print.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// This program's own file, to start replicas from.
    #[error("cannot find this program's own file, to start replicas from: {0}")]
    Program(io::Error),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// As planned.
    Whole,
    /// With a report of what was measured, but a replica failed meanwhile, or calls did that had
    /// time and were not refused.
    Failed,
    /// By the user's wish, with a report of the part before.
    Interrupted,
}

/// A client that has found its replicas.
pub struct Session {
    /// What gives policies their turns.
    pub live: Live,
    /// What the client's clock is made of.
    pub clock: clock::Source,
    /// How long a cancel takes from one replica to another.
    cancel_delay: Duration,
}

/// What a session is made of.
pub struct Setting<'a> {
    /// Where the replicas listen.
    pub addresses: &'a [SocketAddr],
    /// Their processes, if they are ours.
    pub cluster: Option<Arc<Cluster>>,
    /// The policies that will have turns.
    pub policies: &'a [Policy],
    /// What these may do.
    pub args: &'a PolicyArgs,
    /// The calls.
    pub load: &'a LoadShape,
    /// The blocks that are read.
    pub set: DataSet,
    /// The user's wish to end.
    pub interrupt: Interrupt,
}

impl Session {
    /// Connects, and waits until everybody has found everybody.
    ///
    /// # Errors
    /// A replica is not there, or holds other data.
    pub fn begin(runtime: Runtime, setting: Setting<'_>) -> Result<Self, FrontendError> {
        let Setting { addresses, cluster, policies, args, load, set, interrupt } = setting;
        let (frontend, notes, cancel_delay, clock) = runtime.block_on(async {
            let frontend = Frontend::connect(addresses, policies, args, load.seed).await?;
            let mut notes = Vec::new();
            let mesh = frontend.mesh_is_up().await?;
            if !mesh {
                notes.push(
                    "The replicas have no links to each other (see 'bowline serve --peer'): the \
                     client relays cancels, which takes longer."
                        .to_owned(),
                );
            }
            notes.extend(data_notes(&frontend, &frontend.figures().await?, &set)?);
            // A relayed one travels twice as far.
            let ways = if mesh { 1 } else { 2 };
            let cancel_delay = frontend.one_way().await * ways;
            Ok::<_, FrontendError>((frontend, notes, cancel_delay, clock::source()))
        })?;
        let deadline = load.deadline;
        let served = Served::default();
        let failures = Failures::default();
        let live =
            Live { runtime, frontend, cluster, set, deadline, interrupt, served, failures, notes };
        Ok(Session { live, clock, cancel_delay })
    }

    /// Warms every policy up, and runs the course; what each measured.
    ///
    /// # Errors
    /// A replica does not answer any more.
    pub fn run(&mut self, course: &Course, warmup: Duration) -> Result<Vec<Rounds>, FrontendError> {
        let warmup_all = warmup * course.policies.len() as u32;
        let progress = Progress::of_time(warmup_all + course.duration());
        self.warm_up(course, warmup, &progress)?;
        self.live.served = Served::default();
        let interrupt = self.live.interrupt.clone();
        course.run(&mut self.live, &interrupt, &mut |position| {
            progress.doing(format!("round {}: {}", position.round, position.policy));
            progress.at(warmup_all + position.elapsed);
        })
    }

    /// Lets every policy send calls that nobody counts.
    fn warm_up(
        &mut self,
        course: &Course,
        warmup: Duration,
        progress: &Progress,
    ) -> Result<(), FrontendError> {
        let course = Course {
            load: Load { duration: warmup, ..course.load },
            stalls: StallModel { pattern: Pattern::Off, ..course.stalls },
            ..course.clone()
        };
        let round = course.round(0);
        let mut before = Duration::ZERO;
        for &policy in &course.policies {
            progress.doing(format!("warming up: {policy}"));
            self.live.turn(policy, &round, &mut |elapsed| progress.at(before + elapsed))?;
            before += warmup;
        }
        Ok(())
    }

    /// How long reads ran and cancels took, for the verdict on ties.
    pub fn regime(&self) -> Option<Regime> {
        let service = self.live.served.service_mean()?;
        Some(Regime { service, cancel_delay: self.cancel_delay })
    }
}

/// The calls of a turn of this length.
pub fn load(shape: &LoadShape, duration: Duration, set: &DataSet) -> Load {
    let arrivals = match shape.burst.get() {
        1 => Arrivals::Poisson,
        size => Arrivals::Bursts { size },
    };
    Load { rate_per_s: shape.rate, duration, arrivals, blocks: set.blocks }
}

/// Writes the folder, if there is to be one, and prints the table and what has to be said about it:
/// either, whatever becomes of the other, so that neither a full disk nor a standard output that is
/// gone loses the figures. A run that ended before it measured a call
/// leaves the folder, with an earlier report, alone.
///
/// # Errors
/// The folder or standard output cannot be written any more.
pub fn publish(report: &Report, folder: Option<&Folder>) -> Result<RunEnd, RunError> {
    let mut slices = report.policies.iter().flat_map(|rounds| &rounds.slices);
    if report.interrupted && slices.all(|slice| slice.counters.calls == 0) {
        report.failures.iter().for_each(|failure| say(format_args!("bowline: {failure}")));
        say("bowline: interrupted before anything was measured: there is no report");
        return Ok(end_of(report));
    }
    let written = folder.map(|folder| folder.write(report)).transpose();
    let prose = |text: &String| wrapped(text, "").trim_end().to_owned();
    let mut lines: Vec<String> = report.heading.iter().map(prose).collect();
    lines.push(match report.origin {
        Origin::Measured(_) => table(report),
        Origin::Simulated => sweep_table(report),
    });
    let told = report.on_ratios().into_iter().chain(report.verdicts());
    let told = told.chain(report.regime_statement());
    lines.extend(told.chain(report.warnings()).map(|text| prose(&text)));
    let file = folder.filter(|_| written.is_ok()).map(|folder| folder.file("report.html"));
    lines.extend(file.map(|file| format!("Report: {}", file.display())));
    let printed = print(lines.join("\n")).map_err(RunError::Output);
    written?;
    printed?;
    Ok(end_of(report))
}

fn end_of(report: &Report) -> RunEnd {
    match (report.failures.is_empty() && !report.calls_broke(), report.interrupted) {
        (false, _) => RunEnd::Failed,
        (true, true) => RunEnd::Interrupted,
        (true, false) => RunEnd::Whole,
    }
}

/// What has to be said of the replicas' data.
fn data_notes(
    frontend: &Frontend,
    figures: &[Figures],
    set: &DataSet,
) -> Result<Option<String>, FrontendError> {
    for (line, found) in frontend.lines.iter().zip(figures) {
        if (found.seed, found.blocks) != (set.seed, set.blocks) {
            return Err(FrontendError::OtherData {
                address: line.address(),
                blocks: found.blocks,
                seed: found.seed,
                wanted_blocks: set.blocks,
                wanted_seed: set.seed,
            });
        }
    }
    let cached = figures.iter().filter(|figures| !figures.direct).count();
    Ok((cached > 0).then(|| {
        format!(
            "{cached} of the replicas read through the page cache: their file system has no \
             O_DIRECT, and their device plays no part."
        )
    }))
}
