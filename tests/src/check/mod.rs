//! What must hold in every world, whatever its seed.
//!
//! The checkers stand outside the machines. They see what a machine is told and what it wants done,
//! never its insides, so that no machine can be right by its own account only.

mod book;
mod fair;
mod rule;
mod story;
mod verdict;

pub use book::{Begun, Book};
pub(crate) use fair::Fair;
pub use rule::{Broken, Rule};
pub use story::{Homes, Open, Outcome, Way};
