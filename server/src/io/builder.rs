//! How a server is to be: addresses, cores, limits. Checked before anything is started.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::string::String;
use std::time::Duration;
use std::vec::Vec;

use bowline_protocol::codec::MAX_PAYLOAD;
use bowline_protocol::{Credit, LinkConfig, ReplicaId, Station, options};

use super::cures;
use super::mesh::{MOST_CORES, Peer};
use super::names::PeerAddress;
use super::once::{Counts, Ledger};
use super::sender;
use super::server::{self, Running};
use super::service::Service;
use crate::core::{Adaptive, ConfigError, KeyLimits, Overload};

/// The longest payload that is taken in one frame, in bytes.
const LONGEST_FRAME: u32 = 1 << 20;

/// How long a server that was told to end by a signal may take to finish what it has.
const GRACE: Duration = Duration::from_secs(5);
/// Small requests are those of up to one in so many of the largest size; one in so many bytes of room is
/// kept for them, beside that for all.
const SMALL: usize = 16;

/// Bounds on what clients can make a core hold. All are for each core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Copies that run at once.
    pub slots: u32,
    /// Copies that wait.
    pub queue_requests: u32,
    /// Bytes of the payloads of copies that wait.
    pub queue_bytes: usize,
    /// Connections that are accepted.
    pub connections: u32,
    /// Of those, from one address. Does not hold for the addresses of peers.
    pub connections_per_address: u32,
    /// Of those, kept for the addresses of peers, where there are any.
    pub connections_reserved: u32,
    /// Bytes of the payload of one request, up to 64 MiB. (One without options may take the room of
    /// options, too.)
    pub request_bytes: u32,
    /// Bytes of the payloads of requests that are on their way in segments, of all connections. One
    /// connection has at most half of it, or room for one request of the largest size; what it has
    /// under way is shed once nothing of it came for `stall_time`. Where there is no room for another,
    /// those are shed that would take longer than `transfer_time` at their pace so far, and then the
    /// last ones of the connections that have most under way, as long as that is several requests, and
    /// more than the asking one would have. A sixteenth as much beside it is for small requests: those
    /// of up to a sixteenth of the largest size.
    pub assembly_bytes: usize,
    /// What a connection's client may have under way: requests, and bytes of their payloads. One that
    /// exceeds it is disconnected; one of ours keeps to it. At least two requests of the largest size.
    /// With more bytes than one connection may have of `assembly_bytes`, a client that sends large
    /// requests faster than they are done is refused some of them, and not only made to wait.
    pub credit: Credit,
    /// Bytes that may wait for one connection, however slowly it is read: a copy is held back in the
    /// queue while its reply would exceed that, unless nothing else waits. Should more wait all the
    /// same, as replies are longer than those of their method are on average, the client is to read so
    /// many in each `transfer_time`, or is disconnected. Of frames that are not of large replies no more
    /// may wait. At least 128 KiB.
    pub outgoing_bytes: usize,
    /// Bytes that may wait for all clients together. From half of it on, copies of clients that have
    /// more than an equal share of that half are held back in the queue, and those of all clients where
    /// three quarters would be exceeded, and a client would have more than a sixteenth of what is left. If
    /// that lasts for `transfer_time`, those are disconnected that took less than a quarter of what waits
    /// for them in as long; should all of it be exceeded, those that have kept most of it for longest.
    pub outgoing_total: usize,
    /// How long the next part of a request may take. Not zero.
    pub stall_time: Duration,
    /// How long a request of any size may take to come in while others need its room (its pace is
    /// looked at once `stall_time` has passed since it began), `outgoing_bytes` of replies to be read,
    /// and a client to read anything while others wait for that. Not zero.
    pub transfer_time: Duration,
    /// Tombstones that are kept.
    pub tombstones: u32,
}

impl Limits {
    /// The longest payload of a frame, in bytes: a request's, behind its options. Longer requests
    /// come in segments.
    pub(super) fn frame_bytes(&self) -> u32 {
        self.request_bytes.min(LONGEST_FRAME) + options::MAX_LEN as u32
    }

    /// What all connections may have on their way with a request of `total` bytes.
    pub(super) fn assembly_room(&self, total: usize) -> usize {
        self.assembly_bytes.saturating_add(self.room_for_small(total))
    }

