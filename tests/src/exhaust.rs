//! Small worlds, searched to the end: every order in which messages can arrive, loops turn,
//! handlers end and faults strike.
//!
//! Things that happen at two hosts in either order come to the same, so of all courses that differ
//! in that only, one is followed (sleep sets: Godefroid, Partial-Order Methods, 1996): after one
//! choice was followed, it sleeps in the courses that begin with another, until something happens
//! that it does not commute with. A state that was seen before is left, unless something slept then
//! that does not now. And what arrives that is of no use to anybody any more comes at once: a loser's
//! last word, or the cancel of a copy that is over (persistent sets of one: same place).

use std::collections::{BTreeMap, HashMap};

use bowline_server::core::Stats;

use crate::kernel::span::Nanos;
use crate::world::{Choice, Report, Scenario, World};

/// What a search went through.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Searched {
    /// Different states.
    pub states: u64,
    /// What courses came to, and how many to each.
    pub ends: BTreeMap<End, u64>,
}

/// What a course came to when nothing was left to choose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct End {
    /// Calls that failed.
    pub failed: u64,
    /// Copies that were sent.
    pub sends: u64,
    /// Copies that were started.
    pub starts: u64,
    /// Pairs of which both copies were started.
    pub double_starts: u64,
    /// Copies that their twins took out of a queue.
    pub withdrawn: u64,
    /// Copies that their twins stopped as they ran.
    pub stopped: u64,
    /// Copies that ran into a tombstone.
    pub entombed: u64,
    /// Copies that servers had no room for.
    pub refused: u64,
}

impl End {
    fn of(report: &Report) -> End {
        let sum = |count: fn(&Stats) -> u64| report.servers.iter().map(count).sum();
        End {
            failed: report.failed,
            sends: report.sends,
            starts: report.starts,
            double_starts: report.double_starts,
            withdrawn: sum(|stats| stats.withdrawn_by_twin),
            stopped: sum(|stats| stats.aborted_by_twin),
            entombed: sum(|stats| stats.tombstones_hit),
            refused: sum(|stats| stats.rejected_queue_requests),
        }
    }
}

impl Searched {
    /// Courses that came to such an end.
    pub fn count(&self, such: impl Fn(&End) -> bool) -> u64 {
        self.ends.iter().filter(|(end, _)| such(end)).map(|(_, count)| count).sum()
    }
}

/// How loops turn in a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loops {
    /// Whenever they like: what arrives meanwhile is taken in together.
    Whenever,
    /// At once, for each thing that arrives: far fewer orders.
    AtOnce,
}

/// Which orders a search follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Orders {
    /// Of those that come to the same, one.
    Unlike,
    /// All, one by one: of the smallest worlds only, to hold the other against.
    All,
}

/// Tries every order of events in `scenario`, from the first call until nothing is left to choose.
/// Timers up to `horizon` after the first call may fire at any moment, later ones only at the end.
///
/// # Errors
///
/// What to read if some order breaks a rule.
pub fn search(
    scenario: &Scenario,
    horizon: Nanos,
    loops: Loops,
    orders: Orders,
) -> Result<Searched, String> {
    let mut search = Search {
        scenario,
        horizon,
        at_once: loops == Loops::AtOnce,
        all: orders == Orders::All,
        seen: HashMap::new(),
        todo: vec![Course::default()],
        sum: Searched::default(),
    };
    while let Some(course) = search.todo.pop() {
        search.follow(course)?;
    }
    Ok(search.sum)
}

struct Search<'a> {
    scenario: &'a Scenario,
    horizon: Nanos,
    at_once: bool,
    all: bool,
    /// States, and what slept whenever they were seen.
    seen: HashMap<u64, Vec<Choice>>,
    /// The beginnings of courses that are still to be followed.
    todo: Vec<Course>,
    sum: Searched,
}

/// The beginning of a course: the choices made, and those that need not be made next.
#[derive(Clone, Default)]
struct Course {
    path: Vec<Choice>,
    asleep: Vec<Choice>,
}

impl Course {
    /// The course that goes on with `choice` where `others` are followed as well.
    fn with(&self, choice: Choice, others: &[Choice]) -> Course {
        let asleep = self.asleep.iter().chain(others).copied();
        let mut path = self.path.clone();
        path.push(choice);
        Course { path, asleep: asleep.filter(|other| other.commutes_with(choice)).collect() }
    }
}

impl Search<'_> {
    /// Goes down one course to its end, or to where all that follows was seen before; notes where
    /// others branch off.
    fn follow(&mut self, mut course: Course) -> Result<(), String> {
        let mut world = self.retrace(&course.path, false);
        loop {
            if world.is_broken() {
                return Err(self.story(&course.path));
            }
            let mut choices = self.choices(&world);
            let fingerprint = world.fingerprint();
            match self.seen.get_mut(&fingerprint).filter(|_| !self.all) {
                Some(slept) => {
                    choices.retain(|choice| slept.contains(choice));
                    slept.retain(|choice| course.asleep.contains(choice));
                }
                None => {
                    let before = self.seen.insert(fingerprint, course.asleep.clone());
                    self.sum.states += u64::from(before.is_none());
                    if choices.is_empty() {
                        return self.end(world, &course.path);
                    }
                }
            }
            choices.retain(|choice| !course.asleep.contains(choice));
            let Some(&first) = choices.first() else { return Ok(()) };
            for (at, &other) in choices.iter().enumerate().skip(1) {
                let others = if self.all { &[] } else { &choices[..at] };
                self.todo.push(course.with(other, others));
            }
            course = course.with(first, &[]);
            world.choose(first, self.at_once);
        }
    }

    fn choices(&self, world: &World) -> Vec<Choice> {
        let horizon = self.scenario.warm_up + self.horizon;
        if self.all { world.all_choices(horizon) } else { world.choices(horizon) }
    }

    fn retrace(&self, path: &[Choice], readable: bool) -> World {
        let mut world = World::new(self.scenario.clone(), readable);
        world.settle_until(self.scenario.warm_up);
        for &choice in path {
            world.choose(choice, self.at_once);
        }
        world
    }

    /// Nothing is left to choose: the world comes to rest by itself.
    fn end(&mut self, world: World, path: &[Choice]) -> Result<(), String> {
        let report = world.run();
        if report.broken.is_some() {
            return Err(self.story(path));
        }
        *self.sum.ends.entry(End::of(&report)).or_default() += 1;
        Ok(())
    }

    fn story(&self, path: &[Choice]) -> String {
        let world = self.retrace(path, true);
        let report: Report = if world.is_broken() { world.stop() } else { world.run() };
        let broken = report.broken.map(|broken| broken.to_string()).unwrap_or_default();
        format!("after {} steps:\n{}\n{broken}", path.len(), report.timeline)
    }
}
