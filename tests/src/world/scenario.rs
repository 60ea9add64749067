//! A world as data: what it is made of, and what will happen to it.

use core::time::Duration;

use bowline_client::core::{BudgetConfig, PickRule, Policy, RetryConfig};
use bowline_protocol::{Credit, LinkConfig};
use bowline_server::core::KeyLimits;

use crate::kernel::rng::{Rng, mix};
use crate::kernel::span::{Nanos, Span};
use crate::kernel::trace::Trace;
use crate::world::fault::Fault;
use crate::world::lag::{Asks, Lags};

/// Everything that a run needs. The same scenario runs the same way on every machine.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Names all random draws.
    pub seed: u64,
    /// Replicas.
    pub servers: usize,
    /// Cores of each replica.
    pub cores: usize,
    /// What each core of a replica may hold.
    pub server: ServerSetup,
    /// The shares of traffic classes of each core's slots, from class 0 on; up to four.
    pub shares: Vec<u32>,
    /// What a core of a replica remembers of keys.
    pub keys: KeyLimits,
    /// Replicas keep the results of keyed methods in one store; else each in one of its own.
    pub shared_results: bool,
    /// What is written elsewhere, and how far replicas are behind that; None: nothing.
    pub lags: Option<Lags>,
    /// How long payloads are, and how they travel.
    pub wires: Wires,
    /// How much may wait on a core for clients to read; None: more than ever does.
    pub room: Option<Room>,
    /// Whether replicas dial each other; without a mesh clients relay.
    pub mesh: bool,
    /// Client processes, each of one core.
    pub clients: usize,
    /// What each of them may hold.
    pub client: ClientSetup,
    /// Calls that each client makes.
    pub calls: u64,
    /// The time between two calls of a client, whether they are answered or not.
    pub gap: Span,
    /// At the end calls come at so many percent of the rate at the beginning.
    pub ramp_percent: u64,
    /// For a while calls come faster.
    pub surge: Option<Surge>,
    /// How much time a call is given.
    pub deadline: Span,
    /// The kinds of calls, of which each call draws one.
    pub classes: Vec<Class>,
    /// How long handlers take, and when they look at their cancel token.
    pub service: Service,
    /// How long a parcel is under way.
    pub delay: Span,
    /// How long a parcel is under way between servers, if that is different.
    pub mesh_delay: Option<Span>,
    /// Links with a delay of their own: from which process, to which.
    pub links: Vec<(usize, usize, Span)>,
    /// How many of a thousand sends arrive in two pieces.
    pub split_permille: u64,
    /// How long a turn of a machine's loop takes: what arrives meanwhile waits for the next.
    pub turn: Nanos,
    /// Servers look at their timers after their queue, not before it.
    pub timers_last: bool,
    /// Clocks run at rates of up to so many parts per million from the world's.
    pub ppm: i32,
    /// How long clients wait after their start before they make calls, so that they are connected.
    pub warm_up: Nanos,
    /// How clients choose replicas.
    pub pick: PickRule,
    /// How long clients believe a server's report of its load; 0: not at all.
    pub load_lifetime: Nanos,
    /// The extra copies that a client can afford.
    pub budget: BudgetConfig,
    /// All clients pay out of one bucket, as the cores of one process do.
    pub one_budget: bool,
    /// Whether and how calls that every replica refused are tried again.
    pub retry: Option<RetryConfig>,
    /// How patient links are.
    pub link: LinkConfig,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// No call may fail: there is never more than one fault, and always time and room.
    pub nothing_fails: bool,
    /// How long everything may take to come to rest after the last call and the last fault.
    pub settle: Nanos,
}

/// A while in which calls come at so many percent of their rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Surge {
    /// When it begins.
    pub from: Nanos,
    /// When it is over.
    pub until: Nanos,
    /// How much it changes the rate, in percent.
    pub percent: u64,
}

impl Surge {
    const fn covers(self, now: Nanos) -> bool {
        self.from <= now && now < self.until
    }
}

/// What a server's core may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerSetup {
    /// Copies that run at a time.
    pub slots: u32,
    /// Copies that wait.
    pub queue: u32,
    /// Tombstones; 0 loses them all.
    pub tombstones: u32,
}

/// What a client may hold, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientSetup {
    /// Calls that wait at a time; more are refused.
    pub max_calls: u32,
    /// How long the copies of a finished call are watched.
    pub watch: Duration,
    /// How far back the estimate of latencies looks.
    pub latency_window: Duration,
}

/// A kind of calls.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Class {
    /// How often it is drawn, against the others.
    pub weight: u64,
    /// Of each client's calls only this one, counted from 1, is of this kind; None: any may be.
    pub only: Option<u64>,
    /// What is done against its tail.
    pub policy: Policy,
    /// Whether it may run twice.
    pub idempotent: bool,
    /// Callers give up so many of a thousand of these calls before they end.
    pub cancelled_permille: u64,
    /// Its traffic class.
    pub traffic: u8,
    /// Its calls bring keys: their effects are had once in each store.
    pub key: Option<KeyUse>,
    /// How fresh their answers have to be; None, or in a world without lags: as they come.
    pub asks: Option<Asks>,
}

/// How calls of a kind use keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyUse {
    /// They draw one of so many keys; calls with the same one ask for the same thing.
    pub keys: u64,
    /// But so many of a thousand use it for another.
    pub misused_permille: u64,
}

