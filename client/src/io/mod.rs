//! The client on the runtime: one per core, with a connection to each replica.
//!
//! ```no_run
//! use bowline_client::core::Policy;
//! use bowline_client::{Client, Config, Replica};
//! use bowline_protocol::Method;
//! use bowline_runtime::Runtime;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! Runtime::builder().build()?.block_on(async {
//!     let replicas = ["10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.3:7000"];
//!     let replicas = (0..).zip(replicas).map(|(id, at)| Replica::new(id, at.parse().unwrap()));
//!     let client = Client::connect(Config::new(replicas)).await?;
//!     let tied = client.register(Policy::tied())?;
//!
//!     let read = client.call(Method(1), 9u64.to_le_bytes());
//!     let block = read.idempotent().policy(tied).deadline(Duration::from_millis(50)).await?;
//!     println!("{} bytes in {:?}", block.len(), block.outcome().latency);
//!     Ok(())
//! })
//! # }
//! ```
//!
//! Frames are encoded straight into the connections' outgoing buffers, and leave together at the
//! end of the turn. A payload is copied once into a pooled buffer, since it may have to be sent
//! again; a reply's payload is copied once, out of the receive buffer, and only if it won. A call
//! whose future is dropped is cancelled on the wire.

mod call;
mod client;
mod config;
mod connection;
mod explain;
mod fan;
mod file;
mod line;
mod live;
mod logged;
mod members;
mod methods;
mod numbers;
mod reload;
mod remote;
mod reply;
mod shell;
mod spans;
mod timer;
#[cfg(feature = "tower")]
mod tower;
mod typed;
mod vain;
mod within;

pub use bowline_runtime::payload::Payload;
pub use call::{Call, Calling};
pub use client::Client;
pub use config::{Canary, Config, ConnectError, MethodConfig, Replica};
pub use fan::{FanOut, TooFew};
pub use file::FileError;
pub use live::Live;
pub use numbers::{MethodState, Numbers, Snapshot};
pub use reload::{Watch, WatchConfig, WatchError};
pub use remote::{Remote, RemoteCall, RemoteCalling, RemoteFailure, RemoteReply};
pub use reply::{Failure, Reply};
#[cfg(feature = "tower")]
pub use tower::Request;
pub use typed::With;
pub use within::Within;

/// What `main` prints of an error that it returns: the line of a file as it is written, and the cure, as
/// Display has them with `{:#}`.
macro_rules! debug_as_display {
    ($($error:ty),*) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self:#}")
            }
        }
    )*};
}

debug_as_display!(ConnectError, FileError, WatchError);
