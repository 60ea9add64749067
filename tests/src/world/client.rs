//! A client in the world: the real machine, in a shell that does what the shell on the ring does,
//! and a user who makes calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_client::core::{
    Brought, Budget, CallKey, Calls, Config, Counters, Done, Effect, Placement, PolicyId, Spec,
};
use bowline_protocol::link::LinkEvent;
use bowline_protocol::{
    Arrived, CancelReason, Cause, ClientId, Frame, Freshness, Hello, Key, Link, Loss, MethodInfo,
    OptionSet, PayloadOf, Redial, ReplicaId, Reply, Request, ServiceInfo, Spender, Station,
    TrafficClass, options,
};
use bowline_time::{Duration, Instant};

use crate::check::{Begun, Outcome, Rule};
use crate::kernel::clock::Clock;
use crate::kernel::net::{Host, Wire};
use crate::kernel::rng::{Rng, mix};
use crate::kernel::span::Nanos;
use crate::kernel::timeline::Topic;
use crate::world::env::{Env, Event, Input};
use crate::world::payload;
use crate::world::port::{Gone, Port};
use crate::world::report::Failed;
use crate::world::scenario::{Class, Scenario};
use crate::world::server::{FEATURES, IDEMPOTENT, KEYED, ONCE, TAKES, forged};
use crate::world::shell::Shell;

/// What all replicas promise of their methods.
const SERVICE: ServiceInfo = ServiceInfo::new(
    "world",
    &[
        MethodInfo::new(IDEMPOTENT, "read").idempotent().duplicable(u32::MAX),
        MethodInfo::new(ONCE, "write"),
        MethodInfo::new(KEYED, "pay").keyed().duplicable(u32::MAX),
    ],
);

/// A replica, and the connection to it.
pub(super) struct Replica {
    pub(super) id: ReplicaId,
    pub(super) station: Station,
    pub(super) wire: Option<Wire>,
    pub(super) up: bool,
    /// Since when it is connected, or was last.
    pub(super) since: Nanos,
    /// It asked to be spared.
    pub(super) leaving: bool,
    redial: Redial,
    dial_at: Option<Instant>,
}

/// What the user knows of a call of theirs.
pub(super) struct Made {
    call: CallKey,
    pub(super) asks: u64,
    pub(super) key: Option<Key>,
    pub(super) fresh: Option<Freshness>,
    at: Nanos,
    probe: bool,
}

/// A client process.
pub(crate) struct Client {
    pub(super) host: Host,
    life: u32,
    pub(super) id: ClientId,
    pub(super) clock: Clock,
    pub(super) calls: Calls<Vec<u8>>,
    policies: Vec<PolicyId>,
    pub(super) replicas: Vec<Replica>,
    pub(super) ports: BTreeMap<Wire, Port>,
    pub(super) made: BTreeMap<u64, Made>,
    count: u64,
    /// More calls wait for room than are looked at when some comes, or did since calls wait.
    pub(super) crowded: bool,
    /// When the process last stood still.
    thawed: Nanos,
}

