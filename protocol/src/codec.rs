//! Frames to bytes and back.
//!
//! A frame is a header of [`HEADER_LEN`] bytes and a payload. Every field has one place in the
//! header, whatever the frame; the places that a frame does not use are zero. All numbers are
//! little-endian. The header's checksum covers the rest of the header, and is tested before any
//! other field is believed, so a damaged length is never waited for; the payload has its own.
//!
//! | offset | type | field | used by |
//! |--:|---|---|---|
//! | 0 | u32 | checksum of bytes 4 to 63 | all |
//! | 4 | u8 | version | all |
//! | 5 | u8 | kind | all |
//! | 6 | u16 | flags | all |
//! | 8 | u32 | length of the payload, bytes | all |
//! | 12 | u16 | n: the attempt | all that name a copy |
//! | 14 | u16 | code: method, status, reason, how, or role | most |
//! | 16 | u64 | client | all that name a copy, a client's hello |
//! | 24 | u64 | seq, or a ping's token | all that name a copy, ping, pong |
//! | 32 | u64 | span, ns: remaining, lifetime, or retry after | request, cancel, overloaded |
//! | 40 | u32 | tie window, us | request |
//! | 44 | u16 | other replica | request, cancel, a server's hello |
//! | 46 | u16 | other core | request, cancel, a server's hello |
//! | 48 | u16 | other n | request, cancel, ended |
//! | 50 | u16 | running | reply, ended, overloaded |
//! | 52 | u16 | queued | reply, ended, overloaded |
//! | 54 | u16 | zero | |
//! | 56 | u32 | queue wait, us | reply, ended, overloaded |
//! | 60 | u32 | checksum of the payload; 0 if it is empty | all |
//!
//! Checksums are CRC-32/ISO-HDLC (zlib's).

use alloc::vec::Vec;
use core::time::Duration;

use crate::frame::{
    Cancel, CancelReason, Cause, Ended, Frame, Goodbye, GoodbyeReason, Hello, HelloAck, How,
    Identity, Load, Overloaded, Ping, Reply, Request, Started, Status, Tie,
};
use crate::id::{Attempt, ClientId, Method, ReplicaId, Seq, Station, Twin};

/// The version that this crate speaks.
pub const VERSION: u8 = 1;

/// Length of a frame's header, in bytes: one cache line.
pub const HEADER_LEN: usize = 64;

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const HELLO_ACK: u8 = 2;
    pub(super) const PING: u8 = 3;
    pub(super) const PONG: u8 = 4;
    pub(super) const REQUEST: u8 = 5;
    pub(super) const CANCEL: u8 = 6;
    pub(super) const STARTED: u8 = 7;
    pub(super) const REPLY: u8 = 8;
    pub(super) const ENDED: u8 = 9;
    pub(super) const OVERLOADED: u8 = 10;
    pub(super) const GOODBYE: u8 = 11;
    /// From here on a receiver that does not know the kind skips the frame.
    pub(super) const IGNORABLE: u8 = 0x80;
}

mod flag {
    pub(super) const OBEYS_CANCELS: u16 = 1 << 0;
    pub(super) const IDEMPOTENT: u16 = 1 << 0;
    pub(super) const TIED: u16 = 1 << 1;
    pub(super) const HEDGE: u16 = 1 << 2;
    pub(super) const REDISPATCH: u16 = 1 << 3;
    pub(super) const TWIN_STARTED: u16 = 1 << 0;
    pub(super) const EXECUTED: u16 = 1 << 0;
    pub(super) const BY_TWIN: u16 = 1 << 0;
    /// A receiver that does not know one of these flags ends the connection; of the others it
    /// takes no notice.
    pub(super) const CRITICAL: u16 = 0x00ff;
}

