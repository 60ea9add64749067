//! `results.json`. Fields may be added; none is renamed or removed, for others read them.

use core::time::Duration;
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use bowline_protocol::ErrorKind;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::{Ratios, Report};
use crate::setup::Machine;
use crate::stats::{Counters, Quantile, Rounds, Spread, Summary, Validity};

/// The file's text.
///
/// # Errors
/// None that a run can cause: the shape is fixed.
pub(super) fn json(report: &Report) -> Result<String, serde_json::Error> {
    let summaries = report.summaries();
    let file = File {
        setup: Setup {
            machine: report.machine(),
            simulated: report.machine().is_none(),
            seed: report.seed,
            started_unix_s: report.started.duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()),
            rounds: report.policies.iter().map(|p| p.slices.len()).max().unwrap_or(0),
            interrupted: report.interrupted,
            ratios_void: report.all_void(),
            failures: report.failures.clone(),
            warnings: report.warnings(),
            verdicts: report.verdicts(),
            parameters: InOrder(report.parameters.clone()),
        },
        policies: InOrder(
            summaries
                .iter()
                .zip(&report.policies)
                .map(|(s, r)| (s.policy.clone(), policy(report, s, r)))
                .collect(),
        ),
        ratios: InOrder(report.ratios().into_iter().map(ratios).collect()),
    };
    serde_json::to_string_pretty(&file).map(|text| text + "\n")
}

#[derive(Serialize)]
struct File<'a> {
    setup: Setup<'a>,
    policies: InOrder<PolicyFigures>,
    ratios: InOrder<InOrder<Option<SpreadFigures>>>,
}

#[derive(Serialize)]
struct Setup<'a> {
    #[serde(flatten)]
    machine: Option<&'a Machine>,
    /// The figures are a model's, and no machine is named.
    simulated: bool,
    seed: u64,
    started_unix_s: u64,
    rounds: usize,
    interrupted: bool,
    /// A replica failed, or every round of the baseline or of all others was void, so that no ratio
    /// compares anything.
    ratios_void: bool,
    failures: Vec<String>,
    warnings: Vec<String>,
    verdicts: Vec<String>,
    parameters: InOrder<String>,
}

