//! Time as a value, and timers as data.
//!
//! Bowline's policies never read a clock: whoever drives them hands in an [`Instant`], and asks for
//! the next one that matters. So the same code runs on a real clock and in a simulated world.
//!
//! Two structures hold what is to happen later. A [`Wheel`] takes any deadline; a [`Lane`] takes
//! entries that all wait equally long, and is then a mere queue. Both arm and cancel in constant
//! time, never fire early, and allocate only to grow beyond what they ever held. What goes wrong again
//! and again is told once: [`Trouble`] says when. People write times in one way, wherever they do:
//! [`parse_duration`] reads it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod instant;
mod lane;
mod nodes;
mod trouble;
mod wheel;
mod written;

pub use core::time::Duration;
pub use instant::Instant;
pub use lane::{Lane, LaneKey};
pub use nodes::TimerKey;
pub use trouble::Trouble;
pub use wheel::Wheel;
pub use written::{DurationError, parse_duration};
