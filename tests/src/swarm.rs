//! Worlds by the seed: each draws its own mix of sizes, policies, loads and faults (swarm testing:
//! Groce and others, 2012), so that every few seeds lack what would mask a fault in the others.

use core::time::Duration;

use bowline_client::core::{
    AutoOff, BudgetConfig, Delay, HedgePolicy, Percentile, PickRule, Policy, RetryConfig, Stagger,
    TiePolicy,
};
use bowline_protocol::{Credit, LinkConfig};
use bowline_server::core::KeyLimits;

use crate::kernel::empirical::Empirical;
use crate::kernel::rng::Rng;
use crate::kernel::span::{Nanos, Span};
use crate::kernel::trace::{Seen, Trace};
use crate::world::{
    Asks, Class, Fault, KeyUse, Lag, Lags, Look, Room, Scenario, ServerSetup, Service, Teller,
    What, Wires,
};

const US: Nanos = 1_000;
const MS: Nanos = 1_000_000;

/// The world that a seed names. Every fourth has one fault at most, time and room, and no call in
/// it may fail; the others may have anything.
pub fn scenario(seed: u64) -> Scenario {
    if seed.is_multiple_of(4) { gentle(seed) } else { wild(seed) }
}

/// Anything goes.
pub fn wild(seed: u64) -> Scenario {
    let mut rng = Rng::labelled(seed, 100);
    let mut scenario = sized(&mut rng, seed);
    let service = mean_service(&mut rng);
    let tight = rng.chance(300);
    let most = if tight { 10 } else { 100 };
    scenario.deadline = Span::Uniform(service, service * most);
    scenario.service = Service {
        span: service_span(&mut rng, service),
        trace: None,
        identical: rng.chance(300),
        look: rng.pick(&[Look::Never, Look::AtOnce, Look::Points(1), Look::Points(4)]),
        error_permille: rng.pick(&[0, 0, 0, 30, 300]),
    };
    let percent = rng.between(20, 150);
    scenario.gap = Span::Exponential { mean: gap_for(&scenario, service, percent) };
    let kinds = rng.between(1, 4);
    scenario.classes = (0..kinds).map(|_| class(&mut rng, service)).collect();
    scenario.budget = budget(&mut rng);
    scenario.ramp_percent = rng.pick(&[100, 100, 300, 1000]);
    scenario.retry = rng.chance(300).then(|| RetryConfig {
        most: rng.between(1, 3) as u8,
        first: Duration::from_nanos(rng.between(10 * US, 10 * MS)),
        max: Duration::from_millis(20),
    });
    furnish(&mut scenario, false);
    let faults = rng.below(6);
    let span = scenario.calls * gap_for(&scenario, service, percent) + 2 * MS;
    scenario.faults = (0..faults).map(|_| fault(&mut rng, &scenario, span)).collect();
    let_lag(&mut scenario, span, false);
    widen(&mut scenario, service, span, false);
    have_read(&mut scenario);
    scenario
}

/// At most one fault, and time and room enough: no call may fail.
pub fn gentle(seed: u64) -> Scenario {
    let mut rng = Rng::labelled(seed, 101);
    let mut scenario = sized(&mut rng, seed);
    let service = mean_service(&mut rng);
    scenario.server.queue = 1024;
    scenario.deadline = Span::Fixed(5_000 * MS);
    scenario.service = Service {
        span: service_span(&mut rng, service),
        trace: None,
        identical: rng.chance(300),
        look: rng.pick(&[Look::Never, Look::AtOnce, Look::Points(4)]),
        error_permille: 0,
    };
    let percent = rng.between(10, 40);
    scenario.gap = Span::Exponential { mean: gap_for(&scenario, service, percent) };
    let kinds = rng.between(1, 3);
    scenario.classes = (0..kinds)
        .map(|_| Class { idempotent: true, cancelled_permille: 0, ..class(&mut rng, service) })
        .collect();
    scenario.budget = BudgetConfig { outstanding: 4096, burst: 4096, ..budget(&mut rng) };
    scenario.nothing_fails = true;
    furnish(&mut scenario, true);
    let span = scenario.calls * gap_for(&scenario, service, percent) + 2 * MS;
    if rng.chance(800) {
        let fault = fault(&mut rng, &scenario, span);
        scenario.faults = vec![fault];
    }
    let_lag(&mut scenario, span, true);
    widen(&mut scenario, service, span, true);
    have_read(&mut scenario);
    scenario
}

