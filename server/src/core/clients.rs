//! Whose the copies are: for each client's connection the copies that it brought, and whose turn it
//! is when there is too much to do for all.

use alloc::vec;
use alloc::vec::Vec;

use bowline_time::Instant;

use super::arena::{Arena, Key, List};
use super::copies::Copy;
use super::unread::{Room, Unread, considerable, mean_with};

/// Links of a copy in the list of its connection.
const BY_CLIENT: usize = 1;
/// As many traffic classes as there can be.
pub(super) const CLASSES: usize = 4;
/// The kinds of waiting copies: each class's primaries and extras.
const WAITING: usize = 2 * CLASSES;
/// All kinds.
pub(super) const KINDS: usize = WAITING + 2;
/// Links of a connection in the list of those that have as many waiting. The others are those of
/// its turns, by kind.
const BY_WAITING: usize = WAITING;
/// Links of a connection in the list of those that are held back.
const BY_HELD: usize = WAITING + 1;
/// So many connections are looked at, at most, of those whose turn is next.
const LOOKED_AT: usize = 16;

/// Which of its connection's lists a copy stands in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// It waits, and is a call's first or only one; of this class.
    Primary(u8),
    /// It waits, beside another copy of its call; of this class.
    Extra(u8),
    /// It runs.
    Running,
    /// It waits for the result of another copy with its key.
    Parked,
}

impl Kind {
    /// Its place among all: those that wait first.
    pub(super) const fn place(self) -> usize {
        match self {
            Kind::Primary(class) => 2 * class as usize,
            Kind::Extra(class) => 2 * class as usize + 1,
            Kind::Running => WAITING,
            Kind::Parked => WAITING + 1,
        }
    }
}

/// A connection's copies, by kind.
struct Client {
    copies: [List; KINDS],
    /// How many of them wait, and the bytes of their requests.
    waiting: u32,
    bytes: usize,
    /// Bytes of replies that wait for it to read.
    unread: usize,
    /// Bytes of replies that its running copies are expected to have, and of answers that are on their way
    /// to it from here.
    expected: usize,
    /// None of its copies is to start, as it has to read first: it has no turns.
    held: bool,
    /// Since when that was so, now and then, without one that started meanwhile.
    held_since: Option<Instant>,
    /// When that was last over.
    held_until: Instant,
}

/// All open connections.
pub(super) struct Clients {
    clients: Arena<Client, { WAITING + 2 }>,
    /// For each number of waiting copies the connections that have so many (but for none), so that
    /// who has most is found at once, just when the queue is full and there is no time to look.
    levels: Vec<List>,
    /// No connection has more waiting than this; one has as many.
    most: u32,
    /// For each kind the connections that have such copies waiting, and may have them started: next
    /// is whose turn is longest ago.
    turns: [List; WAITING],
    /// The connections of which some copies were held back, and none has started since: first is who
    /// has had to read for longest. And the bytes of requests that they have waiting.
    stuck: List,
    stuck_bytes: usize,
    /// How many connections have no turns, as they have to read first.
    held: u32,
    /// Some have had their turns again since it was last decided what starts.
    released: bool,
    /// How many copies they have waiting, and how many of each class.
    held_copies: u32,
    held_of: [u32; CLASSES],
    /// What time it was when somebody said so last.
    now: Instant,
    pub(super) unread: Unread,
    /// For each connection and method, how long its replies are on average; 0: it had none.
    means: Vec<u32>,
}

impl Clients {
    /// Room for so many connections, which have up to `waiting_max` copies waiting.
    pub(super) fn with_capacity(capacity: u32, waiting_max: u32, unread: Unread) -> Clients {
        Clients {
            clients: Arena::with_capacity(capacity),
            levels: vec![List::EMPTY; waiting_max as usize + 1],
            most: 0,
            turns: [List::EMPTY; WAITING],
            stuck: List::EMPTY,
            stuck_bytes: 0,
            held: 0,
            released: false,
            held_copies: 0,
            held_of: [0; CLASSES],
            now: Instant::EPOCH,
            means: vec![0; capacity as usize * unread.methods()],
            unread,
        }
    }

