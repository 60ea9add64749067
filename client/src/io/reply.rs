use std::fmt;
use std::ops::Deref;

use bowline_protocol::{Error, ErrorKind, Freshness, Label};
use bowline_runtime::payload::Payload;

use super::shell::Answer;
use crate::core::Outcome;

/// A good reply: its payload, and what it took.
#[derive(Debug)]
pub struct Reply {
    pub(super) answer: Answer,
    pub(super) is_older: bool,
    pub(super) outcome: Outcome,
}

impl Reply {
    /// How many copies were sent, whose reply this is, how long it took.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Where it came from (a cache, a disk), if the service says so.
    pub fn label(&self) -> Option<&str> {
        self.answer.label.as_ref().map(Label::as_str)
    }

    /// How fresh it is, if the service says so. (Its staleness is no measure of what to ask for.)
    pub fn freshness(&self) -> Option<Freshness> {
        self.answer.fresh
    }

    /// It is older than was asked, and the best that there was: see
    /// [`Call::or_older`](super::Call::or_older).
    pub fn is_older(&self) -> bool {
        self.is_older
    }

    /// The version that it is of, if the service says so; of a write, if its handler says so, the one to
    /// ask for when reading it ([`Call::at_least`](super::Call::at_least)).
    pub fn version(&self) -> Option<u64> {
        version(self.answer.fresh)
    }

    /// The payload, for good.
    pub fn into_vec(self) -> Vec<u8> {
        self.answer.payload.into_vec()
    }
}

impl AsRef<[u8]> for Reply {
    fn as_ref(&self) -> &[u8] {
        &self.answer.payload
    }
}

impl Deref for Reply {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.answer.payload
    }
}

/// The version of what is so fresh, if it says one.
pub(super) fn version(fresh: Option<Freshness>) -> Option<u64> {
    fresh.map(|fresh| fresh.version).filter(|&version| version != 0)
}

/// A call that failed.
pub struct Failure {
    pub(super) error: Error,
    pub(super) payload: Option<Payload>,
    pub(super) outcome: Option<Outcome>,
}

impl Failure {
    /// A call that was not begun, or whose reply could not be read.
    pub(super) const fn of(error: Error) -> Failure {
        Failure { error, payload: None, outcome: None }
    }

    /// What happened, whether it ran, and whether it is worth asking again.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// What came with the error: the payload of the service's own, or the server's words; of a payload
    /// that is too large, which limit it is above, and of a method that is not there, which are. Empty if
    /// no reply brought the error, or another came after that. Never a result that was refused.
    pub fn payload(&self) -> &[u8] {
        self.payload.as_deref().unwrap_or_default()
    }

    /// How many copies were sent and how long it took; None if the call was not begun.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_error(f, &self.error, self.payload())
    }
}

/// As `main` prints what it returns: with what was said of the error.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_failure(f, "Failure", self, self.payload(), self.outcome())
    }
}

/// A failure in its own words, and what it took. The bytes of a service's own error are shown if they are
/// a line of text.
pub(super) fn debug_failure(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    failure: &dyn fmt::Display,
    payload: &[u8],
    outcome: Option<&Outcome>,
) -> fmt::Result {
    let mut fields = f.debug_struct(name);
    fields.field("error", &format_args!("{failure}"));
    match words(payload) {
        Some(line) => fields.field("payload", &line),
        None => fields.field("payload", &format_args!("{} bytes", payload.len())),
    };
    fields.field("outcome", &outcome).finish()
}

/// An error, and what is said of it: by this side, or by the server, if it is of those of which servers
/// say something, and that is a line of text: what services say is theirs, and may be data.
pub(super) fn write_error(
    f: &mut fmt::Formatter<'_>,
    error: &Error,
    payload: &[u8],
) -> fmt::Result {
    write!(f, "{error}")?;
    let told = match error.kind {
        ErrorKind::BadRequest | ErrorKind::Failed => words(payload),
        // Of these this side says it, and has looked at what it cites.
        ErrorKind::NoSuchMethod | ErrorKind::PayloadTooLarge => std::str::from_utf8(payload).ok(),
        _ => None,
    };
    told.filter(|told| !told.is_empty()).map_or(Ok(()), |told| write!(f, ": {told}"))
}

/// The payload as a line of text, if it is one.
pub(super) fn words(payload: &[u8]) -> Option<&str> {
    let is_line = |it: &&str| !it.is_empty() && it.len() <= 512 && !it.contains(char::is_control);
    std::str::from_utf8(payload).ok().filter(is_line)
}

impl std::error::Error for Failure {}
