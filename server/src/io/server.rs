//! A server on its threads: starting them in step, asking them things, ending them.

use std::boxed::Box;
use std::cell::RefCell;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::rc::Rc;
use std::string::String;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::vec::Vec;
use std::{io, thread};

use bowline_protocol::{Features, Hello, ReplicaId, ServiceInfo, Station, Takes};
#[cfg(feature = "metrics")]
use bowline_runtime::exposition::Exposition;
use bowline_runtime::net::{ListenOptions, TcpListener};
use bowline_runtime::{Handle, Metrics, RemoteHandle, Runtime, Stage, spawn_at};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle as SignalsHandle, Signals};

use super::builder::{Builder, ServeError};
use super::drain::Inside;
use super::once::{Counts, LedgerStats};
use super::service::Service;
use super::shell::{Parts, Shell};
use super::signals::{checked, hurry_when_told_again};
use super::spans::Spans;
use super::stats::Snapshot;
use super::tally::Rows;
use super::{cures, mesh, tasks, vain};
use crate::core::{Config, Core, Histograms, MethodRule};

/// What else a process has open: its standard streams, a page of metrics, some files.
const OTHER_DESCRIPTORS: u64 = 32;

std::thread_local! {
    /// The server's core that runs on this thread.
    static INSIDE: RefCell<Option<Rc<dyn Inside>>> = const { RefCell::new(None) };
}

/// A replica of a service.
///
/// ```no_run
/// use bowline_protocol::{Method, MethodInfo, ServiceInfo};
/// use bowline_server::{Context, Failure, Payload, Server, Service};
///
/// const METHODS: &[MethodInfo] = &[MethodInfo::new(Method(1), "echo").idempotent()];
///
/// #[derive(Clone)]
/// struct Echo;
///
/// impl Service for Echo {
///     type Reply = Payload;
///
///     fn info(&self) -> ServiceInfo {
///         ServiceInfo::new("echo", METHODS)
///     }
///
///     async fn call(&self, _: Context, request: Payload) -> Result<Payload, Failure> {
///         Ok(request)
///     }
/// }
///
/// Server::builder().listen("[::]:7000".parse()?).serve(Echo)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server;

impl Server {
    /// How a server is to be.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

/// A server that runs. Dropping it ends it at once; [`Running::shut_down`] gives it time.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    ports: Vec<u16>,
    control: Control,
    /// How long it may take to end when a signal wants it to.
    grace: Duration,
    /// What is heard of signals, once they are.
    signals: Option<Signals>,
    /// Ends before the threads do: it asks them.
    #[cfg(feature = "metrics")]
    exposition: Option<Exposition>,
    threads: Vec<thread::JoinHandle<Result<(), ServeError>>>,
}