    /// A connection has one copy more or less waiting than before.
    fn change_level(&mut self, client: u32, before: u32, after: u32) {
        self.clients.at_mut(client).waiting = after;
        if before > 0 {
            self.clients.unlink(&mut self.levels[before as usize], BY_WAITING, client);
        }
        match after {
            0 => {
                self.unstick(client);
                self.release(client);
            }
            _ => self.clients.push_back(&mut self.levels[after as usize], BY_WAITING, client),
        }
        // It changes by one: if the highest level is empty now, the connection is on the next.
        if after > self.most || self.levels[self.most as usize].len() == 0 {
            self.most = after;
        }
    }

    /// Of its waiting copies' bytes a connection has some less or more than before.
    fn change_bytes(&mut self, client: u32, before: usize, after: usize) {
        let of = self.clients.at_mut(client);
        of.bytes = of.bytes - before + after;
        if of.held_since.is_some() {
            self.stuck_bytes = self.stuck_bytes - before + after;
        }
    }

    pub(super) const fn len(&self) -> u32 {
        self.clients.len()
    }

    pub(super) fn open(&mut self) -> Option<Key> {
        let client = self.clients.insert(Client {
            copies: [List::EMPTY; KINDS],
            waiting: 0,
            bytes: 0,
            unread: 0,
            expected: 0,
            held: false,
            held_since: None,
            held_until: Instant::EPOCH,
        })?;
        let methods = self.unread.methods();
        let first = client.index as usize * methods;
        self.means[first..first + methods].fill(0);
        Some(client)
    }

    pub(super) fn is_open(&self, client: Key) -> bool {
        self.clients.find(client).is_some()
    }

    /// Forgets a connection, which has no copies any more.
    pub(super) fn close(&mut self, client: Key) {
        if let Some(index) = self.clients.find(client) {
            self.change_room(index, 0, 0);
            self.clients.remove(index);
        }
    }

    /// How many copies of a connection wait.
    pub(super) fn waiting(&self, client: Key) -> u32 {
        self.clients.get(client).map_or(0, |client| client.waiting)
    }

    /// Any of a connection's copies.
    pub(super) fn any_of(&self, client: Key) -> Option<u32> {
        self.clients.get(client)?.copies.iter().find_map(List::first)
    }

    /// A copy becomes one of this kind.
    pub(super) fn join<P>(
        &mut self,
        copies: &mut Arena<Copy<P>, 2>,
        client: Key,
        kind: Kind,
        copy: u32,
    ) {
        let Some(index) = self.clients.find(client) else { return };
        let of = self.clients.at_mut(index);
        let (place, before, held) = (kind.place(), of.waiting, of.held);
        let list = &mut of.copies[place];
        copies.push_back(list, BY_CLIENT, copy);
        let is_first = list.len() == 1;
        if kind == Kind::Running {
            let Client { unread, expected, .. } = *of;
            self.change_room(index, unread, expected + copies.at(copy).expected);
        }
        let Some(turns) = self.turns.get_mut(place) else { return };
        if held {
            self.count_held(place, 0, 1);
        } else if is_first {
            self.clients.push_back(turns, place, index);
        }
        self.change_bytes(index, 0, copies.at(copy).bytes);
        self.change_level(index, before, before + 1);
    }

    /// A copy is not one of this kind any more.
    pub(super) fn leave<P>(
        &mut self,
        copies: &mut Arena<Copy<P>, 2>,
        client: Key,
        kind: Kind,
        copy: u32,
    ) {
        let Some(index) = self.clients.find(client) else { return };
        let of = self.clients.at_mut(index);
        let (place, before, held) = (kind.place(), of.waiting, of.held);
        let list = &mut of.copies[place];
        copies.unlink(list, BY_CLIENT, copy);
        let was_last = list.len() == 0;
        if kind == Kind::Running {
            let Client { unread, expected, .. } = *of;
            self.change_room(index, unread, expected - copies.at(copy).expected);
        }
        let Some(turns) = self.turns.get_mut(place) else { return };
        if held {
            self.count_held(place, 1, 0);
        } else if was_last {
            self.clients.unlink(turns, place, index);
        }
        self.change_bytes(index, copies.at(copy).bytes, 0);
        self.change_level(index, before, before - 1);
    }

