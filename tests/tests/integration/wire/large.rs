//! Large payloads, both ways, beside small ones.

use std::future::IntoFuture;

use bowline_client::Config;
use bowline_protocol::{
    Credit, ErrorKind, Executed, Label, Method, MethodInfo, ServiceInfo, TrafficClass, Whose,
};
use bowline_runtime::counting::allocations;
use bowline_runtime::spawn;
use bowline_server::io::{Limits, Running};
use bowline_server::{Context, Failure, Payload, Service};

use super::{config, run, serve};
use crate::PATIENCE;

const TURN: Method = Method(1);
const BLOW: Method = Method(2);
const METHODS: &[MethodInfo] =
    &[MethodInfo::new(TURN, "turn").idempotent(), MethodInfo::new(BLOW, "blow").idempotent()];
const MOST: usize = 64 << 20;

#[derive(Clone)]
struct Turner;

impl Service for Turner {
    type Reply = Payload;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("turner", METHODS)
    }

    async fn call(&self, context: Context, mut request: Payload) -> Result<Payload, Failure> {
        if context.method() == BLOW {
            let size = request[..].try_into().map(u32::from_le_bytes).unwrap_or(0) as usize;
            let mut reply = request.sibling(size);
            reply.as_mut().resize(size, 7);
            return Ok(reply);
        }
        request.as_mut().reverse();
        Ok(request)
    }
}

fn server() -> Running {
    let limits = Limits {
        request_bytes: MOST as u32,
        queue_bytes: 4 * MOST,
        assembly_bytes: 4 * MOST,
        outgoing_bytes: 4 * MOST,
        credit: Credit { requests: 100, bytes: 4 * MOST as u64 },
        stall_time: PATIENCE,
        ..Limits::default()
    };
    serve(Turner, |builder| builder.limits(limits))
}

fn large(server: &Running) -> Config {
    let mut config = config(server);
    config.core.max_payload = MOST as u32;
    config.max_reply = MOST as u32;
    config.reply_budget = 4 * MOST;
    config
}

/// Bytes of which no two neighbourhoods are alike.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
}

#[test]
fn sixty_four_mebibytes_go_there_and_come_back() {
    let server = server();
    run(large(&server), async |client| {
        let sent = pattern(MOST);
        let reply = client.call(TURN, &sent).deadline(PATIENCE).await.expect("a reply");
        assert!(reply.iter().eq(sent.iter().rev()), "it was turned round, and nothing else");
        let more = client.call(TURN, pattern(MOST + 1)).deadline(PATIENCE).await;
        assert_eq!(more.unwrap_err().error().kind, ErrorKind::PayloadTooLarge);
    });
}

#[test]
fn a_reply_that_the_client_does_not_take_is_an_error_of_its_own_that_says_so() {
    let server = server();
    let mut config = large(&server);
    (config.max_reply, config.reply_budget) = (1000, 1000);
    run(config, async |client| {
        let failure = client.call(TURN, pattern(1001)).deadline(PATIENCE).await.unwrap_err();
        let error = failure.error();
        assert_eq!((error.kind, error.executed), (ErrorKind::PayloadTooLarge, Executed::Yes));
        let told = failure.to_string();
        assert!(told.contains(" 1001 bytes ") && told.contains(" the 1000 "), "{told}");
        assert_eq!(client.call(TURN, pattern(1000)).deadline(PATIENCE).await.unwrap().len(), 1000);
    });
}

#[test]
fn calls_with_options_and_in_segments_allocate_nothing_once_warm() {
    let server = server();
    run(large(&server), async |client| {
        let (small, payload) = ([9; 64], pattern(100_000));
        let mut before = 0;
        for round in 0..600 {
            if round == 300 {
                before = allocations();
            }
            let call = client.call(TURN, &payload).label(Label::new("tenant")).key(round);
            assert_eq!(call.deadline(PATIENCE).await.expect("a reply").len(), payload.len());
            let call = client.call(TURN, small).class(TrafficClass(1)).key(1000 + round);
            assert_eq!(call.deadline(PATIENCE).await.expect("a reply").len(), small.len());
        }
        // What allocates for each call counts to three hundred; a table may grow now and then.
        assert!(allocations() - before < 20, "{}", allocations() - before);
    });
}

#[test]
fn payloads_of_all_sizes_about_a_segment_s_arrive_as_they_are() {
    let server = server();
    run(large(&server), async |client| {
        let segment = 32 << 10;
        let sizes = [0, 1, segment - 1, segment, segment + 1, 2 * segment, 2 * segment + 1];
        let calls = sizes
            .map(|size| spawn(client.call(TURN, pattern(size)).deadline(PATIENCE).into_future()));
        for (size, call) in sizes.into_iter().zip(calls) {
            let reply = call.await.expect("no panic").expect("a reply");
            assert!(reply.iter().eq(pattern(size).iter().rev()), "{size}");
        }
    });
}

#[test]
fn a_small_call_overtakes_large_ones_on_one_connection() {
    let server = server();
    run(large(&server), async |client| {
        let size = (MOST as u32).to_le_bytes();
        let coming = spawn(client.call(BLOW, size).deadline(PATIENCE).into_future());
        let going = spawn(client.call(TURN, pattern(MOST)).deadline(PATIENCE).into_future());
        let reply = client.call(TURN, b"small").deadline(PATIENCE).await.expect("a reply");
        assert_eq!(&reply[..], b"llams");
        assert!(!coming.is_finished() && !going.is_finished(), "the small one came first");
        assert_eq!(coming.await.expect("no panic").expect("a reply").len(), MOST);
        assert_eq!(going.await.expect("no panic").expect("a reply").len(), MOST);
    });
}

#[test]
fn a_large_call_that_is_dropped_on_its_way_is_over_on_both_sides() {
    let server = server();
    run(large(&server), async |client| {
        let size = (MOST as u32).to_le_bytes();
        let coming = spawn(client.call(BLOW, size).deadline(PATIENCE).into_future());
        let going = spawn(client.call(TURN, pattern(MOST)).deadline(PATIENCE).into_future());
        client.call(TURN, b"small").deadline(PATIENCE).await.expect("a reply");
        coming.abort();
        going.abort();
        // Every copy is told of once: none is left when another call has come and gone.
        while client.counters().live > 0 {
            client.call(TURN, b"small").deadline(PATIENCE).await.expect("a reply");
        }
        assert!(client.counters().reconcile());
        assert_eq!(client.counters().stray, 0);
    });
    assert!(server.control().snapshot().copies.reconcile());
}

#[test]
fn a_reply_without_room_is_an_error_of_this_client_s_limits_and_harms_no_other() {
    let server = server();
    let mut config = large(&server);
    config.reply_budget = MOST;
    run(config, async |client| {
        // The shorter one goes past the other, of which all is waited for meanwhile.
        let calls = [MOST, MOST / 2].map(|size| {
            let size = (size as u32).to_le_bytes();
            spawn(client.call(BLOW, size).deadline(PATIENCE).into_future())
        });
        let mut results = Vec::new();
        for call in calls {
            results.push(call.await.expect("no panic").map(|reply| reply.len()));
        }
        let failed = results.iter().find_map(|result| result.as_ref().err()).expect("no room");
        let error = failed.error();
        assert_eq!((error.kind, error.whose()), (ErrorKind::NoRoom, Whose::Local));
        assert!(error.is_retryable());
        assert!(results.iter().any(Result::is_ok), "{results:?}");
        client.call(TURN, b"small").deadline(PATIENCE).await.expect("a reply");
    });
}
