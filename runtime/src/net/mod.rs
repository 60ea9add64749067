//! TCP and Unix sockets, a whole buffer at a time.
//!
//! What arrives on a connection comes as [`Lease`]s of the runtime's receive buffers, without a
//! copy and without a request per message. What is sent is appended to the connection's outgoing
//! buffer, and leaves in one request at the next flush of the turn: messages that are written
//! together travel together. What is large can be handed over as a [`Piece`], and is not copied.
//!
//! ```
//! use std::time::Duration;
//! use bowline_runtime::net::{ListenOptions, TcpListener, TcpStream};
//! use bowline_runtime::{Runtime, Stage, spawn_at};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! Runtime::builder().build()?.block_on(async {
//!     let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap(), ListenOptions::default())?;
//!     let address = listener.local_addr()?;
//!     let echo = spawn_at(Stage::Input, async move {
//!         let stream = listener.accept().await?;
//!         while let Some(bytes) = stream.receive().await? {
//!             stream.send(&bytes);
//!         }
//!         Ok::<(), std::io::Error>(())
//!     });
//!
//!     let stream = TcpStream::connect(address, Duration::from_secs(1)).await?;
//!     stream.send(b"hello");
//!     let reply = stream.receive().await?.expect("an echo");
//!     assert_eq!(&reply[..], b"hello");
//!     drop((reply, stream));
//!     echo.await.expect("the echo task did not panic")
//! })?;
//! # Ok(())
//! # }
//! ```

mod batch;
pub(crate) mod connection;
mod drained;
mod ending;
mod lease;
pub(crate) mod listener;
mod outgoing;
mod piece;
mod receiving;
mod sending;
mod socket;
mod stream;
mod tcp;
mod unix;

pub use lease::Lease;
pub use piece::Piece;
pub use std::net::Shutdown;
pub use stream::Stream;
pub use tcp::{Delivery, Keepalive, ListenOptions, TcpListener, TcpStream};
pub use unix::{UnixAddr, UnixListener, UnixStream};
