//! The policies of a sweep: every kind with every setting that concerns it.

use core::time::Duration;

use crate::cli::{self, PolicyArgs, SimulateArgs, StaggerArg};
use crate::units::three_digits;

/// A policy with its settings.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name in tables and files: `hedged-p95`, `tied-s0`, with `-b2` for a budget of 2 %.
    pub name: String,
    /// Its kind.
    pub policy: cli::Policy,
    /// Its settings.
    pub settings: PolicyArgs,
}

/// All of them, in the order of the kinds.
pub fn variants(args: &SimulateArgs) -> Vec<Variant> {
    let mut all = Vec::new();
    for &policy in &args.policies {
        for variant in kind(args, policy) {
            with_budgets(args, variant, &mut all);
        }
    }
    all
}

/// One kind with the delays and staggers that it knows.
fn kind(args: &SimulateArgs, policy: cli::Policy) -> Vec<Variant> {
    let plain = Variant {
        name: policy.name().to_owned(),
        policy,
        settings: PolicyArgs {
            hedge_percentile: 0.95,
            hedge_delay: None,
            budget: 0.0,
            stagger: None,
            pick: args.world.pick,
        },
    };
    match policy {
        cli::Policy::None => vec![plain],
        cli::Policy::Hedged => with_delays(args, &plain),
        cli::Policy::Tied => with_staggers(args, &plain),
        cli::Policy::TiedHedged => {
            let staggered = with_staggers(args, &plain);
            staggered.iter().flat_map(|variant| with_delays(args, variant)).collect()
        }
    }
}

fn with_delays(args: &SimulateArgs, plain: &Variant) -> Vec<Variant> {
    let percentiles = args.sweep.hedge_percentiles.iter().map(|&percentile| {
        let shown = three_digits(100.0 * percentile);
        let shown = shown.trim_end_matches('0').trim_end_matches('.');
        let mut variant = plain.named(&format!("-p{shown}"));
        variant.settings.hedge_percentile = percentile;
        variant
    });
    let delays = args.sweep.hedge_delays.iter().map(|&delay| {
        let mut variant = plain.named(&format!("-{}", short(delay)));
        variant.settings.hedge_delay = Some(delay);
        variant
    });
    percentiles.chain(delays).collect()
}

fn with_staggers(args: &SimulateArgs, plain: &Variant) -> Vec<Variant> {
    let staggers = args.sweep.staggers.iter().map(|&stagger| match stagger {
        StaggerArg::Auto => plain.clone(),
        StaggerArg::Fixed(stagger) => {
            let mut variant = plain.named(&format!("-s{}", short(stagger)));
            variant.settings.stagger = Some(stagger);
            variant
        }
    });
    staggers.collect()
}

/// Budgets concern every kind but the one that has no extra copies; a name tells them where there
/// are several.
fn with_budgets(args: &SimulateArgs, plain: Variant, all: &mut Vec<Variant>) {
    if plain.policy == cli::Policy::None {
        return all.push(plain);
    }
    for &budget in &args.sweep.budgets {
        let suffix = match args.sweep.budgets.len() {
            1 => String::new(),
            _ => format!("-b{}", (budget * 1e4).round() / 100.0),
        };
        let mut variant = plain.named(&suffix);
        variant.settings.budget = budget;
        all.push(variant);
    }
}

impl Variant {
    fn named(&self, suffix: &str) -> Variant {
        Variant { name: format!("{}{suffix}", self.name), ..self.clone() }
    }
}

/// A duration as it was written, in the largest unit that needs no point.
fn short(time: Duration) -> String {
    let nanos = time.as_nanos();
    match nanos {
        0 => "0".into(),
        n if n.is_multiple_of(1_000_000) => format!("{}ms", n / 1_000_000),
        n if n.is_multiple_of(1_000) => format!("{}us", n / 1_000),
        n => format!("{n}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, parse};

    fn names(line: &str) -> Vec<String> {
        match parse(["bowline", "simulate"].into_iter().chain(line.split_whitespace())) {
            Ok(Command::Simulate(args)) => variants(&args).into_iter().map(|v| v.name).collect(),
            other => panic!("{line} gave {other:?}"),
        }
    }

    #[test]
    fn every_kind_is_tried_with_the_settings_that_concern_it() {
        assert_eq!(
            names(""),
            ["none", "hedged-p90", "hedged-p95", "hedged-p99", "tied", "tied-s0"]
        );
        assert_eq!(
            names(
                "--policies tied-hedged,none --hedge-percentiles 99.9% --hedge-delays 7ms \
                 --staggers 150us --budgets 2%,10%"
            ),
            [
                "tied-hedged-s150us-p99.9-b2",
                "tied-hedged-s150us-p99.9-b10",
                "tied-hedged-s150us-7ms-b2",
                "tied-hedged-s150us-7ms-b10",
                "none"
            ]
        );
    }
}
