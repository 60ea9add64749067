//! How things are named on the wire.
//!
//! A *call* is what the user asked for: a client and a sequence number. An *attempt* (a *copy*) is
//! one send of it to one replica: the call and a number. Every cancel, tombstone and notice names
//! an attempt, never a call, since what is true of one copy is not true of its twin.

use core::fmt;

/// One client core of one process. New (random) at every start, so that no name is ever used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ClientId(pub u64);

/// The number of a call within its client; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seq(pub u64);

/// The number of a replica, as the configuration of the cluster gives it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ReplicaId(pub u16);

/// The number of a method within a service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Method(pub u16);

/// One copy of one call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Attempt {
    /// Who calls.
    pub client: ClientId,
    /// Which of its calls.
    pub seq: Seq,
    /// Which copy of that call: 0 is the first, and no number is used twice within a call.
    pub n: u16,
}

impl Attempt {
    /// Another copy of the same call.
    pub const fn sibling(self, n: u16) -> Attempt {
        Attempt { n, ..self }
    }
}

/// One core of one replica: where a copy lives, and who a mesh connection belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Station {
    /// Which replica.
    pub replica: ReplicaId,
    /// Which of its cores, from 0.
    pub core: u16,
}

/// The other copy of a tied pair: where it is, and its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Twin {
    /// The core that holds, or will hold, the other copy.
    pub station: Station,
    /// The other copy's number.
    pub n: u16,
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {:016x}", self.0)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}", self.0)
    }
}

impl fmt::Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "replica {}", self.0)
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "method {}", self.0)
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}/{}#{}", self.client.0, self.seq.0, self.n)
    }
}

impl fmt::Debug for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.replica.0, self.core)
    }
}

impl fmt::Debug for Twin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} at {:?}", self.n, self.station)
    }
}
