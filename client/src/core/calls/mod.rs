//! The owner of all calls. It asks the leaves, and keeps the book of copies that are out.
//!
//! A call waits until a reply that is good or fatal, its deadline, its caller's cancel, or the end
//! of its last copy with no other to send. Then it is done, once; copies that are still out are
//! cancelled and watched until they end. While it waits, one of its copies is out, or its second
//! copy's time is yet to come.
//!
//! A tied call whose starter hangs (a stopped process) is rescued by its hedge, if it has one, or
//! by the link's ping timeout, which closes the connection.

mod dispatch;
mod ends;
mod extra;
mod frames;
mod lines;
mod repeat;
mod retry;
mod strand;
// Under loom the budget's atomics work in its models only.
#[cfg(all(test, not(loom)))]
mod tests;
mod timers;
mod watch;

use std::collections::VecDeque;
use std::sync::Arc;

use bowline_protocol::service::Known;
use bowline_protocol::{
    Attempt, Cancel, ClientId, Credit, Error, ErrorKind, Executed, Freshness, OptionSet, ReplicaId,
    Request, Seq, Station, Tie, Twin,
};
use bowline_time::{Duration, Instant, Wheel};
use hdrhistogram::Histogram;

use super::budget::{Budget, Purse};
use super::call::{Call, State};
use super::classify::Classifier;
use super::config::{Config, ConfigError, Limits};
use super::counters::Counters;
use super::latency;
use super::line::Line;
use super::methods::Methods;
use super::notice::{Notice, Notices};
use super::outcome::{CallKey, CopyEnd, Done, Effect, Spec};
use super::pick::{Order, Picker};
use super::placement::Placement;
use super::policies::{Policies, Trial};
use super::policy::{Delay, Policy, PolicyId, PolicyState};
use super::replicas::{Membership, Promise, Replica, ReplicaState, Replicas, Wanted};
use super::slots::Slots;

/// What is kept back at least of a deadline for the way there and back, and for the work at its
/// ends: a round trip on loopback. A mean that was measured on an idle link is less than that.
const LEAST_RESERVE: Duration = Duration::from_micros(50);

/// All calls of one client core. `P` is a request's payload, which is never looked into.
///
/// Inputs are facts, with the time at which they became known; after each, or after all of a turn,
/// [`poll_effect`](Calls::poll_effect) is to be called until it has nothing more. In steady state
/// nothing here allocates.
pub struct Calls<P> {
    client: ClientId,
    config: Config,
    policies: Policies,
    slots: Slots<P>,
    replicas: Replicas,
    picker: Picker,
    methods: Methods,
    /// One timer a call, at the next time that matters to it; it carries the call's name.
    wheel: Wheel<u64>,
    /// The latest time that [`Calls::on_timeout`] was told.
    latest: Instant,
    effects: VecDeque<Pending>,
    purse: Purse,
    counters: Counters,
    notices: Notices,
    /// Ends of copies, if anybody follows them.
    ends: Option<VecDeque<CopyEnd>>,
    waiting: u32,
    watched: u32,
    /// Calls of which no copy is out, as they wait for a replica, for its room, or to be tried again.
    in_line: u32,
    /// Those, in the order in which they came.
    line: Line,
    /// All of them are to be looked at.
    all_due: bool,
    /// Those are to be looked at that wait for a replica whose line is due.
    line_due: bool,
    histograms: Histograms,
}

/// What copies and calls took, in nanoseconds, since the machine was made.
#[derive(Clone, Debug)]
pub struct Histograms {
    /// Calls, from start to result, those included that failed; not those cancelled.
    pub calls: Histogram<u64>,
    /// Copies that were answered, from send to reply.
    pub attempts: Histogram<u64>,
    /// From a call's result to the end of each copy that was still out then.
    pub losers: Histogram<u64>,
}

/// An effect before it is asked for. A send names its copy only: if that has ended meanwhile, it
/// is not sent at all.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Send { seq: u64, n: u8 },
    Cancel { place: u16, cancel: Cancel },
    Done(Done),
}

