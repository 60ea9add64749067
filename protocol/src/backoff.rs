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

/// How a connection was lost, or why there was none: as much of it as decides when to dial again, and
/// what a log has to say. What exactly went wrong, the error says that is told with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// A name led to no address.
    Unresolved,
    /// Nobody answered at the address.
    Unreachable,
    /// Somebody answered, but it never came up: it broke before, or they are not who was dialled.
    Handshake,
    /// It was up for so long, from when both sides knew each other, and has ended.
    Broken(Duration),
}

/// A connection that was up for so long makes what comes after it news.
const WELL: Duration = Duration::from_secs(60);

/// When somebody is dialled again, and whether that they can't be had is news. Who is lost as soon as
/// they are there is dialled as seldom as who is not there at all. Each kind of [`Loss`] is news once,
/// until it was well for a minute: whoever comes and goes can't fill a log with it, and no later
/// reason hides behind the first.
///
/// ```
/// use bowline_protocol::{Loss, Redial};
/// use core::time::Duration;
///
/// let mut redial = Redial::new(Duration::from_millis(10), Duration::from_secs(1), 42);
/// let first = redial.after(Loss::Unreachable);
/// assert!(first.wait <= Duration::from_millis(10) && first.is_news);
/// assert!(!redial.after(Loss::Unreachable).is_news);
/// assert!(redial.after(Loss::Handshake).is_news);
/// ```
#[derive(Clone, Debug)]
pub struct Redial {
    backoff: Backoff,
    /// A connection that was up for so long was one.
    steady: Duration,
    /// The kinds that were told since it was well, a bit each.
    told: u8,
}

/// What is to be done about a [`Loss`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextDial {
    /// How long to wait before dialling again.
    pub wait: Duration,
    /// A log should tell of that loss.
    pub is_news: bool,
}

impl Redial {
    /// Waits as [`Backoff`] does, which begins anew only after a connection that was up for as long
    /// as the longest wait.
    pub const fn new(first: Duration, max: Duration, seed: u64) -> Redial {
        Redial { backoff: Backoff::new(first, max, seed), steady: max, told: 0 }
    }

    /// A connection has ended, or none came up.
    pub fn after(&mut self, loss: Loss) -> NextDial {
        let kind = match loss {
            Loss::Unresolved => 1,
            Loss::Unreachable => 2,
            Loss::Handshake => 4,
            Loss::Broken(up) => {
                if up >= self.steady {
                    self.backoff.reset();
                }
                if up >= WELL {
                    self.told = 0;
                }
                8
            }
        };
        let is_news = self.told & kind == 0;
        self.told |= kind;
        NextDial { wait: self.backoff.next_wait(), is_news }
    }
}
