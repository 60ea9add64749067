//! The command as its user has it: processes, signals, files.

mod command;
mod deaths;
mod errors;
mod model;
mod stat;
