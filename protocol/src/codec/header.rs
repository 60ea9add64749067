use core::time::Duration;

use super::{HEADER_LEN, MAX_GOODBYE, MAX_HELLO, VERSION, WireError};
use crate::frame::Load;
use crate::id::{Attempt, ClientId, ReplicaId, Seq, Station, Twin};

pub(super) mod kind {
    pub(in crate::codec) const HELLO: u8 = 1;
    pub(in crate::codec) const HELLO_ACK: u8 = 2;
    pub(in crate::codec) const PING: u8 = 3;
    pub(in crate::codec) const PONG: u8 = 4;
    pub(in crate::codec) const REQUEST: u8 = 5;
    pub(in crate::codec) const CANCEL: u8 = 6;
    pub(in crate::codec) const STARTED: u8 = 7;
    pub(in crate::codec) const REPLY: u8 = 8;
    pub(in crate::codec) const ENDED: u8 = 9;
    pub(in crate::codec) const OVERLOADED: u8 = 10;
    pub(in crate::codec) const GOODBYE: u8 = 11;
    pub(in crate::codec) const SEGMENT: u8 = 12;
    pub(in crate::codec) const CREDIT: u8 = 13;
    pub(in crate::codec) const GO_AWAY: u8 = 14;
    /// From here on a receiver that does not know the kind skips the frame.
    pub(in crate::codec) const IGNORABLE: u8 = 0x80;
}

pub(super) mod flag {
    /// Hello-ack: a twin's cancel on this connection is obeyed.
    pub(in crate::codec) const OBEYS_CANCELS: u16 = 1 << 0;
    /// Hello-ack: the credit fields count.
    pub(in crate::codec) const GRANTS: u16 = 1 << 1;
    /// Request.
    pub(in crate::codec) const IDEMPOTENT: u16 = 1 << 0;
    /// Request.
    pub(in crate::codec) const TIED: u16 = 1 << 1;
    /// Request.
    pub(in crate::codec) const HEDGE: u16 = 1 << 2;
    /// Request.
    pub(in crate::codec) const REDISPATCH: u16 = 1 << 3;
    /// Request and reply: the payload begins with a section of options.
    pub(in crate::codec) const OPTIONS: u16 = 1 << 4;
    /// Request, reply and segment: the checksum of the payload covers the options alone.
    pub(in crate::codec) const UNSUMMED: u16 = 1 << 5;
    /// Cancel.
    pub(in crate::codec) const TWIN_STARTED: u16 = 1 << 0;
    /// Reply.
    pub(in crate::codec) const EXECUTED: u16 = 1 << 0;
    /// Ended.
    pub(in crate::codec) const BY_TWIN: u16 = 1 << 0;
    /// A receiver that does not know one of these flags ends the connection; of the others it
    /// takes no notice.
    pub(in crate::codec) const CRITICAL: u16 = 0x00ff;
}

/// A frame's name, for errors.
pub(super) const fn name(kind: u8) -> &'static str {
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
        kind::SEGMENT => "segment",
        kind::CREDIT => "credit",
        kind::GO_AWAY => "go-away",
        _ => "unknown",
    }
}

/// The longest payload that a frame of this kind may have where the receiver takes payloads of up
/// to `limit` bytes, so that nothing is waited for that nobody wants; None for a kind that is not
/// known here, and must be.
const fn longest_payload(kind: u8, limit: u32) -> Option<u32> {
    match kind {
        kind::REQUEST | kind::REPLY | kind::SEGMENT | kind::IGNORABLE.. => Some(limit),
        kind::HELLO => Some(MAX_HELLO),
        kind::GOODBYE => Some(MAX_GOODBYE),
        kind::HELLO_ACK..=kind::GO_AWAY => Some(0),
        _ => None,
    }
}

/// Of nothing, 0, as CRC-32 has it.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    if bytes.is_empty() { 0 } else { crc32fast::hash(bytes) }
}

