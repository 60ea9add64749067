//! The copies that are here, and the queue.

use core::time::Duration;

use bowline_protocol::{Attempt, OptionSet, Request};
use bowline_time::{Instant, TimerKey, Wheel};

use super::arena::{Arena, Key, List};
use super::clients::{CLASSES, Clients, KINDS, Kind};
use super::config::Known;
use super::effect::{Conn, StopReason};
use super::index::Index;
use super::keys::Keys;

/// Links of the queue's lists while a copy waits, of the list of running copies afterwards.
const BY_STATE: usize = 0;

/// One copy, from its acceptance to its end.
pub(super) struct Copy<P> {
    pub(super) request: Request,
    pub(super) options: OptionSet,
    pub(super) method: Known,
    /// Its traffic class, of those that there are here.
    pub(super) class: u8,
    /// Where its terminal frame goes; None once that connection is closed.
    pub(super) conn: Option<Conn>,
    /// When that connection was closed.
    pub(super) orphaned: Option<Instant>,
    pub(super) arrived: Instant,
    /// Since when it stands in the queue: since it came, or since it waits for no other copy's result
    /// any more.
    pub(super) queued: Instant,
    pub(super) deadline: Instant,
    pub(super) bytes: usize,
    /// There until the handler is started.
    pub(super) payload: Option<P>,
    pub(super) state: State,
    /// The entry of its key, while it runs for it.
    pub(super) entry: Option<u32>,
    /// The entry of its key, which is done: it waits to be answered with that, and does not run, whatever
    /// becomes of the entry.
    pub(super) wants: Option<Key>,
    /// How long its reply is expected to be, while it runs.
    pub(super) expected: usize,
    /// Of its name.
    hash: u32,
    /// Its place among all that ever were queued.
    order: u64,
    /// When to give up waiting; armed only for a copy that waits beyond the turn it came in.
    timer: Option<TimerKey>,
}

/// Who is told of a copy's end.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    pub(super) conn: Conn,
    pub(super) attempt: Attempt,
    /// How many bytes the request had.
    pub(super) bytes: usize,
}

#[derive(Clone, Copy)]
pub(super) enum State {
    Queued,
    Running(Running),
    /// It waits, out of the queue, for the copy that runs for this entry of the keys.
    Parked(u32),
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
        options: &OptionSet,
        method: Known,
        conn: Conn,
        now: Instant,
        bytes: usize,
        payload: P,
    ) -> Copy<P> {
        Copy {
            request,
            options: *options,
            method,
            class: 0,
            conn: Some(conn),
            orphaned: None,
            arrived: now,
            queued: now,
            deadline: now + request.remaining,
            bytes,
            payload: Some(payload),
            state: State::Queued,
            entry: None,
            wants: None,
            expected: 0,
            hash: 0,
            order: 0,
            timer: None,
        }
    }

    /// Who is told of its end; None if that connection is gone.
    pub(super) fn asker(&self) -> Option<Asker> {
        let Copy { request: Request { attempt, .. }, bytes, .. } = *self;
        self.conn.map(|conn| Asker { conn, attempt, bytes })
    }

    fn kind(&self) -> Kind {
        match self.state {
            State::Running(_) => Kind::Running,
            State::Parked(_) => Kind::Parked,
            State::Queued if self.request.is_extra() => Kind::Extra(self.class),
            State::Queued => Kind::Primary(self.class),
        }
    }

    /// How long it waited, once it runs.
    pub(super) fn waited(&self) -> Duration {
        match self.state {
            State::Running(running) => running.since - self.arrived,
            State::Queued | State::Parked(_) => Duration::ZERO,
        }
    }
}

/// The copies of all connections, by kind and in the order of their arrival (those that run, of
/// their start).
struct Lists([List; KINDS]);

impl Lists {
    /// The list of a state. Those who wait for a key stand in that key's list.
    fn of<'a>(&'a mut self, kind: Kind, state: State, keys: &'a mut Keys) -> &'a mut List {
        match state {
            State::Parked(entry) => keys.waiting(entry),
            State::Queued | State::Running(_) => &mut self.0[kind.place()],
        }
    }

