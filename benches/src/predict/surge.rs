//! What a surge leaves behind: calls as a fluid, and beside it, if asked for, the simulation.

use bowline_tests::kernel::span::Nanos;
use bowline_tests::theory::backlog;
use bowline_tests::world::{Report, Surge};

use super::{Prediction, nanos, percent};
use crate::cli::PredictArgs;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::report::lay_out;
use crate::simulate::{
    Course, Setting, SettingError, SimulateError, Variant, cores, play, run_all,
};
use crate::text::wrapped;
use crate::units::{show_duration, three_digits};

/// As many calls are simulated at most.
const MOST_CALLS: f64 = 1e7;

/// A surge as a fluid has it.
struct Fluid {
    /// The share of time for which slots are busy in the surge, hedges included.
    surge: f64,
    /// The calls that wait when it is over; their hedges wait with them.
    backlog: f64,
    /// How long the last of them waits, and those that come until nothing waits on average, in
    /// nanoseconds.
    longest: f64,
    mean: f64,
    /// How long after the surge nothing waits any more; infinite if that never is.
    gone: f64,
}

impl Fluid {
    fn of(args: &PredictArgs, setting: &Setting, prediction: &Prediction) -> Fluid {
        let slots = setting.args.replicas.get() * setting.args.slots.get();
        let load = setting.load() * (1.0 + prediction.extra);
        let (surge, unit) = (load * args.surge, setting.model.mean());
        let lasts = args.surge_for.as_nanos() as f64 / unit;
        let left = backlog(slots, load, surge, lasts);
        let drains = match (left.calls > 0.0, load < 1.0) {
            (_, false) => f64::INFINITY,
            (false, _) => 0.0,
            (true, true) => left.drains_in,
        };
        let came = f64::from(slots) * (surge * lasts + load * drains);
        Fluid {
            surge,
            backlog: left.calls / (1.0 + prediction.extra),
            longest: left.wait * unit,
            mean: left.waited / came * unit,
            gone: drains * unit,
        }
    }
}

/// What a simulation made of it.
pub(super) struct Surged {
    /// Calls that waited when it was over.
    backlog: f64,
    /// How long calls waited that came from its beginning until nothing waited, in nanoseconds:
    /// the one that waited longest, and all of them on average.
    longest: f64,
    mean: f64,
    /// How long after it until nothing waited; None if that was not seen.
    gone: Option<f64>,
    /// The share of all calls that failed.
    failed: f64,
}

/// Simulates each of these with the surge; None if the user has had enough.
pub(super) fn simulate(
    args: &PredictArgs,
    setting: &Setting,
    predictions: &[Prediction],
    variants: &[Variant],
    interrupt: &Interrupt,
) -> Result<Option<Vec<Surged>>, SimulateError> {
    if setting.model.mean() <= 0.0 {
        return Ok(Some(Vec::new()));
    }
    let courses: Vec<(Course, Surge)> = predictions
        .iter()
        .map(|prediction| course(args, setting, &Fluid::of(args, setting, prediction)))
        .collect::<Result<_, _>>()?;
    let progress = Progress::of_calls(courses.iter().map(|(course, _)| course.calls).sum());
    let played: Vec<&Variant> = predictions.iter().map(|p| &variants[p.variant]).collect();
    let reports = run_all(played.len(), cores(), |job| {
        progress.doing(format!("surge: {}", played[job].name));
        let mut before = 0;
        let report = play(setting, played[job], &courses[job].0, |ended| {
            progress.advance(ended - before);
            before = ended;
            !interrupt.asked()
        });
        report.transpose()
    });
    let mut all = Vec::new();
    for ((report, prediction), (_, surge)) in reports.into_iter().zip(predictions).zip(&courses) {
        let Some(report) = report.transpose()? else { return Ok(None) };
        all.push(surged(&report, setting, prediction, *surge));
    }
    Ok(Some(all))
}

/// Enough calls before the surge for a steady state, and after it until the backlog is gone.
fn course(
    args: &PredictArgs,
    setting: &Setting,
    fluid: &Fluid,
) -> Result<(Course, Surge), SettingError> {
    let before = (20.0 * setting.model.mean()).max(200.0 * 1e9 / setting.rate);
    let lasts = args.surge_for.as_nanos() as f64;
    let after = if fluid.gone.is_finite() { 2.0 * fluid.gone + before } else { lasts };
    let calls = setting.rate / 1e9 * (before + args.surge * lasts + after);
    if calls > MOST_CALLS {
        return Err(SettingError::Together(format!(
            "--surge {} and --surge-for {} make {calls:.0} calls with what follows, and \
             {MOST_CALLS} can be simulated: lower one of them, or leave --simulate out",
            three_digits(args.surge),
            show_duration(args.surge_for)
        )));
    }
    let from = setting.warm_up() + before as Nanos;
    let percent = (100.0 * args.surge) as u64;
    let surge = Surge { from, until: from + lasts as Nanos, percent };
    let course =
        Course { seed: args.seed, calls: calls as u64, surge: Some(surge), ..Course::default() };
    Ok((course, surge))
}