    /// Of a class a waiting copy of the connection whose turn it is, the newest or the oldest,
    /// primaries before extras.
    pub(super) fn turn(&self, class: u8, newest: bool) -> Option<u32> {
        let primaries = Kind::Primary(class).place();
        let place = primaries + usize::from(self.turns[primaries].len() == 0);
        let copies = &self.clients.at(self.turns[place].first()?).copies[place];
        if newest { copies.last() } else { copies.first() }
    }

    /// Of a class a waiting copy of each of the first few connections whose turns are next, as
    /// [`Clients::turn`] would have it: primaries before extras.
    pub(super) fn turns(&self, class: u8, newest: bool) -> impl Iterator<Item = u32> {
        [Kind::Primary(class), Kind::Extra(class)].into_iter().flat_map(move |kind| {
            let place = kind.place();
            let next = move |client: &u32| self.clients.next(place, *client);
            let clients = core::iter::successors(self.turns[place].first(), next);
            clients.take(LOOKED_AT).filter_map(move |client| {
                let copies = &self.clients.at(client).copies[place];
                if newest { copies.last() } else { copies.first() }
            })
        })
    }

    /// Where some connections stand behind more than [`Clients::turns`] looks at, those that it does,
    /// but for the first, come last: so all are looked at some time.
    pub(super) fn look_further(&mut self) {
        for (place, turns) in self.turns.iter_mut().enumerate() {
            for _ in 1..LOOKED_AT {
                if let Some(first) = turns.first()
                    && turns.len() > LOOKED_AT as u32
                    && let Some(second) = self.clients.next(place, first)
                {
                    self.clients.unlink(turns, place, second);
                    self.clients.push_back(turns, place, second);
                }
            }
        }
    }

    /// A connection had its turn with a copy of this kind: its next comes after all others' that have
    /// any.
    pub(super) fn had_turn(&mut self, client: Key, kind: Kind) {
        let place = kind.place();
        if let (Some(index), Some(turns)) = (self.clients.find(client), self.turns.get_mut(place)) {
            self.clients.unlink(turns, place, index);
            self.clients.push_back(turns, place, index);
        }
    }

    /// Of a connection's waiting copies of a class the oldest, extras before primaries, or only
    /// extras.
    pub(super) fn oldest_of(&self, client: Key, class: u8, only_extras: bool) -> Option<u32> {
        let copies = &self.clients.get(client)?.copies;
        let first = |kind: Kind| copies[kind.place()].first();
        let primary = || if only_extras { None } else { first(Kind::Primary(class)) };
        first(Kind::Extra(class)).or_else(primary)
    }

    /// If a connection has more copies waiting than this many: one of them to make room, an extra
    /// if it can be (or must), of the connection that has most. The oldest, or the newest.
    pub(super) fn crowding(&self, more_than: u32, oldest: bool, only_extras: bool) -> Option<u32> {
        if self.most <= more_than {
            return None;
        }
        self.one_of(self.levels[self.most as usize].first()?, oldest, only_extras)
    }

    /// One of a connection's waiting copies to make room, as above.
    fn one_of(&self, client: u32, oldest: bool, only_extras: bool) -> Option<u32> {
        let pick = |list: &List| if oldest { list.first() } else { list.last() };
        let waiting = &self.clients.at(client).copies[..WAITING];
        // Of whatever class: first extras, which stand behind primaries.
        let extra = waiting.iter().skip(1).step_by(2).find_map(pick);
        let primary = || waiting.iter().step_by(2).find_map(pick);
        extra.or_else(|| if only_extras { None } else { primary() })
    }
}

