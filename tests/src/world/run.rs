//! The world runs: events in the order of time, until everything has been done and is at rest.

use std::collections::BTreeMap;

use crate::check::{Book, Homes, Rule};
use crate::kernel::clock::Clock;
use crate::kernel::events::Events;
use crate::kernel::net::{Arrival, End, Host, Net, Parcel, Wire};
use crate::kernel::rng::{Rng, mix};
use crate::kernel::span::{Nanos, Span};
use crate::kernel::timeline::Timeline;
use crate::world::client::{Client, bucket};
use crate::world::env::{Env, Event, Input};
use crate::world::report::Report;
use crate::world::scenario::Scenario;
use crate::world::server::Server;
use crate::world::store::Stores;
use crate::world::unread::Held;

/// Calls that each client makes after the last fault: they have to succeed.
const PROBES: u64 = 2;
/// The time between two of them.
const PROBE_GAP: Nanos = 5_000_000;
/// How often who reads slowly does so.
const SIP: Nanos = 20_000;
/// A payload that nobody waits for takes so long at the most: a slow link carries one segment per round
/// trip.
const LONGEST_WAY: Nanos = 10_000_000_000;
/// No run takes longer than this, in the world's time.
const END_OF_TIME: Nanos = 10_000_000_000_000;
/// Nor does so much happen while no call ends: machines that keep each other busy have no end.
const MOST_EVENTS: u64 = 20_000_000;

/// What runs on a host.
pub(super) enum Machine {
    Server(Box<Server>),
    Client(Box<Client>),
    /// Nothing. If it lost power, its network card does not even refuse.
    Dead {
        silent: bool,
    },
}

/// A core of a process.
pub(super) struct Node {
    pub(super) machine: Machine,
    pub(super) clock: Clock,
    pub(super) life: u32,
    /// Faults that hold it down, and that freeze it.
    pub(super) down: u32,
    pub(super) frozen: u32,
    /// Faults by which it reads slowly.
    pub(super) sips: u32,
    pub(super) slow: u64,
    pub(super) behind: Nanos,
    pub(super) thawed: Nanos,
    pub(super) inbox: Vec<Input>,
    pub(super) turn_due: bool,
    pub(super) busy_until: Nanos,
    pub(super) wake: Option<Nanos>,
    /// Calls that its user has still to make.
    pub(super) calls_left: u64,
    /// Stands for all that it was ever told, and when; kept in a search only.
    pub(super) history: u64,
}

/// Where a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Calls are made, things go wrong.
    Work,
    /// All is over but for what has to come to rest, until then.
    Calm(Nanos),
    /// The last calls are made, and all comes to rest again.
    Rest(Nanos),
}

/// A world that runs.
pub struct World {
    pub(super) env: Env,
    pub(super) nodes: Vec<Node>,
    phase: Phase,
    pub(super) faults: u64,
    pub(super) healed: usize,
    /// Somebody searches, and wants to know states that were seen before.
    pub(super) searched: bool,
}

/// Runs a scenario once more, to be read.
pub fn replay(scenario: &Scenario) -> Report {
    World::new(scenario.clone(), true).run()
}

impl World {
    /// A world at its beginning; `readable` keeps the lines of its record.
    pub fn new(scenario: Scenario, readable: bool) -> World {
        let mut net = Net::new(scenario.seed, scenario.delay.clone());
        net.set_split(scenario.split_permille);
        let homes = Homes { shared: scenario.shared_results, cores: scenario.cores };
        let mut env = Env {
            now: 0,
            net,
            events: Events::new(scenario.seed),
            book: Book::new(scenario.retry.is_some(), homes),
            budget: scenario.one_budget.then(|| bucket(&scenario)),
            allowances: BTreeMap::new(),
            stores: Stores::new(scenario.shared_results),
            truths: BTreeMap::new(),
            timeline: Timeline::new(readable),
            frames: 0,
            latencies: Vec::new(),
            ends: Vec::new(),
            failures: Vec::new(),
            probes: 0,
            second_wins: 0,
            held: Held::default(),
            dead_clients: Vec::new(),
            dead_servers: Vec::new(),
            scenario,
        };
        set_mesh_delay(&mut env);
        let mut world = World {
            env,
            nodes: Vec::new(),
            phase: Phase::Work,
            faults: 0,
            healed: 0,
            searched: false,
        };
        world.set_delays();
        world.populate();
        world
    }

    fn set_delays(&mut self) {
        for (from, to, delay) in self.env.scenario.links.clone() {
            for from in self.hosts_of(from) {
                for to in self.hosts_of(to) {
                    self.env.net.set_delay(from, to, delay.clone());
                }
            }
        }
    }

