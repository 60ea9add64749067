//! What a run found, measured or simulated, for people and for programs.

mod chart;
mod folder;
mod hlog;
mod html;
mod json;
mod loads;
mod ratios;
mod regime;
mod rows;
mod table;
mod utc;
mod verdict;

use core::cmp::Reverse;
use std::time::SystemTime;

pub use folder::{Folder, ReportError};
pub use loads::{Point, overview};
pub use regime::Regime;
pub use rows::glossary;
pub use table::{lay_out, sweep_table, table};

use crate::setup::Machine;
use crate::stats::{
    Denial, Quantile, Rounds, Spread, Summary, Validity, comparable, ratio_to_baseline,
};
use crate::units::{show_duration, three_digits};

/// Stands before the figures of a simulation.
pub const SIMULATED: &str = "SIMULATED, not measured: the client's and the replicas' own code in \
                             virtual time; network, service times and stalls are the model's.";
/// The policy that the others are compared with.
const BASELINE: &str = "none";

/// Where figures come from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// They were measured on this machine.
    Measured(Machine),
    /// They were simulated, of many policies: the machine plays no part.
    Simulated,
}

/// A run: where, with what, and what came of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// Where the figures come from.
    pub origin: Origin,
    /// What stands above the figures on the terminal, a line each.
    pub heading: Vec<String>,
    /// When it began.
    pub started: SystemTime,
    /// Names the schedule, the data and the stalls.
    pub seed: u64,
    /// Every other setting, by name, in the order in which to show them.
    pub parameters: Vec<(String, String)>,
    /// What each policy measured, the baseline first.
    pub policies: Vec<Rounds>,
    /// Service time and cancel delay, where they are known.
    pub regime: Option<Regime>,
    /// Whether the user ended the run early.
    pub interrupted: bool,
    /// What went wrong with the replicas, a sentence each; then the ratios compare nothing.
    pub failures: Vec<String>,
    /// What else a reader has to know, such as a fallback that was taken.
    pub notes: Vec<String>,
}

/// A policy's ratios to the baseline: a spread for each percentile, where the samples allow.
#[derive(Clone, Debug)]
pub(crate) struct Ratios {
    pub(crate) policy: String,
    pub(crate) spreads: Vec<(Quantile, Option<Spread>)>,
}

impl Report {
    /// The machine, if it was measured.
    pub(crate) const fn machine(&self) -> Option<&Machine> {
        match &self.origin {
            Origin::Measured(machine) => Some(machine),
            Origin::Simulated => None,
        }
    }

    /// What a simulation says of each policy, a sentence each; of a measurement nothing, for it
    /// has few policies and shows all of their ratios.
    pub fn verdicts(&self) -> Vec<String> {
        match self.origin {
            Origin::Measured(_) => Vec::new(),
            Origin::Simulated => verdict::verdicts(&self.policies),
        }
    }

    /// Each policy with its rounds merged.
    pub(crate) fn summaries(&self) -> Vec<Summary> {
        self.policies.iter().map(Rounds::merged).collect()
    }

    /// Every policy's ratios to the baseline; empty without one.
    pub(crate) fn ratios(&self) -> Vec<Ratios> {
        let Some(baseline) = self.policies.iter().find(|rounds| rounds.policy == BASELINE) else {
            return Vec::new();
        };
        let others = self.policies.iter().filter(|rounds| rounds.policy != BASELINE);
        others
            .map(|rounds| Ratios {
                policy: rounds.policy.clone(),
                spreads: Quantile::ALL
                    .map(|q| (q, ratio_to_baseline(&rounds.slices, &baseline.slices, q)))
                    .to_vec(),
            })
            .collect()
    }

    /// How to read ratios beside percentiles, where the two may seem to contradict each other.
    pub fn on_ratios(&self) -> Option<String> {
        let several = self.policies.iter().any(|rounds| rounds.slices.len() > 1);
        let shown = self.machine().is_some() && several && !self.ratios().is_empty();
        shown.then(|| {
            let ratios = self.ratios();
            let mut spreads = ratios.iter().flat_map(|r| r.spreads.iter().filter_map(|(_, s)| *s));
            let some = spreads.find(|spread| !spread.is_of_all()).map_or_else(
                String::new,
                |Spread { rounds, of, .. }| {
                    format!(" (and {rounds}/{of}, where {rounds} of {of} rounds have a say)")
                },
            );
            format!(
                "Ratios are taken within each round: the median (least-most){some}. Percentiles are \
                 of all rounds together, void or not."
            )
        })
    }