fn sized(rng: &mut Rng, seed: u64) -> Scenario {
    let delay = rng.pick(&[2 * US, 20 * US, 100 * US, 500 * US]);
    let delay_span = match rng.below(4) {
        0 => Span::Fixed(delay),
        1 => Span::Uniform(delay / 4, delay),
        2 => Span::Exponential { mean: delay / 2 },
        _ => Span::Bimodal { short: delay / 4, long: delay * 4, long_permille: 50 },
    };
    Scenario {
        servers: rng.between(2, 4) as usize,
        cores: if rng.chance(700) { 1 } else { 2 },
        server: ServerSetup {
            slots: rng.between(1, 4) as u32,
            queue: rng.pick(&[1, 4, 16, 64]),
            tombstones: rng.pick(&[0, 1, 64, 64]),
        },
        mesh: rng.chance(750),
        clients: rng.between(1, 3) as usize,
        calls: rng.between(3, 40),
        delay: delay_span,
        mesh_delay: rng.chance(250).then(|| Span::Uniform(delay, 20 * delay)),
        split_permille: rng.pick(&[0, 0, 300]),
        turn: rng.pick(&[0, US, 5 * US, 50 * US]),
        ppm: rng.pick(&[0, 200]),
        timers_last: rng.chance(500),
        warm_up: 40 * delay + MS,
        pick: rng.pick(&[PickRule::PowerOfTwo, PickRule::PowerOfTwo, PickRule::RoundRobin]),
        link: LinkConfig {
            hello_timeout: Duration::from_millis(40),
            ping_after: Duration::from_millis(15),
            dead_after: Duration::from_millis(30),
        },
        settle: 120 * MS,
        ..Scenario::calm(seed)
    }
}

/// What goes over the wires, in which classes, and what of it is to be done once: every few worlds
/// have something of each. In a gentle world it is such that no call need fail.
fn furnish(scenario: &mut Scenario, gentle: bool) {
    let mut rng = Rng::labelled(scenario.seed, 102);
    if rng.chance(400) {
        scenario.wires = wires(&mut rng, gentle);
    }
    if rng.chance(300) {
        let classes = rng.between(2, 4);
        scenario.shares = (0..classes).map(|_| rng.pick(&[1, 1, 2, 5])).collect();
        // One class more than there are: its calls count as those of the first.
        scenario.classes.iter_mut().for_each(|class| class.traffic = rng.between(0, classes) as u8);
        if scenario.classes.len() == 1 {
            scenario.classes.push(Class { traffic: 1, ..scenario.classes[0] });
        }
    }
    if rng.chance(300) {
        let few = KeyLimits { results: rng.below(3) as u32, ..KeyLimits::default() };
        scenario.keys = if rng.chance(300) { few } else { KeyLimits::default() };
        scenario.shared_results = gentle || rng.chance(500);
        for class in &mut scenario.classes {
            if rng.chance(400) {
                continue;
            }
            let misused_permille = if gentle { 0 } else { rng.pick(&[0, 0, 100]) };
            class.key = Some(KeyUse { keys: rng.between(1, scenario.calls), misused_permille });
        }
    }
}

/// Something is written elsewhere, replicas follow, and calls want their answers fresh. In a gentle
/// world the first two replicas hold all that any call asks for, unless something befalls one of them.
fn let_lag(scenario: &mut Scenario, span: Nanos, gentle: bool) {
    let mut rng = Rng::labelled(scenario.seed, 103);
    if !rng.chance(300) {
        return;
    }
    let replicas = (0..scenario.servers).map(|replica| {
        let loses = rng.pick(&[0, MS, 100 * MS]);
        if gentle && replica < 2 {
            let told_by = rng.pick(&[Teller::Replica, Teller::Handler]);
            return Lag { loses, told_by, ..Lag::NONE };
        }
        Lag {
            behind: rng.pick(&[0, 0, 100 * US, 5 * MS, 400 * MS]),
            stalls: rng.pick(&[None, None, Some(2 * MS), Some(20 * MS)]),
            loses,
            told_by: rng.pick(&[Teller::Replica, Teller::Replica, Teller::Handler, Teller::Nobody]),
        }
    });
    let replicas = replicas.collect();
    scenario.lags = Some(Lags { every: rng.pick(&[20 * US, MS, 20 * MS]), replicas });
    for class in &mut scenario.classes {
        let asks = Asks {
            written: rng.pick(&[None, Some(0), Some(0), Some(3 * MS), Some(50 * MS)]),
            within: match gentle {
                // Longer than any handler takes that is not slowed.
                true => rng.pick(&[None, Some(300 * MS)]),
                false => rng.pick(&[None, None, Some(MS), Some(10 * MS), Some(100 * MS)]),
            },
        };
        // What was done once for a key only gets older.
        if rng.chance(700) && !(gentle && class.key.is_some()) {
            class.asks = Some(asks);
        }
    }
    if rng.chance(400) && (scenario.faults.is_empty() || !gentle) {
        let server = rng.below(scenario.servers as u64) as usize;
        let what = What::FallBehind(server, rng.pick(&[MS, 20 * MS, 1000 * MS]));
        let longest = rng.pick(&[MS, 20 * MS]);
        let lasts = 1 + rng.below(longest);
        scenario.faults.push(Fault { at: rng.below(span), lasts, what });
    }
}

