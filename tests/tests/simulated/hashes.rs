//! A seed makes the same world on every machine: what each of some seeds came to is written down,
//! and held against on whatever architecture this runs.
//!
//! When the machines themselves behave otherwise, so do the worlds, on all machines alike: then
//! `BOWLINE_BLESS=1` writes the file anew.

use std::fmt::Write as _;
use std::path::Path;

use bowline_tests::swarm;
use bowline_tests::world::World;

const SEEDS: u64 = 64;
const FILE: &str = "tests/simulated/hashes.txt";

#[test]
fn a_seed_makes_the_same_world_on_every_machine() {
    let mut found = String::new();
    for seed in 0..SEEDS {
        let report = World::new(swarm::scenario(seed), false).run();
        // Writing to a string cannot fail.
        let _ = writeln!(found, "{seed:>2} {:016x}", report.hash);
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os("BOWLINE_BLESS").is_some() {
        return std::fs::write(file, found).expect("the file can be written");
    }
    let expected = include_str!("hashes.txt");
    let mut pairs = found.lines().zip(expected.lines());
    let other = pairs.find(|(found, expected)| found != expected);
    assert_eq!(
        other, None,
        "a world is not the one that is written down in tests/{FILE} (found, expected). On one \
         machine only, that is a bug; on all, the machines behave otherwise than before: \
         BOWLINE_BLESS=1 writes the file anew"
    );
    assert_eq!(expected.lines().count() as u64, SEEDS);
}
