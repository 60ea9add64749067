//! Time as a value, and timers as data.
//!
//! Bowline's policies never read a clock: whoever drives them hands in an [`Instant`], and asks for
//! the next one that matters. So the same code runs on a real clock and in a simulated world.
//!
//! What is to happen later stands in a [`Wheel`]. It arms and cancels in constant time, never fires
//! early, and allocates only to grow beyond what it ever held. So would a queue for each delay that
//! many timers share, as hedges do; but whoever waits for the next of all would have to look at each
//! queue, and at the wheel for what else there is. What goes wrong again and again is told once:
//! [`Trouble`] says when. People write times in one way, wherever they do: [`parse_duration`] reads it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod instant;
mod nodes;
mod trouble;
mod wheel;
mod written;

pub use core::time::Duration;
pub use instant::Instant;
pub use nodes::TimerKey;
pub use trouble::Trouble;
pub use wheel::Wheel;
pub use written::{DurationError, parse_duration};
