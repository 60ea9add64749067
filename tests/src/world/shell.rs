//! What a client's shell and a server's have in common: connections on which bytes come, and links
//! that are tended.

use bowline_protocol::inbox::Frames;
use bowline_protocol::link::LinkEvent;
use bowline_protocol::{Frame, Inbox};
use bowline_time::Instant;

use crate::check::Rule;
use crate::kernel::net::{Host, Wire};
use crate::world::env::{Env, Input};
use crate::world::port::{Gone, Port};

/// A shell, and what each kind does of its own accord.
pub(super) trait Shell {
    /// Where it runs.
    fn host(&self) -> Host;

    /// Its connections.
    fn wires(&self) -> Vec<Wire>;

    /// Its end of one of them.
    fn port(&mut self, wire: Wire) -> Option<&mut Port>;

    /// A frame came, and the link says this of it.
    fn heard(
        &mut self,
        env: &mut Env,
        wire: Wire,
        event: LinkEvent,
        frame: &Frame<'_>,
        now: Instant,
    ) -> Result<(), Gone>;

    /// A connection is no more.
    fn drop_wire(&mut self, env: &mut Env, wire: Wire, why: &str, now: Instant);

    /// Takes in what came of a connection; anything else is given back.
    fn take_in(&mut self, env: &mut Env, input: Input, now: Instant) -> Option<Input> {
        match input {
            Input::Connected(wire) => {
                self.port(wire).into_iter().for_each(|port| port.open = true);
            }
            Input::Bytes(wire, bytes) => self.receive(env, wire, &bytes, now),
            Input::Read(wire, count) => {
                self.port(wire).into_iter().for_each(|port| port.was_read(count));
            }
            Input::Closed(wire) => self.drop_wire(env, wire, "closed", now),
            other => return Some(other),
        }
        None
    }

    /// Bytes came.
    fn receive(&mut self, env: &mut Env, wire: Wire, bytes: &[u8], now: Instant) {
        let Some(port) = self.port(wire) else { return };
        port.link.on_bytes(bytes.len(), now);
        env.read(wire, port.end, bytes.len());
        let mut inbox = std::mem::replace(&mut port.inbox, Inbox::new(0));
        let result = self.hear_all(env, wire, &mut inbox.feed(bytes), now);
        if let Some(port) = self.port(wire) {
            port.inbox = inbox;
        }
        if let Err(gone) = result {
            self.lose(env, wire, gone, now);
        }
    }

    /// Frames came.
    fn hear_all(
        &mut self,
        env: &mut Env,
        wire: Wire,
        frames: &mut Frames<'_>,
        now: Instant,
    ) -> Result<(), Gone> {
        while let Some(frame) = frames.next().map_err(|it| Gone::Unreadable(it.to_string()))? {
            let Some(port) = self.port(wire) else { return Ok(()) };
            let event = port.link.on_frame(&frame, now).map_err(|it| Gone::Link(it.to_string()))?;
            env.note_frame(self.host(), wire, &frame);
            self.heard(env, wire, event, &frame, now)?;
        }
        Ok(())
    }

    /// Links that have been silent are pinged, or given up.
    fn tend_links(&mut self, env: &mut Env, now: Instant) {
        for wire in self.wires() {
            let Some(port) = self.port(wire) else { continue };
            if port.link.next_timeout() <= now
                && let Err(error) = port.link.on_timeout(now)
            {
                self.lose(env, wire, Gone::Link(error.to_string()), now);
            }
        }
    }

    /// Gives a connection up.
    fn lose(&mut self, env: &mut Env, wire: Wire, why: Gone, now: Instant) {
        let why = match why {
            Gone::Unreadable(why) => {
                env.book.accuse(Rule::SpeaksTheProtocol, None, why.clone());
                why
            }
            Gone::Link(why) => why,
        };
        if let Some(port) = self.port(wire) {
            env.close(wire, port.end);
        }
        self.drop_wire(env, wire, &why, now);
    }
}
