//! Any frame at all, owned, for tests that are to hold of every frame.

use bowline_protocol::options::{
    Freshness, Key, Label, OptionBytes, OptionSet, TraceContext, TrafficClass,
};
use bowline_protocol::{
    Attempt, Cancel, CancelReason, Cause, ClientId, Credit, Ended, Features, Frame, GoAway,
    Goodbye, GoodbyeReason, Hello, HelloAck, How, Load, Method, MethodInfo, Overloaded, PayloadOf,
    Ping, ReplicaId, Reply, Request, Segment, Seq, ServiceInfo, Started, Station, Status, Takes,
    Tie, Twin, codec,
};
use core::time::Duration;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// A frame that owns what it says.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) frame: Frame<'static>,
    pub(crate) options: Option<OptionBytes>,
    pub(crate) payload: Vec<u8>,
}

impl Made {
    fn bare(frame: Frame<'static>) -> Made {
        Made { frame, options: None, payload: Vec::new() }
    }

    pub(crate) fn frame(&self) -> Frame<'_> {
        let payload = &self.payload[..];
        match (self.frame.clone(), &self.options) {
            (Frame::Request(request, _), None) => Frame::Request(request, payload),
            (Frame::Request(request, _), Some(options)) => {
                Frame::RequestWith(request, options.as_options(), payload)
            }
            (Frame::Reply(reply, _), None) => Frame::Reply(reply, payload),
            (Frame::Reply(reply, _), Some(options)) => {
                Frame::ReplyWith(reply, options.as_options(), payload)
            }
            (Frame::Segment(segment, _), _) => Frame::Segment(segment, payload),
            (Frame::Goodbye(goodbye, _), _) => Frame::Goodbye(goodbye, payload),
            (other, _) => other,
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        codec::encode(&self.frame(), &mut bytes);
        bytes
    }
}

/// Any frame, with a payload of at most `longest` bytes where it may have one.
pub(crate) fn any_frame(longest: usize) -> impl Strategy<Value = Made> {
    prop_oneof![
        2 => any_hello(),
        1 => (any::<bool>(), option::of(credit()))
            .prop_map(|(obeys_cancels, grant)| Frame::HelloAck(HelloAck { obeys_cancels, grant }))
            .prop_map(Made::bare),
        1 => any::<u64>().prop_map(|token| Made::bare(Frame::Ping(Ping { token }))),
        1 => any::<u64>().prop_map(|token| Made::bare(Frame::Pong(Ping { token }))),
        4 => any_request(longest),
        2 => any_cancel(),
        1 => attempt().prop_map(|attempt| Made::bare(Frame::Started(Started { attempt }))),
        4 => any_reply(longest),
        2 => any_ended(),
        1 => (attempt(), nanos(), load())
            .prop_map(|(attempt, retry_after, load)| {
                Made::bare(Frame::Overloaded(Overloaded { attempt, retry_after, load }))
            }),
        2 => any_segment(longest),
        1 => credit().prop_map(|credit| Made::bare(Frame::Credit(credit))),
        1 => nanos().prop_map(|within| Made::bare(Frame::GoAway(GoAway { within }))),
        1 => any_goodbye(longest),
    ]
}

fn attempt() -> impl Strategy<Value = Attempt> {
    (any::<u64>(), any::<u64>(), any::<u16>()).prop_map(|(client, seq, n)| Attempt {
        client: ClientId(client),
        seq: Seq(seq),
        n,
    })
}

fn station() -> impl Strategy<Value = Station> {
    (any::<u16>(), any::<u16>())
        .prop_map(|(replica, core)| Station { replica: ReplicaId(replica), core })
}

/// The place of a twin of the copy with number `n`: its number is another.
fn twin_of(n: u16) -> impl Strategy<Value = Twin> {
    (station(), 1..=u16::MAX)
        .prop_map(move |(station, apart)| Twin { station, n: n.wrapping_add(apart) })
}

fn nanos() -> impl Strategy<Value = Duration> {
    prop_oneof![any::<u64>(), 0..100_000_000_u64].prop_map(Duration::from_nanos)
}

fn micros() -> impl Strategy<Value = Duration> {
    any::<u32>().prop_map(|us| Duration::from_micros(u64::from(us)))
}

fn load() -> impl Strategy<Value = Load> {
    (any::<u16>(), any::<u16>(), micros()).prop_map(|(running, queued, wait)| Load {
        running,
        queued,
        wait,
    })
}

fn credit() -> impl Strategy<Value = Credit> {
    (any::<u64>(), any::<u64>()).prop_map(|(requests, bytes)| Credit { requests, bytes })
}

const METHODS: &[MethodInfo] = &[
    MethodInfo::new(Method(1), "read")
        .idempotent()
        .duplicable(4096)
        .least_useful(Duration::from_micros(100)),
    MethodInfo::new(Method(7), "write"),
];

/// A service for tests.
pub(crate) const BLOCKS: ServiceInfo = ServiceInfo { name: "blocks", methods: METHODS };

