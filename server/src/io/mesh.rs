//! The mesh: every core dials every core of every configured peer, to hear from there which of its
//! copies' twins have started.
//!
//! A twin's cancel is obeyed only on a connection that this side dialled, to an address of its own
//! configuration, or one that a name in it leads to: no address that a request names is ever dialled,
//! and no port proves a peer.
//! Whoever answers at a peer's address says how many cores there are, and each one's port.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use std::vec::Vec;

use bowline_protocol::{Loss, NextDial, Redial, ReplicaId, Station};
use bowline_runtime::net::TcpStream;
use bowline_runtime::{Instant, Stage, now, sleep, spawn_at};

use super::connection::End;
use super::cures;
use super::names::PeerAddress;
use super::service::Service;
use super::shell::Shell;

/// Who is away for so long is told of, even if why is not news.
const LONG: Duration = Duration::from_secs(60);
/// How long a dial may take: many round trips within a data centre.
const DIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait after a first failure. A peer that restarts is missed for that long.
const FIRST_WAIT: Duration = Duration::from_millis(10);
/// How long to wait at most, so that a peer that comes back is found soon. (For one that says that it
/// has more than [`CORES_AT_ONCE`] cores, as many times as long as it has that many.)
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// So many cores of a peer are dialled each in its own time.
const CORES_AT_ONCE: u16 = 64;

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
    /// It was told that the peer can't be had, and not yet that it can again.
    missed: Cell<bool>,
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
    let mut absence = Absence::new(seed(shell.station(), station));
    let mut good = None;
    while shell.cores[place].has(station.core) {
        let over = reach(&shell, station, place, &mut good).await;
        if over.up.is_none() {
            shell.count(|io| io.mesh_failed += 1);
        }
        let next = absence.after(over.loss(), shell.cores[place].missed.get(), now());
        if next.is_news {
            tell_lost(&shell, station, place, &over);
        }
        sleep(thinned(next.wait, shell.cores[place].told.get())).await;
    }
    shell.cores[place].give_up(station.core);
}

/// When a core that is not there is dialled again, and what is told of that.
struct Absence {
    redial: Redial,
    /// Since when it has not been there, if it is not.
    since: Option<Instant>,
}

impl Absence {
    fn new(seed: u64) -> Absence {
        Absence { redial: Redial::new(FIRST_WAIT, LONGEST_WAIT, seed), since: None }
    }

    /// A connection to it has ended, or none came up; it was told that it is missed, or was not since
    /// it was there. That is told if why is news, or it stays away for long.
    fn after(&mut self, loss: Loss, is_missed: bool, now: Instant) -> NextDial {
        if let Loss::Broken(_) = loss {
            self.since = None;
        }
        let since = *self.since.get_or_insert(now);
        let stays_away = !is_missed && now >= since + LONG;
        let NextDial { wait, is_news } = self.redial.after(loss);
        NextDial { wait, is_news: is_news || stays_away }
    }
}

/// How long to wait before one of a peer's cores is dialled again, of which it says that it has so many:
/// the more there are, the longer. So all together, where none comes up, cost about a hundred a second.
fn thinned(wait: Duration, cores: u16) -> Duration {
    wait * u32::from(cores.div_ceil(CORES_AT_ONCE).max(1))
}

/// Dials one address of a peer's after the other, first where it was last, until a connection comes
/// up, and stays for as long as that lasts.
async fn reach<S: Service>(
    shell: &Rc<Shell<S>>,
    station: Station,
    place: usize,
    good: &mut Option<SocketAddr>,
) -> Over {
    let (found, failed) = shell.peers[place].address.find().await;
    if failed.is_some() {
        shell.count(|io| io.mesh_unresolved += 1);
    }
    shell.know_peer(place, &found);
    let mut over = Over::before_up(failed.map_or(Why::NoAddress, Why::Unresolved));
    for address in in_order(found, *good) {
        let next = reach_at(shell, station, address).await;
        if next.up.is_some() {
            *good = Some(address);
            return next;
        }
        over = over.or_else(next);
    }
    over
}

