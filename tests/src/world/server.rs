//! A core of a server in the world: the real machine, in a shell that does what the shell on the
//! ring does, in the same order.

use std::collections::BTreeMap;

use bowline_protocol::link::LinkEvent;
use bowline_protocol::{
    Attempt, Cancel, CancelReason, Features, Frame, Hello, Identity, Key, Link, Loss, Method,
    OptionSet, PayloadOf, Redial, ReplicaId, Reply, Request, Station, Status, Takes, Twin,
};
use bowline_server::core::{
    Account, Config, Conn, CopyKey, Core, Effect, MethodRule, Notice, Origin, Start, Stats,
};
use bowline_time::{Duration, Instant};

use crate::check::{Fair, Rule, Way};
use crate::kernel::clock::Clock;
use crate::kernel::net::{Host, Wire};
use crate::kernel::rng::{Rng, mix};
use crate::kernel::span::Nanos;
use crate::kernel::timeline::Topic;
use crate::world::arrive::Line;
use crate::world::env::{Env, Event, Input};
use crate::world::lag::{Lag, Seen, Teller};
use crate::world::payload;
use crate::world::port::{Gone, PAYLOAD_LIMIT, Port};
use crate::world::scenario::Look;
use crate::world::shell::Shell;
use crate::world::store::{Once, Ran};
use crate::world::unread::{Held, Unread};

/// The method that may run twice, and the one that must not.
pub(crate) const IDEMPOTENT: Method = Method(1);
/// The method that must not run twice.
pub(crate) const ONCE: Method = Method(2);
/// The method whose effect is had once for each key, in one transaction with its result.
pub(crate) const KEYED: Method = Method(3);

/// What the other end of an accepted or dialled wire is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Dialled by this core: the cancels that this peer sends here are obeyed.
    Dialled(Station),
    /// Accepted, and nobody knows yet from whom.
    Unknown,
    /// A client's.
    Client(Conn),
    /// A peer's, on which this core sends its cancels.
    Peer(Station),
}

/// A handler that runs.
#[derive(Debug)]
pub(super) struct Handler {
    pub(super) attempt: Attempt,
    method: Method,
    pub(super) key: Option<Key>,
    /// What it is asked for.
    asks: u64,
    /// What it found there.
    seen: Option<Seen>,
    /// How many points are left, the end included, and how far they are apart.
    points: u32,
    step: Nanos,
    /// Until when somebody waits for it.
    pub(super) until: Option<Instant>,
    pub(super) stop: bool,
}

/// A peer's core that this one dials.
#[derive(Debug)]
struct Peer {
    station: Station,
    wire: Option<Wire>,
    /// Since when that is up.
    since: Option<Nanos>,
    redial: Redial,
    dial_at: Option<Instant>,
}

/// A core of a server.
pub(crate) struct Server {
    host: Host,
    life: u32,
    pub(super) clock: Clock,
    pub(super) core: Core<u64>,
    pub(super) ports: BTreeMap<Wire, (Port, Role)>,
    pub(super) conns: BTreeMap<Conn, Wire>,
    /// How many traffic classes there are.
    pub(super) classes: usize,
    pub(super) fair: Fair,
    /// The copy of each key that ran last.
    pub(super) ran: BTreeMap<u128, Ran>,
    pub(super) unread: Unread,
    routes: BTreeMap<Station, Wire>,
    peers: Vec<Peer>,
    pub(super) handlers: BTreeMap<CopyKey, Handler>,
    hello: Hello,
    leaving: bool,
    /// How it follows what is written elsewhere.
    lag: Option<Lag>,
    /// When it was started after a crash.
    born: Option<Nanos>,
    /// How many percent of their time handlers take.
    pub(crate) slow: u64,
    /// How much further behind it is than it would be.
    pub(crate) behind: Nanos,
}

/// What both sides can do.
pub(crate) const FEATURES: Features =
    Features::GO_AWAY.with(Features::OPTIONS).with(Features::SEGMENTS).with(Features::CREDIT);

