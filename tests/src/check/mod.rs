//! What must hold in every world, whatever its seed.
//!
//! The checkers stand outside the machines. They see what a machine is told and what it wants done,
//! never its insides, so that no machine can be right by its own account only.

mod book;
mod rule;
mod story;
mod verdict;

pub use book::Book;
pub use rule::{Broken, Rule};
pub use story::{Outcome, Way};
