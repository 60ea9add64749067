//! What will happen, in the order of the world's time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::kernel::rng::Rng;
use crate::kernel::span::Nanos;

/// The future: a queue of events by time. Events of one instant come in an order that the seed
/// draws, since no law says which of two machines is faster.
#[derive(Debug)]
pub struct Events<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    ties: Rng,
    next: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at: Nanos,
    tie: u64,
    number: u64,
    event: E,
}

impl<E> Entry<E> {
    const fn key(&self) -> (Nanos, u64, u64) {
        (self.at, self.tie, self.number)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> Events<E> {
    /// An empty future; `seed` orders what happens at one instant.
    pub const fn new(seed: u64) -> Events<E> {
        Events { heap: BinaryHeap::new(), ties: Rng::labelled(seed, 1), next: 0 }
    }

    /// `event` will happen at `at`.
    pub fn push(&mut self, at: Nanos, event: E) {
        let (tie, number) = (self.ties.next_u64(), self.next);
        self.next += 1;
        self.heap.push(Reverse(Entry { at, tie, number, event }));
    }

    /// The next event and its time.
    pub fn pop(&mut self) -> Option<(Nanos, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }

    /// When the next event happens.
    pub fn next_at(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// All events that wait, in the order in which they were pushed: for a search that tries each
    /// of them as the next.
    pub fn waiting(&self) -> Vec<(u64, Nanos, &E)> {
        let entries = self.heap.iter().map(|Reverse(entry)| entry);
        let mut waiting: Vec<_> = entries.map(|e| (e.number, e.at, &e.event)).collect();
        waiting.sort_unstable_by_key(|&(number, ..)| number);
        waiting
    }

    /// Takes one event out of its turn, by the number that [`Events::waiting`] gave it.
    pub fn take(&mut self, number: u64) -> Option<(Nanos, E)> {
        let mut taken = None;
        let entries = std::mem::take(&mut self.heap).into_vec();
        for Reverse(entry) in entries {
            if entry.number == number {
                taken = Some((entry.at, entry.event));
            } else {
                self.heap.push(Reverse(entry));
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_a_seed_orders_those_of_one_instant() {
        let order = |seed| {
            let mut events = Events::new(seed);
            for name in 0..8 {
                events.push(10, name);
            }
            events.push(5, 100);
            std::iter::from_fn(move || events.pop().map(|(_, name)| name)).collect::<Vec<_>>()
        };
        assert_eq!(order(1)[0], 100);
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn an_event_can_be_taken_out_of_its_turn() {
        let mut events = Events::new(0);
        events.push(1, 'a');
        events.push(2, 'b');
        let number = events.waiting()[1].0;
        assert_eq!(events.take(number), Some((2, 'b')));
        assert_eq!(events.pop(), Some((1, 'a')));
        assert_eq!(events.pop(), None);
    }
}
