use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bowline_protocol::codec::MAX_PAYLOAD;
use bowline_protocol::{LinkConfig, Method, MethodInfo, ReplicaId, ServiceInfo, TrafficClass};

use super::explain::listed;
use super::file::is_record;
use super::live::Live;
use super::vain;
use crate::core::{
    self, Budget, Candidate, Classifier, ConfigError, Limits, MAX_CANDIDATES, Placement, Policy,
};

/// A replica to connect to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replica {
    /// Its number, the same for all clients and servers of the cluster.
    pub id: ReplicaId,
    /// Where it listens.
    pub address: SocketAddr,
    /// The name and port, or the SRV record's full name (feature `srv`), that the address was found by, if it was: they
    /// are looked up again now and then ([`Live::watch`]).
    pub host: Option<String>,
    /// The SRV record's name that it was found by together with others (feature `srv`), if it was: that
    /// set is looked up again, too, and may have other members then.
    pub set: Option<String>,
    /// How many there are before it by the priorities of those records: it is asked only if none of
    /// those can be, as if it were in a farther zone. 0 to 3.
    pub priority: u8,
    /// Replicas of one failure domain (a host, a rack) are held to fail together; without a name
    /// it has one of its own.
    pub domain: Option<String>,
    /// Where it stands: replicas of the client's own zone ([`Config::zone`]) are asked before others.
    pub zone: Option<String>,
    /// What its zone is part of: replicas of other regions ([`Config::region`]) are asked last.
    pub region: Option<String>,
    /// Its share of the work. 1 to 32.
    pub weight: u8,
    /// The methods that it serves; None: all.
    pub methods: Option<Vec<Method>>,
    /// The shard keys that it serves; empty: all.
    pub keys: Vec<RangeInclusive<u64>>,
    /// The name of the store in which it keeps the results of keyed methods, if it shares one with
    /// others that say the same name: only among those a call with a key is tied, hedged, or sent
    /// again once it may have run.
    pub results: Option<String>,
}

impl Replica {
    /// A replica in a failure domain of its own.
    pub fn new(id: u16, address: SocketAddr) -> Replica {
        Replica {
            id: ReplicaId(id),
            address,
            host: None,
            set: None,
            priority: 0,
            domain: None,
            zone: None,
            region: None,
            weight: 1,
            methods: None,
            keys: Vec::new(),
            results: None,
        }
    }

    /// The same in a named failure domain.
    #[must_use]
    pub fn domain(self, name: &str) -> Replica {
        Replica { domain: Some(name.to_owned()), ..self }
    }

    /// The same, with its results in a named store that it shares.
    #[must_use]
    pub fn results(self, store: &str) -> Replica {
        Replica { results: Some(store.to_owned()), ..self }
    }

    /// Nothing listens on port 0; and of two that are at one address only the one is met whose number
    /// is told there. Where names lead is another matter: two may lead to one address while one of them
    /// moves, and that is no reason to refuse all else. Who is there is told when it is dialled.
    pub(super) fn check_beside(&self, others: &[Replica]) -> Result<(), ConnectError> {
        let Replica { id, address, .. } = *self;
        if address.port() == 0 && !self.is_by_record() {
            return Err(ConnectError::NoPort(id));
        }
        let is_as_written =
            |other: &Replica| self.host == other.host && self.set.is_none() && other.set.is_none();
        let is_here =
            |other: &&Replica| other.id == id || other.address == address && is_as_written(other);
        match others.iter().find(is_here) {
            Some(other) if other.id == id => Err(ConnectError::Twice(id)),
            Some(other) => Err(ConnectError::SameAddress { one: other.id, other: id, address }),
            None => Ok(()),
        }
    }

    /// Its port is not as written, but as an SRV record has it.
    fn is_by_record(&self) -> bool {
        self.set.is_some() || self.host.as_deref().is_some_and(is_record)
    }

    /// Its place and role as the machine has it; failure domains are numbers there, and so are stores
    /// of results.
    pub(super) fn placement(&self, domain: u32, results: Option<u32>, from: Spot<'_>) -> Placement {
        // What either side does not say makes no difference.
        let differ = |ours: Option<&str>, its: &Option<String>| {
            ours.zip(its.as_deref()).is_some_and(|(ours, its)| ours != its)
        };
        let away = match differ(from.region, &self.region) {
            true => 2,
            false => u8::from(differ(from.zone, &self.zone)),
        };
        let distance = self.priority.saturating_add(away).min(3);
        Placement {
            domain,
            distance,
            weight: self.weight,
            methods: self.methods.clone(),
            keys: self.keys.clone(),
            results,
        }
    }
}

