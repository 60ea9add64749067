//! Thousands of small worlds, each with its own mix of sizes, policies, loads and faults.
//!
//! `BOWLINE_SEEDS=20000` runs so many; `BOWLINE_SEED=776` runs one, and prints what happened in it.

use bowline_tests::judge::{self, Totals};
use bowline_tests::{swarm, world};

use crate::coverage::Coverage;

/// As many as take a few seconds.
const SEEDS: u64 = 3000;
/// So many worlds have everything between them.
const ENOUGH: u64 = 2500;

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    match value.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{variable} is {value:?}, but must be a number"),
    }
}

#[test]
fn every_world_keeps_every_rule() {
    if let Some(seed) = number("BOWLINE_SEED") {
        let scenario = swarm::scenario(seed);
        let report = world::replay(&scenario);
        println!("{scenario:#?}\n{}", report.timeline);
        return judge::seed(seed).map(drop).unwrap_or_else(|story| panic!("{story}"));
    }
    let mut totals = Totals::default();
    let mut coverage = Coverage::default();
    for seed in 0..number("BOWLINE_SEEDS").unwrap_or(SEEDS) {
        let scenario = swarm::scenario(seed);
        match judge::scenario(&scenario) {
            Ok(report) => {
                totals.add(&report);
                coverage.add(&scenario, &report);
            }
            Err(story) => panic!("{story}"),
        }
    }
    println!("{totals:?}");
    if totals.seeds >= ENOUGH {
        coverage.is_whole();
    }
    assert!(totals.faults > totals.seeds, "the worlds are too kind: {totals:?}");
    assert!(totals.failed < totals.calls / 3, "the worlds are too cruel: {totals:?}");
}

#[test]
fn a_seed_makes_the_same_world_every_time() {
    for seed in 0..40 {
        let scenario = swarm::scenario(seed);
        let hashes = [(); 2].map(|()| world::World::new(scenario.clone(), false).run().hash);
        assert_eq!(hashes[0], hashes[1], "seed {seed}");
        assert_eq!(hashes[0], world::replay(&scenario).hash, "seed {seed}, when it is read");
    }
}

#[test]
fn two_seeds_make_two_worlds() {
    let hash = |seed| world::World::new(swarm::scenario(seed), false).run().hash;
    assert_ne!(hash(1), hash(2));
}
