use alloc::collections::VecDeque;

use crate::{Duration, Instant};

/// Names one entry of the [`Lane`] that gave it. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LaneKey(u64);

/// Timers that all wait equally long: a queue, as they fall due in the order they were armed in.
///
/// Cheaper than a [`Wheel`](crate::Wheel) where it fits, as for hedge timers, of which there is one
/// a call and one delay a class of calls.
///
/// * [`arm`](Lane::arm), [`cancel`](Lane::cancel) and [`expire`](Lane::expire) are O(1),
///   the latter amortized: a cancelled entry leaves a hole, over which the first live one steps.
/// * An entry never fires early; entries fire in the order in which they were armed.
/// * The queue holds, holes included, what was armed since its oldest live entry, and so at most
///   what is armed within one delay. It allocates only to grow beyond that.
///
/// ```
/// use bowline_time::{Duration, Instant, Lane};
///
/// let mut lane = Lane::with_capacity(Duration::from_micros(200), 16);
/// let start = Instant::from_nanos(1_000);
/// let first = lane.arm(start, "first");
/// lane.arm(start + Duration::from_micros(5), "second");
///
/// assert_eq!(lane.cancel(first), Some("first"));
/// assert_eq!(lane.next(), Some(start + Duration::from_micros(205)));
/// assert_eq!(lane.expire(start + Duration::from_micros(205)), Some("second"));
/// ```
pub struct Lane<T> {
    delay: Duration,
    /// Never starts with a hole.
    entries: VecDeque<(Instant, Option<T>)>,
    /// The key of the first entry; the others' follow one by one.
    first: u64,
    live: usize,
}

impl<T> Lane<T> {
    /// An empty lane whose entries wait for `delay`.
    pub fn new(delay: Duration) -> Self {
        Lane::with_capacity(delay, 0)
    }

    /// A lane that holds `capacity` entries, holes included, before it allocates again.
    pub fn with_capacity(delay: Duration, capacity: usize) -> Self {
        Lane { delay, entries: VecDeque::with_capacity(capacity), first: 0, live: 0 }
    }

    /// How long entries wait.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// How many entries are armed.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether nothing is armed.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Arms an entry that is due one delay after `now`.
    ///
    /// `now` doesn't go back from call to call; if it does, the entry waits as long as the one
    /// before it.
    pub fn arm(&mut self, now: Instant, value: T) -> LaneKey {
        let last = self.entries.back().map_or(Instant::EPOCH, |(deadline, _)| *deadline);
        let key = LaneKey(self.first + self.entries.len() as u64);
        self.entries.push_back(((now + self.delay).max(last), Some(value)));
        self.live += 1;
        key
    }

    /// Takes an entry back; `None` if it has fired or was cancelled before.
    pub fn cancel(&mut self, key: LaneKey) -> Option<T> {
        let index = usize::try_from(key.0.checked_sub(self.first)?).ok()?;
        let value = self.entries.get_mut(index)?.1.take()?;
        self.live -= 1;
        self.skip_holes();
        Some(value)
    }

    /// What an armed entry carries.
    pub fn get(&self, key: LaneKey) -> Option<&T> {
        let index = usize::try_from(key.0.checked_sub(self.first)?).ok()?;
        self.entries.get(index)?.1.as_ref()
    }

    /// When the first entry is due, exactly; `None` if there is none.
    pub fn next(&self) -> Option<Instant> {
        self.entries.front().map(|(deadline, _)| *deadline)
    }

    /// Takes the first entry if it is due by `now`.
    pub fn expire(&mut self, now: Instant) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        let (_, value) = self.entries.pop_front()?;
        self.first += 1;
        self.live -= 1;
        self.skip_holes();
        value
    }

    fn skip_holes(&mut self) {
        while let Some((_, None)) = self.entries.front() {
            self.entries.pop_front();
            self.first += 1;
        }
    }
}
