//! The parts of the `bowline` command.
#![forbid(unsafe_code)]

pub mod cli;
pub mod command;
pub mod course;
pub mod data;
pub mod faults;
pub mod interrupt;
pub mod progress;
pub mod random;
pub mod replicas;
pub mod report;
pub mod schedule;
pub mod serve_config;
pub mod setup;
pub mod stats;
pub mod units;
