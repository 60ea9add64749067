//! The parts of the `bowline` command.
#![forbid(unsafe_code)]

pub mod cli;
pub mod data;
pub mod faults;
pub mod random;
pub mod schedule;
pub mod stats;
pub mod units;
