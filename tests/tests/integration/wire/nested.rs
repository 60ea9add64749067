//! Calls that a handler makes are over when nobody needs the handler any more, and by its deadline.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_client::io::MethodConfig;
use bowline_client::{Client, Config, Replica};
use bowline_protocol::{Method, MethodInfo, ReplicaId, ServiceInfo, TraceContext};
use bowline_runtime::{sleep, spawn};
use bowline_server::{Context, Failure, Payload, Server, Service};

use super::{config, run, serve};
use crate::PATIENCE;

/// Goes on until it is cancelled.
const WAIT: Method = Method(1);
/// Answers with how much time it has, in milliseconds.
const TELL: Method = Method(2);
/// Answers with the trace that it belongs to.
const TRACE: Method = Method(3);
const METHODS: &[MethodInfo] = &[
    MethodInfo::new(WAIT, "wait").idempotent(),
    MethodInfo::new(TELL, "tell").idempotent(),
    MethodInfo::new(TRACE, "trace").idempotent(),
];

static STARTED: AtomicU64 = AtomicU64::new(0);
static CANCELLED: AtomicU64 = AtomicU64::new(0);

#[derive(Clone)]
struct Back;

impl Service for Back {
    type Reply = Vec<u8>;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("back", METHODS)
    }

    async fn call(&self, context: Context, _: Payload) -> Result<Vec<u8>, Failure> {
        if context.method() == TELL {
            return Ok((context.remaining().as_millis() as u64).to_le_bytes().to_vec());
        }
        if context.method() == TRACE {
            return Ok(format!("{:?}", context.trace()).into_bytes());
        }
        STARTED.fetch_add(1, Ordering::SeqCst);
        context.cancelled().await;
        CANCELLED.fetch_add(1, Ordering::SeqCst);
        Err(Failure::stopped())
    }
}

/// Has another server do all of its work.
struct Front(Client);

impl Service for Front {
    type Reply = Vec<u8>;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("front", METHODS)
    }

    async fn call(&self, context: Context, request: Payload) -> Result<Vec<u8>, Failure> {
        let call = self.0.call(context.method(), &request[..]).within(&context);
        call.await.map(|reply| reply.to_vec()).map_err(|_| Failure::stopped())
    }
}

#[test]
fn a_call_within_another_ends_with_it_and_by_its_deadline_and_is_of_its_trace() {
    let back = serve(Back, |builder| builder);
    let address = back.address();
    let front = Server::builder()
        .replica(ReplicaId(0))
        .listen(SocketAddr::from(([127, 0, 0, 1], 0)))
        .start_with(move |_| async move {
            let patient = || MethodConfig {
                idempotent: true,
                deadline: 10 * PATIENCE,
                ..MethodConfig::default()
            };
            let mut config = Config::new([Replica::new(0, address)]);
            config.connect_wait = PATIENCE;
            let config = [WAIT, TELL, TRACE]
                .into_iter()
                .fold(config, |config, method| config.method(method, patient()));
            Client::connect(config).await.map(Front).map_err(io::Error::other)
        })
        .expect("a server");
    run(config(&front), async |client| {
        let told = client.call(TELL, b"").deadline(PATIENCE).await.expect("a reply");
        let left =
            Duration::from_millis(u64::from_le_bytes(told[..].try_into().expect("a number")));
        assert!(left <= PATIENCE, "{left:?} is the inner client's own deadline");

        let trace = TraceContext { trace: [1; 16], parent: [2; 8], flags: 1 };
        for trace in [Some(trace), None] {
            let call = client.call(TRACE, b"").deadline(PATIENCE);
            let call = match trace {
                Some(trace) => call.trace(trace),
                None => call,
            };
            let told = call.await.expect("a reply");
            assert_eq!(String::from_utf8_lossy(&told), format!("{trace:?}"), "in the same trace");
        }

        // Longer than the test: only the cancel can end it.
        let call = client.call(WAIT, b"").deadline(10 * PATIENCE);
        let outer = spawn(async move { call.await.map(drop) });
        while STARTED.load(Ordering::SeqCst) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        outer.abort();
        while CANCELLED.load(Ordering::SeqCst) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    });
}
