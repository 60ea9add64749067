//! What a client counts, for who watches: as a value, and as a page of OpenMetrics.
//!
//! The page is written by hand: all is summed up already, in counters and histograms of the
//! machine's own, so that an encoder's registry would only copy it once more.

use std::fmt::Write;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_protocol::{Freshness, Method, TrafficClass};
use bowline_runtime::sleep;
use hdrhistogram::Histogram;

use super::shell::Shell;
use crate::core::{Counters, Histograms, PolicyState, ReplicaState};

/// How a client is doing, on one core.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What has happened.
    pub counters: Counters,
    /// What calls and copies took.
    pub histograms: Histograms,
    /// Tokens in the budget; below zero, so many are to be earned before more are given.
    pub budget_level: i32,
    /// Tokens that are out.
    pub budget_outstanding: u32,
    /// How many replicas are connected.
    pub connected: usize,
    /// How the replicas are doing.
    pub replicas: Vec<ReplicaState>,
    /// Second copies may be sent.
    pub second_copies: bool,
    /// How the methods of the configuration are doing.
    pub methods: Vec<MethodState>,
    /// Futures of calls that were polled, and neither told their result nor were dropped.
    pub futures: usize,
    /// Calls that have open spans: of themselves, or of copies that are still out.
    pub spans: usize,
}

/// How a method of the configuration is doing, or its calls of one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MethodState {
    /// Which.
    pub method: Method,
    /// Its calls of this class only; None: of all of which nothing else is said.
    pub class: Option<TrafficClass>,
    /// Its hedges, and its own budget.
    pub policy: PolicyState,
}

impl Snapshot {
    pub(super) fn take(shell: &Shell) -> Snapshot {
        let state = shell.state.borrow();
        let calls = &state.calls;
        Snapshot {
            counters: calls.counters(),
            histograms: calls.histograms().clone(),
            budget_level: calls.budget().level(),
            budget_outstanding: calls.budget().outstanding(),
            connected: state.lines.iter().flatten().count(),
            replicas: calls.replicas().collect(),
            second_copies: calls.config().switch.is_on(),
            methods: state
                .methods
                .policies()
                .filter_map(|(method, class, id)| {
                    calls.policy_state(id).map(|policy| MethodState { method, class, policy })
                })
                .collect(),
            futures: state.futures(),
            spans: state.spans(),
        }
    }

    /// The hedges that were sent, of all calls; 0 before the first call.
    pub fn hedge_rate(&self) -> f64 {
        share(self.counters.hedges, self.counters.calls)
    }

    /// The calls that a hedge won, of all hedges.
    pub fn win_rate(&self) -> f64 {
        share(self.counters.hedge_wins, self.counters.hedges)
    }

    /// Copies that were seen to start, for each call that has ended: 1 without second copies.
    pub fn amplification(&self) -> f64 {
        let Counters { ok, failed, cancelled, .. } = self.counters;
        share(self.counters.executions, ok + failed + cancelled)
    }

    /// All of it as a page of OpenMetrics, version 1.0.0. `core` tells this core's client from the
    /// others of a process.
    pub fn to_openmetrics(&self, core: usize) -> String {
        openmetrics(&[(core, self)])
    }
}

fn share(of: u64, all: u64) -> f64 {
    of as f64 / all.max(1) as f64
}

/// The snapshots of a client's cores, where other threads find them: a handle that can be sent.
///
/// ```no_run
/// # async fn watched(client: bowline_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use bowline_client::io::Numbers;
/// use bowline_runtime::exposition::Exposition;
/// use std::time::Duration;
///
/// let numbers = Numbers::default();
/// client.publish(&numbers, 0, Duration::from_secs(1)); // on each core, with its number
/// let page = Exposition::serve("127.0.0.1:9090".parse()?, move |_| numbers.page())?;
/// # drop(page);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    latest: Arc<Mutex<Vec<(usize, Snapshot)>>>,
}

impl Numbers {
    /// The page, as of the last snapshot of each core.
    pub fn page(&self) -> String {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let cores: Vec<_> = latest.iter().map(|(core, snapshot)| (*core, snapshot)).collect();
        openmetrics(&cores)
    }

    /// The last snapshot of each core.
    pub fn snapshots(&self) -> Vec<(usize, Snapshot)> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn put(&self, core: usize, snapshot: Snapshot) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        match latest.iter_mut().find(|(of, _)| *of == core) {
            Some((_, known)) => *known = snapshot,
            None => latest.push((core, snapshot)),
        }
    }
}

