//! Which replica is asked.

use core::time::Duration;

use bowline_protocol::ReplicaId;
use bowline_time::Instant;

use super::random::Random;
use super::replicas::{Replica, Replicas};

/// How to choose among the replicas that may be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PickRule {
    /// Of two drawn at random the one with less to do (Mitzenmacher: The power of two choices in
    /// randomized load balancing, 2001).
    #[default]
    PowerOfTwo,
    /// One after the other.
    RoundRobin,
    /// The first in the order in which they were added.
    First,
}

/// Which copy of a call a replica is picked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// The first. Only these move the round robin on: if second copies did, two tied replicas
    /// would get all of the firsts and all of the seconds.
    First,
    /// A later one.
    Extra,
    /// Any, of a call with a key: the key has an order of the replicas.
    Key(u64),
}

/// How well a replica suits, the lower the better. Only the best of those connected are chosen
/// from; None: not at all.
pub(crate) type Rank = Option<u8>;

/// The choice.
#[derive(Debug)]
pub(crate) struct Picker {
    rule: PickRule,
    lifetime: Duration,
    random: Random,
    turn: u16,
}

impl Picker {
    pub(crate) fn new(rule: PickRule, lifetime: Duration, seed: u64) -> Picker {
        Picker { rule, lifetime, random: Random::new(seed), turn: 0 }
    }

    /// The place of the replica to ask. One that asked to be spared is worse than any that did
    /// not, whatever its rank.
    pub(crate) fn pick(
        &mut self,
        replicas: &Replicas,
        now: Instant,
        order: Order,
        rank: impl Fn(u16, &Replica) -> Rank,
    ) -> Option<u16> {
        let mut best = u16::MAX;
        let mut found = 0;
        let mut drawn = [0; 2];
        let mut highest = 0;
        for (place, replica) in replicas.iter().filter(|(_, replica)| replica.is_open()) {
            let Some(rank) = rank(place, replica) else { continue };
            let rank = u16::from(rank) + if now < replica.spare_until { 1 << 8 } else { 0 };
            if rank > best {
                continue;
            }
            if rank < best {
                (best, found) = (rank, 0);
            }
            match order {
                Order::Key(key) => {
                    let weight = weight(key, replica.id);
                    if found == 0 || weight > highest {
                        (drawn[0], highest) = (place, weight);
                    }
                }
                Order::First | Order::Extra => self.draw(&mut drawn, found, place),
            }
            found += 1;
        }
        match (self.rule, found) {
            (_, 0) => None,
            _ if matches!(order, Order::Key(_)) => Some(drawn[0]),
            (PickRule::PowerOfTwo, 2..) => Some(self.lighter(replicas, drawn, now)),
            (PickRule::RoundRobin, _) if order == Order::First => {
                self.turn = drawn[0] + 1;
                Some(drawn[0])
            }
            _ => Some(drawn[0]),
        }
    }

    /// A number from `0..bound`, of the same stream as the picks.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.random.below(bound)
    }

    /// Considers `place`, before which `found` others of the same rank were.
    fn draw(&mut self, drawn: &mut [u16; 2], found: u32, place: u16) {
        match self.rule {
            // Two at random out of a stream of unknown length (Vitter's reservoir), of which
            // neither place is the better one.
            PickRule::PowerOfTwo if found < 2 => drawn[found as usize] = place,
            PickRule::PowerOfTwo => {
                let at = self.random.below(found + 1);
                if at < 2 {
                    drawn[at as usize] = place;
                }
            }
            // The first at or after the turn; else the first of all.
            PickRule::RoundRobin if found == 0 => drawn[0] = place,
            PickRule::RoundRobin if drawn[0] < self.turn && place >= self.turn => drawn[0] = place,
            PickRule::RoundRobin => {}
            PickRule::First if found == 0 => drawn[0] = place,
            PickRule::First => {}
        }
    }

    fn lighter(&mut self, replicas: &Replicas, [one, two]: [u16; 2], now: Instant) -> u16 {
        let score = |place| replicas.get(place).score(self.lifetime, now);
        match score(one).cmp(&score(two)) {
            core::cmp::Ordering::Less => one,
            core::cmp::Ordering::Greater => two,
            core::cmp::Ordering::Equal => [one, two][self.random.below(2) as usize],
        }
    }
}

/// Of those that may be asked, a key goes to the replica for which this is highest (Thaler,
/// Ravishankar: Using name-based mappings to increase hit rates, 1998): one that comes or goes
/// moves no key between the others.
const fn weight(key: u64, id: ReplicaId) -> u64 {
    let mixed = Random::new(key).next();
    Random::new(mixed ^ id.0 as u64).next()
}