/// What is wrong with bytes that should have been a frame. It always ends the connection: after
/// it, nothing says where the next frame begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// The header was damaged on its way, or what came is not this protocol.
    #[error(
        "the header's checksum is {found:#010x}, not {expected:#010x}: damaged, or not Bowline"
    )]
    HeaderChecksum {
        /// What the header says.
        found: u32,
        /// What its bytes give.
        expected: u32,
    },
    /// The payload was damaged on its way.
    #[error("the payload's checksum of a {frame} frame is {found:#010x}, not {expected:#010x}")]
    PayloadChecksum {
        /// The frame's name.
        frame: &'static str,
        /// What the header says.
        found: u32,
        /// What the payload's bytes give.
        expected: u32,
    },
    /// A version that is not spoken here.
    #[error("version {0} is not spoken here (only version {VERSION})")]
    Version(u8),
    /// A kind of frame that is not known here, and must be.
    #[error("frame kind {0} is not known here")]
    Kind(u8),
    /// A flag that is not known here, and must be.
    #[error("a {frame} frame has unknown flags {flags:#06x}")]
    Flags {
        /// The frame's name.
        frame: &'static str,
        /// Those that are not known.
        flags: u16,
    },
    /// A payload beyond the receiver's limit.
    #[error("a {frame} frame has a payload of {length} bytes, more than the limit of {limit}")]
    TooLong {
        /// The frame's name.
        frame: &'static str,
        /// The payload's length, in bytes.
        length: u32,
        /// The receiver's limit, in bytes.
        limit: u32,
    },
    /// A field that is out of its range.
    #[error("the {field} of a {frame} frame can't be {value}")]
    Field {
        /// The frame's name.
        frame: &'static str,
        /// The field's name.
        field: &'static str,
        /// What it is.
        value: u64,
    },
}

/// Appends `frame` to `out`: one header, one payload.
///
/// # Panics
///
/// If the payload is longer than 4 GiB. Limits far below that are the senders' business.
pub fn encode(frame: &Frame<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + HEADER_LEN, 0);
    let mut header = header_of(frame);
    match frame {
        Frame::Request(_, payload) | Frame::Reply(_, payload) | Frame::Goodbye(_, payload) => {
            out.extend_from_slice(payload);
        }
        Frame::Hello(hello) => {
            out.extend_from_slice(&[hello.oldest, hello.newest, 0, 0]);
            hello.ports.iter().for_each(|port| out.extend_from_slice(&port.to_le_bytes()));
        }
        _ => {}
    }
    let payload = &out[start + HEADER_LEN..];
    header.length = u32::try_from(payload.len()).expect("a payload of at most 4 GiB");
    header.payload_checksum = checksum(payload);
    out[start..start + HEADER_LEN].copy_from_slice(&header.to_bytes());
}

/// The frame at the head of `bytes`, with the number of bytes it takes: `Ok(None)` while it is not
/// there whole, `Ok(Some((None, len)))` for a frame that is to be skipped.
///
/// # Errors
///
/// [`WireError`], as soon as the bytes can't become a frame, and for a payload above `limit` bytes.
pub fn decode(bytes: &[u8], limit: u32) -> Result<Option<(Option<Frame<'_>>, usize)>, WireError> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    let header = Header::from_bytes(head)?;
    if header.length > limit {
        return Err(WireError::TooLong { frame: name(header.kind), length: header.length, limit });
    }
    let length = header.length as usize;
    let Some(payload) = rest.get(..length) else {
        return Ok(None);
    };
    let expected = checksum(payload);
    if header.payload_checksum != expected {
        let found = header.payload_checksum;
        return Err(WireError::PayloadChecksum { frame: name(header.kind), found, expected });
    }
    Ok(Some((frame_of(&header, payload)?, HEADER_LEN + length)))
}

/// How many bytes the frame at the head of `bytes` takes, once its header is there.
///
/// # Errors
///
/// As [`decode`]'s, as far as the header tells.
pub(crate) fn frame_len(bytes: &[u8], limit: u32) -> Result<Option<usize>, WireError> {
    let Some(head) = bytes.first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    let header = Header::from_bytes(head)?;
    if header.length > limit {
        return Err(WireError::TooLong { frame: name(header.kind), length: header.length, limit });
    }
    Ok(Some(HEADER_LEN + header.length as usize))
}

/// Of nothing, 0, as CRC-32 has it.
fn checksum(bytes: &[u8]) -> u32 {
    if bytes.is_empty() { 0 } else { crc32fast::hash(bytes) }
}

