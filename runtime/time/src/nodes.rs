//! The nodes of a wheel: a slab whose entries are linked into lists by index.

use alloc::vec::Vec;

use crate::Instant;

/// No node: the end of a list.
pub(crate) const NIL: u32 = u32::MAX;

/// Names one armed timer of the [`Wheel`](crate::Wheel) that gave it.
///
/// A key outlives its timer harmlessly: once the timer has fired or was cancelled, the key finds
/// nothing, even if the place it names is in use again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TimerKey {
    index: u32,
    generation: u32,
}

/// A list of nodes in the order in which they joined it, and a bound on their deadlines.
#[derive(Clone, Copy)]
pub(crate) struct List {
    pub(crate) head: u32,
    pub(crate) tail: u32,
    /// No node in the list is due before. Exact until a node leaves it, a lower bound after.
    pub(crate) earliest: Instant,
}

impl List {
    pub(crate) const EMPTY: List = List { head: NIL, tail: NIL, earliest: Instant::FAR_FUTURE };

    pub(crate) fn is_empty(&self) -> bool {
        self.head == NIL
    }
}

struct Node<T> {
    deadline: Instant,
    prev: u32,
    /// The next in the list, or in the free list.
    next: u32,
    /// Goes up when the node is freed, so that old keys miss it.
    generation: u32,
    /// Which list holds the node.
    list: u16,
    value: Option<T>,
}

/// The slab. Freed nodes are used again, last freed first, while their cache lines are warm.
pub(crate) struct Nodes<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    live: usize,
}

impl<T> Nodes<T> {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Nodes { nodes: Vec::with_capacity(capacity), free: NIL, live: 0 }
    }

    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Takes a node for `value`. It is in no list yet.
    pub(crate) fn insert(&mut self, deadline: Instant, value: T) -> u32 {
        self.live += 1;
        if self.free != NIL {
            let index = self.free;
            let node = &mut self.nodes[index as usize];
            self.free = node.next;
            node.deadline = deadline;
            node.value = Some(value);
            return index;
        }
        let index = self.nodes.len() as u32;
        assert!(index != NIL, "2^32 - 1 timers are armed");
        self.nodes.push(Node {
            deadline,
            prev: NIL,
            next: NIL,
            generation: 0,
            list: 0,
            value: Some(value),
        });
        index
    }

    /// Gives a node back that is in no list any more.
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let node = &mut self.nodes[index as usize];
        let value = node.value.take();
        node.generation = node.generation.wrapping_add(1);
        node.next = self.free;
        self.free = index;
        self.live -= 1;
        value
    }

    pub(crate) fn key(&self, index: u32) -> TimerKey {
        TimerKey { index, generation: self.nodes[index as usize].generation }
    }

    /// The node that `key` names, if its timer is still armed.
    pub(crate) fn find(&self, key: TimerKey) -> Option<u32> {
        let node = self.nodes.get(key.index as usize)?;
        (node.generation == key.generation && node.value.is_some()).then_some(key.index)
    }

    pub(crate) fn value(&self, index: u32) -> Option<&T> {
        self.nodes[index as usize].value.as_ref()
    }

    pub(crate) fn deadline(&self, index: u32) -> Instant {
        self.nodes[index as usize].deadline
    }

    pub(crate) fn set_deadline(&mut self, index: u32, deadline: Instant) {
        self.nodes[index as usize].deadline = deadline;
    }

    pub(crate) fn next(&self, index: u32) -> u32 {
        self.nodes[index as usize].next
    }

    /// Chains a node that is in no list before `next`.
    pub(crate) fn set_next(&mut self, index: u32, next: u32) {
        self.nodes[index as usize].next = next;
    }

    pub(crate) fn list_of(&self, index: u32) -> usize {
        usize::from(self.nodes[index as usize].list)
    }

    /// Appends the node to the list, which is number `number`.
    pub(crate) fn push_back(&mut self, list: &mut List, number: u16, index: u32) {
        let node = &mut self.nodes[index as usize];
        node.prev = list.tail;
        node.next = NIL;
        node.list = number;
        list.earliest =
            if list.head == NIL { node.deadline } else { list.earliest.min(node.deadline) };
        match list.tail {
            NIL => list.head = index,
            tail => self.nodes[tail as usize].next = index,
        }
        list.tail = index;
    }

    /// Takes the node out of the list that holds it.
    pub(crate) fn unlink(&mut self, list: &mut List, index: u32) {
        let Node { prev, next, .. } = self.nodes[index as usize];
        match prev {
            NIL => list.head = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NIL => list.tail = prev,
            next => self.nodes[next as usize].prev = prev,
        }
    }
}
