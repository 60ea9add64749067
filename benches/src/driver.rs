//! One policy's turn against live replicas.

mod counts;

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bowline_client::core::Outcome;
use bowline_client::{Client, Failure, Reply};
use bowline_protocol::Cause;
use bowline_runtime::{Instant, Notify, Runtime, clock_now, sleep, sleep_until, spawn};

pub(crate) use self::counts::{add_up, fill, note_denied};
use self::counts::{check, seen_by, slow_device};
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
use crate::stats::{CallEnd, Slice};
use crate::store::{READ, read_request};

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
            let of = turn_name(policy, round.number);
            notes.extend(not_stalled(&of, carried));
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
            notes.extend(check(&of, &client, &served, counted.live, silent));
            notes.extend(slow_device(&of, &served, several));
            if silent > 0 {
                served = seen_by(&client);
            }
            fill(&mut slice, &client, &served, turn.extra_wins.get());
            notes.extend(add_up(&of, &slice.counters, counted.live));
            note_denied(&mut slice, policy, &client);
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

/// What notes call a turn.
fn turn_name(policy: Policy, round: u32) -> String {
    match round {
        0 => format!("{policy}, warm-up"),
        round => format!("{policy}, round {round}"),
    }
}

/// Says so where replicas did not stall as planned: policies then met different stalls.
fn not_stalled(turn: &str, carried: Carried) -> Option<String> {
    (carried.failed > 0).then(|| {
        format!(
            "{turn}: {} of {} stalls could not be made, as their replica could not \
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

#[cfg(test)]
mod tests {
    use bowline_client::core::Winner;
    use bowline_protocol::ReplicaId;

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
}
