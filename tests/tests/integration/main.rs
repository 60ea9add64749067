//! Three replicas, each a process of its own, and a client on a real ring: what the simulated worlds
//! promise has to hold here, too. Nothing waits for time to pass: every test awaits an event, with
//! a deadline that only a failure reaches.

mod cluster;
mod faults;
mod proxy;
mod wire;

use std::time::Duration;

#[global_allocator]
static ALLOCATOR: bowline_runtime::counting::CountingAllocator =
    bowline_runtime::counting::CountingAllocator;

/// Far longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
