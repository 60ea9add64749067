//! Small worlds, searched to the end: every order in which messages can arrive, loops turn,
//! handlers end and faults strike.
//!
//! Things that happen at two hosts in either order come to the same, so of all courses that differ
//! in that only, one is followed (sleep sets: Godefroid, Partial-Order Methods, 1996): after one
//! choice was followed, it sleeps in the courses that begin with another, until something happens
//! that it does not commute with. A state that was seen before is left, unless something slept then
//! that does not now. And what arrives that is of no use to anybody any more comes at once: a loser's
//! last word, or the cancel of a copy that is over (persistent sets of one: same place).

use std::collections::HashMap;

use crate::kernel::span::Nanos;
use crate::world::{Choice, Report, Scenario, World};

/// What a search went through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Searched {
    /// Different states.
    pub states: u64,
    /// Different courses from the beginning to an end.
    pub ends: u64,
    /// Of those, ends in which some call had failed.
    pub failures: u64,
    /// Of those, ends in which both copies of a pair had been started.
    pub double_starts: u64,
    /// The most copies that a single course started.
    pub most_starts: u64,
}

/// How loops turn in a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loops {
    /// Whenever they like: what arrives meanwhile is taken in together.
    Whenever,
    /// At once, for each thing that arrives: far fewer orders.
    AtOnce,
}

/// Tries every order of events in `scenario`, from the first call until nothing is left to choose.
/// Timers up to `horizon` after the first call may fire at any moment, later ones only at the end.
///
/// # Errors
///
/// What to read if some order breaks a rule.
pub fn search(scenario: &Scenario, horizon: Nanos, loops: Loops) -> Result<Searched, String> {
    let mut search = Search {
        scenario,
        horizon,
        at_once: loops == Loops::AtOnce,
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
    /// The course that goes on with `choice` where `others` were followed before.
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
            match self.seen.get_mut(&world.fingerprint()) {
                Some(slept) => {
                    choices.retain(|choice| slept.contains(choice));
                    slept.retain(|choice| course.asleep.contains(choice));
                }
                None => {
                    self.sum.states += 1;
                    self.seen.insert(world.fingerprint(), course.asleep.clone());
                    if choices.is_empty() {
                        return self.end(world, &course.path);
                    }
                }
            }
            choices.retain(|choice| !course.asleep.contains(choice));
            let Some(&first) = choices.first() else { return Ok(()) };
            for (at, &other) in choices.iter().enumerate().skip(1) {
                self.todo.push(course.with(other, &choices[..at]));
            }
            course = course.with(first, &[]);
            world.choose(first, self.at_once);
        }
    }

    fn choices(&self, world: &World) -> Vec<Choice> {
        world.choices(self.scenario.warm_up + self.horizon)
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
        self.sum.ends += 1;
        self.sum.failures += u64::from(report.failed > 0);
        self.sum.double_starts += u64::from(report.double_starts > 0);
        self.sum.most_starts = self.sum.most_starts.max(report.starts);
        Ok(())
    }

    fn story(&self, path: &[Choice]) -> String {
        let world = self.retrace(path, true);
        let report: Report = if world.is_broken() { world.stop() } else { world.run() };
        let broken = report.broken.map(|broken| broken.to_string()).unwrap_or_default();
        format!("after {} steps:\n{}\n{broken}", path.len(), report.timeline)
    }
}
