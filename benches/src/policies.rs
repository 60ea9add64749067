//! Policies as a client wants them, from the options that describe them.

use std::sync::Arc;

use bowline_client::core::{
    Budget, BudgetConfig, Config, ConfigError, Delay, HedgePolicy, Percentile, Policy, Stagger,
    TiePolicy,
};

use crate::cli::{self, PolicyArgs};
use crate::units::three_digits;

/// Tokens that the bucket holds, at most and at first: what a burst of slow calls may take at once.
/// A tied call holds a token while it is under way, so that there must be as many as calls in
/// flight at the end of a stall.
const BURST: u32 = 512;

/// Tokens that a policy has to begin with. Without a budget there are none: 0 means 0.
const fn burst(budget: f64) -> u32 {
    if budget > 0.0 { BURST } else { 0 }
}

/// A budget in words: a share of the calls, and what may be spent at once.
pub fn show_budget(budget: f64) -> String {
    format!("{} % of the calls, and {} at once", three_digits(100.0 * budget), burst(budget))
}

/// What the client is to do under `policy`.
pub fn client_policy(policy: cli::Policy, args: &PolicyArgs) -> Policy {
    match policy {
        cli::Policy::None => Policy::None,
        cli::Policy::Hedged => Policy::Hedged(hedge(args)),
        cli::Policy::Tied => Policy::Tied(tie(args)),
        cli::Policy::TiedHedged => Policy::TiedThenHedged(tie(args), hedge(args)),
    }
}

/// A client's settings, with a budget of its own.
///
/// # Errors
/// A setting is out of its range.
pub fn client_config(args: &PolicyArgs, seed: u64) -> Result<Config, ConfigError> {
    let budget = budget_config(args);
    let pick = args.pick.rule();
    Ok(Config { pick, budget: Arc::new(Budget::new(budget)?), seed, ..Config::default() })
}

/// What a policy may spend.
pub fn budget_config(args: &PolicyArgs) -> BudgetConfig {
    BudgetConfig {
        fraction: args.budget,
        burst: burst(args.budget),
        outstanding: BURST,
        ..BudgetConfig::default()
    }
}

fn hedge(args: &PolicyArgs) -> HedgePolicy {
    let percentile = Percentile { quantile: args.hedge_percentile, ..Percentile::default() };
    let delay = args.hedge_delay.map_or(Delay::Percentile(percentile), Delay::Fixed);
    HedgePolicy { delay, ..HedgePolicy::default() }
}

fn tie(args: &PolicyArgs) -> TiePolicy {
    let default = TiePolicy::default();
    TiePolicy { stagger: args.stagger.map_or(default.stagger, Stagger::Fixed), ..default }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, parse};

    fn burst_of(budget: &str) -> u32 {
        match parse(["bowline", "--budget", budget]) {
            Ok(Command::Compare(args)) => burst(args.policy.budget),
            other => panic!("{budget} gave {other:?}"),
        }
    }

    #[test]
    fn a_budget_of_nothing_allows_nothing() {
        assert_eq!(burst_of("0%"), 0);
        assert_eq!(burst_of("10%"), BURST);
        assert!(show_budget(0.0).ends_with("and 0 at once"), "{}", show_budget(0.0));
    }
}
