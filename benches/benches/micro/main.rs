//! What a call costs in pure work, step by step: no sockets, no clock, no threads.
//!
//! `cargo bench` runs all of it; `cargo bench -- client` a part. Read a figure as a share of what a
//! call may cost: at depth the kernel's part falls to about 0.1 us a request, so that these
//! nanoseconds are most of the rest.

mod budget;
mod client;
mod protocol;
mod segments;
mod server;
mod timers;

use criterion::{criterion_group, criterion_main};

criterion_group!(
    benches,
    protocol::benches,
    segments::benches,
    timers::benches,
    budget::benches,
    client::benches,
    server::benches,
);
criterion_main!(benches);