/// In which order addresses are dialled: where it was last, if that is one of them still; then as they
/// were found.
fn in_order(mut found: Vec<SocketAddr>, good: Option<SocketAddr>) -> Vec<SocketAddr> {
    found.sort_by_key(|address| Some(*address) != good);
    found
}

/// Dials the core at an address where any core may answer. Another one that does says where the right
/// one is.
async fn reach_at<S: Service>(shell: &Rc<Shell<S>>, station: Station, address: SocketAddr) -> Over {
    let over = dial(shell, station, address).await;
    match over.why {
        Why::OtherCore { port } => dial(shell, station, SocketAddr::new(address.ip(), port)).await,
        _ => over,
    }
}

/// A connection, or the attempt to have one, is over.
struct Over {
    /// For how long it was up, if it ever was.
    up: Option<Duration>,
    why: Why,
}

impl Over {
    const fn before_up(why: Why) -> Over {
        Over { up: None, why }
    }

    /// What is to be told of two addresses of which neither led to the peer: who answered there says
    /// more than that nobody did, and where nobody does, that its name may lead elsewhere by now.
    fn or_else(self, next: Over) -> Over {
        let losses = (self.loss(), next.loss());
        match (self.why, next.why) {
            (Why::Unresolved(name), Why::Dial(dial)) => Over::before_up(Why::Moved { dial, name }),
            (why @ Why::Moved { .. }, Why::Dial(_)) => Over::before_up(why),
            (why, _) if losses == (Loss::Handshake, Loss::Unreachable) => Over::before_up(why),
            (_, why) => Over { why, ..next },
        }
    }

    const fn loss(&self) -> Loss {
        match (self.up, &self.why) {
            (Some(up), _) => Loss::Broken(up),
            (None, Why::Unresolved(_) | Why::Moved { .. } | Why::NoAddress) => Loss::Unresolved,
            (None, Why::Dial(_)) => Loss::Unreachable,
            (None, Why::OtherCore { .. } | Why::NoSuchCore | Why::Ended(_)) => Loss::Handshake,
        }
    }
}

/// Why that is.
#[derive(Debug, thiserror::Error)]
enum Why {
    #[error("its name can't be looked up: {}{}", .0, cures::of_look_up(.0))]
    Unresolved(io::Error),
    #[error(
        "{dial} where its name led last, which can't be looked up: {name}{}",
        cures::of_look_up(name)
    )]
    Moved { dial: io::Error, name: io::Error },
    #[error("it has no address")]
    NoAddress,
    #[error("{0}")]
    Dial(io::Error),
    #[error("another core answers, which says that this one is at port {port}")]
    OtherCore { port: u16 },
    #[error("it has no such core")]
    NoSuchCore,
    #[error("{0}")]
    Ended(End),
}

/// Each core of each replica sees of each core of a peer how it comes and goes: one speaks for all.
fn speaks<S: Service>(shell: &Shell<S>, station: Station) -> bool {
    (shell.station().core, station.core) == (0, 0)
}

/// A peer is not there, and why is news.
fn tell_lost<S: Service>(shell: &Shell<S>, station: Station, place: usize, over: &Over) {
    if !speaks(shell, station) {
        return;
    }
    shell.cores[place].missed.set(true);
    let (peer, address, why) = (station.replica, &shell.peers[place].address, &over.why);
    match over.up {
        Some(up) => tracing::warn!(%peer, %address, ?up, %why, "lost a peer, and dials it again"),
        None => tracing::warn!(
            %peer, %address, %why,
            "can't reach a peer, and goes on trying: until then clients tell of its twins, which \
             takes longer"
        ),
    }
}

/// A connection to a peer's core is up. That is told if it was told that there is none.
pub(super) fn tell_reached<S: Service>(shell: &Shell<S>, station: Station) {
    let place = shell.peers.iter().position(|peer| peer.replica == station.replica);
    if speaks(shell, station) && place.is_some_and(|place| shell.cores[place].missed.take()) {
        let peer = station.replica;
        tracing::info!(%peer, "reached a peer that was missed");
    }
}

