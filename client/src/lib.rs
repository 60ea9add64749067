//! Bowline's client.
//!
//! [`core`] is the pure machine: it decides which replica is asked, when a second copy is worth
//! sending, whose reply counts and what is left to clean up. It does no I/O, reads no clock and
//! never looks into a payload.
#![forbid(unsafe_code)]

pub mod core;
