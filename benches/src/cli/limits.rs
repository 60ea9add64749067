//! What options may say together: checked before anything is made, sent or written.

use core::time::Duration;

use bowline_client::core::ConfigError;

use super::args::{CompareArgs, FaultArgs, LoadArgs, LoadShape, PolicyArgs};
use super::model::SimulateArgs;
use super::policy::{FaultPattern, Policy};
use crate::policies::{client_config, client_policy};
use crate::simulate::variants;
use crate::units::three_digits;

/// Calls of a turn, which are drawn before it begins: 24 bytes each.
const TURN_CALLS: f64 = 1e7;
/// Stalls of a turn.
const TURN_STALLS: f64 = 1e5;

/// Whether a comparison can be run.
pub(super) fn compare(args: &CompareArgs) -> Result<(), String> {
    let mut names: Vec<&str> = args.policies.iter().map(|policy| policy.name()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("--policies names '{}' twice", pair[0]));
    }
    let turn = args.turn();
    let cure = "--duration, --rate or --rounds";
    calls("--duration", cure, args.load.rate, turn, 1.0)?;
    load(&args.load)?;
    if args.replicas.is_empty() {
        stalls(&args.faults, turn)?;
    }
    policies(&args.policies, &args.policy)
}

/// Whether a load can be run.
pub(super) fn load_command(args: &LoadArgs) -> Result<(), String> {
    calls("--duration", "--duration or --rate", args.load.rate, args.duration, 1.0)?;
    load(&args.load)?;
    policies(&[args.policy], &args.settings)
}

/// Policies of one sweep.
const VARIANTS: usize = 64;
/// Loads of one sweep.
const LOADS: usize = 16;

/// Whether a simulation can be run, as far as that can be told without its files.
pub(super) fn simulate(args: &SimulateArgs) -> Result<(), String> {
    let offered = args.offered();
    if offered.len() > LOADS {
        return Err(format!(
            "--rate and --load may name {LOADS} loads, and {} are there: leave some out",
            offered.len()
        ));
    }
    let twice = (1..offered.len()).find(|&n| offered[..n].contains(&offered[n]));
    if let Some(twice) = twice {
        let option = if args.rates.is_empty() { "--load" } else { "--rate" };
        return Err(format!("{option} names {} twice: name each once", offered[twice]));
    }
    let variants = variants(args);
    let mut names: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("two policies of the sweep are both '{}': name each once", pair[0]));
    }
    if names.len() > VARIANTS {
        return Err(format!(
            "a sweep of {} policies, and at most {VARIANTS} are tried: shorten a list",
            names.len()
        ));
    }
    variants.iter().try_for_each(|variant| {
        policies(&[variant.policy], &variant.settings).map_err(|why| in_lists(&why))
    })
}

/// The options of a sweep have the names of their lists.
fn in_lists(why: &str) -> String {
    ["--hedge-percentile", "--hedge-delay", "--stagger", "--budget"]
        .iter()
        .find_map(|option| why.strip_prefix(option).map(|rest| format!("{option}s{rest}")))
        .unwrap_or_else(|| why.to_owned())
}

fn load(args: &LoadShape) -> Result<(), String> {
    calls("--warmup", "--warmup or --rate", args.rate, args.warmup, 0.0)
}

/// Whether the calls of a turn are at least `least` and not more than can be held.
fn calls(option: &str, cure: &str, rate: f64, turn: Duration, least: f64) -> Result<(), String> {
    let calls = rate * turn.as_secs_f64();
    let (rate, seconds) = (three_digits(rate), three_digits(turn.as_secs_f64()));
    let what = format!("{option} makes turns of {seconds} s, and --rate {rate} calls a second");
    if calls > TURN_CALLS {
        Err(format!("{what}: more than the {TURN_CALLS} calls that a turn may have; change {cure}"))
    } else if calls < least {
        Err(format!("{what}: less than one call in a turn; change {cure}"))
    } else {
        Ok(())
    }
}

fn stalls(args: &FaultArgs, turn: Duration) -> Result<(), String> {
    let cycle = args.stall.as_secs_f64() + args.stall_gap.as_secs_f64();
    let none = args.faults == FaultPattern::Off || args.stall.is_zero();
    if none || turn.as_secs_f64() <= cycle * TURN_STALLS {
        return Ok(());
    }
    Err(format!(
        "--stall and --stall-gap make more than the {TURN_STALLS} stalls that a turn of {} s may \
         have; lengthen one of them",
        three_digits(turn.as_secs_f64())
    ))
}

/// Whether the client will take the policies' settings.
fn policies(policies: &[Policy], args: &PolicyArgs) -> Result<(), String> {
    // Its words are about its own settings: here they are put into those of the options.
    client_config(args, 0).and_then(|config| config.validate()).map_err(|error| refused(&error))?;
    policies.iter().try_for_each(|policy| {
        client_policy(*policy, args).validate().map_err(|error| refused(&error))
    })
}

fn refused(error: &ConfigError) -> String {
    match error.field {
        "hedge.quantile" => "--hedge-percentile must lie between 50% and 99.99%".to_owned(),
        "hedge.delay" => format!("--hedge-delay must be {}", error.expected),
        "tie.stagger" => format!("--stagger must be {}", error.expected),
        "budget.fraction" => "--budget must lie between 0% and 100%".to_owned(),
        _ => error.to_string(),
    }
}
