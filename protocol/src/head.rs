//! What a payload in segments belongs to.

use crate::frame::{PayloadOf, Reply, Request};
use crate::id::Attempt;

/// The frame that its first segment came with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Head {
    Request(Request),
    Reply(Reply),
}

impl Head {
    /// How the segments that follow name it.
    pub(crate) const fn name(&self) -> (Attempt, PayloadOf) {
        match self {
            Head::Request(request) => (request.attempt, PayloadOf::Request),
            Head::Reply(reply) => (reply.attempt, PayloadOf::Reply),
        }
    }
}
