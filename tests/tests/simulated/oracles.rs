//! Theory as the judge: worlds simple enough for a closed form, held against it.
//!
//! The tests run 100 000 calls a cell, of which neighbours that wait in one queue are worth less
//! than one each: they can show 3 % of a mean and 6 % of a percentile. With
//!
//! ```text
//! BOWLINE_CALLS=2000000 cargo test --release -p bowline-tests --test simulated oracles:: -- --nocapture
//! ```
//!
//! it is 1 % and 2 %. (With a million, on 2026-11-30: a hedge was off by 0.02 % of the mean and 0.6 % of
//! p99.9, one server at a load of 0.3 by 0.08 % and 0.4 %, at 0.6 by 0.8 % and 5.3 %: that is too few.)
//! Only of p99.9 of a tied pair that needs more: of two million calls two
//! thousand lie beyond it, but they come in spells of busy servers. Runs of nothing but two queues
//! (`the_tail_of_a_pair_spreads_as_widely_as_it_may_be_off`) spread by 0.72 % about the law at a load
//! of 0.5, as wide as 290 calls would that know nothing of each other, and by 1.75 % at 0.7, as wide
//! as 62. Three of these deviations are within 2 % from 2.4 and 14 million calls on; with fewer they
//! are what is allowed.

mod overload;
mod picking;

use core::time::Duration;

use bowline_client::core::{
    BudgetConfig, Counters, Delay, HedgePolicy, Policy, RetryConfig, Stagger, TiePolicy,
};
use bowline_protocol::LinkConfig;
use bowline_tests::kernel::maths::exp;
use bowline_tests::kernel::rng::Rng;
use bowline_tests::kernel::span::{Nanos, Span};
use bowline_tests::theory::{Law, backlog, both_run, queue, tied_on_two_of_many};
use bowline_tests::world::{Class, Fault, Look, Report, Scenario, ServerSetup, What, World};

/// The mean service time: the unit of all that follows.
const SERVICE: Nanos = 1_000_000;
const HOUR: Duration = Duration::from_secs(3600);

fn calls() -> u64 {
    std::env::var("BOWLINE_CALLS").ok().and_then(|calls| calls.parse().ok()).unwrap_or(100_000)
}

/// How far off a mean may be; a percentile twice as far.
fn allowed() -> f64 {
    if calls() >= 2_000_000 { 0.01 } else { 0.03 }
}

/// `servers` of one slot each, at `load` each if every call runs once; nothing else takes time.
fn queues(servers: usize, load: f64, policy: Policy) -> Scenario {
    Scenario {
        servers,
        server: ServerSetup { slots: 1, queue: 4096, tombstones: 1024 },
        calls: calls(),
        gap: Span::Exponential { mean: (SERVICE as f64 / (load * servers as f64)) as Nanos },
        delay: Span::Fixed(0),
        turn: 0,
        deadline: Span::Fixed(3600 * 1_000_000_000),
        classes: vec![Class::with(policy)],
        budget: BudgetConfig {
            per_second: 0.0,
            fraction: 1.0,
            burst: 100_000,
            outstanding: 100_000,
            drain: 0.0,
        },
        // No pings: they would only take the world's time.
        link: LinkConfig { hello_timeout: HOUR, ping_after: 24 * HOUR, dead_after: 48 * HOUR },
        service: bowline_tests::world::Service {
            span: Span::Exponential { mean: SERVICE },
            trace: None,
            identical: false,
            look: Look::AtOnce,
            error_permille: 0,
        },
        nothing_fails: true,
        ..Scenario::calm(1)
    }
}

fn tie(stagger: Nanos) -> TiePolicy {
    let stagger = Stagger::Fixed(Duration::from_nanos(stagger));
    TiePolicy { stagger, ..TiePolicy::default() }
}

fn tied(stagger: Nanos) -> Policy {
    Policy::Tied(tie(stagger))
}

fn hedge(delay: f64) -> HedgePolicy {
    let delay = Delay::Fixed(Duration::from_nanos((SERVICE as f64 * delay) as u64));
    HedgePolicy { delay, least_useful: Duration::ZERO, ..HedgePolicy::default() }
}

fn hedged(delay: f64) -> Policy {
    Policy::Hedged(hedge(delay))
}

fn tied_then_hedged(delay: f64) -> Policy {
    Policy::TiedThenHedged(tie(0), hedge(delay))
}