/// Puts a snapshot there now and then, for as long as the task lives.
pub(super) async fn publish(shell: Rc<Shell>, numbers: Numbers, core: usize, every: Duration) {
    loop {
        numbers.put(core, Snapshot::take(&shell));
        sleep(every).await;
    }
}

/// A name, what it is, and where it stands in a snapshot, or in a part of one.
type Metric<T, S = Snapshot> = (&'static str, &'static str, fn(&S) -> T);

const COUNTERS: &[Metric<u64>] = &[
    ("calls", "Calls that were started.", |s| s.counters.calls),
    ("calls_ok", "Calls that got a good reply.", |s| s.counters.ok),
    ("calls_failed", "Calls that ended with an error.", |s| s.counters.failed),
    ("calls_cancelled", "Calls that their caller dropped.", |s| s.counters.cancelled),
    ("calls_waited_for_room", "Calls that waited for credit or a backlog.", |s| {
        s.counters.waited_for_room
    }),
    ("room_kept", "Rooms kept for the longest wait.", |s| s.counters.room_kept),
    ("calls_stranded", "Calls that waited for a connection.", |s| s.counters.stranded),
    ("calls_refused", "Calls that were refused at the start.", |s| s.counters.refused),
    (
        "deadlines_missed",
        "Failed calls whose deadline had passed, or left too little time for another copy.",
        |s| s.counters.deadline_missed,
    ),
    ("attempts", "Copies that were sent.", |s| s.counters.attempts),
    ("executions", "Copies that were seen to start.", |s| s.counters.executions),
    ("wasted", "Copies that started and whose reply was not used.", |s| s.counters.wasted),
    ("tied", "Calls that began as a tied pair.", |s| s.counters.tied),
    ("untied", "Second copies that were announced and not sent.", |s| s.counters.untied),
    ("relayed", "Starts that were told to the twin's replica.", |s| s.counters.relayed),
    ("both_started", "Tied pairs of which both started.", |s| s.counters.both_started),
    ("hedges", "Hedges that were sent.", |s| s.counters.hedges),
    ("hedge_wins", "Calls whose result was a hedge's reply.", |s| s.counters.hedge_wins),
    ("redispatches", "Copies in the place of ended ones.", |s| s.counters.redispatches),
    ("uncharged", "Those of them that found no token.", |s| s.counters.uncharged),
    ("errors", "Error replies, and copies stopped by servers, that did not end their call.", |s| {
        s.counters.errors
    }),
    ("unsaid", "Replies that do not say how fresh they are.", |s| s.counters.unsaid),
    ("stale", "Replies that were not as fresh as was asked for.", |s| s.counters.stale),
    ("retries", "Calls tried again after all refused.", |s| s.counters.retries),
    ("unwatched", "Copies of finished calls that were given up.", |s| s.counters.unwatched),
    ("stray", "Frames that named no copy that is out.", |s| s.counters.stray),
    ("ejections", "Replicas left alone for failures.", |s| s.counters.ejected),
    ("readmissions", "Replicas taken back.", |s| s.counters.readmitted),
    ("switched_on", "Hedging switched itself on again.", |s| s.counters.switched_on),
];

const ENDS: &[Metric<u64>] = &[
    ("replied", "", |s| s.counters.replied),
    ("aborted", "", |s| s.counters.aborted),
    ("withdrawn", "", |s| s.counters.withdrawn),
    ("shed", "", |s| s.counters.shed),
    ("rejected", "", |s| s.counters.rejected),
    ("lost", "", |s| s.counters.lost),
];

const DENIALS: &[Metric<u64>] = &[
    ("no_token", "", |s| s.counters.denied.no_token),
    ("outstanding", "", |s| s.counters.denied.outstanding),
    ("method_no_token", "", |s| s.counters.denied.method_no_token),
    ("method_outstanding", "", |s| s.counters.denied.method_outstanding),
    ("no_candidate", "", |s| s.counters.denied.no_candidate),
    ("too_late", "", |s| s.counters.denied.too_late),
    ("no_delay", "", |s| s.counters.denied.no_delay),
    ("attempts", "", |s| s.counters.denied.attempts),
    ("too_large", "", |s| s.counters.denied.too_large),
    ("not_idempotent", "", |s| s.counters.denied.not_idempotent),
    ("not_allowed", "", |s| s.counters.denied.not_allowed),
    ("not_shared", "", |s| s.counters.denied.not_shared),
    ("from_extra", "", |s| s.counters.denied.from_extra),
    ("switched_off", "", |s| s.counters.denied.switched_off),
    ("killed", "", |s| s.counters.denied.killed),
];