    /// What one connection may have of it.
    pub(super) fn assembly_share(&self, total: usize) -> usize {
        let half = (self.assembly_bytes / 2).max(self.request_bytes as usize);
        half.saturating_add(self.room_for_small(total))
    }

    /// What large requests leave to one of `total` bytes, if that is a small one.
    fn room_for_small(&self, total: usize) -> usize {
        let is_small = total <= self.request_bytes as usize / SMALL;
        if is_small { self.assembly_bytes / SMALL } else { 0 }
    }

    /// A request of the largest size fits into everything that it goes through.
    fn check(&self) -> Result<(), ServeError> {
        let request = self.request_bytes;
        let too_small = |what, bytes| Err(ServeError::TooSmall { what, bytes, request });
        if request > MAX_PAYLOAD {
            return Err(ServeError::RequestTooLarge(request));
        }
        if self.queue_bytes < request as usize {
            return too_small("queue_bytes", self.queue_bytes as u64);
        }
        if self.assembly_bytes < request as usize {
            return too_small("assembly_bytes", self.assembly_bytes as u64);
        }
        if self.credit.bytes / 2 < request.into() {
            return too_small("half of credit.bytes", self.credit.bytes / 2);
        }
        if self.credit.requests == 0 {
            return Err(ServeError::NoCredit);
        }
        if self.outgoing_bytes < sender::LEAST {
            return Err(ServeError::NoReplies(self.outgoing_bytes));
        }
        for (what, time) in [("stall_time", self.stall_time), ("transfer_time", self.transfer_time)]
        {
            if time.is_zero() {
                return Err(ServeError::NoTime(what));
            }
        }
        Ok(())
    }
}

impl Default for Limits {
    /// 16 slots; 1024 copies of 16 MiB in all may wait; 1024 connections, 512 from one address and 64
    /// kept for peers; requests of 1 MiB, 64 MiB in all on their way; 4096 requests of 32 MiB in all
    /// under way and 16 MiB of replies waiting for a connection, 256 MiB for all; a second for
    /// the next part of a request, ten for all of it or to read those 16 MiB; 4096 tombstones.
    fn default() -> Self {
        Limits {
            slots: 16,
            queue_requests: 1024,
            queue_bytes: 16 << 20,
            connections: 1024,
            connections_per_address: 512,
            connections_reserved: 64,
            request_bytes: 1 << 20,
            assembly_bytes: 64 << 20,
            credit: Credit { requests: 4096, bytes: 32 << 20 },
            outgoing_bytes: 16 << 20,
            outgoing_total: 256 << 20,
            stall_time: Duration::from_secs(1),
            transfer_time: Duration::from_secs(10),
            tombstones: 4096,
        }
    }
}

/// Why a server can't be had.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A server runs on at least one core.
    #[error("a server needs at least one core")]
    NoCores,
    /// More cores than can be named.
    #[error("{0} cores are more than a replica can have ({max})", max = MOST_CORES)]
    TooManyCores(usize),
    /// A peer that is this very replica.
    #[error("replica {0} can't be a peer: it is this one")]
    OwnPeer(ReplicaId),
    /// A peer that was given twice.
    #[error("replica {0} can't be a peer twice")]
    PeerTwice(ReplicaId),
    /// A request of the largest size would never fit.
    #[error("{what} ({bytes}) is less than request_bytes ({request})")]
    TooSmall {
        /// The limit that it would exceed.
        what: &'static str,
        /// That limit, in bytes.
        bytes: u64,
        /// The largest request, in bytes.
        request: u32,
    },
    /// All connections are kept for peers.
    #[error("connections_reserved ({reserved}) leaves nothing of connections ({connections})")]
    Reserve {
        /// How many are kept.
        reserved: u32,
        /// Of how many.
        connections: u32,
    },
    /// Larger requests than any side should take.
    #[error("request_bytes is {0}, and may be {max} at most", max = MAX_PAYLOAD)]
    RequestTooLarge(u32),
    /// No client could ever send a request.
    #[error("credit.requests is 0: no client could ever send a request")]
    NoCredit,
    /// Nobody could read quickly enough.
    #[error(
        "outgoing_bytes is {0}: who has a few small replies waiting would be cut off; make it {least} \
         or more",
        least = sender::LEAST
    )]
    NoReplies(usize),
    /// Nobody could ever be quick enough.
    #[error(
        "{0} is zero: who has no time is cut off at once; where it is to have no limit, give it a day"
    )]
    NoTime(&'static str),
    /// A limit or a method that can't be.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// The address can't be had.
    #[error("can't listen at {address}: {source}{}", cures::of_bind(source))]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the kernel says.
        source: io::Error,
    },
    /// The address of the metrics can't be had.
    #[error("can't serve metrics at {address}: {source}{}", cures::of_bind(source))]
    Metrics {
        /// Where.
        address: SocketAddr,
        /// What the kernel says.
        source: io::Error,
    },
    /// The runtime can't be had.
    #[error("{0}")]
    Runtime(#[from] bowline_runtime::Error),
    /// The service could not be made.
    #[error("the service can't start: {}{}", .0, cures::of_limit(.0))]
    Service(io::Error),
    /// Signals can't be heard.
    #[error("can't hear signals: {}{}", .0, cures::of_limit(.0))]
    Signals(io::Error),
    /// The thread of a core could not be made.
    #[error(
        "no thread for core {core}: {source}; raise the limit of threads (`ulimit -u`, TasksMax of \
         the service), or ask for fewer cores"
    )]
    NoThread {
        /// Which.
        core: u16,
        /// What the system says.
        source: io::Error,
    },
    /// The thread of a core panicked.
    #[error("core {core} ended unexpectedly: {source}")]
    Thread {
        /// Which.
        core: u16,
        /// What the system says.
        source: io::Error,
    },
}

