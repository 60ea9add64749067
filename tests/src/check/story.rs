//! What is written down of a call and of its copies.

use bowline_protocol::{Cause, Error, Freshness, Request, Spender, Station};

use bowline_time::Instant;

use crate::kernel::net::{Host, Wire};
use crate::kernel::span::Nanos;

/// How a call ended, as its caller was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// With the result of this copy, if the client says which.
    Ok(Option<u16>),
    /// With an error.
    Failed(Error),
}

/// How a frame came to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// On a client's wire.
    Client(Wire),
    /// On a wire that the server itself dialled, to this peer.
    Mesh(Station),
    /// On any other.
    Stranger,
}

/// What a copy's server has done with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum There {
    /// It has not arrived.
    UnderWay,
    /// Its beginning has arrived.
    Arriving,
    /// Arrived; the server has not said anything about it, nor started it.
    Queued,
    /// Its handler runs.
    Running,
    /// The server has said that it ended.
    Ended,
    /// Its connection or its server is gone: nobody will hear of it.
    Lost,
}

/// One copy.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) request: Request,
    /// The client's end of the wire that it was sent on.
    pub(super) wire: Wire,
    pub(super) server: Host,
    pub(super) there: There,
    pub(super) started: bool,
    /// Until when it may start, by its server's clock, and the same in the world's time.
    pub(super) until: Option<(Instant, Nanos)>,
    /// Stopped, or taken from the queue, by its twin.
    pub(super) stopped_by_twin: bool,
    /// Its server got a cancel that it has to obey while the copy was queued.
    pub(super) cancel_arrived: bool,
    /// The client got its last frame.
    pub(super) heard: Option<Heard>,
    /// The client closed the wire, or found it closed.
    pub(super) wire_gone: bool,
    pub(super) caller_done_sent: bool,
    /// It was refused before its call was tried again: that counts no more.
    pub(super) forgiven: bool,
    /// It was answered with what another copy with its key was answered.
    pub(super) by_key: bool,
}

/// The frame that ended a copy, as the client heard it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    Good,
    /// An answer that is an error.
    Bad,
    /// It never ran: taken out of a queue.
    Withdrawn,
    /// It never ran: the server would not.
    Refused,
    /// Stopped, as its twin started or its caller was done.
    Aborted,
    /// Stopped, and nobody had asked for that.
    GaveUp,
}

impl Heard {
    pub(super) const fn never_ran(self) -> bool {
        matches!(self, Heard::Withdrawn | Heard::Refused)
    }
}

impl Copy {
    /// As far as the client can know, this copy may still be answered.
    pub(super) const fn alive(&self) -> bool {
        self.heard.is_none() && !self.wire_gone
    }

    /// As far as the client knows, this copy's replica did not serve it.
    const fn failed(&self) -> bool {
        self.has_failed() && !self.forgiven
    }

    /// The same, though the call may have been tried again since.
    const fn has_failed(&self) -> bool {
        matches!(self.heard, Some(Heard::Good | Heard::Bad | Heard::Refused | Heard::GaveUp))
    }

    /// The connection that brought it broke before it ended.
    const fn lost(&self) -> bool {
        self.heard.is_none() && self.wire_gone
    }
}

/// Where servers keep the results of keyed methods: all in one store, or each process in its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Homes {
    /// There is one store.
    pub shared: bool,
    /// How many hosts each process has.
    pub cores: usize,
}

impl Homes {
    /// The store of a server.
    const fn of(self, server: Host) -> usize {
        if self.shared { 0 } else { server.0 / self.cores }
    }
}

/// A server that a client is connected to, and what it has granted.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// Which.
    pub server: Host,
    /// Since when.
    pub since: Nanos,
    /// What of that is left.
    pub credit: Spender,
    /// The round trip there, as its client knows it.
    pub rtt: Nanos,
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) host: Host,
    /// How many bytes its request has.
    pub(super) size: usize,
    pub(super) deadline: Nanos,
    pub(super) idempotent: bool,
    /// What it has to bring about once.
    pub(super) key: Option<u128>,
    /// How fresh its answer has to be.
    pub(super) asks: Option<Freshness>,
    /// The store in which it had its effect last.
    pub(super) effect_in: Option<u16>,
    /// It may be tried again when every server has refused it.
    pub(super) retried: bool,
    pub(super) copies: Vec<Copy>,
    pub(super) done: Option<Nanos>,
    /// When the client last heard of the end of a copy.
    pub(super) news: Nanos,
    /// Changed in this turn of its client.
    pub(super) touched: bool,
}

impl Call {
    /// As far as the client can know, it may still be answered.
    pub(super) fn is_alive(&self) -> bool {
        self.copies.iter().any(Copy::alive)
    }

    /// Nothing lives of it, and this copy is no answer to news: it may be that the call is tried again
    /// after every server that was there had refused it, beginning with one that came meanwhile.
    pub(super) fn may_be_retried(&self, request: &Request, now: Nanos) -> bool {
        self.retried && request.cause == Cause::Redispatch && self.news < now && !self.is_alive()
    }

    /// The call is tried again, wherever it was refused before.
    pub(super) fn forgive_refusals(&mut self) {
        let refused = |copy: &&mut Copy| copy.heard == Some(Heard::Refused);
        self.copies.iter_mut().filter(refused).for_each(|copy| copy.forgiven = true);
    }

    /// As far as the client knows, the call may be sent to that server though it may have run: it
    /// may run twice, or has a key and ran nowhere but where that server keeps its results.
    pub(super) fn may_repeat_at(&self, server: Host, homes: Homes) -> bool {
        let may_run = |copy: &&Copy| !copy.heard.is_some_and(Heard::never_ran);
        let kept = |copy: &Copy| self.key.is_some() && homes.of(copy.server) == homes.of(server);
        self.idempotent || self.copies.iter().filter(may_run).all(kept)
    }

    /// That server did not serve a copy, and may not be asked again before the call is retried: when
    /// that was, or will be, is not always to be told from outside.
    pub(super) fn may_avoid(&self, server: Host) -> bool {
        self.is_spoilt_at(server)
            || self.copies.iter().any(|copy| copy.server == server && copy.has_failed())
    }

    /// As far as the client knows, that server has a copy, or did not serve one. A connection that
    /// broke once is no such failure: it may be there again.
    pub(super) fn is_spoilt_at(&self, server: Host) -> bool {
        let there = || self.copies.iter().filter(|copy| copy.server == server);
        there().any(|copy| copy.alive() || copy.failed())
            || there().filter(|copy| copy.lost()).count() > 1
    }
}
