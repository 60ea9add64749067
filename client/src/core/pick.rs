//! Which replica is asked.
//!
//! What the rules are worth depends on the replicas. Simulated, at four fifths of what they can do: five
//! replicas of four slots each, service times exponential around 4 ms, plain calls of 10 and of 100
//! clients; p99 and p99.9 in ms. *Slow*: one takes three times as long. *Stalls*: each stands still for
//! 50 ms about once a second. *Swing*: each takes three times as long, or not, in spells of a few
//! hundred ms.
//!
//! | clients | rule                  | equal      | slow       | stalls     | swing      |
//! |---------|-----------------------|------------|------------|------------|------------|
//! | 10      | `PowerOfTwo`          | 21.3 30.6  | 55.7 91.6  | 53.7 77.6  | 128 463    |
//! | 10      | `HotCold`             | 22.6 31.6  | 42.9 74.5  | 57.7 91.7  | 151 553    |
//! | 10      | `C3 { clients: 10 }`  | 19.6 28.4  | 26.4 52.2  | 45.4 59.7  | 123 445    |
//! | 100     | `PowerOfTwo`          | 26.0 35.3  | 2360 13302 | 69.4 110   | 342 656    |
//! | 100     | `HotCold`             | 25.6 35.6  | 31.4 61.2  | 65.1 112   | 336 693    |
//! | 100     | `C3 { clients: 100 }` | 22.0 31.5  | 40.0 75.8  | 53.4 74.3  | 139 212    |
//! | 100     | `C3 { clients: 1 }`   | 23.1 32.5  | 43.0 79.2  | 60.7 103   | 375 1026   |
//!
//! (200 000 calls each, of which the first tenth is left out: made by `BOWLINE_CALLS=200000 cargo test
//! --release -p bowline-tests --test simulated picking:: -- --nocapture`, which also runs as a test. The
//! slow replica of 100 clients that each know little of it is overrun by `PowerOfTwo`: its queue grows
//! without end.)

use core::time::Duration;

use bowline_time::Instant;

use super::config::{ConfigError, check};
use super::random::Random;
use super::replicas::{Replica, Replicas};

/// How to choose among the replicas that may be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PickRule {
    /// Of two drawn at random the one with less to do (Mitzenmacher: The power of two choices in
    /// randomized load balancing, 2001).
    #[default]
    PowerOfTwo,
    /// Of two drawn at random the faster one, unless that has more in flight than most replicas
    /// have: then the one with less (Wydrowski and others: Load is not what you should balance,
    /// 2024). For replicas that are unlike, or slow in turn.
    HotCold,
    /// Of all the one that would serve one more the soonest, by what its answers took and by the cube
    /// of what is before it, with what is in flight counted for each of so many clients (Suresh and
    /// others: C3: Cutting tail latency in cloud data stores via adaptive replica selection, 2015).
    /// For replicas that are unlike, slow in turn or stall, and for many clients of which each knows
    /// little: if their number is known. Set far too low, it does little for replicas that are slow in
    /// turn.
    C3 {
        /// How many clients there are, each core of each of them being one. 1 to 10000.
        clients: u16,
    },
    /// One after the other.
    RoundRobin,
    /// The first in the order in which they were added.
    First,
}

