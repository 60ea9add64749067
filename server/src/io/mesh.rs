//! The mesh: every core dials every core of every configured peer, to hear from there which of its
//! copies' twins have started.
//!
//! A twin's cancel is obeyed only on a connection that this side dialled, to an address of its own
//! configuration, or one that a name in it leads to: no address that a request names is ever dialled,
//! and no port proves a peer.
//! Whoever answers at a peer's address says how many cores there are, and each one's port.

use std::cell::{Cell, RefCell};
use std::format;
use std::net::SocketAddr;
use std::rc::Rc;
use std::string::{String, ToString};
use std::time::Duration;
use std::vec::Vec;

use bowline_protocol::{Backoff, ReplicaId, Station};
use bowline_runtime::net::TcpStream;
use bowline_runtime::{Stage, now, sleep, spawn_at};

use super::connection::End;
use super::names::PeerAddress;
use super::service::Service;
use super::shell::Shell;

/// How long a dial may take: many round trips within a data centre.
const DIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait after a first failure. A peer that restarts is missed for that long.
const FIRST_WAIT: Duration = Duration::from_millis(10);
/// How long to wait at most, so that a peer that comes back is found soon.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// As many cores as a replica may have: more than any machine, and few enough to dial them all.
pub(super) const MOST_CORES: usize = 1024;

/// Another replica of the same service.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// Which.
    pub(super) replica: ReplicaId,
    /// Where any of its cores answers.
    pub(super) address: PeerAddress,
}

/// What is known of a peer's cores.
#[derive(Debug, Default)]
pub(super) struct Cores {
    /// How many it has, as it said last on a connection that this side dialled.
    told: Cell<u16>,
    /// Which of them have a task that keeps a connection to them.
    kept: RefCell<Vec<bool>>,
}

impl Cores {
    /// The peer has such a core.
    pub(super) fn has(&self, core: u16) -> bool {
        core < self.told.get()
    }

    /// How many of them are dialled.
    pub(super) fn kept(&self) -> usize {
        self.kept.borrow().iter().filter(|kept| **kept).count()
    }

    /// Takes on the task for a core; false if there is one.
    fn take_on(&self, core: u16) -> bool {
        let (mut kept, core) = (self.kept.borrow_mut(), usize::from(core));
        if kept.len() <= core {
            kept.resize(core + 1, false);
        }
        !std::mem::replace(&mut kept[core], true)
    }

    /// The task for a core ends.
    fn give_up(&self, core: u16) {
        self.kept.borrow_mut()[usize::from(core)] = false;
    }
}

/// Keeps a connection to the first core of every peer. It will tell how many there are.
pub(super) fn keep_peers<S: Service>(shell: &Rc<Shell<S>>) {
    for peer in &shell.peers {
        keep_cores(shell, peer.replica, 1);
    }
}

/// A peer has so many cores: keeps connections to all of them, and in the end to no others.
pub(super) fn keep_cores<S: Service>(shell: &Rc<Shell<S>>, replica: ReplicaId, cores: usize) {
    let Some(place) = shell.peers.iter().position(|peer| peer.replica == replica) else { return };
    let known = &shell.cores[place];
    // The first is there whatever a peer says: it may say something else next time.
    known.told.set(cores.clamp(1, MOST_CORES) as u16);
    for core in (0..known.told.get()).filter(|core| known.take_on(*core)) {
        let station = Station { replica, core };
        let keeper = keep(shell.clone(), station, place);
        drop(spawn_at(Stage::Input, keeper));
    }
    shell.routes_known(replica);
}

/// Keeps a connection to one core of a peer, the one of this `place` among all, for as long as the peer
/// has that core.
async fn keep<S: Service>(shell: Rc<Shell<S>>, station: Station, place: usize) {
    let mut redial = Redial::new(seed(shell.station(), station));
    while shell.cores[place].has(station.core) {
        let reached = reach_one(&shell, station, place).await;
        let (wait, is_lost) = redial.after(reached.as_ref().ok().copied());
        if let Err(why) = reached
            && is_lost
        {
            tell_lost(&shell, station, &shell.peers[place].address, &why);
        }
        sleep(wait).await;
    }
    shell.cores[place].give_up(station.core);
}

