//! `bowline predict`: what formulas say of hedged and tied calls, before anything runs.
//!
//! Every figure is a model's, and holds under assumptions that are printed beside it. With
//! `--simulate` the simulation of the same cluster stands beneath, and how far the formula is off:
//! that is what the assumptions cost.

mod laws;
mod page;
mod surge;

use core::time::Duration;

use bowline_tests::theory::{Law, both_run, queue, tied_on_two_of_many};

use crate::cli::{self, Copies, PolicyArgs, PredictArgs};
use crate::interrupt::Interrupt;
use crate::output::print;
use crate::progress::Progress;
use crate::report::Regime;
use crate::run::{RunEnd, RunError};
use crate::simulate::{Course, Setting, SimulateError, Variant, cores, run_all, turn};
use crate::stats::{Rounds, Summary};
use crate::units::{show_duration, three_digits};

/// What is predicted of one way to make calls.
#[derive(Clone)]
struct Prediction {
    /// Which way.
    name: String,
    /// Latencies, in nanoseconds.
    law: Law,
    /// Executions beyond one, for each call.
    extra: f64,
    /// Its place among the simulated policies.
    variant: usize,
}

/// Predictions that rest on the same assumptions.
struct Group {
    title: &'static str,
    assumes: String,
    predictions: Vec<Prediction>,
}

/// What was simulated, to stand beside the formulas.
struct Simulated {
    /// The steady state, of each policy.
    summaries: Vec<Summary>,
    /// The surge, of each of [`surging`].
    surges: Vec<surge::Surged>,
}

/// Predicts, simulates if asked, and prints both.
///
/// # Errors
/// [`SimulateError`]
pub fn run(args: &PredictArgs) -> Result<RunEnd, SimulateError> {
    let calls = if args.simulate { args.calls.get() } else { 1 };
    let setting = Setting::new(&args.world, args.offered(), calls)?;
    let variants = variants(args, &setting);
    let (groups, interrupted) = (groups(&setting, &variants), Interrupt::on_signals());
    let interrupt = interrupted.map_err(RunError::Signals)?;
    let mut simulated = None;
    if args.simulate {
        let ways = surging(&setting, &groups);
        let surges = surge::simulate(args, &setting, &ways, &variants, &interrupt)?;
        let Some(surges) = surges else { return Ok(RunEnd::Interrupted) };
        let summaries = simulate(args, &setting, &variants, &interrupt)?;
        let Some(summaries) = summaries else { return Ok(RunEnd::Interrupted) };
        simulated = Some(Simulated { summaries, surges });
    }
    let text = page::page(args, &setting, &groups, &variants, simulated.as_ref());
    print(text).map_err(RunError::Output)?;
    Ok(RunEnd::Whole)
}

/// The policies that are reckoned with: none, hedges after each delay, and ties.
fn variants(args: &PredictArgs, setting: &Setting) -> Vec<Variant> {
    let attempt = attempt(setting);
    let settings = |delay| PolicyArgs {
        hedge_percentile: 0.95,
        hedge_delay: delay,
        // Formulas know no budget.
        budget: 1.0,
        stagger: None,
        pick: args.world.pick,
    };
    let plain =
        |name: &str, policy| Variant { name: name.to_owned(), policy, settings: settings(None) };
    let mut all = vec![plain("one copy", cli::Policy::None)];
    if is_alone(setting) {
        return all;
    }
    all.push(plain("tied", cli::Policy::Tied));
    let hedge = |name: String, delay| Variant {
        name: format!("hedge {name}"),
        policy: cli::Policy::Hedged,
        settings: settings(Some(delay)),
    };
    for &percentile in &args.hedge_percentiles {
        let delay = Duration::from_nanos(attempt.quantile(percentile) as u64);
        let name = format!("at p{}, {}", 100.0 * percentile, show_duration(delay));
        all.push(hedge(name, delay));
    }
    let fixed = args.hedge_delays.iter();
    all.extend(fixed.map(|&delay| hedge(format!("after {}", show_duration(delay)), delay)));
    all
}

/// What one copy takes that waits for nothing but the network, in nanoseconds.
fn attempt(setting: &Setting) -> Law {
    let marginal = setting.model.marginal();
    let served = marginal.map_or_else(|| Law::new(0.0, |_| 0.0), |span| laws::of(&span));
    served.later_by(round_trip(setting))
}

fn round_trip(setting: &Setting) -> f64 {
    2.0 * setting.args.network.mean()
}

/// Whether there is no second replica, for a hedge or a tied copy.
fn is_alone(setting: &Setting) -> bool {
    setting.args.replicas.get() == 1
}

/// Whether calls come faster than they can be served.
fn is_overloaded(setting: &Setting) -> bool {
    setting.load() >= 1.0
}

fn groups(setting: &Setting, variants: &[Variant]) -> Vec<Group> {
    let mut groups = vec![unqueued(setting, variants)];
    if !is_overloaded(setting) && setting.load() > 0.0 {
        groups.push(queued(setting));
    }
    groups
}

