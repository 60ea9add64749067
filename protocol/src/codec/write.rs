use alloc::vec::Vec;

use super::header::{Header, flag, kind, micros, nanos};
use super::{MAX_GOODBYE, section};
use crate::frame::{
    Cancel, CancelReason, Cause, Credit, Ended, Frame, Hello, HelloAck, Identity, Reply, Request,
    Segment,
};
use crate::id::{ClientId, Station, Twin};

/// The header of `frame`, but for what depends on the payload.
pub(super) fn header_of(frame: &Frame<'_>) -> Header {
    match frame {
        Frame::Hello(hello) => hello_header(hello),
        Frame::HelloAck(ack) => ack_header(*ack),
        Frame::Ping(ping) => Header { kind: kind::PING, seq: ping.token, ..Header::default() },
        Frame::Pong(ping) => Header { kind: kind::PONG, seq: ping.token, ..Header::default() },
        Frame::Request(request, _) => request_header(request),
        Frame::RequestWith(request, options, _) => {
            with_options(request_header(request), options.as_bytes())
        }
        Frame::Cancel(cancel) => cancel_header(cancel),
        Frame::Started(started) => Header::of_attempt(kind::STARTED, started.attempt),
        Frame::Reply(reply, _) => reply_header(reply),
        Frame::ReplyWith(reply, options, _) => {
            with_options(reply_header(reply), options.as_bytes())
        }
        Frame::Ended(ended) => ended_header(ended),
        Frame::Overloaded(refusal) => Header {
            span_ns: nanos(refusal.retry_after),
            ..Header::of_attempt(kind::OVERLOADED, refusal.attempt).with_load(refusal.load)
        },
        Frame::Segment(segment, _) => segment_header(segment),
        Frame::Credit(credit) => {
            with_credit(Header { kind: kind::CREDIT, ..Header::default() }, *credit)
        }
        Frame::GoAway(go) => {
            Header { kind: kind::GO_AWAY, span_ns: nanos(go.within), ..Header::default() }
        }
        Frame::Goodbye(goodbye, _) => {
            Header { kind: kind::GOODBYE, code: goodbye.reason.code(), ..Header::default() }
        }
    }
}

/// What of a frame's payload is the protocol's own: appended to `out`. The rest, opaque, is
/// returned.
pub(super) fn body_of<'a>(frame: &Frame<'a>, out: &mut Vec<u8>) -> &'a [u8] {
    match frame {
        Frame::Request(_, payload) | Frame::Reply(_, payload) | Frame::Segment(_, payload) => {
            payload
        }
        Frame::RequestWith(_, options, payload) | Frame::ReplyWith(_, options, payload) => {
            out.extend_from_slice(options.as_bytes());
            payload
        }
        Frame::Goodbye(_, text) => super::head_of_text(text, MAX_GOODBYE as usize),
        Frame::Hello(hello) => {
            hello_body(hello, out);
            &[]
        }
        _ => &[],
    }
}

fn hello_header(hello: &Hello) -> Header {
    let flags = u16::from(hello.features.bits()) << 8;
    let header = Header { kind: kind::HELLO, flags, ..Header::default() };
    match hello.identity {
        Identity::Client(ClientId(client)) => Header { code: 0, client, ..header },
        Identity::Server(station) => Header { code: 1, other: Twin { station, n: 0 }, ..header },
    }
}

fn hello_body(hello: &Hello, out: &mut Vec<u8>) {
    let cores = u16::try_from(hello.ports.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&[hello.oldest, hello.newest]);
    out.extend_from_slice(&cores.to_le_bytes());
    for port in hello.ports.iter().take(usize::from(cores)) {
        out.extend_from_slice(&port.to_le_bytes());
    }
    if let Some(takes) = hello.takes {
        let [a, b] = [takes.frame, takes.payload].map(u32::to_le_bytes);
        section::write(section::TAKES, &[a, b].concat(), out);
    }
    if let Some(methods) = &hello.methods {
        section::write(section::METHODS, methods.as_bytes(), out);
    }
}

fn ack_header(ack: HelloAck) -> Header {
    let flags = if ack.obeys_cancels { flag::OBEYS_CANCELS } else { 0 };
    let header = Header { kind: kind::HELLO_ACK, flags, ..Header::default() };
    match ack.grant {
        None => header,
        Some(credit) => with_credit(Header { flags: flags | flag::GRANTS, ..header }, credit),
    }
}

fn with_credit(header: Header, credit: Credit) -> Header {
    Header { seq: credit.requests, client: credit.bytes, ..header }
}

fn with_options(header: Header, options: &[u8]) -> Header {
    let length = u16::try_from(options.len()).unwrap_or(u16::MAX);
    Header { flags: header.flags | flag::OPTIONS, options: length, ..header }
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

fn reply_header(reply: &Reply) -> Header {
    Header {
        code: reply.status.code(),
        flags: if reply.executed { flag::EXECUTED } else { 0 },
        ..Header::of_attempt(kind::REPLY, reply.attempt).with_load(reply.load)
    }
}

fn ended_header(ended: &Ended) -> Header {
    let header = Header {
        code: ended.how.code(),
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

fn segment_header(segment: &Segment) -> Header {
    Header {
        code: segment.of.code(),
        window_us: segment.offset,
        ..Header::of_attempt(kind::SEGMENT, segment.attempt)
    }
}