impl PickRule {
    pub(crate) fn validate(self) -> Result<(), ConfigError> {
        let PickRule::C3 { clients } = self else { return Ok(()) };
        check("pick.c3.clients", clients, (1..=10_000).contains(&clients), "1 to 10000")
    }
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

/// How well a replica suits, the lower the better. Only the best are chosen from; None: not at all,
/// as it is not connected, or for another reason.
pub(crate) type Rank = Option<u8>;

/// The choice.
#[derive(Debug)]
pub(crate) struct Picker {
    rule: PickRule,
    random: Random,
    turn: u16,
    warm_up: Duration,
    hot: Hot,
}

/// What is much to have in flight, as replicas report it.
#[derive(Debug)]
struct Hot {
    reports: [u32; REPORTS],
    count: usize,
    /// More than this is much.
    above: u32,
}

/// So many reports decide what is much; half of them are new each time.
const REPORTS: usize = 64;
/// The share of reports that are not much: the median of what that paper recommends.
const COLD: f64 = 0.84;

impl Hot {
    fn report(&mut self, in_flight: u32) {
        self.reports[self.count % REPORTS] = in_flight;
        self.count += 1;
        if self.count.is_multiple_of(REPORTS / 2) {
            let mut sorted = self.reports;
            let known = &mut sorted[..self.count.min(REPORTS)];
            known.sort_unstable();
            self.above = known[(known.len() as f64 * COLD) as usize];
        }
    }
}

impl Picker {
    pub(crate) fn new(rule: PickRule, warm_up: Duration, seed: u64) -> Picker {
        let hot = Hot { reports: [0; REPORTS], count: 0, above: u32::MAX };
        Picker { rule, random: Random::new(seed), turn: 0, warm_up, hot }
    }

    /// Chooses by this from now on.
    pub(crate) fn follow(&mut self, rule: PickRule, warm_up: Duration) {
        (self.rule, self.warm_up) = (rule, warm_up);
    }

    /// Replicas are picked by what their answers take.
    pub(crate) const fn is_by_timing(&self) -> bool {
        matches!(self.rule, PickRule::C3 { .. })
    }

