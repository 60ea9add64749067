//! One policy's turn against live replicas.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bowline_client::core::{Counters, Outcome};
use bowline_client::{Client, Failure, Reply};
use bowline_protocol::Cause;
use bowline_runtime::{Instant, Notify, Runtime, clock_now, sleep, sleep_until, spawn};

use crate::cli::Policy;
use crate::course::{Driver, Round};
use crate::cpu;
use crate::data::DataSet;
use crate::failures::Failures;
use crate::faults::{Carried, Injector};
use crate::figures::Served;
use crate::frontend::{Frontend, FrontendError, Seat};
use crate::interrupt::Interrupt;
use crate::replicas::Cluster;
use crate::stats::{CallEnd, Ends, Slice};
use crate::store::{READ, SLOW_DEVICE, read_request};
use crate::units::show_duration;

/// Between the decision to begin and the first moment of a schedule.
const LEAD: Duration = Duration::from_millis(20);
/// The longest sleep of the generator, so that the user's wish to end is seen and progress told.
const NAP: Duration = Duration::from_millis(50);
/// How long the copies that lost may take to end after the last call has.
const LOSERS: Duration = Duration::from_secs(5);

/// Sends calls from one thread, and reads what the replicas did.
pub struct Live {
    /// Where everything of the client's runs.
    pub runtime: Runtime,
    /// The clients.
    pub frontend: Frontend,
    /// The replicas' processes, if they are ours to stall.
    pub cluster: Option<Arc<Cluster>>,
    /// The blocks that are read.
    pub set: DataSet,
    /// Time that a call may take from when it falls due.
    pub deadline: Duration,
    /// The user's wish to end.
    pub interrupt: Interrupt,
    /// What the replicas did in all turns together.
    pub served: Served,
    /// What went wrong with the replicas.
    pub failures: Failures,
    /// What did not add up, a sentence each.
    pub notes: Vec<String>,
}

/// A turn on its way.
struct Turn {
    client: Client,
    set: DataSet,
    deadline: Duration,
    start: Instant,
    slice: RefCell<Slice>,
    extra_wins: Cell<u64>,
    /// Blocks that were not what was asked for, by the replica that sent them.
    corrupt: RefCell<BTreeMap<u16, u64>>,
    /// The replicas, if they are ours and can all be seen to have died.
    cluster: Option<Arc<Cluster>>,
    waiting: Cell<u64>,
    /// How much of the time of calls had passed when that was told last.
    told: Cell<Duration>,
    /// The last call that waited has ended.
    empty: Notify,
}

impl Driver for Live {
    type Error = FrontendError;

    fn turn(
        &mut self,
        policy: Policy,
        round: &Round,
        progress: &mut dyn FnMut(Duration),
    ) -> Result<Slice, FrontendError> {
        let Live { runtime, frontend, cluster, set, deadline, interrupt, .. } = self;
        let (all, failures, notes) = (&mut self.served, &mut self.failures, &mut self.notes);
        let several = frontend.seats.len() > 1;
        let Some(seat) = frontend.seats.iter().find(|seat| seat.policy == policy) else {
            return Ok(Slice::new(*deadline));
        };
        runtime.block_on(async {
            let before = frontend.figures_left().await;
            let (counted, timed) = (seat.client.counters(), seat.client.snapshot().histograms);
            let cpu_before = cpu_of(cluster.as_deref());
            let start = clock_now() + LEAD;
            let injector = cluster.as_ref().map(|cluster| {
                Injector::start(&round.plan, std::time::Instant::now() + LEAD, cluster.clone())
            });
            let turn = Turn::new(seat, *set, *deadline, start, cluster.clone());
            let sent_for = turn.send_all(seat, round, interrupt, progress).await;
            while turn.waiting.get() > 0 {
                turn.empty.notified().await;
            }
            let carried = injector.map_or_else(Carried::default, Injector::finish);
            notes.extend(not_stalled(policy, round.number, carried));
            for (&replica, &blocks) in &*turn.corrupt.borrow() {
                failures.sent_corrupt(usize::from(replica), blocks);
            }
            note_deaths(failures, cluster.as_deref(), policy, round.number);
            losers_end(&seat.client).await;
            let after = frontend.figures_left().await;
            let mut slice = turn.slice.borrow().clone();
            slice.duration = sent_for;
            slice.cpu = cpu_of(cluster.as_deref()).saturating_sub(cpu_before);
            slice.losers.add_growth(&timed.losers, &seat.client.snapshot().histograms.losers);
            let client = seat.client.counters().since(&counted);
            let mut served = Served::default();
            let mut silent = 0;
            for figures in before.iter().zip(&after) {
                match figures {
                    (Some(before), Some(after)) if after.continue_from(before) => {
                        served.add(before, after);
                        all.add(before, after);
                    }
                    _ => silent += 1,
                }
            }
            notes.extend(check(policy, &client, &served, silent));
            notes.extend(slow_device(policy, &served, several));
            if silent > 0 {
                served = seen_by(&client);
            }
            fill(&mut slice, &client, &served, turn.extra_wins.get());
            notes.extend(add_up(policy, &slice.counters));
            let [ties, hedges, off] = denied(policy, &client);
            slice.counters.ties_denied = ties;
            slice.counters.hedges_denied = hedges;
            slice.counters.hedges_switched_off = off;
            Ok(slice)
        })
    }
}

