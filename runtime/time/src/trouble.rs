use crate::{Duration, Instant};

/// What is well for so long is over.
const QUIET: Duration = Duration::from_secs(60);

/// Trouble that may come again and again, for who tells of it in a log: once, until it was well for a
/// minute. So neither what flaps nor who makes it flap can fill the log.
///
/// ```
/// use bowline_time::{Duration, Instant, Trouble};
///
/// let mut accepting = Trouble::default();
/// let start = Instant::EPOCH;
/// assert!(accepting.is_news(start));
/// assert!(!accepting.is_news(start + Duration::from_secs(59)));
/// assert!(!accepting.is_news(start + Duration::from_secs(118)), "it goes on");
/// assert!(accepting.is_news(start + Duration::from_secs(178)));
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct Trouble {
    last: Option<Instant>,
}

impl Trouble {
    /// There is some now. Whether that is to be told.
    pub fn is_news(&mut self, now: Instant) -> bool {
        self.last.replace(now).is_none_or(|last| now >= last + QUIET)
    }
}
