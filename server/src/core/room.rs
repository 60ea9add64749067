//! Is there time and room for one more copy, and who makes room for it?

use core::time::Duration;

use bowline_protocol::{OptionSet, Request};
use bowline_time::Instant;

use super::config::{Known, MethodRule};
use super::unread::Room;
use super::{Conn, Core, Unstarted};

/// Why a request is not taken on now.
pub(super) enum Full {
    Requests,
    Bytes,
    /// It would wait longer than it can, by so much.
    Wait {
        excess: Duration,
    },
    TooLate,
    Draining,
}

impl<P> Core<P> {
    /// Sees to it that there is time and room for a copy.
    ///
    /// When the queue is full, a primary displaces extra copies, the newest first; an extra never
    /// displaces a primary. Else a copy displaces one of the class that has most waiting for its share,
    /// if its own class has less; else one of the connection that has most waiting, if that has more than its own: so
    /// nobody crowds others out, nor has those that wait to be read give way to more of its own. Else a primary that could start displaces those that are held back, of whoever has
    /// had to read for longest, and still has to. And under overload, where the newest are served first, the oldest
    /// makes room: of the same connection, if it has any.
    pub(super) fn make_room(
        &mut self,
        conn: Conn,
        request: &Request,
        options: &OptionSet,
        known: Known,
        bytes: usize,
        now: Instant,
    ) -> Result<(), Full> {
        if self.draining {
            return Err(Full::Draining);
        }
        let class = self.config.class_of(options);
        self.check_time(request, class, known.rule)?;
        let Err(full) = self.room_in_queue(bytes, false) else { return Ok(()) };
        self.governors[usize::from(class)].full(now);
        if !request.is_extra() && self.room_in_queue(bytes, true).is_ok() {
            self.displace_extras(bytes, now);
            return Ok(());
        }
        let extra = request.is_extra();
        let kept = |core: &Core<P>, victim: u32| {
            core.copies.queued_bytes() - core.copies.at(victim).bytes + bytes
        };
        let crowding = self.crowding(conn, class, extra);
        let (victim, why) = match crowding {
            Some((one, _)) if kept(self, one) <= self.config.queue_bytes => crowding,
            _ if !extra
                && self.room_for_new(conn, request, options, known) == Room::Enough
                && self.would_fit_without_held(bytes) =>
            {
                self.displace_held(bytes, now);
                return Ok(());
            }
            _ => crowding.or_else(|| self.oldest_to_go(conn, class, extra)),
        }
        .ok_or(full)?;
        if kept(self, victim) > self.config.queue_bytes {
            return Err(Full::Bytes);
        }
        self.end_queued(victim, why, None, now);
        Ok(())
    }

    /// Whether the copy will start while it is still of use, as far as one can tell.
    fn check_time(&mut self, request: &Request, class: u8, rule: MethodRule) -> Result<(), Full> {
        let spare = request.remaining.saturating_sub(rule.least_useful);
        let wait = self.wait_of_next(class, request.is_extra());
        // One that has to wait must have time to run as well. (One that need not is let in even if
        // all seem to take too long: nothing else would show that they do not any more.)
        let needed = rule.least_useful.max(self.estimate.service());
        let excess = match wait.is_zero() {
            true => wait,
            false => (wait + needed).saturating_sub(request.remaining),
        };
        let (dark, full) = if spare.is_zero() {
            (&mut self.stats.dark_too_late, Full::TooLate)
        } else if !excess.is_zero() {
            (&mut self.stats.dark_wait, Full::Wait { excess })
        } else {
            return Ok(());
        };
        if self.config.dark {
            *dark += 1;
            return Ok(());
        }
        Err(full)
    }

    /// How long a copy of a class would wait that came now. Under overload primaries pass all others
    /// of their class. Of another class, as many start before it as its share allows.
    pub(super) fn wait_of_next(&self, class: u8, extra: bool) -> Duration {
        if self.copies.startable() == 0 && self.copies.running() < self.slots.limit() {
            return Duration::ZERO;
        }
        let overloaded = self.governors[usize::from(class)].is_overloaded();
        let own = if overloaded && !extra { 0 } else { self.copies.startable_of(class) };
        let (own_share, own_turns) = (u64::from(self.shares.of(class)), u64::from(own) + 1);
        let others = self.classes().filter(|other| *other != class).map(|other| {
            let turns = own_turns * u64::from(self.shares.of(other)) / own_share;
            u64::from(self.copies.startable_of(other)).min(turns) as u32
        });
        let ahead = own + others.sum::<u32>();
        self.estimate.wait(ahead, self.copies.running(), self.slots.limit())
    }