    /// Whether ratios of this policy compare nothing: a replica failed, or the load generator was
    /// late in every round, for the policy or for the baseline. Of the baseline: whether no ratio
    /// compares anything.
    pub(crate) fn is_void(&self, policy: &str) -> bool {
        let (sound, all) = self.sound_rounds(policy);
        let late = all > 0 && sound == 0;
        !self.failures.is_empty() || late || (policy == BASELINE && self.all_void())
    }

    /// In how many rounds the load generator was on time, for the policy and for the baseline; and
    /// how many there are.
    fn sound_rounds(&self, policy: &str) -> (usize, usize) {
        let of = |name: &str| self.policies.iter().find(|rounds| rounds.policy == name);
        let Some(rounds) = of(policy) else { return (0, 0) };
        let (ours, theirs) = (&rounds.slices, &of(BASELINE).unwrap_or(rounds).slices);
        (comparable(ours, theirs).count(), ours.len().min(theirs.len()))
    }

    /// Whether all the ratios there are compare nothing.
    pub(crate) fn all_void(&self) -> bool {
        let ratios = self.ratios();
        !ratios.is_empty() && ratios.iter().all(|ratios| self.is_void(&ratios.policy))
    }

    /// Whether calls to real replicas failed though they had time and were not refused, or got wrong
    /// bytes, or not one of a policy was answered: something is broken then, and not only slow.
    pub fn calls_broke(&self) -> bool {
        let broke = |s: &Summary| s.broken_rate().is_some_and(|share| share > 0.0) || is_dead(s);
        self.machine().is_some() && self.summaries().iter().any(broke)
    }

    /// What the ratios of a policy are headed with.
    pub(crate) fn ratio_heading(&self, ratios: &Ratios) -> String {
        let void = if self.is_void(&ratios.policy) { " VOID" } else { "" };
        format!("{} / {BASELINE}{void}", ratios.policy)
    }

    /// What takes from the figures' worth, a sentence each; empty when nothing does.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> =
            self.failures.iter().map(|failure| format!("FAILED: {failure}")).collect();
        if self.interrupted {
            warnings.push("The run was interrupted: figures are of the part before.".into());
        }
        if self.machine().is_some_and(|machine| !machine.optimized) {
            warnings.push("VOID: this is a debug build; run with --release.".into());
        }
        warnings.extend(self.summaries().iter().filter_map(|s| self.failed_calls(s)));
        warnings.extend(self.policies.iter().filter_map(|rounds| self.lateness(rounds)));
        warnings.extend(self.summaries().iter().flat_map(held_back));
        warnings.extend(self.notes.iter().cloned());
        warnings
    }

    /// How many of a policy's calls failed of what, where any failed of anything but their deadline.
    /// Those of a simulation fail as they were asked to.
    fn failed_calls(&self, summary: &Summary) -> Option<String> {
        let counters = summary.counters();
        let (errors, refused) = (counters.errors, counters.shed_calls);
        let kinds = summary.failed_by_kind().iter().map(|(kind, calls)| format!("{calls}: {kind}"));
        let dead = is_dead(summary);
        (errors + refused > 0 || dead).then(|| {
            let failed = (errors > 0 || dead) && self.machine().is_some();
            let word = if failed { "FAILED: " } else { "" };
            let what = match (dead, counters.attempts) {
                (true, 0) => "no copy of any call was sent",
                (true, _) => "not one call was answered",
                (false, _) => "calls that failed",
            };
            let kinds: Vec<String> = kinds.collect();
            format!("{word}{}: {what}: {}.", summary.policy, kinds.join("; "))
        })
    }

    /// Where the load generator was late for a policy, in a sentence.
    fn lateness(&self, rounds: &Rounds) -> Option<String> {
        let (policy, all) = (&rounds.policy, rounds.slices.len());
        let void: Vec<String> = rounds.void_rounds().iter().map(usize::to_string).collect();
        let which = match void.len() {
            _ if all == 1 => String::new(),
            0 => String::new(),
            every if every == all => " in every round".to_owned(),
            _ => format!(" in round {}", void.join(", ")),
        };
        if let Validity::Void { quantile, lag, latency } = rounds.merged().validity() {
            let (lag, latency) = (show_duration(lag), show_duration(latency));
            return Some(format!(
                "VOID: {policy}: the load generator itself was {lag} late at {}, beside a latency \
                 of {latency}{which}; use a lower --rate or a quieter machine.",
                quantile.label(),
            ));
        }
        let cure = match (self.ratios().is_empty(), self.is_void(policy)) {
            (true, _) | (_, true) => "",
            (false, false) => "; ratios are of the other rounds",
        };
        (!which.is_empty()).then(|| {
            format!("VOID{which}: {policy}: the load generator itself was late there{cure}.")
        })
    }

    /// Whether tied requests suit this workload, in a sentence; none without a tied policy.
    pub fn regime_statement(&self) -> Option<String> {
        let summaries = self.summaries();
        let tied = summaries.iter().find(|summary| summary.policy == "tied")?;
        if tied.ties_denied_rate()? > 0.5 {
            return Some(format!(
                "Whether tied requests suit this workload was not measured: {:.0} % of the calls \
                 were not tied.",
                100.0 * tied.ties_denied_rate()?
            ));
        }
        let both = tied.both_started_rate()?;
        let broken = tied.broken_rate()?;
        if self.machine().is_some() && broken > verdict::FAILURES {
            return Some(format!(
                "Whether tied requests suit this workload was not measured: {:.2} % of the calls \
                 failed before their deadline.",
                100.0 * broken
            ));
        }
        if self.is_void(&tied.policy) {
            let told =
                "Whether tied requests suit this workload was not measured: the ratios are void.";
            return Some(told.to_owned());
        }
        let (sound, all) = self.sound_rounds(&tied.policy);
        if all > 0 && 2 * sound <= all {
            return Some(format!(
                "Whether tied requests suit this workload was not measured: the load generator was \
                 late in {} of {all} rounds.",
                all - sound
            ));
        }
        if self.machine().is_some() && all < LEAST_ROUNDS {
            return Some(format!(
                "Whether tied requests suit this workload was not measured: that takes \
                 {LEAST_ROUNDS} rounds."
            ));
        }
        let rounds = self.policies.iter().find(|rounds| rounds.policy == tied.policy)?;
        if let Some(harm) = verdict::harm_of(rounds, &self.policies) {
            return Some(format!(
                "Tied requests HARM here: tied {harm}. Both copies started in {:.2} % of the calls.",
                100.0 * both
            ));
        }
        if verdict::gains_nothing(rounds, &self.policies) {
            return Some(format!(
                "Tied requests show no gain here: no percentile is shorter in each of the \
                 rounds. Both copies started in {:.2} % of the calls.",
                100.0 * both
            ));
        }
        Some(regime::statement(self.regime.as_ref(), both))
    }
}