impl Client {
    /// A client that has just been started.
    pub(crate) fn new(env: &Env, host: Host, life: u32, clock: Clock) -> Client {
        let scenario = &env.scenario;
        let seed = mix(scenario.seed ^ mix(host.0 as u64 | u64::from(life) << 32));
        let id = ClientId(seed);
        let config = Config {
            max_calls: scenario.client.max_calls,
            watch: scenario.client.watch,
            pick: scenario.pick,
            load_lifetime: Duration::from_nanos(scenario.load_lifetime),
            latency_window: scenario.client.latency_window,
            retry: scenario.retry,
            max_methods: 4,
            budget: env.budget.clone().unwrap_or_else(|| bucket(scenario)),
            seed,
            ..Config::default()
        };
        let mut calls = sane(Calls::new(id, config));
        let policies =
            scenario.classes.iter().map(|class| sane(calls.register(class.policy))).collect();
        let replicas = (0..scenario.servers).map(|replica| {
            let id = ReplicaId(replica as u16);
            let results = scenario.shared_results.then_some(0);
            let domain = replica as u32;
            sane(calls.place_replica(id, Placement { domain, results, ..Placement::default() }));
            calls.on_methods(id, Some(&SERVICE.to_methods()));
            let core = (host.0 % scenario.cores) as u16;
            let (first, most) = (scenario.link.ping_after, scenario.link.dead_after);
            Replica {
                id,
                station: Station { replica: id, core },
                wire: None,
                up: false,
                since: 0,
                leaving: false,
                redial: Redial::new(first, most, mix(seed ^ replica as u64)),
                dial_at: Some(Instant::EPOCH),
            }
        });
        let replicas = replicas.collect();
        let (ports, made) = (BTreeMap::new(), BTreeMap::new());
        Client {
            host,
            life,
            id,
            clock,
            calls,
            policies,
            replicas,
            ports,
            made,
            count: 0,
            crowded: false,
            thawed: 0,
        }
    }

    /// One turn of the loop; `thawed` is when the process last stood still.
    pub(crate) fn turn(&mut self, env: &mut Env, input: Vec<Input>, thawed: Nanos) {
        let now = self.clock.read(env.now);
        self.thawed = thawed;
        for input in input {
            match self.take_in(env, input, now) {
                Some(Input::Call { probe }) => self.make_call(env, now, probe),
                Some(Input::GiveUp(seq)) => self.give_up(env, seq, now),
                _ => {}
            }
        }
        self.tend_links(env, now);
        self.dial(env, now);
        loop {
            while let Some(effect) = self.calls.poll_effect() {
                self.effect(env, effect, now);
            }
            // What was taken back makes room, and calls due that wait for it.
            if self.calls.next_timeout().is_none_or(|at| at > now) {
                break;
            }
            self.calls.on_timeout(now);
        }
        for (&wire, port) in &mut self.ports {
            port.flush(wire, env, now);
        }
        let connected = self.open(env);
        let waits = self.waits(env);
        env.book.client_turn_over(self.host, &connected, waits);
        self.judge(env);
    }

    fn leaving(&mut self, env: &mut Env, wire: Wire) {
        let host = self.host;
        let Some(replica) = self.replica_at(wire) else { return };
        replica.leaving = true;
        let id = replica.id;
        env.note(host, Topic::World, &[16, wire.0], || format!("is asked to spare {id:?}"));
        self.calls.on_leaving(id);
    }

    fn replica_at(&mut self, wire: Wire) -> Option<&mut Replica> {
        self.replicas.iter_mut().find(|replica| replica.wire == Some(wire))
    }

    fn up(&mut self, env: &mut Env, wire: Wire) {
        let Some(port) = self.ports.get_mut(&wire) else { return };
        let grant = port.link.peer_grant();
        port.credit = Spender::new(grant);
        let station = port.link.peer().and_then(Hello::station);
        let host = self.host;
        let (Some(station), Some(replica)) = (station, self.replica_at(wire)) else { return };
        (replica.up, replica.since) = (true, env.now);
        replica.leaving = false;
        let id = replica.id;
        env.note(host, Topic::World, &[10, wire.0], || format!("is connected to {station:?}"));
        self.calls.on_takes(id, TAKES.payload);
        self.calls.on_granted(id, grant);
        self.calls.on_connected(id, station);
        env.book.room_came(host);
    }