impl Turn {
    fn new(
        seat: &Seat,
        set: DataSet,
        deadline: Duration,
        start: Instant,
        cluster: Option<Arc<Cluster>>,
    ) -> Rc<Turn> {
        Rc::new(Turn {
            client: seat.client.clone(),
            set,
            deadline,
            start,
            slice: RefCell::new(Slice::new(deadline)),
            extra_wins: Cell::new(0),
            corrupt: RefCell::default(),
            cluster,
            waiting: Cell::new(0),
            told: Cell::default(),
            empty: Notify::new(),
        })
    }

    /// Sends every call when it falls due, whatever became of those before; how long calls fell
    /// due.
    async fn send_all(
        self: &Rc<Self>,
        seat: &Seat,
        round: &Round,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(Duration),
    ) -> Duration {
        for (number, arrival) in (0..).zip(round.schedule.arrivals()) {
            if !self.sleep_to(arrival.at, interrupt, progress).await {
                return clock_now() - self.start;
            }
            self.waiting.set(self.waiting.get() + 1);
            let draw = round.draws.wrapping_add(number);
            drop(spawn(self.clone().call(seat.id, arrival.at, arrival.block, draw)));
        }
        let whole = round.schedule.duration();
        if self.sleep_to(whole, interrupt, progress).await {
            whole
        } else {
            clock_now() - self.start
        }
    }

    /// Sleeps to a time of the schedule; false if the user asked to end before.
    async fn sleep_to(
        &self,
        at: Duration,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(Duration),
    ) -> bool {
        let at = self.start + at;
        loop {
            let now = clock_now();
            let elapsed = now - self.start;
            if elapsed.saturating_sub(self.told.get()) >= NAP {
                self.told.set(elapsed);
                progress(elapsed);
                // Without a replica every call to come would only miss its deadline.
                if self.cluster.as_ref().is_some_and(|cluster| cluster.all_ended()) {
                    interrupt.ask();
                }
            }
            if now >= at {
                return true;
            }
            if interrupt.asked() {
                return false;
            }
            sleep_until(at.min(now + NAP)).await;
        }
    }

    /// One call, from when it is sent to what is written down of it.
    async fn call(
        self: Rc<Self>,
        policy: bowline_client::core::PolicyId,
        due: Duration,
        block: u64,
        draw: u64,
    ) {
        let sent = clock_now();
        // What the generator was late for is not given back: the deadline counts from `due`.
        let left = (self.start + due + self.deadline) - sent;
        let call = self.client.call(READ, read_request(block, draw));
        let result = call.idempotent().policy(policy).deadline(left).await;
        let ended = clock_now();
        let end = self.end_of(block, result);
        self.slice.borrow_mut().record(due, sent - self.start, ended - self.start, end);
        self.waiting.set(self.waiting.get() - 1);
        if self.waiting.get() == 0 {
            self.empty.notify();
        }
    }