    fn populate(&mut self) {
        let scenario = &self.env.scenario;
        let hosts = scenario.servers * scenario.cores + scenario.clients;
        let (seed, ppm, calls) = (scenario.seed, scenario.ppm, scenario.calls);
        let faults = scenario.faults.clone();
        let mut rng = Rng::labelled(seed, 3);
        for host in (0..hosts).map(Host) {
            let ppm = rng.below(2 * ppm.unsigned_abs() as u64 + 1) as i32 - ppm;
            self.nodes.push(Node {
                machine: Machine::Dead { silent: true },
                clock: Clock { offset: rng.below(1 << 40), ppm },
                life: 0,
                down: 0,
                frozen: 0,
                sips: 0,
                slow: 100,
                behind: 0,
                thawed: 0,
                inbox: Vec::new(),
                turn_due: false,
                busy_until: 0,
                wake: None,
                calls_left: if self.is_client(host) { calls } else { 0 },
                history: 0,
            });
            self.bring_up(host);
        }
        for (number, fault) in faults.iter().enumerate() {
            self.env.events.push(fault.at, Event::Fault(number));
        }
    }

    pub(super) const fn is_client(&self, host: Host) -> bool {
        host.0 >= self.env.scenario.servers * self.env.scenario.cores
    }

    pub(super) fn hosts_of(&self, process: usize) -> Vec<Host> {
        let (servers, cores) = (self.env.scenario.servers, self.env.scenario.cores);
        if process < servers {
            (process * cores..(process + 1) * cores).map(Host).collect()
        } else {
            vec![Host(servers * cores + process - servers)]
        }
    }

    pub(super) fn bring_up(&mut self, host: Host) {
        let client = self.is_client(host);
        let node = &mut self.nodes[host.0];
        node.machine = if client {
            Machine::Client(Box::new(Client::new(&self.env, host, node.life, node.clock)))
        } else {
            let mut server = Server::new(&self.env, host, node.life, node.clock);
            (server.slow, server.behind) = (node.slow, node.behind);
            Machine::Server(Box::new(server))
        };
        let life = node.life;
        if client && node.calls_left > 0 {
            let gap = self.env.scenario.gap.clone();
            let first = gap.draw(&mut Rng::labelled(self.env.scenario.seed, 4 + host.0 as u64));
            let at = self.env.now + self.env.scenario.warm_up + first;
            self.env.events.push(at, Event::Call(host, life));
        }
        self.want_turn(host);
    }

    /// Runs to the end, or to the first rule that is broken.
    pub fn run(mut self) -> Report {
        self.advance(|_| true);
        self.report()
    }

    /// Runs like [`World::run`], and asks now and then, with the number of calls that have ended,
    /// whether to go on: None if not.
    pub fn run_while(mut self, go_on: impl FnMut(u64) -> bool) -> Option<Report> {
        self.advance(go_on).then(|| self.report())
    }

    /// False if it was not to go on.
    fn advance(&mut self, mut go_on: impl FnMut(u64) -> bool) -> bool {
        /// Events between two questions: some milliseconds.
        const OFTEN: u64 = 1 << 12;
        let (mut events, mut ended, mut since) = (0_u64, 0, 0_u64);
        while let Some((at, event)) = self.env.events.pop() {
            self.step(at, event);
            if self.env.book.broken().is_some() || self.is_over() {
                break;
            }
            events += 1;
            if events.is_multiple_of(OFTEN) {
                let before = std::mem::replace(&mut ended, self.ended());
                since = if before == ended { since + OFTEN } else { 0 };
                if since > MOST_EVENTS {
                    self.env.book.accuse(Rule::Recovers, None, "events go on, and no call ends");
                    break;
                }
                if !go_on(ended) {
                    return false;
                }
            }
        }
        true
    }

    /// Calls that have ended.
    const fn ended(&self) -> u64 {
        (self.env.latencies.len() + self.env.failures.len()) as u64
    }