/// A real machine is faster in one round and slower in another, by a tenth or so: fewer rounds than
/// these may all lie on one side by chance.
const LEAST_ROUNDS: usize = 3;

/// Whether all of a policy's calls failed.
fn is_dead(summary: &Summary) -> bool {
    let failed: u64 = summary.failed_by_kind().values().sum();
    failed > 0 && failed == summary.counters().calls
}

/// Says so where a policy could not do what it is there for: then it is not what was measured.
fn held_back(summary: &Summary) -> Vec<String> {
    /// Of the calls: fewer hardly move a percentile that is shown.
    const WORTH_TELLING: f64 = 0.01;
    let shares = [
        (summary.ties_denied_rate(), "were not tied"),
        (summary.hedges_denied_rate(), "were denied a hedge"),
        (summary.switched_off_rate(), "met hedging when it had switched itself off"),
    ];
    let told = shares.into_iter().filter_map(|(share, what)| {
        let share = share.filter(|share| *share > WORTH_TELLING)?;
        Some(format!("{}: {:.1} % of the calls {what}.", summary.policy, 100.0 * share))
    });
    let denied = shares[..2].iter().any(|(share, _)| share.is_some_and(|it| it > WORTH_TELLING));
    told.chain(why_denied(summary).filter(|_| denied)).collect()
}

/// What stood against the copies that were not sent, in a sentence, the commonest first.
fn why_denied(summary: &Summary) -> Option<String> {
    let mut reasons: Vec<_> = summary.denied().iter().collect();
    reasons.sort_by_key(|(_, copies)| Reverse(**copies));
    let all: u64 = summary.denied().values().sum();
    let share = |copies: u64| three_digits(100.0 * copies as f64 / all as f64);
    let each = |(why, &copies): (&Denial, &u64)| format!("{} % {}", share(copies), why.words);
    let reasons: Vec<String> = reasons.into_iter().map(each).collect();
    let told = || format!("{}: of the copies denied, {}.", summary.policy, reasons.join(", "));
    (all > 0).then(told)
}

