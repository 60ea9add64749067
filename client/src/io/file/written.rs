//! What a file may say, as serde reads it.

use std::net::SocketAddr;
use std::time::Duration;

use bowline_protocol::options::MAX_LABEL;
use bowline_protocol::{Label, Method, Status, TrafficClass};
use serde::Deserialize;

use super::resolve::{Found, find_set, is_record, resolve};
use super::span::Span;
use crate::core::{
    AutoOff, BudgetConfig, Candidate, Classifier, Config, Delay, EjectConfig, HedgePolicy, Limits,
    Percentile, PickRule, Policy, RetryConfig, Stagger, TiePolicy, Verdict,
};
use crate::io::config::{Canary, MethodConfig, Replica};

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a file with a replica at least, such as [[replica]] id = 1, address = \"10.0.0.1:7000\""
)]
pub(super) struct Written {
    /// Whether second copies may be sent at all.
    #[serde(default = "yes")]
    pub(super) second_copies: bool,
    /// Where the client is.
    pub(super) zone: Option<String>,
    pub(super) region: Option<String>,
    pub(super) budget: Option<WrittenBudget>,
    pick: Option<WrittenPick>,
    warm_up: Option<Span>,
    load_lifetime: Option<Span>,
    patience: Option<Span>,
    pub(super) max_reply: Option<u32>,
    reserve: Option<Span>,
    labels: Option<Vec<WrittenLabel>>,
    retry: Option<WrittenRetry>,
    eject: Option<WrittenEject>,
    pub(super) replica: Vec<WrittenReplica>,
    #[serde(default)]
    pub(super) method: Vec<WrittenMethod>,
}

const fn yes() -> bool {
    true
}

/// A label, of which nothing is cut off.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct WrittenLabel(Label);

impl TryFrom<String> for WrittenLabel {
    type Error = String;

    fn try_from(text: String) -> Result<WrittenLabel, String> {
        let label = Label::new(&text);
        let whole = label.as_str() == text;
        let long = || format!("the label {text:?} is longer than {MAX_LABEL} bytes");
        if whole { Ok(WrittenLabel(label)) } else { Err(long()) }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case", expecting = "a rule such as \"power-of-two\"")]
enum WrittenPick {
    PowerOfTwo,
    HotCold,
    C3 { clients: u16 },
    RoundRobin,
    First,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { most = 2, first = \"1ms\" }")]
struct WrittenRetry {
    most: Option<u8>,
    first: Option<Span>,
    max: Option<Span>,
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { after = 5, first = \"1s\" }, or { enabled = false }"
)]
struct WrittenEject {
    #[serde(default = "yes")]
    enabled: bool,
    after: Option<u32>,
    first: Option<Span>,
    max: Option<Span>,
}

impl Written {
    /// What the file says of the machine, put in the place of what is there.
    pub(super) fn set(&self, core: &mut Config) {
        let set = |setting: &mut Duration, span: Option<Span>| {
            *setting = span.map_or(*setting, |span| span.0);
        };
        set(&mut core.warm_up, self.warm_up);
        set(&mut core.load_lifetime, self.load_lifetime);
        set(&mut core.patience, self.patience);
        set(&mut core.reserve, self.reserve);
        if let Some(labels) = &self.labels {
            core.labels = labels.iter().map(|label| label.0).collect();
        }
        core.pick = self.pick.map_or(core.pick, WrittenPick::rule);
        core.retry = self.retry.as_ref().map(WrittenRetry::config).or(core.retry);
        core.eject = self.eject.as_ref().map_or(core.eject, WrittenEject::config);
    }
}

impl WrittenPick {
    const fn rule(self) -> PickRule {
        match self {
            WrittenPick::PowerOfTwo => PickRule::PowerOfTwo,
            WrittenPick::HotCold => PickRule::HotCold,
            WrittenPick::C3 { clients } => PickRule::C3 { clients },
            WrittenPick::RoundRobin => PickRule::RoundRobin,
            WrittenPick::First => PickRule::First,
        }
    }
}

impl WrittenRetry {
    fn config(&self) -> RetryConfig {
        let default = RetryConfig::default();
        RetryConfig {
            most: self.most.unwrap_or(default.most),
            first: self.first.map_or(default.first, |span| span.0),
            max: self.max.map_or(default.max, |span| span.0),
        }
    }
}

