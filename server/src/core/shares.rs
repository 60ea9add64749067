//! Whose turn it is among traffic classes that have copies waiting.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng 1996) with a start as the unit of work: each class has
//! a clock, which a start moves on by as much as the class's share is small, and the one whose clock
//! is behind is served. So of any number of starts each class that waits gets its share, whatever
//! the others ask for, and none is starved: the others' clocks pass its own. A class that had nothing
//! to do saves nothing up for later.

use super::clients::CLASSES;

/// How far a start moves the clock of a class with a share of one.
const STRIDE: u64 = 1 << 20;

/// The clocks of the classes.
#[derive(Debug)]
pub(super) struct Shares {
    shares: [u32; CLASSES],
    clocks: [u64; CLASSES],
    /// The clock of the one that was served last, when it was: nobody's turn is before that.
    now: u64,
}

impl Shares {
    /// Classes from 0 on with these shares; the configuration has checked them.
    pub(super) fn new(configured: &[u32]) -> Shares {
        let mut shares = [1; CLASSES];
        shares.iter_mut().zip(configured).for_each(|(share, configured)| *share = *configured);
        Shares { shares, clocks: [0; CLASSES], now: 0 }
    }

    /// The share of a class.
    pub(super) const fn of(&self, class: u8) -> u32 {
        self.shares[class as usize]
    }

    /// Whose turn it is of those that wait.
    pub(super) fn next(&self, waits: impl Fn(u8) -> bool) -> Option<u8> {
        let waiting = (0..CLASSES as u8).filter(|class| waits(*class));
        waiting.min_by_key(|class| self.clock(*class))
    }

    /// A copy of this class starts.
    pub(super) fn started(&mut self, class: u8) {
        self.now = self.clock(class);
        self.clocks[usize::from(class)] = self.now + STRIDE / u64::from(self.of(class));
    }

    fn clock(&self, class: u8) -> u64 {
        self.clocks[usize::from(class)].max(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each of the first two classes starts in so many turns, if both always wait.
    fn starts(shares: &mut Shares, turns: usize) -> [u32; 2] {
        let mut starts = [0; 2];
        for _ in 0..turns {
            let class = shares.next(|class| class < 2).unwrap();
            shares.started(class);
            starts[usize::from(class)] += 1;
        }
        starts
    }

    #[test]
    fn each_class_gets_its_share() {
        let mut shares = Shares::new(&[3, 1]);
        assert_eq!(starts(&mut shares, 400), [300, 100]);
        // Within a few turns, too, not only in the end.
        assert_eq!(starts(&mut shares, 4), [3, 1]);
    }

    #[test]
    fn a_class_that_was_idle_has_nothing_saved_up() {
        let mut shares = Shares::new(&[1, 1]);
        (0..1_000).for_each(|_| shares.started(0));
        assert_eq!(starts(&mut shares, 10), [5, 5]);
    }

    #[test]
    fn the_smallest_share_is_not_starved() {
        let mut shares = Shares::new(&[1000, 1]);
        assert_eq!(starts(&mut shares, 2_002), [2_000, 2]);
    }

    #[test]
    fn nobody_has_a_turn_if_nobody_waits() {
        assert_eq!(Shares::new(&[1]).next(|_| false), None);
    }
}