#[cfg(test)]
mod tests {
    use bowline_client::core::Denied;
    use bowline_protocol::ErrorKind;

    use super::*;
    use crate::stats::{CallEnd, denials};

    #[test]
    fn there_is_no_verdict_on_ties_where_most_calls_were_not_tied() {
        let mut report = sample::report();
        let said = |report: &Report| report.regime_statement().expect("a tied policy");
        assert!(said(&report).starts_with("Tied requests suit"), "{}", said(&report));
        report.policies[2].slices.iter_mut().for_each(|s| s.counters.ties_denied = 12_000);
        assert!(said(&report).contains("was not measured: 100 %"), "{}", said(&report));
    }

    #[test]
    fn where_tied_calls_harm_nobody_hears_that_they_suit() {
        let mut report = sample::report();
        let tied = report.policies[0].clone();
        for slice in &mut report.policies[2].slices {
            slice.counters.deadline_misses = slice.counters.calls / 10;
        }
        let said = report.regime_statement().expect("a tied policy");
        assert!(said.contains("HARM here: tied fails 10.00 %"), "{said}");
        report.policies[2].slices = tied.slices;
        let said = report.regime_statement().expect("a tied policy");
        assert!(said.starts_with("Tied requests show no gain here"), "{said}");
    }

    #[test]
    fn where_every_round_of_the_baseline_is_void_so_are_all_ratios() {
        let ms = core::time::Duration::from_millis;
        let mut report = sample::report();
        let mut late = crate::stats::Slice::new(ms(50));
        (0..1000).for_each(|_| late.record(ms(0), ms(5), ms(10), CallEnd::Ok));
        report.policies[0].slices[0] = late.clone();
        assert!(!report.is_void("tied"));
        report.policies[0].slices = vec![late.clone(), late];
        assert!(report.is_void("tied") && report.is_void("hedged"));
        assert!(report.ratio_heading(&report.ratios()[1]).ends_with("VOID"));
        let said = report.regime_statement().expect("a tied policy");
        assert!(said.contains("was not measured"), "{said}");
    }

    #[test]
    fn calls_that_failed_are_told_by_what_they_failed_of() {
        let ms = core::time::Duration::from_millis;
        let mut report = sample::report();
        let fail = |report: &mut Report, kinds: &[ErrorKind]| {
            let slice = &mut report.policies[2].slices[0];
            for &kind in kinds {
                slice.record(ms(0), ms(0), ms(1), CallEnd::Failed(kind));
            }
        };
        fail(&mut report, &[ErrorKind::DeadlineExceeded]);
        assert_eq!(report.warnings(), [""; 0], "there is a row for that");
        fail(&mut report, &[ErrorKind::Overloaded]);
        let told =
            "tied: calls that failed: 1: the deadline passed; 1: the replicas are overloaded.";
        assert_eq!(report.warnings(), [told]);
        assert!(!report.calls_broke(), "they were refused");
        fail(&mut report, &[ErrorKind::NoReplica; 2]);
        assert!(report.warnings()[0].starts_with("FAILED: tied: calls that failed: 1: the dead"));
        assert!(report.warnings()[0].contains("2: no replica is connected"));
        assert!(report.calls_broke());
        assert!(report.regime_statement().expect("tied").starts_with("Tied requests suit"));
        fail(&mut report, &[ErrorKind::NoReplica; 100]);
        let said = report.regime_statement().expect("a tied policy");
        assert!(said.contains("was not measured: 0.28 % of the calls failed"), "{said}");
        let simulated = Report { origin: Origin::Simulated, ..report };
        assert!(!simulated.calls_broke(), "as asked for");
        assert!(simulated.warnings()[0].starts_with("tied: calls"), "{:?}", simulated.warnings());
    }

    #[test]
    fn what_broke_for_another_policy_or_was_refused_leaves_tied_calls_their_verdict() {
        let ms = core::time::Duration::from_millis;
        let mut report = sample::report();
        let mut fail = |policy: usize, kind, calls| {
            let slice = &mut report.policies[policy].slices[0];
            (0..calls).for_each(|_| slice.record(ms(0), ms(0), ms(1), CallEnd::Failed(kind)));
        };
        fail(0, ErrorKind::ConnectionLost, 1);
        fail(2, ErrorKind::Shed, 100);
        let said = report.regime_statement().expect("a tied policy");
        assert!(said.contains("HARM here: tied fails 0.28 %"), "{said}");
    }