/// What only a few worlds have: a budget that time refills or that all clients share, clients that take
/// on little, hedging that switches itself off soon, other ways to pick, a slow network, and service
/// times as they were measured, alone or together.
fn widen(scenario: &mut Scenario, service: Nanos, span: Nanos, gentle: bool) {
    let mut rng = Rng::labelled(scenario.seed, 104);
    if rng.chance(250) {
        scenario.budget.per_second = rng.pick(&[1.0, 50.0, 1000.0]);
    }
    // The cores of one process die together.
    let servers = scenario.servers;
    let takes_one = |fault: &Fault| match fault.what {
        What::Kill(process) | What::Vanish(process) => process >= servers,
        _ => false,
    };
    scenario.one_budget = rng.chance(250) && !scenario.faults.iter().any(takes_one);
    if rng.chance(100) && !gentle {
        scenario.client.max_calls = rng.between(1, 8) as u32;
    }
    if rng.chance(200) {
        // Judges by a few calls, and comes back soon.
        let (window, off_for) = (Duration::from_millis(10), Duration::from_millis(20));
        let auto_off = Some(AutoOff {
            window,
            off_for,
            least_calls: 3,
            least_hedges: 2,
            ..AutoOff::default()
        });
        for class in &mut scenario.classes {
            if let Policy::Hedged(hedge) | Policy::TiedThenHedged(_, hedge) = &mut class.policy {
                hedge.auto_off = auto_off;
            }
        }
    }
    if rng.chance(200) {
        let clients = scenario.clients as u16;
        scenario.pick = rng.pick(&[PickRule::HotCold, PickRule::C3 { clients }]);
    }
    if rng.chance(100) && (scenario.faults.is_empty() || !gentle) {
        let process = rng.below(scenario.processes() as u64) as usize;
        let (at, lasts) = (rng.below(span), 1 + rng.below(20 * MS));
        let what = What::SlowNet(process, rng.between(200, 2000));
        scenario.faults.push(Fault { at, lasts, what });
    }
    if rng.chance(100) {
        // Each replica stalls in turn, for a tenth of the time.
        let seen = |n: u64| {
            let (at, replica) = (n * service, (n % servers as u64) as usize);
            let stalls = n / 10 % servers as u64 == replica as u64;
            Seen { at, replica, took: if stalls { 10 * service } else { service / 2 } }
        };
        scenario.service.trace = Trace::of((0..200).map(seen).collect(), 4 * service).ok();
    } else if rng.chance(100) {
        let measured = Empirical::of([(service / 2, 90), (service, 9), (20 * service, 1)]);
        scenario.service.span = measured.map_or(Span::Fixed(service), Span::Empirical);
    }
}

/// In some worlds replies are long, and clients read them more slowly than they are made.
fn have_read(scenario: &mut Scenario) {
    let mut rng = Rng::labelled(scenario.seed, 105);
    if !rng.chance(150) {
        return;
    }
    let segment = rng.pick(&[8 << 10, 16 << 10]);
    let reply = Span::Bimodal { short: 16, long: 60 << 10, long_permille: rng.pick(&[300, 1000]) };
    let window = Some(segment as usize * rng.pick(&[1, 2, 8]));
    scenario.wires = Wires { reply, segment, window, ..scenario.wires.clone() };
    let each = rng.pick(&[40 << 10, 100 << 10, 400 << 10]);
    // The least has room for one reply.
    scenario.room = Some(Room { each, all: rng.pick(&[90 << 10, 200 << 10, 600 << 10]) });
    if scenario.nothing_fails {
        // What is forgotten while copies wait for room for it is their callers' loss.
        scenario.keys = KeyLimits::default();
    }
}

fn wires(rng: &mut Rng, gentle: bool) -> Wires {
    let segment = rng.pick(&[64, 200]);
    let span = |rng: &mut Rng| Span::Bimodal {
        short: 16,
        long: segment * rng.between(2, 12),
        long_permille: rng.pick(&[0, 100, 500]),
    };
    let (request, reply) = (span(rng), span(rng));
    let window = rng.pick(&[segment, 4 * segment, 1 << 14]);
    let bytes = 24 * segment * rng.pick(&[1, 4]);
    let credit = Credit { requests: rng.pick(&[1, 3, 10]), bytes };
    Wires {
        request,
        reply,
        segment: segment as u32,
        window: Some(window as usize),
        // The least takes one of the largest.
        requests_bytes: if gentle { 1 << 20 } else { rng.pick(&[12 * segment as usize, 1 << 20]) },
        credit: rng.chance(700).then_some(credit),
    }
}

