//! What must hold in every world, whatever its seed.
//!
//! The checkers stand outside the machines. They see what a machine is told and what it wants done,
//! never its insides, so that no machine can be right by its own account only.

mod allowance;
mod book;
mod fair;
mod rule;
mod story;
mod verdict;

pub(crate) use allowance::Allowance;
pub use allowance::Spent;
pub use book::{Begun, Book, Waits};
pub(crate) use fair::Fair;
pub use rule::{Broken, Rule};
pub use story::{Homes, Open, Outcome, Way};