/// Who has to read before any of its copies start.
impl Clients {
    /// Whether there is room for one more reply to a connection.
    pub(super) fn room(&self, client: Key, more: usize) -> Room {
        let has = self.clients.get(client).map_or(0, |of| of.unread + of.expected);
        self.unread.room(has, more)
    }

    /// How long a method's next reply to a connection is expected to be: as its own were, whatever
    /// others' are like; or as those of all, if it had none.
    pub(super) fn expected(&self, client: Key, method: u16) -> usize {
        let own = self.clients.find(client).map_or(0, |index| self.means[self.mean(index, method)]);
        match own {
            0 => self.unread.expected(method),
            own => considerable(own as usize),
        }
    }

    /// An answer of so many bytes is about to wait for a connection's client. Little ones count, too: any
    /// number may be on their way at once.
    pub(super) fn promise(&mut self, client: Key, bytes: usize) {
        if let Some(index) = self.clients.find(client) {
            let Client { unread, expected, .. } = *self.clients.at(index);
            self.change_room(index, unread, expected + bytes);
        }
    }

    /// Whoever tells how much waits for a connection's client counts such an answer from here on.
    pub(super) fn deliver(&mut self, client: Key, bytes: usize) {
        if let Some(index) = self.clients.find(client) {
            let Client { unread, expected, .. } = *self.clients.at(index);
            self.change_room(index, unread, expected - bytes);
        }
    }

    /// A method's reply to a connection, if it is still there, was so long.
    pub(super) fn replied(&mut self, client: Option<Key>, method: u16, bytes: usize) {
        self.unread.replied(method, bytes);
        if let Some(index) = client.and_then(|client| self.clients.find(client)) {
            let place = self.mean(index, method);
            let mean = mean_with(self.means[place] as usize, bytes.max(1));
            self.means[place] = u32::try_from(mean).unwrap_or(u32::MAX);
        }
    }

    /// The place of a connection's mean.
    fn mean(&self, index: u32, method: u16) -> usize {
        index as usize * self.unread.methods() + usize::from(method)
    }

    /// What is said from here on is said at this time.
    pub(super) const fn set_time(&mut self, now: Instant) {
        self.now = now;
    }

    /// What time it was when somebody said so last.
    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    /// Since when a copy waits for nothing but a slot that was queued for a connection then: since it was last
    /// held back. None: it is.
    pub(super) fn waits_since(&self, client: Key, queued: Instant) -> Option<Instant> {
        let Some(of) = self.clients.get(client) else { return Some(queued) };
        (!of.held).then(|| queued.max(of.held_until))
    }

    /// So many bytes wait for a connection's client to read.
    pub(super) fn set_unread(&mut self, client: Key, bytes: usize) {
        let Some(index) = self.clients.find(client) else { return };
        let Client { unread, expected, .. } = *self.clients.at(index);
        let bytes = considerable(bytes);
        if bytes != unread {
            self.change_room(index, bytes, expected);
        }
        // Others may have made room, too: it is looked at anew.
        self.release(index);
    }

    fn change_room(&mut self, index: u32, unread: usize, expected: usize) {
        let of = self.clients.at_mut(index);
        let before = of.unread + of.expected;
        (of.unread, of.expected) = (unread, expected);
        self.unread.change(before, unread + expected);
        if unread + expected < before {
            self.release(index);
        }
    }

    /// None of a connection's copies is to start. True if that is news.
    pub(super) fn hold(&mut self, client: Key, now: Instant) -> bool {
        let Some(index) = self.clients.find(client) else { return false };
        let of = self.clients.at_mut(index);
        let is_news = of.held_since.is_none();
        if is_news {
            of.held_since = Some(now);
            self.stuck_bytes += of.bytes;
            self.clients.push_back(&mut self.stuck, BY_HELD, index);
        }
        if core::mem::replace(&mut self.clients.at_mut(index).held, true) {
            return false;
        }
        self.held += 1;
        for place in 0..WAITING {
            let waiting = self.clients.at(index).copies[place].len();
            if waiting > 0 {
                self.clients.unlink(&mut self.turns[place], place, index);
                self.count_held(place, 0, waiting);
            }
        }
        is_news
    }