/// Where a client stands, as far as it is said.
#[derive(Clone, Copy, Default)]
pub(super) struct Spot<'a> {
    pub(super) zone: Option<&'a str>,
    pub(super) region: Option<&'a str>,
}

/// What holds for the calls of one method, unless a call says otherwise.
#[derive(Clone, Debug)]
pub struct MethodConfig {
    /// Calls of this class only; None: of any class of which nothing else is said.
    pub class: Option<TrafficClass>,
    /// What is done against the tail.
    pub policy: Policy,
    /// Running it twice does no harm. Where the [service](field@Config::service) is said and does not
    /// declare it so, that is refused.
    pub idempotent: bool,
    /// How long a call may take.
    pub deadline: Duration,
    /// How stale a result may be at most, unless the call says how fresh it has to be; None: as it
    /// comes. Replies that do not say how fresh they are then never are results.
    pub max_staleness: Option<Duration>,
    /// What replies are worth: to calls that follow another policy, too, unless that has a view of its
    /// own.
    pub classifier: Classifier,
    /// How many copies a call may have, and how it is tried again when all replicas refused it.
    pub limits: Limits,
    /// What pays for extra copies, besides the client's own budget.
    pub budget: Option<Arc<Budget>>,
    /// A policy that a share of the calls tries out.
    pub canary: Option<Canary>,
    /// Policies that are only thought of, while the calls are plain. Up to 8.
    pub shadow: Vec<Candidate>,
}

/// A policy on trial.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Canary {
    /// What is tried out.
    pub policy: Policy,
    /// By which share of the calls, 0 to 1.
    pub share: f64,
}

impl MethodConfig {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        self.policy.validate()?;
        self.limits.validate()?;
        core::check_span("deadline", self.deadline, !self.deadline.is_zero(), "above zero")?;
        if let Some(Canary { policy, share }) = &self.canary {
            core::check("canary.share", share, (0.0..=1.0).contains(share), "0 to 1")?;
            policy.validate()?;
        }
        let count = self.shadow.len();
        core::check(
            "shadow",
            format_args!("{count} long"),
            count <= MAX_CANDIDATES,
            "up to 8 long",
        )?;
        self.shadow.iter().try_for_each(Candidate::validate)
    }
}

impl Default for MethodConfig {
    /// A plain call that must not run twice, with a second to do it.
    fn default() -> Self {
        let deadline = Duration::from_secs(1);
        MethodConfig {
            class: None,
            policy: Policy::None,
            idempotent: false,
            deadline,
            max_staleness: None,
            classifier: Classifier::default(),
            limits: Limits::default(),
            budget: None,
            canary: None,
            shadow: Vec::new(),
        }
    }
}

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whom to connect to.
    pub replicas: Vec<Replica>,
    /// Where this client is: replicas that say they are in another zone are asked only if none
    /// nearer can be, whatever their load. None: zones do not matter.
    pub zone: Option<String>,
    /// The same of what zones are part of: replicas of other regions are the farthest.
    pub region: Option<String>,
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
    pub connect_wait: Duration,
    /// The largest payload of a reply, in bytes. 1 B to 64 MiB.
    pub max_reply: u32,
    /// How many bytes of large replies may be on their way from one replica, in bytes; at least
    /// `max_reply`. A reply that exceeds it is cut off, and its copy as good as lost.
    pub reply_budget: usize,
    /// Replies come with checksums of their payloads. To be done without only where something else
    /// guards the bytes: a tunnel, or checksums of the service's own. (Headers and options always
    /// have them; whether requests do is for the replicas to say.)
    pub payload_checksums: bool,
    /// The service that is called: a replica that means something else by one of its methods is not
    /// connected to, with an error that names it.
    pub service: Option<ServiceInfo>,
    /// Where changes of all this are heard of; see [`Live::client_config`].
    pub live: Option<Live>,
}

impl Config {
    /// The defaults for these replicas: a second to dial, 10 ms to 1 s of backoff, 2 s to wait for all,
    /// replies of up to 1 MiB, and of 64 MiB in all on their way from a replica.
    pub fn new(replicas: impl IntoIterator<Item = Replica>) -> Config {
        Config {
            replicas: replicas.into_iter().collect(),
            zone: None,
            region: None,
            methods: Vec::new(),
            core: core::Config::default(),
            link: LinkConfig::default(),
            dial: Duration::from_secs(1),
            backoff: (Duration::from_millis(10), Duration::from_secs(1)),
            connect_wait: Duration::from_secs(2),
            max_reply: 1 << 20,
            reply_budget: 64 << 20,
            payload_checksums: true,
            service: None,
            live: None,
        }
    }

    /// The same, for this service.
    #[must_use]
    pub const fn service(mut self, service: ServiceInfo) -> Config {
        self.service = Some(service);
        self
    }

