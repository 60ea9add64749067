//! Runs worlds and says, for one that broke a rule, as little as one has to read.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bowline_client::core::Policy;

use crate::check::Rule;
use crate::swarm;
use crate::world::{Report, Scenario, World, replay};

/// Sums over many runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Worlds.
    pub seeds: u64,
    /// Calls that ended.
    pub calls: u64,
    /// Of those, calls that failed.
    pub failed: u64,
    /// Copies that were sent.
    pub sends: u64,
    /// Copies that were started.
    pub starts: u64,
    /// Faults that struck.
    pub faults: u64,
    /// Frames that were delivered.
    pub frames: u64,
    /// A number that stands for all that happened in all of them.
    pub hash: u64,
}

impl Totals {
    /// Adds a run.
    pub const fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.calls += report.succeeded + report.failed;
        self.failed += report.failed;
        self.sends += report.sends;
        self.starts += report.starts;
        self.faults += report.faults;
        self.frames += report.frames;
        self.hash ^= crate::kernel::rng::mix(report.hash ^ report.seed);
    }
}

/// Runs the world that a seed names.
///
/// # Errors
///
/// What to read if it broke a rule.
pub fn seed(seed: u64) -> Result<Report, String> {
    scenario(&swarm::scenario(seed))
}

/// Runs a scenario.
///
/// # Errors
///
/// What to read if it broke a rule, or a machine panicked.
pub fn scenario(scenario: &Scenario) -> Result<Report, String> {
    match attempt(scenario) {
        Ok(report) => match &report.broken {
            None => Ok(report),
            Some(broken) => Err(story(scenario, Some(broken.rule))),
        },
        Err(panic) => Err(format!("{}\n{panic}", story(scenario, None))),
    }
}

/// A run; the panic's words if a machine panicked.
fn attempt(scenario: &Scenario) -> Result<Report, String> {
    let run = || World::new(scenario.clone(), false).run();
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let words = panic.downcast_ref::<String>().cloned();
        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|&words| words.to_owned()));
        format!("a machine panicked: {}", words.unwrap_or_default())
    })
}

/// Whether a scenario breaks this rule (None: panics).
fn breaks(scenario: &Scenario, rule: Option<Rule>) -> bool {
    match (attempt(scenario), rule) {
        (Ok(report), Some(rule)) => report.broken.is_some_and(|broken| broken.rule == rule),
        (Err(_), None) => true,
        _ => false,
    }
}

/// The smallest scenario that this one shrinks to, and its record.
fn story(scenario: &Scenario, rule: Option<Rule>) -> String {
    let small = shrink(scenario, rule);
    let mut text = String::new();
    let seed = scenario.seed;
    // Writing to a string cannot fail.
    let _ = writeln!(text, "seed {seed} breaks {rule:?}; {}", again(scenario));
    let _ = writeln!(text, "shrunk to {small:#?}");
    if rule.is_some() {
        let report = replay(&small);
        let _ = writeln!(text, "{}", report.timeline);
        if let Some(broken) = report.broken {
            let _ = writeln!(text, "{broken}");
        }
    }
    text
}

/// How to see it again. Only the swarm's worlds are named by their seeds alone.
fn again(scenario: &Scenario) -> String {
    let seed = scenario.seed;
    let is_the_swarms = format!("{:?}", swarm::scenario(seed)) == format!("{scenario:?}");
    match is_the_swarms {
        true => format!("again with BOWLINE_SEED={seed}"),
        false => "again with the test that made this world".to_owned(),
    }
}

/// Leaves out what the rule breaks without: faults, calls, classes, large payloads, keys, clients.
fn shrink(scenario: &Scenario, rule: Option<Rule>) -> Scenario {
    let mut small = scenario.clone();
    let mut tries = 200;
    loop {
        let smaller = simpler(&small).into_iter().find(|candidate| {
            tries -= 1;
            tries > 0 && breaks(candidate, rule)
        });
        match smaller {
            Some(smaller) => small = smaller,
            None => return small,
        }
    }
}

