//! A server on its threads: starting them in step, asking them things, ending them.

use std::cell::RefCell;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::vec::Vec;
use std::{format, io, thread};

use bowline_protocol::{Features, Hello, Station, Takes};
use bowline_runtime::net::{ListenOptions, TcpListener};
use bowline_runtime::{Handle, RemoteHandle, Runtime, Stage, spawn_at};

use super::builder::{Builder, ServeError};
use super::service::Service;
use super::shell::{Inside, Parts, Shell};
use super::stats::Snapshot;
use super::{mesh, tasks};
use crate::core::{Config, Core, Histograms, MethodRule};

/// How long a server that was told to end by a signal may take to finish what it has.
const GRACE: Duration = Duration::from_secs(5);

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

    /// A way to ask it things and to end it, from any thread.
    pub const fn control(&self) -> &Control {
        &self.control
    }

    /// Takes on nothing new, finishes what is there within `grace`, says goodbye to all, and
    /// returns when all threads have ended.
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
        std::mem::take(&mut self.threads).into_iter().enumerate().try_for_each(join)
    }

    /// Runs until the process gets SIGTERM or SIGINT, and then ends in good order.
    ///
    /// # Errors
    ///
    /// As [`Running::shut_down`]; also if signals can't be had.
    pub fn run_until_signal(self) -> Result<(), ServeError> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let mut signals =
            signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).map_err(ServeError::Signals)?;
        signals.forever().next();
        self.shut_down(GRACE)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
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
    cores: Arc<[Handle]>,
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

    /// How long things took on all cores together; None if none runs any more. Each core copies
    /// some kilobytes for it, which takes it a few microseconds.
    pub fn histograms(&self) -> Option<Histograms> {
        let ask = |core: &Handle| core.spawn(|| async { inside(|core| core.histograms()) });
        let asked: Vec<_> = self.cores.iter().map(ask).collect();
        let told = asked.into_iter().filter_map(|answer| answer.wait().ok().flatten());
        told.reduce(|mut sum, core| {
            sum.add(&core);
            sum
        })
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
        let ask = |core: &Handle| core.spawn(|| async { inside(|core| core.snapshot()) });
        self.cores.iter().map(ask).collect()
    }

    /// Has the server take on nothing new, finish what it has within `grace`, say goodbye and end.
    /// Returns at once.
    pub fn shut_down(&self, grace: Duration) {
        for core in self.cores.iter() {
            drop(core.spawn(move || async move { inside(|core| core.shut_down(grace)) }));
        }
    }
}

fn inside<T>(ask: impl FnOnce(Rc<dyn Inside>) -> T) -> Option<T> {
    let core = INSIDE.with_borrow(Clone::clone);
    core.map(ask)
}

/// What a core's thread tells once it listens.
struct Listening {
    handle: Handle,
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
    let make = Arc::new(make);
    let mut address = builder.listen;
    let (mut cores, mut ports, mut threads) = (Vec::new(), Vec::new(), Vec::new());
    for core in 0..builder.cores.len() as u16 {
        let seat = Seat { builder: builder.clone(), core, address };
        let (listening, listens) = channel();
        let (go, gone) = channel();
        let make = make.clone();
        let thread = thread::Builder::new()
            .name(format!("bowline-{}.{core}", builder.replica))
            .spawn(move || seat.run(&*make, &listening, &gone))
            .map_err(|source| ServeError::Thread { core, source })?;
        let Ok(Listening { handle, address: bound, port }) = listens.recv() else {
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
        cores.push((handle, go));
    }
    for (_, go) in &cores {
        // A thread that has ended meanwhile is noticed when it is joined.
        let _ = go.send(Go { ports: ports.clone() });
    }
    let cores = cores.into_iter().map(|(handle, _)| handle).collect();
    Ok(Running { address, ports, control: Control { cores }, threads })
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
        let up = Listening { handle: runtime.handle(), address, port };
        let Some(Go { ports }) = listening.send(up).ok().and_then(|()| go.recv().ok()) else {
            return Ok(());
        };
        let hello = self.hello(station, ports, &service);
        let Builder { limits, link, peers, .. } = self.builder.clone();
        let shell = Shell::new(Parts { core, service, limits, link, hello, peers });
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
        Hello {
            features: Features::GO_AWAY.with(Features::OPTIONS),
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