    /// A replica reported so much in flight.
    pub(crate) fn report(&mut self, in_flight: u32) {
        if self.rule == PickRule::HotCold {
            self.hot.report(in_flight);
        }
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
        for (place, replica) in replicas.iter() {
            let Some(rank) = rank(place, replica) else { continue };
            let warming = !matches!(order, Order::Key(_)) && self.is_spared(replica, now);
            let rank = u16::from(replica.health.is_out(now)) << 10
                | u16::from(now < replica.spare_until) << 9
                | u16::from(rank) << 1
                | u16::from(warming);
            if rank > best {
                continue;
            }
            if rank < best {
                (best, found) = (rank, 0);
            }
            match order {
                Order::Key(key) => {
                    let weight = weight(key, replica);
                    if found == 0 || weight > highest {
                        (drawn[0], highest) = (place, weight);
                    }
                }
                Order::First | Order::Extra => self.draw(&mut drawn, found, place, replicas, now),
            }
            found += 1;
        }
        match (self.rule, found) {
            (_, 0) => None,
            _ if matches!(order, Order::Key(_)) => Some(drawn[0]),
            (PickRule::PowerOfTwo | PickRule::HotCold, 2..) => {
                Some(self.better(replicas, drawn, now))
            }
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
    fn draw(
        &mut self,
        drawn: &mut [u16; 2],
        found: u32,
        place: u16,
        replicas: &Replicas,
        now: Instant,
    ) {
        match self.rule {
            PickRule::C3 { .. } if found == 0 => drawn[0] = place,
            PickRule::C3 { .. } => drawn[0] = self.better(replicas, [drawn[0], place], now),
            // Two at random out of a stream of unknown length (Vitter's reservoir), of which
            // neither place is the better one.
            PickRule::PowerOfTwo | PickRule::HotCold if found < 2 => drawn[found as usize] = place,
            PickRule::PowerOfTwo | PickRule::HotCold => {
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

    /// It was connected a moment ago, and this call is not of the share that it has by now.
    fn is_spared(&mut self, replica: &Replica, now: Instant) -> bool {
        if self.warm_up.is_zero() {
            return false;
        }
        let warm = replica.warm_since.map_or(Duration::ZERO, |since| now - since);
        if warm >= self.warm_up {
            return false;
        }
        let share = (warm.as_nanos() * 1024 / self.warm_up.as_nanos()) as u32;
        self.random.below(1024) >= share.max(1024 / 8)
    }

    fn better(&mut self, replicas: &Replicas, [one, two]: [u16; 2], now: Instant) -> u16 {
        let order = match self.rule {
            PickRule::HotCold => {
                let of = |place| self.heat(replicas.get(place), now);
                of(one).partial_cmp(&of(two)).unwrap_or(core::cmp::Ordering::Equal)
            }
            PickRule::C3 { clients } => {
                let of = |place| {
                    let it = replicas.get(place);
                    it.timing.score(it.in_flight, it.placement.weight, clients, now)
                };
                of(one).total_cmp(&of(two))
            }
            _ => {
                let [one, two] = [one, two].map(|place| replicas.get(place));
                let score = |it: &Replica| it.score(now) + 1;
                // The more to do for its weight; as fractions over each other's.
                let [light, heavy] = [one, two].map(|it| u32::from(it.placement.weight));
                (score(one) * heavy).cmp(&(score(two) * light))
            }
        };
        match order {
            core::cmp::Ordering::Less => one,
            core::cmp::Ordering::Greater => two,
            core::cmp::Ordering::Equal => [one, two][self.random.below(2) as usize],
        }
    }

    /// Hot ones by what they have in flight, after all cold ones by how slow they are.
    fn heat(&self, replica: &Replica, now: Instant) -> (bool, f64) {
        let in_flight = replica.in_flight_there(now);
        let hot = in_flight > self.hot.above;
        (hot, if hot { f64::from(in_flight) } else { replica.slowness })
    }
}

/// Of those that may be asked, a key goes to the replica for which this is highest (Thaler,
/// Ravishankar: Using name-based mappings to increase hit rates, 1998): one that comes or goes
/// moves no key between the others. A replica of more weight draws more often.
fn weight(key: u64, replica: &Replica) -> u64 {
    let mut draws = Random::new(Random::new(key).next() ^ u64::from(replica.id.0));
    (0..replica.placement.weight).map(|_| draws.next()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use bowline_protocol::{Load, ReplicaId, Station};

    use crate::core::placement::Placement;

    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);
    const LIFETIME: Duration = Duration::from_millis(100);

    fn replicas(count: u16) -> Replicas {
        let mut replicas = Replicas::new(usize::MAX);
        for id in (0..count).map(ReplicaId) {
            replicas.add(id, u32::from(id.0));
            let place = replicas.find(id).unwrap();
            replicas.get_mut(place).station = Some(Station { replica: id, core: 0 });
        }
        replicas
    }

    /// All that are connected are alike.
    fn connected(_: u16, replica: &Replica) -> Rank {
        replica.is_open().then_some(0)
    }

    fn shares(
        rule: PickRule,
        replicas: &Replicas,
        rank: impl Fn(u16, &Replica) -> Rank,
    ) -> [u32; 4] {
        let mut picker = Picker::new(rule, Duration::ZERO, 9);
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
            for share in shares(rule, &alike, connected) {
                assert!((900..1100).contains(&share), "{rule:?}: {share}");
            }
        }
        assert_eq!(shares(PickRule::First, &alike, connected), [4000, 0, 0, 0]);
    }

    #[test]
    fn of_two_the_one_with_more_in_flight_is_left() {
        let mut two = replicas(2);
        two.get_mut(0).in_flight = 3;
        assert_eq!(shares(PickRule::PowerOfTwo, &two, connected), [0, 4000, 0, 0]);
    }

    #[test]
    fn a_reported_load_counts_while_it_is_fresh() {
        let mut two = replicas(2);
        let load = Load { running: 1, queued: 7, wait: Duration::ZERO };
        two.get_mut(0).heard(load, LIFETIME, NOW);
        assert_eq!(shares(PickRule::PowerOfTwo, &two, connected)[0], 0);
        two.get_mut(0).heard(load, LIFETIME, NOW - LIFETIME);
        assert!(shares(PickRule::PowerOfTwo, &two, connected)[0] > 1500);
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
        assert_eq!(shares(PickRule::PowerOfTwo, &two, connected), [0, 4000, 0, 0]);
        two.get_mut(1).station = None;
        assert_eq!(shares(PickRule::PowerOfTwo, &two, connected), [4000, 0, 0, 0]);
    }

    #[test]
    fn second_copies_do_not_move_the_turn() {
        let three = replicas(3);
        let mut picker = Picker::new(PickRule::RoundRobin, Duration::ZERO, 9);
        let mut pairs = Vec::new();
        for _ in 0..6 {
            let first = picker.pick(&three, NOW, Order::First, connected).unwrap();
            let other = |place, _: &Replica| (place != first).then_some(0);
            pairs.push((first, picker.pick(&three, NOW, Order::Extra, other).unwrap()));
        }
        assert_eq!(pairs, [(0, 1), (1, 2), (2, 0), (0, 1), (1, 2), (2, 0)]);
    }

    #[test]
    fn a_key_has_an_order_of_the_replicas_which_others_do_not_disturb() {
        let mut four = replicas(4);
        let mut picker = Picker::new(PickRule::RoundRobin, Duration::ZERO, 9);
        let keys = 0..4000;
        let firsts: Vec<u16> = keys
            .clone()
            .map(|key| picker.pick(&four, NOW, Order::Key(key), connected).unwrap())
            .collect();
        for replica in 0..4 {
            let share = firsts.iter().filter(|&&first| first == replica).count();
            assert!((900..1100).contains(&share), "{share}");
        }
        let mut others = Picker::new(PickRule::PowerOfTwo, Duration::ZERO, 1);
        four.get_mut(2).station = None;
        for (key, &first) in keys.zip(&firsts) {
            let now = others.pick(&four, NOW, Order::Key(key), connected).unwrap();
            assert!(if first == 2 { now != 2 } else { now == first });
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_picks() {
        let four = replicas(4);
        let picks = |seed| {
            let mut picker = Picker::new(PickRule::PowerOfTwo, Duration::ZERO, seed);
            (0..50).map(|_| picker.pick(&four, NOW, Order::First, connected)).collect::<Vec<_>>()
        };
        assert_eq!(picks(1), picks(1));
        assert_ne!(picks(1), picks(2));
    }

    fn placed(weights: &[u8]) -> Replicas {
        let mut replicas = replicas(weights.len() as u16);
        for (id, &weight) in (0..).zip(weights) {
            replicas.place(ReplicaId(id), Placement { weight, ..Placement::default() });
        }
        replicas
    }

    #[test]
    fn a_key_falls_to_replicas_in_proportion_to_their_weights() {
        let three = placed(&[1, 2, 5]);
        let mut picker = Picker::new(PickRule::First, Duration::ZERO, 9);
        let mut shares = [0; 3];
        for key in 0..8000 {
            let place = picker.pick(&three, NOW, Order::Key(key), connected).unwrap();
            shares[usize::from(place)] += 1;
        }
        for (share, expected) in shares.into_iter().zip([1000, 2000, 5000]) {
            assert!((expected * 9 / 10..expected * 11 / 10).contains(&share), "{shares:?}");
        }
    }

    #[test]
    fn a_heavier_replica_has_as_much_more_in_flight() {
        let mut two = placed(&[1, 3]);
        let mut picker = Picker::new(PickRule::PowerOfTwo, Duration::ZERO, 9);
        for _ in 0..400 {
            let place = picker.pick(&two, NOW, Order::First, connected).unwrap();
            two.get_mut(place).in_flight += 1;
        }
        let in_flight = [0, 1].map(|place| two.get(place).in_flight);
        assert!((98..=102).contains(&in_flight[0]), "{in_flight:?}");
    }

    #[test]
    fn a_replica_that_is_new_warms_up_to_its_share_and_is_neither_flooded_nor_forgotten() {
        let warm_up = Duration::from_secs(1);
        let mut two = replicas(2);
        two.get_mut(0).warm_since = Some(NOW - warm_up);
        let share = |two: &Replicas| {
            let mut picker = Picker::new(PickRule::PowerOfTwo, warm_up, 9);
            let picks = (0..4000).map(|_| picker.pick(two, NOW, Order::First, connected));
            picks.filter(|&place| place == Some(1)).count()
        };
        // Half of what it is drawn for is its own without a warm-up.
        assert!((150..350).contains(&share(&two)), "an eighth of a half: {}", share(&two));
        two.get_mut(1).warm_since = Some(NOW - warm_up / 2);
        assert!((850..1150).contains(&share(&two)), "half of a half: {}", share(&two));
        two.get_mut(1).warm_since = Some(NOW - warm_up);
        assert!((1850..2150).contains(&share(&two)), "{}", share(&two));
        two.get_mut(1).warm_since = None;
        two.get_mut(0).station = None;
        assert_eq!(share(&two), 4000, "there is no other");
    }

    #[test]
    fn an_ejected_replica_is_asked_only_if_there_is_no_other_not_even_a_busy_one() {
        let mut two = replicas(2);
        two.get_mut(1).spare_until = NOW + LIFETIME;
        let rule = crate::core::EjectConfig { after: 1, ..Default::default() };
        assert!(two.get_mut(0).health.failed(&rule, NOW));
        assert_eq!(shares(PickRule::PowerOfTwo, &two, connected), [0, 4000, 0, 0]);
        two.get_mut(1).station = None;
        assert_eq!(shares(PickRule::PowerOfTwo, &two, connected), [4000, 0, 0, 0]);
    }

    #[test]
    fn cold_replicas_are_taken_by_their_speed_and_hot_ones_by_what_they_have_to_do() {
        let mut two = replicas(2);
        two.get_mut(0).slowness = 2.0;
        let mut picker = Picker::new(PickRule::HotCold, Duration::ZERO, 9);
        for report in (0..100).map(|n| n % 10) {
            picker.report(report);
        }
        let mut pick = |two: &Replicas| picker.pick(two, NOW, Order::First, connected);
        two.get_mut(1).heard(Load { running: 8, queued: 0, wait: Duration::ZERO }, LIFETIME, NOW);
        assert_eq!(pick(&two), Some(1), "it is faster, and eight are not much");
        two.get_mut(1).heard(Load { running: 8, queued: 4, wait: Duration::ZERO }, LIFETIME, NOW);
        assert_eq!(pick(&two), Some(0), "twelve are");
        two.get_mut(0).in_flight = 30;
        assert_eq!(pick(&two), Some(1), "and thirty are more");
    }

    #[test]
    fn a_report_that_was_gone_by_too_often_is_as_good_as_none() {
        let mut replica = replicas(1);
        let replica = replica.get_mut(0);
        replica.heard(Load { running: 8, queued: 0, wait: Duration::ZERO }, LIFETIME, NOW);
        for _ in 0..32 {
            assert_eq!(replica.in_flight_there(NOW), 8);
            replica.uses -= 1;
        }
        assert_eq!(replica.in_flight_there(NOW), 0);
    }

    #[test]
    fn the_best_of_all_by_what_answers_take_is_taken_and_one_that_is_new_is_not_flooded() {
        let mut three = replicas(3);
        let rule = PickRule::C3 { clients: 1 };
        let mut picker = Picker::new(rule, Duration::ZERO, 9);
        let mut pick = |three: &Replicas| picker.pick(three, NOW, Order::First, connected);
        for (place, ms) in [(0, 8), (1, 2), (2, 4)] {
            let timing = &mut three.get_mut(place).timing;
            timing.answered(Duration::from_millis(ms), Load::default(), NOW);
        }
        assert_eq!(pick(&three), Some(1));
        three.get_mut(1).in_flight = 1;
        assert_eq!(pick(&three), Some(2), "eight times two is more than four");
        three.get_mut(0).timing = Default::default();
        assert_eq!(pick(&three), Some(0), "nothing is known of it");
        three.get_mut(0).in_flight = 1;
        assert_eq!(pick(&three), Some(2));
    }
}
