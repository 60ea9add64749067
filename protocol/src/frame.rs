//! What can be said on a connection, one type a frame.
//!
//! Payloads are opaque and borrowed from the bytes they came in; everything else is a small value.

use core::fmt;
use core::time::Duration;

pub use crate::hello::{Credit, Features, Hello, HelloAck, Identity, Takes};
use crate::id::{Attempt, Method, Twin};
use crate::options::Options;

/// Anything that one end says to the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// Who I am. The first frame of either side.
    Hello(Hello),
    /// I know who you are.
    HelloAck(HelloAck),
    /// Are you there?
    Ping(Ping),
    /// I am: the same token back.
    Pong(Ping),
    /// Client to server: one copy of a call, and its payload.
    Request(Request, &'a [u8]),
    /// The same, with options.
    RequestWith(Request, Options<'a>, &'a [u8]),
    /// Client to server, or server to server: stop this copy.
    Cancel(Cancel),
    /// Server to client, only where the twin's server can't be told directly: this copy starts.
    Started(Started),
    /// Server to client, ends a copy: what its handler returned.
    Reply(Reply, &'a [u8]),
    /// The same, with options.
    ReplyWith(Reply, Options<'a>, &'a [u8]),
    /// Server to client, ends a copy: it will not be answered.
    Ended(Ended),
    /// Server to client, ends a copy: it was never accepted.
    Overloaded(Overloaded),
    /// The next part of the payload of a request or reply that was opened with a total.
    Segment(Segment, &'a [u8]),
    /// Server to client: so much may be sent by now.
    Credit(Credit),
    /// Bring me nothing new; what I have, I finish.
    GoAway(GoAway),
    /// The connection ends, and why.
    Goodbye(Goodbye, &'a [u8]),
}

impl Frame<'_> {
    /// What it is called, in errors and in the specification.
    pub const fn name(&self) -> &'static str {
        match self {
            Frame::Hello(_) => "hello",
            Frame::HelloAck(_) => "hello-ack",
            Frame::Ping(_) => "ping",
            Frame::Pong(_) => "pong",
            Frame::Request(..) | Frame::RequestWith(..) => "request",
            Frame::Cancel(_) => "cancel",
            Frame::Started(_) => "started",
            Frame::Reply(..) | Frame::ReplyWith(..) => "reply",
            Frame::Ended(_) => "ended",
            Frame::Overloaded(_) => "overloaded",
            Frame::Segment(..) => "segment",
            Frame::Credit(_) => "credit",
            Frame::GoAway(_) => "go-away",
            Frame::Goodbye(..) => "goodbye",
        }
    }
}

/// A ping, or the pong that answers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ping {
    /// Comes back unchanged.
    pub token: u64,
}

/// Why a copy was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cause {
    /// The call began (both copies of a tied pair, too).
    #[default]
    First,
    /// An earlier copy is slow.
    Hedge,
    /// No copy was alive any more.
    Redispatch,
}

/// One copy of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its name.
    pub attempt: Attempt,
    /// What to run.
    pub method: Method,
    /// What is left of the call's deadline, less what the sender keeps for the way back. The
    /// receiver counts from the moment of arrival, by its own clock.
    pub remaining: Duration,
    /// Why it was sent.
    pub cause: Cause,
    /// The caller holds that running it twice does no harm.
    pub idempotent: bool,
    /// The other copy, if this one is tied.
    pub tie: Option<Tie>,
}

impl Request {
    /// Of two tied copies the one with the lower number is the primary: on a double start it goes on.
    /// An untied copy is primary, too.
    pub fn is_primary(&self) -> bool {
        self.tie.is_none_or(|tie| self.attempt.n < tie.twin.n)
    }

    /// Sent beside a copy that is still alive: a hedge, or the second of a tied pair.
    pub fn is_extra(&self) -> bool {
        self.cause == Cause::Hedge || !self.is_primary()
    }
}

/// What makes a copy tied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tie {
    /// The other copy.
    pub twin: Twin,
    /// How long after one copy's start the other may still turn up: the life of a tombstone.
    pub window: Duration,
}

/// Why a copy should stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelReason {
    /// Its twin passed every check and starts now: `by` says which, and where.
    TwinStarted {
        /// The copy that starts.
        by: Twin,
    },
    /// Nobody waits for it any more.
    CallerDone,
}

/// Stop a copy. One layout, whether it comes from a server, from a client for a server, or from a
/// client for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cancel {
    /// Which copy.
    pub attempt: Attempt,
    /// Why.
    pub reason: CancelReason,
    /// How long it is worth remembering if the copy is not there yet.
    pub lifetime: Duration,
}

/// A tied copy starts, and its server can't tell the twin's: the client relays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Started {
    /// Which copy.
    pub attempt: Attempt,
}

/// How a server is doing, in every frame that ends a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Copies that run on this core.
    pub running: u16,
    /// Copies that wait on this core.
    pub queued: u16,
    /// How long the last copies waited in its queue: a moving average.
    pub wait: Duration,
}

/// What became of a request that was answered.
///
/// Codes below [`Status::APP`] are the protocol's; the rest belong to the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It ran; the payload is the result.
    Ok,
    /// No such method here. It did not run.
    NoSuchMethod,
    /// The request can't be what its sender meant (a tie of a method that must not run twice, a
    /// name that is in use). It did not run. The payload says what is wrong, in UTF-8.
    BadRequest,
    /// The handler panicked, or ended without an answer. How far it came is unknown.
    Failed,
    /// The replica is not as fresh as the request asks. It did not run. Only who asks is told so.
    Stale,
    /// The reply is larger than its caller takes. It ran; the payload says so, in UTF-8.
    TooLarge,
    /// The service's own error, by the service's own number; the payload belongs to it.
    App(u16),
}

