//! Whether traffic classes get their shares of a core, as seen from outside.
//!
//! While two classes both have copies waiting, the starts of each, divided by its share, are never
//! further apart than one start of each (Goyal, Vin, Cheng: Start-time fair queueing, 1996,
//! theorem 1, for jobs of one size).

use std::collections::BTreeMap;

use bowline_protocol::Attempt;

use crate::kernel::net::Wire;

/// Classes that a core can have.
const CLASSES: usize = 4;

/// The starts of one core, and what waits there.
#[derive(Debug)]
pub(crate) struct Fair {
    shares: Vec<u32>,
    waiting: BTreeMap<(Attempt, Wire), u8>,
    /// Starts in this turn.
    starts: [u64; CLASSES],
    /// For each two classes, the starts of both since both have had copies waiting.
    since: [[(u64, u64); CLASSES]; CLASSES],
}

impl Fair {
    pub(crate) fn new(shares: &[u32]) -> Fair {
        Fair {
            shares: shares.to_vec(),
            waiting: BTreeMap::new(),
            starts: [0; CLASSES],
            since: Default::default(),
        }
    }

    /// A copy of a class waits from now on, unless it is refused at once.
    pub(crate) fn waits(&mut self, attempt: Attempt, wire: Wire, class: u8) {
        self.waiting.insert((attempt, wire), class);
    }

    /// It starts.
    pub(crate) fn starts(&mut self, attempt: Attempt, wire: Wire, class: u8) {
        self.waiting.remove(&(attempt, wire));
        self.starts[usize::from(class)] += 1;
    }

    /// It waits no longer.
    pub(crate) fn ends(&mut self, attempt: Attempt, wire: Wire) {
        self.waiting.remove(&(attempt, wire));
    }

    /// Nobody waits for what came on a wire.
    pub(crate) fn closed(&mut self, wire: Wire) {
        self.waiting.retain(|&(_, came_on), _| came_on != wire);
    }

    /// The turn is over, with or without copies that are held back: then nobody here knows which of
    /// those that wait could have started. Returns what is unfair, in words.
    pub(crate) fn turn_over(&mut self, is_holding: bool) -> Option<String> {
        let starts = std::mem::take(&mut self.starts);
        if self.shares.len() < 2 || is_holding {
            self.since = Default::default();
            return None;
        }
        // What waits at the end of a turn waited while it was decided who starts.
        let mut waits = [false; CLASSES];
        self.waiting.values().for_each(|&class| waits[usize::from(class)] = true);
        let mut unfair = None;
        for one in 0..self.shares.len() {
            for other in one + 1..self.shares.len() {
                let since = &mut self.since[one][other];
                if !waits[one] || !waits[other] {
                    *since = (0, 0);
                    continue;
                }
                *since = (since.0 + starts[one], since.1 + starts[other]);
                let shares = [one, other].map(|class| u64::from(self.shares[class]));
                let apart = u64::abs_diff(since.0 * shares[1], since.1 * shares[0]);
                if apart > shares[0] + shares[1] {
                    unfair = Some(format!(
                        "classes {one} and {other}, with shares of {shares:?}, had {since:?} starts"
                    ));
                }
            }
        }
        unfair
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_protocol::{ClientId, Seq};

    /// Two classes that both have a copy waiting all the time, and these starts of each a turn.
    fn run(shares: &[u32], turns: u64, starts: [u64; 2]) -> Option<String> {
        let mut fair = Fair::new(shares);
        let name = |seq| Attempt { client: ClientId(1), seq: Seq(seq), n: 0 };
        fair.waits(name(0), Wire(1), 0);
        fair.waits(name(1), Wire(1), 1);
        (0..turns).find_map(|_| {
            for (class, count) in (0..).zip(starts) {
                (0..count).for_each(|_| fair.starts(name(9), Wire(1), class));
            }
            fair.turn_over(false)
        })
    }

    #[test]
    fn starts_that_follow_the_shares_are_fair_and_others_are_not() {
        assert_eq!(run(&[3, 1], 1000, [3, 1]), None);
        assert!(run(&[3, 1], 1000, [1, 1]).is_some());
        assert!(run(&[1, 1], 3, [1, 0]).is_some(), "a class that starves");
        assert_eq!(run(&[1, 1], 1, [1, 0]), None, "one start of difference is none");
    }
}