#[derive(Serialize)]
struct PolicyFigures {
    calls: u64,
    ok: u64,
    p50_us: Option<f64>,
    p90_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    offered_per_s: Option<f64>,
    completed_per_s: Option<f64>,
    in_deadline_per_s: Option<f64>,
    attempts_per_call: Option<f64>,
    executions_per_call: Option<f64>,
    wasted_execution_share: Option<f64>,
    hedge_rate: Option<f64>,
    win_rate: Option<f64>,
    withdrawn_rate: Option<f64>,
    both_started_rate: Option<f64>,
    ties_denied_rate: Option<f64>,
    hedges_denied_rate: Option<f64>,
    switched_off_rate: Option<f64>,
    shed_rate: Option<f64>,
    deadline_miss_rate: Option<f64>,
    error_rate: Option<f64>,
    max_us: f64,
    loser_end_p50_us: Option<f64>,
    loser_end_p99_us: Option<f64>,
    cpu_us_per_call: Option<f64>,
    cpus_busy: Option<f64>,
    lag_p50_us: Option<f64>,
    lag_p99_us: Option<f64>,
    lag_max_us: f64,
    /// Whether the generator's own lateness makes the latencies meaningless.
    void: bool,
    /// The rounds, from 1, that are so by themselves.
    void_rounds: Vec<usize>,
    /// Whether its ratios compare nothing; of the baseline, whether no ratio does.
    ratios_void: bool,
    counters: CounterFigures,
    /// Calls that failed, by the kinds of their errors.
    failed_by_kind: BTreeMap<String, u64>,
    /// Second copies that were not sent, by what stood against them.
    denied: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct CounterFigures {
    in_deadline: u64,
    deadline_misses: u64,
    shed_calls: u64,
    errors: u64,
    corrupt: u64,
    /// The sum of answered, withdrawn (by the twin), withdrawn_by_caller, aborted, shed and lost.
    attempts: u64,
    executions: u64,
    wasted_executions: u64,
    hedges: u64,
    second_copies: u64,
    extra_wins: u64,
    answered: u64,
    withdrawn: u64,
    withdrawn_by_caller: u64,
    aborted: u64,
    both_started: u64,
    shed: u64,
    lost: u64,
    ties_denied: u64,
    hedges_denied: u64,
    hedges_switched_off: u64,
}

#[derive(Serialize)]
struct SpreadFigures {
    median: f64,
    min: f64,
    max: f64,
    /// How many of the rounds have a say in it.
    rounds: usize,
}

fn policy(report: &Report, summary: &Summary, rounds: &Rounds) -> PolicyFigures {
    let latency = |quantile| summary.latency().quantile(quantile).map(micros);
    let lag = |quantile| summary.lag().quantile(quantile).map(micros);
    PolicyFigures {
        calls: summary.counters().calls,
        ok: summary.counters().ok,
        p50_us: latency(Quantile::P50),
        p90_us: latency(Quantile::P90),
        p99_us: latency(Quantile::P99),
        p999_us: latency(Quantile::P999),
        offered_per_s: summary.offered_per_s(),
        completed_per_s: summary.completed_per_s(),
        in_deadline_per_s: summary.in_deadline_per_s(),
        attempts_per_call: summary.attempts_per_call(),
        executions_per_call: summary.executions_per_call(),
        wasted_execution_share: summary.wasted_execution_share(),
        hedge_rate: summary.hedge_rate(),
        win_rate: summary.win_rate(),
        withdrawn_rate: summary.ends_per_call(|ends| ends.withdrawn_by_twin),
        both_started_rate: summary.both_started_rate(),
        ties_denied_rate: summary.ties_denied_rate(),
        hedges_denied_rate: summary.hedges_denied_rate(),
        switched_off_rate: summary.switched_off_rate(),
        shed_rate: summary.ends_per_call(|ends| ends.shed),
        deadline_miss_rate: summary.deadline_miss_rate(),
        error_rate: summary.error_rate(),
        max_us: micros(summary.latency().max()),
        loser_end_p50_us: summary.losers().quantile(Quantile::P50).map(micros),
        loser_end_p99_us: summary.losers().quantile(Quantile::P99).map(micros),
        cpu_us_per_call: summary.cpu_per_call().map(micros),
        cpus_busy: summary.cpus_busy(),
        lag_p50_us: lag(Quantile::P50),
        lag_p99_us: lag(Quantile::P99),
        lag_max_us: micros(summary.lag().max()),
        void: summary.validity() != Validity::Valid,
        void_rounds: rounds.void_rounds(),
        ratios_void: report.is_void(&rounds.policy),
        counters: counters(summary.counters()),
        failed_by_kind: failed_by_kind(summary.failed_by_kind()),
        denied: summary.denied().iter().map(|(why, &copies)| (why.name, copies)).collect(),
    }
}

/// Calls that failed, by names of their kinds.
fn failed_by_kind(failed: &BTreeMap<ErrorKind, u64>) -> BTreeMap<String, u64> {
    let mut named = BTreeMap::new();
    for (&kind, calls) in failed {
        *named.entry(name_of(kind)).or_default() += calls;
    }
    named
}

/// What programs know a kind of error by: what it says to people may change.
fn name_of(kind: ErrorKind) -> String {
    let name = match kind {
        ErrorKind::DeadlineExceeded => "deadline_exceeded",
        ErrorKind::NoReplica => "no_replica",
        ErrorKind::ConnectionLost => "connection_lost",
        ErrorKind::Overloaded => "overloaded",
        ErrorKind::Shed => "shed",
        ErrorKind::NoSuchMethod => "no_such_method",
        ErrorKind::BadRequest => "bad_request",
        ErrorKind::Failed => "failed",
        ErrorKind::Stale => "stale",
        ErrorKind::Invalid => "invalid",
        ErrorKind::App(number) => return format!("app_{number}"),
        ErrorKind::TooManyCalls => "too_many_calls",
        ErrorKind::PayloadTooLarge => "payload_too_large",
        ErrorKind::NoRoom => "no_room",
        ErrorKind::Codec(_) => "codec",
        ErrorKind::Cancelled => "cancelled",
        ErrorKind::Closed => "closed",
    };
    name.to_owned()
}

fn counters(counters: &Counters) -> CounterFigures {
    CounterFigures {
        in_deadline: counters.in_deadline,
        deadline_misses: counters.deadline_misses,
        shed_calls: counters.shed_calls,
        errors: counters.errors,
        corrupt: counters.corrupt,
        attempts: counters.attempts,
        executions: counters.executions,
        wasted_executions: counters.wasted_executions,
        hedges: counters.hedges,
        second_copies: counters.second_copies,
        extra_wins: counters.extra_wins,
        answered: counters.ends.answered,
        withdrawn: counters.ends.withdrawn_by_twin,
        withdrawn_by_caller: counters.ends.withdrawn_by_caller,
        aborted: counters.ends.aborted,
        both_started: counters.both_started,
        shed: counters.ends.shed,
        lost: counters.ends.lost,
        ties_denied: counters.ties_denied,
        hedges_denied: counters.hedges_denied,
        hedges_switched_off: counters.hedges_switched_off,
    }
}

fn ratios(ratios: Ratios) -> (String, InOrder<Option<SpreadFigures>>) {
    let figures = |spread: Spread| SpreadFigures {
        median: spread.median,
        min: spread.min,
        max: spread.max,
        rounds: spread.rounds,
    };
    let spreads = ratios.spreads.into_iter().map(|(q, s)| (q.key().to_owned(), s.map(figures)));
    (ratios.policy, InOrder(spreads.collect()))
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// A JSON object whose keys stay in this order, as a reader would want them.
struct InOrder<T>(Vec<(String, T)>);

impl<T: Serialize> Serialize for InOrder<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::report::sample;
    use crate::stats::CallEnd;

    fn results() -> Value {
        let text = json(&sample::report()).expect("a fixed shape");
        serde_json::from_str(&text).expect("valid JSON")
    }

    /// The names that others read: a change here breaks them.
    #[test]
    fn the_promised_names_are_there() {
        let results = results();
        for policy in ["none", "hedged", "tied"] {
            for field in [
                "calls",
                "ok",
                "p50_us",
                "p90_us",
                "p99_us",
                "p999_us",
                "offered_per_s",
                "completed_per_s",
                "in_deadline_per_s",
                "attempts_per_call",
                "executions_per_call",
                "wasted_execution_share",
                "hedge_rate",
                "win_rate",
                "withdrawn_rate",
                "both_started_rate",
                "ties_denied_rate",
                "hedges_denied_rate",
                "switched_off_rate",
                "shed_rate",
                "deadline_miss_rate",
            ] {
                assert!(results["policies"][policy].get(field).is_some(), "{policy}.{field}");
            }
        }
        for field in ["kernel", "cpu", "clock_source", "seed", "revision"] {
            assert!(results["setup"].get(field).is_some(), "setup.{field}");
        }
        for field in ["median", "min", "max"] {
            assert!(results["ratios"]["tied"]["p99"][field].is_f64(), "ratios.tied.p99.{field}");
        }
        assert_eq!(results["ratios"]["tied"]["p99"]["rounds"], 3);
        assert!(results["ratios"].get("none").is_none());
    }

    #[test]
    fn copies_have_as_many_ends_as_there_were_attempts() {
        let results = results();
        for policy in ["none", "hedged", "tied"] {
            let counters = &results["policies"][policy]["counters"];
            let of = |name: &str| counters[name].as_u64().expect("a number");
            let ends = ["answered", "withdrawn", "withdrawn_by_caller", "aborted", "shed", "lost"];
            assert_eq!(ends.map(of).iter().sum::<u64>(), of("attempts"), "{policy}: {counters}");
        }
    }

    #[test]
    fn calls_that_failed_are_counted_by_names_for_programs() {
        let mut report = sample::report();
        let kinds = [
            ErrorKind::ConnectionLost,
            ErrorKind::Codec("one"),
            ErrorKind::Codec("another"),
            ErrorKind::App(7),
        ];
        for kind in kinds {
            let end = CallEnd::Failed(kind);
            report.policies[0].slices[0].record(
                Duration::ZERO,
                Duration::ZERO,
                Duration::ZERO,
                end,
            );
        }
        let text = json(&report).expect("a fixed shape");
        let results: Value = serde_json::from_str(&text).expect("valid JSON");
        let failed = &results["policies"]["none"]["failed_by_kind"];
        assert_eq!(*failed, serde_json::json!({"app_7": 1, "codec": 2, "connection_lost": 1}));
    }

    #[test]
    fn ratios_are_void_where_no_round_of_a_policy_or_of_the_baseline_counts() {
        let void = |report: &Report| {
            let text = json(report).expect("a fixed shape");
            let results: Value = serde_json::from_str(&text).expect("valid JSON");
            let of = |policy: &str| results["policies"][policy]["ratios_void"] == true;
            (results["setup"]["ratios_void"] == true, ["none", "hedged", "tied"].map(of))
        };
        let mut report = sample::report();
        assert_eq!(void(&report), (false, [false; 3]));
        sample::make_late(&mut report, "tied");
        assert_eq!(void(&report), (false, [false, false, true]));
        sample::make_late(&mut report, "hedged");
        assert_eq!(void(&report), (true, [true; 3]), "of the baseline, whether no ratio counts");
        let mut report = sample::report();
        sample::make_late(&mut report, "none");
        assert_eq!(void(&report), (true, [true; 3]));
        let failed = Report { failures: vec!["replica 1 died.".into()], ..sample::report() };
        assert_eq!(void(&failed), (true, [true; 3]));
    }

    #[test]
    fn a_percentile_without_enough_samples_is_null() {
        let results = results();
        assert!(results["policies"]["none"]["p99_us"].is_f64());
        assert!(results["policies"]["none"]["p999_us"].is_null());
        assert!(results["ratios"]["tied"]["p999"].is_null());
    }

    #[test]
    fn times_are_microseconds_and_rates_add_up() {
        let results = results();
        let none = &results["policies"]["none"];
        let p50_us = none["p50_us"].as_f64().expect("a number");
        assert!((3_000.0..7_000.0).contains(&p50_us), "{p50_us}");
        assert_eq!(none["offered_per_s"].as_f64(), Some(600.0));
        assert_eq!(results["policies"]["tied"]["executions_per_call"].as_f64(), Some(12.1 / 12.0));
    }
}