/// What both sides take.
pub(crate) const TAKES: Takes = Takes { frame: PAYLOAD_LIMIT, payload: PAYLOAD_LIMIT };

impl Server {
    /// A server's core that has just been started.
    pub(crate) fn new(env: &Env, host: Host, life: u32, clock: Clock) -> Server {
        let scenario = &env.scenario;
        let station = station_of(env, host);
        let methods = vec![
            (IDEMPOTENT, MethodRule::idempotent()),
            (ONCE, MethodRule::once()),
            (KEYED, MethodRule::keyed()),
        ];
        let mut config = Config::new(station, methods);
        config.slots = scenario.server.slots;
        config.queue_requests = scenario.server.queue;
        config.tombstones = scenario.server.tombstones;
        config.connections = 1024;
        config.shares.clone_from(&scenario.shares);
        config.keys = scenario.keys;
        config.shared_results = scenario.shared_results;
        if let Some(room) = scenario.room {
            (config.outgoing_bytes, config.outgoing_total) = (room.each, room.all);
        }
        config.hash_seed = scenario.seed;
        let core = match Core::new(config) {
            Ok(core) => core,
            Err(error) => panic!("the world's own configuration is refused: {error}"),
        };
        let mut hello = Hello::server(station, vec![7000; scenario.cores]);
        (hello.features, hello.takes) = (FEATURES, Some(TAKES));
        let peers = if scenario.mesh { peers_of(env, station, host) } else { Vec::new() };
        Server {
            host,
            life,
            clock,
            core,
            ports: BTreeMap::new(),
            conns: BTreeMap::new(),
            classes: scenario.shares.len(),
            fair: Fair::new(&scenario.shares),
            ran: BTreeMap::new(),
            unread: Unread::default(),
            routes: BTreeMap::new(),
            peers,
            handlers: BTreeMap::new(),
            hello,
            leaving: false,
            lag: scenario.lags.as_ref().map(|lags| lags.replicas[host.0 / scenario.cores]),
            born: (life > 0).then_some(env.now),
            slow: 100,
            behind: 0,
        }
    }

    /// One turn of the loop: all input first, then time, then what may start, then what is to be
    /// done, and at last everything is sent.
    pub(crate) fn turn(&mut self, env: &mut Env, input: Vec<Input>) {
        let now = self.clock.read(env.now);
        self.core.on_freshness(self.held(env).fresh);
        for input in input {
            self.apply(env, input, now);
        }
        self.tend_links(env, now);
        self.shed_late_requests(env, now);
        self.dial_peers(env, now);
        let looked = self.look_at_unread(env, now);
        // A loop may look at its timers before its queue or after it.
        if env.scenario.timers_last {
            self.core.dispatch(now);
        }
        if self.core.next_timeout().is_some_and(|at| at <= now) {
            self.note_held(env, |held| &mut held.expired, |core| core.on_timeout(now));
        }
        if !env.scenario.timers_last {
            self.core.dispatch(now);
        }
        while let Some(effect) = self.core.poll_effect() {
            self.effect(env, effect, now);
        }
        if looked {
            self.judge_held(env);
        }
        for (&wire, (port, _)) in &mut self.ports {
            port.flush(wire, env, now);
        }
        env.book.server_turn_over();
        self.judge_stops(env, now);
        if let Some(how) = self.fair.turn_over(self.core.is_holding()) {
            env.book.accuse(Rule::ClassesGetTheirShare, None, how);
        }
        self.judge(env);
    }

    fn apply(&mut self, env: &mut Env, input: Input, now: Instant) {
        match self.take_in(env, input, now) {
            Some(Input::Knock(wire)) => {
                let mut link = Link::accepted(self.hello.clone(), env.scenario.link, now);
                if let Some(credit) = env.scenario.wires.credit {
                    link = link.with_grant(credit);
                }
                let port = Port::accepted(link, &env.scenario.wires);
                self.ports.insert(wire, (port, Role::Unknown));
            }
            Some(Input::Handler(key)) => self.look(env, key, now),
            _ => {}
        }
    }

