//! One end of a connection, as every shell has it: bytes to frames, the link's own talk, and a
//! buffer that is sent once a turn.

use bowline_protocol::link::LinkEvent;
use bowline_protocol::{Frame, Inbox, Link, codec};
use bowline_time::Instant;

use crate::kernel::net::{End, Wire};
use crate::world::env::Env;

/// Larger payloads than any that the world makes.
const PAYLOAD_LIMIT: u32 = 1 << 16;

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Port {
    /// Which end.
    pub(crate) end: End,
    /// The kernel says that it is open.
    pub(crate) open: bool,
    /// The link above it.
    pub(crate) link: Link,
    inbox: Inbox,
    out: Vec<u8>,
}

impl Port {
    /// The end that dialled.
    pub(crate) const fn dialled(link: Link) -> Port {
        let inbox = Inbox::new(PAYLOAD_LIMIT);
        Port { end: End::Dialler, open: false, link, inbox, out: Vec::new() }
    }

    /// The end that was dialled.
    pub(crate) const fn accepted(link: Link) -> Port {
        let inbox = Inbox::new(PAYLOAD_LIMIT);
        Port { end: End::Listener, open: true, link, inbox, out: Vec::new() }
    }

    /// Bytes came: `on` gets every frame that they make whole, and what it meant for the link.
    ///
    /// # Errors
    ///
    /// Why the connection has to be closed, in words.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        now: Instant,
        mut on: impl FnMut(&mut Link, LinkEvent, &Frame<'_>),
    ) -> Result<(), Gone> {
        let Port { inbox, link, .. } = self;
        let mut frames = inbox.feed(bytes);
        loop {
            let frame = match frames.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(error) => return Err(Gone::Unreadable(error.to_string())),
            };
            match link.on_frame(&frame, now) {
                Ok(event) => on(link, event, &frame),
                Err(error) => return Err(Gone::Link(error.to_string())),
            }
        }
    }

    /// Puts a frame after those that wait to be sent.
    pub(crate) fn put(&mut self, frame: &Frame<'_>, now: Instant) {
        self.pump(now);
        codec::encode(frame, &mut self.out);
    }

    fn pump(&mut self, now: Instant) {
        while let Some(frame) = self.link.poll_transmit(now) {
            codec::encode(&frame, &mut self.out);
        }
    }

    /// Sends all that waits.
    pub(crate) fn flush(&mut self, wire: Wire, env: &mut Env, now: Instant) {
        if !self.open {
            return;
        }
        self.pump(now);
        if !self.out.is_empty() {
            env.send(wire, self.end, std::mem::take(&mut self.out));
        }
    }
}

/// Why a connection is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Gone {
    /// The bytes make no frames.
    Unreadable(String),
    /// The link gives it up.
    Link(String),
}
