//! Bowline's server: a replica that can be asked twice and works once.
//!
//! [`core`] is the machine that decides (the queue, the slots, ties, tombstones, shedding): pure,
//! so that the same code runs on io_uring, in a simulated world and under a test.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod core;