/// The header's fields, whatever the frame.
#[derive(Clone, Copy, Default)]
struct Header {
    kind: u8,
    flags: u16,
    length: u32,
    n: u16,
    code: u16,
    client: u64,
    seq: u64,
    span_ns: u64,
    window_us: u32,
    other: Twin,
    running: u16,
    queued: u16,
    wait_us: u32,
    payload_checksum: u32,
}

impl Header {
    fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[4] = VERSION;
        bytes[5] = self.kind;
        bytes[6..8].copy_from_slice(&self.flags.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.n.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.code.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.client.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.seq.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.span_ns.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.window_us.to_le_bytes());
        bytes[44..46].copy_from_slice(&self.other.station.replica.0.to_le_bytes());
        bytes[46..48].copy_from_slice(&self.other.station.core.to_le_bytes());
        bytes[48..50].copy_from_slice(&self.other.n.to_le_bytes());
        bytes[50..52].copy_from_slice(&self.running.to_le_bytes());
        bytes[52..54].copy_from_slice(&self.queued.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.wait_us.to_le_bytes());
        bytes[60..64].copy_from_slice(&self.payload_checksum.to_le_bytes());
        let sum = checksum(&bytes[4..]);
        bytes[0..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Result<Header, WireError> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let (found, expected) = (u32_at(0), checksum(&bytes[4..]));
        if found != expected {
            return Err(WireError::HeaderChecksum { found, expected });
        }
        if bytes[4] != VERSION {
            return Err(WireError::Version(bytes[4]));
        }
        Ok(Header {
            kind: bytes[5],
            flags: u16_at(6),
            length: u32_at(8),
            n: u16_at(12),
            code: u16_at(14),
            client: u64_at(16),
            seq: u64_at(24),
            span_ns: u64_at(32),
            window_us: u32_at(40),
            other: Twin {
                station: Station { replica: ReplicaId(u16_at(44)), core: u16_at(46) },
                n: u16_at(48),
            },
            running: u16_at(50),
            queued: u16_at(52),
            wait_us: u32_at(56),
            payload_checksum: u32_at(60),
        })
    }

    fn of_attempt(kind: u8, attempt: Attempt) -> Header {
        let Attempt { client, seq, n } = attempt;
        Header { kind, n, client: client.0, seq: seq.0, ..Header::default() }
    }

    fn with_load(self, load: Load) -> Header {
        let Load { running, queued, wait } = load;
        Header { running, queued, wait_us: micros(wait), ..self }
    }

    fn attempt(&self) -> Attempt {
        Attempt { client: ClientId(self.client), seq: Seq(self.seq), n: self.n }
    }

    fn load(&self) -> Load {
        Load {
            running: self.running,
            queued: self.queued,
            wait: Duration::from_micros(u64::from(self.wait_us)),
        }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// An error if a critical flag is set that is not among `known`.
    fn flags_within(&self, known: u16) -> Result<(), WireError> {
        match self.flags & flag::CRITICAL & !known {
            0 => Ok(()),
            flags => Err(WireError::Flags { frame: name(self.kind), flags }),
        }
    }

    fn bad_field(&self, field: &'static str, value: impl Into<u64>) -> WireError {
        WireError::Field { frame: name(self.kind), field, value: value.into() }
    }
}

/// Whole nanoseconds, capped at 2^64 - 1 (584 years).
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Whole microseconds, capped at 2^32 - 1 (71 minutes).
fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

fn name(kind: u8) -> &'static str {
    match kind {
        kind::HELLO => "hello",
        kind::HELLO_ACK => "hello-ack",
        kind::PING => "ping",
        kind::PONG => "pong",
        kind::REQUEST => "request",
        kind::CANCEL => "cancel",
        kind::STARTED => "started",
        kind::REPLY => "reply",
        kind::ENDED => "ended",
        kind::OVERLOADED => "overloaded",
        kind::GOODBYE => "goodbye",
        _ => "unknown",
    }
}