impl<P> Calls<P> {
    /// A machine without replicas. `client` must be new for every core of every process.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range.
    pub fn new(client: ClientId, config: Config) -> Result<Calls<P>, ConfigError> {
        config.validate()?;
        let histogram = latency::histogram::<u64>;
        Ok(Calls {
            client,
            policies: Policies::new(),
            // As many calls are watched as may wait.
            slots: Slots::new(config.max_calls * 2),
            replicas: Replicas::new(config.max_backlog),
            picker: Picker::new(config.pick, config.warm_up, config.seed),
            methods: Methods::new(config.max_methods, config.latency_window),
            wheel: Wheel::default(),
            latest: Instant::EPOCH,
            effects: VecDeque::new(),
            purse: Purse::default(),
            counters: Counters::default(),
            notices: Notices::default(),
            ends: None,
            waiting: 0,
            watched: 0,
            in_line: 0,
            line: Line::default(),
            all_due: false,
            line_due: false,
            histograms: Histograms {
                calls: histogram(),
                attempts: histogram(),
                losers: histogram(),
            },
            config,
        })
    }

    /// Follows other settings from now on: how replicas are picked, ejected and warmed up, for how
    /// long their reports count, patience, retries, reserve, and the watch over copies of finished
    /// calls. What sizes the machine, names its estimates or is shared by cores stays as it is.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range; nothing has changed then.
    pub fn follow(&mut self, config: &Config) -> Result<(), ConfigError> {
        config.validate()?;
        let Config { pick, load_lifetime, warm_up, patience, retry, .. } = *config;
        let Config { eject, reserve, watch, .. } = *config;
        self.picker.follow(pick, warm_up);
        if eject.is_none() {
            self.replicas.readmit_all();
        }
        let own = &mut self.config;
        (own.pick, own.load_lifetime, own.warm_up) = (pick, load_lifetime, warm_up);
        (own.patience, own.retry, own.eject) = (patience, retry, eject);
        (own.reserve, own.watch) = (reserve, watch);
        Ok(())
    }

    /// Adds a policy for calls to name.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range.
    pub fn register(&mut self, policy: Policy) -> Result<PolicyId, ConfigError> {
        self.register_with(policy, Classifier::default())
    }

    /// Adds a policy with its own view of which replies count, in place of that of the policy
    /// [instead of which](Spec::instead_of) a call follows it.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range.
    pub fn register_with(
        &mut self,
        policy: Policy,
        classifier: Classifier,
    ) -> Result<PolicyId, ConfigError> {
        let (id, place) = self.policies.register(policy, classifier)?;
        self.methods.forget(place);
        Ok(id)
    }

    /// From now on these bound the copies of a policy's calls, those under way included.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first that is out of its range; nothing has changed then.
    pub fn limit_copies(&mut self, id: PolicyId, limits: Limits) -> Result<(), ConfigError> {
        limits.validate()?;
        self.policies.limit_copies(id, limits);
        Ok(())
    }

    /// From now on this says what the replies to a policy's calls are worth, those under way
    /// included.
    pub fn classify(&mut self, id: PolicyId, classifier: Classifier) {
        self.policies.classify(id, classifier);
    }

    /// Puts another policy in the place of one, and of one on trial. Calls that start from now on
    /// follow it; those that are under way keep the policy that they began with.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range; the old one stays then.
    pub fn replace(&mut self, id: PolicyId, policy: Policy) -> Result<(), ConfigError> {
        if let Some(place) = self.policies.replace(id, policy)? {
            self.methods.forget(place);
        }
        Ok(())
    }

    /// What a name stands for now; None if it was not registered.
    pub fn policy(&self, id: PolicyId) -> Option<&Policy> {
        self.policies.stable(id)
    }

