//! What a copy is answered with, whoever holds the bytes.

use std::ops::Deref;
use std::sync::Arc;
use std::vec::Vec;

/// The payload of a reply.
pub(super) enum Answer<R> {
    /// What the handler returned.
    Reply(R),
    /// What the handler says of its failure.
    Failure(Vec<u8>),
    /// What another copy of the same key was answered.
    Stored(Arc<[u8]>),
    /// What the server says itself.
    Text(&'static str),
}

impl<R: Deref<Target = [u8]>> Deref for Answer<R> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Answer::Reply(reply) => reply,
            Answer::Failure(detail) => detail,
            Answer::Stored(result) => result,
            Answer::Text(text) => text.as_bytes(),
        }
    }
}

/// An answer on its way.
pub(super) struct Letter<R> {
    pub(super) answer: Answer<R>,
    /// How many bytes the request had that it ends.
    pub(super) frees: usize,
}

impl<R: Deref<Target = [u8]>> AsRef<[u8]> for Letter<R> {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}
