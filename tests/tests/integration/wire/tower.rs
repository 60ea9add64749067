//! The client as a service of tower's, awaited on tokio: what a request says is what a call says.

use bowline_client::core::{Classifier, PickRule, Verdict};
use bowline_client::io::{MethodConfig, RemoteFailure, RemoteReply, Request};
use bowline_client::{Remote, Replica};
use bowline_protocol::options::fingerprint;
use bowline_protocol::{
    ErrorKind, Freshness, Key, Method, MethodInfo, ReplicaId, ServiceInfo, Status,
};
use bowline_runtime::{Duration, Runtime};
use bowline_server::io::Builder;
use bowline_server::{Context, Failure, Payload, Service};
use tower::ServiceExt;

use super::{config, serve};
use crate::PATIENCE;

/// Answers with what the context says of the call.
const TELL: Method = Method(1);
/// Fails at the first replica, as it may not at another.
const FLAKY: Method = Method(2);
const METHODS: &[MethodInfo] =
    &[MethodInfo::new(TELL, "tell").idempotent(), MethodInfo::new(FLAKY, "flaky").idempotent()];

const SHORT: Duration = PATIENCE;
const VERSION: u64 = 7;
const STALENESS: Duration = Duration::from_secs(9);

/// A replica, by its number.
#[derive(Clone)]
struct Teller(u16);

impl Service for Teller {
    type Reply = Vec<u8>;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("teller", METHODS)
    }

    async fn call(&self, context: Context, request: Payload) -> Result<Vec<u8>, Failure> {
        if context.method() == FLAKY && self.0 == 0 {
            return Err(Failure::app(3));
        }
        context.date_reply(Freshness { version: VERSION, staleness: Duration::ZERO });
        let is_short = context.remaining() <= SHORT;
        let (key, fresh) = (context.key(), context.freshness_asked());
        Ok(format!("{} {:?} {is_short} {key:?} {fresh:?}", self.0, &request[..]).into_bytes())
    }
}

/// Runs a test on tokio, with a client of two replicas, which runs on a core of its own.
fn on_tokio(test: impl AsyncFnOnce(Remote)) {
    let servers =
        [0, 1].map(|id| serve(Teller(id), move |builder: Builder| builder.replica(ReplicaId(id))));
    let classifier = Classifier::new(|status, _: &[u8]| match status {
        Status::App(3) => Verdict::Retryable,
        _ => Verdict::of(status),
    });
    let patient = MethodConfig { deadline: 10 * PATIENCE, classifier, ..MethodConfig::default() };
    let mut config = config(&servers[0]).method(TELL, patient.clone()).method(FLAKY, patient);
    let replicas = servers.iter().enumerate();
    config.replicas =
        replicas.map(|(id, server)| Replica::new(id as u16, server.address())).collect();
    config.core.pick = PickRule::First;
    let cores = Runtime::builder().cores([0], |_| std::future::pending::<()>()).expect("a core");
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build();
    tokio.expect("tokio").block_on(async {
        let client = Remote::connect(cores.handles(), config).await.expect("both are there");
        tokio::time::timeout(2 * PATIENCE, test(client)).await.expect("the test hangs");
    });
}

fn told(result: Result<RemoteReply, RemoteFailure>) -> String {
    String::from_utf8(result.expect("a reply").payload).expect("it is text")
}

#[test]
fn a_request_says_all_that_a_call_does() {
    on_tokio(async |client| {
        let key = Key { id: 77, fingerprint: fingerprint(b"block") };
        let fresh = Freshness { version: VERSION, staleness: STALENESS };
        let mut answered = [0; 2];
        for shard_key in 0..16 {
            let request = Request {
                deadline: Some(SHORT),
                shard_key: Some(shard_key),
                key: Some(77),
                version: Some(VERSION),
                max_staleness: Some(STALENESS),
                idempotent: true,
                ..Request::new(TELL, b"block")
            };
            let by_service = told(client.clone().oneshot(request).await);
            let call = client.call(TELL, b"block").deadline(SHORT).shard_key(shard_key).key(77);
            let call = call.at_least(VERSION).at_most_stale(STALENESS).idempotent();
            assert_eq!(by_service, told(call.await));
            let replica = usize::from(by_service.starts_with('1'));
            answered[replica] += 1;
            let payload = &b"block"[..];
            let all = format!("{replica} {payload:?} true {:?} {:?}", Some(key), Some(fresh));
            assert_eq!(by_service, all);
        }
        assert!(answered.iter().all(|&calls| calls > 0), "keys go to both: {answered:?}");
    });
}

#[test]
fn a_request_that_says_no_more_than_what_leaves_the_rest_to_the_configuration() {
    on_tokio(async |client| {
        let told = told(client.oneshot(Request::new(TELL, b"")).await);
        assert_eq!(told, "0 [] false None None");
    });
}

#[test]
fn only_a_request_that_may_run_twice_is_sent_to_another_replica_once_it_has_failed() {
    on_tokio(async |client| {
        let once = Request::new(FLAKY, b"");
        let twice = Request { idempotent: true, ..once.clone() };
        let failure = client.clone().oneshot(once).await.expect_err("it is not to run twice");
        assert_eq!(failure.error.kind, ErrorKind::App(3));
        assert!(told(client.oneshot(twice).await).starts_with("1 "));
    });
}