/// Latencies in units of the mean service time, sorted, without those of the first calls, which
/// found an empty system.
struct Sample(Vec<f64>);

fn run(scenario: &Scenario) -> (Report, Sample) {
    let report = World::new(scenario.clone(), false).run();
    assert!(report.broken.is_none(), "{:?}", report.broken);
    let skipped = report.latencies.len() / 50;
    let sample: Vec<f64> = report.latencies[skipped..]
        .iter()
        .map(|&latency| latency as f64 / SERVICE as f64)
        .collect();
    (report, Sample::of(sample))
}

impl Sample {
    fn of(mut sample: Vec<f64>) -> Sample {
        sample.sort_unstable_by(f64::total_cmp);
        Sample(sample)
    }

    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    fn quantile(&self, q: f64) -> f64 {
        self.0[((self.0.len() as f64 * q) as usize).min(self.0.len() - 1)]
    }

    /// Holds the mean and the percentiles that have a hundred samples beyond them against a law.
    fn holds(&self, what: &str, law: &Law) {
        self.holds_within(what, law, 0.0);
    }

    /// The same where p99.9 of so many calls spreads by `far`.
    fn holds_within(&self, what: &str, law: &Law, far: f64) {
        close(&format!("{what}: mean"), self.mean(), law.mean(), allowed());
        for q in [0.5, 0.9, 0.99, 0.999] {
            if (1.0 - q) * self.0.len() as f64 >= 100.0 {
                let percentile = format!("{what}: p{}", q * 100.0);
                let spread = if q > 0.995 { far } else { 0.0 };
                let allowed = f64::max(2.0 * allowed(), 3.0 * spread);
                close(&percentile, self.quantile(q), law.quantile(q), allowed);
            }
        }
    }
}

fn close(what: &str, found: f64, theory: f64, allowed: f64) {
    let off = (found / theory - 1.0) * 100.0;
    println!("{what}: {found:.4}, theory {theory:.4}, off by {off:+.2} %");
    assert!(off.abs() <= allowed * 100.0, "{what} is {found:.4}, theory says {theory:.4}");
}

#[test]
fn one_server_is_an_mm1_queue() {
    for load in [0.3, 0.6] {
        let (_, sample) = run(&queues(1, load, Policy::None));
        sample.holds(&format!("one server at {load}"), &queue(1, load));
    }
}

#[test]
fn two_tied_servers_are_an_mm2_queue() {
    for load in [0.5, 0.7] {
        for mesh in [true, false] {
            let (_, sample) = run(&Scenario { mesh, ..queues(2, load, tied(0)) });
            let way = if mesh { "mesh" } else { "relay" };
            let what = format!("tied pair at {load}, by {way}");
            sample.holds_within(&what, &queue(2, load), spread(load, calls()));
        }
    }
}

/// By how much p99.9 of a pair of queues spreads, as a share of it, over runs of so many calls.
fn spread(load: f64, calls: u64) -> f64 {
    let of_two_million = if load > 0.6 { 0.0175 } else { 0.0072 };
    of_two_million * (2e6 / calls as f64).sqrt()
}

#[test]
fn the_tail_of_a_pair_spreads_as_widely_as_it_may_be_off() {
    // Nothing but two queues, of which each call joins the shorter: no code of Bowline's.
    const RUNS: u64 = 20;
    let calls = calls().max(200_000);
    for load in [0.5, 0.7] {
        let law = queue(2, load).quantile(0.999);
        let off = |run| Sample::of(shorter_of_two(run, 2, load, calls)).quantile(0.999) / law - 1.0;
        let off: Vec<f64> = (0..RUNS).map(off).collect();
        let mean = off.iter().sum::<f64>() / RUNS as f64;
        let variance = off.iter().map(|off| (off - mean) * (off - mean)).sum::<f64>();
        let found = (variance / (RUNS - 1) as f64).sqrt();
        let told = spread(load, calls);
        let percent = 100.0 * found;
        println!(
            "p99.9 at {load}: off by {:+.2} % on average, spread {percent:.2} %",
            100.0 * mean
        );
        // Of twenty runs a deviation is known to a sixth; three times that.
        assert!((0.5..1.5).contains(&(found / told)), "{found} for {told} at {load}");
        assert!(mean.abs() < 4.0 * told / (RUNS as f64).sqrt(), "a bias of {mean} at {load}");
    }
}