    const fn primaries(&self, class: u8) -> &List {
        &self.0[Kind::Primary(class).place()]
    }

    const fn extras(&self, class: u8) -> &List {
        &self.0[Kind::Extra(class).place()]
    }

    const fn running(&self) -> &List {
        &self.0[Kind::Running.place()]
    }
}

/// All copies of a core, by name, by state and by connection.
pub(super) struct Copies<P> {
    copies: Arena<Copy<P>, 2>,
    pub(super) clients: Clients,
    pub(super) keys: Keys,
    index: Index,
    lists: Lists,
    parked: u32,
    queued: u32,
    queued_extras: u32,
    queued_bytes: usize,
    extra_bytes: usize,
    next_order: u64,
    timers: Wheel<u32>,
    /// No running copy that was not asked to stop has an earlier deadline.
    running_until: Instant,
}

impl<P> Copies<P> {
    pub(super) fn new(
        queued_max: u32,
        running_max: u32,
        clients: Clients,
        keys: Keys,
        seed: u64,
    ) -> Copies<P> {
        Copies {
            clients,
            keys,
            parked: 0,
            copies: Arena::with_capacity(queued_max + running_max),
            index: Index::new(seed),
            lists: Lists([List::EMPTY; KINDS]),
            queued: 0,
            queued_extras: 0,
            queued_bytes: 0,
            extra_bytes: 0,
            next_order: 0,
            timers: Wheel::with_capacity(queued_max as usize),
            running_until: Instant::FAR_FUTURE,
        }
    }

    pub(super) const fn queued(&self) -> u32 {
        self.queued
    }

    /// How many of a class wait.
    pub(super) const fn queued_of(&self, class: u8) -> u32 {
        self.lists.primaries(class).len() + self.lists.extras(class).len()
    }

    /// How many of a class wait for a slot: all but those that are held back, until their clients have
    /// read.
    pub(super) const fn startable_of(&self, class: u8) -> u32 {
        self.queued_of(class) - self.clients.held_of(class)
    }

    /// How many of all classes wait for a slot.
    pub(super) const fn startable(&self) -> u32 {
        self.queued - self.clients.held_copies()
    }

    pub(super) const fn queued_extras(&self) -> u32 {
        self.queued_extras
    }

    pub(super) const fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(super) const fn extra_bytes(&self) -> usize {
        self.extra_bytes
    }

    /// How many wait for the result of another.
    pub(super) const fn parked(&self) -> u32 {
        self.parked
    }