impl Running {
    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port of each core.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Where its numbers are served, if they are.
    #[cfg(feature = "metrics")]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.exposition.as_ref().map(Exposition::address)
    }

    /// A way to ask it things and to end it, from any thread.
    pub const fn control(&self) -> &Control {
        &self.control
    }

    /// Takes on nothing new, finishes what is there within `grace`, says goodbye to all, and
    /// returns when all threads have ended: a second after that at the latest, and another one if it
    /// had the last clone of a [`Ledger`](super::once::Ledger) whose store stands still.
    ///
    /// # Errors
    ///
    /// [`ServeError::Thread`], if one had ended before, by a panic.
    pub fn shut_down(self, grace: Duration) -> Result<(), ServeError> {
        self.control.shut_down(grace);
        self.join()
    }

    /// Waits until it has ended, by [`Control::shut_down`].
    ///
    /// # Errors
    ///
    /// As [`Running::shut_down`].
    pub fn join(mut self) -> Result<(), ServeError> {
        let threads = std::mem::take(&mut self.threads);
        let ended = threads.into_iter().enumerate().try_for_each(join);
        let replica = self.control.replica();
        match &ended {
            Ok(()) => tracing::info!(%replica, "ended"),
            Err(error) => tracing::error!(%replica, %error, "ended"),
        }
        ended
    }

    /// Runs until the process gets SIGTERM or SIGINT (or one that [`Running::hear`] was told), and
    /// then ends in good order. One that comes a second after it or later ends what is left of the
    /// grace; what comes sooner is taken for the same wish.
    ///
    /// # Errors
    ///
    /// As [`Running::shut_down`]; also if signals can't be had.
    pub fn run_until_signal(mut self) -> Result<(), ServeError> {
        self.hear_signals()?;
        let heard = self.signals.take().map(|mut signals| {
            signals.forever().next();
            let first = std::time::Instant::now();
            let (heard, control) = (signals.handle(), self.control.clone());
            // Where no thread is to be had for it, the second one is not heard.
            let thread = thread::Builder::new().name("bowline-signals".into());
            drop(thread.spawn(move || hurry_when_told_again(signals, first, &control)));
            heard
        });
        let grace = self.grace;
        let ended = self.shut_down(grace);
        // Its thread ends.
        heard.as_ref().map(SignalsHandle::close);
        ended
    }

    /// Hears SIGTERM and SIGINT from now on: so [`Running::run_until_signal`] returns for those, too,
    /// that come before it is called. To be called before anybody is told that the server is there,
    /// and could tell it to end.
    ///
    /// # Errors
    ///
    /// [`ServeError::Signals`], if signals can't be had.
    pub fn hear_signals(&mut self) -> Result<(), ServeError> {
        if self.signals.is_none() {
            self.hear(&[SIGTERM, SIGINT])?;
        }
        Ok(())
    }

    /// As [`Running::hear_signals`], but for these signals in place of SIGTERM and SIGINT: for a
    /// program that a SIGHUP, too, is to end.
    ///
    /// # Errors
    ///
    /// As [`Running::hear_signals`]; also if one of them can't be handled, as SIGKILL.
    pub fn hear(&mut self, signals: &[i32]) -> Result<(), ServeError> {
        let signals = checked(signals).map_err(ServeError::Signals)?;
        self.signals = Some(Signals::new(signals).map_err(ServeError::Signals)?);
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        #[cfg(feature = "metrics")]
        self.exposition.take();
        self.control.shut_down(Duration::ZERO);
        for thread in std::mem::take(&mut self.threads).into_iter().enumerate() {
            if let Err(error) = join(thread) {
                tracing::error!(%error, "a server ended badly");
            }
        }
    }
}

fn join(
    (core, thread): (usize, thread::JoinHandle<Result<(), ServeError>>),
) -> Result<(), ServeError> {
    thread.join().unwrap_or_else(|_| {
        let source = io::Error::other("it panicked");
        Err(ServeError::Thread { core: core as u16, source })
    })
}

/// Asks a running server things, and ends it. Clones are cheap, and may go to any thread (not to
/// the server's own: the questions block).
#[derive(Clone, Debug)]
pub struct Control {
    cores: Arc<[Member]>,
    about: Arc<About>,
}

/// A core, as other threads see it.
#[derive(Debug)]
struct Member {
    handle: Handle,
    times: Mutex<Times>,
}

/// How long things took on a core: what it has handed over so far, and empty histograms, which it gets
/// for those that it hands over next. So it never adds anything up, and copies nothing.
#[derive(Debug)]
struct Times {
    sum: Histograms,
    /// None while the core has them, and if it ended with them.
    spare: Option<Box<Histograms>>,
}

/// What does not change while a server runs.
#[derive(Debug)]
struct About {
    replica: ReplicaId,
    zone: String,
    service: ServiceInfo,
    ledger: Option<Counts>,
}

/// What a core tells whoever watches.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Collected {
    /// Its counters.
    pub snapshot: Snapshot,
    /// How many copies may run at once.
    pub slots: u32,
    /// The newest copies of a class are served first, as there is too much to do.
    pub overloaded: bool,
    /// Answered copies, by what tells them apart.
    pub rows: Rows,
    /// What its loop counted.
    pub runtime: Metrics,
    /// How long things took since the server started.
    pub histograms: Box<Histograms>,
}

