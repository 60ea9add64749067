//! What a client is held to, as far as its shell and its user can see it.

use bowline_client::core::{Config, Done};
use bowline_protocol::{Attempt, Freshness, ReplicaId};

use crate::check::{Allowance, Open, Rule, Spent, Waits};
use crate::kernel::span::Nanos;
use crate::kernel::timeline::Topic;
use crate::world::client::{Client, Replica};
use crate::world::env::Env;
use crate::world::lag::{Lag, Teller};
use crate::world::payload;
use crate::world::port::Port;

/// So many of the calls that wait for room are looked at when some comes.
const LOOKED_AT: usize = 16;

impl Client {
    /// The servers that take something new. None is named where it can't be told from outside whose
    /// turn it is: once room was kept for a call; and once more waited than are looked at, until none
    /// waits: who was not looked at may have to wait until there is room again.
    pub(super) fn open(&mut self, env: &Env) -> Vec<Open> {
        let kept = self.calls.counters().room_kept > 0;
        if env.scenario.wires.credit.is_some() {
            let waiting = env.book.waiting(self.host).len();
            self.crowded = waiting > LOOKED_AT || self.crowded && waiting > 0;
        }
        let unclear = kept || self.crowded;
        let up = self.replicas.iter().filter(|it| it.up && !it.leaving && !unclear);
        let open = |it: &Replica| {
            let (server, port) = (env.host_of(it.station), self.ports.get(&it.wire?)?);
            // As it was before its connection broke, if that is not measured anew yet.
            let rtt = self.calls.replicas().find(|known| known.id == it.id)?.rtt;
            let rtt = rtt.unwrap_or_default().as_nanos() as Nanos;
            Some(Open { server, since: it.since, credit: port.credit, rtt })
        };
        up.filter_map(open).collect()
    }

    /// What is answered is what was asked for, and of a key what was done for it.
    pub(super) fn check_answer(
        &mut self,
        env: &mut Env,
        done: &Done,
        from: ReplicaId,
        answer: &[u8],
    ) {
        let seq = done.call.seq().0;
        let topic = Some(Topic::Call(self.id.0, seq));
        let Some(made) = self.made.get(&seq) else { return };
        let Some(effect) = payload::effect_of(made.asks, answer) else {
            let how = "the answer is to another question, or not whole";
            return env.book.accuse(Rule::TellsTheTruth, topic, how);
        };
        let Some(key) = made.key else { return };
        if env.stores.effect(from.0, key) != Some(effect) {
            let how = format!("effect {effect} is not what was done for its key");
            env.book.accuse(Rule::KeysMeanOneThing, topic, how);
        }
    }

    /// What is answered was made of what was asked for.
    pub(super) fn check_freshness(&self, env: &mut Env, done: &Done, attempt: Attempt) {
        let seq = done.call.seq().0;
        let asked = self.made.get(&seq).and_then(|made| made.fresh);
        let truth = env.truths.get(&attempt).copied();
        // The server measures by a clock that is not the world's.
        let slack = |asked: Freshness| asked.aged(asked.staleness / 1000);
        let enough = |asked| truth.is_some_and(|truth| truth.satisfies(&slack(asked)));
        if !asked.is_none_or(enough) {
            let topic = Some(Topic::Call(self.id.0, seq));
            let how = format!("{attempt:?} wins with {truth:?}, where {asked:?} was asked for");
            env.book.accuse(Rule::AsFreshAsAsked, topic, how);
        }
    }

    pub(super) fn judge(&self, env: &mut Env) {
        let counters = self.calls.counters();
        if !counters.reconcile() || counters.waiting != self.made.len() as u64 {
            let how = format!("{} calls wait, and {counters:?}", self.made.len());
            env.book.accuse(Rule::CountersReconcile, None, how);
        }
        let says = |lag: &Lag| lag.told_by != Teller::Nobody;
        let all_say = env.scenario.lags.as_ref().is_some_and(|it| it.replicas.iter().all(says));
        if all_say && counters.unsaid > 0 {
            let how = format!("{} replies are held not to say how fresh they are", counters.unsaid);
            env.book.accuse(Rule::HearsHowFresh, None, how);
        }
        let (budget, set) = (self.calls.budget(), env.scenario.budget);
        if i64::from(budget.level()) > i64::from(set.burst)
            || budget.outstanding() > set.outstanding
        {
            let how = format!("{} tokens, {} outstanding", budget.level(), budget.outstanding());
            env.book.accuse(Rule::WithinBudget, None, how);
        }
        let (bucket, spent) = self.spent(env);
        let allowance = env.allowances.entry(bucket).or_insert(Allowance::new(set));
        allowance.uses(self.id.0, counters.uncharged, counters.tied > 0);
        if let Some(how) = allowance.judge(spent, env.now) {
            env.book.accuse(Rule::WithinBudget, None, how);
        }
    }

    /// The bucket that this client pays out of, and what it and all others had of that.
    fn spent(&self, env: &Env) -> (u64, Spent) {
        match env.budget {
            Some(_) => (0, env.book.spent_in_all()),
            None => (self.id.0, env.book.spent(self.id.0)),
        }
    }

    /// What its calls wait for of which no copy is alive.
    pub(super) fn waits(&self, env: &Env) -> Waits {
        let next = self.calls.next_timeout().map(|at| self.clock.when(at));
        let patience = Config::default().patience.as_nanos() as Nanos;
        let by_credit = env.scenario.wires.credit.is_some();
        Waits { next, patience: (!by_credit).then_some(patience) }
    }

    /// Everything has come to rest: what is left?
    pub(crate) fn judge_rest(&self, env: &mut Env) {
        let (budget, counters) = (self.calls.budget(), self.calls.counters());
        if !self.calls.is_at_rest() || counters.live > 0 || !self.made.is_empty() {
            env.book.accuse(Rule::NothingLeft, None, format!("{counters:?}"));
        }
        if let Some(how) = self.ports.values().find_map(Port::left) {
            env.book.accuse(Rule::NothingLeft, None, how);
        }
        if budget.outstanding() > 0 {
            let how = format!("{} tokens are outstanding", budget.outstanding());
            env.book.accuse(Rule::TokensReconcile, None, how);
        }
        self.judge_tokens(env);
    }

    /// Without refills and drains the bucket is an exact account of what ran.
    fn judge_tokens(&self, env: &mut Env) {
        let set = env.scenario.budget;
        if set.fraction > 0.0 || set.per_second > 0.0 || set.drain > 0.0 {
            return;
        }
        let counters = self.calls.counters();
        let (bucket, Spent { extra, .. }) = self.spent(env);
        let uncharged = env.allowances.get(&bucket).map_or(0, Allowance::uncharged);
        let spent = (i64::from(set.burst) - i64::from(self.calls.budget().level())).unsigned_abs();
        // One that was answered by its key counts as one that ran.
        let keyed = env.scenario.classes.iter().any(|class| class.key.is_some());
        let alone = env.budget.is_none();
        let exact = alone && counters.lost == 0 && uncharged == 0 && !keyed;
        if exact && spent != extra || spent + uncharged < extra {
            let how = format!("{spent} tokens were spent on {extra} extra executions");
            env.book.accuse(Rule::TokensReconcile, None, how);
        }
    }
}
