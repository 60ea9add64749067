//! Two replicas, in this process, of a service that answers in capitals; and how to call them.

use std::error::Error;

use bowline_client::core::Policy;
use bowline_client::io::MethodConfig;
use bowline_client::{Config, Remote, Replica};
use bowline_protocol::{Method, MethodInfo, ReplicaId, ServiceInfo};
use bowline_runtime::Runtime;
use bowline_server::io::Running;
use bowline_server::{Context, Failure, Payload, Server, Service};

pub(crate) const SHOUT: Method = Method(1);
const METHODS: &[MethodInfo] = &[MethodInfo::new(SHOUT, "shout").idempotent().duplicable(1 << 16)];

#[derive(Clone)]
struct Shouter;

impl Service for Shouter {
    type Reply = Vec<u8>;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("shouter", METHODS)
    }

    async fn call(&self, _: Context, request: Payload) -> Result<Vec<u8>, Failure> {
        Ok(request.to_ascii_uppercase())
    }
}

pub(crate) fn replicas() -> Result<[Running; 2], Box<dyn Error>> {
    let start = |id| {
        let address = ([127, 0, 0, 1], 0).into();
        Server::builder().replica(ReplicaId(id)).listen(address).cores(1).start(Shouter)
    };
    Ok([start(1)?, start(2)?])
}

/// A client of theirs, on a core of its own, that hedges slow calls.
pub(crate) async fn connect(replicas: &[Running]) -> Result<Remote, Box<dyn Error>> {
    let cores = Runtime::builder().cores([0], |_| std::future::pending::<()>())?;
    let replicas = (1..).zip(replicas);
    let replicas =
        replicas.map(|(id, it)| Replica::new(id, ([127, 0, 0, 1], it.ports()[0]).into()));
    let hedged =
        MethodConfig { policy: Policy::hedged(), idempotent: true, ..MethodConfig::default() };
    let config = Config::new(replicas).method(SHOUT, hedged);
    Ok(Remote::connect(cores.handles(), config).await?)
}
