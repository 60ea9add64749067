//! Requests come in at a server's core: whole, or in segments, and perhaps taken back on their way.

use bowline_protocol::{
    Arrived, Attempt, Cancel, CancelReason, Ended, Frame, How, OptionSet, Options, Overloaded,
    Request, Segment,
};
use bowline_server::core::{Conn, Origin};
use bowline_time::{Duration, Instant};

use crate::check::Rule;
use crate::kernel::net::Wire;
use crate::kernel::timeline::Topic;
use crate::world::env::Env;
use crate::world::payload;
use crate::world::port::Gone;
use crate::world::server::Server;

/// When to ask again after there was no room for a payload.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// The connection that something came on.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) wire: Wire,
    pub(super) conn: Conn,
}

impl Server {
    /// A request came, whole and without options.
    pub(super) fn request(
        &mut self,
        env: &mut Env,
        line: Line,
        request: &Request,
        bytes: &[u8],
        now: Instant,
    ) -> Result<(), Gone> {
        self.charge(env, line, request.attempt, bytes.len())?;
        self.whole(env, line, *request, &OptionSet::NONE, bytes, now);
        Ok(())
    }

    /// A request with options came, or the beginning of one.
    pub(super) fn request_with(
        &mut self,
        env: &mut Env,
        line: Line,
        request: &Request,
        options: &Options<'_>,
        first: &[u8],
        now: Instant,
    ) -> Result<(), Gone> {
        let total = options.total().map_or(first.len(), |total| total as usize);
        self.charge(env, line, request.attempt, total)?;
        if options.total().is_none() {
            self.whole(env, line, *request, &options.to_set(), first, now);
            return Ok(());
        }
        let until = now + request.remaining;
        env.book.opened(request.attempt, (until, self.clock.when(until)));
        let set = options.to_set();
        if first.len() < total && self.core.on_opening(line.conn, request, &set, total) {
            return Ok(());
        }
        let Some((port, _)) = self.ports.get_mut(&line.wire) else { return Ok(()) };
        let arrived = port.assembly.open_request(*request, options, first, Vec::new(), now);
        match arrived.map_err(|error| Gone::Unreadable(error.to_string()))? {
            Arrived::NoRoom => {
                let (attempt, load) = (request.attempt, self.core.load());
                let refusal = Overloaded { attempt, retry_after: RETRY_AFTER, load };
                self.end(env, line.conn, &Frame::Overloaded(refusal), total, now);
            }
            arrived => self.arrived(env, line, arrived, now),
        }
        Ok(())
    }

    /// More of a request came.
    pub(super) fn segment(
        &mut self,
        env: &mut Env,
        line: Line,
        segment: &Segment,
        bytes: &[u8],
        now: Instant,
    ) -> Result<(), Gone> {
        let Some((port, _)) = self.ports.get_mut(&line.wire) else { return Ok(()) };
        let arrived = port.assembly.segment(segment, bytes, now);
        let arrived = arrived.map_err(|error| Gone::Unreadable(error.to_string()))?;
        self.arrived(env, line, arrived, now);
        Ok(())
    }

    fn arrived(&mut self, env: &mut Env, line: Line, arrived: Arrived, now: Instant) {
        if let Arrived::Request(request, options, payload) = arrived {
            self.whole(env, line, request, &options, &payload, now);
        }
    }

    /// A request is there whole: it goes to the machine.
    fn whole(
        &mut self,
        env: &mut Env,
        Line { wire, conn }: Line,
        request: Request,
        options: &OptionSet,
        bytes: &[u8],
        now: Instant,
    ) {
        let attempt = request.attempt;
        let until = now + request.remaining;
        env.book.arrived(attempt, options.fresh, (until, self.clock.when(until)));
        let asks = payload::asked(bytes);
        if asks.is_none() {
            let topic = Some(Topic::Call(attempt.client.0, attempt.seq.0));
            let how = format!("the payload of {attempt:?} is not the one that was sent");
            env.book.accuse(Rule::PayloadsArriveWhole, topic, how);
        }
        if options.key.is_none() {
            self.fair.waits(attempt, wire, self.class_of(options));
        }
        let keep = || asks.unwrap_or_default();
        self.core.on_request(conn, request, options, bytes.len(), keep, now);
    }

    /// The class that a request counts as here.
    pub(super) fn class_of(&self, options: &OptionSet) -> u8 {
        let class = options.class.map_or(0, |class| class.0);
        if usize::from(class) < self.classes { class } else { 0 }
    }