    fn end_of(&self, block: u64, result: Result<Reply, Failure>) -> CallEnd {
        match result {
            Ok(reply) => {
                self.extra_wins
                    .set(self.extra_wins.get() + u64::from(won_by_extra(reply.outcome())));
                match self.set.verify(block, &reply) {
                    Ok(()) => CallEnd::Ok,
                    Err(_) => {
                        if let Some(winner) = reply.outcome().winner {
                            *self.corrupt.borrow_mut().entry(winner.replica.0).or_default() += 1;
                        }
                        CallEnd::Corrupt
                    }
                }
            }
            Err(failure) => CallEnd::Failed(failure.error().kind),
        }
    }
}

/// The reply was that of a hedge or of the second of two tied copies.
fn won_by_extra(outcome: &Outcome) -> bool {
    outcome.winner.is_some_and(|winner| match winner.cause {
        Cause::Hedge => true,
        Cause::First => outcome.tied && winner.n > 0,
        Cause::Redispatch => false,
    })
}

/// Notes which replicas of ours have ended, and that it was in this turn or before it.
fn note_deaths(failures: &mut Failures, cluster: Option<&Cluster>, policy: Policy, round: u32) {
    let Some(cluster) = cluster else { return };
    let when = match round {
        0 => format!("the warm-up of {policy}"),
        round => format!("round {round}, {policy}"),
    };
    for (replica, status) in cluster.ended() {
        failures.died(replica, cluster.process_id(replica), status, &when);
    }
}

/// Says so where replicas did not stall as planned: policies then met different stalls.
fn not_stalled(policy: Policy, round: u32, carried: Carried) -> Option<String> {
    (carried.failed > 0).then(|| {
        format!(
            "{policy}, round {round}: {} of {} stalls could not be made, as their replica could not \
             be stopped.",
            carried.failed,
            carried.failed + carried.begun
        )
    })
}

/// Waits until no copy of any call is out any more.
async fn losers_end(client: &Client) {
    let deadline = clock_now() + LOSERS;
    while client.counters().live > 0 && clock_now() < deadline {
        sleep(Duration::from_millis(1)).await;
    }
}

/// CPU time of this process and of the replicas that it started.
fn cpu_of(cluster: Option<&Cluster>) -> Duration {
    let replicas = cluster.map_or(0, |cluster| cluster.addresses().len());
    let used = |n| cluster.and_then(|cluster| cpu::used_by(cluster.process_id(n)));
    cpu::used_by_us() + (0..replicas).filter_map(used).sum::<Duration>()
}

/// Extra copies that a policy wanted and that were not sent: of ties, of hedges, and of hedges
/// while hedging had switched itself off.
pub(crate) fn denied(policy: Policy, client: &Counters) -> [u64; 3] {
    let all = client.denied;
    let (ties, hedges) = match policy {
        Policy::None => return [0; 3],
        Policy::Hedged => (false, true),
        Policy::Tied => (true, false),
        Policy::TiedHedged => (true, true),
    };
    // Every call is to be tied; why one was not is counted together with why hedges were not.
    let ties = if ties { client.calls.saturating_sub(client.tied) } else { 0 };
    let reasons = all.no_token + all.outstanding + all.no_candidate + all.too_late;
    let reasons = reasons + all.no_delay + all.attempts + all.too_large;
    let reasons = reasons + all.not_idempotent + all.not_allowed + all.not_shared;
    let reasons = reasons + all.from_extra + all.killed;
    let hedges = if hedges { reasons.saturating_sub(ties) } else { 0 };
    [ties, hedges, all.switched_off]
}

/// What replicas did as far as the client knows, for when one of them does not tell any more.
fn seen_by(client: &Counters) -> Served {
    let (executions, arrived) = (client.executions, client.attempts);
    Served { executions, arrived, ends: ends_of(client, client.withdrawn), ..Served::default() }
}