    pub(super) fn step(&mut self, at: Nanos, event: Event) {
        self.env.now = self.env.now.max(at);
        self.env.book.set_now(self.env.now);
        match event {
            Event::Arrival(arrival) => self.arrive(arrival),
            Event::Wake(host, life) => self.wake(host, life),
            Event::Turn(host, life) => self.turn(host, life),
            Event::Handler(host, life, key) => self.give(host, life, Input::Handler(key)),
            Event::Call(host, life) => self.call(host, life),
            Event::GiveUp(host, life, call) => self.give(host, life, Input::GiveUp(call)),
            Event::Tick => {}
            Event::Fault(number) => self.strike(number),
            Event::Heal(number) => self.heal(number),
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        let Arrival { wire, at } = arrival;
        let to = self.env.net.host(wire, at);
        let (Some(host), Some(parcel)) = (to, self.env.net.arrive(arrival)) else { return };
        self.env.timeline.mix(self.env.now, &[1, wire.0, at as u64, parcel.digest()]);
        let input = match parcel {
            Parcel::Knock => return self.knock(host, wire),
            Parcel::Connected => Input::Connected(wire),
            Parcel::Bytes(bytes) => Input::Bytes(wire, bytes),
            Parcel::Read(count) => Input::Read(wire, count),
            Parcel::Closed => Input::Closed(wire),
        };
        self.give(host, self.nodes[host.0].life, input);
    }

    /// The kernel answers, even if the process stands still.
    fn knock(&mut self, host: Host, wire: Wire) {
        let open = match self.nodes[host.0].machine {
            Machine::Dead { silent: true } => return self.env.net.vanish(wire, End::Listener),
            Machine::Dead { silent: false } => false,
            Machine::Server(ref server) => !server.is_leaving(),
            Machine::Client(_) => true,
        };
        let due = self.env.net.answer(wire, open, self.env.now);
        self.env.schedule(due);
        if open {
            self.give(host, self.nodes[host.0].life, Input::Knock(wire));
        }
    }

    /// Input for a host: it waits for the host's next turn.
    pub(super) fn give(&mut self, host: Host, life: u32, input: Input) {
        let node = &mut self.nodes[host.0];
        if node.life == life && !matches!(node.machine, Machine::Dead { .. }) {
            node.inbox.push(input);
            self.want_turn(host);
        }
    }

    pub(super) fn want_turn(&mut self, host: Host) {
        let node = &mut self.nodes[host.0];
        if node.frozen == 0 && !std::mem::replace(&mut node.turn_due, true) {
            let at = self.env.now.max(node.busy_until);
            self.env.events.push(at, Event::Turn(host, node.life));
        }
    }

    fn wake(&mut self, host: Host, life: u32) {
        let node = &mut self.nodes[host.0];
        if node.life == life && node.wake.is_some_and(|at| at <= self.env.now) {
            node.wake = None;
            self.want_turn(host);
        }
    }

    fn turn(&mut self, host: Host, life: u32) {
        let node = &mut self.nodes[host.0];
        if node.life != life {
            return;
        }
        node.turn_due = false;
        if node.frozen > 0 {
            return;
        }
        let all = node.inbox.len();
        let taken = if node.sips > 0 { all.min(1) } else { all };
        let input: Vec<Input> = node.inbox.drain(..taken).collect();
        if self.searched {
            node.history = mix(input.iter().fold(node.history ^ self.env.now, Input::mix_into));
        }
        node.busy_until = self.env.now + self.env.scenario.turn;
        let next = match &mut node.machine {
            Machine::Server(server) => {
                server.turn(&mut self.env, input);
                server.next_timeout()
            }
            Machine::Client(client) => {
                client.turn(&mut self.env, input, node.thawed);
                client.next_timeout()
            }
            Machine::Dead { .. } => return,
        };
        if taken < all {
            // Nothing is asked of who reads slowly but that it goes on.
            node.thawed = self.env.now + SIP;
            node.turn_due = true;
            self.env.events.push(node.thawed, Event::Turn(host, life));
        }
        let Some(next) = next else { return };
        // What is due already, was due in this turn, too: the machine must have seen to it.
        let next = next.max(self.env.now + 1);
        if node.wake.is_none_or(|at| next < at) {
            node.wake = Some(next);
            self.env.events.push(next, Event::Wake(host, life));
        }
    }

    /// A user makes a call, and will make the next after a while.
    fn call(&mut self, host: Host, life: u32) {
        let node = &mut self.nodes[host.0];
        if node.life != life {
            return;
        }
        let probe = node.calls_left == 0;
        if !probe {
            node.calls_left -= 1;
        } else if matches!(&node.machine, Machine::Client(client) if client.has_calls()) {
            // The last one is still on a slow link, and a client may have a single call.
            self.env.events.push(self.env.now + PROBE_GAP, Event::Call(host, life));
            return;
        }
        if node.calls_left > 0 {
            let label = (host.0 as u64) << 32 | node.calls_left | 1 << 60;
            let mut rng = Rng::labelled(self.env.scenario.seed, label);
            let gap = self.env.scenario.gap_before(node.calls_left, self.env.now, &mut rng);
            self.env.events.push(self.env.now + gap, Event::Call(host, life));
        }
        self.give(host, life, Input::Call { probe });
    }

    /// Moves the run on to its next phase when this one is over; true at the end.
    fn is_over(&mut self) -> bool {
        let settle = self.env.scenario.settle;
        let now = self.env.now;
        if now > END_OF_TIME {
            self.env.book.accuse(Rule::Recovers, None, "the world does not come to its end");
            return true;
        }
        match self.phase {
            Phase::Work => {
                let healed = self.healed == self.env.scenario.faults.len();
                let left = self.nodes.iter().any(|node| node.calls_left > 0);
                if healed && !left && self.env.book.open() == 0 && !self.has_calls_to_make() {
                    self.phase = Phase::Calm(now + settle);
                    self.env.events.push(now + settle, Event::Tick);
                }
            }
            Phase::Calm(until) if now >= until && !self.is_busy(until) => {
                self.phase = Phase::Rest(now + settle);
                self.env.events.push(now + settle, Event::Tick);
                // The last calls are easy ones, and come one by one.
                self.env.scenario.service.error_permille = 0;
                self.env.scenario.service.span = Span::Fixed(50_000);
                self.env.scenario.service.trace = None;
                // What takes many round trips on a slow link would not be over by then.
                self.env.scenario.wires.request = Span::Fixed(16);
                self.env.scenario.wires.reply = Span::Fixed(16);
                self.probe();
            }
            Phase::Rest(until) if now >= until => {
                self.judge_rest();
                return true;
            }
            Phase::Calm(_) | Phase::Rest(_) => {}
        }
        false
    }

    /// Every client makes a few more calls, at its leisure.
    fn probe(&mut self) {
        let first = self.env.scenario.servers * self.env.scenario.cores;
        let mut at = self.env.now;
        for host in (first..self.nodes.len()).map(Host) {
            for _ in 0..PROBES {
                at += PROBE_GAP;
                self.env.events.push(at, Event::Call(host, self.nodes[host.0].life));
            }
        }
    }

    /// Some handler still runs, or what nobody waits for any more is on its way, over a slow link.
    fn is_busy(&self, calm: Nanos) -> bool {
        let patient = self.env.now < calm + LONGEST_WAY;
        let busy = |node: &Node| match &node.machine {
            Machine::Server(server) => server.is_busy() || patient && server.is_receiving(),
            Machine::Client(client) => patient && client.is_sending(),
            Machine::Dead { .. } => false,
        };
        self.nodes.iter().any(busy)
    }

    fn has_calls_to_make(&self) -> bool {
        let call = |input: &Input| matches!(input, Input::Call { .. });
        self.nodes.iter().any(|node| node.inbox.iter().any(call))
    }

    fn judge_rest(&mut self) {
        self.env.book.judge_rest();
        for node in &self.nodes {
            match &node.machine {
                Machine::Server(server) => server.judge_rest(&mut self.env),
                Machine::Client(client) => client.judge_rest(&mut self.env),
                Machine::Dead { .. } => {}
            }
        }
    }

    pub(super) fn report(self) -> Report {
        let World { env, nodes, faults, .. } = self;
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for node in &nodes {
            match &node.machine {
                Machine::Server(server) => servers.push(server.stats()),
                Machine::Client(client) => clients.push(client.counters()),
                Machine::Dead { .. } => {}
            }
        }
        clients.extend(env.dead_clients);
        servers.extend(env.dead_servers);
        let broken = env.book.broken().cloned();
        let topic = broken.as_ref().and_then(|broken| broken.topic);
        Report {
            seed: env.scenario.seed,
            hash: env.timeline.hash(),
            lasted: env.now,
            events: env.timeline.events(),
            frames: env.frames,
            faults,
            sends: env.book.sends,
            starts: env.book.starts,
            double_starts: env.book.double_starts,
            succeeded: env.book.succeeded,
            failed: env.book.failed,
            latencies: env.latencies,
            ends: env.ends,
            failures: env.failures,
            probes: env.probes,
            second_wins: env.second_wins,
            held: env.held,
            clients,
            servers,
            timeline: env.timeline.read(topic),
            broken,
        }
    }
}

fn set_mesh_delay(env: &mut Env) {
    let Some(delay) = env.scenario.mesh_delay.clone() else { return };
    let servers = env.scenario.servers * env.scenario.cores;
    for a in (0..servers).map(Host) {
        for b in (0..servers).map(Host).filter(|&b| b != a) {
            env.net.set_delay(a, b, delay.clone());
        }
    }
}
