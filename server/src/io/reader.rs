//! Who reads too slowly, and who most slowly: told by what it takes, and not by how much it has asked
//! for.
//!
//! Many large replies at once are much that waits, and may all be read as fast as the network goes. So
//! as long as no more than some waits nobody looks; from then on the other side is to take as much as
//! that in each span of time. Where too much waits for all together, who took next to nothing for as
//! long is in the way of the others; and who has kept most of it for longest goes first.

use std::time::Duration;

use bowline_runtime::Instant;

/// What waits counts as kept for so long from the start on: or who was sent most just now would keep
/// less than who reads, and has always read, what was sent a moment ago.
const AT_LEAST: Duration = Duration::from_secs(1);
/// Who takes less than one part in so many of what waits for it takes nothing worth speaking of.
const SOME_PART: usize = 4;

/// Takes part of a connection's sender.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reader {
    /// Since when it has been watched, and what it had taken by then, in all. None: not enough waits.
    watched: Option<(Instant, u64)>,
    /// When it was last looked what waited, after all that had waited before was taken; and what it
    /// will have taken, in all, once it took that. None: nothing waits.
    behind: Option<(Instant, u64)>,
    /// When it was last looked at after it had taken some part of what waits or nothing waited, and what
    /// it had taken by then, in all.
    taken: Option<(Instant, u64)>,
}

impl Reader {
    /// Whether it took less than `most` bytes in the last `span` though more waited all the time.
    /// To be asked now and then.
    pub(super) fn is_too_slow(
        &mut self,
        waiting: usize,
        taken: u64,
        (most, span): (usize, Duration),
        now: Instant,
    ) -> bool {
        let some = (waiting / SOME_PART).max(1) as u64;
        if self.taken.is_none_or(|(_, before)| waiting == 0 || taken - before >= some) {
            self.taken = Some((now, taken));
        }
        match self.behind {
            _ if waiting == 0 => self.behind = None,
            // What waited may have been withdrawn since.
            Some((since, goal)) if taken < goal => {
                self.behind = Some((since, goal.min(taken + waiting as u64)));
            }
            _ => self.behind = Some((now, taken + waiting as u64)),
        }
        if waiting <= most {
            self.watched = None;
            return false;
        }
        let (since, before) = *self.watched.get_or_insert((now, taken));
        if now < since + span {
            return false;
        }
        self.watched = Some((now, taken));
        taken - before < most as u64
    }

    /// For how long it has taken next to nothing of what waits: a quarter, in all, or less.
    pub(super) fn idle(&self, now: Instant) -> Duration {
        self.taken.map_or(Duration::ZERO, |(last, _)| now - last)
    }

    /// How much of the room for all it keeps, in bytes times nanoseconds since it last took all that
    /// had waited. So whoever reads may have much waiting, and whoever does not may have little.
    pub(super) fn keeps(&self, waiting: usize, now: Instant) -> u128 {
        let behind = self.behind.map_or(Duration::ZERO, |(since, _)| now - since);
        waiting as u128 * (AT_LEAST + behind).as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(10);
    const MOST: usize = 100;

    /// Whether it is too slow at some of these times, in seconds, by what waits and what was taken.
    fn seen(looks: &[(u64, usize, u64)]) -> bool {
        let mut reader = Reader::default();
        looks.iter().any(|&(at, waiting, taken)| {
            let now = Instant::EPOCH + Duration::from_secs(at);
            reader.is_too_slow(waiting, taken, (MOST, SPAN), now)
        })
    }

    #[test]
    fn who_takes_what_may_wait_in_time_may_ask_for_as_much_as_it_likes() {
        assert!(!seen(&[(0, 5000, 0), (9, 4900, 99), (10, 4900, 100), (20, 4800, 200)]));
    }

    #[test]
    fn who_takes_less_is_too_slow_once_the_time_is_over_and_not_before() {
        assert!(!seen(&[(0, 101, 0), (9, 101, 0)]));
        assert!(seen(&[(0, 101, 0), (10, 101, 99)]));
        assert!(seen(&[(0, 5000, 0), (10, 4000, 1000), (20, 3999, 1001)]), "nor later");
    }

    #[test]
    fn who_takes_what_waits_keeps_less_than_who_leaves_less_of_it_for_longer() {
        let at = |second| Instant::EPOCH + Duration::from_secs(second);
        let (mut reads, mut leaves) = (Reader::default(), Reader::default());
        for second in 0..=20 {
            reads.is_too_slow(90, second * 90, (MOST, SPAN), at(second));
            leaves.is_too_slow(80, 0, (MOST, SPAN), at(second));
        }
        assert!(reads.keeps(90, at(21)) < leaves.keeps(80, at(21)));
        assert!(leaves.keeps(1, at(21)) < reads.keeps(90, at(21)), "though it is little");
        leaves.is_too_slow(0, 80, (MOST, SPAN), at(21));
        leaves.is_too_slow(80, 80, (MOST, SPAN), at(22));
        assert!(leaves.keeps(80, at(22)) < reads.keeps(90, at(22)), "nothing waited meanwhile");
    }

    #[test]
    fn who_was_sent_most_this_moment_keeps_more_than_who_reads() {
        let at = |ms| Instant::EPOCH + Duration::from_millis(ms);
        let (mut reads, mut sent) = (Reader::default(), Reader::default());
        for tenth in 0..=20 {
            reads.is_too_slow(7, tenth * 2, (MOST, SPAN), at(tenth * 100));
        }
        sent.is_too_slow(20, 0, (MOST, SPAN), at(2_000));
        assert!(reads.keeps(7, at(2_000)) < sent.keeps(20, at(2_000)));
    }

    #[test]
    fn who_took_next_to_nothing_is_idle_while_something_waits() {
        let at = |second| Instant::EPOCH + Duration::from_secs(second);
        let mut reader = Reader::default();
        let mut look = |second, waiting, taken| {
            reader.is_too_slow(waiting, taken, (MOST, SPAN), at(second));
            reader.idle(at(second)).as_secs()
        };
        let looks = [(1, 0, 0), (3, 90, 0), (6, 90, 21), (7, 89, 22), (9, 89, 43), (10, 0, 43)];
        let idle = looks.map(|(second, waiting, taken)| look(second, waiting, taken));
        assert_eq!(idle, [0, 2, 5, 0, 2, 0]);
    }

    #[test]
    fn who_has_little_waiting_may_read_as_slowly_as_it_likes() {
        assert!(!seen(&[(0, 100, 0), (100, 100, 0)]));
        assert!(!seen(&[(0, 101, 0), (9, 100, 1), (11, 101, 2), (20, 101, 3)]), "it begins anew");
    }
}