/// How copies ended as their client has it, which knows of each, but not what it was withdrawn for.
fn ends_of(client: &Counters, withdrawn_by_twin: u64) -> Ends {
    Ends {
        answered: client.replied,
        withdrawn_by_twin,
        withdrawn_by_caller: client.withdrawn.saturating_sub(withdrawn_by_twin),
        aborted: client.aborted,
        shed: client.shed + client.rejected,
        lost: client.lost + client.live,
    }
}

/// Executions, and what copies were withdrawn for, are the servers' own counts; what was sent and
/// how it ended, the client's.
pub(crate) fn fill(slice: &mut Slice, client: &Counters, served: &Served, extra_wins: u64) {
    let counters = &mut slice.counters;
    counters.attempts = client.attempts;
    counters.executions = served.executions;
    counters.wasted_executions = served.executions.saturating_sub(counters.ok);
    counters.hedges = client.hedges;
    counters.second_copies = client.tied - client.untied;
    counters.extra_wins = extra_wins;
    counters.ends = ends_of(client, served.ends.withdrawn_by_twin);
    counters.both_started = client.both_started;
}

/// Says so where copies have not exactly one end each.
fn add_up(policy: Policy, counters: &crate::stats::Counters) -> Option<String> {
    (counters.attempts != counters.ends.sum()).then(|| {
        format!(
            "{policy}: {} copies were sent and {} ended in one way or another: the figures of \
             copies do not add up.",
            counters.attempts,
            counters.ends.sum()
        )
    })
}

/// Says so where the real device made stalls of its own, which differ from policy to policy where
/// there are several.
fn slow_device(policy: Policy, served: &Served, several: bool) -> Option<String> {
    /// A stall by the plan finds a read at the device now and then.
    const USUAL_SHARE: u64 = 500;
    (served.slow_reads > 3 && served.slow_reads > served.executions / USUAL_SHARE).then(|| {
        let harm = if several { ", and the policies did not meet the same stalls" } else { "" };
        format!(
            "{policy}: in one turn the device itself took more than {} for {} of {} reads: others \
             keep it busy{harm}. Repeat it on a quiet machine.",
            show_duration(SLOW_DEVICE),
            served.slow_reads,
            served.executions
        )
    })
}

