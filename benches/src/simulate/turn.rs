//! One policy in one round, in virtual time.

use core::time::Duration;

use bowline_client::core::Counters;
use bowline_tests::kernel::span::Nanos;
use bowline_tests::world::{Fault, Report, Scenario, Surge, World};
use thiserror::Error;

use super::{Setting, Variant};
use crate::driver::{add_up, fill, note_denied};
use crate::figures::Served;
use crate::policies::{budget_config, client_policy};
use crate::stats::{CallEnd, Slice};

/// The machines did what they must never do. That is a defect of Bowline, not of the setting.
#[derive(Debug, Error)]
#[error(
    "{policy} broke a rule in the simulation that seed {seed:#x} names: {what}; please report it"
)]
pub struct Broken {
    policy: String,
    seed: u64,
    what: String,
}

/// What happens in a turn, whatever the policy.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// Names calls and service times.
    pub seed: u64,
    /// How many are made.
    pub calls: u64,
    /// What goes wrong, in the world's time.
    pub faults: Vec<Fault>,
    /// When calls come faster, in the world's time.
    pub surge: Option<Surge>,
}

/// Simulates a turn; nothing if `go_on`, which hears how many calls have ended, says no.
///
/// # Errors
/// [`Broken`]
pub fn turn(
    setting: &Setting,
    variant: &Variant,
    course: &Course,
    go_on: impl FnMut(u64) -> bool,
) -> Result<Option<Slice>, Broken> {
    let report = play(setting, variant, course, go_on)?;
    let Some(report) = report else { return Ok(None) };
    let slice = slice(setting, variant, course.calls, &report);
    match add_up("the turn", &slice.counters, 0) {
        None => Ok(Some(slice)),
        Some(told) => {
            let what = told.trim_end_matches('.').to_owned();
            Err(Broken { policy: variant.name.clone(), seed: course.seed, what })
        }
    }
}

/// As [`turn`]; all that came of it.
///
/// # Errors
/// [`Broken`]
pub fn play(
    setting: &Setting,
    variant: &Variant,
    course: &Course,
    go_on: impl FnMut(u64) -> bool,
) -> Result<Option<Report>, Broken> {
    let Course { seed, calls, faults, surge } = course.clone();
    let policy = client_policy(variant.policy, &variant.settings);
    let calm = setting.scenario(seed, calls, policy, budget_config(&variant.settings));
    let Some(report) = World::new(Scenario { faults, surge, ..calm }, false).run_while(go_on)
    else {
        return Ok(None);
    };
    if let Some(broken) = &report.broken {
        let (policy, what) = (variant.name.clone(), broken.to_string());
        return Err(Broken { policy, seed, what });
    }
    Ok(Some(report))
}

fn slice(setting: &Setting, variant: &Variant, calls: u64, report: &Report) -> Slice {
    let mut slice = Slice::new(setting.args.deadline);
    // The generator of a simulation is never late.
    let mut record = |took: Nanos, end: CallEnd| {
        slice.record(Duration::ZERO, Duration::ZERO, Duration::from_nanos(took), end);
    };
    report.latencies.iter().for_each(|&took| record(took, CallEnd::Ok));
    for failed in &report.failures {
        record(failed.took, CallEnd::Failed(failed.kind));
    }
    slice.duration = setting.lasts(calls);
    // The world ends with calls that are none of the user's: one copy each.
    let client = report.clients.first().map_or_else(Counters::default, |counted| Counters {
        calls: counted.calls.saturating_sub(report.probes),
        attempts: counted.attempts.saturating_sub(report.probes),
        replied: counted.replied.saturating_sub(report.probes),
        ..*counted
    });
    let mut served = Served::of(&report.servers);
    served.executions = served.executions.saturating_sub(report.probes);
    fill(&mut slice, &client, &served, client.hedge_wins + report.second_wins);
    note_denied(&mut slice, variant.policy, &client);
    slice
}