    pub(super) const fn running(&self) -> u32 {
        self.lists.running().len()
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

    /// A copy of this name for which `is_it` holds. Names come from clients, and nothing proves who
    /// a client is: so each connection has its own, and several may bring a copy of one name.
    pub(super) fn named(&self, attempt: Attempt, is_it: impl Fn(&Copy<P>) -> bool) -> Option<u32> {
        self.index.find(self.index.hash(attempt), |index| {
            let copy = self.copies.at(index);
            copy.request.attempt == attempt && is_it(copy)
        })
    }

    /// Puts a copy at the end of the queue; false if there is no room, which whoever keeps the
    /// limits never sees.
    pub(super) fn queue(&mut self, mut copy: Copy<P>) -> bool {
        let hash = self.index.hash(copy.request.attempt);
        (copy.order, copy.hash) = (self.next_order, hash);
        let Some(Key { index, .. }) = self.copies.insert(copy) else { return false };
        self.next_order += 1;
        self.index.insert(hash, index);
        self.join(index);
        if let Some(done) = self.answer_of(index) {
            self.keys.want(done);
            self.at_mut(index).wants = Some(done);
        }
        true
    }

    /// Adds a copy to the lists that its state puts it in.
    fn join(&mut self, index: u32) {
        let copy = self.copies.at(index);
        let (kind, conn, state, bytes) = (copy.kind(), copy.conn, copy.state, copy.bytes);
        self.copies.push_back(self.lists.of(kind, state, &mut self.keys), BY_STATE, index);
        match kind {
            Kind::Running => {}
            Kind::Primary(_) => {
                self.queued += 1;
                self.queued_bytes += bytes;
            }
            Kind::Extra(_) => {
                self.queued += 1;
                self.queued_extras += 1;
                self.queued_bytes += bytes;
                self.extra_bytes += bytes;
            }
            Kind::Parked => {
                self.queued_bytes += bytes;
                self.parked += 1;
            }
        }
        if let Some(Conn(client)) = conn {
            self.clients.join(&mut self.copies, client, kind, index);
        }
    }

    /// Takes a copy out of the lists that its state has put it in.
    fn leave(&mut self, index: u32) {
        let copy = self.copies.at(index);
        let (kind, conn, state) = (copy.kind(), copy.conn, copy.state);
        self.copies.unlink(self.lists.of(kind, state, &mut self.keys), BY_STATE, index);
        if let Some(Conn(client)) = conn {
            self.clients.leave(&mut self.copies, client, kind, index);
        }
        if kind != Kind::Running {
            self.forget_wait(index, kind);
        }
    }

    fn forget_wait(&mut self, index: u32, kind: Kind) {
        let copy = self.copies.at_mut(index);
        if let Some(timer) = copy.timer.take() {
            self.timers.cancel(timer);
        }
        self.queued_bytes -= copy.bytes;
        match kind {
            Kind::Primary(_) => self.queued -= 1,
            Kind::Extra(_) => {
                self.queued -= 1;
                self.queued_extras -= 1;
                self.extra_bytes -= copy.bytes;
            }
            Kind::Parked => self.parked -= 1,
            Kind::Running => {}
        }
    }

    /// Since when a waiting copy waits for nothing but a slot. None: it is held back.
    pub(super) fn waits_since(&self, index: u32) -> Option<Instant> {
        let copy = self.copies.at(index);
        match copy.conn {
            Some(Conn(client)) => self.clients.waits_since(client, copy.queued),
            None => Some(copy.queued),
        }
    }

    /// Since when the copy of a class waits for nothing but a slot that has done so longest: the first of
    /// the queue, unless it was held back since it came. Then of those whose turns are next.
    pub(super) fn waits_longest(&self, class: u8) -> Option<Instant> {
        let oldest = self.oldest(class)?;
        let since = self.waits_since(oldest);
        if since == Some(self.at(oldest).queued) {
            return since;
        }
        let next = self.clients.turns(class, false).filter_map(|index| self.waits_since(index));
        next.chain(since).min()
    }

    /// The copy of a class that waits for a slot, and has done so longest; where some are held back,
    /// of the connection whose turn it is.
    pub(super) fn oldest_startable(&self, class: u8) -> Option<u32> {
        if self.clients.holds_any() { self.clients.turn(class, false) } else { self.oldest(class) }
    }

    /// The copy of a class that has waited longest.
    pub(super) fn oldest(&self, class: u8) -> Option<u32> {
        match (self.lists.primaries(class).first(), self.lists.extras(class).first()) {
            (Some(primary), Some(extra)) => {
                let primary_first = self.at(primary).order < self.at(extra).order;
                Some(if primary_first { primary } else { extra })
            }
            (primary, extra) => primary.or(extra),
        }
    }

    /// The copy of a class to start next: the oldest, or under overload the newest of the connection
    /// whose turn it is, and primaries before extras.
    pub(super) fn next(&self, class: u8, newest_first: bool) -> Option<u32> {
        match newest_first {
            true => self.clients.turn(class, true),
            false => self.oldest_startable(class),
        }
    }

    /// A waiting copy's connection had its turn.
    pub(super) fn had_turn(&mut self, index: u32) {
        let copy = self.copies.at(index);
        if let Some(Conn(client)) = copy.conn {
            self.clients.had_turn(client, copy.kind());
        }
    }

    /// The extra copy of a class that has waited longest.
    pub(super) const fn oldest_extra(&self, class: u8) -> Option<u32> {
        self.lists.extras(class).first()
    }

    /// The extra copy that came last, of whatever class: the first to make room.
    pub(super) fn newest_extra(&self) -> Option<u32> {
        let classes = 0..CLASSES as u8;
        let newest = classes.filter_map(|class| self.lists.extras(class).last());
        newest.max_by_key(|index| self.at(*index).order)
    }

    /// A copy of a class to make room for one of another: an extra if it can be (or must), the
    /// oldest, or the newest.
    pub(super) fn any_of(&self, class: u8, oldest: bool, only_extras: bool) -> Option<u32> {
        let pick = |list: &List| if oldest { list.first() } else { list.last() };
        let primary = || pick(self.lists.primaries(class));
        let extra = pick(self.lists.extras(class));
        extra.or_else(|| if only_extras { None } else { primary() })
    }

    /// Takes a waiting copy out of the queue, to a slot: it runs from here on.
    pub(super) fn run(&mut self, index: u32, now: Instant) {
        self.leave(index);
        let copy = self.copies.at_mut(index);
        if let Some(Conn(client)) = copy.conn {
            copy.expected = self.clients.expected(client, copy.method.place);
        }
        copy.state =
            State::Running(Running { since: now, stop: None, asked: now, twin_started: None });
        self.running_until = self.running_until.min(copy.deadline);
        self.join(index);
    }

    /// Takes a waiting copy out of the queue, to wait for the one that runs for this key.
    pub(super) fn park(&mut self, index: u32, entry: u32) {
        self.leave(index);
        self.copies.at_mut(index).state = State::Parked(entry);
        self.join(index);
        self.arm(index);
    }

    /// The copy that has waited longest for the one that runs for this key.
    pub(super) fn first_parked(&mut self, entry: u32) -> Option<u32> {
        self.keys.waiting(entry).first()
    }

    /// The next after this one that waits for the same one.
    pub(super) fn next_parked(&self, index: u32) -> Option<u32> {
        self.copies.next(BY_STATE, index)
    }

    /// The entry of a waiting copy's key, if that was done: what it is to be answered with.
    pub(super) fn answer_of(&self, index: u32) -> Option<Key> {
        let Copy { request, options, wants, .. } = self.at(index);
        wants.or_else(|| self.keys.find_done(options.key?, request.method))
    }

    /// Puts a copy that waited for another's result at the end of the queue.
    pub(super) fn unpark(&mut self, index: u32) {
        self.leave(index);
        let copy = self.copies.at_mut(index);
        copy.state = State::Queued;
        copy.queued = self.clients.now();
        copy.order = self.next_order;
        self.next_order += 1;
        self.join(index);
    }

    /// Forgets a copy, wherever it stands.
    pub(super) fn forget(&mut self, index: u32) {
        self.leave(index);
        if let Some(entry) = self.at_mut(index).wants.take() {
            self.keys.unwant(entry);
        }
        self.index.remove(self.at(index).hash, index);
        self.copies.discard(index);
    }

    /// A running copy's connection is about to be closed.
    pub(super) fn orphan(&mut self, index: u32, now: Instant) {
        let copy = self.copies.at_mut(index);
        copy.orphaned = Some(now);
        if let Some(Conn(client)) = copy.conn.take() {
            self.clients.leave(&mut self.copies, client, Kind::Running, index);
        }
    }

    /// Arms the timers of the copies of a class that came in this turn and still wait. They are the
    /// last of their lists; most copies start in the turn they come in, and never cost a timer.
    pub(super) fn arm_new(&mut self, class: u8) {
        for list in [*self.lists.primaries(class), *self.lists.extras(class)] {
            let mut next = list.last();
            while let Some(index) = next
                && self.copies.at(index).timer.is_none()
            {
                self.arm(index);
                next = self.copies.prev(BY_STATE, index);
            }
        }
    }

    fn arm(&mut self, index: u32) {
        let copy = self.copies.at_mut(index);
        let until = copy.deadline - copy.method.rule.least_useful;
        copy.timer = Some(self.timers.arm(until, index));
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
        let mut next = self.lists.running().first();
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