    fn frame(
        &mut self,
        env: &mut Env,
        wire: Wire,
        frame: &Frame<'_>,
        now: Instant,
    ) -> Result<(), Gone> {
        let Some(from) = self.replica_at(wire).map(|replica| replica.id) else { return Ok(()) };
        let Some(port) = self.ports.get_mut(&wire) else { return Ok(()) };
        env.book.client_hears(frame, None);
        match frame {
            Frame::Reply(reply, payload) => {
                self.reply(env, from, reply, Brought { fresh: None, payload }, now);
            }
            Frame::ReplyWith(reply, options, first) => {
                let arrived = port.assembly.open_reply(*reply, options, first, Vec::new());
                let arrived = arrived.map_err(|error| Gone::Unreadable(error.to_string()))?;
                if !self.calls.waits_for(reply.attempt) {
                    // Nobody needs it; only its end is still to come.
                    port.assembly.discard(reply.attempt);
                }
                self.arrived(env, from, arrived, now);
            }
            Frame::Segment(segment, bytes) => {
                let arrived = port.assembly.segment(segment, bytes, now);
                let arrived = arrived.map_err(|error| Gone::Unreadable(error.to_string()))?;
                self.arrived(env, from, arrived, now);
            }
            Frame::Credit(credit) => {
                port.credit.on_credit(*credit);
                self.calls.on_credit(from, *credit);
                env.book.room_came(self.host);
            }
            Frame::Ended(ended) => {
                port.assembly.forget(ended.attempt, PayloadOf::Reply);
                self.calls.on_ended(from, ended, now);
            }
            Frame::Overloaded(overloaded) => self.calls.on_overloaded(from, overloaded, now),
            Frame::Started(started) => self.calls.on_started(from, started, now),
            _ => return Err(Gone::Unreadable(format!("a client got {frame:?}"))),
        }
        Ok(())
    }

    /// A long reply is there whole, or not yet.
    fn arrived(&mut self, env: &mut Env, from: ReplicaId, arrived: Arrived, now: Instant) {
        let (reply, fresh, answer) = match arrived {
            Arrived::Reply(reply, options, answer) => (reply, options.fresh, answer),
            Arrived::Discarded(reply, options) => (reply, options.fresh, Vec::new()),
            _ => return,
        };
        env.book.client_hears(&Frame::Reply(reply, &answer), fresh);
        self.reply(env, from, &reply, Brought { fresh, payload: &answer }, now);
    }

    fn reply(
        &mut self,
        env: &mut Env,
        from: ReplicaId,
        reply: &Reply,
        brought: Brought<'_>,
        now: Instant,
    ) {
        if let Some(done) = self.calls.on_reply_with(from, reply, brought, now).done() {
            if done.result.is_ok() {
                self.check_answer(env, &done, from, brought.payload);
                self.check_freshness(env, &done, reply.attempt);
            }
            self.done(env, done);
        }
    }

    fn make_call(&mut self, env: &mut Env, now: Instant, probe: bool) {
        self.count += 1;
        let label = mix((self.host.0 as u64) << 40 | u64::from(self.life) << 56 | self.count);
        let mut rng = Rng::labelled(env.scenario.seed, label);
        let class = self.draw_class(env, &mut rng);
        let class = if probe { None } else { class };
        let (spec, asks, span) = self.spec(env, class, &mut rng, now);
        let (deadline, idempotent, key) = (spec.deadline, spec.idempotent, spec.options.key);
        let (size, asks_for) = (spec.payload.len(), spec.options.fresh);
        let class = class.map_or(Class::plain(), |number| env.scenario.classes[number]);
        match self.calls.start(now, spec) {
            Ok(call) => {
                let (seq, at) = (call.seq().0, env.now);
                let until = self.clock.when(deadline);
                let id = key.map(|key| key.id);
                let begun = Begun { deadline: until, size, idempotent, key: id, asks: asks_for };
                env.book.began(self.host, (self.id.0, seq), begun);
                self.made.insert(seq, Made { call, asks, key, fresh: asks_for, at, probe });
                env.note(self.host, Topic::Call(self.id.0, seq), &[11, self.id.0, seq], || {
                    format!("calls, {:?}, {span} ns to go", class.policy)
                });
                if rng.chance(class.cancelled_permille) {
                    let patience = rng.below(span / 2);
                    let event = Event::GiveUp(self.host, self.life, seq);
                    env.events.push(env.now + patience, event);
                }
            }
            Err(error) => self.refused(env, probe, &error),
        }
    }