fn header_of(frame: &Frame<'_>) -> Header {
    match frame {
        Frame::Hello(hello) => hello_header(hello),
        Frame::HelloAck(ack) => Header {
            kind: kind::HELLO_ACK,
            flags: if ack.obeys_cancels { flag::OBEYS_CANCELS } else { 0 },
            ..Header::default()
        },
        Frame::Ping(ping) => Header { kind: kind::PING, seq: ping.token, ..Header::default() },
        Frame::Pong(ping) => Header { kind: kind::PONG, seq: ping.token, ..Header::default() },
        Frame::Request(request, _) => request_header(request),
        Frame::Cancel(cancel) => cancel_header(cancel),
        Frame::Started(started) => Header::of_attempt(kind::STARTED, started.attempt),
        Frame::Reply(reply, _) => Header {
            code: reply.status.code(),
            flags: if reply.executed { flag::EXECUTED } else { 0 },
            ..Header::of_attempt(kind::REPLY, reply.attempt).with_load(reply.load)
        },
        Frame::Ended(ended) => ended_header(ended),
        Frame::Overloaded(refusal) => Header {
            span_ns: nanos(refusal.retry_after),
            ..Header::of_attempt(kind::OVERLOADED, refusal.attempt).with_load(refusal.load)
        },
        Frame::Goodbye(goodbye, _) => Header {
            kind: kind::GOODBYE,
            code: match goodbye.reason {
                GoodbyeReason::Leaving => 0,
                GoodbyeReason::Protocol => 1,
                GoodbyeReason::Stranger => 2,
                GoodbyeReason::Silent => 3,
            },
            ..Header::default()
        },
    }
}

fn hello_header(hello: &Hello) -> Header {
    let header = Header { kind: kind::HELLO, ..Header::default() };
    match hello.identity {
        Identity::Client(ClientId(client)) => Header { code: 0, client, ..header },
        Identity::Server(station) => Header { code: 1, other: Twin { station, n: 0 }, ..header },
    }
}

fn request_header(request: &Request) -> Header {
    let mut flags = match request.cause {
        Cause::First => 0,
        Cause::Hedge => flag::HEDGE,
        Cause::Redispatch => flag::REDISPATCH,
    };
    if request.idempotent {
        flags |= flag::IDEMPOTENT;
    }
    let mut header = Header {
        code: request.method.0,
        span_ns: nanos(request.remaining),
        ..Header::of_attempt(kind::REQUEST, request.attempt)
    };
    if let Some(tie) = request.tie {
        flags |= flag::TIED;
        header.window_us = micros(tie.window);
        header.other = tie.twin;
    }
    Header { flags, ..header }
}

fn cancel_header(cancel: &Cancel) -> Header {
    let header = Header {
        span_ns: nanos(cancel.lifetime),
        ..Header::of_attempt(kind::CANCEL, cancel.attempt)
    };
    match cancel.reason {
        CancelReason::CallerDone => header,
        CancelReason::TwinStarted { by } => {
            Header { flags: flag::TWIN_STARTED, other: by, ..header }
        }
    }
}

fn ended_header(ended: &Ended) -> Header {
    let header = Header {
        code: match ended.how {
            How::Withdrawn => 0,
            How::Aborted => 1,
            How::Shed => 2,
        },
        ..Header::of_attempt(kind::ENDED, ended.attempt).with_load(ended.load)
    };
    match ended.by {
        None => header,
        Some(n) => Header {
            flags: flag::BY_TWIN,
            other: Twin { station: Station::default(), n },
            ..header
        },
    }
}

/// The frame that a header and a payload make; None if it is one to skip.
fn frame_of<'a>(header: &Header, payload: &'a [u8]) -> Result<Option<Frame<'a>>, WireError> {
    let frame = match header.kind {
        kind::HELLO => Frame::Hello(hello_of(header, payload)?),
        kind::HELLO_ACK => {
            header.flags_within(flag::OBEYS_CANCELS)?;
            Frame::HelloAck(HelloAck { obeys_cancels: header.has(flag::OBEYS_CANCELS) })
        }
        kind::PING => Frame::Ping(Ping { token: header.seq }),
        kind::PONG => Frame::Pong(Ping { token: header.seq }),
        kind::REQUEST => Frame::Request(request_of(header)?, payload),
        kind::CANCEL => Frame::Cancel(cancel_of(header)?),
        kind::STARTED => Frame::Started(Started { attempt: header.attempt() }),
        kind::REPLY => Frame::Reply(reply_of(header)?, payload),
        kind::ENDED => Frame::Ended(ended_of(header)?),
        kind::OVERLOADED => Frame::Overloaded(Overloaded {
            attempt: header.attempt(),
            retry_after: Duration::from_nanos(header.span_ns),
            load: header.load(),
        }),
        kind::GOODBYE => Frame::Goodbye(goodbye_of(header)?, payload),
        kind::IGNORABLE.. => return Ok(None),
        unknown => return Err(WireError::Kind(unknown)),
    };
    Ok(Some(frame))
}

