//! What a server's core is held to, as far as its shell can see it.

use bowline_protocol::{Attempt, Freshness, Reply};
use bowline_server::core::{KeyLimits, Start};
use bowline_time::Instant;

use crate::check::Rule;
use crate::kernel::timeline::Topic;
use crate::world::env::Env;
use crate::world::scenario::Look;
use crate::world::server::{Handler, IDEMPOTENT, KEYED, Server};

impl Server {
    /// A copy may start here, and now, as far as its key and its class are concerned.
    pub(super) fn judge_start(&mut self, env: &mut Env, start: &Start<u64>) {
        let Start { request, options, .. } = start;
        let attempt = request.attempt;
        let shared = env.scenario.shared_results && options.key.is_some();
        let harmless = match request.method {
            IDEMPOTENT => request.idempotent,
            KEYED => shared,
            _ => false,
        };
        env.book.starts_beside(request, harmless);
        let short = |held: Freshness| options.fresh.is_some_and(|asked| !held.satisfies(&asked));
        if self.held(env).fresh.is_some_and(short) {
            let topic = Some(Topic::Call(attempt.client.0, attempt.seq.0));
            let how = format!("{attempt:?} was started for more than is here");
            env.book.accuse(Rule::StartsNothingBehind, topic, how);
        }
        if let Some(conn) = self.core.connection_of(start.copy)
            && let Some(&wire) = self.conns.get(&conn)
        {
            self.fair.starts(attempt, wire, self.class_of(options));
            self.judge_room(env, attempt, conn);
        }
        let Some(key) = options.key else { return };
        let same = |handler: &&Handler| handler.key.is_some_and(|other| other.id == key.id);
        let beside = self.handlers.values().find(same).map(|handler| handler.attempt);
        // A core that remembers few results may run a key again.
        let remembers = env.scenario.keys == KeyLimits::default();
        let done = self.ran.get(&key.id).filter(|ran| ran.ok && remembers).map(|ran| ran.attempt);
        if let Some(other) = beside.or(done) {
            let topic = Some(Topic::Call(attempt.client.0, attempt.seq.0));
            let how = format!("{attempt:?} runs for the key of {other:?}, which runs or has run");
            env.book.accuse(Rule::RunsOnceForItsKey, topic, how);
        }
    }

    /// Handlers of copies that have to stop, or whose time is over, know it by the end of the turn.
    pub(super) fn judge_stops(&self, env: &mut Env, now: Instant) {
        let asked = env.book.to_stop();
        let late = |handler: &Handler| handler.until.is_some_and(|until| until <= now);
        let has_to = |handler: &Handler| asked.contains(&handler.attempt) || late(handler);
        let runs = |handler: &&Handler| !handler.stop && has_to(handler);
        if let Some(handler) = self.handlers.values().find(runs)
            && env.scenario.service.look != Look::Never
        {
            let attempt = handler.attempt;
            let topic = Some(Topic::Call(attempt.client.0, attempt.seq.0));
            let how = format!("{attempt:?} runs on, and was not asked to stop");
            env.book.accuse(Rule::StopsWhenAsked, topic, how);
        }
    }

    /// A copy is told what the one with its key was told.
    pub(super) fn judge_answer(&self, env: &mut Env, reply: &Reply, result: &[u8]) {
        let attempt = reply.attempt;
        let told = self.ran.values().find(|ran| ran.answer == result);
        self.made_of(env, attempt, told.and_then(|ran| ran.seen));
        if told.is_none() {
            let topic = Some(Topic::Call(attempt.client.0, attempt.seq.0));
            let how = format!("{attempt:?} is answered by its key, and not as the copy that ran");
            env.book.accuse(Rule::RunsOnceForItsKey, topic, how);
        }
    }

    /// A copy is told that what its key is for was done, and no more: then it was.
    pub(super) fn judge_not_kept(&self, env: &mut Env, attempt: Attempt) {
        let key = env.book.answered_by_key(attempt);
        if !key.is_some_and(|key| self.ran.contains_key(&key)) {
            let topic = Some(Topic::Call(attempt.client.0, attempt.seq.0));
            let how = format!("{attempt:?} is told that its key's call was done, and it was not");
            env.book.accuse(Rule::RunsOnceForItsKey, topic, how);
        }
    }

    pub(super) fn judge(&self, env: &mut Env) {
        let stats = self.core.stats();
        let running = self.handlers.len() as u64;
        if !stats.reconcile() || stats.running != running {
            let how = format!("{running} handlers run, and {stats:?}");
            env.book.accuse(Rule::CountersReconcile, None, how);
        }
    }

    /// Everything has come to rest: what is left?
    pub(crate) fn judge_rest(&self, env: &mut Env) {
        let left = !self.core.is_idle() || !self.handlers.is_empty() || self.core.tombstones() > 0;
        if let Some(how) = self.ports.values().find_map(|(port, _)| port.left()) {
            env.book.accuse(Rule::NothingLeft, None, how);
        }
        if left || self.core.connections() != self.conns.len() {
            let (stats, tombs) = (self.core.stats(), self.core.tombstones());
            let handlers = &self.handlers;
            let how = format!("{tombs} tombstones, handlers {handlers:?}, {stats:?}");
            env.book.accuse(Rule::NothingLeft, None, how);
        }
    }
}