impl Control {
    /// The counters of each core, at about the same moment. A core that has ended has none.
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.ask()
            .into_iter()
            .map(|answer| answer.wait().ok().flatten().unwrap_or_default())
            .collect()
    }

    /// The counters of all cores together.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshots().iter().fold(Snapshot::default(), |sum, core| sum.plus(core))
    }

    /// How long things took on all cores together; None if none runs any more.
    pub fn histograms(&self) -> Option<Histograms> {
        let told = self.collect().into_iter().map(|core| *core.histograms);
        told.reduce(|mut sum, core| {
            sum.add(&core);
            sum
        })
    }

    /// What each core that runs tells of itself. The cores hand over what they have; adding up is done
    /// here.
    pub fn collect(&self) -> Vec<Collected> {
        self.cores.iter().filter_map(Member::collect).collect()
    }

    /// Which replica this is.
    pub fn replica(&self) -> ReplicaId {
        self.about.replica
    }

    /// In which zone it is; empty if none was named.
    pub fn zone(&self) -> &str {
        &self.about.zone
    }

    /// What it serves.
    pub fn service(&self) -> ServiceInfo {
        self.about.service
    }

    /// What happened in the store of results that [`Builder::watch_ledger`] was told of, if it was.
    pub fn ledger(&self) -> Option<LedgerStats> {
        self.about.ledger.as_ref().map(Counts::get)
    }

    /// As [`Control::snapshot`], without blocking: for any executor, the server's own included.
    pub async fn snapshot_soon(&self) -> Snapshot {
        let mut sum = Snapshot::default();
        for answer in self.ask() {
            sum = sum.plus(&answer.await.ok().flatten().unwrap_or_default());
        }
        sum
    }

    fn ask(&self) -> Vec<RemoteHandle<Option<Snapshot>>> {
        let ask = |core: &Member| core.handle.spawn(|| async { inside(|core| core.snapshot()) });
        self.cores.iter().map(ask).collect()
    }

    /// Has the server take on nothing new, finish what it has within `grace`, say goodbye and end.
    /// Returns at once. Told again, it ends at the earliest of the times that it was told.
    pub fn shut_down(&self, grace: Duration) {
        for core in self.cores.iter() {
            core.handle.order(move || {
                inside(|core| core.shut_down(grace));
            });
        }
    }
}

impl Member {
    /// What the core tells; None if it has ended.
    fn collect(&self) -> Option<Collected> {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = times.spare.take()?;
        let told = self.handle.spawn(move || async move { inside(|core| core.collect(spare)) });
        let mut told = told.wait().ok().flatten()?;
        times.sum.add(&told.histograms);
        let mut taken = std::mem::replace(&mut told.histograms, Box::new(times.sum.clone()));
        taken.clear();
        times.spare = Some(taken);
        Some(told)
    }
}

fn inside<T>(ask: impl FnOnce(Rc<dyn Inside>) -> T) -> Option<T> {
    let core = INSIDE.with_borrow(Clone::clone);
    core.map(ask)
}

/// What a core's thread tells once it listens.
struct Listening {
    handle: Handle,
    service: ServiceInfo,
    /// Empty ones of the core's methods.
    times: Histograms,
    address: SocketAddr,
    port: u16,
}

/// What a core's thread is told when all listen.
struct Go {
    ports: Vec<u16>,
}

