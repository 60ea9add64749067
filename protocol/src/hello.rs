//! Who speaks, what it can do, and what it takes: said once, at the head of every connection.

use alloc::vec::Vec;
use core::fmt;

use crate::codec::VERSION;
use crate::id::{ClientId, Station};
use crate::service::Methods;

/// Who speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Identity {
    /// A client core.
    Client(ClientId),
    /// A core of a replica.
    Server(Station),
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Client(_) => f.write_str("a client"),
            Identity::Server(Station { replica, core }) => {
                write!(f, "core {core} of replica {replica}")
            }
        }
    }
}

/// What a side can do beyond the least that is asked of all. A frame that needs a feature is sent
/// only to a side whose hello has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Features(u8);

impl Features {
    /// Nothing beyond the least.
    pub const NONE: Features = Features(0);
    /// Understands options in requests and replies.
    pub const OPTIONS: Features = Features(1 << 0);
    /// Puts payloads together that come in segments.
    pub const SEGMENTS: Features = Features(1 << 1);
    /// Keeps to the credit that it is granted, and takes more as it comes.
    pub const CREDIT: Features = Features(1 << 2);
    /// Understands that the other side is about to leave.
    pub const GO_AWAY: Features = Features(1 << 3);
    /// Wants no checksum of the services' bytes that it is sent: something else guards those.
    pub const UNSUMMED: Features = Features(1 << 4);

    /// As they stand on the wire.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Back from the wire. Bits that are not known here stay, and mean nothing.
    pub const fn from_bits(bits: u8) -> Features {
        Features(bits)
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, more: Features) -> Features {
        Features(self.0 | more.0)
    }

    /// All of `asked` are here.
    pub const fn has(self, asked: Features) -> bool {
        self.0 & asked.0 == asked.0
    }
}

/// The largest payloads that a side takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Takes {
    /// The largest payload of one frame, in bytes. Below 1024 nothing comes in segments.
    pub frame: u32,
    /// The largest payload in all, in bytes, if it comes in segments.
    pub payload: u32,
}

impl Default for Takes {
    /// What a side takes that does not say: a mebibyte, in one frame.
    fn default() -> Takes {
        Takes { frame: 1 << 20, payload: 1 << 20 }
    }
}

/// The first frame of either side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Who speaks.
    pub identity: Identity,
    /// The oldest version of the protocol that it speaks.
    pub oldest: u8,
    /// The newest version of the protocol that it speaks.
    pub newest: u8,
    /// The listening port of each of a server's cores, in their order; empty from a client.
    pub ports: Vec<u16>,
    /// What it can do.
    pub features: Features,
    /// The payloads that it takes, if it says so; else [`Takes::default`].
    pub takes: Option<Takes>,
    /// The methods that it serves, or was built to call.
    pub methods: Option<Methods>,
}

impl Hello {
    /// The hello of a client core.
    pub const fn client(id: ClientId) -> Hello {
        Hello::new(Identity::Client(id), Vec::new())
    }

    /// The hello of a server's core, with the port of each core of that server.
    pub const fn server(station: Station, ports: Vec<u16>) -> Hello {
        Hello::new(Identity::Server(station), ports)
    }

    const fn new(identity: Identity, ports: Vec<u16>) -> Hello {
        let features = Features::NONE;
        Hello {
            identity,
            oldest: VERSION,
            newest: VERSION,
            ports,
            features,
            takes: None,
            methods: None,
        }
    }

    /// Whose core speaks, if it is a server's.
    pub const fn station(&self) -> Option<Station> {
        match self.identity {
            Identity::Server(station) => Some(station),
            Identity::Client(_) => None,
        }
    }
}

/// The other side's hello was understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelloAck {
    /// A twin's cancel that comes on this connection will be obeyed: true only from the side that
    /// dialled it, to an address of its own configuration, and found there whom it expected.
    pub obeys_cancels: bool,
    /// What may be sent on this connection for now; None if nobody counts.
    pub grant: Option<Credit>,
}

/// How much may be sent on a connection in its whole life, counted from its first request. A later
/// word raises an earlier one, so none is ever added up twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credit {
    /// Requests.
    pub requests: u64,
    /// Bytes of the payloads of requests, each counted in full when it is opened; options are not
    /// counted.
    pub bytes: u64,
}
