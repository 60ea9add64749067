//! One slice: one policy in one round.

use core::ops::AddAssign;
use core::time::Duration;
use std::collections::BTreeMap;

use bowline_protocol::ErrorKind;

use super::denial::Denial;
use super::latency::Latencies;

/// How a call ended for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// With a reply that carries the right bytes.
    Ok,
    /// With an error.
    Failed(ErrorKind),
    /// With a reply whose bytes are not the block that was asked for.
    Corrupt,
}

/// How often each thing happened. A *copy* is one send of a call to one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls that fell due.
    pub calls: u64,
    /// Calls that ended with the right bytes.
    pub ok: u64,
    /// Of those, calls that took at most the deadline, counted from when they fell due.
    pub in_deadline: u64,
    /// Calls that ended with their deadline, or with a reply after it.
    pub deadline_misses: u64,
    /// Calls that ended because every copy was shed or refused: the servers saw that they would be
    /// too late.
    pub shed_calls: u64,
    /// Calls that ended with another error.
    pub errors: u64,
    /// Replies whose bytes were not those of the block.
    pub corrupt: u64,
    /// Copies sent.
    pub attempts: u64,
    /// How those ended.
    pub ends: Ends,
    /// Copies whose handler started.
    pub executions: u64,
    /// Of those, copies whose reply nobody used.
    pub wasted_executions: u64,
    /// Copies sent because the first was slow.
    pub hedges: u64,
    /// Second copies of tied pairs.
    pub second_copies: u64,
    /// Calls that a hedge or a second copy answered first.
    pub extra_wins: u64,
    /// Calls of which both tied copies started.
    pub both_started: u64,
    /// Calls that were to be tied and were not.
    pub ties_denied: u64,
    /// Hedges that were not sent, while hedging had not switched itself off.
    pub hedges_denied: u64,
    /// Calls that could not be hedged as hedging had switched itself off.
    pub hedges_switched_off: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        // Taken apart, so that a counter added later cannot be forgotten here.
        let Counters {
            calls,
            ok,
            in_deadline,
            deadline_misses,
            shed_calls,
            errors,
            corrupt,
            attempts,
            ends,
            executions,
            wasted_executions,
            hedges,
            second_copies,
            extra_wins,
            both_started,
            ties_denied,
            hedges_denied,
            hedges_switched_off,
        } = other;
        self.calls += calls;
        self.ok += ok;
        self.in_deadline += in_deadline;
        self.deadline_misses += deadline_misses;
        self.shed_calls += shed_calls;
        self.errors += errors;
        self.corrupt += corrupt;
        self.attempts += attempts;
        self.ends += ends;
        self.executions += executions;
        self.wasted_executions += wasted_executions;
        self.hedges += hedges;
        self.second_copies += second_copies;
        self.extra_wins += extra_wins;
        self.both_started += both_started;
        self.ties_denied += ties_denied;
        self.hedges_denied += hedges_denied;
        self.hedges_switched_off += hedges_switched_off;
    }
}

/// How copies ended: each in one of these ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Answered, whether or not that answer was the first.
    pub answered: u64,
    /// Taken out of a queue because the twin had started.
    pub withdrawn_by_twin: u64,
    /// Taken out of a queue because the call was over.
    pub withdrawn_by_caller: u64,
    /// Stopped while they ran: the twin ran as well, the call was over, or its deadline passed.
    pub aborted: u64,
    /// Refused or dropped before they started, mostly because they would have been too late.
    pub shed: u64,
    /// Gone with their connection, or not over when the slice was.
    pub lost: u64,
}

impl Ends {
    /// All of them.
    pub const fn sum(&self) -> u64 {
        let withdrawn = self.withdrawn_by_twin + self.withdrawn_by_caller;
        self.answered + withdrawn + self.aborted + self.shed + self.lost
    }
}

impl AddAssign for Ends {
    fn add_assign(&mut self, other: Ends) {
        let Ends { answered, withdrawn_by_twin, withdrawn_by_caller, aborted, shed, lost } = other;
        self.answered += answered;
        self.withdrawn_by_twin += withdrawn_by_twin;
        self.withdrawn_by_caller += withdrawn_by_caller;
        self.aborted += aborted;
        self.shed += shed;
        self.lost += lost;
    }
}

/// What one slice measured.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Time from when a call fell *due* to its end.
    pub latency: Latencies,
    /// Time from when a call fell due to when the generator sent it: its own lateness.
    pub lag: Latencies,
    /// Time from a call's result to the end of each copy that was still out then.
    pub losers: Latencies,
    /// How often each thing happened.
    pub counters: Counters,
    /// Calls that failed, by the kinds of their errors.
    pub failed_by_kind: BTreeMap<ErrorKind, u64>,
    /// Second copies, of ties and of hedges, that were not sent, by what stood against them.
    pub denied: BTreeMap<Denial, u64>,
    /// How long calls fell due.
    pub duration: Duration,
    /// CPU time that the client and the replicas used together; zero where that is not known.
    pub cpu: Duration,
    deadline: Duration,
}

