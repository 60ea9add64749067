//! A fixed number of places, reused: entries are named by keys that outlive them harmlessly, and
//! can stand in lists without owning memory for it.
//!
//! Every entry has `LISTS` pairs of links, and so can be in that many lists at once (a queued copy
//! is in the queue and in its connection's list). Joining and leaving a list are O(1), wherever
//! the entry stands. Nothing is allocated after construction.

use alloc::vec::Vec;

/// No entry: the end of a list.
const NIL: u32 = u32::MAX;

/// Names an entry. Once the entry is gone the key finds nothing, even if its place is in use again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key {
    pub(super) index: u32,
    generation: u32,
}

/// A list of entries, in the order in which they joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    pub(super) const EMPTY: List = List { head: NIL, tail: NIL, len: 0 };

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) const fn first(&self) -> Option<u32> {
        if self.head == NIL { None } else { Some(self.head) }
    }

    pub(super) const fn last(&self) -> Option<u32> {
        if self.tail == NIL { None } else { Some(self.tail) }
    }
}

#[derive(Clone, Copy)]
struct Links {
    prev: u32,
    next: u32,
}

struct Place<T, const LISTS: usize> {
    /// Goes up when the entry leaves, so that old keys miss.
    generation: u32,
    /// The next free place, while this one is free.
    next_free: u32,
    links: [Links; LISTS],
    value: Option<T>,
}

/// The places. See the module's head.
pub(super) struct Arena<T, const LISTS: usize> {
    places: Vec<Place<T, LISTS>>,
    free: u32,
    capacity: u32,
    live: u32,
}

impl<T, const LISTS: usize> Arena<T, LISTS> {
    /// An arena for `capacity` entries, and never more.
    pub(super) fn with_capacity(capacity: u32) -> Self {
        Arena { places: Vec::with_capacity(capacity as usize), free: NIL, capacity, live: 0 }
    }

    pub(super) const fn len(&self) -> u32 {
        self.live
    }

    pub(super) const fn is_full(&self) -> bool {
        self.live == self.capacity
    }

    /// Takes a place; None if all are taken.
    pub(super) fn insert(&mut self, value: T) -> Option<Key> {
        if self.is_full() {
            return None;
        }
        self.live += 1;
        if self.free != NIL {
            let index = self.free;
            let place = &mut self.places[index as usize];
            self.free = place.next_free;
            place.value = Some(value);
            return Some(Key { index, generation: place.generation });
        }
        let index = self.places.len() as u32;
        let links = [Links { prev: NIL, next: NIL }; LISTS];
        self.places.push(Place { generation: 0, next_free: NIL, links, value: Some(value) });
        Some(Key { index, generation: 0 })
    }

    /// Frees a place. The entry must have left its lists.
    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.places.get_mut(index as usize)?.value.take()?;
        self.vacated(index);
        Some(value)
    }

    /// As [`Arena::remove`], of a live entry that nobody wants: it is dropped where it lies.
    pub(super) fn discard(&mut self, index: u32) {
        self.places[index as usize].value = None;
        self.vacated(index);
    }

    fn vacated(&mut self, index: u32) {
        let place = &mut self.places[index as usize];
        place.generation = place.generation.wrapping_add(1);
        place.next_free = self.free;
        self.free = index;
        self.live -= 1;
    }

    /// The index behind a key, if its entry is still there.
    pub(super) fn find(&self, key: Key) -> Option<u32> {
        let place = self.places.get(key.index as usize)?;
        (place.generation == key.generation && place.value.is_some()).then_some(key.index)
    }

    /// The key of a live entry.
    pub(super) fn key(&self, index: u32) -> Key {
        Key { index, generation: self.places[index as usize].generation }
    }

    /// The entry at an index that a live entry's list, key or table gave.
    pub(super) fn at(&self, index: u32) -> &T {
        self.places[index as usize].value.as_ref().expect("a listed entry is live")
    }

    /// As [`Arena::at`].
    pub(super) fn at_mut(&mut self, index: u32) -> &mut T {
        self.places[index as usize].value.as_mut().expect("a listed entry is live")
    }

    pub(super) fn get(&self, key: Key) -> Option<&T> {
        self.find(key).map(|index| self.at(index))
    }

    /// All entries, in the order of their places.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.value.as_ref())
    }

    /// Lets an entry join a list at its end, by its links number `by`.
    pub(super) fn push_back(&mut self, list: &mut List, by: usize, index: u32) {
        self.places[index as usize].links[by] = Links { prev: list.tail, next: NIL };
        match list.last() {
            Some(tail) => self.places[tail as usize].links[by].next = index,
            None => list.head = index,
        }
        list.tail = index;
        list.len += 1;
    }

    /// Takes an entry out of the list that it stands in.
    pub(super) fn unlink(&mut self, list: &mut List, by: usize, index: u32) {
        let Links { prev, next } = self.places[index as usize].links[by];
        match prev {
            NIL => list.head = next,
            prev => self.places[prev as usize].links[by].next = next,
        }
        match next {
            NIL => list.tail = prev,
            next => self.places[next as usize].links[by].prev = prev,
        }
        list.len -= 1;
    }

    /// The entry after this one in its list.
    pub(super) fn next(&self, by: usize, index: u32) -> Option<u32> {
        let next = self.places[index as usize].links[by].next;
        (next != NIL).then_some(next)
    }

    /// The entry before this one in its list.
    pub(super) fn prev(&self, by: usize, index: u32) -> Option<u32> {
        let prev = self.places[index as usize].links[by].prev;
        (prev != NIL).then_some(prev)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(arena: &Arena<char, 1>, list: &List) -> Vec<char> {
        let first = list.first();
        core::iter::successors(first, |&i| arena.next(0, i)).map(|i| *arena.at(i)).collect()
    }

    #[test]
    fn an_old_key_finds_nothing_after_its_place_was_taken_again() {
        let mut arena = Arena::<char, 1>::with_capacity(1);
        let old = arena.insert('a').unwrap();
        assert_eq!(arena.insert('b'), None);
        assert_eq!(arena.remove(old.index), Some('a'));
        let new = arena.insert('b').unwrap();
        assert_eq!(new.index, old.index);
        assert_eq!(arena.get(old), None);
        assert_eq!(arena.get(new), Some(&'b'));
    }

    #[test]
    fn entries_leave_a_list_from_anywhere() {
        let mut arena = Arena::<char, 1>::with_capacity(4);
        let mut list = List::EMPTY;
        let keys: Vec<u32> = "abcd".chars().map(|c| arena.insert(c).unwrap().index).collect();
        keys.iter().for_each(|&key| arena.push_back(&mut list, 0, key));
        for (leaves, rest) in [(1, "acd"), (0, "cd"), (3, "c"), (2, "")] {
            arena.unlink(&mut list, 0, keys[leaves]);
            assert_eq!(members(&arena, &list), rest.chars().collect::<Vec<_>>());
            assert_eq!(list.len() as usize, rest.len());
        }
        assert_eq!((list.first(), list.last()), (None, None));
    }
}