fn mean_service(rng: &mut Rng) -> Nanos {
    rng.pick(&[50 * US, 200 * US, MS, 3 * MS])
}

fn service_span(rng: &mut Rng, mean: Nanos) -> Span {
    match rng.below(5) {
        0 => Span::Fixed(mean),
        1 => Span::Exponential { mean },
        2 => Span::LogNormal { median: mean, sigma: 0.8 },
        3 => Span::Pareto { least: mean / 3, alpha: 1.5, cap: 30 * mean },
        _ => Span::Bimodal { short: mean / 2, long: 10 * mean, long_permille: 50 },
    }
}

/// The time between a client's calls for a load of so many percent, if each call runs once.
fn gap_for(scenario: &Scenario, service: Nanos, percent: u64) -> Nanos {
    // Clients talk to one core of each replica only; in the worst case all to the same.
    let slots = scenario.servers as u64 * u64::from(scenario.server.slots);
    service * scenario.clients as u64 * 100 / (slots * percent)
}

fn class(rng: &mut Rng, service: Nanos) -> Class {
    Class {
        weight: rng.between(1, 4),
        policy: policy(rng, service),
        idempotent: rng.chance(750),
        cancelled_permille: rng.pick(&[0, 0, 100]),
        ..Class::plain()
    }
}

fn policy(rng: &mut Rng, service: Nanos) -> Policy {
    let tie = TiePolicy {
        stagger: match rng.below(4) {
            0 => Stagger::Fixed(Duration::ZERO),
            1 => Stagger::Fixed(Duration::from_nanos(rng.below(2 * service))),
            _ => TiePolicy::default().stagger,
        },
        window: Duration::from_millis(rng.pick(&[1, 10])),
        ..TiePolicy::default()
    };
    let delay = match rng.below(3) {
        0 => Delay::Fixed(Duration::from_nanos(rng.below(3 * service))),
        1 => Delay::Fixed(Duration::from_nanos(service * 2)),
        _ => Delay::Percentile(Percentile {
            quantile: 0.9,
            min: Duration::from_nanos(service / 4),
            fallback: Some(Duration::from_nanos(service * 2)),
            least_samples: 5,
            ..Percentile::default()
        }),
    };
    let hedge = HedgePolicy { delay, max_hedges: rng.between(1, 2) as u8, ..Default::default() };
    match rng.below(6) {
        0 => Policy::None,
        1 => Policy::Hedged(hedge),
        2 | 3 => Policy::Tied(tie),
        _ => Policy::TiedThenHedged(tie, hedge),
    }
}

fn budget(rng: &mut Rng) -> BudgetConfig {
    let (fraction, drain) = if rng.chance(500) { (0.0, 0.0) } else { (0.1, 1.0) };
    BudgetConfig {
        fraction,
        per_second: 0.0,
        drain,
        burst: rng.pick(&[0, 1, 5, 1000, 1000]),
        outstanding: rng.pick(&[0, 1, 4, 1000, 1000]),
    }
}

fn fault(rng: &mut Rng, scenario: &Scenario, span: Nanos) -> Fault {
    let servers = scenario.servers as u64;
    let server = rng.below(servers) as usize;
    let any = rng.below(scenario.processes() as u64) as usize;
    let other =
        (server + 1 + rng.below(scenario.processes() as u64 - 1) as usize) % scenario.processes();
    let client = scenario.servers + rng.below(scenario.clients as u64) as usize;
    let what = match rng.below(16) {
        0 | 1 => What::Kill(server),
        2 => What::Vanish(any),
        3 => What::Kill(any),
        4 | 5 => What::Freeze(server),
        6 => What::Freeze(any),
        7 => What::Cut(server, other),
        8 => What::Block(server, other),
        9 => What::Block(other, server),
        10 => What::Part(server, other),
        11 => What::Forge(any),
        12 | 13 => What::Leave(server),
        14 => What::Sip(any),
        _ => match rng.below(2) {
            0 => What::Slow(server, rng.between(200, 5000)),
            _ => What::Burst(client, rng.between(2, 20)),
        },
    };
    let lasts = rng.pick(&[100 * US, MS, 10 * MS, 50 * MS]);
    let early = if matches!(what, What::Burst(..)) { scenario.warm_up } else { 0 };
    Fault { at: early + rng.below(span), lasts: 1 + rng.below(lasts), what }
}
