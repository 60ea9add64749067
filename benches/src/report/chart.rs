//! Latency by percentile, as HdrHistogram plots it: the axis of percentiles is logarithmic in the
//! share *beyond*, so that each further nine takes the same room.

use core::fmt::Write;
use core::time::Duration;

use super::html::escape;
use crate::stats::{Latencies, Quantile, Summary};
use crate::units::show_duration;

/// Size of the picture and of its margins, in its own units.
const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 430.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 100.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 52.0;
/// Points of a curve for each nine.
const POINTS_PER_NINE: usize = 60;

/// The curves of all policies as one SVG element.
pub(super) fn chart(summaries: &[Summary]) -> String {
    let measured: Vec<&Summary> = summaries.iter().filter(|s| !s.latency().is_empty()).collect();
    if measured.is_empty() {
        return "<p>No call was measured.</p>".into();
    }
    let scale = Scale::of(&measured);
    let mut svg = format!(
        "<svg class=\"chart\" id=\"curves\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Latency by percentile, a curve for each policy\" \
         data-left=\"{LEFT}\" data-right=\"{}\" data-nines=\"{}\">",
        WIDTH - RIGHT,
        scale.nines
    );
    axes(&mut svg, &scale);
    let mut labels = Vec::new();
    for summary in &measured {
        let tint = tint(&summary.policy, &measured);
        let end = curve(&mut svg, &scale, summary, &tint);
        labels.push((end, summary.policy.as_str(), tint));
    }
    end_labels(&mut svg, labels);
    write!(
        svg,
        "<line class=\"cursor\" id=\"cursor\" x1=\"0\" x2=\"0\" y1=\"{TOP}\" y2=\"{}\"/></svg>",
        HEIGHT - BOTTOM
    )
    .expect(STRING);
    svg
}

/// How the file of a picture begins.
pub(super) const PICTURE: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\"";

/// The curves as a file of its own; None if no call was measured.
pub(super) fn picture(summaries: &[Summary]) -> Option<String> {
    let svg = chart(summaries);
    let inner = svg.strip_prefix("<svg class=\"chart\"")?;
    let (attributes, body) = inner.split_once('>')?;
    Some(format!("{PICTURE}{attributes}><style>{}</style>{body}\n", super::html::STYLE))
}

/// What was drawn as a file of its own.
pub(super) fn file(label: &str, body: &str) -> String {
    format!(
        "{PICTURE} viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\"><style>{}</style>\
         {body}</svg>\n",
        escape(label),
        super::html::STYLE
    )
}

/// The curves' points for the pointer's read-out, as a JSON array of
/// `{policy, firm, points: [[nines, milliseconds], ...]}`.
pub(super) fn points_json(summaries: &[Summary]) -> String {
    let series = summaries.iter().filter(|s| !s.latency().is_empty()).map(|summary| {
        let latency = summary.latency();
        let points = shares(latency).into_iter().map(|share| {
            let ms = latency.at(share).as_secs_f64() * 1e3;
            serde_json::json!([round(nines(share)), round(ms)])
        });
        serde_json::json!({
            "policy": summary.policy,
            "firm": round(nines(latency.firm_share())),
            "points": points.collect::<Vec<_>>(),
        })
    });
    serde_json::Value::Array(series.collect()).to_string()
}

const STRING: &str = "writing to a string cannot fail";

/// From figures to places in the picture.
pub(super) struct Scale {
    /// Nines at the right end: 3 is 99.9 %.
    nines: f64,
    /// Logarithms (base 10) of the latencies in seconds at the bottom and at the top.
    bottom: f64,
    top: f64,
}

impl Scale {
    fn of(summaries: &[&Summary]) -> Scale {
        let latencies = || summaries.iter().map(|summary| summary.latency());
        let log = |time: Duration| time.as_secs_f64().max(1e-6).log10();
        let nines = latencies().map(most_nines).fold(2.0, f64::max);
        let bottom = latencies().map(|l| log(l.at(0.05))).fold(f64::INFINITY, f64::min) - 0.08;
        let top = latencies().map(|l| log(l.max())).fold(f64::NEG_INFINITY, f64::max) + 0.05;
        Scale { nines, bottom, top: top.max(bottom + 0.5) }
    }

    fn x(&self, nines: f64) -> f64 {
        across(nines / self.nines)
    }

    /// One of heights alone, for these latencies; None if there are none.
    pub(super) fn between(times: impl Iterator<Item = Duration> + Clone) -> Option<Scale> {
        let log = |time: Duration| time.as_secs_f64().max(1e-6).log10();
        let bottom = log(times.clone().min()?) - 0.08;
        let top = log(times.max()?) + 0.05;
        Some(Scale { nines: 1.0, bottom, top: top.max(bottom + 0.5) })
    }