fn simpler(scenario: &Scenario) -> Vec<Scenario> {
    let mut candidates = Vec::new();
    let mut with = |change: &dyn Fn(&mut Scenario)| {
        let mut candidate = scenario.clone();
        change(&mut candidate);
        if format!("{candidate:?}") != format!("{scenario:?}") {
            candidates.push(candidate);
        }
    };
    for n in 0..scenario.faults.len() {
        with(&|s| {
            s.faults.remove(n);
        });
    }
    with(&|s| s.room = None);
    with(&|s| s.calls = (s.calls / 2).max(1));
    with(&|s| s.calls = (s.calls - 1).max(1));
    if scenario.classes.len() > 1 {
        for n in 0..scenario.classes.len() {
            with(&|s| {
                s.classes.remove(n);
            });
        }
    }
    let calm = Scenario::calm(scenario.seed);
    with(&|s| s.wires = calm.wires.clone());
    with(&|s| s.wires.credit = None);
    with(&|s| s.shares.clone_from(&calm.shares));
    with(&|s| s.classes.iter_mut().for_each(|class| class.key = None));
    with(&|s| s.lags = None);
    with(&|s| s.service.trace = None);
    with(&|s| s.one_budget = false);
    with(&|s| s.budget.per_second = 0.0);
    with(&|s| s.classes.iter_mut().for_each(|class| class.asks = None));
    with(&|s| s.classes.iter_mut().for_each(|class| class.policy = Policy::None));
    with(&|s| s.clients = 1);
    with(&|s| s.cores = 1);
    with(&|s| s.servers = (s.servers - 1).max(2));
    with(&|s| s.split_permille = 0);
    with(&|s| s.ppm = 0);
    with(&|s| s.turn = 0);
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::span::Span;
    use crate::world::{Class, Fault, What};

    const MS: u64 = 1_000_000;

    /// No call is to fail, but both servers die as they serve the first.
    fn doomed() -> Scenario {
        let mut scenario = Scenario::calm(7);
        (scenario.servers, scenario.clients) = (2, 2);
        scenario.gap = Span::Fixed(60 * MS);
        scenario.service.span = Span::Fixed(20 * MS);
        scenario.classes = vec![Class::plain(), Class::with(Policy::tied())];
        let fault = |what| Fault { at: 70 * MS, lasts: 2_000 * MS, what };
        scenario.faults = vec![fault(What::Freeze(3)), fault(What::Kill(0)), fault(What::Kill(1))];
        scenario.nothing_fails = true;
        scenario
    }

    #[test]
    fn what_breaks_a_rule_is_told_with_its_seed_and_as_little_as_one_has_to_read() {
        let story = super::scenario(&doomed()).expect_err("a call failed that must not");
        println!("{story}");
        let first =
            "seed 7 breaks Some(SurvivesOneFault); again with the test that made this world";
        assert_eq!(story.lines().next(), Some(first));
        let has =
            |parts: &[&str]| story.lines().any(|line| parts.iter().all(|it| line.contains(it)));
        assert!(has(&["client 0", "calls"]), "who called");
        assert!(has(&["server", "<- client 0", "request"]), "who heard what of whom");
        assert!(has(&["world", "Kill(0)"]) && has(&["world", "Kill(1)"]), "what befell them");
        assert!(!has(&["Freeze"]) && !has(&["client 1"]), "what has nothing to do with it");
        assert!(
            story.trim_end().lines().last().is_some_and(|it| it.contains("SurvivesOneFault: "))
        );
    }

    #[test]
    fn what_is_left_of_it_breaks_the_same_rule_with_less() {
        let rule = Some(Rule::SurvivesOneFault);
        let small = shrink(&doomed(), rule);
        assert!(breaks(&small, rule));
        assert_eq!(
            (small.calls, small.clients, small.classes.len(), small.faults.len()),
            (1, 1, 1, 2)
        );
        for less in simpler(&small) {
            assert!(!breaks(&less, rule), "{less:#?}");
        }
    }

    #[test]
    fn a_world_of_the_swarms_is_named_by_its_seed() {
        assert_eq!(again(&swarm::scenario(776)), "again with BOWLINE_SEED=776");
    }
}
