//! One policy in one round, in virtual time.

use core::time::Duration;

use bowline_client::core::Counters;
use bowline_tests::kernel::span::Nanos;
use bowline_tests::world::{Fault, Report, What, World};
use thiserror::Error;

use super::{Setting, Variant};
use crate::driver::{denied, end_of_failure, fill};
use crate::faults::Plan;
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

/// Simulates a turn, in whose stalls a replica stands still or is `slowed` so many times; nothing if
/// `go_on`, which hears how many calls have ended, says no.
///
/// # Errors
/// [`Broken`]
pub fn turn(
    setting: &Setting,
    variant: &Variant,
    seed: u64,
    calls: u64,
    stalls: &Plan,
    slowed: Option<f64>,
    go_on: impl FnMut(u64) -> bool,
) -> Result<Option<Slice>, Broken> {
    let policy = client_policy(variant.policy, &variant.settings);
    let mut scenario = setting.scenario(seed, calls, policy, budget_config(&variant.settings));
    scenario.faults = faults(stalls, slowed, setting.warm_up());
    let Some(report) = World::new(scenario, false).run_while(go_on) else { return Ok(None) };
    if let Some(broken) = &report.broken {
        let (policy, what) = (variant.name.clone(), broken.to_string());
        return Err(Broken { policy, seed, what });
    }
    Ok(Some(slice(setting, variant, calls, &report)))
}

/// Stalls stop a process, and what arrives waits for it; or they make it so many times as slow.
fn faults(stalls: &Plan, slowed: Option<f64>, begin: Nanos) -> Vec<Fault> {
    let fault = |stall: &crate::faults::Stall| Fault {
        at: begin + stall.at.as_nanos() as Nanos,
        lasts: stall.length.as_nanos() as Nanos,
        what: match slowed {
            None => What::Freeze(stall.replica),
            Some(times) => What::Slow(stall.replica, (100.0 * times) as u64),
        },
    };
    stalls.stalls().iter().map(fault).collect()
}

fn slice(setting: &Setting, variant: &Variant, calls: u64, report: &Report) -> Slice {
    let mut slice = Slice::new(setting.args.deadline);
    // The generator of a simulation is never late.
    let mut record = |took: Nanos, end: CallEnd| {
        slice.record(Duration::ZERO, Duration::ZERO, Duration::from_nanos(took), end);
    };
    report.latencies.iter().for_each(|&took| record(took, CallEnd::Ok));
    for failed in &report.failures {
        record(failed.took, end_of_failure(failed.kind));
    }
    slice.duration = setting.lasts(calls);
    // The world ends with calls that are none of the user's: one copy each.
    let client = report.clients.first().map_or_else(Counters::default, |counted| Counters {
        calls: counted.calls.saturating_sub(report.probes),
        attempts: counted.attempts.saturating_sub(report.probes),
        ..*counted
    });
    let mut served = Served::of(&report.servers);
    served.executions = served.executions.saturating_sub(report.probes);
    fill(&mut slice, &client, &served, client.hedge_wins + report.second_wins);
    let [ties, hedges, off] = denied(variant.policy, &client);
    slice.counters.ties_denied = ties;
    slice.counters.hedges_denied = hedges;
    slice.counters.hedges_switched_off = off;
    slice
}