const SWITCHES: &[Metric<u64>] = &[
    ("pushback", "", |s| s.counters.switched_off.pushback),
    ("errors", "", |s| s.counters.switched_off.errors),
    ("queued", "", |s| s.counters.switched_off.queued),
    ("no_wins", "", |s| s.counters.switched_off.no_wins),
    ("excess", "", |s| s.counters.switched_off.excess),
];

const GAUGES: &[Metric<f64>] = &[
    ("calls_waiting", "Calls that wait now.", |s| s.counters.waiting as f64),
    ("attempts_live", "Copies that are out now.", |s| s.counters.live as f64),
    ("futures", "Futures of calls that have told no result yet.", |s| s.futures as f64),
    ("spans", "Calls that have open spans.", |s| s.spans as f64),
    ("budget_level", "Tokens in the budget.", |s| f64::from(s.budget_level)),
    ("budget_outstanding", "Tokens that are out.", |s| f64::from(s.budget_outstanding)),
    ("hedge_ratio", "Hedges of all calls.", Snapshot::hedge_rate),
    ("win_ratio", "Hedges that won of all hedges.", Snapshot::win_rate),
    ("amplification_ratio", "Executions of a call.", Snapshot::amplification),
    ("second_copies", "1 if second copies may be sent.", |s| f64::from(s.second_copies)),
];

const REPLICAS: &[Metric<f64, ReplicaState>] = &[
    ("replica_open", "1 if it is connected and takes calls.", |r| f64::from(r.open)),
    ("replica_ejected", "1 if it is left alone.", |r| f64::from(r.ejected)),
    ("replica_in_flight", "Copies that are out there.", |r| f64::from(r.in_flight)),
    ("replica_slowness_ratio", "Its time as a multiple of the usual.", |r| r.slowness),
    ("replica_queued", "Copies that wait there, as it said last.", |r| f64::from(r.load.queued)),
    ("replica_version", "What it holds, if it said so.", |r| {
        known(r.held.version != 0, r.held.version as f64)
    }),
    (
        "replica_staleness_seconds",
        "For how long writes may be missing there, if it said so.",
        |r| {
            let said = r.held.staleness < Freshness::ANY.staleness;
            known(said, r.held.staleness.as_secs_f64())
        },
    ),
    ("replica_rtt_seconds", "The round trip.", |r| r.rtt.unwrap_or_default().as_secs_f64()),
];

const METHODS: &[Metric<f64, PolicyState>] = &[
    ("method_hedging", "1 unless hedging has switched itself off.", |p| {
        p.hedging.map_or(f64::NAN, f64::from)
    }),
    (
        "method_hedge_delay_seconds",
        "After how long a copy is hedged, the longest of all kinds.",
        |p| p.delay.map_or(f64::NAN, |delay| delay.as_secs_f64()),
    ),
    ("method_budget_level", "Tokens in the method's own budget.", |p| {
        p.budget_level.map_or(f64::NAN, f64::from)
    }),
    ("method_budget_outstanding", "Tokens of it that are out.", |p| {
        p.budget_outstanding.map_or(f64::NAN, f64::from)
    }),
];

/// Not a number, and so not on the page, unless it is known.
const fn known(is: bool, value: f64) -> f64 {
    if is { value } else { f64::NAN }
}

type Latency = (&'static str, &'static str, fn(&Histograms) -> &Histogram<u64>);

const LATENCIES: &[Latency] = &[
    ("call_duration_seconds", "From a call's start to its result.", |h| &h.calls),
    ("attempt_duration_seconds", "From a copy's send to its reply.", |h| &h.attempts),
    ("loser_duration_seconds", "From a call's result to the end of each copy that was out.", |h| {
        &h.losers
    }),
];

