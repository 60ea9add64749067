//! What goes wrong in a simulation: to which replica and when a plan says, and what is drawn.

use core::time::Duration;

use bowline_tests::kernel::span::Nanos;
use bowline_tests::world::{Fault, What};

use crate::cli::FaultKind;
use crate::faults::Plan;
use crate::random::Random;

/// The plan's stalls in the world's time, in which the plan begins at `begin`. What befalls
/// replicas at one time is the same for all of them.
pub(super) fn faults(plan: &Plan, kinds: &[FaultKind], seed: u64, begin: Nanos) -> Vec<Fault> {
    let mut random = Random::new(seed, "kinds of faults");
    let mut drawn: Option<(Duration, FaultKind)> = None;
    let mut fault = |stall: &crate::faults::Stall| {
        let kind = match drawn {
            Some((at, kind)) if at == stall.at => kind,
            _ => kinds[random.below(kinds.len() as u64) as usize],
        };
        drawn = Some((stall.at, kind));
        Fault {
            at: begin + stall.at.as_nanos() as Nanos,
            lasts: stall.length.as_nanos() as Nanos,
            what: what(kind, stall.replica),
        }
    };
    plan.stalls().iter().map(&mut fault).collect()
}

fn what(kind: FaultKind, replica: usize) -> What {
    let percent = |times: f64| (100.0 * times) as u64;
    match kind {
        FaultKind::Stall => What::Freeze(replica),
        FaultKind::Crash => What::Kill(replica),
        FaultKind::Slow(times) => What::Slow(replica, percent(times)),
        FaultKind::Network(times) => What::SlowNet(replica, percent(times)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{Pattern, StallModel};

    fn drawn(pattern: Pattern, kinds: &[FaultKind]) -> Vec<Fault> {
        let (length, gap) = (Duration::from_millis(60), Duration::from_millis(600));
        let plan = Plan::draw(1, &StallModel { pattern, length, gap }, 3, Duration::from_secs(60));
        faults(&plan, kinds, 1, 1000)
    }

    #[test]
    fn of_several_kinds_each_is_drawn_now_and_then() {
        let kinds = [FaultKind::Crash, FaultKind::Slow(5.0), FaultKind::Network(20.0)];
        let all = drawn(Pattern::Independent, &kinds);
        let share = |is: fn(What) -> bool| {
            all.iter().filter(|fault| is(fault.what)).count() as f64 / all.len() as f64
        };
        for is in [
            (|what| matches!(what, What::Kill(_))) as fn(What) -> bool,
            |what| matches!(what, What::Slow(_, 500)),
            |what| matches!(what, What::SlowNet(_, 2000)),
        ] {
            assert!((0.2..0.5).contains(&share(is)), "{}", share(is));
        }
    }

    #[test]
    fn what_befalls_all_replicas_at_once_is_the_same_for_all() {
        let all = drawn(Pattern::All, &[FaultKind::Stall, FaultKind::Crash]);
        for three in all.chunks(3) {
            let crash = |fault: &Fault| matches!(fault.what, What::Kill(_));
            assert!(three.iter().all(|fault| crash(fault) == crash(&three[0])), "{three:?}");
        }
    }
}
