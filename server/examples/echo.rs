//! A complete replica: it answers every request with what it was sent.
//!
//! `cargo run --release -p bowline-server --example echo -- 127.0.0.1:7000`

use bowline_protocol::{Method, MethodInfo, ServiceInfo};
use bowline_server::{Context, Failure, Payload, Server, Service};

const METHODS: &[MethodInfo] =
    &[MethodInfo::new(Method(1), "echo").idempotent().duplicable(1 << 20)];

#[derive(Clone)]
struct Echo;

impl Service for Echo {
    type Reply = Payload;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("echo", METHODS)
    }

    async fn call(&self, _: Context, request: Payload) -> Result<Payload, Failure> {
        Ok(request)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("where to listen? ADDRESS:PORT")?;
    Server::builder().listen(address.parse()?).slots(256).serve(Echo)?;
    Ok(())
}
