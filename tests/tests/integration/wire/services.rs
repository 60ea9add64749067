//! A service declared once, called and served.

use std::time::Duration;

use bowline_client::{Client, Config, ConnectError, Remote};
use bowline_protocol::service::{Raw, ServiceError};
use bowline_protocol::{ErrorKind, Executed, Whose};
use bowline_runtime::Runtime;
use bowline_server::io::Running;
use bowline_server::{Context, Failure, Typed};

use super::{config, run, serve};
use crate::PATIENCE;

bowline_protocol::service! {
    /// Words, kept under other words.
    mod words("words") with Raw {
        /// The word that is kept under another.
        1 => get(String) -> String {
            idempotent, duplicable: 64, least_useful: Duration::from_millis(1), cost: 3
        };
        /// Which class its calls are of.
        2 => class(()) -> String { cost: 7 };
    }
}

/// What somebody else takes for the same service.
mod other {
    use super::Raw;

    bowline_protocol::service! {
        pub(crate) mod words("words") with Raw {
            1 => fetch(String) -> String { idempotent };
        }
    }
}

#[derive(Clone)]
struct OneWord;

impl words::Server<Context> for OneWord {
    async fn get(&self, context: Context, word: String) -> Result<String, ServiceError> {
        assert_eq!(context.class().0, 3);
        if word.is_empty() {
            Err(Failure::bad_request("a word, please"))?;
        }
        (word == "knot").then(|| "bowline".into()).ok_or(ServiceError::new(44))
    }

    async fn class(&self, context: Context, (): ()) -> Result<String, ServiceError> {
        Ok(context.class().0.to_string())
    }
}

fn server() -> Running {
    serve(Typed(words::Serving(OneWord)), |builder| builder)
}

fn typed(server: &Running) -> Config {
    config(server).service(words::SERVICE)
}

#[test]
fn a_declared_method_is_called_by_its_name() {
    let server = server();
    run(typed(&server), async |client| {
        let stub = words::Client(client.with(|call| call.deadline(PATIENCE)));
        assert_eq!(stub.get(&"knot".into()).await.expect("a word"), "bowline");
        let failure = stub.get(&"splice".into()).await.unwrap_err();
        assert_eq!(failure.error().kind, ErrorKind::App(44));
        let failure = stub.get(&String::new()).await.unwrap_err();
        let error = failure.error();
        assert_eq!((error.kind, error.executed), (ErrorKind::BadRequest, Executed::Yes));
        assert!(failure.to_string().ends_with(": a word, please"), "{failure}");
        assert_eq!(stub.class(&()).await.expect("a class"), "7");
    });
}

#[test]
fn a_call_with_less_time_than_its_method_needs_is_not_sent() {
    let server = server();
    run(typed(&server), async |client| {
        let hurried = words::Client(client.with(|call| call.deadline(Duration::from_micros(900))));
        let failure = hurried.get(&"knot".into()).await.unwrap_err();
        let error = failure.error();
        assert_eq!((error.kind, error.executed), (ErrorKind::DeadlineExceeded, Executed::No));
        assert_eq!(client.counters().attempts, 0);
    });
}

#[test]
fn a_reply_that_is_not_what_its_method_promises_is_the_peer_s_error() {
    bowline_protocol::service! {
        mod numbers("words") with Raw {
            1 => get(String) -> () { idempotent, duplicable: 64 };
        }
    }
    let server = server();
    run(config(&server), async |client| {
        let stub = numbers::Client(
            client.with(|call| call.deadline(PATIENCE).class(bowline_protocol::TrafficClass(3))),
        );
        let failure = stub.get(&"knot".into()).await.unwrap_err();
        let error = failure.error();
        assert!(matches!(error.kind, ErrorKind::Codec(_)), "{error}");
        assert_eq!((error.whose(), error.executed), (Whose::Peer, Executed::Yes));
    });
}

#[test]
fn a_replica_that_means_something_else_is_not_connected_to_and_named() {
    let server = server();
    let mut config = config(&server).service(other::words::SERVICE);
    config.connect_wait = Duration::from_millis(200);
    Runtime::builder().build().expect("a runtime").block_on(async {
        let Err(error) = Client::connect(config).await else { panic!("it was connected") };
        let ConnectError::NoReplica { each, .. } = error else { panic!("{error}") };
        assert!(each.contains("method 1 is \"get\" there and \"fetch\" here"), "{each}");
    });
}

#[test]
fn a_declared_method_is_called_from_any_thread() {
    let server = server();
    let cores = Runtime::builder().cores([0], |_| std::future::pending::<()>()).expect("a core");
    Runtime::builder().build().expect("a runtime").block_on(async {
        let remote = Remote::connect(cores.handles(), typed(&server)).await.expect("a client");
        let stub = words::Client(remote.with(|call| call.deadline(PATIENCE)));
        assert_eq!(stub.get(&"knot".into()).await.expect("a word"), "bowline");
        assert_eq!(stub.class(&()).await.expect("a class"), "7");
    });
}
