//! What waits for clients to read: a server's shell tells its core of it, as the one on the ring does,
//! and sees to it that copies are held back for that, and for nothing else.

use std::collections::{BTreeMap, BTreeSet};

use bowline_protocol::Attempt;
use bowline_server::core::{Conn, Core};
use bowline_time::Instant;

use crate::check::Rule;
use crate::kernel::span::Nanos;
use crate::kernel::timeline::Topic;
use crate::world::env::Env;
use crate::world::server::Server;

/// While copies are held back it is looked so often what clients have read.
const LOOK: Nanos = 1_000_000;
/// Of less nobody is told: a kernel may be handed that in one piece.
const LITTLE: usize = 32 << 10;

/// What a shell has told its core.
#[derive(Debug, Default)]
pub(super) struct Unread {
    looked: Nanos,
    /// Answers by key left since: others may have to wait until it is looked again what that leaves.
    answered: bool,
    /// Bytes that wait for clients, where some do.
    told: BTreeMap<Conn, usize>,
    /// When it was last decided what starts: those for whom more waited than may, for each or as too much
    /// did in all.
    full: BTreeSet<Conn>,
}

/// What became of copies while they were held back.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Held {
    /// Their twins had started.
    pub by_twin: u64,
    /// Their callers were done.
    pub by_caller: u64,
    /// Their time was over.
    pub expired: u64,
    /// Their clients were gone.
    pub closed: u64,
    /// Their server was told to leave.
    pub drained: u64,
}

impl Unread {
    /// A connection is closed.
    pub(super) fn closed(&mut self, conn: Conn) {
        self.told.remove(&conn);
    }
}

impl Server {
    /// Looks now and then how much waits for whom, before it is decided what starts. True if all was
    /// looked at.
    pub(super) fn look_at_unread(&mut self, env: &Env, now: Instant) -> bool {
        let Some(room) = env.scenario.room else { return false };
        let due = env.now >= self.unread.looked + LOOK;
        let is_holding = self.core.is_holding();
        if due {
            self.unread.looked = env.now;
            let conns: Vec<Conn> = self.conns.keys().copied().collect();
            conns.into_iter().for_each(|conn| self.tell_unread(env, conn, is_holding, now));
        }
        let Unread { told, full, answered, .. } = &mut self.unread;
        *answered = false;
        let taken = told.values().sum::<usize>();
        let may_have = match taken > room.all - room.all / 4 {
            true => room.each.min(room.all.saturating_sub(taken) / 16),
            false => room.each,
        };
        *full =
            told.iter().filter(|(_, bytes)| **bytes > may_have).map(|(conn, _)| *conn).collect();
        due && is_holding
    }

    /// Tells the core how much waits for a client, if that has changed, or anyway.
    pub(super) fn tell_unread(&mut self, env: &Env, conn: Conn, anyway: bool, now: Instant) {
        let port = self.conns.get(&conn).and_then(|wire| self.ports.get(wire));
        let (Some((port, _)), Some(_)) = (port, env.scenario.room) else { return };
        let waiting = Some(port.waiting()).filter(|bytes| *bytes > LITTLE).unwrap_or(0);
        let before = match waiting {
            0 => self.unread.told.remove(&conn),
            _ => self.unread.told.insert(conn, waiting),
        };
        if anyway || before.is_some() || waiting > 0 {
            self.core.on_unread(conn, waiting, now);
        }
    }

    /// Does what may end copies that are held back, and counts those.
    pub(super) fn note_held(
        &mut self,
        env: &mut Env,
        count: fn(&mut Held) -> &mut u64,
        act: impl FnOnce(&mut Core<u64>),
    ) {
        let before = self.core.stats().held;
        act(&mut self.core);
        *count(&mut env.held) += before.saturating_sub(self.core.stats().held);
    }

    /// When to look again what clients have read.
    pub(super) fn next_look(&self) -> Option<Nanos> {
        self.core.is_holding().then_some(self.unread.looked + LOOK)
    }

    /// A copy is answered by its key.
    pub(super) const fn note_answer(&mut self) {
        self.unread.answered = true;
    }

    /// A copy starts only where there is room for its reply.
    pub(super) fn judge_room(&self, env: &mut Env, attempt: Attempt, conn: Conn) {
        if self.unread.full.contains(&conn) {
            let topic = Some(Topic::Call(attempt.client.0, attempt.seq.0));
            let how =
                format!("{attempt:?} starts though too much waits to be read: {:?}", self.unread);
            env.book.accuse(Rule::StartsOnlyWithRoom, topic, how);
        }
    }

    /// All was looked at, and what may start has started: if nobody has anything to read and nothing
    /// runs, nothing is held back.
    pub(super) fn judge_held(&self, env: &mut Env) {
        let stats = self.core.stats();
        if self.unread.answered {
            return;
        }
        if self.unread.told.is_empty() && stats.running == 0 && stats.queued > 0 {
            let how = format!("{} copies wait, and nobody has anything to read", stats.queued);
            env.book.accuse(Rule::HoldsBackForReadersOnly, None, how);
        }
    }
}
