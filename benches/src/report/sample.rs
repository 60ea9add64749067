//! A made-up run for the tests of this module: seeded, so that it is the same every time.

use core::time::Duration;
use std::time::{Duration as SystemDuration, SystemTime};

use super::{Origin, Regime, Report};
use crate::random::Random;
use crate::setup::Machine;
use crate::stats::{CallEnd, Rounds, Slice};

/// Three policies, three rounds of 12 000 calls: p99 has its samples, p99.9 has not.
pub(crate) fn report() -> Report {
    Report {
        origin: Origin::Measured(Machine {
            kernel: "6.1.0".into(),
            cpu: "A <fast> CPU & more".into(),
            cores: 2,
            arch: "x86_64",
            clock_source: "tsc".into(),
            governor: "performance".into(),
            memory_mib: 8192,
            virtual_machine: true,
            revision: "0123456789ab",
            version: "0.1.0",
            optimized: true,
        }),
        heading: Vec::new(),
        started: SystemTime::UNIX_EPOCH + SystemDuration::from_secs(1_700_000_000),
        seed: 1,
        parameters: vec![
            ("rate".into(), "600 /s".into()),
            ("pinning".into(), "generator on core 1".into()),
        ],
        policies: vec![
            rounds("none", 60.0, |_| {}),
            rounds("hedged", 16.0, |c| {
                c.counters.attempts = 12_540;
                c.counters.ends.answered = 12_300;
                c.counters.ends.withdrawn_by_caller = 240;
                c.counters.hedges = 540;
                c.counters.extra_wins = 300;
            }),
            rounds("tied", 9.0, |c| {
                c.counters.attempts = 23_900;
                c.counters.ends.answered = 12_050;
                c.counters.ends.aborted = 50;
                c.counters.second_copies = 11_900;
                c.counters.extra_wins = 2_000;
                c.counters.executions = 12_100;
                c.counters.wasted_executions = 100;
                c.counters.ends.withdrawn_by_twin = 11_800;
                c.counters.both_started = 100;
            }),
        ],
        regime: Some(Regime {
            service: Duration::from_millis(5),
            cancel_delay: Duration::from_micros(90),
        }),
        interrupted: false,
        failures: Vec::new(),
        notes: Vec::new(),
    }
}

/// The same figures as if they had been simulated.
pub(crate) fn simulation() -> Report {
    Report { origin: Origin::Simulated, ..report() }
}

/// Has the load generator have been late in every round of a policy.
pub(crate) fn make_late(report: &mut Report, policy: &str) {
    make_rounds_late(report, policy, usize::MAX);
}

/// Has the load generator have been late in the first rounds of a policy, up to so many.
pub(crate) fn make_rounds_late(report: &mut Report, policy: &str, most: usize) {
    let mut late = Slice::new(Duration::from_millis(50));
    let (lag, took) = (Duration::from_millis(5), Duration::from_millis(10));
    (0..1000).for_each(|_| late.record(Duration::ZERO, lag, took, CallEnd::Ok));
    let rounds = report.policies.iter_mut().find(|rounds| rounds.policy == policy);
    rounds.expect("a policy").slices.iter_mut().take(most).for_each(|s| s.clone_from(&late));
}

/// Rounds in which 4 % of the calls wait up to `stall_ms` more than their service time.
fn rounds(policy: &str, stall_ms: f64, finish: impl Fn(&mut Slice)) -> Rounds {
    let slice = |round: u64| {
        let mut random = Random::new(round, policy);
        let mut slice = Slice::new(Duration::from_millis(500));
        for _ in 0..12_000 {
            let mut took_ms = random.log_normal(5.0, 0.5);
            if random.unit() < 0.04 {
                took_ms += random.unit() * stall_ms;
            }
            let lag = Duration::from_secs_f64(random.log_normal(0.04, 0.5) / 1000.0);
            let ended = Duration::from_secs_f64(took_ms / 1000.0);
            slice.record(Duration::ZERO, lag, ended, CallEnd::Ok);
        }
        slice.counters.attempts = 12_000;
        slice.counters.ends.answered = 12_000;
        slice.counters.executions = 12_000;
        slice.duration = Duration::from_secs(20);
        finish(&mut slice);
        slice
    };
    Rounds { policy: policy.into(), slices: (0..3).map(slice).collect() }
}
