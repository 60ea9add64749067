//! The copies that are here, and the queue.

use core::time::Duration;

use bowline_protocol::{Attempt, Request};
use bowline_time::{Instant, TimerKey, Wheel};

use super::arena::{Arena, Key, List};
use super::config::Known;
use super::effect::{Conn, StopReason};
use super::index::Index;

/// Links of the queue's lists while a copy waits, of the list of running copies afterwards.
const BY_STATE: usize = 0;
/// Links of the list of a connection's copies.
const BY_CONN: usize = 1;

/// One copy, from its acceptance to its end.
pub(super) struct Copy<P> {
    pub(super) request: Request,
    pub(super) method: Known,
    /// Where its terminal frame goes; None once that connection is closed.
    pub(super) conn: Option<Conn>,
    /// When that connection was closed.
    pub(super) orphaned: Option<Instant>,
    pub(super) arrived: Instant,
    pub(super) deadline: Instant,
    pub(super) bytes: usize,
    /// There until the handler is started.
    pub(super) payload: Option<P>,
    pub(super) state: State,
    /// Its place among all that ever were queued.
    order: u64,
    /// When to give up waiting; armed only for a copy that waits beyond the turn it came in.
    timer: Option<TimerKey>,
}

#[derive(Clone, Copy)]
pub(super) enum State {
    Queued,
    Running(Running),
}

#[derive(Clone, Copy)]
pub(super) struct Running {
    pub(super) since: Instant,
    /// It was asked to stop.
    pub(super) stop: Option<StopReason>,
    /// When it was first asked.
    pub(super) asked: Instant,
    /// The twin's number, once the twin is known to have started as well.
    pub(super) twin_started: Option<u16>,
}

impl<P> Copy<P> {
    pub(super) fn new(
        request: Request,
        method: Known,
        conn: Conn,
        now: Instant,
        bytes: usize,
        payload: P,
    ) -> Copy<P> {
        Copy {
            request,
            method,
            conn: Some(conn),
            orphaned: None,
            arrived: now,
            deadline: now + request.remaining,
            bytes,
            payload: Some(payload),
            state: State::Queued,
            order: 0,
            timer: None,
        }
    }

    /// How long it waited, once it runs.
    pub(super) fn waited(&self) -> Duration {
        match self.state {
            State::Queued => Duration::ZERO,
            State::Running(running) => running.since - self.arrived,
        }
    }
}

/// All copies of a core, each in one of three lists: primaries that wait, extras that wait (hedges
/// and the second ones of tied pairs), and those that run.
pub(super) struct Copies<P> {
    copies: Arena<Copy<P>, 2>,
    index: Index,
    primaries: List,
    extras: List,
    running: List,
    queued_bytes: usize,
    extra_bytes: usize,
    next_order: u64,
    timers: Wheel<u32>,
    /// No running copy that was not asked to stop has an earlier deadline.
    running_until: Instant,
}

impl<P> Copies<P> {
    pub(super) fn new(queued_max: u32, running_max: u32, seed: u64) -> Copies<P> {
        Copies {
            copies: Arena::with_capacity(queued_max + running_max),
            index: Index::with_capacity(queued_max + running_max, seed),
            primaries: List::EMPTY,
            extras: List::EMPTY,
            running: List::EMPTY,
            queued_bytes: 0,
            extra_bytes: 0,
            next_order: 0,
            timers: Wheel::with_capacity(queued_max as usize),
            running_until: Instant::FAR_FUTURE,
        }
    }

    pub(super) const fn queued(&self) -> u32 {
        self.primaries.len() + self.extras.len()
    }

    pub(super) const fn queued_extras(&self) -> u32 {
        self.extras.len()
    }

    pub(super) const fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(super) const fn extra_bytes(&self) -> usize {
        self.extra_bytes
    }

    pub(super) const fn running(&self) -> u32 {
        self.running.len()
    }

    pub(super) fn at(&self, index: u32) -> &Copy<P> {
        self.copies.at(index)
    }

    pub(super) fn at_mut(&mut self, index: u32) -> &mut Copy<P> {
        self.copies.at_mut(index)
    }

    pub(super) fn key(&self, index: u32) -> Key {
        self.copies.key(index)
    }

    pub(super) fn find(&self, key: Key) -> Option<u32> {
        self.copies.find(key)
    }

    pub(super) fn named(&self, attempt: Attempt) -> Option<u32> {
        let hash = self.index.hash(attempt);
        self.index.find(hash, |index| self.copies.at(index).request.attempt == attempt)
    }

    /// Puts a copy at the end of the queue and of its connection's list; false if there is no room,
    /// which whoever keeps the limits never sees.
    pub(super) fn queue(&mut self, mut copy: Copy<P>, of_conn: &mut List) -> bool {
        copy.order = self.next_order;
        let (attempt, bytes, extra) = (copy.request.attempt, copy.bytes, copy.request.is_extra());
        let Some(Key { index, .. }) = self.copies.insert(copy) else { return false };
        self.next_order += 1;
        self.index.insert(self.index.hash(attempt), index);
        self.copies.push_back(of_conn, BY_CONN, index);
        self.queued_bytes += bytes;
        if extra {
            self.extra_bytes += bytes;
            self.copies.push_back(&mut self.extras, BY_STATE, index);
        } else {
            self.copies.push_back(&mut self.primaries, BY_STATE, index);
        }
        true
    }

