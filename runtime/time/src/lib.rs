//! Time as a value.
//!
//! Bowline's policies never read a clock: whoever drives them hands in an [`Instant`], and asks for
//! the next one that matters. So the same code runs on a real clock and in a simulated world.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod instant;

pub use core::time::Duration;
pub use instant::Instant;