/// Starts one thread after the other, each when the one before it listens; then lets all go.
pub(super) fn start<S, M, F>(builder: Builder, make: M) -> Result<Running, ServeError>
where
    S: Service,
    M: Fn(Station) -> F + Send + Sync + 'static,
    F: Future<Output = io::Result<S>>,
{
    cures::raise_descriptors(descriptors(&builder));
    let make = Arc::new(make);
    let mut address = builder.listen;
    let (mut cores, mut ports, mut threads) = (Vec::new(), Vec::new(), Vec::new());
    let (mut gos, mut served) = (Vec::new(), None);
    for core in 0..builder.cores.len() as u16 {
        let seat = Seat { builder: builder.clone(), core, address };
        let (listening, listens) = channel();
        let (go, gone) = channel();
        let make = make.clone();
        let thread = thread::Builder::new()
            .name(format!("bowline-{}.{core}", builder.replica))
            .spawn(move || seat.run(&*make, &listening, &gone))
            .map_err(|source| ServeError::NoThread { core, source })?;
        let Ok(Listening { handle, service, times, address: bound, port }) = listens.recv() else {
            // The others end as their senders are dropped.
            let early = || ServeError::Thread {
                core,
                source: io::Error::other("it ended before it listened"),
            };
            return Err(join((core.into(), thread)).err().unwrap_or_else(early));
        };
        address = bound;
        ports.push(port);
        threads.push(thread);
        gos.push(go);
        let times = Times { spare: Some(Box::new(times.clone())), sum: times };
        cores.push(Member { handle, times: Mutex::new(times) });
        served = Some(service);
    }
    let service = served.ok_or(ServeError::NoCores)?;
    vain::tell(&service, builder.shared_results);
    let Builder { replica, zone, ledger, .. } = builder;
    let about = About { replica, zone, service, ledger };
    let control = Control { cores: cores.into(), about: Arc::new(about) };
    #[cfg_attr(not(feature = "metrics"), expect(unused_mut, reason = "nothing is exposed"))]
    let mut running = Running {
        address,
        ports,
        control,
        grace: builder.grace,
        signals: None,
        #[cfg(feature = "metrics")]
        exposition: None,
        threads,
    };
    #[cfg(feature = "metrics")]
    if let Some(address) = builder.metrics {
        match running.control.expose(address) {
            Ok(exposition) => running.exposition = Some(exposition),
            Err(source) => {
                // The threads end, for nobody lets them go.
                drop(gos);
                return Err(ServeError::Metrics { address, source });
            }
        }
    }
    // Only now can nothing go wrong any more: who never served needs no draining, and tells of none.
    for go in &gos {
        // A thread that has ended meanwhile is noticed when it is joined.
        let _ = go.send(Go { ports: running.ports.clone() });
    }
    let cores = running.ports.len();
    tracing::info!(%replica, %address, cores, "serves");
    Ok(running)
}

/// So many descriptors a server takes when it has as many connections as may be.
fn descriptors(builder: &Builder) -> u64 {
    let (cores, peers) = (builder.cores.len() as u64, builder.peers.len() as u64);
    let connections = u64::from(builder.limits.connections);
    // To each core of each peer, which may have as many as this one; the ring, its eventfd, listeners.
    cores * (connections + peers * cores + 8) + OTHER_DESCRIPTORS
}

/// One core's part of a server that starts.
struct Seat {
    builder: Builder,
    core: u16,
    address: SocketAddr,
}

impl Seat {
    /// The thread of a core, from its start to its end.
    fn run<S, M, F>(
        self,
        make: &M,
        listening: &Sender<Listening>,
        go: &Receiver<Go>,
    ) -> Result<(), ServeError>
    where
        S: Service,
        M: Fn(Station) -> F,
        F: Future<Output = io::Result<S>>,
    {
        let cpu = self.builder.cores[usize::from(self.core)];
        let runtime = self.builder.runtime.clone().pin(cpu).build()?;
        runtime.block_on(self.serve(&runtime, make, listening, go))
    }