    pub(super) fn spot(&self) -> Spot<'_> {
        Spot { zone: self.zone.as_deref(), region: self.region.as_deref() }
    }

    /// The same as it is now, where it changes.
    pub(super) fn current(&self) -> Config {
        self.live.as_ref().map_or_else(|| self.clone(), Live::client_config)
    }

    /// What can be told of it without connecting. What changes while it is used may be ahead of the
    /// program by a method: that was told when it was set.
    pub(super) fn check(&self) -> Result<(), ConnectError> {
        self.check_settings()?;
        let unknown = self.unknown_methods().next().filter(|_| self.live.is_none());
        unknown.map_or(Ok(()), Err)
    }

    /// Tells what it says in vain, if it is sound; what changes while it is used does so where it is set.
    pub(super) fn tell(&self) -> Result<(), ConnectError> {
        self.check()?;
        if self.live.is_none() {
            vain::tell(self, None);
        }
        Ok(())
    }

    /// The same, whatever methods there are.
    pub(super) fn check_settings(&self) -> Result<(), ConnectError> {
        if self.replicas.is_empty() {
            return Err(ConnectError::NoReplicas);
        }
        for (n, replica) in self.replicas.iter().enumerate() {
            replica.placement(0, None, Spot::default()).validate()?;
            replica.check_beside(&self.replicas[..n])?;
        }
        self.check_sizes()?;
        self.core.validate()?;
        for (method, of) in &self.methods {
            of.validate()?;
            let Some(service) = self.service.filter(|_| of.idempotent) else { continue };
            if let Some(&MethodInfo { name, idempotent: false, .. }) = service.method(*method) {
                let (method, service) = (*method, service.name);
                return Err(ConnectError::NotIdempotent { method, name, service });
            }
        }
        Ok(())
    }

    /// The methods of which something is set though the service has them not: that never counts.
    pub(super) fn unknown_methods(&self) -> impl Iterator<Item = ConnectError> {
        let served = self.replicas.iter().flat_map(|replica| replica.methods.iter().flatten());
        let methods = self.methods.iter().map(|(method, _)| method).chain(served).copied();
        let service = self.service;
        methods.filter_map(move |method| {
            let service = service.filter(|service| service.method(method).is_none())?;
            let known = listed(service.methods.iter().map(|it| (it.number, it.name)));
            Some(ConnectError::NoSuchMethod { method, service: service.name, known })
        })
    }

    pub(super) fn check_sizes(&self) -> Result<(), ConfigError> {
        let Config { max_reply, reply_budget, .. } = *self;
        let held = (1..=MAX_PAYLOAD).contains(&max_reply);
        core::check("max_reply", max_reply, held, "1 to 67108864")?;
        core::check(
            "reply_budget",
            reply_budget,
            reply_budget >= max_reply as usize,
            "max_reply or more",
        )
    }

    /// The same, with this for a method, or for its calls of one class.
    #[must_use]
    pub fn method(mut self, method: Method, config: MethodConfig) -> Config {
        self.methods.retain(|(known, of)| *known != method || of.class != config.class);
        self.methods.push((method, config));
        self
    }
}

/// Why there is no client.
#[derive(thiserror::Error)]
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
    #[error("replica {0} is here twice; each needs its own id")]
    Twice(ReplicaId),
    /// Nothing listens there.
    #[error("replica {0} has port 0; it needs the port that it listens on")]
    NoPort(ReplicaId),
    /// Two replicas can't listen there.
    #[error("replicas {one} and {other} are both at {address}; each needs its own address")]
    SameAddress {
        /// The first of them.
        one: ReplicaId,
        /// The second.
        other: ReplicaId,
        /// Where both are said to be.
        address: SocketAddr,
    },
    /// Something is set for a method that the service does not have.
    #[error("method {} is set, but {service:?} has no such method; it has {known}", method.0)]
    NoSuchMethod {
        /// Its number.
        method: Method,
        /// The service's name.
        service: &'static str,
        /// The methods that it has, by number and name.
        known: String,
    },
    /// A method is set to be idempotent, and its service says that it is not.
    #[error(
        "method {} ({name:?}) is set to be idempotent, but {service:?} does not declare it so; leave that \
         out, or have calls of it bring a key",
        method.0
    )]
    NotIdempotent {
        /// Its number.
        method: Method,
        /// Its name.
        name: &'static str,
        /// The service's name.
        service: &'static str,
    },
    /// No replica could be reached.
    #[error("no replica could be reached within {within:?}: {each}")]
    NoReplica {
        /// How long it was tried.
        within: Duration,
        /// Of each replica where it is, and what went wrong there last.
        each: String,
    },
}
