//! The course of a comparison: every policy has its turn in every round.
//!
//! Interleaved, so that what disturbs the machine for a while disturbs all of them alike; each round
//! begins with the next policy (A B C, B C A), so that none always follows the same one. Within a
//! round all have the same calls at the same times under the same stalls; the next round has others,
//! so that the spread over the rounds tells how much hangs on them.

use core::time::Duration;

use crate::cli::Policy;
use crate::faults::{Plan, StallModel};
use crate::interrupt::Interrupt;
use crate::random::Random;
use crate::schedule::{Load, Schedule};
use crate::stats::{Rounds, Slice};

/// Something that can give a policy its turn.
pub trait Driver {
    /// Why a turn failed as a whole; that calls fail is no such reason.
    type Error;

    /// Sends the calls of `round` under `policy` while replicas stall as it says, waits for them
    /// to end, and says what was measured. Ends early, with what it has, once the user has asked;
    /// tells `progress` how much of the schedule's time has passed.
    ///
    /// # Errors
    /// Nothing could be measured.
    fn turn(
        &mut self,
        policy: Policy,
        round: &Round,
        progress: &mut dyn FnMut(Duration),
    ) -> Result<Slice, Self::Error>;
}

/// What happens in one round, to every policy alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// Its number: from 1, or 0 for warming up.
    pub number: u32,
    /// The calls.
    pub schedule: Schedule,
    /// The stalls.
    pub plan: Plan,
    /// Call number `n` of the schedule draws its time on a replica by this plus `n`.
    pub draws: u64,
}

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Course {
    /// The policies, in their order in the first round.
    pub policies: Vec<Policy>,
    /// How many rounds.
    pub rounds: u32,
    /// Names all rounds.
    pub seed: u64,
    /// The calls of each turn.
    pub load: Load,
    /// The stalls of each turn.
    pub stalls: StallModel,
    /// How many replicas may stall.
    pub replicas: usize,
}

/// Where a course is, for a reader who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The round, from 1.
    pub round: u32,
    /// Whose turn it is.
    pub policy: Policy,
    /// Time of calls behind, over all turns.
    pub elapsed: Duration,
}

impl Course {
    /// Time of calls in all turns.
    pub fn duration(&self) -> Duration {
        self.load.duration * self.rounds * self.policies.len() as u32
    }

    /// Draws a round; the same number gives the same one. The rounds of a run have numbers from 1;
    /// number 0 is there for warming up.
    pub fn round(&self, number: u32) -> Round {
        let seed = Random::new(self.seed.wrapping_add(u64::from(number)), "round").bits();
        Round {
            number,
            schedule: Schedule::draw(seed, &self.load),
            plan: Plan::draw(seed, &self.stalls, self.replicas, self.load.duration),
            draws: seed,
        }
    }

    /// Runs all turns, or those before the user asked to end.
    ///
    /// A round that was cut short is left out if a whole one came before it: its policies have
    /// not seen the same calls. In the first round it is all there is, and stays.
    ///
    /// # Errors
    /// The driver's.
    pub fn run<D: Driver>(
        &self,
        driver: &mut D,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(Position),
    ) -> Result<Vec<Rounds>, D::Error> {
        let empty = |policy: &Policy| Rounds { policy: policy.name().into(), slices: Vec::new() };
        let mut results: Vec<Rounds> = self.policies.iter().map(empty).collect();
        let mut before = Duration::ZERO;
        for round in 1..=self.rounds {
            let drawn = self.round(round);
            for index in order(round as usize - 1, self.policies.len()) {
                let (policy, rounds) = (self.policies[index], &mut results[index]);
                if interrupt.asked() {
                    break;
                }
                let mut tell = |elapsed| {
                    progress(Position { round, policy, elapsed: before + elapsed });
                };
                tell(Duration::ZERO);
                rounds.slices.push(driver.turn(policy, &drawn, &mut tell)?);
                before += self.load.duration;
            }
            if interrupt.asked() {
                // The signal may also have come after the last turn, and cut nothing short.
                leave_out_round(&mut results, round, self.load.duration);
                break;
            }
        }
        Ok(results)
    }
}

/// The policies' indices in the order of their turns in a round, with rounds counted from 0.
pub fn order(round: usize, policies: usize) -> impl Iterator<Item = usize> {
    (0..policies).map(move |turn| (turn + round) % policies)
}

