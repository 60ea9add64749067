//! What every simulated world stands on: random numbers, time, events, wires. Nothing here knows
//! what a call is.

pub mod clock;
pub mod empirical;
pub mod events;
pub mod maths;
pub mod net;
pub mod rng;
pub mod span;
pub mod timeline;
pub mod trace;
