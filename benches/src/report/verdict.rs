//! What a sweep says of each policy in a sentence: what it shortens and what it costs, whether tied
//! or hedged calls do better and where, and where it harms.

use core::time::Duration;

use super::BASELINE;
use crate::stats::{Quantile, Rounds, Spread, Summary, ratio_to_baseline};

/// A ratio within this of one is none: nobody would notice.
const NOTICEABLE: f64 = 0.02;
/// More calls than this, as a share of all, that miss their deadline or fail are harm.
pub(super) const FAILURES: f64 = 0.001;

/// A sentence for each policy but the baseline.
pub(super) fn verdicts(policies: &[Rounds]) -> Vec<String> {
    let Some(baseline) = policies.iter().find(|rounds| rounds.policy == BASELINE) else {
        return Vec::new();
    };
    let others = policies.iter().filter(|rounds| rounds.policy != BASELINE);
    others.map(|rounds| verdict(rounds, baseline, policies)).collect()
}

fn verdict(rounds: &Rounds, baseline: &Rounds, all: &[Rounds]) -> String {
    let (summary, plain) = (rounds.merged(), baseline.merged());
    let (mut shorter, mut longer) = (Vec::new(), Vec::new());
    for quantile in Quantile::ALL {
        let Some(spread) = ratio_to_baseline(&rounds.slices, &baseline.slices, quantile) else {
            continue;
        };
        let told = format!("{} to {:.2}", quantile.label(), spread.median);
        match side(&spread) {
            Side::Shorter => shorter.push(told),
            Side::Longer => longer.push(told),
            Side::Same => {}
        }
    }
    let effect = if shorter.is_empty() {
        "shortens no percentile".to_owned()
    } else {
        format!("shortens {} of {BASELINE}", list(&shorter))
    };
    let price = summary.executions_per_call().unwrap_or(0.0);
    let mut sentence = format!("{}: {effect} for {price:.3} executions a call", rounds.policy);
    sentence.extend(against_rivals(rounds, all));
    let harm = harm(&summary, &plain, &longer);
    sentence.extend(harm.map(|harm| format!("; HARMS: it {harm}")));
    sentence + "."
}

/// What a policy harms, as a part of a sentence; None if nothing, or if there is no baseline.
pub(super) fn harm_of(rounds: &Rounds, all: &[Rounds]) -> Option<String> {
    let baseline = all.iter().find(|other| other.policy == BASELINE)?;
    let longer = Quantile::ALL.into_iter().filter_map(|quantile| {
        let spread = ratio_to_baseline(&rounds.slices, &baseline.slices, quantile)?;
        let told = format!("{} to {:.2}", quantile.label(), spread.median);
        matches!(side(&spread), Side::Longer).then_some(told)
    });
    harm(&rounds.merged(), &baseline.merged(), &longer.collect::<Vec<_>>())
}

/// Whether a policy has ratios to the baseline of which none is below one.
pub(super) fn gains_nothing(rounds: &Rounds, all: &[Rounds]) -> bool {
    let Some(baseline) = all.iter().find(|other| other.policy == BASELINE) else { return false };
    let ratio = |quantile| ratio_to_baseline(&rounds.slices, &baseline.slices, quantile);
    let spreads: Vec<Spread> = Quantile::ALL.into_iter().filter_map(ratio).collect();
    let shorter = |spread| matches!(side(spread), Side::Shorter);
    !spreads.is_empty() && !spreads.iter().any(shorter)
}

/// What is longer than without it, and what fails more often.
fn harm(summary: &Summary, plain: &Summary, longer: &[String]) -> Option<String> {
    let mut harms = Vec::new();
    if !longer.is_empty() {
        harms.push(format!("lengthens {} of {BASELINE}", list(longer)));
    }
    let failed =
        |s: &Summary| s.deadline_miss_rate().unwrap_or(0.0) + s.error_rate().unwrap_or(0.0);
    let (ours, theirs) = (failed(summary), failed(plain));
    if ours > theirs + FAILURES {
        let (ours, theirs) = (100.0 * ours, 100.0 * theirs);
        harms.push(format!("fails {ours:.2} % of the calls instead of {theirs:.2} %"));
    }
    (!harms.is_empty()).then(|| harms.join(" and "))
}