impl Status {
    /// The first code of a service's own.
    pub const APP: u16 = 0x100;

    /// As it stands on the wire. A service's own numbers follow [`Status::APP`]; those that would
    /// not fit are all 0xffff.
    pub const fn code(self) -> u16 {
        match self {
            Status::Ok => 0,
            Status::NoSuchMethod => 1,
            Status::BadRequest => 2,
            Status::Failed => 3,
            Status::Stale => 4,
            Status::TooLarge => 5,
            Status::App(number) => Status::APP.saturating_add(number),
        }
    }

    /// Back from the wire. What a later version may say beyond what this one knows is a failure
    /// of which no more is known: so statuses may be added, and cost an old caller no connection.
    pub const fn from_code(code: u16) -> Status {
        match code {
            0 => Status::Ok,
            1 => Status::NoSuchMethod,
            2 => Status::BadRequest,
            4 => Status::Stale,
            5 => Status::TooLarge,
            Status::APP.. => Status::App(code - Status::APP),
            _ => Status::Failed,
        }
    }
}

/// A copy was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Which copy.
    pub attempt: Attempt,
    /// What became of it.
    pub status: Status,
    /// Its handler was started.
    pub executed: bool,
    /// How the server is doing.
    pub load: Load,
}

/// Why a copy ended without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Taken out of the queue, since its twin started or its caller was done. It never ran.
    Withdrawn,
    /// Stopped while it ran, for the same reasons.
    Aborted,
    /// Left the queue without a start: its deadline could not be met any more. It never ran.
    Shed,
}

impl How {
    /// As it stands on the wire.
    pub const fn code(self) -> u16 {
        match self {
            How::Withdrawn => 0,
            How::Aborted => 1,
            How::Shed => 2,
        }
    }

    /// Back from the wire.
    pub const fn from_code(code: u16) -> Option<How> {
        match code {
            0 => Some(How::Withdrawn),
            1 => Some(How::Aborted),
            2 => Some(How::Shed),
            _ => None,
        }
    }

    /// The copy's handler was started.
    pub const fn started(self) -> bool {
        matches!(self, How::Aborted)
    }
}

/// A copy ended without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Which copy.
    pub attempt: Attempt,
    /// Why.
    pub how: How,
    /// The number of the twin that ended it, if one did.
    pub by: Option<u16>,
    /// How the server is doing.
    pub load: Load,
}

/// A copy was refused on arrival: it was never in the queue, and never ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overloaded {
    /// Which copy.
    pub attempt: Attempt,
    /// When it may be worth asking again.
    pub retry_after: Duration,
    /// How the server is doing.
    pub load: Load,
}

/// Which payload a segment belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PayloadOf {
    /// A request's: client to server.
    Request,
    /// A reply's: server to client.
    Reply,
}

impl PayloadOf {
    /// As it stands on the wire.
    pub const fn code(self) -> u16 {
        match self {
            PayloadOf::Request => 0,
            PayloadOf::Reply => 1,
        }
    }

    /// Back from the wire.
    pub const fn from_code(code: u16) -> Option<PayloadOf> {
        match code {
            0 => Some(PayloadOf::Request),
            1 => Some(PayloadOf::Reply),
            _ => None,
        }
    }
}

/// A part of a large payload. Those of one payload come in order, without gaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Whose payload.
    pub attempt: Attempt,
    /// Which of its payloads.
    pub of: PayloadOf,
    /// Where in it the part begins, in bytes.
    pub offset: u32,
}

/// The sender will close this connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoAway {
    /// How long it waits for what it has accepted to end.
    pub within: Duration,
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GoodbyeReason {
    /// The sender shuts down, in good order.
    Leaving,
    /// The receiver broke the protocol; the text says how.
    Protocol,
    /// The receiver is not whom the sender expected, or is not welcome.
    Stranger,
    /// The receiver was silent for too long.
    Silent,
    /// The receiver sent more than it was granted.
    Credit,
}

impl GoodbyeReason {
    /// As it stands on the wire.
    pub const fn code(self) -> u16 {
        match self {
            GoodbyeReason::Leaving => 0,
            GoodbyeReason::Protocol => 1,
            GoodbyeReason::Stranger => 2,
            GoodbyeReason::Silent => 3,
            GoodbyeReason::Credit => 4,
        }
    }

    /// Back from the wire; None for a code that this version does not know.
    pub const fn from_code(code: u16) -> Option<GoodbyeReason> {
        match code {
            0 => Some(GoodbyeReason::Leaving),
            1 => Some(GoodbyeReason::Protocol),
            2 => Some(GoodbyeReason::Stranger),
            3 => Some(GoodbyeReason::Silent),
            4 => Some(GoodbyeReason::Credit),
            _ => None,
        }
    }
}

/// The last frame of a connection; its payload is a sentence for a person, in UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goodbye {
    /// Why.
    pub reason: GoodbyeReason,
}

impl fmt::Display for GoodbyeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GoodbyeReason::Leaving => "it is shutting down",
            GoodbyeReason::Protocol => "we broke the protocol",
            GoodbyeReason::Stranger => "we are not whom it expected",
            GoodbyeReason::Silent => "we were silent for too long",
            GoodbyeReason::Credit => "we sent more than we were granted",
        })
    }
}
