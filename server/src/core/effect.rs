//! What a core wants done, and the names by which it speaks of it.

use alloc::sync::Arc;
use core::time::Duration;

use bowline_protocol::{
    Cancel, Ended, Frame, Freshness, OptionSet, Overloaded, Reply, Request, Started, Station,
    TrafficClass,
};
use bowline_time::Instant;

use super::arena::Key;

/// A client's connection, from [`Core::on_opened`](super::Core::on_opened) to
/// [`Core::on_closed`](super::Core::on_closed). Never confused with a later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Conn(pub(super) Key);

impl Conn {
    /// The connection's place: below the limit of connections, and nobody else's while it is open.
    /// For tables beside the core.
    pub const fn index(self) -> usize {
        self.0.index as usize
    }
}

/// A copy that was started, until it has ended. Never confused with a later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CopyKey(pub(super) Key);

impl CopyKey {
    /// The copy's place: below `slots + queue_requests`, and nobody else's while the copy lives.
    /// For tables beside the core.
    pub const fn index(self) -> usize {
        self.0.index as usize
    }
}

/// Where a cancel came from; the shell says so by the link that brought it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A client's connection.
    Client(Conn),
    /// A connection which this core itself dialled to a peer of its configuration, who turned out
    /// to be this station, and whose link says that it
    /// [obeys cancels](bowline_protocol::Link::obeys_cancels).
    Mesh(Station),
    /// Any other.
    Stranger,
}

/// What the shell is to do. See [`Core::poll_effect`](super::Core::poll_effect) for the order.
#[derive(Debug)]
pub enum Effect<P> {
    /// Send a cancel to a peer's core, on a connection of the mesh.
    Cancel {
        /// Whom to tell.
        to: Station,
        /// What to tell.
        cancel: Cancel,
    },
    /// Send a small frame on a client's connection.
    Send {
        /// On which.
        conn: Conn,
        /// What.
        notice: Notice,
        /// How many bytes the request had that it ends; None if it ends none.
        frees: Option<usize>,
    },
    /// Answer a copy that brought the key of another, with what that one was answered.
    Answer {
        /// On which connection.
        conn: Conn,
        /// What to answer.
        reply: Reply,
        /// What that says of itself: what the first answer said, as much staler as it is older.
        options: OptionSet,
        /// The reply's payload.
        result: Arc<[u8]>,
        /// How many bytes the request had.
        frees: usize,
    },
    /// Start the handler, and say so when it is done: [`Core::on_finished`](super::Core::on_finished)
    /// or [`Core::on_aborted`](super::Core::on_aborted).
    Start(Start<P>),
    /// Ask a handler to stop: it may, at the next point where it looks.
    Abort {
        /// Whose.
        copy: CopyKey,
        /// Why.
        why: StopReason,
    },
}

/// A copy that starts now.
#[derive(Debug)]
pub struct Start<P> {
    /// Its name here.
    pub copy: CopyKey,
    /// What was asked for.
    pub request: Request,
    /// What the request said beside that.
    pub options: OptionSet,
    /// The traffic class that it was served in, of those that there are here.
    pub class: TrafficClass,
    /// When the caller stops waiting, by this core's clock.
    pub deadline: Instant,
    /// How long it waited in the queue.
    pub waited: Duration,
    /// How fresh its reply is to say that it is, as of now, unless the handler says so itself.
    pub dated: Option<Freshness>,
    /// The request's payload.
    pub payload: P,
}

/// Why a running copy is asked to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopReason {
    /// Its twin started as well, and is the primary.
    TwinStarted,
    /// The caller has what it wanted, or gave up.
    CallerDone,
    /// The connection that brought it is gone.
    Closed,
    /// Its deadline passed while it ran.
    Deadline,
}

/// A frame without a payload of the service's, for a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A tied copy starts, and its twin's server can't be told directly.
    Started(Started),
    /// A copy ended without an answer.
    Ended(Ended),
    /// A copy was refused: too much to do.
    Overloaded(Overloaded),
    /// A copy was refused: it can't be served at all. The text says why.
    Refused(Reply, &'static str),
}

impl Notice {
    /// As it goes on the wire.
    pub const fn frame(&self) -> Frame<'static> {
        match *self {
            Notice::Started(started) => Frame::Started(started),
            Notice::Ended(ended) => Frame::Ended(ended),
            Notice::Overloaded(refusal) => Frame::Overloaded(refusal),
            Notice::Refused(reply, why) => Frame::Reply(reply, why.as_bytes()),
        }
    }
}