    /// A connection's copies have their turns again.
    fn release(&mut self, index: u32) {
        let of = self.clients.at_mut(index);
        if !core::mem::replace(&mut of.held, false) {
            return;
        }
        of.held_until = self.now;
        self.held -= 1;
        for place in 0..WAITING {
            let waiting = self.clients.at(index).copies[place].len();
            if waiting > 0 {
                self.clients.push_back(&mut self.turns[place], place, index);
                self.count_held(place, waiting, 0);
                self.released = true;
            }
        }
    }

    /// One of a connection's copies starts. Returns since when they were held back, if they were.
    pub(super) fn started(&mut self, client: Key) -> Option<Instant> {
        self.unstick(self.clients.find(client)?)
    }

    fn unstick(&mut self, index: u32) -> Option<Instant> {
        let of = self.clients.at_mut(index);
        let since = of.held_since.take()?;
        self.stuck_bytes -= of.bytes;
        self.clients.unlink(&mut self.stuck, BY_HELD, index);
        Some(since)
    }

    /// Of each connection that has had to read, and had none started since, a waiting copy to make room: who
    /// has had to for longest comes first. They may have read meanwhile.
    pub(super) fn stuck(&self) -> impl Iterator<Item = u32> {
        let next = |client: &u32| self.clients.next(BY_HELD, *client);
        let stuck = core::iter::successors(self.stuck.first(), next);
        stuck.filter_map(|client| self.one_of(client, false, false))
    }

    /// Bytes of the requests of all connections that have to read first.
    pub(super) const fn stuck_bytes(&self) -> usize {
        self.stuck_bytes
    }

    /// Whether connections have their turns again of which nobody has looked what may start.
    pub(super) const fn is_released(&self) -> bool {
        self.released
    }

    /// From now on it is decided what starts, at this time.
    pub(super) const fn decide(&mut self, now: Instant) {
        self.now = now;
        self.released = false;
    }

    /// Whether any connection's copies are held back.
    pub(super) const fn holds_any(&self) -> bool {
        self.held > 0
    }

    /// How many copies of a class are held back.
    pub(super) const fn held_of(&self, class: u8) -> u32 {
        self.held_of[class as usize]
    }

    /// How many copies are held back.
    pub(super) const fn held_copies(&self) -> u32 {
        self.held_copies
    }

    /// Of a kind fewer or more copies are held back than before.
    fn count_held(&mut self, place: usize, before: u32, after: u32) {
        for count in [&mut self.held_copies, &mut self.held_of[place / 2]] {
            *count = *count - before + after;
        }
    }
}

#[cfg(test)]
impl Clients {
    /// How many copies the connection has waiting that has most: as the lists say, and as all
    /// connections say when they are asked one by one.
    pub(super) fn most_waiting(&self) -> [u32; 2] {
        let listed = self.levels[self.most as usize].first();
        let of = |index| self.clients.at(index).waiting;
        [listed.map_or(0, of), self.clients.iter().map(|client| client.waiting).max().unwrap_or(0)]
    }

    /// How many copies are held back, bytes of room taken, and bytes of requests of who has to read first:
    /// as is kept, and as all connections say when they are asked one by one.
    pub(super) fn held_back(&self) -> [(u32, usize, usize); 2] {
        let of = |client: &Client| if client.held { client.waiting } else { 0 };
        let taken = |client: &Client| client.unread + client.expected;
        let stuck = |client: &Client| if client.held_since.is_some() { client.bytes } else { 0 };
        let all = || self.clients.iter();
        let counted = (all().map(of).sum(), all().map(taken).sum(), all().map(stuck).sum());
        [(self.held_copies(), self.unread.taken(), self.stuck_bytes), counted]
    }
}
