//! The server on io_uring: a thin shell around [`core`](crate::core).
//!
//! Each core of a server is a thread with a runtime, and on it:
//!
//! * a task for each connection, at the stage of input: bytes become frames, and frames are applied
//!   to the machine;
//! * one task at the stage of decisions, which takes from the queue what may start once all input
//!   is applied: what it sends (cancels for twins, first of all) is in the kernel's hands before
//!   any handler is polled;
//! * a task for each running handler, which answers straight into its connection's outgoing buffer;
//! * a task for each core of each peer, which keeps a connection to it (the mesh).
//!
//! Cores share nothing but the address.

mod answer;
mod builder;
mod connection;
mod context;
mod cures;
mod doors;
mod drain;
#[cfg(feature = "metrics")]
mod exposed;
mod farewell;
mod handler;
mod mesh;
mod names;
pub mod once;
mod outgoing;
mod pace;
mod ration;
mod reader;
mod requests;
mod routes;
mod sender;
mod server;
mod service;
mod shell;
mod signals;
mod spans;
mod stats;
mod tally;
mod tasks;
mod typed;
mod vain;

pub use bowline_runtime::payload::Payload;
pub use builder::{Builder, Limits, ServeError};
pub use context::{CancelToken, Context, Role};
pub use names::{PeerAddress, PeerAddressError};
pub use server::{Collected, Control, Running, Server};
pub use service::{AnyMethod, Failure, Handler, Holding, Service, WithHandler};
pub use stats::{IoStats, Snapshot};
pub use tally::{Row, Rows};
pub use typed::Typed;
