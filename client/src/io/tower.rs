//! The client as a service in the sense of `tower`, so that its middleware fits.

use std::future::IntoFuture;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_protocol::Method;
use tower_service::Service;

use super::remote::{Remote, RemoteCalling, RemoteFailure, RemoteReply};

/// A call as a value. What it does not say, the configuration says of its method.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// What to run.
    pub method: Method,
    /// What to send.
    pub payload: Vec<u8>,
    /// How long it may take.
    pub deadline: Option<Duration>,
    /// What it is about, which decides the order in which the replicas are asked.
    pub shard_key: Option<u64>,
    /// What it is to bring about once: see [`Call::key`](super::Call::key).
    pub key: Option<u128>,
    /// Of which version its result has to be: see [`Call::at_least`](super::Call::at_least).
    pub version: Option<u64>,
    /// How stale it may be: see [`Call::at_most_stale`](super::Call::at_most_stale).
    pub max_staleness: Option<Duration>,
    /// Running it twice does no harm.
    pub idempotent: bool,
}

impl Request {
    /// A call that says no more than what and with what.
    pub fn new(method: Method, payload: impl Into<Vec<u8>>) -> Request {
        let payload = payload.into();
        Request {
            method,
            payload,
            deadline: None,
            shard_key: None,
            key: None,
            version: None,
            max_staleness: None,
            idempotent: false,
        }
    }
}

/// Always ready: what is too much is refused with an error that says so. Middleware that retries or
/// hedges does what this client does better, with a budget; it is not to be laid over it.
impl Service<Request> for Remote {
    type Response = RemoteReply;
    type Error = RemoteFailure;
    type Future = RemoteCalling;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), RemoteFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> RemoteCalling {
        let mut call = Remote::call(self, request.method, request.payload);
        if let Some(deadline) = request.deadline {
            call = call.deadline(deadline);
        }
        if let Some(key) = request.shard_key {
            call = call.shard_key(key);
        }
        if let Some(key) = request.key {
            call = call.key(key);
        }
        if let Some(version) = request.version {
            call = call.at_least(version);
        }
        if let Some(staleness) = request.max_staleness {
            call = call.at_most_stale(staleness);
        }
        if request.idempotent {
            call = call.idempotent();
        }
        call.into_future()
    }
}