    /// The other side of a link is known, or the link is up.
    fn tied_up(&mut self, env: &mut Env, wire: Wire) {
        let Some((port, role)) = self.ports.get_mut(&wire) else { return };
        let link = &port.link;
        match (*role, link.peer().map(|hello| hello.identity)) {
            (Role::Unknown, Some(Identity::Client(_))) => {
                if let Ok(conn) = self.core.on_opened() {
                    self.conns.insert(conn, wire);
                    *role = Role::Client(conn);
                    port.account = env.scenario.wires.credit.map(|all| Account::new(all, 0));
                }
            }
            (Role::Unknown, Some(Identity::Server(station))) => *role = Role::Peer(station),
            _ => {}
        }
        match *role {
            Role::Peer(station) if link.peer_obeys_cancels() => {
                self.routes.insert(station, wire);
                self.core.on_mesh_up(station);
                env.note(self.host, Topic::World, &[20, wire.0], || {
                    format!("can tell server {station:?}")
                });
            }
            Role::Dialled(station) if link.is_up() => {
                if let Some(peer) = self.peers.iter_mut().find(|peer| peer.station == station) {
                    peer.since.get_or_insert(env.now);
                }
            }
            _ => {}
        }
    }

    fn frame(
        &mut self,
        env: &mut Env,
        wire: Wire,
        frame: &Frame<'_>,
        now: Instant,
    ) -> Result<(), Gone> {
        let Some(&(_, role)) = self.ports.get(&wire) else { return Ok(()) };
        match (frame, role) {
            (Frame::Request(request, bytes), Role::Client(conn)) => {
                self.request(env, Line { wire, conn }, request, bytes, now)
            }
            (Frame::RequestWith(request, options, first), Role::Client(conn)) => {
                self.request_with(env, Line { wire, conn }, request, options, first, now)
            }
            (Frame::Segment(segment, bytes), Role::Client(conn))
                if segment.of == PayloadOf::Request =>
            {
                self.segment(env, Line { wire, conn }, segment, bytes, now)
            }
            (Frame::Cancel(cancel), role) => {
                self.cancel(env, wire, role, cancel, now);
                Ok(())
            }
            _ => Err(Gone::Unreadable(format!("{role:?}: {frame:?}"))),
        }
    }

    fn cancel(&mut self, env: &mut Env, wire: Wire, role: Role, cancel: &Cancel, now: Instant) {
        let Some((port, _)) = self.ports.get(&wire) else { return };
        let link = &port.link;
        let peer = link.peer().and_then(Hello::station);
        let (origin, way) = match role {
            Role::Client(conn) => (Origin::Client(conn), Way::Client(wire)),
            Role::Dialled(_) if link.obeys_cancels() => match peer {
                Some(station) => (Origin::Mesh(station), Way::Mesh(station)),
                None => (Origin::Stranger, Way::Stranger),
            },
            _ => (Origin::Stranger, Way::Stranger),
        };
        env.book.cancel_arrived(self.host, way, cancel);
        if !self.stop_on_its_way(env, origin, cancel, now) {
            let count: fn(&mut Held) -> &mut u64 = match cancel.reason {
                CancelReason::TwinStarted { .. } => |held| &mut held.by_twin,
                CancelReason::CallerDone => |held| &mut held.by_caller,
            };
            self.note_held(env, count, |core| core.on_cancel(origin, *cancel, now));
        }
    }