impl WrittenEject {
    fn config(&self) -> Option<EjectConfig> {
        let default = EjectConfig::default();
        self.enabled.then(|| EjectConfig {
            after: self.after.unwrap_or(default.after),
            first: self.first.map_or(default.first, |span| span.0),
            max: self.max.map_or(default.max, |span| span.0),
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { fraction = 0.05 }")]
pub(super) struct WrittenBudget {
    fraction: Option<f64>,
    per_second: Option<f64>,
    burst: Option<u32>,
    outstanding: Option<u32>,
    drain: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as [[replica]] with id and address")]
pub(super) struct WrittenReplica {
    /// None: it stands for a set, whose members have their numbers in their names.
    id: Option<u16>,
    address: String,
    domain: Option<String>,
    zone: Option<String>,
    region: Option<String>,
    weight: Option<u8>,
    methods: Option<Vec<u16>>,
    /// From the lowest to the highest of each range.
    #[serde(default)]
    keys: Vec<[u64; 2]>,
    results: Option<String>,
}

/// With `tie` it is tied, with `hedge` it is hedged, with both it is both.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as [[method]] with id")]
pub(super) struct WrittenMethod {
    pub(super) id: u16,
    pub(super) class: Option<u8>,
    #[serde(default)]
    pub(super) idempotent: bool,
    deadline: Option<Span>,
    max_staleness: Option<Span>,
    max_attempts: Option<u8>,
    retry: Option<WrittenRetry>,
    replies: Option<WrittenReplies>,
    tie: Option<WrittenTie>,
    pub(super) hedge: Option<WrittenHedge>,
    pub(super) budget: Option<WrittenBudget>,
    pub(super) canary: Option<WrittenCanary>,
    #[serde(default)]
    pub(super) shadow: Vec<WrittenCandidate>,
}

/// The greatest number of an error of a service's own: their codes begin above the protocol's.
pub(super) const MOST_ERROR: u16 = u16::MAX - Status::APP;

/// The numbers of the service's own errors, by what they are worth. All others are fatal.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default, expecting = "a table such as { retryable = [3] }")]
pub(super) struct WrittenReplies {
    good: Vec<u16>,
    retryable: Vec<u16>,
    stale: Vec<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { share = 0.01, tie = {} }")]
pub(super) struct WrittenCanary {
    share: f64,
    tie: Option<WrittenTie>,
    pub(super) hedge: Option<WrittenHedge>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { stagger = \"100us\" }, or {}")]
struct WrittenTie {
    stagger: Option<Span>,
    window: Option<Span>,
    max_payload: Option<u32>,
}

/// With `delay` it is fixed; else the percentile counts.
#[derive(Clone, Copy, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { percentile = 0.95 }, { delay = \"2ms\" }, or {}"
)]
pub(super) struct WrittenHedge {
    delay: Option<Span>,
    percentile: Option<f64>,
    min: Option<Span>,
    max: Option<Span>,
    fallback: Option<Span>,
    least_samples: Option<u64>,
    change_per_second: Option<f64>,
    max_rise: Option<f64>,
    max_hedges: Option<u8>,
    least_useful: Option<Span>,
    max_payload: Option<u32>,
    auto_off: Option<WrittenAutoOff>,
}

/// When hedging switches itself off.
#[derive(Clone, Copy, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { max_errors = 0.1 }, or { enabled = false }"
)]
struct WrittenAutoOff {
    #[serde(default = "yes")]
    enabled: bool,
    window: Option<Span>,
    least_calls: Option<u32>,
    max_pushback: Option<f64>,
    max_errors: Option<f64>,
    max_queued: Option<f64>,
    min_wins: Option<f64>,
    least_hedges: Option<u32>,
    max_excess: Option<f64>,
    off_for: Option<Span>,
}

impl WrittenAutoOff {
    fn rule(self) -> Option<AutoOff> {
        let default = AutoOff::default();
        self.enabled.then(|| AutoOff {
            window: self.window.map_or(default.window, |span| span.0),
            least_calls: self.least_calls.unwrap_or(default.least_calls),
            max_pushback: self.max_pushback.unwrap_or(default.max_pushback),
            max_errors: self.max_errors.unwrap_or(default.max_errors),
            max_queued: self.max_queued.unwrap_or(default.max_queued),
            min_wins: self.min_wins.unwrap_or(default.min_wins),
            least_hedges: self.least_hedges.unwrap_or(default.least_hedges),
            max_excess: self.max_excess.unwrap_or(default.max_excess),
            off_for: self.off_for.map_or(default.off_for, |span| span.0),
        })
    }
}

/// What is only thought of: one of a fixed delay, a percentile, and the stagger of a tie.
#[derive(Clone, Copy, Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a table such as { delay = \"2ms\" }, { percentile = 0.95 } or { stagger = \"100us\" }"
)]
pub(super) struct WrittenCandidate {
    delay: Option<Span>,
    percentile: Option<f64>,
    stagger: Option<Span>,
}

