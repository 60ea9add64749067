//! Small worlds, searched to the end: every order in which messages can arrive, loops turn,
//! handlers end and faults strike.

use std::collections::HashSet;

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
        seen: HashSet::new(),
        todo: vec![vec![]],
        sum: Searched::default(),
    };
    while let Some(path) = search.todo.pop() {
        search.follow(path)?;
    }
    Ok(search.sum)
}

struct Search<'a> {
    scenario: &'a Scenario,
    horizon: Nanos,
    at_once: bool,
    seen: HashSet<u64>,
    /// The beginnings of courses that are still to be followed, as the choices made.
    todo: Vec<Vec<u16>>,
    sum: Searched,
}

impl Search<'_> {
    /// Goes down one course to its end, or to a state that was seen before; notes where others
    /// branch off.
    fn follow(&mut self, mut path: Vec<u16>) -> Result<(), String> {
        let mut world = self.retrace(&path, false);
        loop {
            if world.is_broken() {
                return Err(self.story(&path));
            }
            if !self.seen.insert(world.fingerprint()) {
                return Ok(());
            }
            self.sum.states += 1;
            let choices = self.choices(&world);
            let Some(&first) = choices.first() else {
                return self.end(world, &path);
            };
            for other in 1..choices.len() {
                let mut branch = path.clone();
                branch.push(other as u16);
                self.todo.push(branch);
            }
            path.push(0);
            world.choose(first, self.at_once);
        }
    }

    fn choices(&self, world: &World) -> Vec<Choice> {
        world.choices(self.scenario.warm_up + self.horizon)
    }

    fn retrace(&self, path: &[u16], readable: bool) -> World {
        let mut world = World::new(self.scenario.clone(), readable);
        world.settle_until(self.scenario.warm_up);
        for &choice in path {
            let choice = self.choices(&world)[usize::from(choice)];
            world.choose(choice, self.at_once);
        }
        world
    }

    /// Nothing is left to choose: the world comes to rest by itself.
    fn end(&mut self, world: World, path: &[u16]) -> Result<(), String> {
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

    fn story(&self, path: &[u16]) -> String {
        let world = self.retrace(path, true);
        let report: Report = if world.is_broken() { world.stop() } else { world.run() };
        let broken = report.broken.map(|broken| broken.to_string()).unwrap_or_default();
        format!("after {} steps of {:?}:\n{}\n{broken}", path.len(), path, report.timeline)
    }
}