#[cfg(test)]
mod tests {
    use bowline_protocol::{Load, Station};

    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);
    const LIFETIME: Duration = Duration::from_millis(100);

    fn replicas(count: u16) -> Replicas {
        let mut replicas = Replicas::default();
        for id in (0..count).map(ReplicaId) {
            replicas.add(id, u32::from(id.0));
            let place = replicas.find(id).unwrap();
            replicas.get_mut(place).station = Some(Station { replica: id, core: 0 });
        }
        replicas
    }

    fn shares(
        rule: PickRule,
        replicas: &Replicas,
        rank: impl Fn(u16, &Replica) -> Rank,
    ) -> [u32; 4] {
        let mut picker = Picker::new(rule, LIFETIME, 9);
        let mut shares = [0; 4];
        for _ in 0..4000 {
            if let Some(place) = picker.pick(replicas, NOW, Order::First, &rank) {
                shares[usize::from(place)] += 1;
            }
        }
        shares
    }

    #[test]
    fn replicas_that_are_alike_get_alike_shares() {
        let alike = replicas(4);
        for rule in [PickRule::PowerOfTwo, PickRule::RoundRobin] {
            for share in shares(rule, &alike, |_, _| Some(0)) {
                assert!((900..1100).contains(&share), "{rule:?}: {share}");
            }
        }
        assert_eq!(shares(PickRule::First, &alike, |_, _| Some(0)), [4000, 0, 0, 0]);
    }

    #[test]
    fn of_two_the_one_with_more_in_flight_is_left() {
        let mut two = replicas(2);
        two.get_mut(0).in_flight = 3;
        assert_eq!(shares(PickRule::PowerOfTwo, &two, |_, _| Some(0)), [0, 4000, 0, 0]);
    }

    #[test]
    fn a_reported_load_counts_while_it_is_fresh() {
        let mut two = replicas(2);
        let load = Load { running: 1, queued: 7, wait: Duration::ZERO };
        two.get_mut(0).heard(load, NOW);
        assert_eq!(shares(PickRule::PowerOfTwo, &two, |_, _| Some(0))[0], 0);
        two.get_mut(0).heard(load, NOW - LIFETIME);
        assert!(shares(PickRule::PowerOfTwo, &two, |_, _| Some(0))[0] > 1500);
    }

    #[test]
    fn only_the_best_rank_is_chosen_from_and_the_excluded_never() {
        let four = replicas(4);
        let rank = |place, _: &Replica| [None, Some(1), Some(0), Some(0)][usize::from(place)];
        for rule in [PickRule::PowerOfTwo, PickRule::RoundRobin, PickRule::First] {
            let [excluded, worse, best, _] = shares(rule, &four, rank);
            assert_eq!((excluded, worse), (0, 0));
            assert!(best > 0);
        }
        let none = |_, _: &Replica| None;
        assert_eq!(shares(PickRule::PowerOfTwo, &four, none), [0; 4]);
    }

    #[test]
    fn one_that_asked_to_be_spared_is_asked_only_if_there_is_no_other() {
        let mut two = replicas(2);
        two.get_mut(0).spare_until = NOW + LIFETIME;
        assert_eq!(shares(PickRule::PowerOfTwo, &two, |_, _| Some(0)), [0, 4000, 0, 0]);
        two.get_mut(1).station = None;
        assert_eq!(shares(PickRule::PowerOfTwo, &two, |_, _| Some(0)), [4000, 0, 0, 0]);
    }

    #[test]
    fn second_copies_do_not_move_the_turn() {
        let three = replicas(3);
        let mut picker = Picker::new(PickRule::RoundRobin, LIFETIME, 9);
        let mut pairs = Vec::new();
        for _ in 0..6 {
            let first = picker.pick(&three, NOW, Order::First, |_, _| Some(0)).unwrap();
            let other = |place, _: &Replica| (place != first).then_some(0);
            pairs.push((first, picker.pick(&three, NOW, Order::Extra, other).unwrap()));
        }
        assert_eq!(pairs, [(0, 1), (1, 2), (2, 0), (0, 1), (1, 2), (2, 0)]);
    }

    #[test]
    fn a_key_has_an_order_of_the_replicas_which_others_do_not_disturb() {
        let mut four = replicas(4);
        let mut picker = Picker::new(PickRule::RoundRobin, LIFETIME, 9);
        let keys = 0..4000;
        let firsts: Vec<u16> = keys
            .clone()
            .map(|key| picker.pick(&four, NOW, Order::Key(key), |_, _| Some(0)).unwrap())
            .collect();
        for replica in 0..4 {
            let share = firsts.iter().filter(|&&first| first == replica).count();
            assert!((900..1100).contains(&share), "{share}");
        }
        let mut others = Picker::new(PickRule::PowerOfTwo, LIFETIME, 1);
        four.get_mut(2).station = None;
        for (key, &first) in keys.zip(&firsts) {
            let now = others.pick(&four, NOW, Order::Key(key), |_, _| Some(0)).unwrap();
            assert!(if first == 2 { now != 2 } else { now == first });
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_picks() {
        let four = replicas(4);
        let picks = |seed| {
            let mut picker = Picker::new(PickRule::PowerOfTwo, LIFETIME, seed);
            (0..50)
                .map(|_| picker.pick(&four, NOW, Order::First, |_, _| Some(0)))
                .collect::<Vec<_>>()
        };
        assert_eq!(picks(1), picks(1));
        assert_ne!(picks(1), picks(2));
    }
}