    /// A handler comes to a point where it looks at its cancel token, or to its end.
    fn look(&mut self, env: &mut Env, key: CopyKey, now: Instant) {
        let Some(handler) = self.handlers.get_mut(&key) else { return };
        handler.points = handler.points.saturating_sub(1);
        let (attempt, asks) = (handler.attempt, handler.asks);
        let (method, id, seen) = (handler.method, handler.key, handler.seen);
        let topic = Topic::Call(attempt.client.0, attempt.seq.0);
        let key_parts = [21, attempt.client.0, attempt.seq.0, u64::from(attempt.n)];
        if handler.points > 0 && !handler.stop {
            let at = env.now + handler.step;
            return env.events.push(at, Event::Handler(self.host, self.life, key));
        }
        let stopped = handler.stop && handler.points > 0;
        self.handlers.remove(&key);
        env.book.stopped_running(self.host);
        if stopped {
            env.note(self.host, topic, &key_parts, || format!("handler of {attempt:?} stops"));
            return self.core.on_aborted(key, now);
        }
        let mut status = self.status(env, attempt);
        let mut effect = 0;
        if method == KEYED && status == Status::Ok {
            let replica = self.core.station().replica.0;
            match env.stores.once(replica, id) {
                Once::Had(had) => {
                    effect = had;
                    env.book.had_effect(env.stores.of(replica), attempt);
                }
                Once::Again(had) => effect = had,
                Once::OtherUse => status = Status::BadRequest,
            }
        }
        env.note(self.host, topic, &key_parts, || format!("handler of {attempt:?}: {status:?}"));
        let length = env.scenario.wires.length_of_reply(env.scenario.seed, asks);
        let answer = payload::answer(asks, effect, length);
        if let Some(id) = id {
            let ok = status == Status::Ok;
            self.ran.insert(id.id, Ran { attempt, answer: answer.clone(), ok, seen });
        }
        let says = match self.lag {
            Some(Lag { told_by: Teller::Nobody, .. }) => OptionSet::NONE,
            _ => self.made_of(env, attempt, seen),
        };
        if let Some((conn, reply, frees)) = self.core.on_finished(key, status, &answer, &says, now)
        {
            self.reply(env, conn, reply, (&says, answer), frees, now);
        }
    }

    /// Answers a request of so many bytes: at once, or in segments if that is long.
    fn reply(
        &mut self,
        env: &mut Env,
        conn: Conn,
        reply: Reply,
        (options, answer): (&OptionSet, Vec<u8>),
        frees: usize,
        now: Instant,
    ) {
        let port = self.conns.get(&conn).and_then(|wire| self.ports.get_mut(wire));
        match port {
            Some((port, _)) if port.is_long(&answer) => {
                if !port.reply(reply, options, answer, frees) {
                    env.book.accuse(Rule::SpeaksTheProtocol, None, "a client takes no such reply");
                }
            }
            _ if options.is_empty() => {
                self.end(env, conn, &Frame::Reply(reply, &answer), frees, now);
            }
            _ => {
                let options = options.to_bytes();
                let frame = Frame::ReplyWith(reply, options.as_options(), &answer);
                self.end(env, conn, &frame, frees, now);
            }
        }
        self.tell_unread(env, conn, false, now);
    }

    fn status(&self, env: &Env, attempt: Attempt) -> Status {
        let label = mix(attempt.client.0 ^ attempt.seq.0) ^ u64::from(attempt.n) ^ 0xe44;
        let mut rng = Rng::labelled(env.scenario.seed, label);
        match rng.chance(env.scenario.service.error_permille) {
            // One that would be the same anywhere, or one that another replica may better.
            true => rng.pick(&[Status::App(7), Status::Failed]),
            false => Status::Ok,
        }
    }

    /// Says something on a client's connection.
    fn say(&mut self, env: &mut Env, conn: Conn, frame: &Frame<'_>, now: Instant) {
        // A connection that closed in this turn may still be spoken to: nobody hears.
        let Some(&wire) = self.conns.get(&conn) else { return };
        env.book.server_says(wire, frame);
        if let Some((port, _)) = self.ports.get_mut(&wire) {
            port.put(frame, now);
        }
    }

