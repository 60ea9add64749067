//! The client's side: for each policy a client of its own, and for each replica a line by which to
//! ask what it did.

use core::time::Duration;
use std::net::SocketAddr;

use bowline_client::core::PolicyId;
use bowline_client::{Client, Config, ConnectError, Failure, Replica};
use bowline_runtime::{clock_now, sleep};
use thiserror::Error;

use crate::cli::{Policy, PolicyArgs};
use crate::figures::Figures;
use crate::policies::{client_config, client_policy};
use crate::store::{self, FIGURES, READ, read_request};

/// How long replicas may take until all links are up, theirs to each other included.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a replica may take to tell its figures, stalls included.
const ANSWER: Duration = Duration::from_secs(5);
/// How long it takes at most until the first link between replicas is up, if there will be one.
const NO_MESH: Duration = Duration::from_secs(2);
/// Between two looks at a state that is awaited.
const LOOK: Duration = Duration::from_millis(10);

/// Why replicas cannot be used.
#[derive(Debug, Error)]
pub enum FrontendError {
    /// A policy's setting.
    #[error(transparent)]
    Config(#[from] bowline_client::core::ConfigError),
    /// No connection.
    #[error("{}", unreached(address, source))]
    Connect {
        /// Whom.
        address: SocketAddr,
        /// Why.
        source: ConnectError,
    },
    /// Some replicas were not to be reached.
    #[error("only {connected} of {wanted} replicas can be reached")]
    Some {
        /// How many can.
        connected: usize,
        /// How many there are.
        wanted: usize,
    },
    /// A replica does not say what it is.
    #[error("{address} does not answer as a 'bowline serve' does: {why}")]
    Figures {
        /// Which.
        address: SocketAddr,
        /// What it did.
        why: String,
    },
    /// A replica with other data.
    #[error(
        "{address} holds {blocks} blocks of seed {seed}, not the {wanted_blocks} of seed \
         {wanted_seed} that are to be read: --seed and --data-size must be the same everywhere"
    )]
    OtherData {
        /// Which.
        address: SocketAddr,
        /// Blocks that it has.
        blocks: u64,
        /// Seed of its data.
        seed: u64,
        /// Blocks that it should have.
        wanted_blocks: u64,
        /// Seed that its data should have.
        wanted_seed: u64,
    },
}

/// A client of one replica that can't reach it knows of no other.
fn unreached(address: &SocketAddr, error: &ConnectError) -> String {
    match error {
        ConnectError::NoReplica { within, each } => {
            format!(
                "cannot connect within {within:?} to {each}; 'bowline serve' of that number has to \
                 listen there"
            )
        }
        other => format!("cannot connect to {address}: {other}"),
    }
}

/// How these replicas are reached, who have to be stores: no method of another service's is called.
fn config(replicas: impl IntoIterator<Item = Replica>) -> Config {
    Config { connect_wait: PATIENCE, ..Config::new(replicas) }.service(store::INFO)
}

/// A replica, and the line to it alone.
#[derive(Clone)]
pub struct Line {
    address: SocketAddr,
    client: Client,
}

/// A policy, and the client that follows it.
pub struct Seat {
    /// Whose client it is.
    pub policy: Policy,
    /// Its connections, budget and latencies are nobody else's.
    pub client: Client,
    /// What its calls name.
    pub id: PolicyId,
}

/// Clients and lines to the same replicas.
pub struct Frontend {
    /// One for each policy.
    pub seats: Vec<Seat>,
    /// One for each replica.
    pub lines: Vec<Line>,
}

impl Frontend {
    /// Connects to all replicas, which have the numbers from 0 in their order.
    ///
    /// # Errors
    /// One cannot be reached, or a setting is out of its range.
    pub async fn connect(
        replicas: &[SocketAddr],
        policies: &[Policy],
        args: &PolicyArgs,
        seed: u64,
    ) -> Result<Self, FrontendError> {
        let all: Vec<Replica> = (0..).zip(replicas).map(|(n, at)| Replica::new(n, *at)).collect();
        let mut lines = Vec::new();
        for replica in &all {
            let config = config([replica.clone()]);
            let address = replica.address;
            let connected = Client::connect(config).await;
            let client = connected.map_err(|source| FrontendError::Connect { address, source })?;
            lines.push(Line { address, client });
        }
        let mut seats = Vec::new();
        for &policy in policies {
            let core = client_config(args, seed)?;
            let config = Config { core, ..config(all.clone()) };
            let connected = Client::connect(config).await;
            let first = replicas[0];
            let client =
                connected.map_err(|source| FrontendError::Connect { address: first, source })?;
            let (connected, wanted) = (client.connected(), all.len());
            if connected < wanted {
                return Err(FrontendError::Some { connected, wanted });
            }
            let id = client.register(client_policy(policy, args))?;
            seats.push(Seat { policy, client, id });
        }
        Ok(Frontend { seats, lines })
    }

    /// What every replica tells of itself.
    ///
    /// # Errors
    /// One does not.
    pub async fn figures(&self) -> Result<Vec<Figures>, FrontendError> {
        let mut all = Vec::with_capacity(self.lines.len());
        for line in &self.lines {
            all.push(line.figures().await?);
        }
        Ok(all)
    }

    /// The same of those that tell: others have died, or cannot be reached any more.
    pub async fn figures_left(&self) -> Vec<Option<Figures>> {
        let mut all = Vec::with_capacity(self.lines.len());
        for line in &self.lines {
            let connected = line.client.connected() > 0;
            all.push(if connected { line.figures().await.ok() } else { None });
        }
        all
    }

    /// Waits until every replica can tell every other that a copy starts; false if some cannot
    /// after a while.
    ///
    /// # Errors
    /// A replica does not answer.
    pub async fn mesh_is_up(&self) -> Result<bool, FrontendError> {
        let began = clock_now();
        let peers = self.lines.len().saturating_sub(1);
        loop {
            let figures = self.figures().await?;
            if figures.iter().all(|figures| figures.mesh_up >= peers) {
                return Ok(true);
            }
            // Replicas that were not told of each other never will be.
            let none = figures.iter().all(|figures| figures.mesh_up == 0);
            if clock_now() - began >= if none { NO_MESH } else { PATIENCE } {
                return Ok(false);
            }
            sleep(LOOK).await;
        }
    }

    /// Time that a message takes from one process to another, by idle round trips: the median.
    pub async fn one_way(&self) -> Duration {
        const TRIPS: usize = 41;
        let Some(line) = self.lines.first() else { return Duration::ZERO };
        let mut trips = Vec::with_capacity(TRIPS);
        for _ in 0..TRIPS {
            let began = clock_now();
            // Refused at once by the handler, so that nothing but the way is measured.
            let refused = line.client.call(READ, read_request(u64::MAX, 0)).deadline(ANSWER).await;
            drop(refused);
            trips.push(clock_now() - began);
            sleep(Duration::from_millis(1)).await;
        }
        trips.sort_unstable();
        trips[TRIPS / 2] / 2
    }
}

impl Line {
    async fn figures(&self) -> Result<Figures, FrontendError> {
        let wrong = |why: String| FrontendError::Figures { address: self.address, why };
        let asked = self.client.call(FIGURES, []).idempotent().deadline(ANSWER).await;
        let reply = asked.map_err(|failure: Failure| wrong(failure.to_string()))?;
        Figures::from_json(&reply).map_err(|error| wrong(error.to_string()))
    }

    /// Where the replica listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
