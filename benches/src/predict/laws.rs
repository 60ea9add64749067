//! The survival functions of service times.

use bowline_tests::kernel::span::{Nanos, Span};
use bowline_tests::theory::Law;

/// The law of a model's draws, in nanoseconds.
pub(super) fn of(span: &Span) -> Law {
    let mean = span.mean();
    match span.clone() {
        Span::Fixed(at) => Law::new(mean, move |t| f64::from(u8::from(t < at as f64))),
        Span::Uniform(low, high) => {
            let (low, high) = (low as f64, high as f64);
            Law::new(mean, move |t| ((high - t) / (high - low)).clamp(0.0, 1.0))
        }
        Span::Exponential { .. } => Law::new(mean, move |t| libm::exp(-t / mean)),
        Span::LogNormal { median, sigma } => Law::new(mean, move |t| {
            if t <= 0.0 {
                return 1.0;
            }
            let deviations = libm::log(t / median as f64) / sigma;
            0.5 * libm::erfc(deviations / core::f64::consts::SQRT_2)
        }),
        Span::Pareto { least, alpha, cap } => Law::new(mean, move |t| {
            if t >= cap as f64 { 0.0 } else { libm::pow((least as f64 / t).min(1.0), alpha) }
        }),
        Span::Bimodal { short, long, long_permille } => Law::new(mean, move |t| {
            let share = long_permille as f64 / 1000.0;
            let later = |at: Nanos, share: f64| if t < at as f64 { share } else { 0.0 };
            later(long, share) + later(short, 1.0 - share)
        }),
        Span::Empirical(values) => Law::new(mean, move |t| values.beyond(t as Nanos)),
    }
}

#[cfg(test)]
mod tests {
    use bowline_tests::kernel::rng::Rng;

    use super::*;
    use crate::model::parse_span;

    #[test]
    fn the_law_of_each_model_is_that_of_its_draws() {
        for model in [
            "exp:5ms",
            "log-normal:5ms,0.5",
            "pareto:2ms,1.5",
            "pareto:2ms,1.5,8ms",
            "bimodal:1ms,20ms,5%",
            "fixed:5ms",
        ] {
            let span = parse_span(model).expect("a model");
            let law = of(&span);
            let mut rng = Rng::new(1);
            let draws: Vec<Nanos> = (0..200_000).map(|_| span.draw(&mut rng)).collect();
            for at in [500_000, 2_500_000, 4_900_000, 6_000_000, 30_000_000] {
                let beyond = draws.iter().filter(|&&draw| draw > at).count() as f64 / 2e5;
                let told = law.beyond(at as f64);
                assert!((told - beyond).abs() < 0.005, "{model} at {at}: {told} for {beyond}");
            }
        }
    }
}
