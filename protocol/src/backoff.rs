//! How long to wait before trying again, and before dialling again.

use core::time::Duration;

/// Exponential backoff with jitter: each wait is drawn evenly from the upper half of a span that
/// doubles from `first` to `max`, so that peers that failed together do not come back together.
///
/// ```
/// use bowline_protocol::Backoff;
/// use core::time::Duration;
///
/// let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1), 42);
/// let first = backoff.next_wait();
/// assert!(first >= Duration::from_millis(5) && first <= Duration::from_millis(10));
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    span: Duration,
    random: u64,
}

impl Backoff {
    /// Waits of up to `first`, later of up to `max`. The seed makes the jitter; two that should not
    /// march in step need two seeds.
    pub const fn new(first: Duration, max: Duration, seed: u64) -> Backoff {
        Backoff { first, max, span: first, random: seed }
    }

    /// The next wait.
    pub fn next_wait(&mut self) -> Duration {
        let half = self.span / 2;
        let jitter = half.mul_f64(self.next_fraction());
        self.span = self.span.saturating_mul(2).min(self.max);
        half + jitter
    }

    /// It worked: the next wait is a short one again.
    pub const fn reset(&mut self) {
        self.span = self.first;
    }

    /// A number from [0, 1), by SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
    /// generators, 2014).
    fn next_fraction(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// When somebody is dialled again, and whether that they can't be had is news. Who is lost as soon as
/// they are there is dialled as seldom as who is not there at all, and either is news once.
///
/// ```
/// use bowline_protocol::Redial;
/// use core::time::Duration;
///
/// let mut redial = Redial::new(Duration::from_millis(10), Duration::from_secs(1), 42);
/// let (wait, is_news) = redial.after(None);
/// assert!(wait <= Duration::from_millis(10) && is_news);
/// ```
#[derive(Clone, Debug)]
pub struct Redial {
    backoff: Backoff,
    /// A connection that was up for so long was one.
    steady: Duration,
    is_told: bool,
}

impl Redial {
    /// Waits as [`Backoff`] does, which begins anew only after a connection that was up for as long
    /// as the longest wait.
    pub const fn new(first: Duration, max: Duration, seed: u64) -> Redial {
        Redial { backoff: Backoff::new(first, max, seed), steady: max, is_told: false }
    }

    /// A connection has ended that was up for so long (not: connected, or greeted), or none came up.
    /// How long to wait before the next, and whether that is news.
    pub fn after(&mut self, up: Option<Duration>) -> (Duration, bool) {
        if up.is_some_and(|up| up >= self.steady) {
            self.backoff.reset();
            self.is_told = false;
        }
        (self.backoff.next_wait(), !core::mem::replace(&mut self.is_told, true))
    }
}
