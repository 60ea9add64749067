//! What becomes of each kind of policies as the load grows: the best of each kind beside the
//! others, where one beats the other, and what harms.

use core::fmt::Write;
use core::time::Duration;

use super::BASELINE;
use super::chart::{self, Scale, class};
use super::table::lay_out;
use super::verdict::{Side, best_at, harm_of, is_of_kind, list, side};
use crate::stats::{Quantile, Rounds, ratio_to_baseline};
use crate::text::wrapped;
use crate::units::show_duration;

/// The kinds, in the order of their columns.
const KINDS: [&str; 4] = [BASELINE, "hedged", "tied", "tied-hedged"];
const STRING: &str = "writing to a string cannot fail";

/// What came of one load.
#[derive(Clone, Debug)]
pub struct Point {
    /// The load as it was asked for.
    pub name: String,
    /// The share of time for which slots are busy if every call runs once.
    pub at: f64,
    /// What each policy made of it.
    pub policies: Vec<Rounds>,
}

/// A table of the furthest percentile that all loads have samples for, and a sentence for each
/// load, ending with a line break.
pub fn overview(points: &[Point]) -> String {
    let (quantile, kinds) = (furthest(points), kinds(points));
    let mut header = vec![format!("{} at", quantile.label())];
    header.extend(kinds.iter().map(|kind| (*kind).to_owned()));
    let extra = kinds.iter().filter(|kind| **kind != BASELINE);
    header.extend(extra.map(|kind| format!("{kind}'s extra")));
    let mut lines = vec![header];
    for point in points {
        let best: Vec<_> = kinds.iter().map(|kind| best_of(point, kind, quantile)).collect();
        let mut line = vec![point.name.clone()];
        line.extend(
            best.iter()
                .map(|best| best.map_or_else(|| "-".to_owned(), |(time, _)| show_duration(time))),
        );
        let extra = kinds.iter().zip(&best).filter(|(kind, _)| **kind != BASELINE);
        line.extend(extra.map(|(_, best)| extra_of(best.map(|(_, rounds)| rounds))));
        lines.push(line);
    }
    let mut text = lay_out(&lines) + "\n";
    for point in points {
        text += &wrapped(&format!("{}: {}.", point.name, sentence(point)), "");
    }
    text
}

/// Executions beyond one for each call, in percent.
fn extra_of(rounds: Option<&Rounds>) -> String {
    let executions = rounds.and_then(|rounds| rounds.merged().executions_per_call());
    executions.map_or_else(|| "-".into(), |all| format!("{:.2} %", 100.0 * (all - 1.0)))
}

/// Where the best of two kinds differ at this load, and what harms.
fn sentence(point: &Point) -> String {
    let (mut tied, mut hedged) = (Vec::new(), Vec::new());
    let mut compared = false;
    for quantile in Quantile::ALL {
        let best = |kind| best_of(point, kind, quantile).map(|(_, rounds)| rounds);
        let (Some(one), Some(other)) = (best("tied"), best("hedged")) else { continue };
        compared = true;
        match ratio_to_baseline(&one.slices, &other.slices, quantile).as_ref().map(side) {
            Some(Side::Shorter) => tied.push(quantile.label().to_owned()),
            Some(Side::Longer) => hedged.push(quantile.label().to_owned()),
            Some(Side::Same) | None => {}
        }
    }
    let mut told = Vec::new();
    if !tied.is_empty() {
        told.push(format!("tied beats hedged at {}", list(&tied)));
    }
    if !hedged.is_empty() {
        told.push(format!("hedged beats tied at {}", list(&hedged)));
    }
    if told.is_empty() && compared {
        told.push("the best tied and hedged ones are alike".to_owned());
    }
    let harm = point.policies.iter().filter_map(|rounds| {
        harm_of(rounds, &point.policies).map(|harm| format!("{} HARMS: it {harm}", rounds.policy))
    });
    let harm: Vec<String> = harm.collect();
    let baseline = point.policies.iter().any(|rounds| rounds.policy == BASELINE);
    told.push(match (baseline, harm.as_slice()) {
        (false, _) => format!("without {BASELINE} nobody can tell what harms"),
        (true, []) => "nothing harms".to_owned(),
        (true, harm) => harm.join("; "),
    });
    told.join("; ")
}

/// The furthest percentile with samples enough everywhere; the median if there is none.
fn furthest(points: &[Point]) -> Quantile {
    let all = || points.iter().flat_map(|point| &point.policies);
    let known =
        |quantile: &Quantile| all().all(|r| r.merged().latency().quantile(*quantile).is_some());
    Quantile::ALL.into_iter().rev().find(known).unwrap_or(Quantile::P50)
}

/// The kinds that were tried.
fn kinds(points: &[Point]) -> Vec<&'static str> {
    let tried = |kind: &&str| {
        points.iter().flat_map(|point| &point.policies).any(|r| is_of_kind(&r.policy, kind))
    };
    KINDS.into_iter().filter(tried).collect()
}

