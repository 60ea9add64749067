//! Bowline's client.
//!
//! [`core`] is the pure machine: it decides which replica is asked, when a second copy is worth
//! sending, whose reply counts and what is left to clean up. It does no I/O, reads no clock and
//! never looks into a payload. `io`, a default feature, is its shell on the runtime: connections,
//! timers, and calls that can be awaited.
#![forbid(unsafe_code)]

pub mod core;
#[cfg(feature = "io")]
pub mod io;

#[cfg(feature = "io")]
pub use io::{Call, Client, Config, ConnectError, Failure, Remote, Replica, Reply};