fn unqueued(setting: &Setting, variants: &[Variant]) -> Group {
    let attempt = attempt(setting);
    let identical = setting.args.copies == Copies::Identical;
    let one = Prediction { name: "one copy".into(), law: attempt.clone(), extra: 0.0, variant: 0 };
    let mut predictions = vec![one];
    for (variant, hedged) in variants.iter().enumerate() {
        let Some(delay) = hedged.settings.hedge_delay else { continue };
        let delay = delay.as_nanos() as f64;
        predictions.push(Prediction {
            name: hedged.name.clone(),
            // A hedge that takes as long as the first copy ends after it, whenever it began.
            law: if identical { attempt.clone() } else { attempt.clone().hedged_after(delay) },
            extra: attempt.beyond(delay),
            variant,
        });
    }
    let (title, copies) = if is_alone(setting) {
        ("Nothing queues: P(T > t) = S(t)", "there is one replica, and so nowhere to hedge to")
    } else if identical {
        (
            "Nothing queues: P(T > t) = S(t), extra load S(h)",
            "all copies of a call take equally long, so that no hedge is ever the first to end; \
             every call that is slow enough is hedged",
        )
    } else {
        (
            "Nothing queues: P(T > t) = S(t) S(t - h), extra load S(h)",
            "copies take times of their own, whatever else happens at the moment (what a trace \
             shows together is taken apart); every call that is slow enough is hedged",
        )
    };
    Group {
        title,
        assumes: format!(
            "every copy finds a free slot, however many there are; {copies}; S is the service \
             time, and the mean way there and back."
        ),
        predictions,
    }
}

fn queued(setting: &Setting) -> Group {
    let (load, slots) = (setting.load(), setting.args.slots.get());
    let in_time = |law: Law| law.stretched(setting.model.mean()).later_by(round_trip(setting));
    let doubles = doubles(setting);
    let mut predictions = vec![Prediction {
        name: format!("one copy: M/M/{slots}"),
        law: in_time(queue(slots, load)),
        extra: 0.0,
        variant: 0,
    }];
    if !is_alone(setting) {
        predictions.push(Prediction {
            name: format!("tied, two replicas: M/M/{}", 2 * slots),
            law: in_time(queue(2 * slots, load)),
            extra: doubles,
            variant: 1,
        });
    }
    if slots == 1 && !is_alone(setting) {
        predictions.push(Prediction {
            name: "tied, two of many".into(),
            law: in_time(tied_on_two_of_many(load)),
            extra: doubles,
            variant: 1,
        });
        predictions.push(Prediction {
            name: "both run, two replicas".into(),
            law: in_time(both_run(load)),
            extra: 1.0,
            variant: usize::MAX,
        });
    }
    Group {
        title: "Everything queues, first come, first served",
        assumes: format!(
            "service times are exponential with the mean of yours; calls come to each replica as a \
             Poisson process (round-robin is smoother than that, two-choices steers); tied copies \
             join both queues and leave one when they start, and cancels take no time, but for \
             extra executions: 0.6 x cancel delay / mean service time of the calls; {}.",
            if slots == 1 {
                "two of many is the limit of infinitely many replicas; both copies run, with the \
                 loser stopped at once, at the load of one copy each"
            } else {
                "ties on two of many replicas have a closed form for --slots 1 only"
            }
        ),
        predictions,
    }
}

/// The ways to make calls of which it is told what a surge leaves: those that know no queue, for a
/// fluid needs only their load, and tied calls.
fn surging(setting: &Setting, groups: &[Group]) -> Vec<Prediction> {
    let mut ways = groups[0].predictions.clone();
    if !is_alone(setting) {
        let tied = Prediction {
            name: "tied".into(),
            extra: doubles(setting),
            variant: 1,
            ..ways[0].clone()
        };
        ways.insert(1, tied);
    }
    ways
}

/// The share of tied calls of which both copies start where all queue.
fn doubles(setting: &Setting) -> f64 {
    let regime = Regime {
        service: Duration::from_nanos(setting.model.mean() as u64),
        cancel_delay: Duration::from_nanos(setting.args.network.mean() as u64),
    };
    regime.expected_both_started()
}

/// Simulates every policy on the cluster as it was described; None if the user has had enough.
fn simulate(
    args: &PredictArgs,
    setting: &Setting,
    variants: &[Variant],
    interrupt: &Interrupt,
) -> Result<Option<Vec<Summary>>, SimulateError> {
    let calls = u64::from(args.calls.get());
    let progress = Progress::of_calls(calls * variants.len() as u64);
    let course = Course { seed: args.seed, calls, ..Course::default() };
    let slices = run_all(variants.len(), cores(), |job| {
        let variant = &variants[job];
        progress.doing(variant.name.clone());
        let mut before = 0;
        let slice = turn(setting, variant, &course, |ended| {
            progress.advance(ended - before);
            before = ended;
            !interrupt.asked()
        });
        slice.transpose()
    });
    let mut summaries = Vec::new();
    for (slice, variant) in slices.into_iter().zip(variants) {
        let Some(slice) = slice.transpose()? else { return Ok(None) };
        let rounds = Rounds { policy: variant.name.clone(), slices: vec![slice] };
        summaries.push(rounds.merged());
    }
    Ok(Some(summaries))
}

/// A time for readers.
fn nanos(time: f64) -> String {
    show_duration(Duration::from_nanos(time as u64))
}

/// A share for readers.
fn percent(share: f64) -> String {
    format!("{} %", three_digits(100.0 * share))
}