#[test]
fn two_copies_that_both_run_are_one_server_of_twice_the_speed() {
    for load in [0.4, 0.6] {
        let (_, sample) = run(&queues(2, load, hedged(0.0)));
        sample.holds(&format!("both run at {load}"), &both_run(load));
    }
}

#[test]
fn many_servers_with_ties_on_two_of_them_are_queues_of_which_each_call_joins_the_shorter_of_two() {
    let (servers, load) = (24, 0.7);
    // Many clients, of which each has hardly ever two calls open and hears of no load: they choose
    // at random.
    let clients = 200;
    let mut scenario = Scenario { mesh: false, clients, ..queues(servers, load, tied(0)) };
    scenario.calls = calls() / clients as u64;
    let rate = load * servers as f64 / clients as f64;
    scenario.gap = Span::Exponential { mean: (SERVICE as f64 / rate) as Nanos };
    scenario.load_lifetime = 0;
    let (_, sample) = run(&scenario);
    // Two dozen are not infinitely many: the closed form is their limit.
    let theory = Sample::of(shorter_of_two(77, servers, load, 10 * calls()));
    close("tied on two of 24: mean", sample.mean(), theory.mean(), allowed());
    for q in [0.5, 0.9, 0.99] {
        let percentile = format!("tied on two of 24: p{}", q * 100.0);
        close(&percentile, sample.quantile(q), theory.quantile(q), 2.0 * allowed());
    }
    let many = Sample::of(shorter_of_two(77, 2_000, load, 20 * calls()));
    many.holds("the shorter of two of 2000", &tied_on_two_of_many(load));
}

/// Latencies of calls of which each joins the queue with less work of two drawn at random: nothing
/// but the work that each server has left, and none of Bowline's code.
fn shorter_of_two(run: u64, servers: usize, load: f64, calls: u64) -> Vec<f64> {
    let mut rng = Rng::labelled(1, run);
    let (mut now, mut free_at) = (0.0, vec![0.0_f64; servers]);
    let latency = |_| {
        now += rng.exponential() / (load * servers as f64);
        let one = rng.below(servers as u64) as usize;
        let other = (one + 1 + rng.below(servers as u64 - 1) as usize) % servers;
        let shorter = if free_at[one] <= free_at[other] { one } else { other };
        let end = free_at[shorter].max(now) + rng.exponential();
        free_at[shorter] = end;
        end - now
    };
    (0..calls).map(latency).skip(calls as usize / 50).collect()
}

#[test]
fn a_hedge_without_queueing_follows_the_product_of_the_survival_functions() {
    for delay in [0.5, 1.0, 2.0] {
        let mut scenario = queues(2, 0.2, hedged(delay));
        scenario.server.slots = 1000;
        let (report, sample) = run(&scenario);
        let service = Law::new(1.0, |t| exp(-t.min(700.0)));
        sample.holds(&format!("hedge after {delay}"), &service.hedged_after(delay));
        let hedges = report.clients[0].hedges as f64 / report.clients[0].calls as f64;
        close("extra load", hedges, exp(-delay), 2.0 * allowed());
    }
}

#[test]
fn the_lock_step_trap_catches_servers_that_run_to_completion_and_no_others() {
    // Copies take equally long on both servers, and a message takes a fiftieth of that. Servers
    // that finish a job within one message of each other start the next one both, and so on until
    // their queues are empty.
    let message = SERVICE / 50;
    let world = |load, stagger, look| {
        let mut scenario = queues(2, load, tied(stagger));
        scenario.calls = calls() * 3 / 5;
        scenario.delay = Span::Fixed(message);
        scenario.service.identical = true;
        scenario.service.look = look;
        let (report, sample) = run(&scenario);
        let doubles = report.double_starts as f64 / report.succeeded as f64;
        // The way there and back is not waiting.
        let mean = sample.mean() - 2.0 * message as f64 / SERVICE as f64;
        println!("load {load}, {look:?}: mean {mean:.3}, {doubles:.3} double starts a call");
        mean
    };
    let trapped = world(0.5, message, Look::Never);
    assert!((2.2..2.6).contains(&trapped), "two other simulators found 2.3 to 2.4");
    close("mean with rule 4", world(0.5, message, Look::AtOnce), 1.333, 0.05);
    let trapped = world(0.8, 2 * message, Look::Never);
    assert!(trapped > 10.0, "each server does nearly all of the work: that is more than it can");
    close("mean with rule 4", world(0.8, 2 * message, Look::AtOnce), 2.778, 0.08);
}
