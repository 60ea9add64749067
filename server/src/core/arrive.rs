//! A request arrives: is it one to take on?

use core::time::Duration;

use bowline_protocol::{Cause, How, OptionSet, Overloaded, Reply, Request, Status};
use bowline_time::Instant;

use super::config::Known;
use super::copies::{Asker, Copy};
use super::keyed::OTHER_USE;
use super::keys::Seen;
use super::room::Full;
use super::unread::considerable;
use super::{Conn, Core, Notice, Unstarted};

/// After a refusal nobody should ask again sooner, whatever the estimate says: a round trip and a
/// few services.
const RETRY_AFTER_MIN: Duration = Duration::from_millis(1);

/// Why a request can't be served, however much time and room there is.
enum Unfit {
    NoMethod,
    NotIdempotent,
    Duplicate,
    OwnTwin,
    OtherUse,
}

impl<P> Core<P> {
    /// A request of `bytes` bytes came on a connection. If it is taken on, `payload` is asked for
    /// what is kept of them; if not, the connection is told why.
    ///
    /// Its deadline is counted from `now`, the moment of arrival. Its options go along with the copy
    /// to its handler.
    pub fn on_request(
        &mut self,
        conn: Conn,
        request: Request,
        options: &OptionSet,
        bytes: usize,
        payload: impl FnOnce() -> P,
        now: Instant,
    ) {
        if !self.copies.clients.is_open(conn.0) {
            return;
        }
        let known = match self.fitness(conn, &request, options) {
            Ok(known) => known,
            Err(unfit) => return self.refuse_unfit(conn, &request, bytes, &unfit),
        };
        if self.hits_tombstone(conn, &request, options, bytes) {
            return;
        }
        let asker = Asker { conn, attempt: request.attempt, bytes };
        let remembered = self.remembered(&request, options);
        let is_remembered = remembered.is_some();
        if let Some(outcome) = remembered
            && self.may_answer(conn, considerable(outcome.result.len()))
        {
            self.stats.accepted += 1;
            self.never_ran(&request, options, Duration::ZERO, Unstarted::RepliedByKey);
            return self.answer(asker, Status::Ok, outcome, now);
        }
        // What ran here under its key is not denied for being behind: it waits for room.
        if !is_remembered && self.is_behind(options) {
            self.stats.rejected_stale += 1;
            return self.tell_behind(asker);
        }
        let class = self.config.class_of(options);
        if let Err(full) = self.make_room(conn, &request, options, known, bytes, now) {
            if matches!(full, Full::Requests | Full::Bytes) {
                self.note_refused(conn, &request, options, known, now);
            }
            return self.refuse_full(conn, &request, class, bytes, &full);
        }
        self.accept(Copy::new(request, options, known, conn, now, bytes, payload()), class);
    }

    /// A request begins to come in segments, of so many bytes in all. True if the rest need not come:
    /// its twin had started before, and the connection is told that the copy is withdrawn.
    pub fn on_opening(
        &mut self,
        conn: Conn,
        request: &Request,
        options: &OptionSet,
        bytes: usize,
    ) -> bool {
        self.copies.clients.is_open(conn.0) && self.hits_tombstone(conn, request, options, bytes)
    }

    /// A tombstone waits for this request: its copy is withdrawn.
    fn hits_tombstone(
        &mut self,
        conn: Conn,
        request: &Request,
        options: &OptionSet,
        bytes: usize,
    ) -> bool {
        let Some(tie) = request.tie else { return false };
        if !self.tombs.take(request.attempt, tie.twin) {
            return false;
        }
        self.stats.accepted += 1;
        self.stats.tombstones_hit += 1;
        self.never_ran(request, options, Duration::ZERO, Unstarted::WithdrawnByTombstone);
        let asker = Asker { conn, attempt: request.attempt, bytes };
        self.tell_ended(asker, How::Withdrawn, Some(tie.twin.n));
        true
    }

    fn accept(&mut self, mut copy: Copy<P>, class: u8) {
        let remaining = copy.request.remaining;
        copy.class = class;
        if self.copies.queue(copy) {
            self.estimate.accepted(remaining);
            self.stats.accepted += 1;
        }
    }

    fn fitness(&self, conn: Conn, request: &Request, options: &OptionSet) -> Result<Known, Unfit> {
        let known = self.methods.find(request.method).ok_or(Unfit::NoMethod)?;
        let beside_another = request.tie.is_some() || request.cause == Cause::Hedge;
        let idempotent = known.rule.idempotent && request.idempotent;
        let once = known.rule.keyed && self.config.shared_results && options.key.is_some();
        if beside_another && !idempotent && !once {
            return Err(Unfit::NotIdempotent);
        }
        if let Some(key) = options.key
            && matches!(self.copies.keys.look(key, request.method), Seen::Other)
        {
            return Err(Unfit::OtherUse);
        }
        if request.tie.is_some_and(|tie| tie.twin.station == self.config.station) {
            return Err(Unfit::OwnTwin);
        }
        // Only its own connection's: or who knows a name could have its owner refused.
        if self.copies.named(request.attempt, |copy| copy.conn == Some(conn)).is_some() {
            return Err(Unfit::Duplicate);
        }
        Ok(known)
    }

    fn refuse_unfit(&mut self, conn: Conn, request: &Request, bytes: usize, unfit: &Unfit) {
        let (counter, status, why) = match unfit {
            Unfit::NoMethod => {
                (&mut self.stats.rejected_no_method, Status::NoSuchMethod, "no such method")
            }
            Unfit::NotIdempotent => (
                &mut self.stats.rejected_not_idempotent,
                Status::BadRequest,
                "this method must not run twice, so it can't be tied or hedged (a keyed one could, \
                 with a key, at replicas that share a store of results, and whose servers are told \
                 so: `Builder::shared_results`)",
            ),
            Unfit::Duplicate => (
                &mut self.stats.rejected_duplicate,
                Status::BadRequest,
                "this connection has a copy of this name here already",
            ),
            Unfit::OwnTwin => (
                &mut self.stats.rejected_own_twin,
                Status::BadRequest,
                "the twin is said to be on this very core",
            ),
            Unfit::OtherUse => (&mut self.stats.rejected_other_use, Status::BadRequest, OTHER_USE),
        };
        *counter += 1;
        let (attempt, load) = (request.attempt, self.load());
        let reply = Reply { attempt, status, executed: false, load };
        self.effects.notices.push_back((conn, Notice::Refused(reply, why), Some(bytes)));
    }

    fn refuse_full(&mut self, conn: Conn, request: &Request, class: u8, bytes: usize, full: &Full) {
        let drained = self.wait_of_next(class, true);
        let (counter, after) = match *full {
            Full::Requests => (&mut self.stats.rejected_queue_requests, drained),
            Full::Bytes => (&mut self.stats.rejected_queue_bytes, drained),
            Full::Wait { excess } => (&mut self.stats.rejected_wait, excess),
            Full::TooLate => (&mut self.stats.rejected_too_late, Duration::ZERO),
            Full::Draining => (&mut self.stats.rejected_draining, Duration::ZERO),
        };
        *counter += 1;
        let retry_after = after.max(RETRY_AFTER_MIN);
        let refusal = Overloaded { attempt: request.attempt, retry_after, load: self.load() };
        self.effects.notices.push_back((conn, Notice::Overloaded(refusal), Some(bytes)));
    }
}