    /// Calls of this policy pay for extra copies out of this budget, besides the client's own; None:
    /// out of that alone. It may be shared by other policies and other cores. Calls that are under
    /// way settle with the budget that they began with.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if that policy was not registered.
    pub fn limit(&mut self, id: PolicyId, budget: Option<Arc<Budget>>) -> Result<(), ConfigError> {
        if let Some(place) = self.policies.limit(id, budget)? {
            self.methods.forget(place);
        }
        Ok(())
    }

    /// Puts a policy on trial beside another: a share of the calls, 0 to 1, follows it, chosen by a
    /// hash of the call's name. [`Calls::trial`] tells what came of it; [`Calls::replace`] by the
    /// policy on trial makes it the only one.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range, or if that policy was not
    /// registered; nothing has changed then.
    pub fn try_out(&mut self, id: PolicyId, policy: Policy, share: f64) -> Result<(), ConfigError> {
        if let Some(place) = self.policies.try_out(id, policy, share)? {
            self.methods.forget(place);
        }
        Ok(())
    }

    /// Ends a trial: all calls that start from now on follow the policy that was there before.
    pub fn end_trial(&mut self, id: PolicyId) {
        self.policies.end_trial(id);
    }

    /// What became of the calls since a policy was put on trial beside this one, if one is.
    pub fn trial(&self, id: PolicyId) -> Option<&Trial> {
        self.policies.trial(id)
    }

    /// Adds a replica. Those of one domain are held to fail together. A replica that is known
    /// already only moves to that domain.
    pub fn add_replica(&mut self, id: ReplicaId, domain: u32) {
        self.replicas.add(id, domain);
    }

    /// Adds a replica with its place and role, or moves it there.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] for the first setting that is out of its range; nothing has changed then.
    pub fn place_replica(
        &mut self,
        id: ReplicaId,
        placement: Placement,
    ) -> Result<(), ConfigError> {
        placement.validate()?;
        self.replicas.place(id, placement);
        if let Some(place) = self.replicas.find(id) {
            self.line_up_all(place);
        }
        Ok(())
    }

    /// The replica is taken out of the set: it gets nothing new. What it has it may finish, while
    /// its connection lasts; [`Calls::in_flight`] tells when it has.
    pub fn remove_replica(&mut self, id: ReplicaId) {
        self.set_membership(id, Membership::None);
    }

    /// The replica will be elsewhere. It gets nothing new before it is [restored](Calls::restore_replica),
    /// though its connection should break and be there again; but calls may wait for it.
    pub fn move_replica(&mut self, id: ReplicaId) {
        self.set_membership(id, Membership::Moving);
    }

    /// The replica that was taken out is in the set again; or the one that moves is where it will be, and
    /// is yet to be connected there.
    pub fn restore_replica(&mut self, id: ReplicaId) {
        self.set_membership(id, Membership::Full);
    }

    fn set_membership(&mut self, id: ReplicaId, membership: Membership) {
        if let Some(place) = self.replicas.find(id) {
            self.replicas.get_mut(place).membership = membership;
            self.line_up_all(place);
        }
    }

    /// How many copies are out at that replica, those of finished calls included.
    pub fn in_flight(&self, id: ReplicaId) -> u32 {
        self.replicas.find(id).map_or(0, |place| self.replicas.get(place).in_flight)
    }

    /// The replica is connected, to that core. False if no such replica was added. Calls that wait
    /// for a replica are due now: [`Calls::next_timeout`] says so.
    pub fn on_connected(&mut self, id: ReplicaId, station: Station) -> bool {
        let Some(place) = self.replicas.find(id) else { return false };
        let replica = self.replicas.get_mut(place);
        replica.station = Some(station);
        replica.leaving = false;
        replica.warm_since = None;
        // Who comes back may have lost something.
        (replica.held, replica.is_silent) = (Freshness::ANY, false);
        self.line_up_all(place);
        true
    }

    /// The replica takes payloads of requests of up to so many bytes: to be said before
    /// [`Calls::on_connected`]. Until then it is held to take any.
    pub fn on_takes(&mut self, id: ReplicaId, bytes: u32) {
        if let Some(place) = self.replicas.find(id) {
            self.replicas.get_mut(place).takes = bytes;
        }
    }

