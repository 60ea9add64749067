//! The parts of the `bowline` command.
#![forbid(unsafe_code)]

pub mod cli;
pub mod command;
pub mod compare;
pub mod course;
pub mod cpu;
pub mod data;
pub mod driver;
pub mod echo;
pub mod failures;
pub mod faults;
pub mod figures;
pub mod frontend;
pub mod interrupt;
pub mod load;
pub mod model;
pub mod output;
pub mod parameters;
pub mod policies;
pub mod predict;
pub mod probe;
pub mod progress;
pub mod random;
pub mod replicas;
pub mod report;
pub mod run;
pub mod schedule;
pub mod serve;
pub mod serve_config;
pub mod setup;
pub mod simulate;
pub mod stat;
pub mod stats;
pub mod store;
pub mod text;
pub mod units;