/// Of the policies of a kind the one with the shortest percentile.
fn best_of<'a>(point: &'a Point, kind: &str, quantile: Quantile) -> Option<(Duration, &'a Rounds)> {
    let kin: Vec<&Rounds> =
        point.policies.iter().filter(|rounds| is_of_kind(&rounds.policy, kind)).collect();
    best_at(&kin, quantile)
}

/// The table's percentile over the load, a curve for each kind, as a file of its own; None where no
/// call was measured.
pub(super) fn picture(points: &[Point]) -> Option<String> {
    let quantile = furthest(points);
    let curves: Vec<(&str, Vec<(f64, Duration)>)> = kinds(points)
        .into_iter()
        .map(|kind| {
            let times = points.iter().filter_map(|point| {
                best_of(point, kind, quantile).map(|(time, _)| (point.at, time))
            });
            (kind, times.collect())
        })
        .filter(|(_, times): &(_, Vec<_>)| !times.is_empty())
        .collect();
    let loads = || points.iter().map(|point| point.at);
    let (least, most) = (loads().fold(f64::INFINITY, f64::min), loads().fold(0.0, f64::max));
    let scale = Scale::between(curves.iter().flat_map(|(_, times)| times.iter().map(|t| t.1)))?;
    let x = |load: f64| chart::across((load - least) / (most - least).max(1e-9));
    let mut body = String::new();
    chart::heights(&mut body, &scale);
    for point in points {
        chart::upright(&mut body, x(point.at), &point.name);
    }
    let name = format!("load; {} of the best policy of each kind", quantile.label());
    chart::base(&mut body, &name);
    let mut labels = Vec::new();
    for (kind, times) in &curves {
        write!(body, "<g class=\"{}\"><polyline class=\"curve\" points=\"", class(kind))
            .expect(STRING);
        for (load, time) in times {
            write!(body, "{:.1},{:.1} ", x(*load), scale.y(*time)).expect(STRING);
        }
        body.push_str("\"/>");
        for (load, time) in times {
            let (at, y, shown) = (x(*load), scale.y(*time), show_duration(*time));
            let title = format!("<title>{kind}: {shown}</title>");
            write!(body, "<circle cx=\"{at:.1}\" cy=\"{y:.1}\" r=\"4\">{title}</circle>")
                .expect(STRING);
        }
        body.push_str("</g>");
        let end = times.last().map_or(0.0, |(_, time)| scale.y(*time));
        labels.push((end, *kind, String::new()));
    }
    chart::end_labels(&mut body, labels);
    Some(chart::file(&format!("{name}, a curve for each kind"), &body))
}

#[cfg(test)]
mod tests {
    use bowline_protocol::ErrorKind;

    use super::*;
    use crate::report::sample;
    use crate::stats::{CallEnd, Slice};

    fn rounds(policy: &str, took_ms: u64, failed: u64) -> Rounds {
        let mut slice = Slice::new(Duration::from_millis(100));
        for call in 0..1000 {
            let end = if call < failed { CallEnd::Failed(ErrorKind::Shed) } else { CallEnd::Ok };
            slice.record(Duration::ZERO, Duration::ZERO, Duration::from_millis(took_ms), end);
        }
        slice.counters.executions = 1100;
        Rounds { policy: policy.into(), slices: vec![slice.clone(), slice] }
    }

    fn points() -> Vec<Point> {
        let calm = vec![rounds("none", 9, 0), rounds("hedged-p90", 7, 0), rounds("tied", 5, 0)];
        let busy = vec![rounds("none", 20, 0), rounds("hedged-p90", 15, 0), rounds("tied", 30, 50)];
        vec![
            Point { name: "30 %".into(), at: 0.3, policies: calm },
            Point { name: "90 %".into(), at: 0.9, policies: busy },
        ]
    }

    #[test]
    fn each_load_hears_who_beats_whom_and_what_harms() {
        let text = overview(&points());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("p90 at none hedged tied"), "{text}");
        assert!(words.contains("30 %: tied beats hedged at p50 and p90; nothing harms."), "{text}");
        assert!(words.contains("90 %: hedged beats tied at p50 and p90; tied HARMS: it"), "{text}");
        assert!(words.contains("fails 5.00 % of the calls instead of 0.00 %"), "{text}");
        assert!(words.contains("10.00 %"), "{text}");
    }

    #[test]
    fn the_picture_has_a_curve_for_each_kind_and_needs_nothing_else() {
        let svg = picture(&points()).expect("a picture");
        for kind in ["none", "hedged", "tied"] {
            assert!(svg.contains(&format!("<g class=\"{kind}\">")), "{svg}");
        }
        assert!(svg.contains(">30 %<") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        let one = Point { name: "1 /s".into(), at: 0.0, policies: sample::simulation().policies };
        assert!(!picture(&[one]).expect("a picture").contains("NaN"));
        assert_eq!(picture(&[]), None);
    }
}
