//! How long things take: service times, delays of the network, gaps between calls.

use crate::kernel::empirical::Empirical;
use crate::kernel::maths::{exp, ln};
use crate::kernel::rng::Rng;

/// Nanoseconds of the world's own time, which no machine in it can see.
pub type Nanos = u64;

/// A distribution of durations.
#[derive(Clone, PartialEq, Debug)]
pub enum Span {
    /// Always the same.
    Fixed(Nanos),
    /// Evenly from the lower to the upper bound.
    Uniform(Nanos, Nanos),
    /// Exponential: no memory, the service time of the closed forms.
    Exponential {
        /// Its mean.
        mean: Nanos,
    },
    /// Log-normal: the shape of most measured storage latencies.
    LogNormal {
        /// Half of the draws are below it.
        median: Nanos,
        /// The deviation of the logarithm.
        sigma: f64,
    },
    /// Pareto: a tail that does not end.
    Pareto {
        /// The least draw.
        least: Nanos,
        /// The tail's exponent: below 2 it has no variance, below 1 no mean.
        alpha: f64,
        /// Draws above it are cut to it, so that a run ends.
        cap: Nanos,
    },
    /// Mostly short, sometimes long: a cache in front of a disk.
    Bimodal {
        /// The usual draw.
        short: Nanos,
        /// The rare one.
        long: Nanos,
        /// How many of a thousand are long.
        long_permille: u64,
    },
    /// Measured values, as often as they were seen.
    Empirical(Empirical),
}

/// A year: no draw is longer, so that sums of a few never overflow.
const LONGEST: f64 = 3.15e16;

impl Span {
    /// The next draw.
    pub fn draw(&self, rng: &mut Rng) -> Nanos {
        match self {
            Span::Fixed(span) => *span,
            Span::Uniform(low, high) => rng.between(*low, *high),
            Span::Exponential { mean } => round(*mean as f64 * rng.exponential()),
            Span::LogNormal { median, sigma } => {
                round(*median as f64 * exp((sigma * rng.normal()).clamp(-700.0, 700.0)))
            }
            Span::Pareto { least, alpha, cap } => {
                let stretch = exp((rng.exponential() / alpha).min(700.0));
                round(*least as f64 * stretch).min(*cap)
            }
            Span::Bimodal { short, long, long_permille } => {
                if rng.chance(*long_permille) {
                    *long
                } else {
                    *short
                }
            }
            Span::Empirical(values) => values.draw(rng),
        }
    }

    /// The mean of all draws.
    pub fn mean(&self) -> f64 {
        match self {
            Span::Fixed(span) => *span as f64,
            Span::Uniform(low, high) => f64::midpoint(*low as f64, *high as f64),
            Span::Exponential { mean } => *mean as f64,
            Span::LogNormal { median, sigma } => *median as f64 * exp(sigma * sigma / 2.0),
            Span::Pareto { least, alpha, cap } => pareto_mean(*least as f64, *alpha, *cap as f64),
            Span::Bimodal { short, long, long_permille } => {
                let share = *long_permille as f64 / 1000.0;
                share * *long as f64 + (1.0 - share) * *short as f64
            }
            Span::Empirical(values) => values.mean(),
        }
    }
}

fn round(nanos: f64) -> Nanos {
    (nanos.min(LONGEST) + 0.5) as Nanos
}

/// The mean of min(X, cap): finite even where that of X is not.
fn pareto_mean(least: f64, alpha: f64, cap: f64) -> f64 {
    let stretch = ln(cap.max(least) / least);
    if (alpha - 1.0).abs() < 1e-9 {
        return least * (1.0 + stretch);
    }
    least * (1.0 + (1.0 - exp(((1.0 - alpha) * stretch).clamp(-700.0, 700.0))) / (alpha - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(span: &Span) -> f64 {
        let mut rng = Rng::new(3);
        let n = 400_000;
        (0..n).map(|_| span.draw(&mut rng) as f64).sum::<f64>() / f64::from(n)
    }

    #[test]
    fn every_model_has_the_mean_that_theory_gives_it() {
        let log_normal = Span::LogNormal { median: 1_000_000, sigma: 0.5 };
        let pareto = Span::Pareto { least: 1_000_000, alpha: 3.0, cap: u64::MAX };
        let heavy = Span::Pareto { least: 1_000_000, alpha: 1.0, cap: 10_000_000 };
        let bimodal = Span::Bimodal { short: 100_000, long: 1_900_000, long_permille: 500 };
        let empirical = Empirical::of([(1_000_000, 3), (3_000_000, 1)]).expect("values");
        for (span, expected) in [
            (Span::Fixed(1_000_000), 1e6),
            (Span::Uniform(500_000, 1_500_000), 1e6),
            (Span::Exponential { mean: 1_000_000 }, 1e6),
            (log_normal, 1e6 * exp(0.125)),
            (pareto, 1.5e6),
            (heavy, 1e6 * (1.0 + ln(10.0))),
            (bimodal, 1e6),
            (Span::Empirical(empirical), 1.5e6),
        ] {
            let found = mean(&span);
            assert!((found / expected - 1.0).abs() < 0.01, "{span:?}: {found} for {expected}");
            let told = span.mean();
            assert!((told / expected - 1.0).abs() < 1e-9, "{span:?}: {told} for {expected}");
        }
    }
}