/// What `main` prints of an error that it returns: with the cure, as Display has it.
impl fmt::Debug for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How a server is to be. [`Server::builder`](super::Server::builder) gives the defaults.
#[derive(Clone, Debug)]
pub struct Builder {
    pub(super) replica: ReplicaId,
    pub(super) listen: SocketAddr,
    pub(super) peers: Vec<Peer>,
    /// For each core, the CPU it is pinned to.
    pub(super) cores: Vec<Option<usize>>,
    pub(super) limits: Limits,
    pub(super) adaptive: Option<Adaptive>,
    pub(super) shares: Vec<u32>,
    pub(super) keys: KeyLimits,
    pub(super) shared_results: bool,
    /// Of the store of results, if there is one.
    pub(super) ledger: Option<Counts>,
    pub(super) overload: Option<Overload>,
    pub(super) dark: bool,
    pub(super) zone: String,
    pub(super) spans: u32,
    #[cfg(feature = "metrics")]
    pub(super) metrics: Option<SocketAddr>,
    pub(super) payload_checksums: bool,
    pub(super) link: LinkConfig,
    pub(super) grace: Duration,
    pub(super) runtime: bowline_runtime::Builder,
}

impl Builder {
    pub(super) fn new() -> Builder {
        Builder {
            replica: ReplicaId(0),
            listen: SocketAddr::from((Ipv6Addr::UNSPECIFIED, 7000)),
            peers: Vec::new(),
            cores: vec![None],
            limits: Limits::default(),
            adaptive: None,
            shares: vec![1],
            keys: KeyLimits::default(),
            shared_results: false,
            ledger: None,
            overload: Some(Overload::default()),
            dark: false,
            zone: String::new(),
            spans: 0,
            #[cfg(feature = "metrics")]
            metrics: None,
            payload_checksums: true,
            link: LinkConfig::default(),
            grace: GRACE,
            runtime: bowline_runtime::Runtime::builder(),
        }
    }

    /// Which replica of the service this is. Default: 0.
    #[must_use]
    pub fn replica(mut self, replica: ReplicaId) -> Builder {
        self.replica = replica;
        self
    }