    /// The copy that has waited longest.
    pub(super) fn oldest(&self) -> Option<u32> {
        match (self.primaries.first(), self.extras.first()) {
            (Some(primary), Some(extra)) => {
                let primary_first = self.at(primary).order < self.at(extra).order;
                Some(if primary_first { primary } else { extra })
            }
            (primary, extra) => primary.or(extra),
        }
    }

    /// The copy to start next: the oldest, or under overload the newest, and primaries before
    /// extras.
    pub(super) fn next(&self, newest_first: bool) -> Option<u32> {
        if newest_first { self.primaries.last().or(self.extras.last()) } else { self.oldest() }
    }

    /// Of a connection's copies one that waits: the newest, or the oldest.
    pub(super) fn queued_of(&self, of_conn: &List, oldest: bool) -> Option<u32> {
        let mut next = if oldest { of_conn.first() } else { of_conn.last() };
        while let Some(index) = next
            && matches!(self.at(index).state, State::Running(_))
        {
            next = match oldest {
                true => self.copies.next(BY_CONN, index),
                false => self.copies.prev(BY_CONN, index),
            };
        }
        next
    }

    /// The extra copy that came last: the first to make room.
    pub(super) const fn newest_extra(&self) -> Option<u32> {
        self.extras.last()
    }

    /// Takes a waiting copy out of the queue, to a slot: it runs from here on.
    pub(super) fn run(&mut self, index: u32, now: Instant) {
        self.leave_queue(index);
        self.copies.push_back(&mut self.running, BY_STATE, index);
        let copy = self.copies.at_mut(index);
        copy.state =
            State::Running(Running { since: now, stop: None, asked: now, twin_started: None });
        self.running_until = self.running_until.min(copy.deadline);
    }

    /// Forgets a copy, wherever it stands. `of_conn` is its connection's list, if that is open.
    pub(super) fn remove(&mut self, index: u32, of_conn: Option<&mut List>) -> Option<Copy<P>> {
        match self.at(index).state {
            State::Queued => self.leave_queue(index),
            State::Running(_) => self.copies.unlink(&mut self.running, BY_STATE, index),
        }
        if let Some(list) = of_conn {
            self.copies.unlink(list, BY_CONN, index);
        }
        let attempt = self.at(index).request.attempt;
        self.index.remove(self.index.hash(attempt), index);
        self.copies.remove(index)
    }

    /// Takes a running copy from the list of its connection, which is about to be closed.
    pub(super) fn orphan(&mut self, index: u32, of_conn: &mut List, now: Instant) {
        self.copies.unlink(of_conn, BY_CONN, index);
        let copy = self.copies.at_mut(index);
        copy.conn = None;
        copy.orphaned = Some(now);
    }

    fn leave_queue(&mut self, index: u32) {
        let copy = self.copies.at_mut(index);
        let (bytes, extra) = (copy.bytes, copy.request.is_extra());
        if let Some(timer) = copy.timer.take() {
            self.timers.cancel(timer);
        }
        self.queued_bytes -= bytes;
        if extra {
            self.extra_bytes -= bytes;
            self.copies.unlink(&mut self.extras, BY_STATE, index);
        } else {
            self.copies.unlink(&mut self.primaries, BY_STATE, index);
        }
    }

    /// Arms the timers of the copies that came in this turn and still wait. They are the last of
    /// their lists; most copies start in the turn they come in, and never cost a timer.
    pub(super) fn arm_new(&mut self) {
        for last in [self.primaries.last(), self.extras.last()] {
            let mut next = last;
            while let Some(index) = next
                && self.copies.at(index).timer.is_none()
            {
                let copy = self.copies.at_mut(index);
                copy.timer =
                    Some(self.timers.arm(copy.deadline - copy.method.rule.least_useful, index));
                next = self.copies.prev(BY_STATE, index);
            }
        }
    }

    /// A copy that waits and can't be of use any more.
    pub(super) fn expire_queued(&mut self, now: Instant) -> Option<u32> {
        let index = self.timers.expire(now)?;
        self.copies.at_mut(index).timer = None;
        Some(index)
    }

    /// A running copy that was not asked to stop, and whose deadline has passed.
    pub(super) fn expire_running(&mut self, now: Instant) -> Option<u32> {
        if now < self.running_until {
            return None;
        }
        let mut until = Instant::FAR_FUTURE;
        let mut next = self.running.first();
        while let Some(index) = next {
            let copy = self.copies.at(index);
            if let State::Running(Running { stop: None, .. }) = copy.state {
                if copy.deadline <= now {
                    return Some(index);
                }
                until = until.min(copy.deadline);
            }
            next = self.copies.next(BY_STATE, index);
        }
        self.running_until = until;
        None
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let running = (self.running_until < Instant::FAR_FUTURE).then_some(self.running_until);
        [self.timers.next(), running].into_iter().flatten().min()
    }
}