impl WrittenBudget {
    pub(super) fn config(&self) -> BudgetConfig {
        let default = BudgetConfig::default();
        BudgetConfig {
            fraction: self.fraction.unwrap_or(default.fraction),
            per_second: self.per_second.unwrap_or(default.per_second),
            burst: self.burst.unwrap_or(default.burst),
            outstanding: self.outstanding.unwrap_or(default.outstanding),
            drain: self.drain.unwrap_or(default.drain),
        }
    }
}

impl WrittenReplica {
    /// One replica, or all of a set. The error says what to do about it.
    pub(super) fn replicas(&self, known: &[Replica]) -> Result<Vec<Replica>, String> {
        match self.id {
            Some(id) => Ok(vec![self.replica(id, known)?]),
            None => self.set(known),
        }
    }

    fn set(&self, known: &[Replica]) -> Result<Vec<Replica>, String> {
        if !is_record(&self.address) || self.weight.is_some() {
            return Err(
                "a replica needs an id; one without, and without a weight, is a set of them, \
                        which is found by an SRV record's name (\"_bowline._tcp.store.example\")"
                    .to_owned(),
            );
        }
        let set = Some(self.address.clone());
        let members: Vec<Replica> = known.iter().filter(|it| it.set == set).cloned().collect();
        let described = |found: Found| self.described(found.id, found.address).found(found);
        let mut all: Vec<Replica> = match members.is_empty() {
            true => find_set(&self.address, |_| None)?.into_iter().map(described).collect(),
            false => members.iter().map(|member| described(member.as_found())).collect(),
        };
        all.iter_mut().for_each(|replica| replica.set = set.clone());
        Ok(all)
    }

    fn replica(&self, id: u16, known: &[Replica]) -> Result<Replica, String> {
        let literal = self.address.parse().ok();
        let same = |it: &&Replica| it.host.as_ref() == Some(&self.address);
        let found = literal.or_else(|| known.iter().find(same).map(|it| it.address));
        let address = match found {
            Some(address) => address,
            None => resolve(&self.address, None)?,
        };
        let host = literal.is_none().then(|| self.address.clone());
        Ok(Replica { host, ..self.described(id, address) })
    }

    fn described(&self, id: u16, address: SocketAddr) -> Replica {
        Replica {
            domain: self.domain.clone(),
            zone: self.zone.clone(),
            region: self.region.clone(),
            weight: self.weight.unwrap_or(1),
            methods: self.methods.as_ref().map(|all| all.iter().copied().map(Method).collect()),
            keys: self.keys.iter().map(|&[low, high]| low..=high).collect(),
            results: self.results.clone(),
            ..Replica::new(id, address)
        }
    }
}

impl WrittenMethod {
    /// An error of the service's that is said to be worth two things, or that no service has.
    pub(super) fn misjudged(&self) -> Option<u16> {
        self.replies.as_ref()?.misjudged()
    }

    pub(super) fn method(&self) -> (Method, MethodConfig) {
        let default = MethodConfig::default();
        let canary = self.canary.as_ref();
        let config = MethodConfig {
            class: self.class.map(TrafficClass),
            policy: policy(self.tie, self.hedge),
            idempotent: self.idempotent,
            deadline: self.deadline.map_or(default.deadline, |span| span.0),
            max_staleness: self.max_staleness.map(|span| span.0),
            classifier: self
                .replies
                .as_ref()
                .map_or(default.classifier, WrittenReplies::classifier),
            limits: Limits {
                attempts: self.max_attempts.unwrap_or(default.limits.attempts),
                retry: self.retry.as_ref().map(WrittenRetry::config),
            },
            budget: None,
            canary: canary.map(|it| Canary { policy: policy(it.tie, it.hedge), share: it.share }),
            shadow: Vec::new(),
        };
        (Method(self.id), config)
    }
}