    /// Where clients and peers find it; all cores share the address. Port 0 lets the kernel choose
    /// one. Default: `[::]:7000`.
    ///
    /// With more than one core, each also listens on a port of its own, which the kernel chooses.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Builder {
        self.listen = address;
        self
    }

    /// The other replicas, which may hold the twins of this one's copies. Default: none.
    ///
    /// Each is at an address, or at a name and a port: then the name is looked up again when the peer
    /// is dialled, off the cores, and at most once a second. One that leads nowhere holds nothing up.
    /// It is as if that peer were down, is said once, and counted as
    /// [`mesh_unresolved`](super::IoStats). This server obeys whoever answers where a name leads: who
    /// answers for the names has to be trusted as this configuration is.
    ///
    /// ```
    /// use bowline_protocol::ReplicaId;
    /// use std::net::SocketAddr;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let third = SocketAddr::from(([10, 0, 0, 3], 7000));
    /// let builder = bowline_server::Server::builder().peers([
    ///     (ReplicaId(2), "store-2.example:7000".parse()?),
    ///     (ReplicaId(3), third.into()),
    /// ]);
    /// # let _ = builder;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn peers(mut self, peers: impl IntoIterator<Item = (ReplicaId, PeerAddress)>) -> Builder {
        let peers = peers.into_iter().map(|(replica, address)| Peer { replica, address });
        self.peers = peers.collect();
        self
    }

    /// On how many threads it runs, pinned to no CPU. Default: 1.
    #[must_use]
    pub fn cores(mut self, cores: usize) -> Builder {
        self.cores = vec![None; cores];
        self
    }

    /// Runs it on one thread for each of these CPUs, pinned to it.
    #[must_use]
    pub fn pin_to(mut self, cpus: impl IntoIterator<Item = usize>) -> Builder {
        self.cores = cpus.into_iter().map(Some).collect();
        self
    }

    /// How many handlers run at once on each core: the limit that makes copies wait. Default: 16.
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Builder {
        self.limits.slots = slots;
        self
    }

    /// Whether to use fewer slots where they do as well: between a lower bound and
    /// [`Builder::slots`], by how long handlers take with few and with many beside them. Default: no.
    #[must_use]
    pub fn adaptive_slots(mut self, adaptive: Option<Adaptive>) -> Builder {
        self.adaptive = adaptive;
        self
    }

    /// The shares of the traffic classes, from class 0 on: of the slots that come free while several
    /// classes have copies waiting, and of the room in the queue. Up to four classes, with shares from
    /// 1 to 1000; requests of other classes count as of class 0. Default: one class.
    #[must_use]
    pub fn shares(mut self, shares: impl IntoIterator<Item = u32>) -> Builder {
        self.shares = shares.into_iter().collect();
        self
    }

    /// All limits at once.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// What each core remembers of calls with keys, so that what is asked for twice is done once.
    /// Default: 4096 results of 16 MiB in all, for a minute. What it has forgotten (counted as
    /// `keys_expired` and `keys_evicted`), and what another core or replica did, only a store of
    /// results knows.
    #[must_use]
    pub fn keys(mut self, limits: KeyLimits) -> Builder {
        self.keys = limits;
        self
    }

    /// All replicas keep the results of their keyed methods in one store: so calls of those methods
    /// may be tied and hedged, when they have a key, by clients that say the same `results` of these
    /// replicas. Both have to be told: a server that is not refuses such copies. Default: no.
    #[must_use]
    pub fn shared_results(mut self, shared: bool) -> Builder {
        self.shared_results = shared;
        self
    }

    /// The store in which the service keeps the results of its keyed methods: what happens there is told
    /// with the server's own numbers (`bowline_results`, and [`Control::ledger`](super::Control::ledger)).
    /// It is the service that uses it. Default: none.
    #[must_use]
    pub fn watch_ledger(mut self, ledger: &Ledger) -> Builder {
        self.ledger = Some(ledger.counts());
        self
    }

    /// When a core begins to serve the newest copies first; None: never. Default: when for 100 ms
    /// all copies had to wait for more than 5 ms, or longer where handlers take long.
    #[must_use]
    pub fn overload(mut self, overload: Option<Overload>) -> Builder {
        self.overload = overload;
        self
    }

    /// Copies that should be refused or shed, as their time is or will be out, are only counted.
    /// To see what shedding would do, before it does it. The bounds of the queue hold as ever: who is
    /// refused as it is full, or makes room in it, goes by no time. Default: no.
    #[must_use]
    pub fn shed_in_the_dark(mut self, dark: bool) -> Builder {
        self.dark = dark;
        self
    }

    /// In which zone it is: a label of all its numbers. Default: none is named.
    #[must_use]
    pub fn zone(mut self, zone: &str) -> Builder {
        self.zone = zone.into();
        self
    }

    /// One in so many copies has a `tracing` span (target `bowline::copy`, level info) beside those
    /// whose caller's trace is sampled; 0: none. One that never ran has it when it ends, with the
    /// counter of that end as its `end`. Default: 0. Without a subscriber for it no copy has
    /// one, which costs nothing.
    #[must_use]
    pub fn spans(mut self, one_in: u32) -> Builder {
        self.spans = one_in;
        self
    }

    /// Serves the server's numbers at `/metrics` of this address, in the OpenMetrics format, from a
    /// thread of its own. Default: nowhere.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn metrics(mut self, address: SocketAddr) -> Builder {
        self.metrics = Some(address);
        self
    }

    /// Whether requests come with checksums of their payloads. To be done without only where
    /// something else guards the bytes: a tunnel, or checksums of the service's own. (Headers and
    /// options always have them; whether replies do is for the clients to say.) Default: yes.
    #[must_use]
    pub fn payload_checksums(mut self, wanted: bool) -> Builder {
        self.payload_checksums = wanted;
        self
    }

    /// How patient it is with the other side of a connection.
    #[must_use]
    pub fn link(mut self, link: LinkConfig) -> Builder {
        self.link = link;
        self
    }

    /// How long a server that a signal ends may take to finish what it has, unless [a second
    /// one](super::Running::run_until_signal) cuts that short. What has not ended then is dropped, and a
    /// warning says how much that was. For those who do not close when it says
    /// goodbye it waits for a second more, and so does a [`Ledger`] whose store lets it do nothing, as
    /// another process holds that: a supervisor that kills is to wait for all. Default: five seconds.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Builder {
        self.grace = grace;
        self
    }

    /// How the runtimes of its cores are to be. (Pinning is up to [`Builder::pin_to`].)
    #[must_use]
    pub fn runtime(mut self, runtime: bowline_runtime::Builder) -> Builder {
        self.runtime = runtime;
        self
    }

    /// Serves until the process is told to end by SIGTERM or SIGINT: then it takes on nothing new,
    /// finishes what it has within [its grace](Builder::grace) or until a second signal, and returns.
    ///
    /// Each core gets a clone of the service.
    ///
    /// # Errors
    ///
    /// [`ServeError`], if it can't begin.
    pub fn serve<S: Service + Clone + Send + Sync>(self, service: S) -> Result<(), ServeError> {
        let mut running = self.start(service)?;
        running.hear_signals()?;
        running.run_until_signal()
    }

    /// Starts to serve, and returns when clients can connect. Each core gets a clone of the
    /// service.
    ///
    /// # Errors
    ///
    /// [`ServeError`], if it can't begin.
    pub fn start<S: Service + Clone + Send + Sync>(
        self,
        service: S,
    ) -> Result<Running, ServeError> {
        self.start_with(move |_| std::future::ready(Ok(service.clone())))
    }

    /// As [`Builder::start`], with a service that is made anew for each core, on the core's own
    /// thread and within its runtime: so it may hold files, connections and tasks.
    ///
    /// # Errors
    ///
    /// [`ServeError`], if it can't begin.
    pub fn start_with<S, M, F>(self, make: M) -> Result<Running, ServeError>
    where
        S: Service,
        M: Fn(Station) -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<S>>,
    {
        self.check()?;
        server::start(self, make)
    }

    fn check(&self) -> Result<(), ServeError> {
        if self.cores.is_empty() {
            return Err(ServeError::NoCores);
        }
        if self.cores.len() > MOST_CORES {
            return Err(ServeError::TooManyCores(self.cores.len()));
        }
        for (place, peer) in self.peers.iter().enumerate() {
            let twice = self.peers[..place].iter().any(|other| other.replica == peer.replica);
            if peer.replica == self.replica {
                return Err(ServeError::OwnPeer(peer.replica));
            }
            if twice {
                return Err(ServeError::PeerTwice(peer.replica));
            }
        }
        let Limits { connections, connections_reserved: reserved, .. } = self.limits;
        if !self.peers.is_empty() && reserved >= connections {
            return Err(ServeError::Reserve { reserved, connections });
        }
        self.limits.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Or a lone client would be refused by a server that has nothing else to do.
    #[test]
    fn who_keeps_to_its_credit_has_room_for_its_requests_by_default() {
        let limits = Limits::default();
        assert!(limits.check().is_ok());
        assert!(limits.credit.bytes <= limits.assembly_share(limits.request_bytes as usize) as u64);
    }
}
