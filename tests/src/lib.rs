//! The simulated world: the real machines of clients and servers under virtual time, and the
//! checkers that watch them.
#![forbid(unsafe_code)]

pub mod check;
pub mod exhaust;
pub mod judge;
pub mod kernel;
pub mod mutations;
pub mod swarm;
pub mod theory;
pub mod world;

/// The README's programs compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