impl WrittenReplies {
    fn verdicts(&self) -> Vec<(u16, Verdict)> {
        let each = [
            (&self.good, Verdict::Good),
            (&self.retryable, Verdict::Retryable),
            (&self.stale, Verdict::Stale),
        ];
        let of = |(numbers, verdict): (&Vec<u16>, Verdict)| {
            numbers.iter().map(move |&number| (number, verdict)).collect::<Vec<_>>()
        };
        each.into_iter().flat_map(of).collect()
    }

    /// An error that is said to be worth two things, or that no service has.
    fn misjudged(&self) -> Option<u16> {
        let all = self.verdicts();
        if let Some(&(number, _)) = all.iter().find(|&&(number, _)| number > MOST_ERROR) {
            return Some(number);
        }
        let (_, &(number, _)) = all
            .iter()
            .enumerate()
            .find(|(at, (number, _))| all[..*at].iter().any(|(other, _)| other == number))?;
        Some(number)
    }

    fn classifier(&self) -> Classifier {
        Classifier::by_error(self.verdicts())
    }
}

fn policy(tie: Option<WrittenTie>, hedge: Option<WrittenHedge>) -> Policy {
    match (tie.map(WrittenTie::policy), hedge.map(WrittenHedge::policy)) {
        (None, None) => Policy::None,
        (None, Some(hedge)) => Policy::Hedged(hedge),
        (Some(tie), None) => Policy::Tied(tie),
        (Some(tie), Some(hedge)) => Policy::TiedThenHedged(tie, hedge),
    }
}

impl WrittenTie {
    fn policy(self) -> TiePolicy {
        let default = TiePolicy::default();
        TiePolicy {
            stagger: self.stagger.map_or(default.stagger, |span| Stagger::Fixed(span.0)),
            window: self.window.map_or(default.window, |span| span.0),
            max_payload: self.max_payload.unwrap_or(default.max_payload),
        }
    }
}

impl WrittenHedge {
    /// The settings of both kinds of delay are there.
    pub(super) fn is_ambiguous(&self) -> bool {
        let spans = [&self.min, &self.max, &self.fallback];
        let factors = self.change_per_second.is_some() || self.max_rise.is_some();
        let numbers = self.percentile.is_some() || factors;
        let percentile =
            numbers || self.least_samples.is_some() || spans.iter().any(|span| span.is_some());
        self.delay.is_some() && percentile
    }

    fn policy(self) -> HedgePolicy {
        let (default, percentile) = (HedgePolicy::default(), Percentile::default());
        let delay = match self.delay {
            Some(delay) => Delay::Fixed(delay.0),
            None => Delay::Percentile(Percentile {
                quantile: self.percentile.unwrap_or(percentile.quantile),
                min: self.min.map_or(percentile.min, |span| span.0),
                max: self.max.map_or(percentile.max, |span| span.0),
                fallback: self.fallback.map(|span| span.0),
                least_samples: self.least_samples.unwrap_or(percentile.least_samples),
                change_per_second: self.change_per_second.unwrap_or(percentile.change_per_second),
                max_rise: self.max_rise.unwrap_or(percentile.max_rise),
            }),
        };
        HedgePolicy {
            delay,
            max_hedges: self.max_hedges.unwrap_or(default.max_hedges),
            least_useful: self.least_useful.map_or(default.least_useful, |span| span.0),
            max_payload: self.max_payload.unwrap_or(default.max_payload),
            auto_off: self.auto_off.map_or(default.auto_off, WrittenAutoOff::rule),
        }
    }
}

impl WrittenCandidate {
    /// None unless it is exactly one of the three.
    pub(super) fn candidate(self) -> Option<Candidate> {
        match (self.delay, self.percentile, self.stagger) {
            (Some(delay), None, None) => Some(Candidate::Hedge(Delay::Fixed(delay.0))),
            (None, Some(quantile), None) => {
                let percentile = Percentile { quantile, ..Percentile::default() };
                Some(Candidate::Hedge(Delay::Percentile(percentile)))
            }
            (None, None, Some(stagger)) => Some(Candidate::Tie(Stagger::Fixed(stagger.0))),
            _ => None,
        }
    }
}
