use core::time::Duration;

use super::WireError;
use super::header::{Header, flag, kind, name};
use super::section::{self, Sections};
use crate::frame::{
    Cancel, CancelReason, Cause, Credit, Ended, Features, Frame, GoAway, Goodbye, GoodbyeReason,
    Hello, HelloAck, How, Identity, Overloaded, PayloadOf, Ping, Reply, Request, Segment, Started,
    Status, Takes, Tie,
};
use crate::id::{ClientId, Method};
use crate::options::Options;
use crate::service::Methods;

/// The frame that a header and a verified payload make; None if it is one to skip.
#[inline]
pub(crate) fn frame_of<'a>(
    header: &Header,
    payload: &'a [u8],
) -> Result<Option<Frame<'a>>, WireError> {
    if header.is_ignorable() {
        return Ok(None);
    }
    header.flags_within(known_flags(header.kind))?;
    let frame = match header.kind {
        kind::HELLO => Frame::Hello(hello_of(header, payload)?),
        kind::HELLO_ACK => Frame::HelloAck(HelloAck {
            obeys_cancels: header.has(flag::OBEYS_CANCELS),
            grant: header.has(flag::GRANTS).then(|| credit_of(header)),
        }),
        kind::PING => Frame::Ping(Ping { token: header.seq }),
        kind::PONG => Frame::Pong(Ping { token: header.seq }),
        kind::REQUEST => {
            let request = request_of(header)?;
            match options_of(header, payload)? {
                None => Frame::Request(request, payload),
                Some((options, payload)) => Frame::RequestWith(request, options, payload),
            }
        }
        kind::CANCEL => Frame::Cancel(cancel_of(header)?),
        kind::STARTED => Frame::Started(Started { attempt: header.attempt() }),
        kind::REPLY => {
            let reply = reply_of(header);
            match options_of(header, payload)? {
                None => Frame::Reply(reply, payload),
                Some((options, payload)) => Frame::ReplyWith(reply, options, payload),
            }
        }
        kind::ENDED => Frame::Ended(ended_of(header)?),
        kind::OVERLOADED => Frame::Overloaded(Overloaded {
            attempt: header.attempt(),
            retry_after: Duration::from_nanos(header.span_ns),
            load: header.load(),
        }),
        kind::GOODBYE => Frame::Goodbye(goodbye_of(header)?, payload),
        kind::SEGMENT => Frame::Segment(segment_of(header)?, payload),
        kind::CREDIT => Frame::Credit(credit_of(header)),
        kind::GO_AWAY => Frame::GoAway(GoAway { within: Duration::from_nanos(header.span_ns) }),
        unknown => return Err(WireError::Kind(unknown)),
    };
    Ok(Some(frame))
}

/// The critical flags of each kind.
const fn known_flags(kind: u8) -> u16 {
    match kind {
        kind::HELLO_ACK => flag::OBEYS_CANCELS | flag::GRANTS,
        kind::REQUEST => {
            flag::IDEMPOTENT
                | flag::TIED
                | flag::HEDGE
                | flag::REDISPATCH
                | flag::OPTIONS
                | flag::UNSUMMED
        }
        kind::CANCEL => flag::TWIN_STARTED,
        kind::REPLY => flag::EXECUTED | flag::OPTIONS | flag::UNSUMMED,
        kind::SEGMENT => flag::UNSUMMED,
        kind::ENDED => flag::BY_TWIN,
        _ => 0,
    }
}

fn hello_of(header: &Header, payload: &[u8]) -> Result<Hello, WireError> {
    let identity = match header.code {
        0 => Identity::Client(ClientId(header.client)),
        1 => Identity::Server(header.other.station),
        role => return Err(header.bad_field("role", role)),
    };
    let wrong_length = || header.bad_field("length", header.length);
    let (&[oldest, newest, low, high], rest) =
        payload.split_first_chunk::<4>().ok_or_else(wrong_length)?;
    if oldest > newest {
        return Err(header.bad_field("oldest version", oldest));
    }
    let cores = usize::from(u16::from_le_bytes([low, high]));
    let (ports, rest) = rest.split_at_checked(cores * 2).ok_or_else(wrong_length)?;
    let (ports, _) = ports.as_chunks::<2>();
    let mut hello = Hello {
        identity,
        oldest,
        newest,
        ports: ports.iter().map(|port| u16::from_le_bytes(*port)).collect(),
        features: Features::from_bits((header.flags >> 8).to_le_bytes()[0]),
        takes: None,
        methods: None,
    };
    for section in Sections::new(name(header.kind), rest) {
        let (tag, value) = section?;
        let malformed = || WireError::Section { frame: name(header.kind), tag };
        match tag {
            section::TAKES => hello.takes = Some(takes_of(value).ok_or_else(malformed)?),
            section::METHODS => {
                hello.methods = Some(Methods::from_bytes(value).ok_or_else(malformed)?);
            }
            section::IGNORABLE.. => {}
            _ => return Err(malformed()),
        }
    }
    Ok(hello)
}

fn takes_of(value: &[u8]) -> Option<Takes> {
    let ([frame, payload], []) = value.as_chunks::<4>() else {
        return None;
    };
    Some(Takes { frame: u32::from_le_bytes(*frame), payload: u32::from_le_bytes(*payload) })
}

/// The options and what follows them, if the frame has options.
fn options_of<'a>(
    header: &Header,
    payload: &'a [u8],
) -> Result<Option<(Options<'a>, &'a [u8])>, WireError> {
    if !header.has(flag::OPTIONS) {
        return Ok(None);
    }
    let (options, rest) = payload
        .split_at_checked(usize::from(header.options))
        .ok_or_else(|| header.bad_field("length of options", header.options))?;
    let options = Options::parse(name(header.kind), options)?;
    match options.total() {
        Some(total) if (total as usize) < rest.len() => Err(header.bad_field("total", total)),
        _ => Ok(Some((options, rest))),
    }
}

fn request_of(header: &Header) -> Result<Request, WireError> {
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

fn reply_of(header: &Header) -> Reply {
    let (status, executed) = (Status::from_code(header.code), header.has(flag::EXECUTED));
    Reply { attempt: header.attempt(), status, executed, load: header.load() }
}

fn ended_of(header: &Header) -> Result<Ended, WireError> {
    let how = How::from_code(header.code).ok_or_else(|| header.bad_field("end", header.code))?;
    let by = header.has(flag::BY_TWIN).then_some(header.other.n);
    if by == Some(header.n) {
        return Err(header.bad_field("twin", header.n));
    }
    Ok(Ended { attempt: header.attempt(), how, by, load: header.load() })
}

fn segment_of(header: &Header) -> Result<Segment, WireError> {
    let of = PayloadOf::from_code(header.code)
        .ok_or_else(|| header.bad_field("direction", header.code))?;
    if header.length == 0 {
        return Err(header.bad_field("length", header.length));
    }
    Ok(Segment { attempt: header.attempt(), of, offset: header.window_us })
}

const fn credit_of(header: &Header) -> Credit {
    Credit { requests: header.seq, bytes: header.client }
}

fn goodbye_of(header: &Header) -> Result<Goodbye, WireError> {
    let reason = GoodbyeReason::from_code(header.code)
        .ok_or_else(|| header.bad_field("reason", header.code))?;
    Ok(Goodbye { reason })
}
