//! A core on its thread: the machine that decides, the connections, and the running handlers.

use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;
use std::vec::Vec;

use bowline_protocol::{
    Frame, Goodbye, GoodbyeReason, Hello, Link, LinkConfig, OptionSet, ReplicaId, Station, Status,
    codec,
};
use bowline_runtime::net::TcpStream;
use bowline_runtime::{JoinHandle, Notify, metrics, now, spawn, timeout};

use bowline_time::Instant;

use super::builder::Limits;
use super::connection::{Connection, LAST_WORDS, Side};
use super::context::Stops;
use super::doors::{Doors, Refusal};
use super::handler;
use super::mesh::{Cores, Peer};
use super::payload::{Payload, Pool};
use super::server::Collected;
use super::service::Service;
use super::spans::Spans;
use super::stats::{IoStats, Snapshot};
use super::tally::Tally;
use crate::core::{Conn, CopyKey, Core, Effect, Histograms, TooManyConnections};

/// How often it is looked how much is queued for all connections: so much more than may be is queued
/// as handlers answer in this time.
const OUTGOING_LOOK: Duration = Duration::from_millis(1);

pub(super) struct Shell<S> {
    pub(super) core: RefCell<Core<Payload>>,
    pub(super) service: S,
    pub(super) limits: Limits,
    link: LinkConfig,
    /// What this core says of itself on every connection.
    hello: Hello,
    pub(super) peers: Vec<Peer>,
    /// For each peer, what is known of its cores.
    pub(super) cores: Vec<Cores>,
    pub(super) payloads: Rc<Pool>,
    stops: Rc<Stops>,
    pub(super) tally: Tally,
    pub(super) spans: Spans,
    doors: RefCell<Doors>,
    /// When it was last looked how much is queued for all connections.
    outgoing_looked: Cell<Instant>,
    /// The accepted connections, by the place of their name.
    accepted: RefCell<Vec<Option<Rc<Connection>>>>,
    /// The connection by which each core of a peer hears cancels: the one that came up last.
    routes: RefCell<BTreeMap<Station, Rc<Connection>>>,
    io: Cell<IoStats>,
    /// There is something to decide.
    pub(super) changed: Notify,
    draining: Cell<bool>,
    /// While the core drains: a copy or a connection has ended.
    drained: Notify,
    /// The core is to end.
    pub(super) over: Notify,
    acceptors: RefCell<Vec<JoinHandle<()>>>,
}

/// What a shell is made of.
pub(super) struct Parts<S> {
    pub(super) core: Core<Payload>,
    pub(super) service: S,
    pub(super) limits: Limits,
    pub(super) link: LinkConfig,
    pub(super) hello: Hello,
    pub(super) peers: Vec<Peer>,
    pub(super) spans: Spans,
}

impl<S: Service> Shell<S> {
    pub(super) fn new(parts: Parts<S>) -> Rc<Shell<S>> {
        let Parts { core, service, limits, link, hello, peers, spans } = parts;
        let doors = Doors::new(
            limits.connections,
            limits.connections_reserved,
            limits.connections_per_address,
            peers.iter().map(|peer| peer.address.ip()),
        );
        Rc::new(Shell {
            core: RefCell::new(core),
            service,
            limits,
            link,
            hello,
            cores: peers.iter().map(|_| Cores::default()).collect(),
            peers,
            payloads: Rc::default(),
            stops: Rc::new(Stops::new()),
            tally: Tally::default(),
            doors: RefCell::new(doors),
            outgoing_looked: Cell::new(Instant::EPOCH),
            spans,
            accepted: RefCell::default(),
            routes: RefCell::default(),
            io: Cell::default(),
            changed: Notify::new(),
            draining: Cell::new(false),
            drained: Notify::new(),
            over: Notify::new(),
            acceptors: RefCell::default(),
        })
    }