    /// The largest payload of a request that any replica takes, in bytes; None if no replica is known, or
    /// one of them did not say.
    pub fn largest_request(&self) -> Option<u32> {
        self.replicas.most_taken().filter(|&most| most != u32::MAX)
    }

    /// What the replica says of its methods: to be said before [`Calls::on_connected`]. A call is
    /// tied or hedged only among replicas that allow a second copy of its method, and a key protects
    /// only calls of methods that keep their results by it. One that says nothing, as all before
    /// this, allows second copies where the caller does, and keeps nothing.
    pub fn on_methods(&mut self, id: ReplicaId, methods: Option<&bowline_protocol::Methods>) {
        if let Some(place) = self.replicas.find(id) {
            let of = |methods: &bowline_protocol::Methods| {
                let promise = |it: bowline_protocol::service::Known<'_>| {
                    let Known { number, idempotent, keyed, duplicable, .. } = it;
                    (number, Promise { idempotent, keyed, duplicable })
                };
                methods.iter().map(promise).collect()
            };
            self.replicas.get_mut(place).methods = methods.map(of);
        }
    }

    /// Whether the replica understands options: to be said before [`Calls::on_connected`]. Until then it
    /// is held to. One that does not is told neither keys nor what freshness is demanded.
    pub fn on_options(&mut self, id: ReplicaId, understood: bool) {
        if let Some(place) = self.replicas.find(id) {
            self.replicas.get_mut(place).understands_options = understood;
        }
    }

    /// What the replica granted with the connection; None: it does not count. To be said before
    /// [`Calls::on_connected`].
    pub fn on_granted(&mut self, id: ReplicaId, grant: Option<Credit>) {
        if let Some(place) = self.replicas.find(id) {
            self.replicas.get_mut(place).room.begin(grant);
        }
    }

    /// The replica granted more.
    pub fn on_credit(&mut self, id: ReplicaId, credit: Credit) {
        let Some(place) = self.replicas.find(id) else { return };
        self.replicas.get_mut(place).room.on_credit(credit);
        self.room_came(place);
    }

    /// So many bytes wait for the replica to read. To be said after each [`Effect::Send`], and when
    /// they have become fewer.
    pub fn on_backlog(&mut self, id: ReplicaId, bytes: usize) {
        let Some(place) = self.replicas.find(id) else { return };
        if self.replicas.get_mut(place).room.on_backlog(bytes) {
            self.room_came(place);
        }
    }

    /// The replica will close its connection: it gets nothing new, and finishes what it has.
    pub fn on_leaving(&mut self, id: ReplicaId) {
        if let Some(place) = self.replicas.find(id) {
            self.replicas.get_mut(place).leaving = true;
        }
    }

    /// The round trip to the replica was measured.
    pub fn on_rtt(&mut self, id: ReplicaId, rtt: core::time::Duration) {
        let Some(place) = self.replicas.find(id) else { return };
        let before = self.replicas.get_mut(place).rtt.replace(rtt);
        // Calls for which it was too far away may wait for another one.
        self.all_due |= self.in_line > 0 && before.is_some_and(|before| rtt < before);
    }

    /// Begins a call.
    ///
    /// # Errors
    ///
    /// The call was not begun: too many calls, too large a payload, or no time left; or no replica,
    /// if it may not wait for one.
    pub fn start(&mut self, now: Instant, spec: Spec<P>) -> Result<CallKey, Error> {
        // Who waited comes first.
        self.serve_lines(now);
        let had = self.replicas.may_have(spec.method, spec.shard_key);
        match self.admit(now, &spec, had) {
            Ok(first) => Ok(self.begin(now, spec, first, had)),
            Err(kind) => {
                self.counters.refused += 1;
                Err(Error::new(kind, Executed::No))
            }
        }
    }

    /// The replica to ask first, if the call may be made, and if there is one.
    fn admit(&mut self, now: Instant, spec: &Spec<P>, had: bool) -> Result<Option<u16>, ErrorKind> {
        if self.waiting >= self.config.max_calls {
            return Err(ErrorKind::TooManyCalls);
        }
        if spec.size > self.config.max_payload {
            return Err(ErrorKind::PayloadTooLarge);
        }
        if spec.deadline <= now {
            return Err(ErrorKind::DeadlineExceeded);
        }
        let order = spec.shard_key.map_or(Order::First, Order::Key);
        let Spec { size, method, shard_key: key, .. } = *spec;
        let wanted = Wanted { seq: 0, size, method, key, had };
        let first = self.pick_first(now, wanted, order, spec.options.fresh);
        if first.is_none() {
            self.may_wait(wanted)?;
        }
        Ok(first)
    }

    /// No replica can be sent that now. Whether one may be later, and the call may wait for it.
    fn may_wait(&self, wanted: Wanted) -> Result<(), ErrorKind> {
        if self.replicas.none_takes(wanted.size) {
            return Err(ErrorKind::PayloadTooLarge);
        }
        let waits = || self.replicas.iter().any(|(_, replica)| replica.lacks_room(wanted));
        let may = !self.config.patience.is_zero() || waits();
        if self.replicas.none_serves(wanted) || !may {
            return Err(ErrorKind::NoReplica);
        }
        Ok(())
    }

    /// One that is known to be behind what is asked for only if there is no other.
    fn pick_first(
        &mut self,
        now: Instant,
        wanted: Wanted,
        order: Order,
        asked: Option<Freshness>,
    ) -> Option<u16> {
        let rank = |replica: &Replica| replica.fits(wanted).then_some(replica.distance(order));
        let fresh = |replica: &Replica| !replica.is_behind(asked, now);
        let ranked = |_, replica: &Replica| rank(replica).filter(|_| fresh(replica));
        let first = self.picker.pick(&self.replicas, now, order, ranked);
        match (first, asked) {
            (None, Some(_)) => {
                self.picker.pick(&self.replicas, now, order, |_, replica| rank(replica))
            }
            (first, _) => first,
        }
    }

    /// The caller has dropped the call: its copies are cancelled, and nothing more is heard of it.
    /// False if it was done already.
    pub fn cancel(&mut self, call: CallKey, now: Instant) -> bool {
        let Some(slot) = self.slots.find(call.0) else { return false };
        if !self.slots.get(slot).is_waiting() {
            return false;
        }
        self.counters.cancelled += 1;
        self.conclude(slot, now);
        true
    }

    /// The payload of a call that waits.
    pub fn payload(&self, call: CallKey) -> Option<&P> {
        self.slots.get(self.slots.find(call.0)?).payload.as_ref()
    }

    /// The call of this copy waits for a result.
    pub fn waits_for(&self, attempt: Attempt) -> bool {
        attempt.client == self.client
            && self.slots.find(attempt.seq).is_some_and(|slot| self.slots.get(slot).is_waiting())
    }

    /// What the requests of a call that waits say beside their headers.
    pub fn options(&self, call: CallKey) -> Option<&OptionSet> {
        Some(&self.slots.get(self.slots.find(call.0)?).options)
    }

    /// What to do next, until there is nothing more.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        loop {
            match self.effects.pop_front()? {
                Pending::Done(done) => return Some(Effect::Done(done)),
                Pending::Cancel { place, cancel } => {
                    let replica = self.replicas.get(place).id;
                    return Some(Effect::Cancel { replica, cancel });
                }
                Pending::Send { seq, n } => {
                    if let Some(effect) = self.poll_send(seq, n) {
                        return Some(effect);
                    }
                }
            }
        }
    }

    /// The copy goes out, unless it ended while it waited for that.
    fn poll_send(&mut self, seq: u64, n: u8) -> Option<Effect> {
        let slot = self.slots.find(Seq(seq))?;
        if self.slots.get(slot).copies[usize::from(n)].state != State::Queued {
            return None;
        }
        self.count_sent(slot, n);
        let call = self.slots.get(slot);
        let copy = &call.copies[usize::from(n)];
        let replica = self.replicas.get(copy.replica);
        let remaining = call.deadline - copy.sent;
        let reserve = self.config.reserve + replica.rtt.unwrap_or_default().max(LEAST_RESERVE);
        // Half of what remains is never kept back: it would be of no use to anyone.
        let remaining = remaining - reserve.min(remaining / 2);
        let request = Request {
            attempt: self.attempt(seq, n),
            method: call.method,
            remaining,
            cause: copy.cause,
            idempotent: call.is_idempotent_by(copy.promise.unwrap_or_default()),
            tie: tie_of(call, n),
        };
        let (replica, until) = (replica.id, copy.sent + remaining);
        self.slots.get_mut(slot).copies[usize::from(n)].until = until;
        Some(Effect::Send { replica, call: CallKey(Seq(seq)), request })
    }

    fn attempt(&self, seq: u64, n: u8) -> Attempt {
        Attempt { client: self.client, seq: Seq(seq), n: u16::from(n) }
    }

    /// From now on the end of each copy is told by [`Calls::poll_end`], which is to be asked after
    /// every input, as effects are.
    pub fn tell_ends(&mut self) {
        self.ends.get_or_insert_default();
    }

    /// The end of a copy, until there are no more.
    pub fn poll_end(&mut self) -> Option<CopyEnd> {
        self.ends.as_mut()?.pop_front()
    }

    /// What is worth a line in a log, until there is nothing more.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.next()
    }

    /// [`Calls::poll_notice`] has something.
    pub fn has_notice(&self) -> bool {
        !self.notices.is_empty()
    }

    /// How the replicas of the set are doing, in the order in which they were added.
    pub fn replicas(&self) -> impl Iterator<Item = ReplicaState> {
        self.replicas.iter().filter(|(_, it)| !it.is_removed()).map(|(_, it)| it.state())
    }

    /// How a policy is doing; None if it was not registered.
    pub fn policy_state(&self, id: PolicyId) -> Option<PolicyState> {
        let version = self.policies.stable_version(id)?;
        let hedge = self.policies.policy(version).hedge();
        let (on, last) = self.methods.state(version);
        let delay = hedge.and_then(|hedge| match hedge.delay {
            Delay::Fixed(delay) => Some(delay),
            Delay::Percentile(_) => last,
        });
        let budget = self.policies.budget(version);
        Some(PolicyState {
            hedging: hedge.map(|_| on),
            delay,
            budget_level: budget.map(Budget::level),
            budget_outstanding: budget.map(Budget::outstanding),
        })
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        Counters { waiting: u64::from(self.waiting), ..self.counters }
    }

    /// What calls and copies took.
    pub fn histograms(&self) -> &Histograms {
        &self.histograms
    }

    /// What pays for extra copies.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.config.budget
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether nothing is left: no call, no copy, no timer, no effect.
    pub fn is_at_rest(&self) -> bool {
        self.slots.used() == 0
            && self.wheel.is_empty()
            && self.effects.is_empty()
            && self.replicas.iter().all(|(_, replica)| replica.in_flight == 0)
    }
}

/// What the request of copy `n` says of its twin. One that ended before this copy went out (its
/// connection closed in the same turn) is not worth naming: the tie is void.
fn tie_of<P>(call: &Call<P>, n: u8) -> Option<Tie> {
    let pair = call.pair.filter(|_| call.copies[usize::from(n)].tied)?;
    let other = Call::<P>::twin_of(n);
    if matches!(call.copies[usize::from(other)].state, State::Ended(_)) {
        return None;
    }
    let twin = Twin { station: pair.stations[usize::from(other)], n: u16::from(other) };
    Some(Tie { twin, ..pair.tie })
}
