//! The figures of a comparison, row by row: the one order and wording for every reader.

use core::time::Duration;

use crate::stats::{Quantile, Summary};
use crate::text::wrapped;
use crate::units::{show_duration, three_digits};

/// One figure of every policy.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// What it is.
    pub(super) label: &'static str,
    /// What it means, for a reader who asks.
    pub(super) meaning: &'static str,
    /// Its value for each policy; a dash where there is none.
    pub(super) cells: Vec<String>,
    /// The percentile that this is, for which there are ratios.
    pub(super) quantile: Option<Quantile>,
}

impl Row {
    /// Nothing is known of any policy.
    pub(super) fn is_empty(&self) -> bool {
        self.quantile.is_none() && self.cells.iter().all(|cell| cell == NO_VALUE)
    }
}

/// Shown for a figure that the samples do not allow.
pub(super) const NO_VALUE: &str = "-";

/// What a row shows of a policy.
type Figure = fn(&Summary) -> Option<String>;

/// All rows, in the order in which to read them.
pub(super) fn rows(summaries: &[Summary]) -> Vec<Row> {
    let percentiles = Quantile::ALL.iter().map(|&quantile| Row {
        label: quantile.label(),
        meaning: "Latency from when a call fell due; shown with 100 samples beyond",
        cells: cells(summaries, |s| s.latency().quantile(quantile).map(show_duration)),
        quantile: Some(quantile),
    });
    let others = FIGURES.iter().map(|&(label, meaning, figure)| Row {
        label,
        meaning,
        cells: cells(summaries, figure),
        quantile: None,
    });
    percentiles.chain(others).collect()
}

/// What each row means, for who asks a command for help.
pub fn glossary() -> String {
    let mut text = String::new();
    for (label, meaning, _) in FIGURES {
        let lines = wrapped(meaning, &" ".repeat(20));
        text += &format!("  {label:<18}{}", lines.trim_start());
    }
    text
}

fn cells(summaries: &[Summary], figure: impl Fn(&Summary) -> Option<String>) -> Vec<String> {
    summaries.iter().map(|s| figure(s).unwrap_or_else(|| NO_VALUE.into())).collect()
}

const FIGURES: [(&str, &str, Figure); 28] = [
    ("calls", "Calls that fell due", |s| Some(s.counters().calls.to_string())),
    ("offered /s", "Calls that fell due, a second", |s| rate(s.offered_per_s())),
    ("completed /s", "Calls answered with the right bytes, a second", |s| {
        rate(s.completed_per_s())
    }),
    ("in deadline /s", "Calls answered rightly in time, a second", |s| rate(s.in_deadline_per_s())),
    ("attempts/call", "Copies sent for each call: the sum of the next six", |s| {
        ratio(s.attempts_per_call())
    }),
    ("= answered", "Copies that were answered, for each call", |s| {
        ratio(s.ends_per_call(|ends| ends.answered))
    }),
    ("+ withdrawn, twin", "Copies taken out of a queue as their twin had started", |s| {
        ratio(s.ends_per_call(|ends| ends.withdrawn_by_twin))
    }),
    ("+ withdrawn, over", "Copies taken out of a queue as their call was over", |s| {
        ratio(s.ends_per_call(|ends| ends.withdrawn_by_caller))
    }),
    (
        "+ aborted",
        "Copies stopped while they ran: their twin ran, too, or their call was over",
        |s| ratio(s.ends_per_call(|ends| ends.aborted)),
    ),
    ("+ shed", "Copies refused or dropped unstarted, as they would have been too late", |s| {
        ratio(s.ends_per_call(|ends| ends.shed))
    }),
    ("+ lost", "Copies whose connection broke, or that did not end in time", |s| {
        ratio(s.ends_per_call(|ends| ends.lost))
    }),
    ("executions/call", "Copies started for each call", |s| ratio(s.executions_per_call())),
    ("wasted work", "Of the copies started, those whose reply nobody used", |s| {
        percent(s.wasted_execution_share())
    }),
    ("hedge rate", "Calls that earned a second copy by being slow", |s| percent(s.hedge_rate())),
    (
        "win rate",
        "Of the extra copies (hedges, second tied copies), those that answered first",
        |s| percent(s.win_rate()),
    ),
    ("both started", "Calls of which both tied copies started", |s| percent(s.both_started_rate())),
    ("ties denied", "Calls that were to be tied and were not", |s| percent(s.ties_denied_rate())),
    (
        "hedges denied",
        "Hedges not sent, for each call; what stood against them is told where it matters",
        |s| percent(s.hedges_denied_rate()),
    ),
    ("switched off", "Calls that met hedging when it had switched itself off", |s| {
        percent(s.switched_off_rate())
    }),
    ("deadline misses", "Calls not answered in time", |s| percent(s.deadline_miss_rate())),
    ("errors", "Calls that failed in another way, or got wrong bytes", |s| percent(s.error_rate())),
    ("max", "The longest latency", |s| longest(s.latency().max(), s)),
    (
        "loser end p99",
        "Time from a call's result to the end of its other copies: what is still held then",
        |s| s.losers().quantile(Quantile::P99).map(show_duration),
    ),
    ("CPU/call", "CPU time of client and replicas together, for each call", |s| {
        s.cpu_per_call().map(show_duration)
    }),
    ("CPUs busy", "CPUs that client and replicas kept busy on average, together", |s| {
        ratio(s.cpus_busy())
    }),
    ("generator lag p50", "How late the load generator sent, beside its schedule", |s| {
        s.lag().quantile(Quantile::P50).map(show_duration)
    }),
    ("generator lag p99", "How late the load generator sent, beside its schedule", |s| {
        s.lag().quantile(Quantile::P99).map(show_duration)
    }),
    ("generator lag max", "How late the load generator sent, at worst", |s| {
        longest(s.lag().max(), s)
    }),
];

fn longest(time: Duration, summary: &Summary) -> Option<String> {
    (summary.counters().calls > 0).then(|| show_duration(time))
}

fn rate(value: Option<f64>) -> Option<String> {
    value.map(three_digits)
}

fn ratio(value: Option<f64>) -> Option<String> {
    value.map(|value| format!("{value:.3}"))
}

fn percent(value: Option<f64>) -> Option<String> {
    value.map(|value| format!("{:.2} %", 100.0 * value))
}
