//! Bowline's server: a replica that can be asked twice and works once.
//!
//! [`core`] is the machine that decides (the queue, the slots, ties, tombstones, shedding): pure,
//! so that the same code runs on io_uring, in a simulated world and under a test. [`io`], a default
//! feature, is its shell on the runtime: connections, handlers, threads. See [`Server`] for a
//! complete replica.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "io")]
#[macro_use]
extern crate std;

pub mod core;
#[cfg(feature = "io")]
pub mod io;

#[cfg(feature = "io")]
pub use io::{Context, Failure, Payload, Server, Service, Typed};
