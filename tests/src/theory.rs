//! Closed forms for the latency of redundant calls: what the simulated world is judged by, and what
//! a user can reckon with before anything runs.
//!
//! Times are in units of the mean service time unless a law is stretched. Each holds under its
//! assumptions only, which stand beside it.

use std::rc::Rc;

use crate::kernel::maths::exp;

/// The share of durations beyond each.
pub type Survival = Rc<dyn Fn(f64) -> f64>;

/// A distribution of latencies.
#[derive(Clone)]
pub struct Law {
    beyond: Survival,
    mean: f64,
}

/// e^-x, and 0 where that is less than a double tells.
fn decay(x: f64) -> f64 {
    if x > 700.0 { 0.0 } else { exp(-x) }
}

impl Law {
    /// The law with this survival function and mean.
    pub fn new(mean: f64, beyond: impl Fn(f64) -> f64 + 'static) -> Law {
        Law { beyond: Rc::new(beyond), mean }
    }

    /// The mean.
    pub const fn mean(&self) -> f64 {
        self.mean
    }

    /// The share of calls that take longer than `time`.
    pub fn beyond(&self, time: f64) -> f64 {
        if time < 0.0 { 1.0 } else { (self.beyond)(time) }
    }

    /// The shortest time within which the share `q` (0 to 1) of all calls end.
    pub fn quantile(&self, q: f64) -> f64 {
        let (mut low, mut high) = (0.0, self.mean.max(f64::MIN_POSITIVE));
        while self.beyond(high) > 1.0 - q && high < 1e300 {
            (low, high) = (high, 2.0 * high);
        }
        for _ in 0..64 {
            let middle = f64::midpoint(low, high);
            if self.beyond(middle) > 1.0 - q { low = middle } else { high = middle }
        }
        high
    }

    /// The same law with every time `unit` times as long.
    pub fn stretched(self, unit: f64) -> Law {
        let mean = unit * self.mean;
        Law::new(mean, move |t| self.beyond(t / unit))
    }

    /// The same law with every time longer by `delay`.
    pub fn later_by(self, delay: f64) -> Law {
        Law::new(self.mean + delay, move |t| self.beyond(t - delay))
    }

    /// The slowest of `n` independent calls: P(T > t) = 1 - (1 - S(t))^n.
    pub fn slowest_of(self, n: u32) -> Law {
        let beyond: Survival = Rc::new(move |t| fan_out(self.beyond(t), n));
        Law { mean: mean_of(&beyond), beyond }
    }

    /// A delayed hedge where nothing queues: P(T > t) = S(t) S(t - delay), with this law as S.
    ///
    /// Assumes that both copies take times of their own, and that neither waits for the other, nor
    /// for the load that hedges add.
    pub fn hedged_after(self, delay: f64) -> Law {
        let beyond: Survival = Rc::new(move |t| self.beyond(t) * self.beyond(t - delay));
        Law { mean: mean_of(&beyond), beyond }
    }
}

/// 1 - (1 - p)^n: that one of `n` independent parts is slow, if each is with probability `p`.
pub fn fan_out(p: f64, n: u32) -> f64 {
    1.0 - (1.0 - p).powi(n.min(i32::MAX as u32) as i32)
}

/// The integral of a survival function: on a grid that covers all times, as fine about the median
/// as its tail is long.
fn mean_of(beyond: &Survival) -> f64 {
    const STEPS: u32 = 200_000;
    let median = Law { beyond: Rc::clone(beyond), mean: 1.0 }.quantile(0.5);
    if median <= 0.0 {
        return 0.0;
    }
    // t = median u / (1 - u), by the rule of midpoints.
    let parts = (0..STEPS).map(|step| {
        let u = (f64::from(step) + 0.5) / f64::from(STEPS);
        beyond(median * u / (1.0 - u)) / ((1.0 - u) * (1.0 - u))
    });
    median * parts.sum::<f64>() / f64::from(STEPS)
}

/// M/M/c: Poisson arrivals, exponential service, `slots` that share one queue, each busy for the
/// share `load` of the time; first come, first served.
///
/// With one slot this is one replica without redundancy: P(T > t) = exp(-(1 - load) t). With two it
/// is also a pair of replicas with every call tied and cancels that take no time, since joining
/// both queues and leaving one at the start is joining the one with less work.
///
/// ```
/// use bowline_tests::theory::queue;
///
/// assert!((queue(1, 0.5).mean() - 2.0).abs() < 1e-12);
/// assert!((queue(2, 0.5).quantile(0.999) - 8.228).abs() < 0.001);
/// ```
pub fn queue(slots: u32, load: f64) -> Law {
    let c = f64::from(slots.max(1));
    // Erlang's B by its recursion, and from it C, the share of calls that wait.
    let blocked = (1..=slots.max(1)).fold(1.0, |blocked, servers| {
        let offered = c * load * blocked;
        offered / (f64::from(servers) + offered)
    });
    let waits = blocked / (1.0 - load * (1.0 - blocked));
    let rate = c * (1.0 - load);
    Law::new(1.0 + waits / rate, move |t| {
        // Nothing for those that start at once; for the others an exponential wait besides.
        let both = if (rate - 1.0).abs() < 1e-9 {
            decay(t) * (1.0 + t)
        } else {
            (rate * decay(t) - decay(rate * t)) / (rate - 1.0)
        };
        (1.0 - waits) * decay(t) + waits * both
    })
}