fn surged(report: &Report, setting: &Setting, prediction: &Prediction, surge: Surge) -> Surged {
    let slots = u64::from(setting.args.replicas.get() * setting.args.slots.get());
    let done = report.ends.iter().zip(&report.latencies).map(|(&at, &took)| (at, took));
    let failed = report.failures.iter().map(|failed| (failed.at, failed.took));
    let mut calls: Vec<(Nanos, Nanos)> =
        done.chain(failed).map(|(end, took)| (end - took, end)).collect();
    calls.sort_unstable();
    let (before, later) = calls.split_at(calls.partition_point(|&(from, _)| from < surge.until));
    let mut open: Vec<Nanos> =
        before.iter().map(|&(_, end)| end).filter(|&end| end >= surge.until).collect();
    let backlog = (open.len() as u64).saturating_sub(slots);
    // Until as many are open as there are slots.
    open.sort_unstable();
    let mut open_at: Vec<(Nanos, i64)> = open.iter().map(|&end| (end, -1)).collect();
    open_at.extend(later.iter().flat_map(|&(from, end)| [(from, 1), (end, -1)]));
    open_at.sort_unstable();
    let mut now = open.len() as i64;
    let gone = open_at.iter().find(|(_, change)| {
        now += change;
        now <= slots as i64
    });
    let gone = if backlog == 0 { Some(surge.until) } else { gone.map(|&(at, _)| at) };
    let seen = gone.unwrap_or(Nanos::MAX);
    let waits = calls.iter().filter(|(from, _)| (surge.from..seen).contains(from));
    let waits = waits.map(|(from, end)| ((end - from) as f64 - prediction.law.mean()).max(0.0));
    let (count, sum, longest) = waits.fold((0.0, 0.0, 0.0), |(count, sum, longest), wait| {
        (count + 1.0, sum + wait, f64::max(longest, wait))
    });
    Surged {
        backlog: backlog as f64,
        longest,
        mean: sum / f64::max(count, 1.0),
        gone: gone.map(|at| (at - surge.until) as f64),
        failed: report.failures.len() as f64 / calls.len().max(1) as f64,
    }
}

