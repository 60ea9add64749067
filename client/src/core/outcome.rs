//! What goes into the machine and what comes out.

use core::time::Duration;

use bowline_protocol::{Cancel, Cause, Error, Method, OptionSet, ReplicaId, Request, Seq};
use bowline_time::Instant;

use super::policy::PolicyId;

/// A call to be made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spec<P> {
    /// What to run.
    pub method: Method,
    /// What to send; the machine never looks into it, and drops it when the call is done.
    pub payload: P,
    /// The payload's length, in bytes.
    pub size: u32,
    /// When the call must be done, by the clock of this core; in a day at the latest.
    pub deadline: Instant,
    /// What is done against the tail.
    pub policy: PolicyId,
    /// Its method's policy, in place of which it follows another: where that has no word of its own
    /// on what replies are worth and how many copies there may be, its method's holds.
    pub instead_of: PolicyId,
    /// What the call is about (a block, a user). It decides in which order the replicas are asked,
    /// in place of the rule: calls with one of these begin at one replica while it is connected and has
    /// not asked to be spared, and every client has the same order. None: the rule decides.
    pub shard_key: Option<u64>,
    /// What every copy of it says beside its header; among that, how fresh its result has to be.
    pub options: OptionSet,
    /// Running it twice does no harm, for all that its caller knows: where a replica says otherwise of
    /// its method, no copy is sent beside one there that may run, and none there beside another. Calls
    /// that are not idempotent are never sent twice unless no copy can have run.
    pub idempotent: bool,
    /// It has no second copy, whatever its policy: its service allows none of it.
    pub single: bool,
    /// The call is made inside a handler that itself runs as an extra copy: it gets none of its
    /// own, so that amplification does not multiply.
    pub from_extra: bool,
    /// The caller's own mark; comes back when the call is done.
    pub tag: u64,
}

impl<P> Spec<P> {
    /// A plain call, not idempotent, of size and tag 0.
    pub const fn new(method: Method, payload: P, deadline: Instant) -> Spec<P> {
        Spec {
            method,
            payload,
            size: 0,
            deadline,
            policy: PolicyId::NONE,
            instead_of: PolicyId::NONE,
            shard_key: None,
            options: OptionSet::NONE,
            idempotent: false,
            single: false,
            from_extra: false,
            tag: 0,
        }
    }
}

/// Names a call of the [`Calls`](super::Calls) that gave it. Never used twice: once the call is
/// done it finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallKey(pub(crate) Seq);

impl CallKey {
    /// The call's sequence number, as it goes on the wire.
    pub const fn seq(self) -> Seq {
        self.0
    }
}

/// How a copy ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It was never sent.
    Unsent,
    /// It was answered.
    Replied,
    /// It was stopped while it ran.
    Aborted,
    /// It was taken out of the queue.
    Withdrawn,
    /// The server dropped it, since its deadline could not be met.
    Shed,
    /// The server refused it on arrival.
    Rejected,
    /// Its connection closed, or it was given up.
    Lost,
}

impl End {
    /// The copy may have been started.
    pub(crate) const fn may_have_run(self) -> bool {
        matches!(self, End::Replied | End::Aborted | End::Lost)
    }
}

/// The end of a copy, for who follows each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyEnd {
    /// Of which call.
    pub call: CallKey,
    /// Which of its copies.
    pub n: u16,
    /// How.
    pub end: End,
}

/// Whose reply a call got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Winner {
    /// Which replica.
    pub replica: ReplicaId,
    /// Which copy.
    pub n: u16,
    /// Why that copy was sent.
    pub cause: Cause,
}

/// What it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// How long the call took.
    pub latency: Duration,
    /// How many copies were sent.
    pub attempts: u8,
    /// How many of them were hedges.
    pub hedges: u8,
    /// It began as a tied pair.
    pub tied: bool,
    /// Whose reply it was, if it was one.
    pub winner: Option<Winner>,
}

/// A call is done: its only end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// Which call.
    pub call: CallKey,
    /// The caller's mark.
    pub tag: u64,
    /// How it ended. The payload of a reply is in the hands of who brought the reply.
    pub result: Result<(), Error>,
    /// What it took.
    pub outcome: Outcome,
}

/// What a reply meant to its call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// Nothing: its payload is of no use.
    Nothing,
    /// It is a result, but older than the call asked, and the freshest of those so far: its payload
    /// may be kept for the caller, in case nothing better comes.
    Older {
        /// Which call.
        call: CallKey,
        /// The caller's mark.
        tag: u64,
    },
    /// It ended the call.
    Done {
        /// How.
        done: Done,
        /// Its payload belongs to the caller: it is the result's, or what the server or the service says
        /// of the error. That of another is data, which was not good enough, or tells of an error that
        /// weighs less than one from before.
        is_told: bool,
    },
}

impl Heard {
    /// The call's end, if that is what it was.
    pub const fn done(self) -> Option<Done> {
        match self {
            Heard::Done { done, .. } => Some(done),
            Heard::Nothing | Heard::Older { .. } => None,
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send this request to the replica, with the call's payload.
    Send {
        /// To whom.
        replica: ReplicaId,
        /// Whose payload.
        call: CallKey,
        /// The request.
        request: Request,
    },
    /// Send this cancel to the replica.
    Cancel {
        /// To whom.
        replica: ReplicaId,
        /// The cancel.
        cancel: Cancel,
    },
    /// A call is done, and not by a reply that was just handed in.
    Done(Done),
}