impl Slice {
    /// A slice without calls, whose calls have `deadline`.
    pub fn new(deadline: Duration) -> Self {
        Slice {
            latency: Latencies::new(),
            lag: Latencies::new(),
            losers: Latencies::new(),
            counters: Counters::default(),
            failed_by_kind: BTreeMap::new(),
            denied: BTreeMap::new(),
            duration: Duration::ZERO,
            cpu: Duration::ZERO,
            deadline,
        }
    }

    /// Counts one call by its own times, all from the start of the slice.
    ///
    /// A call that failed is no quick call: it counts with its deadline, or with the time it took
    /// where that is longer, so that failing fast cannot make a tail look short.
    pub fn record(&mut self, due: Duration, sent: Duration, ended: Duration, end: CallEnd) {
        let took = ended.saturating_sub(due);
        let in_time = took <= self.deadline;
        let counters = &mut self.counters;
        counters.calls += 1;
        match end {
            CallEnd::Ok if in_time => {
                counters.ok += 1;
                counters.in_deadline += 1;
            }
            CallEnd::Ok => {
                counters.ok += 1;
                counters.deadline_misses += 1;
            }
            CallEnd::Failed(kind) => {
                *match kind {
                    ErrorKind::DeadlineExceeded => &mut counters.deadline_misses,
                    ErrorKind::Overloaded | ErrorKind::Shed => &mut counters.shed_calls,
                    _ => &mut counters.errors,
                } += 1;
                *self.failed_by_kind.entry(kind).or_default() += 1;
            }
            CallEnd::Corrupt => counters.corrupt += 1,
        }
        self.lag.record(sent.saturating_sub(due));
        self.latency.record(if end == CallEnd::Ok { took } else { took.max(self.deadline) });
    }

    /// Adds all that `other` measured: the same policy in another round.
    pub fn merge(&mut self, other: &Slice) {
        self.latency.merge(&other.latency);
        self.lag.merge(&other.lag);
        self.losers.merge(&other.losers);
        self.counters += other.counters;
        for (&kind, calls) in &other.failed_by_kind {
            *self.failed_by_kind.entry(kind).or_default() += calls;
        }
        for (&why, copies) in &other.denied {
            *self.denied.entry(why).or_default() += copies;
        }
        self.duration += other.duration;
        self.cpu += other.cpu;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn latency_counts_from_when_the_call_fell_due() {
        let mut slice = Slice::new(ms(50));
        slice.record(ms(10), ms(13), ms(20), CallEnd::Ok);
        assert_eq!(slice.latency.max().as_millis(), 10);
        assert_eq!(slice.lag.max().as_millis(), 3);
    }

    #[test]
    fn a_call_that_failed_fast_counts_with_its_deadline() {
        let mut slice = Slice::new(ms(50));
        slice.record(ms(10), ms(10), ms(11), CallEnd::Failed(ErrorKind::NoReplica));
        assert_eq!(slice.latency.max().as_millis(), 50);
        slice.record(ms(10), ms(10), ms(100), CallEnd::Failed(ErrorKind::DeadlineExceeded));
        assert_eq!(slice.latency.max().as_millis(), 90);
    }

    #[test]
    fn a_right_answer_after_the_deadline_is_completed_but_missed() {
        let mut slice = Slice::new(ms(50));
        slice.record(ms(0), ms(20), ms(60), CallEnd::Ok);
        let counters = slice.counters;
        assert_eq!((counters.ok, counters.in_deadline, counters.deadline_misses), (1, 0, 1));
    }

    #[test]
    fn every_call_ends_in_exactly_one_way() {
        let mut slice = Slice::new(ms(50));
        let failed =
            [ErrorKind::DeadlineExceeded, ErrorKind::Shed, ErrorKind::NoReplica, ErrorKind::Shed];
        let failed = failed.map(CallEnd::Failed);
        let ends = failed.into_iter().chain([CallEnd::Ok, CallEnd::Corrupt]);
        for end in ends {
            slice.record(ms(0), ms(0), ms(5), end);
        }
        let c = slice.counters;
        assert_eq!(c.calls, 6);
        assert_eq!(c.in_deadline + c.deadline_misses + c.shed_calls + c.errors + c.corrupt, 6);
        assert_eq!((c.deadline_misses, c.shed_calls, c.errors), (1, 2, 1));
        assert_eq!(slice.latency.len(), 6);
        slice.merge(&slice.clone());
        let kinds =
            [(ErrorKind::DeadlineExceeded, 2), (ErrorKind::NoReplica, 2), (ErrorKind::Shed, 4)];
        assert_eq!(slice.failed_by_kind, BTreeMap::from(kinds));
    }

    #[test]
    fn merging_adds_samples_counters_and_time() {
        let mut one = Slice::new(ms(50));
        one.record(ms(0), ms(0), ms(5), CallEnd::Ok);
        one.duration = ms(100);
        let mut both = one.clone();
        both.merge(&one);
        assert_eq!((both.latency.len(), both.counters.ok, both.duration), (2, 2, ms(200)));
    }
}