fn any_hello() -> impl Strategy<Value = Made> {
    let who = prop_oneof![
        any::<u64>().prop_map(|id| Hello::client(ClientId(id))),
        (station(), vec(any::<u16>(), 0..5))
            .prop_map(|(station, ports)| Hello::server(station, ports)),
    ];
    let takes = option::of((any::<u32>(), any::<u32>()));
    (who, any::<[u8; 2]>(), any::<u8>(), takes, any::<bool>()).prop_map(
        |(hello, versions, features, takes, methods)| {
            Made::bare(Frame::Hello(Hello {
                oldest: versions[0].min(versions[1]),
                newest: versions[0].max(versions[1]),
                features: Features::from_bits(features),
                takes: takes.map(|(frame, payload)| Takes { frame, payload }),
                methods: methods.then(|| BLOCKS.to_methods()),
                ..hello
            }))
        },
    )
}

/// Options, if any; a total is never less than `longest`.
fn options(longest: usize) -> impl Strategy<Value = Option<OptionBytes>> {
    let set = (
        option::of(longest as u32..=u32::MAX),
        option::of((any::<u128>(), any::<u64>())),
        option::of(any::<u8>()),
        option::of((any::<[u8; 16]>(), any::<[u8; 8]>(), any::<u8>())),
        option::of("[a-zé]{0,20}"),
        option::of((any::<u64>(), any::<u64>())),
    )
        .prop_map(|(total, key, class, trace, label, fresh)| {
            let set = OptionSet {
                key: key.map(|(id, fingerprint)| Key { id, fingerprint }),
                class: class.map(TrafficClass),
                trace: trace.map(|(trace, parent, flags)| TraceContext { trace, parent, flags }),
                label: label.as_deref().map(Label::new),
                fresh: fresh.map(|(version, nanos)| Freshness {
                    version,
                    staleness: Duration::from_nanos(nanos),
                }),
            };
            total.map_or_else(|| set.to_bytes(), |total| set.opening(total))
        });
    option::of(set)
}

fn any_request(longest: usize) -> impl Strategy<Value = Made> {
    let tie = |n| option::of((twin_of(n), micros()));
    let cause = prop_oneof![Just(Cause::First), Just(Cause::Hedge), Just(Cause::Redispatch)];
    let head = attempt().prop_flat_map(move |attempt| (Just(attempt), tie(attempt.n)));
    let rest = (any::<u16>(), nanos(), cause, any::<bool>());
    (head, rest, options(longest), vec(any::<u8>(), 0..=longest)).prop_map(
        |((attempt, tie), (method, remaining, cause, idempotent), options, payload)| {
            let request = Request {
                attempt,
                method: Method(method),
                remaining,
                cause,
                idempotent,
                tie: tie.map(|(twin, window)| Tie { twin, window }),
            };
            Made { frame: Frame::Request(request, &[]), options, payload }
        },
    )
}

fn any_cancel() -> impl Strategy<Value = Made> {
    let head =
        attempt().prop_flat_map(|attempt| (Just(attempt), option::of(twin_of(attempt.n)), nanos()));
    head.prop_map(|(attempt, by, lifetime)| {
        let reason = by.map_or(CancelReason::CallerDone, |by| CancelReason::TwinStarted { by });
        Made::bare(Frame::Cancel(Cancel { attempt, reason, lifetime }))
    })
}

fn any_reply(longest: usize) -> impl Strategy<Value = Made> {
    let status = prop_oneof![
        Just(Status::Ok),
        Just(Status::NoSuchMethod),
        Just(Status::BadRequest),
        Just(Status::Failed),
        Just(Status::Stale),
        Just(Status::TooLarge),
        (0..=u16::MAX - Status::APP).prop_map(Status::App),
    ];
    let head = (attempt(), status, any::<bool>(), load());
    (head, options(longest), vec(any::<u8>(), 0..=longest)).prop_map(
        |((attempt, status, executed, load), options, payload)| {
            let reply = Reply { attempt, status, executed, load };
            Made { frame: Frame::Reply(reply, &[]), options, payload }
        },
    )
}

fn any_ended() -> impl Strategy<Value = Made> {
    let how = prop_oneof![Just(How::Withdrawn), Just(How::Aborted), Just(How::Shed)];
    (attempt(), how, option::of(1..=u16::MAX), load()).prop_map(|(attempt, how, apart, load)| {
        let by = apart.map(|apart| attempt.n.wrapping_add(apart));
        Made::bare(Frame::Ended(Ended { attempt, how, by, load }))
    })
}

fn any_segment(longest: usize) -> impl Strategy<Value = Made> {
    let of = prop_oneof![Just(PayloadOf::Request), Just(PayloadOf::Reply)];
    (attempt(), of, any::<u32>(), vec(any::<u8>(), 1..=longest.max(1))).prop_map(
        |(attempt, of, offset, payload)| Made {
            frame: Frame::Segment(Segment { attempt, of, offset }, &[]),
            options: None,
            payload,
        },
    )
}

fn any_goodbye(longest: usize) -> impl Strategy<Value = Made> {
    let reason = (0..5_u16).prop_filter_map("a known reason", GoodbyeReason::from_code);
    (reason, vec(any::<u8>(), 0..=longest.min(1024))).prop_map(|(reason, payload)| Made {
        frame: Frame::Goodbye(Goodbye { reason }, &[]),
        options: None,
        payload,
    })
}