    /// The class of the next call.
    fn draw_class(&self, env: &Env, rng: &mut Rng) -> Option<usize> {
        let may_be = |class: &Class| class.only.is_none_or(|only| only == self.count);
        let weigh = |class: &Class| if may_be(class) { class.weight } else { 0 };
        let mut weights = env.scenario.classes.iter().map(weigh);
        let mut drawn = rng.below(weights.clone().sum());
        weights.position(|weight| {
            let here = drawn < weight;
            drawn = drawn.wrapping_sub(weight);
            here
        })
    }

    /// A call of a class (None: one of the last, which has to succeed): what it asks for, and how
    /// much time it has.
    fn spec(
        &self,
        env: &Env,
        class: Option<usize>,
        rng: &mut Rng,
        now: Instant,
    ) -> (Spec<Vec<u8>>, u64, Nanos) {
        let scenario = &env.scenario;
        let policy = class.map_or(PolicyId::NONE, |number| self.policies[number]);
        let class = class.map(|number| scenario.classes[number]);
        let span = class.map_or(10_000_000_000, |_| scenario.deadline.draw(rng));
        let mut asks = rng.next_u64();
        let class = class.unwrap_or(Class::plain());
        let id = class.key.map(|key| {
            let id = mix(mix(scenario.seed) ^ rng.below(key.keys));
            // All calls of a key ask for the same, but for those that misuse it.
            asks = id ^ u64::from(rng.chance(key.misused_permille));
            id
        });
        let payload = payload::request(asks, scenario.wires.length_of_request(scenario.seed, asks));
        let fingerprint = options::fingerprint(&payload);
        let fresh = class.asks.zip(scenario.lags.as_ref());
        let fresh = fresh.map(|(asks, lags)| asks.freshness(lags, env.now));
        let options = OptionSet {
            key: id.map(|id| Key { id: u128::from(id), fingerprint }),
            class: (class.traffic > 0).then_some(TrafficClass(class.traffic)),
            fresh: fresh.filter(|fresh| *fresh != Freshness::ANY),
            ..OptionSet::NONE
        };
        let method = match class {
            Class { key: Some(_), .. } => KEYED,
            Class { idempotent: true, .. } => IDEMPOTENT,
            Class { idempotent: false, .. } => ONCE,
        };
        let size = payload.len() as u32;
        // Of a method with keys its service does not say that it is, and so it is not, whoever holds it to be.
        let idempotent = class.idempotent && class.key.is_none();
        let deadline = now + Duration::from_nanos(span);
        let spec =
            Spec { size, policy, idempotent, options, ..Spec::new(method, payload, deadline) };
        (spec, asks, span)
    }

    fn refused(&mut self, env: &mut Env, probe: bool, error: &bowline_protocol::Error) {
        env.book.refused += 1;
        if !probe {
            env.failures.push(Failed { kind: error.kind, at: env.now, took: 0 });
        }
        env.note(self.host, Topic::World, &[12, self.id.0], || format!("can't call: {error}"));
        if probe || env.scenario.nothing_fails {
            let rule = if probe { Rule::Recovers } else { Rule::SurvivesOneFault };
            env.book.accuse(rule, None, format!("a call was refused: {error}"));
        }
    }

    fn give_up(&mut self, env: &mut Env, seq: u64, now: Instant) {
        let Some(call) = self.made.get(&seq).map(|made| made.call) else { return };
        env.note(self.host, Topic::Call(self.id.0, seq), &[13, seq], || "gives up".to_owned());
        if self.calls.cancel(call, now) {
            env.book.cancelled(self.id.0, seq);
            self.made.remove(&seq);
        }
    }