    fn effect(&mut self, env: &mut Env, effect: Effect<u64>, now: Instant) {
        match effect {
            Effect::Cancel { to, cancel } => {
                env.book.announces(self.host, &cancel);
                let wire = self.routes.get(&to);
                match wire.and_then(|wire| self.ports.get_mut(wire)) {
                    Some((port, _)) => port.put(&Frame::Cancel(cancel), now),
                    None => env.book.accuse(
                        Rule::SpeaksTheProtocol,
                        None,
                        format!("a cancel for {to:?}, which is not connected"),
                    ),
                }
            }
            Effect::Send { conn, notice, frees: None } => {
                self.say(env, conn, &notice.frame(), now);
            }
            // Who asked for more hears what there is, and so does whoever else is refused: in one frame,
            // which no cancel can cut.
            Effect::Send { conn, notice: Notice::Refused(reply, why), frees: Some(frees) } => {
                if reply.executed {
                    self.judge_not_kept(env, reply.attempt);
                }
                let held = self.held(env).to_bytes();
                let frame = Frame::ReplyWith(reply, held.as_options(), why.as_bytes());
                self.end(env, conn, &frame, frees, now);
            }
            Effect::Send { conn, notice, frees: Some(frees) } => {
                self.end(env, conn, &notice.frame(), frees, now);
            }
            Effect::Answer { conn, reply, options, result, frees } => {
                self.judge_answer(env, &reply, &result);
                self.note_answer();
                env.book.answered_by_key(reply.attempt);
                self.reply(env, conn, reply, (&options, result.to_vec()), frees, now);
            }
            Effect::Start(start) => self.start(env, start, now),
            Effect::Abort { copy, .. } => {
                let at_once = env.scenario.service.look == Look::AtOnce;
                let looks = env.scenario.service.look != Look::Never;
                if let Some(handler) = self.handlers.get_mut(&copy) {
                    handler.stop = looks;
                    if at_once {
                        // One point more than its end: it stops at this one.
                        handler.points += 1;
                        env.events.push(env.now, Event::Handler(self.host, self.life, copy));
                    }
                }
            }
        }
    }

    fn start(&mut self, env: &mut Env, start: Start<u64>, now: Instant) {
        let attempt = start.request.attempt;
        let slots = env.scenario.server.slots;
        env.book.started(self.host, attempt, slots, now);
        let topic = Topic::Call(attempt.client.0, attempt.seq.0);
        let key = [22, attempt.client.0, attempt.seq.0, u64::from(attempt.n)];
        env.note(self.host, topic, &key, || format!("starts {attempt:?} after {:?}", start.waited));
        self.judge_start(env, &start);
        let takes = self.service_time(env, &start.request);
        let points = match env.scenario.service.look {
            Look::Points(points) => points.max(1),
            Look::Never | Look::AtOnce => 1,
        };
        let step = takes / Nanos::from(points);
        let (method, key, asks) = (start.request.method, start.options.key, start.payload);
        let seen = self.lag.map(|lag| lag.holds(env.now, self.born).without(self.behind));
        let until = env.book.until(attempt);
        let handler =
            Handler { attempt, method, key, asks, seen, points, step, until, stop: false };
        self.handlers.insert(start.copy, handler);
        env.events.push(env.now + step, Event::Handler(self.host, self.life, start.copy));
    }

    /// What the replica says that it holds now, if it says so.
    pub(super) fn held(&self, env: &Env) -> OptionSet {
        let lag = self.lag.filter(|lag| lag.told_by == Teller::Replica);
        let held = lag.map(|lag| lag.holds(env.now, self.born).without(self.behind));
        let fresh = held.zip(env.scenario.lags.as_ref());
        let fresh = fresh.map(|(held, lags)| lags.fresh(held, env.now));
        OptionSet { fresh, ..OptionSet::NONE }
    }

