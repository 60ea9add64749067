//! A core on its thread: the machine that decides, the connections, and the running handlers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::vec::Vec;

use bowline_protocol::{
    Assembly, Frame, Goodbye, GoodbyeReason, Hello, Link, LinkConfig, OptionSet, Reply, Station,
    Status, codec,
};
use bowline_runtime::net::TcpStream;
use bowline_runtime::payload::{Payload, Pool};
use bowline_runtime::{JoinHandle, Notify, now};
use bowline_time::Instant;

use super::answer::{Answer, Letter};
use super::builder::Limits;
use super::connection::{Connection, Side};
use super::context::Stops;
use super::doors::{Doors, Refusal};
use super::farewell::Farewells;
use super::handler::Run;
use super::mesh::{Cores, Peer};
use super::ration::Ration;
use super::sender::Sender;
use super::service::Service;
use super::spans::Spans;
use super::stats::IoStats;
use super::tally::Tally;
use crate::core::{Conn, CopyKey, Core, Effect, Gone, Notice, Start, TooManyConnections};

/// Connections by their places.
type Places<R> = Vec<Option<Rc<Connection<R>>>>;

pub(super) struct Shell<S: Service> {
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
    farewells: Farewells,
    /// When it was last looked how much is queued for all connections.
    pub(super) outgoing_looked: Cell<Instant>,
    /// The accepted connections, by the place of their name.
    pub(super) accepted: RefCell<Places<S::Reply>>,
    /// The connection by which each core of a peer hears cancels: the one that came up last.
    pub(super) routes: RefCell<BTreeMap<Station, Rc<Connection<S::Reply>>>>,
    /// Lines of the log that others can cause.
    pub(super) route_lines: Ration,
    pub(super) reader_lines: Ration,
    /// Bytes of the budget for requests on their way that are taken.
    pub(super) assembling: Cell<usize>,
    pub(super) io: Cell<IoStats>,
    /// There is something to decide.
    pub(super) changed: Notify,
    /// When it is to end, finished or not, once it was told to.
    pub(super) ends_at: Cell<Option<Instant>>,
    /// While the core drains: a copy, a reply or a connection has ended.
    pub(super) drained: Rc<Notify>,
    /// The core is to end.
    pub(super) over: Notify,
    pub(super) acceptors: RefCell<Vec<JoinHandle<()>>>,
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
            peers.len(),
        );
        let shell = Rc::new(Shell {
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
            farewells: Farewells::default(),
            outgoing_looked: Cell::new(Instant::EPOCH),
            spans,
            accepted: RefCell::default(),
            routes: RefCell::default(),
            route_lines: Ration::default(),
            reader_lines: Ration::default(),
            assembling: Cell::new(0),
            io: Cell::default(),
            changed: Notify::new(),
            ends_at: Cell::new(None),
            drained: Rc::new(Notify::new()),
            over: Notify::new(),
            acceptors: RefCell::default(),
        });
        for (place, peer) in shell.peers.iter().enumerate() {
            shell.know_peer(place, &peer.address.known());
        }
        shell
    }

    /// The peer of this place among all is found at these addresses.
    pub(super) fn know_peer(&self, place: usize, found: &[SocketAddr]) {
        self.doors.borrow_mut().know_peer(place, found.iter().map(SocketAddr::ip));
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
    pub(super) fn accept(&self, stream: TcpStream) -> Option<Rc<Connection<S::Reply>>> {
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
                self.see_off(stream);
                return None;
            }
        };
        self.doors.borrow_mut().enter(conn.index(), from);
        self.count(|io| io.accepted += 1);
        let link = Link::accepted(self.hello.clone(), self.link, now());
        let link = link.with_grant(self.limits.credit);
        let connection = self.connection(Side::Accepted(conn), stream, link);
        let mut accepted = self.accepted.borrow_mut();
        if accepted.len() <= conn.index() {
            accepted.resize_with(conn.index() + 1, || None);
        }
        accepted[conn.index()] = Some(connection.clone());
        Some(connection)
    }

    /// Lets the other side read the goodbye that it was told.
    pub(super) fn see_off(&self, stream: TcpStream) {
        if !self.farewells.see_off(stream) {
            self.count(|io| io.not_seen_off += 1);
        }
    }

    /// Makes a connection of a stream to a peer's core.
    pub(super) fn dialled(&self, station: Station, stream: TcpStream) -> Rc<Connection<S::Reply>> {
        let expected = Some(station.replica);
        let link = Link::dialled(self.hello.clone(), expected, self.link, now());
        self.connection(Side::Dialled(station), stream, link)
    }

    fn connection(&self, side: Side, stream: TcpStream, link: Link) -> Rc<Connection<S::Reply>> {
        let out = Sender::new(stream, self.limits.outgoing_bytes, self.drained.clone());
        let assembly = Assembly::new(self.limits.request_bytes, 0);
        Connection::new(side, out, link, assembly.with_patience(self.limits.stall_time))
    }

    pub(super) fn on_closed(&self, conn: Conn) {
        self.core.borrow_mut().on_closed(conn, now());
        self.doors.borrow_mut().leave(conn.index());
        if let Some(place) = self.accepted.borrow_mut().get_mut(conn.index()) {
            *place = None;
        }
        self.drained.notify();
    }

    pub(super) fn client(&self, conn: Conn) -> Option<Rc<Connection<S::Reply>>> {
        let accepted = self.accepted.borrow();
        let connection = accepted.get(conn.index())?.as_ref()?;
        (connection.side == Side::Accepted(conn)).then(|| connection.clone())
    }

    // Copies.

    /// Takes from the queue what may start, and does what the core wants done.
    pub(super) fn dispatch(self: &Rc<Self>) {
        let held = self.service.freshness();
        {
            let mut core = self.core.borrow_mut();
            core.watch(self.spans.are_heard());
            core.on_freshness(held);
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
        while let Some(gone) = self.next_gone() {
            self.spans.tell(&gone);
        }
        if self.ends_at.get().is_some() {
            self.drained.notify();
        }
    }

    /// The next copy that never ran, to be told of while nothing is borrowed.
    fn next_gone(&self) -> Option<Gone> {
        self.core.borrow_mut().poll_gone()
    }

    fn apply(self: &Rc<Self>, effect: Effect<Payload>) {
        match effect {
            Effect::Cancel { to, cancel } => {
                if let Some(connection) = self.routes.borrow().get(&to) {
                    connection.out.send(&Frame::Cancel(cancel));
                }
            }
            // Who asked for more hears what there is, and so does whoever else was refused.
            Effect::Send { conn, notice: Notice::Refused(reply, why), frees } => {
                let letter = Letter { answer: Answer::Text(why), frees: frees.unwrap_or(0) };
                self.reply(conn, reply, &self.held(), letter);
            }
            Effect::Send { conn, notice, frees } => {
                let Some(connection) = self.client(conn) else { return };
                match frees {
                    Some(bytes) => connection.out.end(&notice.frame(), bytes),
                    None => connection.out.send(&notice.frame()),
                }
            }
            Effect::Answer { conn, reply, options, result, frees } => {
                let letter = Letter { answer: Answer::Stored(result), frees };
                self.reply(conn, reply, &options, letter);
            }
            Effect::Start(start) => {
                let context = self.stops.begin(&start, now());
                let (shell, method) = (self.clone(), context.method());
                let Start { copy, payload, .. } = start;
                S::with_handler(method, Run { shell, copy, context, payload });
            }
            Effect::Abort { copy, why } => self.stops.ask(copy, why),
        }
    }

    /// A handler is done, with this.
    pub(super) fn finish(&self, copy: CopyKey, status: Status, answer: Answer<S::Reply>) {
        let options = self.stops.end(copy, now());
        let finished = self.core.borrow_mut().on_finished(copy, status, &answer, &options, now());
        if let Some((conn, reply, frees)) = finished {
            self.reply(conn, reply, &options, Letter { answer, frees });
        }
        self.changed.notify();
    }

    /// Answers a copy. Whoever takes no reply of that size is told so; what is kept for a key is the
    /// reply itself, which others may take.
    fn reply(&self, conn: Conn, reply: Reply, options: &OptionSet, letter: Letter<S::Reply>) {
        let Some(connection) = self.client(conn) else { return };
        if !connection.out.reply(reply, options, letter) {
            self.count(|io| io.replies_too_large += 1);
        }
        self.tell_unread(&connection, false);
    }

    /// Somebody asks for freshness. The core was told of it in its last turn, which may be long ago.
    pub(super) fn look_at_freshness(&self, asked: &OptionSet) {
        if asked.fresh.is_some() {
            let held = self.service.freshness();
            self.core.borrow_mut().on_freshness(held);
        }
    }

    /// What a reply says that no handler made: what the service holds.
    fn held(&self) -> OptionSet {
        OptionSet { fresh: self.core.borrow().freshness(), ..OptionSet::NONE }
    }

    /// A handler stopped without an answer.
    pub(super) fn aborted(&self, copy: CopyKey) {
        self.stops.end(copy, now());
        self.core.borrow_mut().on_aborted(copy, now());
        self.changed.notify();
    }
}
