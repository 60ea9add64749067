//! The server over loopback on the real ring, asked by clients of a few lines: plain sockets that
//! know the protocol and nothing else. Nothing here waits for time to pass: every test awaits an
//! event, with a deadline that only a failure reaches.

mod allocations;
mod basics;
mod beside;
mod credit;
mod descriptors;
mod ear;
mod hostile;
mod large;
mod mesh;
mod peer;
mod seen;
mod service;
mod spans;
mod stalls;
mod told;
mod unread;

use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: bowline_runtime::counting::CountingAllocator =
    bowline_runtime::counting::CountingAllocator;

/// Far longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Asks again and again until it is so.
///
/// # Panics
///
/// If it is not so in the end.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "never so: {what}");
        std::thread::yield_now();
    }
}