    /// How fresh this copy's answer is, which is made of what was seen: from now on that is the truth.
    pub(super) fn made_of(&self, env: &mut Env, attempt: Attempt, seen: Option<Seen>) -> OptionSet {
        let lags = env.scenario.lags.as_ref();
        let fresh = seen.zip(lags).map(|(seen, lags)| lags.fresh(seen, env.now));
        env.truths.extend(fresh.map(|fresh| (attempt, fresh)));
        OptionSet { fresh, ..OptionSet::NONE }
    }

    fn service_time(&self, env: &Env, request: &Request) -> Nanos {
        let attempt = request.attempt;
        let service = &env.scenario.service;
        let copy = if service.identical { 0 } else { mix(u64::from(attempt.n) + 1) };
        let label = mix(mix(attempt.client.0) ^ attempt.seq.0) ^ copy;
        let mut rng = Rng::labelled(env.scenario.seed, label);
        let takes = match &service.trace {
            Some(trace) => {
                let replica = self.core.station().replica;
                trace.draw(usize::from(replica.0), env.now, &mut rng)
            }
            None => service.span.draw(&mut rng),
        };
        takes.saturating_mul(self.slow) / 100
    }

    /// Dials those peers that it is time for.
    fn dial_peers(&mut self, env: &mut Env, now: Instant) {
        for peer in &mut self.peers {
            if peer.dial_at.is_none_or(|at| at > now) {
                continue;
            }
            peer.dial_at = None;
            let station = peer.station;
            let wire = env.dial(self.host, env.host_of(station));
            let (hello, expected) = (self.hello.clone(), Some(station.replica));
            let link = Link::dialled(hello, expected, env.scenario.link, now);
            let port = Port::dialled(link, &env.scenario.wires);
            self.ports.insert(wire, (port, Role::Dialled(station)));
            peer.wire = Some(wire);
        }
    }

    /// Takes on nothing new, asks all that are connected to spare it, and has ended by `within`.
    pub(crate) fn leave(&mut self, at: Nanos, within: Nanos) {
        let now = self.clock.read(at);
        self.leaving = true;
        self.core.drain();
        for (port, _) in self.ports.values_mut() {
            port.link.leave(Duration::from_nanos(within), now);
        }
    }

    /// Whether it takes no connections any more.
    pub(crate) const fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Tells its peers lies, on every connection: that copies' twins have started, that callers are
    /// done.
    pub(crate) fn forge(&mut self, env: &mut Env) {
        let now = self.clock.read(env.now);
        let me = self.core.station();
        let copies = env.book.live_copies();
        let mut lies = forged(&copies, |by| by.station != me);
        // That its own copy started, of a call that has none here.
        let others = copies.iter().filter_map(|&(attempt, twin)| Some((attempt, twin?)));
        for (attempt, twin) in others.filter(|(_, twin)| twin.station != me).take(32) {
            let by = Twin { station: me, n: twin.n };
            let (reason, lifetime) = (CancelReason::TwinStarted { by }, Duration::from_millis(5));
            lies.push(Cancel { attempt, reason, lifetime });
        }
        for (&wire, (port, role)) in &mut self.ports {
            if matches!(role, Role::Dialled(_) | Role::Peer(_)) && port.link.is_up() {
                lies.iter().for_each(|lie| port.put(&Frame::Cancel(*lie), now));
                port.flush(wire, env, now);
            }
        }
    }

    /// When the loop has to turn next without any input.
    pub(crate) fn next_timeout(&self) -> Option<Nanos> {
        let links = self.ports.values().map(|(port, _)| port.link.next_timeout());
        let dials = self.peers.iter().filter_map(|peer| peer.dial_at);
        let requests = self.ports.values().filter_map(|(port, _)| port.assembly.next_timeout());
        let next = links.chain(dials).chain(requests).chain(self.core.next_timeout()).min()?;
        let next = self.clock.when(next);
        Some(self.next_look().map_or(next, |look| look.min(next)))
    }

    /// Some handler still runs.
    pub(crate) fn is_busy(&self) -> bool {
        !self.handlers.is_empty()
    }