/// Two replicas of one slot, both copies of every call run, each with a time of its own, and the
/// first result cancels the other copy at once: one replica of twice the speed.
pub fn both_run(load: f64) -> Law {
    let rate = 2.0 * (1.0 - load);
    Law::new(1.0 / rate, move |t| decay(rate * t))
}

/// Many replicas of one slot, every call tied on two of them drawn at random, cancels that take no
/// time: P(W > t) = (load + (1/load - load) e^t)^-2, the limit of infinitely many.
pub fn tied_on_two_of_many(load: f64) -> Law {
    let b = 1.0 / load - load;
    let square = load * load;
    // The service time added: the integral of e^u P(W > u) has the closed form below.
    Law::new(-crate::kernel::maths::ln(1.0 - square) / square, move |t| {
        let rest = decay(t);
        rest * (1.0 + (load - rest / (load * rest + b)) / b)
    })
}

/// What a surge leaves behind, with calls as a fluid that flows in and out at its mean rates.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Backlog {
    /// Calls that wait when the surge ends.
    pub calls: f64,
    /// How long a call waits that comes then.
    pub wait: f64,
    /// How long after the surge until nothing waits.
    pub drains_in: f64,
    /// What all calls wait because of it, together.
    pub waited: f64,
}

/// The backlog of `slots` slots at `load`, after so many times their capacity has come in for
/// `lasts`; zero if that is no more than they can serve.
pub fn backlog(slots: u32, load: f64, surge: f64, lasts: f64) -> Backlog {
    let capacity = f64::from(slots);
    let calls = ((surge - 1.0) * capacity * lasts).max(0.0);
    let drains_in = calls / (capacity * (1.0 - load));
    // A triangle: it grows for as long as the surge lasts, and shrinks after it.
    let waited = if calls > 0.0 { calls * (lasts + drains_in) / 2.0 } else { 0.0 };
    Backlog { calls, wait: calls / capacity, drains_in, waited }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-3, "{found} for {expected}");
    }

    #[test]
    fn the_quantiles_of_a_tied_pair_are_the_published_ones() {
        for (load, mean, quantiles) in [
            (0.5, 1.333, [0.974, 2.995, 5.666, 8.228]),
            (0.7, 1.961, [1.451, 4.355, 8.266, 12.118]),
        ] {
            let pair = queue(2, load);
            close(pair.mean(), mean);
            for (q, expected) in [0.5, 0.9, 0.99, 0.999].into_iter().zip(quantiles) {
                close(pair.quantile(q), expected);
            }
        }
    }

    #[test]
    fn each_mean_is_the_integral_of_its_survival_function() {
        for law in [
            queue(1, 0.6),
            queue(8, 0.9),
            both_run(0.4),
            tied_on_two_of_many(0.7),
            tied_on_two_of_many(0.95),
        ] {
            close(mean_of(&law.beyond), law.mean());
            close(law.beyond(0.0), 1.0);
        }
    }

    #[test]
    fn a_hedge_of_exponential_times_has_the_closed_form() {
        let service = Law::new(1.0, decay);
        let hedged = service.hedged_after(1.0);
        close(hedged.mean(), 1.0 - exp(-1.0) / 2.0);
        close(hedged.quantile(0.99), (4.605_17 + 1.0) / 2.0);
        close(hedged.quantile(0.5), core::f64::consts::LN_2);
    }

    #[test]
    fn a_quantile_is_found_where_a_law_has_steps() {
        let law = Law::new(1.9, |t| {
            if t < 1.0 {
                1.0
            } else if t < 10.0 {
                0.1
            } else {
                0.0
            }
        });
        close(law.quantile(0.5), 1.0);
        close(law.quantile(0.95), 10.0);
        close(law.clone().stretched(1000.0).quantile(0.95), 10_000.0);
        close(law.clone().later_by(5.0).quantile(0.95), 15.0);
    }

    #[test]
    fn the_slowest_of_a_hundred_is_slow_where_one_in_a_hundred_is() {
        close(fan_out(0.01, 100), 0.633_968);
        let slowest = Law::new(1.0, decay).slowest_of(100);
        // The harmonic number: the mean of the greatest of a hundred exponential draws.
        close(slowest.mean(), 5.187_378);
    }

    #[test]
    fn a_surge_leaves_what_was_not_served_and_drains_with_what_is_spare() {
        let backlog = backlog(4, 0.5, 1.5, 100.0);
        close(backlog.calls, 200.0);
        close(backlog.wait, 50.0);
        close(backlog.drains_in, 100.0);
        close(backlog.waited, 20_000.0);
        let calm = super::backlog(4, 0.5, 0.9, 100.0);
        assert_eq!(calm, Backlog { calls: 0.0, wait: 0.0, drains_in: 0.0, waited: 0.0 });
    }
}
