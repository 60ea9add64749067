//! `bowline serve`: one replica.

use core::time::Duration;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};

use bowline_protocol::ReplicaId;
use bowline_server::Server;
use bowline_server::io::{Limits, Running, ServeError};
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::raise;
use thiserror::Error;

use crate::cli::ServeArgs;
use crate::data::{DataError, DataSet, ensure_files, refuse_other};
use crate::interrupt::Interrupt;
use crate::log::Log;
use crate::output::{print, say};
use crate::progress::Progress;
use crate::replicas::{die_with_parent, send_ready, send_serving, wait_for_peers};
use crate::run::RunEnd;
use crate::serve_config::{ConfigError, ServeConfig};
use crate::setup::Machine;
use crate::store::{BlockStore, Device, StoreConfig};
use crate::units::show_size;

/// How long reads that run may take at the end.
const GRACE: Duration = Duration::from_secs(1);

/// Why a replica does not serve.
#[derive(Debug, Error)]
pub enum ReplicaError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data file.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The address that it is to listen on.
    #[error("cannot listen at {address}: {source}; give another one with --listen")]
    Address {
        /// Where.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// Signals.
    #[error("cannot listen for Ctrl-C: {0}")]
    Signals(io::Error),
    /// What there is to print.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// The server.
    #[error(transparent)]
    Server(#[from] ServeError),
    /// The thread that writes the log.
    #[error(
        "no thread for the log: {0}; raise the limit of threads (`ulimit -u`, TasksMax of the service)"
    )]
    Thread(io::Error),
    /// The process that started this one.
    #[error("the process that started this replica has gone: {0}")]
    Parent(io::Error),
}

impl ReplicaError {
    /// Whether it is the command line that is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, ReplicaError::Config(error) if error.is_usage())
    }
}

/// Serves until it is told to end: by a signal or, as a managed replica, by its parent.
///
/// # Errors
/// [`ReplicaError`]
pub fn run(args: &ServeArgs) -> Result<RunEnd, ReplicaError> {
    if let Some(parent) = args.die_with_parent {
        die_with_parent(parent).map_err(ReplicaError::Parent)?;
    }
    let config = ServeConfig::from_args(args)?;
    let set = DataSet::of_size(args.seed, args.how.data_size);
    if args.managed {
        // Its parent ends it, by the pipe or by SIGKILL, and has made its file.
        prepare(&config, &set, &Interrupt::default())?;
        return run_managed(&config, set, args).map(|()| RunEnd::Whole);
    }
    let (log, _until_written) = Log::to(io::stderr()).map_err(ReplicaError::Thread)?;
    let told = tracing_subscriber::fmt().with_max_level(args.log).with_target(false);
    told.with_ansi(false).with_writer(move || log.clone()).init();
    if let Some(slow) = Machine::read().slow_clock() {
        tracing::warn!("{slow}");
    }
    let interrupt = Interrupt::on_signals().map_err(ReplicaError::Signals)?;
    match prepare(&config, &set, &interrupt) {
        Err(error @ DataError::Interrupted { .. }) => {
            say(format_args!("bowline: {error}"));
            return Ok(RunEnd::Interrupted);
        }
        made => made?,
    }
    let mut running = start(&config, set, args)?;
    // From now on a second one ends what is left of the grace, and is told.
    running.hear(interrupt.hand_over())?;
    // A signal that came before the server listens for them: it hears it now.
    if interrupt.asked() {
        raise(SIGTERM).map_err(ReplicaError::Signals)?;
        running.run_until_signal()?;
        return Ok(RunEnd::Interrupted);
    }
    let said = print(format_args!(
        "replica {} serves {} ({}) at {}, peers: {}",
        config.replica,
        config.file.display(),
        show_size(set.bytes()),
        running.address(),
        config.peers_named()
    ));
    let said = said.and_then(|()| match running.metrics_address() {
        Some(address) => print(format_args!("it tells what it does at http://{address}/metrics")),
        None => Ok(()),
    });
    if let Err(error) = said {
        running.shut_down(GRACE)?;
        return Err(ReplicaError::Output(error));
    }
    running.run_until_signal()?;
    Ok(RunEnd::Whole)
}

/// Holds a port until all replicas have one, and serves there until the parent closes the pipe.
fn run_managed(config: &ServeConfig, set: DataSet, args: &ServeArgs) -> Result<(), ReplicaError> {
    let no_address = |source| ReplicaError::Address { address: config.listen, source };
    let place = TcpListener::bind(config.listen).map_err(no_address)?;
    let address = place.local_addr().map_err(no_address)?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    send_ready(&mut output, address).map_err(ReplicaError::Parent)?;
    let mut peers = wait_for_peers(&mut input).map_err(ReplicaError::Parent)?;
    peers.retain(|(replica, _)| *replica != config.replica);
    let peers = peers.into_iter().map(|(replica, at)| (replica, at.into())).collect();
    let config = ServeConfig { listen: address, peers, ..config.clone() };
    // Nobody has connected to it, so that the server can have the address at once.
    drop(place);
    let running = start(&config, set, args)?;
    send_serving(&mut output).map_err(ReplicaError::Parent)?;
    // The end of the input is the parent's word to end; what comes before it means nothing.
    io::copy(&mut input, &mut io::sink()).map_err(ReplicaError::Parent)?;
    Ok(running.shut_down(GRACE)?)
}

fn start(config: &ServeConfig, set: DataSet, args: &ServeArgs) -> Result<Running, ReplicaError> {
    let how = &args.how;
    let control = Arc::new(OnceLock::new());
    let store = StoreConfig {
        file: config.file.clone(),
        set,
        device: Device::new(args.seed, config.replica, how.service, how.service_spread),
        control: Arc::clone(&control),
    };
    let limits =
        Limits { slots: how.slots.get(), queue_requests: how.queue.get(), ..Limits::default() };
    let peers = config.peers.iter().map(|(replica, at)| (ReplicaId(*replica), at.clone()));
    let mut builder = Server::builder();
    if let Some(address) = config.metrics {
        builder = builder.metrics(address);
    }
    let running = builder
        .replica(ReplicaId(config.replica))
        .listen(config.listen)
        .peers(peers)
        .limits(limits)
        .start_with(move |_| BlockStore::open(store.clone()))?;
    control.set(running.control().clone()).ok();
    Ok(running)
}

/// Makes the data file, if it is not there.
fn prepare(config: &ServeConfig, set: &DataSet, interrupt: &Interrupt) -> Result<(), DataError> {
    refuse_other(&config.file, set)?;
    let progress = Progress::of_bytes(set.bytes());
    progress.doing(format!("writing {}", config.file.display()));
    let file = std::slice::from_ref(&config.file);
    ensure_files(file, set, interrupt, &mut |bytes| progress.advance(bytes)).map(drop)
}