/// Where it beats the best of the other kind, and where that beats it.
fn against_rivals(rounds: &Rounds, all: &[Rounds]) -> Option<String> {
    let (own, rival) = match rounds.policy.as_str() {
        name if name.starts_with("tied-hedged") => return None,
        name if name.starts_with("tied") => ("tied", "hedged"),
        name if name.starts_with("hedged") => ("hedged", "tied"),
        _ => return None,
    };
    let rivals: Vec<&Rounds> =
        all.iter().filter(|other| is_of_kind(&other.policy, rival)).collect();
    let (mut wins, mut losses) = (Vec::new(), Vec::new());
    for quantile in Quantile::ALL {
        let Some((_, best)) = best_at(&rivals, quantile) else { continue };
        let spread = ratio_to_baseline(&rounds.slices, &best.slices, quantile);
        match spread.as_ref().map(side) {
            Some(Side::Shorter) => wins.push(quantile.label().to_owned()),
            Some(Side::Longer) => {
                losses.push(format!("{} ({})", quantile.label(), best.policy));
            }
            Some(Side::Same) | None => {}
        }
    }
    if rivals.is_empty() {
        return None;
    }
    let wins = (!wins.is_empty()).then(|| format!("beats every {rival} one at {}", list(&wins)));
    let losses = (!losses.is_empty()).then(|| format!("is beaten by one at {}", list(&losses)));
    let told: Vec<String> = wins.into_iter().chain(losses).collect();
    Some(match told.as_slice() {
        [] => format!("; {own} and {rival} ones are alike here"),
        told => format!("; {}", told.join(" and ")),
    })
}

/// Whether a policy is of this kind, with whatever settings.
pub(super) fn is_of_kind(policy: &str, kind: &str) -> bool {
    let both = "tied-hedged";
    policy.starts_with(kind) && (kind == both || !policy.starts_with(both))
}

/// Of these the one with the shortest percentile, and how long that is.
pub(super) fn best_at<'a>(
    rivals: &[&'a Rounds],
    quantile: Quantile,
) -> Option<(Duration, &'a Rounds)> {
    let timed = rivals
        .iter()
        .filter_map(|rival| Some((rival.merged().latency().quantile(quantile)?, *rival)));
    timed.min_by_key(|(time, _)| *time)
}

/// Where a ratio lies in every round that has a say, if most have.
pub(super) enum Side {
    Shorter,
    Same,
    Longer,
}

pub(super) fn side(spread: &Spread) -> Side {
    if !spread.is_of_most() {
        Side::Same
    } else if spread.max < 1.0 - NOTICEABLE {
        Side::Shorter
    } else if spread.min > 1.0 + NOTICEABLE {
        Side::Longer
    } else {
        Side::Same
    }
}

/// `a, b and c`.
pub(super) fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use bowline_protocol::ErrorKind;

    use super::*;
    use crate::report::sample;
    use crate::stats::{CallEnd, Slice};

    #[test]
    fn each_policy_hears_what_it_gains_and_costs_and_who_beats_it() {
        let verdicts = verdicts(&sample::simulation().policies);
        assert_eq!(verdicts.len(), 2);
        let (hedged, tied) = (&verdicts[0], &verdicts[1]);
        assert!(
            hedged.starts_with("hedged: shortens ") && hedged.contains("p99 to 0.36"),
            "{hedged}"
        );
        assert!(hedged.contains("p99 (tied)"), "{hedged}");
        assert!(tied.contains("beats every hedged one at p90 and p99"), "{tied}");
        assert!(tied.contains("1.008 executions a call"), "{tied}");
        assert!(!tied.contains("HARMS"), "{tied}");
    }

    fn rounds(policy: &str, took_ms: u64, failed: u64) -> Rounds {
        let mut slice = Slice::new(Duration::from_millis(100));
        for call in 0..1000 {
            let end = if call < failed { CallEnd::Failed(ErrorKind::Shed) } else { CallEnd::Ok };
            let took = Duration::from_millis(took_ms);
            slice.record(Duration::ZERO, Duration::ZERO, took, end);
        }
        Rounds { policy: policy.into(), slices: vec![slice.clone(), slice] }
    }

    #[test]
    fn harm_is_called_harm() {
        let policies = [rounds("none", 5, 0), rounds("hedged-p90", 6, 0), rounds("tied", 5, 20)];
        let verdicts = verdicts(&policies);
        assert!(verdicts[0].contains("HARMS: it lengthens p50 to 1.20"), "{}", verdicts[0]);
        assert!(
            verdicts[1].contains("fails 2.00 % of the calls instead of 0.00 %"),
            "{}",
            verdicts[1]
        );
        let alike = super::verdicts(&[rounds("none", 5, 0), rounds("tied", 5, 0)]);
        assert_eq!(alike, ["tied: shortens no percentile for 0.000 executions a call."]);
        assert_eq!(super::verdicts(&policies[1..]), [""; 0], "nothing to compare with");
    }
}