    fn done(&mut self, env: &mut Env, done: Done) {
        let seq = done.call.seq().0;
        let topic = Topic::Call(self.id.0, seq);
        let outcome = match done.result {
            Ok(()) => Outcome::Ok(done.outcome.winner.map(|winner| winner.n)),
            Err(error) => Outcome::Failed(error),
        };
        env.note(self.host, topic, &[14, self.id.0, seq, u64::from(done.result.is_ok())], || {
            format!("is told: {outcome:?}")
        });
        let connected = match outcome {
            Outcome::Ok(_) => Vec::new(),
            Outcome::Failed(_) => self.open(env),
        };
        let late = 3 * env.scenario.turn + 10;
        env.book.done((self.id.0, seq), outcome, &connected, self.thawed, late);
        let Some(made) = self.made.remove(&seq) else { return };
        if let (Err(error), false) = (done.result, made.probe) {
            env.failures.push(Failed { kind: error.kind, at: env.now, took: env.now - made.at });
        }
        match done.result {
            Ok(()) if made.probe => env.probes += 1,
            Ok(()) => {
                env.latencies.push(env.now - made.at);
                env.ends.push(env.now);
                let second = |n| n > 0 && done.outcome.tied;
                let won = done.outcome.winner.filter(|winner| winner.cause == Cause::First);
                env.second_wins += u64::from(won.is_some_and(|winner| second(winner.n)));
            }
            Err(error) if made.probe => {
                env.book.accuse(
                    Rule::Recovers,
                    Some(topic),
                    format!("a late call failed: {error}"),
                );
            }
            Err(error) if env.scenario.nothing_fails => {
                env.book.accuse(Rule::SurvivesOneFault, Some(topic), error.to_string());
            }
            Err(_) => {}
        }
    }

    fn effect(&mut self, env: &mut Env, effect: Effect, now: Instant) {
        match effect {
            Effect::Done(done) => self.done(env, done),
            Effect::Send { replica, call, request } => self.send(env, replica, call, request, now),
            Effect::Cancel { replica, cancel } => {
                env.book.client_cancels(&cancel);
                let Some((wire, _)) = self.way_to(replica) else { return };
                let Some(port) = self.ports.get_mut(&wire) else { return };
                if cancel.reason == CancelReason::CallerDone {
                    port.assembly.discard(cancel.attempt);
                }
                if let Some(bytes) = port.cut_request(cancel.attempt) {
                    // Nothing of it had left: its server will never hear of it.
                    port.credit.refund(bytes);
                    env.book.cut(cancel.attempt);
                    self.calls.on_cut(replica, cancel.attempt, bytes as u32, now);
                    env.book.room_came(self.host);
                } else {
                    port.put(&Frame::Cancel(cancel), now);
                }
            }
        }
    }

    fn send(
        &mut self,
        env: &mut Env,
        replica: ReplicaId,
        call: CallKey,
        request: Request,
        now: Instant,
    ) {
        let Some((wire, station)) = self.way_to(replica) else {
            let how = format!("{:?} for {replica:?}, which is gone", request.attempt);
            return env.book.accuse(Rule::SpeaksTheProtocol, None, how);
        };
        let until = self.clock.when(now + request.remaining);
        env.book.sent(&request, wire, env.host_of(station), until);
        let (Some(payload), Some(options), Some(port)) =
            (self.calls.payload(call), self.calls.options(call), self.ports.get_mut(&wire))
        else {
            return;
        };
        if !port.credit.try_request(payload.len()) {
            let topic = Some(Topic::Call(self.id.0, request.attempt.seq.0));
            let how =
                format!("{:?} is sent, and {:?} is left", request.attempt, port.credit.left());
            env.book.accuse(Rule::WithinCredit, topic, how);
        }
        if !port.request(request, options, payload, now) {
            env.book.accuse(Rule::SpeaksTheProtocol, None, "a server takes no such request");
        }
    }

    fn way_to(&self, id: ReplicaId) -> Option<(Wire, Station)> {
        let replica = self.replicas.iter().find(|replica| replica.id == id && replica.up)?;
        Some((replica.wire?, replica.station))
    }

