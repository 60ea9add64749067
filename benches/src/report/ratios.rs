//! The ratios to the baseline, drawn: a dot at the median of the rounds, a bar from the least to
//! the most, on a logarithmic axis on which half and double are equally far from one.

use core::fmt::Write;

use super::chart::class;
use super::html::escape;
use super::table::show_spread;
use super::{BASELINE, Ratios};
use crate::stats::Spread;

const WIDTH: f64 = 920.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 170.0;
const ROW: f64 = 26.0;
const GAP: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 46.0;
/// Ratios that the axis names.
const TICKS: [f64; 13] = [0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0];

/// One SVG element; empty where there is no ratio.
pub(super) fn ratios_chart(ratios: &[Ratios]) -> String {
    let spreads: Vec<Spread> =
        ratios.iter().flat_map(|r| r.spreads.iter().filter_map(|(_, s)| *s)).collect();
    if spreads.is_empty() {
        return String::new();
    }
    let least = spreads.iter().map(|s| s.min).fold(0.5, f64::min).max(0.01) / 1.1;
    let most = spreads.iter().map(|s| s.max).fold(1.0, f64::max).min(100.0) * 1.1;
    let x = |ratio: f64| {
        let place = (ratio / least).ln() / (most / least).ln();
        LEFT + (WIDTH - LEFT - RIGHT) * place.clamp(0.0, 1.0)
    };

    let mut body = String::new();
    let mut y = TOP;
    for ratios in ratios {
        for (quantile, spread) in &ratios.spreads {
            let Some(spread) = spread else { continue };
            row(&mut body, &ratios.policy, quantile.label(), spread, y + ROW / 2.0, &x);
            y += ROW;
        }
        y += GAP;
    }
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" \
         aria-label=\"Each policy's percentiles as ratios to {BASELINE}\">",
        y + BOTTOM
    );
    axis(&mut svg, y, least, most, &x);
    svg + &body + "</svg>"
}

fn axis(svg: &mut String, base: f64, least: f64, most: f64, x: &impl Fn(f64) -> f64) {
    for tick in TICKS.into_iter().filter(|tick| (least..=most).contains(tick)) {
        let kind = if tick == 1.0 { "one" } else { "grid" };
        let x = x(tick);
        write!(
            svg,
            "<line class=\"{kind}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{base}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>",
            base + 18.0
        )
        .expect(STRING);
    }
    write!(
        svg,
        "<text class=\"name\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">latency as a ratio to \
         {BASELINE}, in the same round: median, least, most</text>",
        f64::midpoint(LEFT, WIDTH - RIGHT),
        base + 38.0
    )
    .expect(STRING);
}

fn row(
    svg: &mut String,
    policy: &str,
    quantile: &str,
    spread: &Spread,
    y: f64,
    x: &impl Fn(f64) -> f64,
) {
    let class = class(policy);
    write!(
        svg,
        "<g class=\"{class}\"><text class=\"row\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">\
         {} {quantile}</text>\
         <line class=\"range\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\"/>\
         <circle cx=\"{:.1}\" cy=\"{y}\" r=\"5\"/></g>\
         <text class=\"value\" x=\"{}\" y=\"{:.1}\">{}</text>",
        LEFT - 16.0,
        y + 4.0,
        escape(policy),
        x(spread.min),
        x(spread.max),
        x(spread.median),
        WIDTH - RIGHT + 16.0,
        y + 4.0,
        show_spread(spread)
    )
    .expect(STRING);
}

const STRING: &str = "writing to a string cannot fail";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn each_ratio_that_the_samples_allow_has_a_row() {
        let svg = ratios_chart(&sample::report().ratios());
        assert_eq!(svg.matches("<circle").count(), 2 * 3, "two policies; p50, p90, p99");
        assert!(svg.contains("tied p99") && !svg.contains("tied p99.9"));
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn no_ratios_draw_nothing() {
        assert_eq!(ratios_chart(&[]), "");
    }
}