    async fn serve<S, M, F>(
        &self,
        runtime: &Runtime,
        make: &M,
        listening: &Sender<Listening>,
        go: &Receiver<Go>,
    ) -> Result<(), ServeError>
    where
        S: Service,
        M: Fn(Station) -> F,
        F: Future<Output = io::Result<S>>,
    {
        let station = Station { replica: self.builder.replica, core: self.core };
        let service = make(station).await.map_err(ServeError::Service)?;
        let core = Core::new(self.config(station, &service))?;
        let (listeners, port) = self.listen()?;
        let address = local_address(&listeners[0], self.address)?;
        let (handle, times) = (runtime.handle(), core.histograms().clone());
        let up = Listening { handle, service: service.info(), times, address, port };
        let Some(Go { ports }) = listening.send(up).ok().and_then(|()| go.recv().ok()) else {
            return Ok(());
        };
        let hello = self.hello(station, ports, &service);
        let Builder { limits, link, peers, .. } = self.builder.clone();
        let shell = Shell::new(Parts {
            core,
            service,
            limits,
            link,
            hello,
            peers,
            spans: Spans::new(self.builder.spans),
        });
        INSIDE.set(Some(shell.clone()));
        drop(spawn_at(Stage::Decide, tasks::decide(shell.clone())));
        for listener in listeners {
            let acceptor = spawn_at(Stage::Input, tasks::accept(shell.clone(), listener));
            shell.keep_acceptor(acceptor);
        }
        mesh::keep_peers(&shell);
        shell.over.notified().await;
        INSIDE.take();
        Ok(())
    }

    fn config(&self, station: Station, service: &impl Service) -> Config {
        let limits = self.builder.limits;
        let methods = service.info().methods.iter();
        Config {
            slots: limits.slots,
            queue_requests: limits.queue_requests,
            queue_bytes: limits.queue_bytes,
            outgoing_bytes: limits.outgoing_bytes,
            outgoing_total: limits.outgoing_total,
            connections: limits.connections,
            tombstones: limits.tombstones,
            adaptive: self.builder.adaptive,
            shares: self.builder.shares.clone(),
            keys: self.builder.keys,
            shared_results: self.builder.shared_results,
            overload: self.builder.overload,
            dark: self.builder.dark,
            hash_seed: RandomState::new().build_hasher().finish(),
            ..Config::new(
                station,
                methods.map(|info| (info.number, MethodRule::from(info))).collect(),
            )
        }
    }

    /// The shared address first, and with more cores than one the core's own port.
    fn listen(&self) -> Result<(Vec<TcpListener>, u16), ServeError> {
        if self.builder.cores.len() == 1 {
            let listener = listen(self.address, false)?;
            let port = local_address(&listener, self.address)?.port();
            return Ok((vec![listener], port));
        }
        let mut address = self.address;
        if self.core == 0 {
            // Sharing would not notice that somebody else has the address.
            let alone = listen(address, false)?;
            address = local_address(&alone, address)?;
        }
        let shared = listen(address, true)?;
        let own = listen(SocketAddr::new(address.ip(), 0), false)?;
        let port = local_address(&own, address)?.port();
        Ok((vec![shared, own], port))
    }

    fn hello(&self, station: Station, ports: Vec<u16>, service: &impl Service) -> Hello {
        let limits = self.builder.limits;
        let unsummed = match self.builder.payload_checksums {
            true => Features::NONE,
            false => Features::UNSUMMED,
        };
        Hello {
            features: Features::GO_AWAY
                .with(Features::OPTIONS)
                .with(Features::SEGMENTS)
                .with(Features::CREDIT)
                .with(unsummed),
            takes: Some(Takes { frame: limits.frame_bytes(), payload: limits.request_bytes }),
            methods: Some(service.info().to_methods()),
            ..Hello::server(station, ports)
        }
    }
}

fn listen(address: SocketAddr, shared: bool) -> Result<TcpListener, ServeError> {
    let options = ListenOptions::default().reuse_port(shared);
    TcpListener::bind(address, options).map_err(|source| ServeError::Listen { address, source })
}

fn local_address(listener: &TcpListener, address: SocketAddr) -> Result<SocketAddr, ServeError> {
    listener.local_addr().map_err(|source| ServeError::Listen { address, source })
}