    #[test]
    fn there_is_no_verdict_from_the_lesser_part_of_the_rounds() {
        let mut report = sample::report();
        sample::make_rounds_late(&mut report, "tied", 1);
        let said = report.regime_statement().expect("a tied policy");
        assert!(said.starts_with("Tied requests suit"), "{said}");
        sample::make_rounds_late(&mut report, "tied", 2);
        let said = report.regime_statement().expect("a tied policy");
        assert!(said.contains("not measured") && said.contains("late in 2 of 3"), "{said}");
        let told = verdict::verdicts(&report.policies);
        assert!(told[1].starts_with("tied: shortens no percentile"), "{}", told[1]);
        assert!(told[0].starts_with("hedged: shortens"), "{}", told[0]);
    }

    #[test]
    fn there_is_no_verdict_from_two_rounds_of_a_real_machine() {
        let mut report = sample::report();
        report.policies.iter_mut().for_each(|rounds| rounds.slices.truncate(2));
        let said = report.regime_statement().expect("a tied policy");
        assert!(said.ends_with("not measured: that takes 3 rounds."), "{said}");
        let simulated = Report { origin: Origin::Simulated, ..report };
        let said = simulated.regime_statement().expect("a tied policy");
        assert!(said.starts_with("Tied requests suit"), "{said}");
    }

    #[test]
    fn where_no_call_is_answered_something_is_broken_though_all_ran_out_of_time() {
        let ms = core::time::Duration::from_millis;
        let mut report = sample::report();
        report.policies.truncate(1);
        let mut slice = crate::stats::Slice::new(ms(50));
        (0..10).for_each(|_| {
            slice.record(ms(0), ms(0), ms(50), CallEnd::Failed(ErrorKind::DeadlineExceeded));
        });
        report.policies[0].slices = vec![slice];
        assert!(report.calls_broke());
        assert!(
            report.warnings()[0].starts_with("FAILED: none: no copy"),
            "{:?}",
            report.warnings()
        );
        report.policies[0].slices[0].counters.attempts = 10;
        let told = "FAILED: none: not one call was answered: 10: the deadline passed.";
        assert_eq!(report.warnings()[0], told);
    }

    #[test]
    fn rounds_and_ratios_are_told_of_only_where_there_are_any() {
        let ms = core::time::Duration::from_millis;
        let mut late = crate::stats::Slice::new(ms(50));
        for _ in 0..1000 {
            late.record(ms(0), ms(5), ms(10), CallEnd::Ok);
        }
        let mut report = sample::report();
        report.policies.truncate(1);
        let told = |report: &Report| report.warnings().join("\n");
        report.policies[0].slices = vec![late.clone()];
        assert!(told(&report).contains("late at p50"), "{}", told(&report));
        assert!(!told(&report).contains("round"), "{}", told(&report));
        report.policies[0].slices = vec![late.clone(), late];
        assert!(told(&report).contains("in every round"), "{}", told(&report));
        assert_eq!(told(&report).matches("VOID: ").count(), 1, "told once: {}", told(&report));
        assert!(!told(&report).contains("ratios"), "{}", told(&report));
    }

    #[test]
    fn a_policy_that_was_held_back_is_told_above_one_percent() {
        let mut report = sample::report();
        // Each of the policies has 36 000 calls.
        report.policies[1].slices[0].counters.hedges_switched_off = 720;
        report.policies[2].slices[0].counters.ties_denied = 360;
        let told = "hedged: 2.0 % of the calls met hedging when it had switched itself off.";
        assert_eq!(report.warnings(), [told]);
        report.policies[2].slices[0].counters.ties_denied = 361;
        assert!(report.warnings()[1].starts_with("tied: 1.0 % of the calls were not tied"));
    }

    #[test]
    fn what_stood_against_second_copies_is_told_the_commonest_first() {
        let mut report = sample::report();
        let slices = &mut report.policies[1].slices;
        let none = Denied::default();
        slices[0].denied = denials(&Denied { no_candidate: 10, no_token: 300, ..none }).collect();
        slices[1].denied = denials(&Denied { no_token: 90, ..none }).collect();
        assert!(report.warnings().is_empty(), "so few are not worth telling");
        report.policies[1].slices[0].counters.hedges_denied = 400;
        let told = [
            "hedged: 1.1 % of the calls were denied a hedge.",
            "hedged: of the copies denied, 97.5 % found the budget spent, 2.50 % found no other \
             replica.",
        ];
        assert_eq!(report.warnings(), told);
    }
}

#[cfg(test)]
pub(crate) mod sample;