/// The header's fields, whatever the frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header {
    pub(super) kind: u8,
    pub(super) flags: u16,
    pub(super) length: u32,
    pub(super) n: u16,
    pub(super) code: u16,
    pub(super) client: u64,
    pub(super) seq: u64,
    pub(super) span_ns: u64,
    pub(super) window_us: u32,
    pub(super) other: Twin,
    pub(super) running: u16,
    pub(super) queued: u16,
    pub(super) options: u16,
    pub(super) wait_us: u32,
    pub(super) payload_checksum: u32,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER_LEN] {
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
        bytes[54..56].copy_from_slice(&self.options.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.wait_us.to_le_bytes());
        bytes[60..64].copy_from_slice(&self.payload_checksum.to_le_bytes());
        let sum = checksum(&bytes[4..]);
        bytes[0..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The header in `bytes`, of a frame that a receiver with this limit takes, as far as a header
    /// tells.
    #[inline]
    pub(crate) fn parse(bytes: &[u8; HEADER_LEN], limit: u32) -> Result<Header, WireError> {
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let (found, expected) = (u32_at(0), checksum(&bytes[4..]));
        if found != expected {
            if bytes.starts_with(b"HTTP/") {
                return Err(WireError::Http);
            }
            return Err(WireError::HeaderChecksum { frame: name(bytes[5]), found, expected });
        }
        if bytes[4] != VERSION {
            return Err(WireError::Version(bytes[4]));
        }
        let (kind, length) = (bytes[5], u32_at(8));
        let limit = longest_payload(kind, limit).ok_or(WireError::Kind(kind))?;
        if length > limit {
            return Err(WireError::TooLong { frame: name(kind), length, limit });
        }
        Ok(Header {
            kind,
            flags: u16_at(6),
            length,
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
            options: u16_at(54),
            wait_us: u32_at(56),
            payload_checksum: u32_at(60),
        })
    }

    /// How many bytes the whole frame takes.
    pub(crate) const fn frame_len(&self) -> usize {
        HEADER_LEN + self.length as usize
    }

    /// The name of the frame.
    pub(crate) const fn name(&self) -> &'static str {
        name(self.kind)
    }

    /// A frame of a kind that is not known here, and need not be.
    pub(crate) const fn is_ignorable(&self) -> bool {
        self.kind >= kind::IGNORABLE
    }

    /// The same, of which the services' bytes have no checksum, if it has such.
    pub(super) const fn unsummed(self) -> Header {
        match self.kind {
            kind::REQUEST | kind::REPLY | kind::SEGMENT => {
                Header { flags: self.flags | flag::UNSUMMED, ..self }
            }
            _ => self,
        }
    }

    /// The services' bytes have no checksum.
    pub(crate) const fn is_unsummed(&self) -> bool {
        self.has(flag::UNSUMMED) && matches!(self.kind, kind::REQUEST | kind::REPLY | kind::SEGMENT)
    }

    /// What of a payload its checksum covers: all, or the options alone.
    fn summed<'a>(&self, payload: &'a [u8]) -> &'a [u8] {
        if !self.is_unsummed() {
            return payload;
        }
        let options = if self.has(flag::OPTIONS) { usize::from(self.options) } else { 0 };
        payload.get(..options).unwrap_or(payload)
    }

    /// An error if this is not the payload that the sender had in hand, as far as its checksum
    /// covers it.
    #[inline]
    pub(crate) fn verify(&self, payload: &[u8]) -> Result<(), WireError> {
        let payload = self.summed(payload);
        let (found, expected) = (self.payload_checksum, checksum(payload));
        if found == expected {
            return Ok(());
        }
        Err(WireError::PayloadChecksum { frame: name(self.kind), found, expected })
    }

    pub(super) fn of_attempt(kind: u8, attempt: Attempt) -> Header {
        let Attempt { client, seq, n } = attempt;
        Header { kind, n, client: client.0, seq: seq.0, ..Header::default() }
    }

    pub(super) fn with_load(self, load: Load) -> Header {
        let Load { running, queued, wait } = load;
        Header { running, queued, wait_us: micros(wait), ..self }
    }

    pub(super) const fn attempt(&self) -> Attempt {
        Attempt { client: ClientId(self.client), seq: Seq(self.seq), n: self.n }
    }

    pub(super) const fn load(&self) -> Load {
        Load {
            running: self.running,
            queued: self.queued,
            wait: Duration::from_micros(self.wait_us as u64),
        }
    }

    pub(super) const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// An error if a critical flag is set that is not among `known`.
    pub(super) const fn flags_within(&self, known: u16) -> Result<(), WireError> {
        match self.flags & flag::CRITICAL & !known {
            0 => Ok(()),
            flags => Err(WireError::Flags { frame: name(self.kind), flags }),
        }
    }

    pub(super) fn bad_field(&self, field: &'static str, value: impl Into<u64>) -> WireError {
        WireError::Field { frame: name(self.kind), field, value: value.into() }
    }
}

/// Whole nanoseconds, capped at 2^64 - 1 (584 years).
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Whole microseconds, capped at 2^32 - 1 (71 minutes).
pub(super) fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}