/// What the client sent has to be what the servers got, unless a connection broke.
fn check(policy: Policy, client: &Counters, served: &Served, silent: u32) -> Option<String> {
    if silent > 0 {
        return Some(format!(
            "{policy}: {silent} of the replicas did not answer after a turn, or had been started \
             anew in it; the client's own counts stand for theirs, and all that was withdrawn \
             counts as withdrawn by a twin."
        ));
    }
    let lost = client.lost + client.live;
    if lost > 0 {
        return Some(format!(
            "{policy}: {lost} copies went down with a connection or had not ended in time; what \
             the client and the replicas counted can differ by as many."
        ));
    }
    let (ours, theirs) = (ends_of(client, served.ends.withdrawn_by_twin), served.ends);
    let counts = [
        ("sent", client.attempts, served.arrived),
        ("started", client.executions, served.executions),
        ("answered", ours.answered, theirs.answered),
        ("withdrawn", client.withdrawn, theirs.withdrawn_by_twin + theirs.withdrawn_by_caller),
        ("aborted", ours.aborted, theirs.aborted),
        ("shed or refused", ours.shed, theirs.shed),
    ];
    let differ = counts.iter().filter(|(_, ours, theirs)| ours != theirs);
    let differ: Vec<String> = differ
        .map(|(what, ours, theirs)| format!("{ours} copies as {what}, the replicas {theirs}"))
        .collect();
    (!differ.is_empty()).then(|| {
        format!(
            "{policy}: the client counted {}: somebody else used them, too, or something is wrong.",
            differ.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use bowline_client::core::Winner;
    use bowline_protocol::ReplicaId;

    use bowline_client::core::Denied;

    use super::*;

    fn outcome(tied: bool, n: u16, cause: Cause) -> Outcome {
        let winner = Some(Winner { replica: ReplicaId(1), n, cause });
        Outcome { latency: Duration::ZERO, attempts: 2, hedges: 0, tied, winner }
    }

    #[test]
    fn wins_are_those_of_hedges_and_of_second_copies_alone() {
        assert!(won_by_extra(&outcome(false, 1, Cause::Hedge)));
        assert!(won_by_extra(&outcome(true, 1, Cause::First)));
        assert!(!won_by_extra(&outcome(true, 0, Cause::First)));
        assert!(!won_by_extra(&outcome(false, 0, Cause::First)));
        assert!(!won_by_extra(&outcome(false, 1, Cause::Redispatch)), "nobody else was left");
        assert!(!won_by_extra(&Outcome { winner: None, ..outcome(true, 1, Cause::First) }));
    }

    #[test]
    fn extra_copies_that_were_not_sent_are_told_by_what_they_were_to_be() {
        let all = Denied { no_token: 4, no_candidate: 1, switched_off: 7, ..Denied::default() };
        let client = Counters { calls: 10, tied: 8, denied: all, ..Counters::default() };
        assert_eq!(denied(Policy::None, &client), [0, 0, 0]);
        assert_eq!(denied(Policy::Hedged, &client), [0, 5, 7]);
        assert_eq!(denied(Policy::Tied, &client), [2, 0, 7]);
        assert_eq!(denied(Policy::TiedHedged, &client), [2, 3, 7]);
    }

    #[test]
    fn counts_that_do_not_match_are_told() {
        let client = Counters { attempts: 20, executions: 11, ..Counters::default() };
        let served = Served { arrived: 20, executions: 11, ..Served::default() };
        let told = |client: &Counters, served: &Served, silent| {
            check(Policy::Tied, client, served, silent).unwrap_or_default()
        };
        assert_eq!(told(&client, &served, 0), "");
        let more = Served { executions: 12, ..served };
        assert!(told(&client, &more, 0).contains("something is wrong"));
        assert!(told(&client, &served, 1).contains("did not answer"));
        let ends = Ends { withdrawn_by_twin: 3, withdrawn_by_caller: 1, ..Ends::default() };
        let withdrew = Served { ends, ..served };
        let said = told(&Counters { withdrawn: 3, ..client }, &withdrew, 0);
        assert!(said.contains("counted 3 copies as withdrawn, the replicas 4"), "{said}");
        let lost = Counters { lost: 2, ..client };
        assert!(told(&lost, &more, 0).contains("2 copies went down"));
    }

    #[test]
    fn a_device_that_stalls_by_itself_is_told() {
        let served = |slow_reads| Served { executions: 10_000, slow_reads, ..Served::default() };
        assert_eq!(slow_device(Policy::None, &served(20), true), None);
        let told = |several| slow_device(Policy::None, &served(21), several).expect("a note");
        assert!(told(true).contains("21 of 10000"), "{}", told(true));
        assert!(told(true).contains("same stalls") && !told(false).contains("policies"));
    }

    #[test]
    fn what_was_executed_and_not_used_is_waste() {
        let mut slice = Slice::new(Duration::from_secs(1));
        for _ in 0..10 {
            slice.record(Duration::ZERO, Duration::ZERO, Duration::from_millis(5), CallEnd::Ok);
        }
        let client = Counters {
            attempts: 19,
            replied: 10,
            withdrawn: 9,
            tied: 10,
            untied: 1,
            ..Counters::default()
        };
        let ends = Ends { withdrawn_by_twin: 7, ..Ends::default() };
        let served = Served { executions: 11, ends, ..Served::default() };
        fill(&mut slice, &client, &served, 3);
        let counters = slice.counters;
        assert_eq!((counters.executions, counters.wasted_executions), (11, 1));
        assert_eq!((counters.second_copies, counters.extra_wins), (9, 3));
        let ends =
            Ends { answered: 10, withdrawn_by_twin: 7, withdrawn_by_caller: 2, ..Ends::default() };
        assert_eq!(counters.ends, ends);
        assert_eq!(add_up(Policy::Tied, &counters), None);
        let told = add_up(Policy::Tied, &crate::stats::Counters { attempts: 20, ..counters });
        assert!(told.expect("a note").contains("20 copies were sent and 19 ended"));
    }
}
