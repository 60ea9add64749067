//! What a seed stands for: a cluster, its calls, and what will go wrong.

use std::time::Duration;

use bowline_client::core::{
    BudgetConfig, Delay, HedgePolicy, Percentile, Policy, Stagger, TiePolicy,
};
use bowline_runtime::Faults;
use bowline_tests::kernel::rng::Rng;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A run as data.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) servers: usize,
    pub(crate) slots: u32,
    pub(crate) queue: u32,
    /// Servers dial each other; without, the client relays.
    pub(crate) mesh: bool,
    /// Handlers may be dropped at any await.
    pub(crate) interruptible: bool,
    /// Receive buffers of each core: how many, of how many bytes.
    pub(crate) buffers: (u16, u32),
    /// Places in the queues of requests and of completions.
    pub(crate) entries: u32,
    pub(crate) faults: Faults,
    pub(crate) policies: Vec<Policy>,
    pub(crate) budget: BudgetConfig,
    pub(crate) calls: Vec<Planned>,
    pub(crate) troubles: Vec<Trouble>,
    /// Nothing happens by which a call may fail.
    pub(crate) gentle: bool,
}

/// A call to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) at: Duration,
    /// Which of the policies; the call must not run twice if there is none of that number.
    pub(crate) policy: usize,
    pub(crate) request: usize,
    pub(crate) reply: usize,
    /// How long a copy takes on average.
    pub(crate) takes: Duration,
    pub(crate) deadline: Duration,
    /// When its caller drops it.
    pub(crate) patience: Option<Duration>,
    /// The service answers with an error.
    pub(crate) fails: bool,
}

/// Something goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    pub(crate) at: Duration,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// A server stands still for so long.
    Freeze(usize, Duration),
    /// Each connection breaks with so many chances in a thousand.
    Cut(u16),
    /// A server is told to end within a while, and another takes its place.
    Restart(usize, Duration),
    /// A server's machine loses power, which no connection is told; it is back after a while.
    PowerLoss(usize, Duration),
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Plan {
        let mut rng = Rng::labelled(seed, 200);
        let gentle = seed.is_multiple_of(3);
        let servers = rng.between(1, 3) as usize;
        let service = rng.pick(&[50 * US, 300 * US, 2 * MS]);
        let policies =
            (0..rng.between(1, 3)).map(|_| policy(&mut rng, service)).collect::<Vec<_>>();
        let count = rng.between(5, 40);
        let gap = service * 100 / (servers as u64 * rng.between(20, 120));
        let mut at = 0;
        let calls = (0..count)
            .map(|_| {
                at += (gap as f64 * rng.exponential()) as u64;
                call(&mut rng, gentle, at, service, policies.len() as u64)
            })
            .collect();
        let troubles = if gentle { 0 } else { rng.below(4) };
        let troubles = (0..troubles).map(|_| trouble(&mut rng, servers as u64, at + MS)).collect();
        Plan {
            seed,
            servers,
            slots: rng.between(1, 4) as u32,
            queue: if gentle { 1024 } else { rng.pick(&[1, 8, 64]) },
            mesh: rng.chance(750),
            interruptible: rng.chance(600),
            buffers: (rng.pick(&[1, 4, 16]), rng.pick(&[128, 700, 4096])),
            entries: rng.pick(&[2, 8, 1024]),
            faults: faults(&mut rng, gentle),
            policies,
            budget: BudgetConfig {
                burst: rng.pick(&[0, 5, 1000, 1000]),
                outstanding: rng.pick(&[1, 1000, 1000]),
                ..BudgetConfig::default()
            },
            calls,
            troubles,
            gentle,
        }
    }
}

fn faults(rng: &mut Rng, gentle: bool) -> Faults {
    Faults {
        delay: rng.pick(&[0, 200, 500, 800]),
        short: rng.pick(&[0, 300, 900]),
        end_early: rng.pick(&[0, 100, 500]),
        no_buffer: rng.pick(&[0, 50, 300]),
        again: rng.pick(&[0, 100]),
        reset: if gentle { 0 } else { rng.pick(&[0, 0, 2, 20]) },
        cancel_late: rng.pick(&[0, 500, 1000]),
        submit_short: rng.pick(&[0, 200]),
        window: rng.pick(&[64, 4 << 10, 256 << 10]),
        pace: rng.pick(&[500, 5_000, 20_000]),
        accept: rng.pick(&[0, 0, 100, 400]),
        ..Faults::default()
    }
}

fn call(rng: &mut Rng, gentle: bool, at: u64, service: u64, policies: u64) -> Planned {
    let deadline = if gentle { 5_000 * MS } else { rng.between(service, 100 * service) };
    let size = |rng: &mut Rng| match rng.below(10) {
        0 => rng.between(5_000, 60_000) as usize,
        1..=3 => rng.between(300, 3_000) as usize,
        _ => rng.below(100) as usize,
    };
    Planned {
        at: Duration::from_nanos(at),
        policy: rng.below(policies + 1) as usize,
        request: size(rng),
        reply: size(rng),
        takes: Duration::from_nanos((service as f64 * rng.exponential()) as u64),
        deadline: Duration::from_nanos(deadline),
        patience: (!gentle && rng.chance(100))
            .then(|| Duration::from_nanos(rng.below(deadline / 2 + 1))),
        fails: !gentle && rng.chance(50),
    }
}

fn policy(rng: &mut Rng, service: u64) -> Policy {
    let tie = TiePolicy {
        stagger: match rng.below(3) {
            0 => Stagger::Fixed(Duration::ZERO),
            1 => Stagger::Fixed(Duration::from_nanos(rng.below(service))),
            _ => TiePolicy::default().stagger,
        },
        ..TiePolicy::default()
    };
    let delay = match rng.below(2) {
        0 => Delay::Fixed(Duration::from_nanos(rng.below(3 * service))),
        _ => Delay::Percentile(Percentile {
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

fn trouble(rng: &mut Rng, servers: u64, span: u64) -> Trouble {
    let server = rng.below(servers) as usize;
    let longest = rng.pick(&[100 * US, 5 * MS, 100 * MS]);
    let span_of = Duration::from_nanos(rng.below(longest));
    let what = match rng.below(5) {
        0 | 1 => What::Freeze(server, span_of),
        2 => What::Cut(rng.pick(&[200, 1000])),
        3 => What::PowerLoss(server, span_of),
        _ => What::Restart(server, span_of),
    };
    Trouble { at: Duration::from_nanos(rng.below(span)), what }
}