/// Drops the slices of `round` if one is missing or too short, unless it is the first.
fn leave_out_round(results: &mut [Rounds], round: u32, whole: Duration) {
    let (index, first) = (round as usize - 1, round == 1);
    let complete = |rounds: &Rounds| rounds.slices.get(index).is_some_and(|s| s.duration >= whole);
    if !first && !results.iter().all(complete) {
        results.iter_mut().for_each(|rounds| rounds.slices.truncate(index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Pattern;
    use crate::schedule::Arrivals;

    const TURN: Duration = Duration::from_secs(2);

    /// Notes whose turn it was; the user asks to end in the middle of turn number `ask_at`.
    struct Fake {
        turns: Vec<Policy>,
        rounds: Vec<Round>,
        ask_at: Option<usize>,
        interrupt: Interrupt,
    }

    impl Driver for Fake {
        type Error = String;

        fn turn(
            &mut self,
            policy: Policy,
            round: &Round,
            progress: &mut dyn FnMut(Duration),
        ) -> Result<Slice, String> {
            self.turns.push(policy);
            self.rounds.push(round.clone());
            progress(TURN / 2);
            let mut slice = Slice::new(TURN);
            slice.duration = round.schedule.duration();
            if self.ask_at == Some(self.turns.len()) {
                self.interrupt.ask();
                slice.duration = TURN / 2;
            }
            Ok(slice)
        }
    }

    fn course() -> Course {
        let load =
            Load { rate_per_s: 100.0, duration: TURN, arrivals: Arrivals::Poisson, blocks: 10 };
        Course {
            policies: vec![Policy::None, Policy::Hedged, Policy::Tied],
            rounds: 3,
            seed: 1,
            load,
            stalls: StallModel {
                pattern: Pattern::Independent,
                length: Duration::from_millis(20),
                gap: Duration::from_millis(100),
            },
            replicas: 3,
        }
    }

    /// Runs a course that is interrupted in that turn; slices a policy, and the turns taken.
    fn run(ask_at: Option<usize>) -> (Vec<usize>, Fake, Vec<Position>) {
        let interrupt = Interrupt::default();
        let mut fake =
            Fake { turns: Vec::new(), rounds: Vec::new(), ask_at, interrupt: interrupt.clone() };
        let mut positions = Vec::new();
        let results = course()
            .run(&mut fake, &interrupt, &mut |position| positions.push(position))
            .expect("the fake never fails");
        (results.iter().map(|rounds| rounds.slices.len()).collect(), fake, positions)
    }

    #[test]
    fn policies_take_turns_within_each_round_and_begin_it_in_turn() {
        let (slices, fake, positions) = run(None);
        assert_eq!(slices, [3, 3, 3]);
        let (none, hedged, tied) = (Policy::None, Policy::Hedged, Policy::Tied);
        let turns = [none, hedged, tied, hedged, tied, none, tied, none, hedged];
        assert_eq!(fake.turns, turns);
        assert!(positions.is_sorted_by_key(|position| position.elapsed));
        let last = positions.last().expect("turns were taken");
        assert_eq!((last.round, last.policy), (3, Policy::Hedged));
        assert_eq!(last.elapsed, course().duration() - TURN / 2);
    }

    #[test]
    fn all_policies_of_a_round_see_the_same_and_every_round_something_else() {
        let (_, fake, _) = run(None);
        for round in fake.rounds.chunks(3) {
            assert!(round.iter().all(|turn| turn == &round[0]));
        }
        let (first, second) = (&fake.rounds[0], &fake.rounds[3]);
        assert_ne!(first.schedule, second.schedule);
        assert_ne!(first.plan, second.plan);
        assert_ne!(first.draws, second.draws);
        assert_eq!(first, &course().round(1), "a seed names its rounds for ever");
    }

    #[test]
    fn a_round_that_was_cut_short_is_left_out() {
        let (slices, fake, _) = run(Some(5));
        assert_eq!(slices, [1, 1, 1]);
        assert_eq!(fake.turns.len(), 5, "no turn begins after the user has asked");
    }

    #[test]
    fn the_first_round_is_kept_however_short() {
        let (slices, ..) = run(Some(2));
        assert_eq!(slices, [1, 1, 0]);
    }
}