    /// Some payload is on its way.
    pub(crate) fn is_receiving(&self) -> bool {
        self.ports.values().any(|(port, _)| port.left().is_some())
    }

    /// The machine's counters.
    pub(crate) const fn stats(&self) -> Stats {
        self.core.stats()
    }
}

impl Shell for Server {
    fn host(&self) -> Host {
        self.host
    }

    fn wires(&self) -> Vec<Wire> {
        self.ports.keys().copied().collect()
    }

    fn port(&mut self, wire: Wire) -> Option<&mut Port> {
        self.ports.get_mut(&wire).map(|(port, _)| port)
    }

    fn heard(
        &mut self,
        env: &mut Env,
        wire: Wire,
        event: LinkEvent,
        frame: &Frame<'_>,
        now: Instant,
    ) -> Result<(), Gone> {
        match event {
            LinkEvent::Known | LinkEvent::Up => self.tied_up(env, wire),
            LinkEvent::NotMine => self.frame(env, wire, frame, now)?,
            _ => {}
        }
        Ok(())
    }

    fn drop_wire(&mut self, env: &mut Env, wire: Wire, why: &str, now: Instant) {
        let Some((_, role)) = self.ports.remove(&wire) else { return };
        let key = [23, wire.0];
        env.note(self.host, Topic::World, &key, || format!("loses {role:?}: {why}"));
        match role {
            Role::Unknown => {}
            Role::Client(conn) => {
                self.conns.remove(&conn);
                self.fair.closed(wire);
                self.unread.closed(conn);
                env.book.server_lost_wire(wire);
                self.note_held(env, |held| &mut held.closed, |core| core.on_closed(conn, now));
            }
            Role::Peer(station) => {
                if self.routes.get(&station) == Some(&wire) {
                    self.routes.remove(&station);
                    self.core.on_mesh_down(station);
                }
            }
            Role::Dialled(station) => {
                if let Some(peer) = self.peers.iter_mut().find(|peer| peer.station == station) {
                    peer.wire = None;
                    let loss = match peer.since.take() {
                        Some(since) => Loss::Broken(Duration::from_nanos(env.now - since)),
                        None => Loss::Unreachable,
                    };
                    peer.dial_at = Some(now + peer.redial.after(loss).wait);
                }
            }
        }
    }
}

/// Cancels that nobody has a right to send.
pub(crate) fn forged(
    copies: &[(Attempt, Option<Twin>)],
    mut usable: impl FnMut(&Twin) -> bool,
) -> Vec<Cancel> {
    let lifetime = Duration::from_millis(5);
    let cancel = |attempt, reason| Cancel { attempt, reason, lifetime };
    let mut lies = Vec::new();
    for &(attempt, twin) in copies.iter().take(32) {
        lies.push(cancel(attempt, CancelReason::CallerDone));
        if let Some(by) = twin.filter(|twin| usable(twin)) {
            lies.push(cancel(attempt, CancelReason::TwinStarted { by }));
        }
    }
    lies
}

fn station_of(env: &Env, host: Host) -> Station {
    let cores = env.scenario.cores;
    Station { replica: ReplicaId((host.0 / cores) as u16), core: (host.0 % cores) as u16 }
}

/// Every core of every other replica.
fn peers_of(env: &Env, station: Station, host: Host) -> Vec<Peer> {
    let hosts = (0..env.scenario.servers * env.scenario.cores).map(Host);
    let others = hosts.filter(|&other| station_of(env, other).replica != station.replica);
    let link = env.scenario.link;
    let peer = |other: Host| Peer {
        station: station_of(env, other),
        wire: None,
        since: None,
        redial: Redial::new(
            link.ping_after,
            link.dead_after,
            mix(env.scenario.seed ^ host.0 as u64 ^ (other.0 as u64) << 32),
        ),
        dial_at: Some(Instant::EPOCH),
    };
    others.map(peer).collect()
}