fn hello_of(header: &Header, payload: &[u8]) -> Result<Hello, WireError> {
    header.flags_within(0)?;
    let identity = match header.code {
        0 => Identity::Client(ClientId(header.client)),
        1 => Identity::Server(header.other.station),
        role => return Err(header.bad_field("role", role)),
    };
    let (&[oldest, newest, _, _], ports) = payload
        .split_first_chunk::<4>()
        .ok_or_else(|| header.bad_field("length", header.length))?;
    if oldest > newest {
        return Err(header.bad_field("oldest version", oldest));
    }
    let (ports, []) = ports.as_chunks::<2>() else {
        return Err(header.bad_field("length", header.length));
    };
    let ports = ports.iter().map(|port| u16::from_le_bytes(*port)).collect();
    Ok(Hello { identity, oldest, newest, ports })
}

fn request_of(header: &Header) -> Result<Request, WireError> {
    header.flags_within(flag::IDEMPOTENT | flag::TIED | flag::HEDGE | flag::REDISPATCH)?;
    let tie = header.has(flag::TIED).then(|| Tie {
        twin: header.other,
        window: Duration::from_micros(u64::from(header.window_us)),
    });
    if tie.is_some_and(|tie| tie.twin.n == header.n) {
        return Err(header.bad_field("twin", header.n));
    }
    let cause = match (header.has(flag::HEDGE), header.has(flag::REDISPATCH)) {
        (false, false) => Cause::First,
        (true, false) => Cause::Hedge,
        (false, true) => Cause::Redispatch,
        (true, true) => return Err(header.bad_field("cause", header.flags)),
    };
    Ok(Request {
        attempt: header.attempt(),
        method: Method(header.code),
        remaining: Duration::from_nanos(header.span_ns),
        cause,
        idempotent: header.has(flag::IDEMPOTENT),
        tie,
    })
}

fn cancel_of(header: &Header) -> Result<Cancel, WireError> {
    header.flags_within(flag::TWIN_STARTED)?;
    let reason = if header.has(flag::TWIN_STARTED) {
        if header.other.n == header.n {
            return Err(header.bad_field("twin", header.n));
        }
        CancelReason::TwinStarted { by: header.other }
    } else {
        CancelReason::CallerDone
    };
    let lifetime = Duration::from_nanos(header.span_ns);
    Ok(Cancel { attempt: header.attempt(), reason, lifetime })
}

fn reply_of(header: &Header) -> Result<Reply, WireError> {
    header.flags_within(flag::EXECUTED)?;
    let status =
        Status::from_code(header.code).ok_or_else(|| header.bad_field("status", header.code))?;
    let executed = header.has(flag::EXECUTED);
    Ok(Reply { attempt: header.attempt(), status, executed, load: header.load() })
}

fn ended_of(header: &Header) -> Result<Ended, WireError> {
    header.flags_within(flag::BY_TWIN)?;
    let how = match header.code {
        0 => How::Withdrawn,
        1 => How::Aborted,
        2 => How::Shed,
        code => return Err(header.bad_field("end", code)),
    };
    let by = header.has(flag::BY_TWIN).then_some(header.other.n);
    Ok(Ended { attempt: header.attempt(), how, by, load: header.load() })
}

fn goodbye_of(header: &Header) -> Result<Goodbye, WireError> {
    let reason = match header.code {
        0 => GoodbyeReason::Leaving,
        1 => GoodbyeReason::Protocol,
        2 => GoodbyeReason::Stranger,
        3 => GoodbyeReason::Silent,
        code => return Err(header.bad_field("reason", code)),
    };
    Ok(Goodbye { reason })
}