/// What a surge leaves behind under each policy, as text.
pub(super) fn page(
    args: &PredictArgs,
    setting: &Setting,
    predictions: &[Prediction],
    simulated: Option<&[Surged]>,
) -> String {
    if setting.model.mean() <= 0.0 {
        return String::new();
    }
    let header = ["", "in surge", "backlog", "longest", "mean", "gone after", "failed"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    let time = |time: f64| if time.is_finite() { nanos(time) } else { "never".to_owned() };
    for (place, prediction) in predictions.iter().enumerate() {
        let fluid = Fluid::of(args, setting, prediction);
        let mut line = vec![prediction.name.clone(), percent(fluid.surge)];
        line.extend([format!("{:.0}", fluid.backlog), time(fluid.longest), mean_of(&fluid)]);
        line.extend([time(fluid.gone), "-".to_owned()]);
        lines.push(line);
        let Some(found) = simulated.and_then(|all| all.get(place)) else { continue };
        let mut line = vec!["  simulated".to_owned(), String::new()];
        line.extend([format!("{:.0}", found.backlog), time(found.longest), time(found.mean)]);
        line.extend([
            found.gone.map_or_else(|| "not seen".to_owned(), time),
            percent(found.failed),
        ]);
        lines.push(line);
        let mut line = vec!["  formula off by".to_owned(), String::new()];
        line.push(off(fluid.backlog, Some(found.backlog)));
        line.push(off(fluid.longest, Some(found.longest)));
        line.extend([off(fluid.mean, Some(found.mean)), off(fluid.gone, found.gone)]);
        lines.push(line);
    }
    let title = format!(
        "A surge of {} times the rate for {}: calls that wait at its end, how long one waits at \
         longest, and on average until nothing waits any more",
        three_digits(args.surge),
        show_duration(args.surge_for)
    );
    let assumes = wrapped(
        "Assumes: calls flow in and out at their mean rates, evenly over all slots, first come, \
         first served (replicas that are behind serve the newest first, so that few wait long); \
         queues hold what comes, and nothing is shed; tied calls take up what one copy does, and \
         the share that starts twice; hedges stay as frequent as while nothing queues. (They \
         become more frequent, up to the budget: then the load of the surge has to be reckoned \
         with all of it.)",
        "  ",
    );
    format!("\n{}{}{assumes}", wrapped(&title, ""), lay_out(&lines))
}

/// The mean wait until nothing waits; there is none where that never is.
fn mean_of(fluid: &Fluid) -> String {
    if fluid.gone.is_finite() { nanos(fluid.mean) } else { "-".to_owned() }
}

/// How far a formula is off, where both can be told.
fn off(formula: f64, found: Option<f64>) -> String {
    match found {
        Some(found) if found > 0.0 && formula.is_finite() => {
            format!("{:+.1} %", 100.0 * (formula / found - 1.0))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, parse};
    use crate::predict::{surging, unqueued, variants};

    /// One copy, and tied ones, under a surge that more than fills two slots.
    fn surge_of(line: &str) -> (PredictArgs, Setting, Vec<Prediction>, Vec<Variant>) {
        let line = format!("bowline predict --simulate {line}");
        let Ok(Command::Predict(args)) = parse(line.split_whitespace()) else { panic!("{line}") };
        let setting = Setting::new(&args.world, args.offered(), 1).expect("a setting");
        let variants = variants(&args, &setting);
        let mut predictions = surging(&setting, &[unqueued(&setting, &variants)]);
        predictions.truncate(2);
        (*args, setting, predictions, variants)
    }

    #[test]
    fn a_surge_leaves_about_what_a_fluid_would() {
        let (args, setting, predictions, variants) = surge_of(
            "--service exp:1ms --slots 1 --replicas 2 --load 50% --surge 3 --surge-for 2s \
             --deadline 1h --queue 100000",
        );
        let interrupt = Interrupt::default();
        let found = simulate(&args, &setting, &predictions, &variants, &interrupt);
        let found = found.expect("no rule was broken").expect("nobody interrupts");
        let fluid = Fluid::of(&args, &setting, &predictions[0]);
        let close = |found: f64, fluid: f64| (found / fluid - 1.0).abs() < 0.15;
        // 2 s at half again of the capacity, two calls a millisecond.
        assert!((fluid.backlog - 2000.0).abs() < 1e-6 && (fluid.longest - 1e9).abs() < 1.0);
        assert!(close(found[0].backlog, fluid.backlog), "{}", found[0].backlog);
        assert!(close(found[0].mean, fluid.mean), "{} for {}", found[0].mean, fluid.mean);
        // The newest first: somebody waits until nearly all is served.
        assert!(found[0].longest > fluid.longest, "{}", found[0].longest);
        let gone = found[0].gone.expect("seen");
        assert!(close(gone, fluid.gone), "{gone}");
        assert!(found[0].failed == 0.0);
        // Ties move what waits from one queue to the other, and make no slots.
        assert_eq!(predictions[1].name, "tied");
        assert!(close(found[1].backlog, fluid.backlog), "{}", found[1].backlog);
        let gone = found[1].gone.expect("seen");
        assert!(close(gone, fluid.gone), "{gone}");
        let text = page(&args, &setting, &predictions, Some(&found));
        assert!(text.contains("  simulated ") && text.contains("  formula off by "), "{text}");
        assert!(text.lines().any(|line| line.starts_with("tied ")), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn where_deadlines_pass_in_a_surge_the_calls_that_fail_are_told() {
        let (args, setting, predictions, variants) = surge_of(
            "--service exp:1ms --slots 1 --replicas 2 --load 50% --surge 3 --surge-for 1s \
             --deadline 20ms",
        );
        let interrupt = Interrupt::default();
        let found = simulate(&args, &setting, &predictions, &variants, &interrupt);
        let found = found.expect("no rule was broken").expect("nobody interrupts");
        assert!(found[0].failed > 0.1, "{}", found[0].failed);
        assert!(found[0].backlog < 200.0, "{}", found[0].backlog);
    }

    #[test]
    fn a_surge_of_too_many_calls_is_refused_with_the_cure() {
        let (args, setting, predictions, variants) =
            surge_of("--rate 100000 --surge 100 --surge-for 10s");
        let interrupt = Interrupt::default();
        let found = simulate(&args, &setting, &predictions, &variants, &interrupt);
        let error = found.map(|_| ()).expect_err("too many").to_string();
        assert!(
            error.starts_with("--surge 100 and --surge-for") && error.contains("lower"),
            "{error}"
        );
    }
}