    fn dial(&mut self, env: &mut Env, now: Instant) {
        for replica in &mut self.replicas {
            if replica.dial_at.is_none_or(|at| at > now) {
                continue;
            }
            replica.dial_at = None;
            let wire = env.dial(self.host, env.host_of(replica.station));
            let mut hello = Hello::client(self.id);
            (hello.features, hello.takes) = (FEATURES, Some(TAKES));
            let link = Link::dialled(hello, Some(replica.id), env.scenario.link, now);
            self.ports.insert(wire, Port::dialled(link, &env.scenario.wires));
            replica.wire = Some(wire);
        }
    }

    /// Tells all servers lies about the calls of others.
    pub(crate) fn forge(&mut self, env: &mut Env) {
        let now = self.clock.read(env.now);
        let mut others = env.book.live_copies();
        others.retain(|(attempt, _)| attempt.client != self.id);
        let lies = forged(&others, |_| true);
        for (&wire, port) in self.ports.iter_mut().filter(|(_, port)| port.link.is_up()) {
            lies.iter().for_each(|lie| port.put(&Frame::Cancel(*lie), now));
            port.flush(wire, env, now);
        }
    }

    /// Some call was made, and its end was not told yet.
    pub(crate) fn has_calls(&self) -> bool {
        !self.made.is_empty()
    }

    /// Some payload is on its way.
    pub(crate) fn is_sending(&self) -> bool {
        self.ports.values().any(|port| port.left().is_some())
    }

    /// When the loop has to turn next without any input.
    pub(crate) fn next_timeout(&self) -> Option<Nanos> {
        let links = self.ports.values().map(|port| port.link.next_timeout());
        let dials = self.replicas.iter().filter_map(|replica| replica.dial_at);
        let next = links.chain(dials).chain(self.calls.next_timeout()).min()?;
        Some(self.clock.when(next))
    }

    /// The machine's counters.
    pub(crate) fn counters(&self) -> Counters {
        self.calls.counters()
    }
}

impl Shell for Client {
    fn host(&self) -> Host {
        self.host
    }

    fn wires(&self) -> Vec<Wire> {
        self.ports.keys().copied().collect()
    }

    fn port(&mut self, wire: Wire) -> Option<&mut Port> {
        self.ports.get_mut(&wire)
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
            LinkEvent::Up => self.up(env, wire),
            LinkEvent::NotMine => self.frame(env, wire, frame, now)?,
            LinkEvent::Leaving => self.leaving(env, wire),
            _ => {}
        }
        let rtt = self.ports.get(&wire).and_then(|port| port.link.rtt());
        if let (Some(rtt), Some(replica)) = (rtt, self.replica_at(wire)) {
            let id = replica.id;
            self.calls.on_rtt(id, rtt);
        }
        Ok(())
    }

    fn drop_wire(&mut self, env: &mut Env, wire: Wire, why: &str, now: Instant) {
        self.ports.remove(&wire);
        let host = self.host;
        let Some(replica) = self.replica_at(wire) else { return };
        let id = replica.id;
        let was_up = std::mem::take(&mut replica.up);
        replica.wire = None;
        let loss = match was_up {
            true => Loss::Broken(Duration::from_nanos(env.now - replica.since)),
            false => Loss::Unreachable,
        };
        replica.dial_at = Some(now + replica.redial.after(loss).wait);
        env.note(host, Topic::World, &[15, wire.0], || format!("loses {id:?}: {why}"));
        if was_up {
            env.book.client_lost_wire(wire);
            self.calls.on_closed(id, now);
        }
    }
}

/// A full bucket.
pub(crate) fn bucket(scenario: &Scenario) -> Arc<Budget> {
    sane(Budget::new(scenario.budget).map(Arc::new))
}

/// The world's own settings are valid.
fn sane<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("the world's own configuration is refused: {error}"),
    }
}
