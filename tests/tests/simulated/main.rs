//! The real machines of clients and servers in simulated worlds.

mod coverage;
mod exhaustive;
mod hashes;
mod oracles;
mod rules;
mod swarm;

use bowline_tests::judge;
use bowline_tests::world::{Report, Scenario};

/// Runs a scenario that has to break no rule.
fn hold(scenario: &Scenario) -> Report {
    match judge::scenario(scenario) {
        Ok(report) => report,
        Err(story) => panic!("{story}"),
    }
}