    pub(super) fn y(&self, time: Duration) -> f64 {
        let log = time.as_secs_f64().max(1e-9).log10();
        let height = ((log - self.bottom) / (self.top - self.bottom)).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * height
    }
}

/// The place of a share of the width, 0 to 1.
pub(super) fn across(share: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * share.clamp(0.0, 1.0)
}

fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-12).log10()
}

/// Nines up to which a histogram has at least one sample beyond.
fn most_nines(latency: &Latencies) -> f64 {
    (latency.len().max(1) as f64).log10()
}

/// Where a curve has its points.
fn shares(latency: &Latencies) -> Vec<f64> {
    let most = most_nines(latency);
    let points = ((most * POINTS_PER_NINE as f64) as usize).max(1);
    (0..=points).map(|n| 1.0 - 10f64.powf(-most * n as f64 / points as f64)).collect()
}

fn axes(svg: &mut String, scale: &Scale) {
    heights(svg, scale);
    upright(svg, scale.x(0.0), "0 %");
    upright(svg, scale.x(nines(0.5)), "50 %");
    for n in 1..=scale.nines as usize {
        upright(svg, scale.x(n as f64), &nines_label(n));
    }
    base(svg, "share of calls that took no longer");
}

/// The lines of the latencies, with their names.
pub(super) fn heights(svg: &mut String, scale: &Scale) {
    let right = WIDTH - RIGHT;
    for time in ticks(scale) {
        let y = scale.y(time);
        write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 10.0,
            y + 4.0,
            tick_label(time)
        )
        .expect(STRING);
    }
}

/// An upright line with its name beneath.
pub(super) fn upright(svg: &mut String, x: f64, name: &str) {
    let base = HEIGHT - BOTTOM;
    write!(
        svg,
        "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{base}\"/>\
         <text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        base + 20.0,
        escape(name)
    )
    .expect(STRING);
}

/// The line at the bottom, and what lies along it.
pub(super) fn base(svg: &mut String, name: &str) {
    let (right, base) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    write!(
        svg,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{base}\" y2=\"{base}\"/>\
         <text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(LEFT, right),
        base + 42.0,
        escape(name)
    )
    .expect(STRING);
}

/// Latencies at 1, 2 and 5 times each power of ten within the picture.
fn ticks(scale: &Scale) -> Vec<Duration> {
    let decades = scale.bottom.floor() as i32..=scale.top.ceil() as i32;
    decades
        .flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(decade)))
        .filter(|seconds| (scale.bottom..=scale.top).contains(&seconds.log10()))
        .map(|seconds| Duration::from_nanos((seconds * 1e9).round() as u64))
        .collect()
}

/// A tick's latency, which is a round number: no digits behind the point.
fn tick_label(time: Duration) -> String {
    let nanos = time.as_nanos();
    match nanos {
        n if n < 1_000_000 => format!("{} us", n / 1_000),
        n if n < 1_000_000_000 => format!("{} ms", n / 1_000_000),
        n => format!("{} s", n / 1_000_000_000),
    }
}

/// `90 %`, `99 %`, `99.9 %`, ...
fn nines_label(nines: usize) -> String {
    match nines {
        1 => "90 %".into(),
        2 => "99 %".into(),
        more => format!("99.{} %", "9".repeat(more - 2)),
    }
}

/// Draws one policy: solid where 100 samples lie beyond, thin and dashed where fewer do. Returns
/// the height at which it ends.
fn curve(svg: &mut String, scale: &Scale, summary: &Summary, tint: &str) -> f64 {
    let latency = summary.latency();
    let firm = latency.firm_share();
    let all = shares(latency);
    let (solid, mut loose): (Vec<f64>, Vec<f64>) = all.into_iter().partition(|&s| s <= firm);
    if let Some(&joint) = solid.last() {
        loose.insert(0, joint);
    }
    let line = |shares: &[f64]| {
        shares.iter().fold(String::new(), |mut points, &share| {
            let (x, y) = (scale.x(nines(share)), scale.y(latency.at(share)));
            write!(points, "{x:.1},{y:.1} ").expect(STRING);
            points
        })
    };
    let class = class(&summary.policy);
    write!(
        svg,
        "<g class=\"{class}\"{tint}><polyline class=\"loose\" points=\"{}\"/>\
         <polyline class=\"curve\" points=\"{}\"/>",
        line(&loose),
        line(&solid)
    )
    .expect(STRING);
    for quantile in Quantile::ALL {
        let Some(time) = latency.quantile(quantile) else { continue };
        write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{} {}: {}</title></circle>",
            scale.x(nines(quantile.share())),
            scale.y(time),
            escape(&summary.policy),
            quantile.label(),
            show_duration(time)
        )
        .expect(STRING);
    }
    svg.push_str("</g>");
    scale.y(latency.max())
}

