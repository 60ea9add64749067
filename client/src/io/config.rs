use std::net::SocketAddr;
use std::time::Duration;

use bowline_protocol::{LinkConfig, Method, ReplicaId};

use crate::core::{self, ConfigError, Policy};

/// A replica to connect to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replica {
    /// Its number, the same for all clients and servers of the cluster.
    pub id: ReplicaId,
    /// Where it listens.
    pub address: SocketAddr,
    /// Replicas of one failure domain (a host, a rack) are held to fail together; without a name
    /// it has one of its own.
    pub domain: Option<String>,
}

impl Replica {
    /// A replica in a failure domain of its own.
    pub fn new(id: u16, address: SocketAddr) -> Replica {
        Replica { id: ReplicaId(id), address, domain: None }
    }

    /// The same in a named failure domain.
    #[must_use]
    pub fn domain(self, name: &str) -> Replica {
        Replica { domain: Some(name.to_owned()), ..self }
    }
}

/// What holds for the calls of one method, unless a call says otherwise.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MethodConfig {
    /// What is done against the tail.
    pub policy: Policy,
    /// Running it twice does no harm.
    pub idempotent: bool,
    /// How long a call may take.
    pub deadline: Duration,
}

impl Default for MethodConfig {
    /// A plain call that must not run twice, with a second to do it.
    fn default() -> Self {
        let deadline = Duration::from_secs(1);
        MethodConfig { policy: Policy::None, idempotent: false, deadline }
    }
}

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whom to connect to.
    pub replicas: Vec<Replica>,
    /// What holds for each method; for one that isn't here, [`MethodConfig::default`].
    pub methods: Vec<(Method, MethodConfig)>,
    /// The machine's settings.
    pub core: core::Config,
    /// How patient the connections are.
    pub link: LinkConfig,
    /// How long dialling may take.
    pub dial: Duration,
    /// The first and the longest wait before dialling again.
    pub backoff: (Duration, Duration),
    /// How long [`Client::connect`](super::Client::connect) waits for all replicas; after that it
    /// takes those that are there.
    pub patience: Duration,
    /// The largest payload of a reply, in bytes.
    pub max_reply: u32,
}

impl Config {
    /// The defaults for these replicas: a second to dial, 10 ms to 1 s of backoff, 2 s of patience,
    /// replies of up to 1 MiB.
    pub fn new(replicas: impl IntoIterator<Item = Replica>) -> Config {
        Config {
            replicas: replicas.into_iter().collect(),
            methods: Vec::new(),
            core: core::Config::default(),
            link: LinkConfig::default(),
            dial: Duration::from_secs(1),
            backoff: (Duration::from_millis(10), Duration::from_secs(1)),
            patience: Duration::from_secs(2),
            max_reply: 1 << 20,
        }
    }

    /// The same, with this for a method.
    #[must_use]
    pub fn method(mut self, method: Method, config: MethodConfig) -> Config {
        self.methods.retain(|(known, _)| *known != method);
        self.methods.push((method, config));
        self
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No random number for the client's name.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
    /// There is no core to connect on, or it has ended.
    #[error("there is no core to connect on, or it has ended")]
    NoCore,
    /// No replica is configured.
    #[error("no replica is configured")]
    NoReplicas,
    /// Two replicas have one number.
    #[error("replica {0} is there twice")]
    Twice(ReplicaId),
    /// No replica could be reached.
    #[error("no replica could be reached within {patience:?}; the last to fail was {last}")]
    NoReplica {
        /// How long it was tried.
        patience: Duration,
        /// What went wrong last, and with whom.
        last: String,
    },
}