    /// A request is within its client's credit.
    fn charge(
        &mut self,
        env: &mut Env,
        line: Line,
        attempt: Attempt,
        bytes: usize,
    ) -> Result<(), Gone> {
        let Some((port, _)) = self.ports.get_mut(&line.wire) else { return Ok(()) };
        let Some(account) = &mut port.account else { return Ok(()) };
        account.charge(bytes).map_err(|error| {
            let topic = Some(Topic::Call(attempt.client.0, attempt.seq.0));
            env.book.accuse(Rule::WithinCredit, topic, error.to_string());
            Gone::Link(error.to_string())
        })
    }

    /// A cancel for a copy of which the request or the reply is on its way: true if it was, and the
    /// copy is over. A client's is for what is on its own connection, a peer's for a request on any.
    pub(super) fn stop_on_its_way(
        &mut self,
        env: &mut Env,
        origin: Origin,
        cancel: &Cancel,
        now: Instant,
    ) -> bool {
        match (origin, cancel.reason) {
            (Origin::Client(conn), _) => {
                self.stop_request(env, conn, cancel, now) || self.stop_reply(env, conn, cancel, now)
            }
            (Origin::Mesh(station), CancelReason::TwinStarted { by }) if by.station == station => {
                let conns: Vec<Conn> = self.conns.keys().copied().collect();
                conns.into_iter().any(|conn| self.stop_request(env, conn, cancel, now))
            }
            _ => false,
        }
    }

    fn stop_request(&mut self, env: &mut Env, conn: Conn, cancel: &Cancel, now: Instant) -> bool {
        let Some((port, _)) = self.conns.get(&conn).and_then(|wire| self.ports.get_mut(wire))
        else {
            return false;
        };
        let Some(bytes) = port.assembly.stop(cancel) else { return false };
        let by = match cancel.reason {
            CancelReason::CallerDone => None,
            CancelReason::TwinStarted { by } => Some(by.n),
        };
        let (attempt, how) = (cancel.attempt, How::Withdrawn);
        let ended = Ended { attempt, how, by, load: self.core.load() };
        self.end(env, conn, &Frame::Ended(ended), bytes as usize, now);
        true
    }

    fn stop_reply(&mut self, env: &mut Env, conn: Conn, cancel: &Cancel, now: Instant) -> bool {
        if cancel.reason != CancelReason::CallerDone {
            return false;
        }
        let Some((port, _)) = self.conns.get(&conn).and_then(|wire| self.ports.get_mut(wire))
        else {
            return false;
        };
        let Some(bytes) = port.cut_reply(cancel.attempt) else { return false };
        let (attempt, how) = (cancel.attempt, How::Aborted);
        let ended = Ended { attempt, how, by: None, load: self.core.load() };
        self.end(env, conn, &Frame::Ended(ended), bytes, now);
        true
    }

    /// Gives up requests whose deadline passed on their way.
    pub(super) fn shed_late_requests(&mut self, env: &mut Env, now: Instant) {
        let lines: Vec<Line> =
            self.conns.iter().map(|(&conn, &wire)| Line { wire, conn }).collect();
        for Line { wire, conn } in lines {
            while let Some((port, _)) = self.ports.get_mut(&wire)
                && let Some((attempt, bytes)) = port.assembly.expire(now)
            {
                let ended = Ended { attempt, how: How::Shed, by: None, load: self.core.load() };
                self.end(env, conn, &Frame::Ended(ended), bytes as usize, now);
            }
        }
    }

    /// Says something on a client's connection that ends a request of so many bytes.
    pub(super) fn end(
        &mut self,
        env: &mut Env,
        conn: Conn,
        frame: &Frame<'_>,
        frees: usize,
        now: Instant,
    ) {
        // A connection that closed in this turn may still be spoken to: nobody hears.
        let Some(&wire) = self.conns.get(&conn) else { return };
        env.book.server_says(wire, frame);
        if let Some(attempt) = ended_by(frame) {
            self.fair.ends(attempt, wire);
        }
        if let Some((port, _)) = self.ports.get_mut(&wire) {
            port.put_end(frame, frees, now);
        }
    }
}

/// The copy that a frame ends.
const fn ended_by(frame: &Frame<'_>) -> Option<Attempt> {
    match frame {
        Frame::Reply(reply, _) | Frame::ReplyWith(reply, ..) => Some(reply.attempt),
        Frame::Ended(ended) => Some(ended.attempt),
        Frame::Overloaded(overloaded) => Some(overloaded.attempt),
        _ => None,
    }
}
