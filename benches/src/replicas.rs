//! Replicas as processes of their own: started, told of each other, stalled, ended.

mod child;
mod cluster;

pub use child::{die_with_parent, send_ready, send_serving, wait_for_peers};
pub use cluster::{Cluster, LaunchError};