/// How long payloads are, in bytes, and how they travel.
#[derive(Clone, PartialEq, Debug)]
pub struct Wires {
    /// Of requests.
    pub request: Span,
    /// Of replies.
    pub reply: Span,
    /// Longer ones go in segments of so many bytes.
    pub segment: u32,
    /// A kernel takes so many bytes that the other end has not read. None: any number, and whatever
    /// is sent in a turn arrives in one piece.
    pub window: Option<usize>,
    /// So many bytes of requests may be on their way on a connection; those beyond are refused.
    pub requests_bytes: usize,
    /// What a client may have under way on a connection. None: nobody counts.
    pub credit: Option<Credit>,
}

/// How many bytes of replies may wait on a core until they are read: then copies are held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// For one client.
    pub each: usize,
    /// For all.
    pub all: usize,
}

/// How handlers behave.
#[derive(Clone, PartialEq, Debug)]
pub struct Service {
    /// How long they take.
    pub span: Span,
    /// How long they take at which replica and when; then `span` is not drawn from.
    pub trace: Option<Trace>,
    /// All copies of a call take equally long, as if the time were the data's. Otherwise each
    /// copy draws its own, as if it were the replica's.
    pub identical: bool,
    /// When they look at their cancel token.
    pub look: Look,
    /// Handlers answer so many of a thousand copies with an error.
    pub error_permille: u64,
}

/// When a handler looks at its cancel token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Never: it runs to its end.
    Never,
    /// At once.
    AtOnce,
    /// At so many points, evenly spread.
    Points(u32),
}

impl Scenario {
    /// A small world in which nothing goes wrong: three replicas of one core, one client, and calls
    /// that come about as fast as two fifths of the replicas could serve.
    pub fn calm(seed: u64) -> Scenario {
        Scenario {
            seed,
            servers: 3,
            cores: 1,
            server: ServerSetup { slots: 1, queue: 64, tombstones: 64 },
            shares: vec![1],
            keys: KeyLimits::default(),
            shared_results: true,
            lags: None,
            wires: Wires {
                request: Span::Fixed(8),
                reply: Span::Fixed(16),
                segment: 32 << 10,
                window: None,
                requests_bytes: 1 << 20,
                credit: None,
            },
            room: None,
            mesh: true,
            clients: 1,
            client: ClientSetup {
                max_calls: 1 << 12,
                watch: Duration::from_millis(60),
                latency_window: Duration::from_millis(500),
            },
            calls: 20,
            gap: Span::Exponential { mean: 800_000 },
            ramp_percent: 100,
            surge: None,
            deadline: Span::Fixed(200_000_000),
            classes: vec![Class::plain()],
            service: Service {
                span: Span::Exponential { mean: 1_000_000 },
                trace: None,
                identical: false,
                look: Look::Points(3),
                error_permille: 0,
            },
            delay: Span::Uniform(20_000, 60_000),
            mesh_delay: None,
            links: Vec::new(),
            split_permille: 0,
            turn: 2_000,
            timers_last: false,
            ppm: 0,
            warm_up: 2_000_000,
            pick: PickRule::PowerOfTwo,
            load_lifetime: 20_000_000,
            budget: BudgetConfig {
                fraction: 0.1,
                per_second: 0.0,
                burst: 1000,
                outstanding: 1000,
                drain: 1.0,
            },
            one_budget: false,
            retry: None,
            link: LinkConfig {
                hello_timeout: Duration::from_millis(100),
                ping_after: Duration::from_millis(10),
                dead_after: Duration::from_millis(30),
            },
            faults: Vec::new(),
            nothing_fails: false,
            settle: 500_000_000,
        }
    }

    /// The time before the next call of a client that has so many still to make.
    pub(crate) fn gap_before(&self, left: u64, now: Nanos, rng: &mut Rng) -> Nanos {
        let made = self.calls.saturating_sub(left);
        let more = self.ramp_percent as f64 / 100.0 - 1.0;
        let ramp = 1.0 + more * made as f64 / self.calls.max(1) as f64;
        let surge = self.surge.filter(|surge| surge.covers(now));
        let rate = surge.map_or(ramp, |surge| ramp * surge.percent as f64 / 100.0);
        (self.gap.draw(rng) as f64 / rate) as Nanos
    }

    /// Processes: the servers first, then the clients.
    pub const fn processes(&self) -> usize {
        self.servers + self.clients
    }
}

impl Wires {
    /// How long a request is that asks for this.
    pub(crate) fn length_of_request(&self, seed: u64, asks: u64) -> usize {
        self.request.draw(&mut Rng::labelled(seed, mix(asks))) as usize
    }

    /// How long the answer to it is.
    pub(crate) fn length_of_reply(&self, seed: u64, asks: u64) -> usize {
        self.reply.draw(&mut Rng::labelled(seed, mix(asks) ^ 1)) as usize
    }
}

impl Class {
    /// Idempotent calls with one copy each.
    pub const fn plain() -> Class {
        Class {
            weight: 1,
            only: None,
            policy: Policy::None,
            idempotent: true,
            cancelled_permille: 0,
            traffic: 0,
            key: None,
            asks: None,
        }
    }

    /// Idempotent calls under a policy.
    pub const fn with(policy: Policy) -> Class {
        Class { policy, ..Class::plain() }
    }
}