fn openmetrics(cores: &[(usize, &Snapshot)]) -> String {
    let mut page = String::new();
    for (name, help, value) in COUNTERS {
        head(&mut page, name, "counter", help);
        for (core, snapshot) in cores {
            line(&mut page, name, "_total", &format!("core=\"{core}\""), value(snapshot));
        }
    }
    let grouped = [
        ("ends", "Copies that ended, by how.", "how", ENDS),
        ("denied", "Second copies that were not sent, by reason.", "reason", DENIALS),
        ("switched_off", "Hedging switched itself off, by reason.", "reason", SWITCHES),
    ];
    for (name, help, label, values) in grouped {
        head(&mut page, name, "counter", help);
        for (core, snapshot) in cores {
            for (which, _, value) in values {
                let labels = format!("core=\"{core}\",{label}=\"{which}\"");
                line(&mut page, name, "_total", &labels, value(snapshot));
            }
        }
    }
    for (name, help, value) in GAUGES {
        head(&mut page, name, "gauge", help);
        for (core, snapshot) in cores {
            line(&mut page, name, "", &format!("core=\"{core}\""), value(snapshot));
        }
    }
    for (name, help, value) in REPLICAS {
        head(&mut page, name, "gauge", help);
        for (core, snapshot) in cores {
            for replica in &snapshot.replicas {
                let labels = format!("core=\"{core}\",replica=\"{}\"", replica.id.0);
                let value = value(replica);
                if !value.is_nan() {
                    line(&mut page, name, "", &labels, value);
                }
            }
        }
    }
    for (name, help, value) in METHODS {
        head(&mut page, name, "gauge", help);
        for (core, snapshot) in cores {
            for MethodState { method, class, policy } in &snapshot.methods {
                let class = class.map_or(String::new(), |class| class.0.to_string());
                let labels = format!("core=\"{core}\",method=\"{}\",class=\"{class}\"", method.0);
                let value = value(policy);
                if !value.is_nan() {
                    line(&mut page, name, "", &labels, value);
                }
            }
        }
    }
    for (name, help, of) in LATENCIES {
        head(&mut page, name, "histogram", help);
        for (core, snapshot) in cores {
            histogram(&mut page, name, *core, of(&snapshot.histograms));
        }
    }
    page.push_str("# EOF\n");
    page
}

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    let unit = if name.ends_with("_seconds") { "seconds" } else { "" };
    // Writing to a string does not fail.
    let _ = writeln!(page, "# TYPE bowline_client_{name} {kind}");
    if !unit.is_empty() {
        let _ = writeln!(page, "# UNIT bowline_client_{name} {unit}");
    }
    let _ = writeln!(page, "# HELP bowline_client_{name} {help}");
}

fn line(page: &mut String, name: &str, suffix: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = writeln!(page, "bowline_client_{name}{suffix}{{{labels}}} {value}");
}

