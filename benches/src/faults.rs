//! Stalls of replicas: planned from a seed, then carried out on real processes.

mod inject;
mod plan;

pub use inject::{Carried, Injector, Pausable};
pub use plan::{Pattern, Plan, Stall, StallModel};
