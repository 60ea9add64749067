//! A client and a server of one process, with a real connection between them: what goes over the
//! wire beside requests and replies, and in what pieces.

mod copies;
mod credit;
mod exchange;
mod flips;
mod fresh;
mod keyed;
mod large;
mod losers;
mod nested;
mod options;
mod services;
mod tower;

use std::net::SocketAddr;

use bowline_client::{Client, Config, Replica};
use bowline_protocol::{LinkConfig, ReplicaId};
use bowline_runtime::{Runtime, timeout};
use bowline_server::io::{Builder, Running};
use bowline_server::{Server, Service};

use crate::PATIENCE;

/// A server of one core, on a thread of its own.
fn serve<S: Service + Clone + Send + Sync>(
    service: S,
    change: impl FnOnce(Builder) -> Builder,
) -> Running {
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let patient = LinkConfig { dead_after: PATIENCE, ..LinkConfig::default() };
    let builder = Server::builder().replica(ReplicaId(0)).listen(any).link(patient);
    change(builder).start(service).expect("a server")
}

/// A client of that server, which gives nothing up since the machine has too much to do.
fn config(server: &Running) -> Config {
    let mut config = Config::new([Replica::new(0, server.address())]);
    config.connect_wait = PATIENCE;
    config.link = LinkConfig { dead_after: PATIENCE, ..config.link };
    config
}

/// Runs a test with a client, on a runtime of its own.
fn run<F: Future<Output = ()>>(config: Config, test: impl FnOnce(Client) -> F) {
    run_on(Runtime::builder(), config, test);
}

/// The same, on a runtime of one's own making.
fn run_on<F: Future<Output = ()>>(
    runtime: bowline_runtime::Builder,
    config: Config,
    test: impl FnOnce(Client) -> F,
) {
    let runtime = runtime.build().expect("a runtime");
    runtime.block_on(async {
        let client = Client::connect(config).await.expect("the server is there");
        timeout(2 * PATIENCE, test(client)).await.expect("the test hangs");
    });
}
