//! What the rules for picking replicas are worth: the table at the head of `client/src/core/pick.rs`.
//!
//! ```text
//! BOWLINE_CALLS=400000 cargo test --release -p bowline-tests --test simulated picking:: -- --nocapture
//! ```

use bowline_client::core::PickRule;

use super::*;

const SERVERS: usize = 5;
const SLOTS: u32 = 4;
const MS: Nanos = SERVICE;
/// How long a copy takes where nothing is wrong.
const MEAN: Nanos = 4 * MS;

/// What is wrong with replicas.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Trouble {
    Equal,
    Slow,
    Stalls,
    Swing,
}

impl Trouble {
    const ALL: [Trouble; 4] = [Trouble::Equal, Trouble::Slow, Trouble::Stalls, Trouble::Swing];

    /// What replicas can do meanwhile, as a share of what they could do without it.
    fn capacity(self) -> f64 {
        match self {
            Trouble::Equal => 1.0,
            Trouble::Slow => (4.0 + 1.0 / 3.0) / 5.0,
            Trouble::Stalls => 0.95,
            Trouble::Swing => (1.0 + 1.0 / 3.0) / 2.0,
        }
    }

    /// The faults of a world that lasts so long.
    fn faults(self, lasts: Nanos) -> Vec<Fault> {
        let mut rng = Rng::labelled(5, 7);
        let mut faults = Vec::new();
        for server in 0..SERVERS {
            let mut at = 0;
            while at < lasts {
                let (after, fault) = match self {
                    Trouble::Equal => break,
                    Trouble::Slow if server > 0 => break,
                    Trouble::Slow => (0, Fault { at, lasts, what: What::Slow(server, 300) }),
                    Trouble::Stalls => {
                        let after = (rng.exponential() * 950.0 * MS as f64) as Nanos;
                        (after, Fault { at, lasts: 50 * MS, what: What::Freeze(server) })
                    }
                    // In windows of 100 ms, of which each is slow or not: spells of some of either.
                    Trouble::Swing => {
                        let mut spell = || {
                            let mut windows = 1;
                            while rng.below(2) == 0 {
                                windows += 1;
                            }
                            100 * MS * windows
                        };
                        let (after, lasts) = (spell(), spell());
                        (after, Fault { at, lasts, what: What::Slow(server, 300) })
                    }
                };
                at += after;
                faults.push(Fault { at, ..fault });
                at += fault.lasts;
            }
        }
        faults
    }
}

/// Plain calls of so many clients, at four fifths of what the replicas can do.
fn world(pick: PickRule, clients: usize, trouble: Trouble, calls: u64) -> Sample {
    let rate = 0.8 * trouble.capacity() * f64::from(SLOTS) * SERVERS as f64 / MEAN as f64;
    let lasts = (calls as f64 / rate) as Nanos;
    let mut scenario = queues(SERVERS, 0.8, Policy::None);
    scenario.server = ServerSetup { slots: SLOTS, queue: 1 << 16, tombstones: 64 };
    scenario.client.max_calls = 1 << 16;
    scenario.clients = clients;
    scenario.calls = calls / clients as u64;
    scenario.gap = Span::Exponential { mean: (clients as f64 / rate) as Nanos };
    scenario.service.span = Span::Exponential { mean: MEAN };
    scenario.delay = Span::Uniform(20_000, 60_000);
    scenario.pick = pick;
    scenario.load_lifetime = 100 * MS;
    scenario.faults = trouble.faults(lasts);
    scenario.nothing_fails = false;
    let report = World::new(scenario, false).run();
    assert!(report.broken.is_none(), "{:?}", report.broken);
    let skipped = report.latencies.len() / 10;
    Sample::of(report.latencies[skipped..].iter().map(|&it| it as f64 / MS as f64).collect())
}

/// The p99 of each trouble, in ms.
fn row(pick: PickRule, clients: usize, calls: u64) -> [f64; 4] {
    let samples = Trouble::ALL.map(|trouble| world(pick, clients, trouble, calls));
    let tails = samples.each_ref().map(|it| (it.quantile(0.99), it.quantile(0.999)));
    println!("{clients} clients, {pick:?}: p99 and p99.9 {tails:.1?} ms");
    tails.map(|(p99, _)| p99)
}

#[test]
fn scoring_by_what_answers_take_is_better_where_replicas_differ_and_no_worse_where_not() {
    let calls = calls() / if calls() > 100_000 { 1 } else { 5 };
    for clients in [10, 100] {
        let choices = row(PickRule::PowerOfTwo, clients, calls);
        let [_, hot_cold_slow, ..] = row(PickRule::HotCold, clients, calls);
        let c3 = row(PickRule::C3 { clients: clients as u16 }, clients, calls);
        for (trouble, (c3, choices)) in Trouble::ALL.into_iter().zip(c3.into_iter().zip(choices)) {
            let most = if trouble == Trouble::Slow { 0.7 } else { 1.05 };
            assert!(
                c3 < most * choices,
                "{trouble:?}: {c3:.1} ms, and {choices:.1} of two choices"
            );
        }
        assert!(hot_cold_slow < choices[1], "{hot_cold_slow:.1} ms of hot and cold");
    }
    row(PickRule::C3 { clients: 1 }, 100, calls);
}
