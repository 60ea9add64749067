//! Predictions as text.

use bowline_tests::theory::{Law, fan_out};

use super::{Group, Prediction, Simulated, is_overloaded, nanos, percent, surge, surging};
use crate::cli::PredictArgs;
use crate::parameters;
use crate::report::lay_out;
use crate::simulate::{Setting, Variant};
use crate::stats::{Quantile, Summary};
use crate::text::wrapped;
use crate::units::show_duration;
use core::time::Duration;

/// Everything, to be printed.
pub(super) fn page(
    args: &PredictArgs,
    setting: &Setting,
    groups: &[Group],
    variants: &[Variant],
    simulated: Option<&Simulated>,
) -> String {
    let summaries = simulated.map(|simulated| &*simulated.summaries);
    let mut text = wrapped(
        "PREDICTED by formulas, not measured: each figure is a model's, and holds as far as the \
         assumptions do that stand beneath it.",
        "",
    );
    for (name, value) in parameters::of_world(setting) {
        text += &format!("  {name}: {value}\n");
    }
    for group in groups {
        text += &format!("\n{}\n{}", group.title, table(group, summaries));
        text += &assumes(&group.assumes);
    }
    if is_overloaded(setting) {
        text += &format!(
            "\nThe load is {}: queues grow without end, and no formula for a steady state holds.\n",
            percent(setting.load())
        );
    }
    text += &fan_outs(args, &groups[0].predictions);
    let surged = simulated.map(|simulated| &*simulated.surges);
    text += &surge::page(args, setting, &surging(setting, groups), surged);
    if let (Some(summaries), false) = (summaries, variants.is_empty()) {
        let calls = summaries.first().map_or(0, |summary| summary.counters().calls);
        let told = format!(
            "Simulated: {calls} calls of each policy on the cluster as it is described above, \
             without stalls; seed {}. 'bowline simulate' tries more.",
            args.seed
        );
        text += &format!("\n{}", wrapped(&told, ""));
    }
    text.truncate(text.trim_end().len());
    text
}

fn assumes(what: &str) -> String {
    wrapped(&format!("Assumes: {what}"), "  ")
}

/// A line for each prediction; beneath it, if there is one, the simulation, and how far off the
/// formula is.
fn table(group: &Group, simulated: Option<&[Summary]>) -> String {
    let mut header = vec![String::new(), "mean".to_owned()];
    header.extend(Quantile::ALL.iter().map(|quantile| quantile.label().to_owned()));
    header.push("extra".to_owned());
    let mut lines = vec![header];
    for prediction in &group.predictions {
        lines.push(predicted(prediction));
        let summary = simulated.and_then(|summaries| summaries.get(prediction.variant));
        lines.extend(summary.into_iter().flat_map(|summary| beneath(prediction, summary)));
    }
    lay_out(&lines)
}

fn predicted(prediction: &Prediction) -> Vec<String> {
    let mut line = vec![prediction.name.clone(), nanos(prediction.law.mean())];
    let quantiles = Quantile::ALL.iter().map(|q| nanos(prediction.law.quantile(q.share())));
    line.extend(quantiles);
    line.push(percent(prediction.extra));
    line
}

fn beneath(prediction: &Prediction, summary: &Summary) -> [Vec<String>; 2] {
    let (mut found, mut off) =
        (vec!["  simulated".to_owned()], vec!["  formula off by".to_owned()]);
    let mut put = |time: Option<Duration>, law: f64| {
        let nanos = time.map(|time| time.as_nanos() as f64).filter(|nanos| *nanos > 0.0);
        found.push(time.map_or_else(|| "-".to_owned(), show_duration));
        off.push(
            nanos
                .map_or_else(String::new, |nanos| format!("{:+.1} %", 100.0 * (law / nanos - 1.0))),
        );
    };
    put(Some(summary.latency().mean()), prediction.law.mean());
    for quantile in Quantile::ALL {
        put(summary.latency().quantile(quantile), prediction.law.quantile(quantile.share()));
    }
    let extra = summary.executions_per_call().map(|executions| percent(executions - 1.0));
    found.push(extra.unwrap_or_else(|| "-".to_owned()));
    [found, off]
}

/// What a user feels whose request needs many calls, all of them.
fn fan_outs(args: &PredictArgs, predictions: &[Prediction]) -> String {
    if args.fan_out.is_empty() {
        return String::new();
    }
    let mut lines = vec![vec![String::new(), "beyond p99".into(), "p50".into()]];
    lines[0].extend(["p99".to_owned(), "p99.9".to_owned()]);
    let p99 = predictions.first().map_or(0.0, |one| one.law.quantile(0.99));
    for &calls in &args.fan_out {
        for prediction in predictions {
            let one: &Law = &prediction.law;
            // Of the slowest of n the quantile q is that of one call at q^(1/n).
            let at = |q: f64| nanos(one.quantile(libm::pow(q, 1.0 / f64::from(calls))));
            let beyond = percent(fan_out(one.beyond(p99), calls));
            let name = format!("slowest of {calls}, {}", prediction.name);
            lines.push(vec![name, beyond, at(0.5), at(0.99), at(0.999)]);
        }
    }
    format!(
        "\nA request of many calls waits for the slowest: P = 1 - (1 - p)^n\n{}{}",
        lay_out(&lines),
        assumes(
            "the calls are independent, and nothing queues; beyond p99 are requests that take \
             longer than 99 % of single calls without redundancy."
        )
    )
}