    /// Whether a copy fits, if need be once all extras are gone. Those that will find a free slot
    /// at the end of the turn don't count as waiting.
    fn room_in_queue(&self, bytes: usize, without_extras: bool) -> Result<(), Full> {
        let (extras, extra_bytes) = match without_extras {
            true => (self.copies.queued_extras(), self.copies.extra_bytes()),
            false => (0, 0),
        };
        let here = self.copies.queued() - extras + self.copies.parked() + self.copies.running();
        if here >= self.config.queue_requests + self.config.slots {
            return Err(Full::Requests);
        }
        let kept = self.copies.queued_bytes() - extra_bytes;
        if kept.saturating_add(bytes) > self.config.queue_bytes {
            return Err(Full::Bytes);
        }
        Ok(())
    }

    fn displace_extras(&mut self, bytes: usize, now: Instant) {
        while self.room_in_queue(bytes, false).is_err()
            && let Some(extra) = self.copies.newest_extra()
        {
            self.end_queued(extra, Unstarted::ShedDisplaced, None, now);
        }
    }

    /// Whether there would be room for a copy in the queue without those that are held back.
    fn would_fit_without_held(&self, bytes: usize) -> bool {
        let clients = &self.copies.clients;
        let others = self.copies.queued_bytes() - clients.stuck_bytes();
        clients.stuck().next().is_some() && others.saturating_add(bytes) <= self.config.queue_bytes
    }

    fn displace_held(&mut self, bytes: usize, now: Instant) {
        while self.room_in_queue(bytes, false).is_err()
            && let Some(held) = self.stuck_to_go()
        {
            self.end_queued(held, Unstarted::ShedGreedy, None, now);
        }
    }

    /// A copy of whoever has had to read for longest, and still has to; or, if all have read since, of the
    /// first of those.
    fn stuck_to_go(&self) -> Option<u32> {
        let stuck = || self.copies.clients.stuck();
        let has_to_read = |copy: &u32| self.room_for_reply(*copy) != Room::Enough;
        stuck().find(has_to_read).or_else(|| stuck().next())
    }

    /// The copy that makes room for one of this connection and class, as others have too much waiting, if
    /// there is any, and why it has to. For an extra only another extra does.
    fn crowding(&self, conn: Conn, class: u8, extra: bool) -> Option<(u32, Unstarted)> {
        if let Some(crowding) = self.crowding_class(class)
            && let newest_first = self.governors[usize::from(crowding)].is_overloaded()
            && let Some(victim) = self.copies.any_of(crowding, newest_first, extra)
        {
            return Some((victim, Unstarted::ShedShare));
        }
        let overloaded = self.governors[usize::from(class)].is_overloaded();
        let own = self.copies.clients.waiting(conn.0);
        // Of one more than its own the other would only be ousted in turn.
        if let Some(crowding) = self.copies.clients.crowding(own + 1, overloaded, extra) {
            return Some((crowding, Unstarted::ShedGreedy));
        }
        None
    }

    /// Under overload the copy that has waited for longest, to make room for one of this connection and
    /// class. For an extra only another extra does.
    fn oldest_to_go(&self, conn: Conn, class: u8, extra: bool) -> Option<(u32, Unstarted)> {
        if !self.governors[usize::from(class)].is_overloaded() {
            return None;
        }
        let own = self.copies.clients.oldest_of(conn.0, class, extra);
        let oldest = own.or_else(|| match extra {
            true => self.copies.oldest_extra(class),
            false => self.copies.oldest(class),
        })?;
        Some((oldest, Unstarted::ShedOldest))
    }

    /// The class that has most waiting for its share, if it has more than this one would have with
    /// one more.
    fn crowding_class(&self, class: u8) -> Option<u8> {
        let waiting = |other: u8| u64::from(self.copies.queued_of(other));
        let share = |other: u8| u64::from(self.shares.of(other));
        let most = self.classes().max_by(|&one, &other| {
            (waiting(one) * share(other)).cmp(&(waiting(other) * share(one)))
        })?;
        let crowds = waiting(most) * share(class) > (waiting(class) + 1) * share(most);
        (most != class && crowds).then_some(most)
    }
}