    pub(super) fn station(&self) -> Station {
        self.core.borrow().station()
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut IoStats)) {
        let mut io = self.io.get();
        change(&mut io);
        self.io.set(io);
    }

    // Connections.

    /// Makes a connection of an accepted stream; None if there are as many as may be, and this one
    /// was sent away.
    pub(super) fn accept(&self, stream: TcpStream) -> Option<Rc<Connection>> {
        let from = stream.peer_addr().map_or(Ipv4Addr::UNSPECIFIED.into(), |from| from.ip());
        let asked = self.doors.borrow().ask(from);
        let opened = asked.and_then(|()| {
            self.core.borrow_mut().on_opened().map_err(|TooManyConnections| Refusal::Full)
        });
        let conn = match opened {
            Ok(conn) => conn,
            Err(refusal) => {
                self.count(|io| {
                    io.turned_away += 1;
                    io.turned_away_by_address += u64::from(refusal == Refusal::Address);
                });
                let goodbye = Goodbye { reason: GoodbyeReason::Stranger };
                let goodbye = Frame::Goodbye(goodbye, refusal.why());
                stream.send_with(|out| codec::encode(&goodbye, out));
                return None;
            }
        };
        self.doors.borrow_mut().enter(conn.index(), from);
        self.count(|io| io.accepted += 1);
        let link = Link::accepted(self.hello.clone(), self.link, now());
        let side = Side::Accepted(conn);
        let connection = Connection::new(side, stream, link, self.limits.outgoing_bytes);
        let mut accepted = self.accepted.borrow_mut();
        if accepted.len() <= conn.index() {
            accepted.resize_with(conn.index() + 1, || None);
        }
        accepted[conn.index()] = Some(connection.clone());
        Some(connection)
    }

    /// Makes a connection of a stream to a peer's core.
    pub(super) fn dialled(&self, station: Station, stream: TcpStream) -> Rc<Connection> {
        let expected = Some(station.replica);
        let link = Link::dialled(self.hello.clone(), expected, self.link, now());
        Connection::new(Side::Dialled(station), stream, link, self.limits.outgoing_bytes)
    }

    pub(super) fn on_closed(&self, conn: Conn) {
        self.core.borrow_mut().on_closed(conn, now());
        self.doors.borrow_mut().leave(conn.index());
        if let Some(place) = self.accepted.borrow_mut().get_mut(conn.index()) {
            *place = None;
        }
        self.drained.notify();
    }

    /// Sees to it, once a millisecond, that no more is queued for all clients together than may be:
    /// those that have most queued are disconnected until it is so.
    pub(super) fn bound_outgoing(&self) {
        let now = now();
        if now < self.outgoing_looked.get() + OUTGOING_LOOK {
            return;
        }
        self.outgoing_looked.set(now);
        let accepted = self.accepted.borrow();
        let queued = |connection: &&Rc<Connection>| connection.stream.queued();
        let mut sum: usize = accepted.iter().flatten().map(|one| queued(&one)).sum();
        while sum > self.limits.outgoing_total
            && let Some(most) = accepted.iter().flatten().max_by_key(queued)
            && let mostly @ 1.. = queued(&most)
        {
            self.count(|io| io.outgoing_full += 1);
            most.cut_off();
            sum -= mostly.min(sum);
            if most.stream.queued() == mostly {
                break;
            }
        }
    }

    fn client(&self, conn: Conn) -> Option<Rc<Connection>> {
        let accepted = self.accepted.borrow();
        let connection = accepted.get(conn.index())?.as_ref()?;
        (connection.side == Side::Accepted(conn)).then(|| connection.clone())
    }

    // The mesh.

    pub(super) fn is_peer(&self, replica: ReplicaId) -> bool {
        self.peers.iter().any(|peer| peer.replica == replica)
    }

    /// A peer has such a core, as it said itself where this side dialled it.
    fn is_station(&self, station: Station) -> bool {
        let mut peers = self.peers.iter().zip(&self.cores);
        peers.any(|(peer, cores)| peer.replica == station.replica && cores.has(station.core))
    }

    /// A peer's core obeys cancels that it hears on this connection, by its own account. It takes
    /// the place of an earlier one, which is most likely dead and has not noticed.
    pub(super) fn route_up(&self, station: Station, connection: &Rc<Connection>) {
        if !self.is_station(station) {
            self.count(|io| io.mesh_unknown += 1);
            return;
        }
        if self.routes.borrow_mut().insert(station, connection.clone()).is_some() {
            self.count(|io| io.mesh_replaced += 1);
        }
        self.core.borrow_mut().on_mesh_up(station);
        tracing::debug!(?station, "cancels reach a peer's core");
    }

    /// A peer told how many cores it has: those that came before it did are welcome now.
    pub(super) fn routes_known(&self, replica: ReplicaId) {
        for connection in self.accepted.borrow().iter().flatten() {
            if let Some(station) = connection.route()
                && station.replica == replica
                && self.is_station(station)
                && !self.routes.borrow().contains_key(&station)
            {
                self.route_up(station, connection);
            }
        }
    }

    /// A connection on which a peer's core heard cancels is over. If it was the last that came up,
    /// an earlier one may live yet.
    pub(super) fn route_down(&self, station: Station, connection: &Rc<Connection>) {
        let mut routes = self.routes.borrow_mut();
        if !routes.get(&station).is_some_and(|route| Rc::ptr_eq(route, connection)) {
            return;
        }
        let accepted = self.accepted.borrow();
        let mut others = accepted.iter().flatten();
        if let Some(other) = others.find(|other| other.route() == Some(station)) {
            routes.insert(station, other.clone());
            return;
        }
        routes.remove(&station);
        self.core.borrow_mut().on_mesh_down(station);
        tracing::debug!(?station, "cancels do not reach a peer's core any more");
    }

    // Copies.

    /// Takes from the queue what may start, and does what the core wants done.
    pub(super) fn dispatch(self: &Rc<Self>) {
        {
            let mut core = self.core.borrow_mut();
            core.on_timeout(now());
            core.dispatch(now());
        }
        loop {
            let effect = self.core.borrow_mut().poll_effect();
            match effect {
                Some(effect) => self.apply(effect),
                None => break,
            }
        }
        if self.draining.get() && self.has_no_copies() {
            self.drained.notify();
        }
    }

    fn apply(self: &Rc<Self>, effect: Effect<Payload>) {
        match effect {
            Effect::Cancel { to, cancel } => {
                if let Some(connection) = self.routes.borrow().get(&to) {
                    connection.send(&Frame::Cancel(cancel));
                }
            }
            Effect::Send { conn, notice } => {
                if let Some(connection) = self.client(conn) {
                    connection.send(&notice.frame());
                }
            }
            Effect::Answer { conn, reply, result } => {
                if let Some(connection) = self.client(conn) {
                    connection.send(&Frame::Reply(reply, &result));
                }
            }
            Effect::Start(start) => {
                let context = self.stops.begin(&start);
                drop(spawn(handler::run(self.clone(), start.copy, context, start.payload)));
            }
            Effect::Abort { copy, why } => self.stops.ask(copy, why),
        }
    }

    /// A handler is done, with this.
    pub(super) fn finish(&self, copy: CopyKey, status: Status, payload: &[u8]) {
        let label = self.stops.end(copy);
        let caller = self.core.borrow().connection_of(copy).and_then(|conn| self.client(conn));
        let too_large = caller.is_some_and(|caller| payload.len() > caller.reply_max());
        let (status, payload) = match too_large {
            true => (Status::Failed, &b"the reply is larger than the caller takes"[..]),
            false => (status, payload),
        };
        let finished = self.core.borrow_mut().on_finished(copy, status, payload, now());
        if let Some((conn, reply)) = finished
            && let Some(connection) = self.client(conn)
        {
            self.count(|io| io.replies_too_large += u64::from(too_large));
            connection.reply(reply, &OptionSet { label, ..OptionSet::default() }, payload);
        }
        self.changed.notify();
    }

    /// A handler stopped without an answer.
    pub(super) fn aborted(&self, copy: CopyKey) {
        self.stops.end(copy);
        self.core.borrow_mut().on_aborted(copy, now());
        self.changed.notify();
    }

    fn has_no_copies(&self) -> bool {
        let stats = self.core.borrow().stats();
        stats.queued + stats.running == 0
    }

    // The end.

    /// Keeps the tasks that accept connections, to end them when the core drains.
    pub(super) fn keep_acceptor(&self, acceptor: JoinHandle<()>) {
        self.acceptors.borrow_mut().push(acceptor);
    }

    /// Takes on nothing new, waits up to `grace` for what is here, and says goodbye.
    async fn drain(self: Rc<Self>, grace: Duration) {
        self.acceptors.borrow().iter().for_each(JoinHandle::abort);
        self.core.borrow_mut().drain();
        let connections: Vec<_> = self.accepted.borrow().iter().flatten().cloned().collect();
        connections.iter().for_each(|connection| connection.leave(grace));
        let all_ended = async {
            while !self.has_no_copies() {
                self.drained.notified().await;
            }
        };
        // Whether all have ended or the time is up: what is left is told of by the close.
        let _ = timeout(grace, all_ended).await;
        let connections: Vec<_> = self.accepted.borrow().iter().flatten().cloned().collect();
        for connection in &connections {
            connection.say_goodbye(GoodbyeReason::Leaving, "the server is shutting down");
        }
        drop(connections);
        let all_closed = async {
            while self.core.borrow().connections() > 0 {
                self.drained.notified().await;
            }
        };
        let _ = timeout(LAST_WORDS, all_closed).await;
        self.over.notify();
    }
}

/// What other threads may ask of a core, on its own thread.
pub(super) trait Inside {
    fn snapshot(&self) -> Snapshot;
    fn collect(&self, spare: Box<Histograms>) -> Collected;
    fn shut_down(self: Rc<Self>, grace: Duration);
}

impl<S: Service> Inside for Shell<S> {
    fn snapshot(&self) -> Snapshot {
        let core = self.core.borrow();
        Snapshot {
            copies: core.stats(),
            connections: self.io.get(),
            clients: core.connections(),
            mesh_up: self.routes.borrow().len(),
            mesh_kept: self.cores.iter().map(Cores::kept).sum(),
            tombstones: core.tombstones(),
        }
    }

    fn collect(&self, spare: Box<Histograms>) -> Collected {
        let mut histograms = spare;
        self.core.borrow_mut().swap_histograms(&mut histograms);
        let core = self.core.borrow();
        Collected {
            slots: core.slots(),
            overloaded: core.is_overloaded(),
            snapshot: self.snapshot(),
            rows: self.tally.rows(),
            runtime: metrics(),
            histograms,
        }
    }

    fn shut_down(self: Rc<Self>, grace: Duration) {
        if !self.draining.replace(true) {
            drop(spawn(self.drain(grace)));
        }
    }
}
