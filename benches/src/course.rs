//! The course of a comparison: every policy has its turn in every round.
//!
//! Interleaved (A B C, A B C), so that what disturbs the machine for a while disturbs all of them
//! alike, and each turn with the same calls at the same times under the same stalls.

use core::time::Duration;

use crate::cli::Policy;
use crate::faults::Plan;
use crate::interrupt::Interrupt;
use crate::schedule::Schedule;
use crate::stats::{Rounds, Slice};

/// Something that can give a policy its turn.
pub trait Driver {
    /// Why a turn failed as a whole; that calls fail is no such reason.
    type Error;

    /// Sends the calls of `schedule` under `policy` while replicas stall by `plan`, waits for
    /// them to end, and says what was measured. Ends early, with what it has, once the user has
    /// asked; tells `progress` how much of the schedule's time has passed.
    ///
    /// # Errors
    /// Nothing could be measured.
    fn turn(
        &mut self,
        policy: Policy,
        schedule: &Schedule,
        plan: &Plan,
        progress: &mut dyn FnMut(Duration),
    ) -> Result<Slice, Self::Error>;
}

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Course {
    /// The policies, in their order within a round.
    pub policies: Vec<Policy>,
    /// How many rounds.
    pub rounds: u32,
    /// The calls of each turn.
    pub schedule: Schedule,
    /// The stalls of each turn.
    pub plan: Plan,
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
        self.schedule.duration() * self.rounds * self.policies.len() as u32
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
            for (&policy, rounds) in self.policies.iter().zip(&mut results) {
                if interrupt.asked() {
                    break;
                }
                let mut tell = |elapsed| {
                    progress(Position { round, policy, elapsed: before + elapsed });
                };
                tell(Duration::ZERO);
                rounds.slices.push(driver.turn(policy, &self.schedule, &self.plan, &mut tell)?);
                before += self.schedule.duration();
            }
            if interrupt.asked() {
                // The signal may also have come after the last turn, and cut nothing short.
                leave_out_round(&mut results, round, self.schedule.duration());
                break;
            }
        }
        Ok(results)
    }
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
    use crate::schedule::{Arrivals, Load};

    const TURN: Duration = Duration::from_secs(2);

    /// Notes whose turn it was; the user asks to end in the middle of turn number `ask_at`.
    struct Fake {
        turns: Vec<Policy>,
        ask_at: Option<usize>,
        interrupt: Interrupt,
    }

    impl Driver for Fake {
        type Error = String;

        fn turn(
            &mut self,
            policy: Policy,
            schedule: &Schedule,
            _plan: &Plan,
            progress: &mut dyn FnMut(Duration),
        ) -> Result<Slice, String> {
            self.turns.push(policy);
            progress(TURN / 2);
            let mut slice = Slice::new(TURN);
            slice.duration = schedule.duration();
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
            schedule: Schedule::draw(1, &load),
            plan: Plan::default(),
        }
    }

    /// Runs a course that is interrupted in that turn; slices a policy, and the turns taken.
    fn run(ask_at: Option<usize>) -> (Vec<usize>, Vec<Policy>, Vec<Position>) {
        let interrupt = Interrupt::default();
        let mut fake = Fake { turns: Vec::new(), ask_at, interrupt: interrupt.clone() };
        let mut positions = Vec::new();
        let results = course()
            .run(&mut fake, &interrupt, &mut |position| positions.push(position))
            .expect("the fake never fails");
        (results.iter().map(|rounds| rounds.slices.len()).collect(), fake.turns, positions)
    }

    #[test]
    fn policies_take_turns_within_each_round() {
        let (slices, turns, positions) = run(None);
        assert_eq!(slices, [3, 3, 3]);
        assert_eq!(turns, [Policy::None, Policy::Hedged, Policy::Tied].repeat(3));
        assert!(positions.is_sorted_by_key(|position| position.elapsed));
        let last = positions.last().expect("turns were taken");
        assert_eq!((last.round, last.policy), (3, Policy::Tied));
        assert_eq!(last.elapsed, course().duration() - TURN / 2);
    }

    #[test]
    fn a_round_that_was_cut_short_is_left_out() {
        let (slices, turns, _) = run(Some(5));
        assert_eq!(slices, [1, 1, 1]);
        assert_eq!(turns.len(), 5, "no turn begins after the user has asked");
    }

    #[test]
    fn the_first_round_is_kept_however_short() {
        let (slices, ..) = run(Some(2));
        assert_eq!(slices, [1, 1, 0]);
    }
}