/// Buckets of two to a factor of ten, from 10 us to 10 s: dashboards need no finer ones, and
/// [`Snapshot::histograms`] has all.
fn histogram(page: &mut String, name: &str, core: usize, of: &Histogram<u64>) {
    let bounds = (4..10).flat_map(|exponent| [1, 3].map(|digit| digit * 10u64.pow(exponent)));
    for nanos in bounds.chain([10_000_000_000]) {
        let count = of.count_between(0, nanos);
        let labels = format!("core=\"{core}\",le=\"{:?}\"", nanos as f64 / 1e9);
        line(page, name, "_bucket", &labels, count);
    }
    line(page, name, "_bucket", &format!("core=\"{core}\",le=\"+Inf\""), of.len());
    let labels = format!("core=\"{core}\"");
    line(page, name, "_count", &labels, of.len());
    let sum = if of.is_empty() { 0.0 } else { of.mean() * of.len() as f64 / 1e9 };
    line(page, name, "_sum", &labels, format!("{sum:?}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Denied, SwitchedOff};

    /// One in which every counter is another number.
    fn counters() -> Counters {
        let denied = Denied {
            no_token: 101,
            outstanding: 102,
            method_no_token: 103,
            method_outstanding: 104,
            no_candidate: 105,
            too_late: 106,
            no_delay: 107,
            attempts: 108,
            too_large: 109,
            not_idempotent: 110,
            not_allowed: 111,
            not_shared: 112,
            from_extra: 113,
            switched_off: 114,
            killed: 115,
        };
        let switched_off =
            SwitchedOff { pushback: 201, errors: 202, queued: 203, no_wins: 204, excess: 205 };
        Counters {
            calls: 1,
            ok: 2,
            failed: 3,
            deadline_missed: 4,
            cancelled: 5,
            waiting: 6,
            stranded: 7,
            waited_for_room: 8,
            room_kept: 9,
            refused: 10,
            attempts: 11,
            replied: 12,
            aborted: 13,
            withdrawn: 14,
            shed: 15,
            rejected: 16,
            lost: 17,
            unwatched: 18,
            live: 19,
            tied: 20,
            untied: 21,
            relayed: 22,
            both_started: 23,
            hedges: 24,
            hedge_wins: 25,
            redispatches: 26,
            uncharged: 27,
            ejected: 28,
            readmitted: 29,
            retries: 30,
            executions: 31,
            wasted: 32,
            errors: 33,
            stale: 34,
            unsaid: 35,
            stray: 36,
            denied,
            switched_off,
            switched_on: 37,
        }
    }

    fn snapshot(counters: Counters) -> Snapshot {
        let none = || Histogram::new(3).expect("three digits are a histogram's");
        let histograms = Histograms { calls: none(), attempts: none(), losers: none() };
        Snapshot {
            counters,
            histograms,
            budget_level: 38,
            budget_outstanding: 39,
            connected: 3,
            replicas: Vec::new(),
            second_copies: true,
            methods: Vec::new(),
            futures: 40,
            spans: 41,
        }
    }

    /// What a counter is called on the page.
    fn on_page(field: &str) -> &str {
        match field {
            "ok" => "calls_ok",
            "failed" => "calls_failed",
            "cancelled" => "calls_cancelled",
            "waiting" => "calls_waiting",
            "stranded" => "calls_stranded",
            "waited_for_room" => "calls_waited_for_room",
            "refused" => "calls_refused",
            "deadline_missed" => "deadlines_missed",
            "ejected" => "ejections",
            "readmitted" => "readmissions",
            "live" => "attempts_live",
            same => same,
        }
    }

    #[test]
    fn every_counter_is_on_the_page_under_its_own_name() {
        let page = snapshot(counters()).to_openmetrics(0);
        let has = |line: &str| assert!(page.lines().any(|it| it == line), "{line} in {page}");
        // As `Debug` tells them: fields are `name: value`, and groups are `name: Group {`.
        let told = format!("{:#?}", counters());
        let (mut group, mut found) = (String::new(), 0);
        for line in told.lines().skip(1) {
            let Some((field, value)) = line.trim().split_once(": ") else { continue };
            let Some(value) = value.strip_suffix(',') else {
                group = field.to_owned();
                continue;
            };
            found += 1;
            let grouped = line.starts_with("        ");
            let group = if grouped { group.as_str() } else { "ends" };
            match (group, field) {
                ("ends", "replied" | "aborted" | "withdrawn" | "shed" | "rejected" | "lost") => {
                    has(&format!(
                        "bowline_client_ends_total{{core=\"0\",how=\"{field}\"}} {value}"
                    ));
                }
                ("ends", "waiting" | "live") => {
                    has(&format!("bowline_client_{}{{core=\"0\"}} {value}", on_page(field)));
                }
                ("ends", _) => {
                    has(&format!("bowline_client_{}_total{{core=\"0\"}} {value}", on_page(field)));
                }
                (group, _) => {
                    has(&format!(
                        "bowline_client_{group}_total{{core=\"0\",reason=\"{field}\"}} {value}"
                    ));
                }
            }
        }
        assert_eq!(found, 37 + 15 + 5);
    }

    #[test]
    fn ratios_are_of_what_their_names_say() {
        let counters = Counters {
            calls: 40,
            ok: 20,
            failed: 8,
            cancelled: 4,
            waiting: 8,
            executions: 48,
            hedges: 10,
            hedge_wins: 5,
            ..Counters::default()
        };
        let snapshot = snapshot(counters);
        let ratios = (snapshot.hedge_rate(), snapshot.win_rate(), snapshot.amplification());
        assert_eq!(ratios, (0.25, 0.5, 1.5));
        let page = snapshot.to_openmetrics(0);
        let has = |line: &str| assert!(page.lines().any(|it| it == line), "{line} in {page}");
        has("bowline_client_hedge_ratio{core=\"0\"} 0.25");
        has("bowline_client_win_ratio{core=\"0\"} 0.5");
        has("bowline_client_amplification_ratio{core=\"0\"} 1.5");
        has("bowline_client_budget_level{core=\"0\"} 38");
        has("bowline_client_budget_outstanding{core=\"0\"} 39");
        has("bowline_client_futures{core=\"0\"} 40");
        has("bowline_client_spans{core=\"0\"} 41");
    }
}
