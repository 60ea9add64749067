//! Bowline on the wire, without a wire.
//!
//! Bytes and time go in, events come out: nothing here does I/O or reads a clock, so the same code
//! runs on io_uring, in a simulated world and under a fuzzer. `SPEC.md` beside this crate is the
//! protocol in words; this is the same in types:
//!
//! - [`id`]: how calls, attempts and replicas are named.
//! - [`frame`]: what can be said, one type a frame.
//! - [`codec`]: frames to bytes and back; the layout stands there and nowhere else.
//! - [`hello`]: who speaks, what it can do and what it takes.
//! - [`options`]: what a request or reply may say beside its header.
//! - [`mod@service`]: typed services, their methods by name, and what may be done with each.
//! - [`outbox`] and [`assembly`]: large payloads in segments, out and in.
//! - [`credit`]: how much a client may have under way.
//! - [`inbox`]: bytes in pieces of any size, frames out.
//! - [`link`]: what both ends of every connection do: hello, acknowledgement, ping, round-trip time.
//! - [`parent`]: what a call that is made on behalf of another inherits.
//! - [`backoff`]: how long to wait before dialling again.
//! - [`error`]: what a caller is told when a call fails.
//!
//! ```
//! use bowline_protocol::{Attempt, Cause, ClientId, Frame, Inbox, Method, Request, Seq, codec};
//! use core::time::Duration;
//!
//! let request = Request {
//!     attempt: Attempt { client: ClientId(7), seq: Seq(1), n: 0 },
//!     method: Method(3),
//!     remaining: Duration::from_millis(50),
//!     cause: Cause::First,
//!     idempotent: true,
//!     tie: None,
//! };
//! let mut bytes = Vec::new();
//! codec::encode(&Frame::Request(request, b"block 9"), &mut bytes);
//!
//! let mut inbox = Inbox::new(1 << 20);
//! let mut frames = inbox.feed(&bytes);
//! assert_eq!(frames.next()?, Some(Frame::Request(request, b"block 9")));
//! assert_eq!(frames.next()?, None);
//! # Ok::<(), bowline_protocol::WireError>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod assembly;
pub mod backoff;
pub mod codec;
pub mod credit;
pub mod error;
pub mod frame;
mod head;
pub mod hello;
pub mod id;
pub mod inbox;
pub mod link;
pub mod options;
pub mod outbox;
pub mod parent;
mod rtt;
pub mod service;

pub use assembly::{Arrived, Assembly, AssemblyError};
pub use backoff::{Backoff, Loss, NextDial, Redial};
pub use codec::{HEADER_LEN, VERSION, WireError};
pub use credit::{CreditError, Granter, Spender};
pub use error::{Error, ErrorKind, Executed, Whose};
pub use frame::{
    Cancel, CancelReason, Cause, Ended, Frame, GoAway, Goodbye, GoodbyeReason, How, Load,
    Overloaded, PayloadOf, Ping, Reply, Request, Segment, Started, Status, Tie,
};
pub use hello::{Credit, Features, Hello, HelloAck, Identity, Takes};
pub use id::{Attempt, ClientId, Method, ReplicaId, Seq, Station, Twin};
pub use inbox::Inbox;
pub use link::{Link, LinkConfig, LinkError, LinkEvent};
pub use options::{Freshness, Key, Label, OptionSet, Options, TraceContext, TrafficClass};
pub use outbox::{Cut, Outbox, Peer};
pub use parent::Parent;
pub use service::{MethodInfo, Methods, ServiceInfo};
