//! Predictions as text.

use bowline_tests::theory::{Law, backlog, fan_out};

use super::{Group, Prediction, is_overloaded, percent};
use crate::cli::PredictArgs;
use crate::parameters;
use crate::report::lay_out;
use crate::simulate::{Setting, Variant};
use crate::stats::{Quantile, Summary};
use crate::units::{show_duration, three_digits};
use core::time::Duration;

/// Everything, to be printed.
pub(super) fn page(
    args: &PredictArgs,
    setting: &Setting,
    groups: &[Group],
    variants: &[Variant],
    simulated: Option<&[Summary]>,
) -> String {
    let mut text =
        "PREDICTED by formulas, not measured: each figure is a model's, and holds as far \
                    as the assumptions do that stand beneath it.\n"
            .to_owned();
    for (name, value) in parameters::of_world(setting) {
        text += &format!("  {name}: {value}\n");
    }
    for group in groups {
        text += &format!("\n{}\n{}", group.title, table(group, simulated));
        text += &assumes(&group.assumes);
    }
    if is_overloaded(setting) {
        text += &format!(
            "\nThe load is {}: queues grow without end, and no formula for a steady state holds.\n",
            percent(setting.load())
        );
    }
    text += &fan_outs(args, &groups[0].predictions);
    text += &surge(args, setting, &groups[0].predictions);
    if let (Some(summaries), false) = (simulated, variants.is_empty()) {
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

/// Text in lines that a terminal shows whole, each after `indent`.
fn wrapped(text: &str, indent: &str) -> String {
    const WIDTH: usize = 98;
    let (mut lines, mut room) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count() + 1;
        if length > room {
            let end = if lines.is_empty() { "" } else { "\n" };
            lines += &format!("{end}{indent}{word}");
            room = WIDTH - indent.len() - (length - 1).min(WIDTH);
        } else {
            lines += &format!(" {word}");
            room -= length;
        }
    }
    lines + "\n"
}

/// A line for each prediction; beneath it, if there is one, the simulation, and how far off the
/// formula is.
fn table(group: &Group, simulated: Option<&[Summary]>) -> String {
    let mut header = vec![String::new(), "mean".to_owned()];
    header.extend(Quantile::ALL.iter().map(|quantile| quantile.label().to_owned()));
    header.push("extra executions".to_owned());
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

fn nanos(time: f64) -> String {
    show_duration(Duration::from_nanos(time as u64))
}

/// What a user feels whose request needs many calls, all of them.
fn fan_outs(args: &PredictArgs, predictions: &[Prediction]) -> String {
    if args.fan_out.is_empty() {
        return String::new();
    }
    let mut lines = vec![vec![String::new(), "beyond one's p99".into(), "p50".into()]];
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
            "the calls are independent, and nothing queues; the share beyond is of requests that \
             take longer than 99 % of single calls without redundancy."
        )
    )
}

/// What a surge leaves behind under each policy.
fn surge(args: &PredictArgs, setting: &Setting, predictions: &[Prediction]) -> String {
    let slots = setting.args.replicas.get() * setting.args.slots.get();
    let mean = setting.model.mean();
    if mean <= 0.0 {
        return String::new();
    }
    let lasts = args.surge_for.as_nanos() as f64 / mean;
    let mut lines = vec![vec![String::new()]];
    lines[0]
        .extend(["load", "in the surge", "backlog", "longest wait", "gone after"].map(Into::into));
    for prediction in predictions {
        let load = setting.load() * (1.0 + prediction.extra);
        let left = backlog(slots, load, load * args.surge, lasts);
        let gone = match (left.calls > 0.0, load < 1.0) {
            (_, false) => "never".to_owned(),
            (false, _) => "-".to_owned(),
            (true, true) => nanos(left.drains_in * mean),
        };
        let mut line = vec![prediction.name.clone(), percent(load), percent(load * args.surge)];
        // The calls that wait; with them wait their hedges.
        line.push(format!("{:.0} calls", left.calls / (1.0 + prediction.extra)));
        line.extend([nanos(left.wait * mean), gone]);
        lines.push(line);
    }
    format!(
        "\nA surge of {} times the rate for {}\n{}{}",
        three_digits(args.surge),
        show_duration(args.surge_for),
        lay_out(&lines),
        assumes(
            "calls flow in and out at their mean rates, evenly over all slots; queues hold what \
             comes, and nothing is shed; hedges stay as frequent as while nothing queues. (They \
             become more frequent, up to the budget: then the load of the surge has to be \
             reckoned with all of it.)"
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assumptions_fit_a_terminal() {
        let text = assumes(&"queues hold what comes ".repeat(20));
        assert!(text.lines().count() > 4);
        assert!(text.lines().all(|line| line.starts_with("  ") && line.len() <= 98), "{text}");
        assert_eq!(wrapped("one two", ""), "one two\n");
    }
}
