//! Whose the copies are: for each client's connection the copies that it brought, and whose turn it
//! is when there is too much to do for all.

use alloc::vec;
use alloc::vec::Vec;

use super::arena::{Arena, Key, List};
use super::copies::Copy;

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
    /// How many of them wait.
    waiting: u32,
}

/// All open connections.
pub(super) struct Clients {
    clients: Arena<Client, { WAITING + 1 }>,
    /// For each number of waiting copies the connections that have so many (but for none), so that
    /// who has most is found at once, just when the queue is full and there is no time to look.
    levels: Vec<List>,
    /// No connection has more waiting than this; one has as many.
    most: u32,
    /// For each kind the connections that have such copies waiting: next is whose turn is longest
    /// ago.
    turns: [List; WAITING],
}

impl Clients {
    /// Room for so many connections, which have up to `waiting_max` copies waiting.
    pub(super) fn with_capacity(capacity: u32, waiting_max: u32) -> Clients {
        Clients {
            clients: Arena::with_capacity(capacity),
            levels: vec![List::EMPTY; waiting_max as usize + 1],
            most: 0,
            turns: [List::EMPTY; WAITING],
        }
    }

    /// A connection has one copy more or less waiting than before.
    fn change_level(&mut self, client: u32, before: u32, after: u32) {
        self.clients.at_mut(client).waiting = after;
        if before > 0 {
            self.clients.unlink(&mut self.levels[before as usize], BY_WAITING, client);
        }
        if after > 0 {
            self.clients.push_back(&mut self.levels[after as usize], BY_WAITING, client);
        }
        // It changes by one: if the highest level is empty now, the connection is on the next.
        if after > self.most || self.levels[self.most as usize].len() == 0 {
            self.most = after;
        }
    }

    pub(super) const fn len(&self) -> u32 {
        self.clients.len()
    }

    pub(super) fn open(&mut self) -> Option<Key> {
        self.clients.insert(Client { copies: [List::EMPTY; KINDS], waiting: 0 })
    }

    pub(super) fn is_open(&self, client: Key) -> bool {
        self.clients.find(client).is_some()
    }

    /// Forgets a connection, which has no copies any more.
    pub(super) fn close(&mut self, client: Key) {
        if let Some(index) = self.clients.find(client) {
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
        let (place, before) = (kind.place(), of.waiting);
        let list = &mut of.copies[place];
        copies.push_back(list, BY_CLIENT, copy);
        let is_first = list.len() == 1;
        let Some(turns) = self.turns.get_mut(place) else { return };
        if is_first {
            self.clients.push_back(turns, place, index);
        }
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
        let (place, before) = (kind.place(), of.waiting);
        let list = &mut of.copies[place];
        copies.unlink(list, BY_CLIENT, copy);
        let was_last = list.len() == 0;
        let Some(turns) = self.turns.get_mut(place) else { return };
        if was_last {
            self.clients.unlink(turns, place, index);
        }
        self.change_level(index, before, before - 1);
    }

    /// Of a class the newest waiting copy of the connection whose turn it is, primaries before
    /// extras. The connection's next turn comes after all others' that have any.
    pub(super) fn take_turn(&mut self, class: u8) -> Option<u32> {
        let primaries = Kind::Primary(class).place();
        let place = primaries + usize::from(self.turns[primaries].len() == 0);
        let client = self.turns[place].first()?;
        self.clients.unlink(&mut self.turns[place], place, client);
        self.clients.push_back(&mut self.turns[place], place, client);
        self.clients.at(client).copies[place].last()
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
        let most = self.clients.at(self.levels[self.most as usize].first()?);
        let pick = |list: &List| if oldest { list.first() } else { list.last() };
        let waiting = &most.copies[..WAITING];
        // Of whatever class: first extras, which stand behind primaries.
        let extra = waiting.iter().skip(1).step_by(2).find_map(pick);
        let primary = || waiting.iter().step_by(2).find_map(pick);
        extra.or_else(|| if only_extras { None } else { primary() })
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
}