/// Names the curves at their right ends, moved apart where they end close together.
pub(super) fn end_labels(svg: &mut String, mut labels: Vec<(f64, &str, String)>) {
    const LINE: f64 = 17.0;
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = TOP;
    for (y, policy, tint) in labels {
        let y = y.max(free);
        free = y + LINE;
        let class = class(policy);
        write!(
            svg,
            "<text class=\"end {class}\"{tint} x=\"{}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT + 10.0,
            y + 4.0,
            escape(policy)
        )
        .expect(STRING);
    }
}

/// Tells the curves of one kind apart, where there are several: the first has the kind's colour,
/// the others fade from it.
fn tint(policy: &str, all: &[&Summary]) -> String {
    let kin: Vec<&str> =
        all.iter().map(|s| s.policy.as_str()).filter(|other| kind(other) == kind(policy)).collect();
    match kin.iter().position(|other| *other == policy) {
        Some(place) if place > 0 => {
            let share = 100 - 65 * place / (kin.len() - 1);
            let colour = kind(policy);
            format!(" style=\"--own: color-mix(in srgb, var(--{colour}) {share}%, var(--panel))\"")
        }
        _ => String::new(),
    }
}

/// The colour of a policy's kind in the style sheet.
fn kind(policy: &str) -> &'static str {
    let kinds =
        [("tied-hedged", "other"), ("tied", "tied"), ("hedged", "hedged"), ("none", "none")];
    kinds.iter().find(|(name, _)| policy.starts_with(name)).map_or("other", |(_, colour)| colour)
}

/// A policy's class in the style sheet, by which it gets the colour of its kind: its name, letters
/// and digits only.
pub(super) fn class(policy: &str) -> String {
    policy.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect()
}

fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;
    use crate::stats::Rounds;

    #[test]
    fn each_nine_takes_the_same_room() {
        let scale = Scale { nines: 4.0, bottom: -3.0, top: -1.0 };
        let step = scale.x(nines(0.99)) - scale.x(nines(0.9));
        assert!((scale.x(nines(0.999)) - scale.x(nines(0.99)) - step).abs() < 1e-6);
        assert!((scale.y(Duration::from_millis(1)) - (HEIGHT - BOTTOM)).abs() < 1e-6);
        assert!((scale.y(Duration::from_millis(100)) - TOP).abs() < 1e-6);
    }

    #[test]
    fn ticks_are_round_numbers_within_the_picture() {
        let scale = Scale { nines: 3.0, bottom: -2.6, top: -0.9 };
        let labels: Vec<String> = ticks(&scale).into_iter().map(tick_label).collect();
        assert_eq!(labels, ["5 ms", "10 ms", "20 ms", "50 ms", "100 ms"]);
        assert_eq!([1, 2, 3, 5].map(nines_label), ["90 %", "99 %", "99.9 %", "99.999 %"]);
    }

    #[test]
    fn every_policy_has_a_curve_that_says_where_its_ground_ends() {
        let summaries = sample::report().summaries();
        let svg = chart(&summaries);
        for policy in ["none", "hedged", "tied"] {
            assert!(svg.contains(&format!("<g class=\"{policy}\"><polyline class=\"loose\"")));
        }
        // 36 000 calls: marks at p50, p90 and p99, none at p99.9.
        assert_eq!(svg.matches("<circle").count(), 9);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn the_picture_is_a_file_that_needs_nothing_else() {
        let svg = picture(&sample::report().summaries()).expect("calls");
        assert!(svg.starts_with(PICTURE) && svg.ends_with("</svg>\n"), "{svg}");
        assert!(svg.contains("<style>:root {") && svg.contains(".curve {"));
        assert_eq!(picture(&[]), None);
    }

    #[test]
    fn curves_of_one_kind_share_its_colour_and_can_be_told_apart() {
        let mut report = sample::report();
        for (rounds, name) in report.policies.iter_mut().zip(["tied", "tied-s0", "tied-s1ms"]) {
            rounds.policy = name.into();
        }
        let svg = chart(&report.summaries());
        assert!(svg.contains("<g class=\"tied\"><polyline"), "{svg}");
        assert!(svg.contains("var(--tied) 68%") && svg.contains("var(--tied) 35%"), "{svg}");
    }

    #[test]
    fn one_call_alone_and_none_at_all_still_make_a_picture() {
        let mut slice = crate::stats::Slice::new(Duration::from_secs(1));
        let empty = Rounds { policy: "none".into(), slices: vec![slice.clone()] }.merged();
        assert!(chart(&[empty]).contains("No call"));
        slice.record(
            Duration::ZERO,
            Duration::ZERO,
            Duration::from_millis(3),
            crate::stats::CallEnd::Ok,
        );
        let one = Rounds { policy: "none".into(), slices: vec![slice] }.merged();
        let svg = chart(&[one]);
        assert!(svg.contains("<svg") && !svg.contains("NaN"), "{svg}");
    }
}
