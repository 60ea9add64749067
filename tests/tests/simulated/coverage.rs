//! What the worlds of many seeds had between them: a world without a mesh, without faults or without
//! second copies keeps every rule about them.

use std::collections::BTreeMap;

use bowline_client::core::{Counters, PickRule};
use bowline_server::core::Stats;
use bowline_tests::kernel::span::Span;
use bowline_tests::world::{Held, Report, Scenario, What};

/// Counters of a server that no world need move, and why.
const SELDOM: &[(&str, &str)] = &[
    ("overloads", "few worlds last until a queue has been too long for an interval"),
    ("shed_oldest", "there is hardly any overload"),
    ("dark_too_late", "the world's servers shed"),
    ("dark_wait", "they shed"),
    ("dark_shed", "they shed"),
    ("shed_too_late", "the world's methods can use the last moment, too"),
    ("keys_expired", "results are kept for longer than a world lasts"),
    ("cancels_on_the_way", "it is the shell on the ring that tells of these"),
    ("aborted_by_server", "the world's handlers end, or are asked to"),
    ("rejected_queue_bytes", "what waits is bounded by its number first"),
    ("rejected_no_method", "clients ask for nothing else"),
    ("rejected_not_idempotent", "clients tie and hedge nothing else"),
    ("rejected_own_twin", "clients tie two replicas"),
    ("rejected_duplicate", "clients name each copy once"),
];

/// How often everything was seen, by its name.
#[derive(Default)]
pub(crate) struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    /// Adds a world.
    pub(crate) fn add(&mut self, scenario: &Scenario, report: &Report) {
        for stats in &report.servers {
            Stats::NAMES.into_iter().zip(stats.values()).for_each(|seen| self.see(seen));
        }
        for counters in &report.clients {
            of_client(counters).into_iter().for_each(|seen| self.see(seen));
        }
        of_world(scenario).into_iter().for_each(|(name, is)| self.see((name, u64::from(is))));
        self.see(("calls won by the second copy", report.second_wins));
        self.see(("last calls", report.probes));
        of_held(&report.held).into_iter().for_each(|seen| self.see(seen));
    }

    fn see(&mut self, (name, times): (&'static str, u64)) {
        *self.0.entry(name).or_default() += times;
    }

    /// # Panics
    ///
    /// If there is something that no world had.
    pub(crate) fn is_whole(&self) {
        // What a server holds is nothing at the end.
        let held = ["queued", "running", "parked", "held"];
        let may_lack = |name: &str| held.contains(&name) || SELDOM.iter().any(|it| it.0 == name);
        let lacking: Vec<_> =
            self.0.iter().filter(|&(name, times)| *times == 0 && !may_lack(name)).collect();
        assert!(lacking.is_empty(), "no world had {lacking:?}, of {:#?}", self.0);
    }
}

fn of_client(counters: &Counters) -> Vec<(&'static str, u64)> {
    let (denied, off) = (&counters.denied, &counters.switched_off);
    vec![
        ("calls that failed", counters.failed),
        ("calls given up by their callers", counters.cancelled),
        ("calls that missed their deadline", counters.deadline_missed),
        ("calls refused", counters.refused),
        ("calls that waited for a replica", counters.stranded),
        ("calls that waited for room", counters.waited_for_room),
        ("tied calls", counters.tied),
        ("ties that were void", counters.untied),
        ("starts relayed", counters.relayed),
        ("double starts seen by clients", counters.both_started),
        ("hedges", counters.hedges),
        ("hedges that won", counters.hedge_wins),
        ("copies sent again", counters.redispatches),
        ("copies without a token", counters.uncharged),
        ("copies lost", counters.lost),
        ("copies not watched to their end", counters.unwatched),
        ("replicas ejected", counters.ejected),
        ("replicas readmitted", counters.readmitted),
        ("retries", counters.retries),
        ("results that were too old", counters.stale),
        ("stray frames", counters.stray),
        ("copies denied for want of a token", denied.no_token),
        ("copies denied by the cap", denied.outstanding),
        ("copies denied for want of a replica", denied.no_candidate),
        ("copies denied for want of time", denied.too_late),
        ("copies denied to what must not run twice", denied.not_idempotent),
        ("copies denied as results are not shared", denied.not_shared),
        ("copies denied by a switch", denied.switched_off),
        ("switches of hedging", off.pushback + off.errors + off.queued + off.no_wins + off.excess),
        ("switches back", counters.switched_on),
    ]
}

fn of_held(held: &Held) -> [(&'static str, u64); 5] {
    [
        ("copies withdrawn by their twins while they were held back", held.by_twin),
        ("copies withdrawn by their callers while they were held back", held.by_caller),
        ("copies shed while they were held back", held.expired),
        ("copies that were held back as their clients went", held.closed),
        ("copies that were held back as their servers were told to leave", held.drained),
    ]
}

fn of_world(scenario: &Scenario) -> Vec<(&'static str, bool)> {
    let any_fault = |such: fn(&What) -> bool| scenario.faults.iter().any(|fault| such(&fault.what));
    vec![
        ("a mesh", scenario.mesh),
        ("no mesh", !scenario.mesh),
        ("several cores", scenario.cores > 1),
        ("a client's credit", scenario.wires.credit.is_some()),
        ("room for replies", scenario.room.is_some()),
        ("traffic classes", scenario.shares.len() > 1),
        ("keys", scenario.classes.iter().any(|class| class.key.is_some())),
        ("lags", scenario.lags.is_some()),
        ("retries", scenario.retry.is_some()),
        ("clocks that differ", scenario.ppm > 0),
        ("a budget refilled by time", scenario.budget.per_second > 0.0),
        ("a budget refilled by success", scenario.budget.fraction > 0.0),
        ("a budget that clients share", scenario.one_budget && scenario.clients > 1),
        ("a joint trace", scenario.service.trace.is_some()),
        ("measured times", matches!(scenario.service.span, Span::Empirical(_))),
        ("C3", matches!(scenario.pick, PickRule::C3 { .. })),
        ("hot and cold", scenario.pick == PickRule::HotCold),
        ("a kill", any_fault(|what| matches!(what, What::Kill(_)))),
        ("a loss of power", any_fault(|what| matches!(what, What::Vanish(_)))),
        ("a freeze", any_fault(|what| matches!(what, What::Freeze(_)))),
        ("a cut", any_fault(|what| matches!(what, What::Cut(..)))),
        ("a block", any_fault(|what| matches!(what, What::Block(..)))),
        ("a partition", any_fault(|what| matches!(what, What::Part(..)))),
        ("a slow server", any_fault(|what| matches!(what, What::Slow(..)))),
        ("a slow network", any_fault(|what| matches!(what, What::SlowNet(..)))),
        ("forged cancels", any_fault(|what| matches!(what, What::Forge(_)))),
        ("an orderly leave", any_fault(|what| matches!(what, What::Leave(_)))),
        ("a slow reader", any_fault(|what| matches!(what, What::Sip(_)))),
        ("a burst", any_fault(|what| matches!(what, What::Burst(..)))),
        ("a replica that falls behind", any_fault(|what| matches!(what, What::FallBehind(..)))),
    ]
}