/// Dials one address of a peer after the other, until a connection comes up, and stays for as long as
/// that lasts. Says how long it did, or why none came up.
async fn reach_one<S: Service>(
    shell: &Rc<Shell<S>>,
    station: Station,
    place: usize,
) -> Result<Duration, String> {
    let found = shell.peers[place].address.find().await.map_err(|error| {
        shell.count(|io| {
            io.mesh_failed += 1;
            io.mesh_unresolved += 1;
        });
        format!("its name can't be looked up: {error}")
    })?;
    shell.know_peer(place, &found);
    let mut why = String::new();
    for address in found {
        let dialled = match dial(shell, station, address).await {
            // Where any core answers, another one did, and said where the right one is.
            Dialled::Other { port } => {
                dial(shell, station, SocketAddr::new(address.ip(), port)).await
            }
            dialled => dialled,
        };
        match dialled {
            Dialled::WasUp(lasted) => return Ok(lasted),
            Dialled::Failed(failed) => why = failed,
            Dialled::Other { .. } => why = String::from("another core answers at its port"),
        }
    }
    Err(why)
}

/// When a peer's core is dialled again, and whether its loss is news.
#[derive(Debug)]
struct Redial {
    backoff: Backoff,
    lost: bool,
}

impl Redial {
    const fn new(seed: u64) -> Redial {
        Redial { backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT, seed), lost: false }
    }

    /// A connection is over that was up for so long, or none came up: how long to wait, and whether to
    /// tell of it. It is tried again and again, and said once.
    fn after(&mut self, lasted: Option<Duration>) -> (Duration, bool) {
        // Who greets and then breaks is not there for all that.
        if lasted.is_some_and(|lasted| lasted >= LONGEST_WAIT) {
            self.backoff.reset();
        }
        let is_news = lasted.is_none() && !self.lost;
        self.lost = lasted.is_none();
        (self.backoff.next_wait(), is_news)
    }
}

/// A peer can't be reached. Each core of each replica sees it of each core of that peer: one says it.
fn tell_lost<S: Service>(shell: &Shell<S>, station: Station, address: &PeerAddress, why: &str) {
    if shell.station().core == 0 && station.core == 0 {
        let peer = station.replica;
        tracing::warn!(
            %peer, %address, why,
            "can't reach a peer, and goes on trying: until then clients tell of its twins, which \
             takes longer"
        );
    }
}

/// How a dial ended.
enum Dialled {
    /// No connection came up, for this reason.
    Failed(String),
    /// Another core answered, and said where the right one is.
    Other { port: u16 },
    /// There was a connection for so long, and it is over.
    WasUp(Duration),
}

/// Dials, and stays as long as the connection lasts.
async fn dial<S: Service>(shell: &Rc<Shell<S>>, station: Station, address: SocketAddr) -> Dialled {
    let stream = match TcpStream::connect(address, DIAL_TIMEOUT).await {
        Ok(stream) => stream,
        Err(error) => {
            shell.count(|io| io.mesh_failed += 1);
            tracing::debug!(?station, %address, %error, "can't reach a peer's core");
            return Dialled::Failed(error.to_string());
        }
    };
    let connection = shell.dialled(station, stream);
    let begun = now();
    match connection.run(shell).await {
        End::OtherCore(hello) => match hello.ports.get(usize::from(station.core)) {
            Some(&port) => Dialled::Other { port },
            None => Dialled::Failed(String::from("it has no such core")),
        },
        _ if connection.is_up() => Dialled::WasUp(now() - begun),
        end => Dialled::Failed(end.to_string()),
    }
}

/// Gives each pair of cores a jitter of its own.
fn seed(us: Station, them: Station) -> u64 {
    let packed = |station: Station| u64::from(station.replica.0) << 16 | u64::from(station.core);
    packed(us) << 32 | packed(them)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_can_t_be_reached_is_told_of_once_and_again_when_it_was_there_meanwhile() {
        let mut redial = Redial::new(1);
        let news = [None, None, Some(Duration::ZERO), None, None].map(|it| redial.after(it).1);
        assert_eq!(news, [true, false, false, true, false]);
    }

    #[test]
    fn a_peer_that_greets_and_breaks_is_dialled_ever_more_seldom_and_one_that_stayed_at_once() {
        let mut redial = Redial::new(1);
        (0..20).for_each(|_| _ = redial.after(Some(Duration::from_millis(1))));
        assert!(redial.after(Some(Duration::from_millis(1))).0 >= LONGEST_WAIT / 2);
        assert!(redial.after(Some(LONGEST_WAIT)).0 <= FIRST_WAIT);
    }
}
