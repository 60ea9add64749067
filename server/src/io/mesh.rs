//! The mesh: every core dials every core of every configured peer, to hear from there which of its
//! copies' twins have started.
//!
//! A twin's cancel is obeyed only on a connection that this side dialled, to an address of its own
//! configuration: no address that a request names is ever dialled, and no port proves a peer.
//! Whoever answers at a peer's address says how many cores there are, and each one's port.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bowline_protocol::{Backoff, ReplicaId, Station};
use bowline_runtime::net::TcpStream;
use bowline_runtime::{Stage, sleep, spawn_at};

use super::connection::End;
use super::service::Service;
use super::shell::Shell;

/// How long a dial may take: many round trips within a data centre.
const DIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait after a first failure. A peer that restarts is missed for that long.
const FIRST_WAIT: Duration = Duration::from_millis(10);
/// How long to wait at most, so that a peer that comes back is found soon.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Another replica of the same service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Peer {
    /// Which.
    pub(super) replica: ReplicaId,
    /// Where any of its cores answers.
    pub(super) address: SocketAddr,
}

/// Keeps a connection to the first core of every peer. It will tell how many there are.
pub(super) fn keep_peers<S: Service>(shell: &Rc<Shell<S>>) {
    for peer in &shell.peers {
        keep_cores(shell, peer.replica, 1);
    }
}

/// A peer has so many cores: keeps connections to those that are new.
pub(super) fn keep_cores<S: Service>(shell: &Rc<Shell<S>>, replica: ReplicaId, cores: usize) {
    let Some(place) = shell.peers.iter().position(|peer| peer.replica == replica) else { return };
    let cores = u16::try_from(cores).unwrap_or(u16::MAX);
    for core in shell.kept[place].get()..cores {
        let station = Station { replica, core };
        let address = shell.peers[place].address;
        drop(spawn_at(Stage::Input, keep(shell.clone(), station, address)));
        shell.kept[place].set(core + 1);
    }
}

/// Keeps a connection to one core of a peer, which is reached at `address` or whose own port is
/// told there.
async fn keep<S: Service>(shell: Rc<Shell<S>>, station: Station, address: SocketAddr) {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT, seed(shell.station(), station));
    loop {
        let was_up = match dial(&shell, station, address).await {
            Dialled::Other { port } => {
                let direct = SocketAddr::new(address.ip(), port);
                matches!(dial(&shell, station, direct).await, Dialled::Ended { was_up: true })
            }
            Dialled::Ended { was_up } => was_up,
            Dialled::Failed => false,
        };
        if was_up {
            backoff.reset();
        }
        sleep(backoff.next_wait()).await;
    }
}

/// How a dial ended.
enum Dialled {
    /// Nobody answered.
    Failed,
    /// Another core answered, and said where the right one is.
    Other { port: u16 },
    /// There was a connection, and it is over.
    Ended { was_up: bool },
}

/// Dials, and stays as long as the connection lasts.
async fn dial<S: Service>(shell: &Rc<Shell<S>>, station: Station, address: SocketAddr) -> Dialled {
    let stream = match TcpStream::connect(address, DIAL_TIMEOUT).await {
        Ok(stream) => stream,
        Err(error) => {
            shell.count(|io| io.mesh_failed += 1);
            tracing::debug!(?station, %address, %error, "can't reach a peer's core");
            return Dialled::Failed;
        }
    };
    let connection = shell.dialled(station, stream);
    match connection.run(shell).await {
        End::OtherCore(hello) => match hello.ports.get(usize::from(station.core)) {
            Some(&port) => Dialled::Other { port },
            None => Dialled::Ended { was_up: false },
        },
        _ => Dialled::Ended { was_up: connection.is_up() },
    }
}

/// Gives each pair of cores a jitter of its own.
fn seed(us: Station, them: Station) -> u64 {
    let packed = |station: Station| u64::from(station.replica.0) << 16 | u64::from(station.core);
    packed(us) << 32 | packed(them)
}