/// Dials, and stays as long as the connection lasts.
async fn dial<S: Service>(shell: &Rc<Shell<S>>, station: Station, address: SocketAddr) -> Over {
    let stream = match TcpStream::connect(address, DIAL_TIMEOUT).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(?station, %address, %error, "can't reach a peer's core");
            return Over::before_up(Why::Dial(error));
        }
    };
    let connection = shell.dialled(station, stream);
    match connection.run(shell).await {
        End::OtherCore(hello) => {
            let port = hello.ports.get(usize::from(station.core));
            Over::before_up(port.map_or(Why::NoSuchCore, |&port| Why::OtherCore { port }))
        }
        end => Over { up: connection.up_for(), why: Why::Ended(end) },
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
    fn who_answers_at_one_of_a_peers_addresses_is_told_though_nobody_does_at_the_next() {
        let nobody = || Over::before_up(Why::Dial(io::ErrorKind::ConnectionRefused.into()));
        let somebody = || Over::before_up(Why::NoSuchCore);
        for (first, second) in [(nobody(), somebody()), (somebody(), nobody())] {
            assert_eq!(first.or_else(second).loss(), Loss::Handshake);
        }
    }

    #[test]
    fn that_a_name_can_not_be_looked_up_is_told_with_what_became_of_where_it_led_last() {
        let nobody = || Over::before_up(Why::Dial(io::ErrorKind::ConnectionRefused.into()));
        let unresolved = || Over::before_up(Why::Unresolved(io::Error::other("no such host")));
        let over = unresolved().or_else(nobody()).or_else(nobody());
        assert_eq!(over.loss(), Loss::Unresolved);
        let told = std::format!("{}", over.why);
        assert!(told.contains("refused") && told.contains("no such host"), "{told}");
        let somebody = unresolved().or_else(nobody()).or_else(Over::before_up(Why::NoSuchCore));
        assert_eq!(somebody.loss(), Loss::Handshake);
    }

    #[test]
    fn a_peer_that_claims_a_thousand_cores_costs_no_more_dials_than_one_of_64() {
        let dials = |cores: u16| f64::from(cores) / thinned(LONGEST_WAIT, cores).as_secs_f64();
        assert_eq!(thinned(LONGEST_WAIT, 0), LONGEST_WAIT, "nothing is known of it");
        for cores in [1, 2, 63, 64, 65, 128, 1000, MOST_CORES as u16] {
            assert!(dials(cores) <= 64.0, "{cores}: {}", dials(cores));
        }
        assert_eq!(thinned(LONGEST_WAIT, 64), LONGEST_WAIT);
    }

    #[test]
    fn who_stays_away_is_told_of_after_a_minute_though_why_is_not_news_and_once() {
        let at = |second| Instant::EPOCH + Duration::from_secs(second);
        let (mut absence, mut is_missed) = (Absence::new(1), false);
        let mut told = |second: u64, loss| {
            let NextDial { is_news, .. } = absence.after(loss, is_missed, at(second));
            // As it is told that it is missed, and that it was reached.
            is_missed = is_news;
            is_news
        };
        let broken = Loss::Broken(Duration::from_secs(5));
        assert!(told(0, Loss::Unreachable) && told(10, broken));
        // It was reached, and is gone again, and stays away for the same reasons.
        assert!(!told(20, broken) && !told(21, Loss::Unreachable) && !told(79, Loss::Unreachable));
        assert!(told(80, Loss::Unreachable));
        let again = |second| absence.after(Loss::Unreachable, true, at(second)).is_news;
        assert!(![81, 141, 500].map(again).contains(&true));
    }

    #[test]
    fn a_peer_is_dialled_first_where_it_was_last() {
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let found = || [3, 1, 2].map(at).to_vec();
        assert_eq!(in_order(found(), Some(at(2))), [2, 3, 1].map(at));
        assert_eq!(in_order(found(), Some(at(3))), found());
        for good in [None, Some(at(9))] {
            assert_eq!(in_order(found(), good), found(), "{good:?}");
        }
    }
}
