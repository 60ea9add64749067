//! What a caller is told when a call fails.
//!
//! Every error answers the four questions that decide what to do next: what happened, whose it
//! is, whether the request may have run, and whether and when it is worth asking again.

use core::fmt;
use core::time::Duration;

/// Why a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Error {
    /// What happened.
    pub kind: ErrorKind,
    /// Whether the request ran.
    pub executed: Executed,
    /// The server's word on when to ask again, if it gave one.
    pub after: Option<Duration>,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ErrorKind {
    /// The call's deadline passed.
    DeadlineExceeded,
    /// There is no connection to any replica that could serve the call.
    NoReplica,
    /// The connection that the last live copy was sent on broke.
    ConnectionLost,
    /// Every replica that was asked refused: too much to do.
    Overloaded,
    /// Every replica that was asked gave up before it started: the deadline could not be met.
    Shed,
    /// The service has no such method.
    NoSuchMethod,
    /// The server refused the request as one that can't be meant.
    BadRequest,
    /// The handler failed without an answer of its own.
    Failed,
    /// No replica that was asked is as fresh as the call demands, or none says so.
    Stale,
    /// A reply that the caller's classifier holds to be no result, though its status is good.
    Invalid,
    /// The service's own error, by its own number.
    App(u16),
    /// The client holds as many calls as it was told to.
    TooManyCalls,
    /// The request is larger than the peers take, or, of a call that ran, the reply larger than this
    /// client does.
    PayloadTooLarge,
    /// This client had no room for the reply, beside others that were on their way.
    NoRoom,
    /// A request that has no form in bytes (then it was not sent), or a reply that is not what its
    /// method promises; the codec's own words.
    Codec(&'static str),
    /// The caller cancelled the call.
    Cancelled,
    /// The client was shut down.
    Closed,
}

/// Whose an error is: where to look, and whom to tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whose {
    /// The caller asked for what can't be had.
    Caller,
    /// The server, or the service on it.
    Peer,
    /// What lies between.
    Network,
    /// A limit of this process.
    Local,
}

/// Whether a failed request ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Executed {
    /// No copy was started.
    No,
    /// At least one copy was started.
    Yes,
    /// Nobody can say.
    Unknown,
}

impl Error {
    /// An error with nothing to say on when to ask again.
    pub const fn new(kind: ErrorKind, executed: Executed) -> Error {
        Error { kind, executed, after: None }
    }

    /// Whose the error is.
    pub const fn whose(&self) -> Whose {
        match self.kind {
            ErrorKind::Codec(_) => match self.executed {
                Executed::No => Whose::Caller,
                Executed::Yes | Executed::Unknown => Whose::Peer,
            },
            ErrorKind::NoSuchMethod
            | ErrorKind::BadRequest
            | ErrorKind::PayloadTooLarge
            | ErrorKind::Cancelled => Whose::Caller,
            ErrorKind::Overloaded
            | ErrorKind::Shed
            | ErrorKind::Failed
            | ErrorKind::Stale
            | ErrorKind::Invalid
            | ErrorKind::App(_)
            | ErrorKind::DeadlineExceeded => Whose::Peer,
            ErrorKind::NoReplica | ErrorKind::ConnectionLost => Whose::Network,
            ErrorKind::TooManyCalls | ErrorKind::NoRoom | ErrorKind::Closed => Whose::Local,
        }
    }

    /// The same call may succeed if it is made again, and a call that did not run does no harm
    /// twice. (One that may have run is the caller's to judge: is it idempotent?)
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Overloaded
                | ErrorKind::Shed
                | ErrorKind::Stale
                | ErrorKind::NoReplica
                | ErrorKind::ConnectionLost
                | ErrorKind::TooManyCalls
                | ErrorKind::NoRoom
        )
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::DeadlineExceeded => "the deadline passed",
            ErrorKind::NoReplica => "no replica is connected",
            ErrorKind::ConnectionLost => "the connection to the replica broke",
            ErrorKind::Overloaded => "the replicas are overloaded",
            ErrorKind::Shed => "the replicas could not meet the deadline",
            ErrorKind::NoSuchMethod => "the service has no such method",
            ErrorKind::BadRequest => "the server refused the request",
            ErrorKind::Failed => "the handler failed",
            ErrorKind::Stale => {
                "no replica is known to be as fresh as was asked for (where a service never says how fresh \
                 its replies are, none is)"
            }
            ErrorKind::Invalid => "the reply is not one that the caller accepts",
            ErrorKind::App(number) => {
                return write!(f, "the service answered with its error {number}");
            }
            ErrorKind::TooManyCalls => "the client's limit on calls is reached",
            ErrorKind::PayloadTooLarge => "the payload is above the limit",
            ErrorKind::NoRoom => "the client had no room for the reply",
            ErrorKind::Codec(why) => return write!(f, "a value and its bytes don't fit: {why}"),
            ErrorKind::Cancelled => "the call was cancelled",
            ErrorKind::Closed => "the client is closed",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        f.write_str(match self.executed {
            Executed::No => " (it did not run)",
            // Its handler looked at it, and did nothing of it.
            Executed::Yes if self.kind == ErrorKind::BadRequest => " (its handler did)",
            Executed::Yes => " (it ran)",
            Executed::Unknown => " (it may have run)",
        })?;
        match self.after {
            Some(after) => write!(f, "; ask again after {after:?}"),
            None => Ok(()),
        }
    }
}

impl core::error::Error for Error {}
