use alloc::boxed::Box;
use alloc::vec;

use crate::Instant;
use crate::nodes::{List, NIL, Nodes, TimerKey};

/// A digit of an instant: 6 bits, so that one word tells which of a level's slots are occupied.
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
/// Digits of a 64-bit count of nanoseconds. All deadlines fit; none is rounded.
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
/// The number of the list of what is due, after all the slots.
const DUE: usize = LEVELS * SLOTS;

/// Timers with any deadline, in a hierarchical wheel.
///
/// The deadline, as a number of nanoseconds, is read in digits of 6 bits. A timer stands at the
/// level of the highest digit in which its deadline differs from the wheel's present, in the slot
/// that this digit names. As all higher digits are equal, a level's slots are in the order of time,
/// and the first occupied one is found in one instruction.
///
/// Slots keep the earliest deadline that joined them. So nothing is touched before it is due:
/// when time enters a slot of a high level, its timers stay there until the first of them fires;
/// only then the rest moves down. A timer moves at most once a level, and a cancelled one never.
///
/// * [`arm`](Wheel::arm) and [`cancel`](Wheel::cancel) are O(1).
/// * A timer never fires early, not by a nanosecond.
/// * In steady state nothing allocates: nodes live in a slab and are used again.
/// * No order is promised among timers that are due at the same call of [`expire`](Wheel::expire).
///
/// ```
/// use bowline_time::{Duration, Instant, Wheel};
///
/// let mut wheel = Wheel::with_capacity(16);
/// let start = Instant::from_nanos(1_000);
/// let hedge = wheel.arm(start + Duration::from_micros(200), "hedge");
/// wheel.arm(start + Duration::from_millis(50), "deadline");
///
/// assert_eq!(wheel.next(), Some(start + Duration::from_micros(200)));
/// assert_eq!(wheel.cancel(hedge), Some("hedge"));
/// assert_eq!(wheel.expire(start + Duration::from_millis(49)), None);
/// assert_eq!(wheel.expire(start + Duration::from_millis(50)), Some("deadline"));
/// assert!(wheel.is_empty());
/// ```
pub struct Wheel<T> {
    nodes: Nodes<T>,
    /// The slots of level 0, of level 1 and so on, and what is due.
    lists: Box<[List]>,
    /// For each level, a bit for each slot that is not empty.
    occupied: [u64; LEVELS],
    /// A bit for each level that is not empty.
    levels: u16,
    /// The present: the latest `now` of which all that was due has left the slots.
    present: Instant,
}

impl<T> Default for Wheel<T> {
    fn default() -> Self {
        Wheel::with_capacity(0)
    }
}

impl<T> Wheel<T> {
    /// A wheel that holds `capacity` timers before it allocates again.
    pub fn with_capacity(capacity: usize) -> Self {
        Wheel {
            nodes: Nodes::with_capacity(capacity),
            lists: vec![List::EMPTY; DUE + 1].into_boxed_slice(),
            occupied: [0; LEVELS],
            levels: 0,
            present: Instant::EPOCH,
        }
    }

    /// How many timers are armed, those included that are due and not yet taken.
    pub fn len(&self) -> usize {
        self.nodes.live()
    }

    /// Whether no timer is armed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Arms a timer. One whose deadline is past is due at once.
    ///
    /// # Panics
    ///
    /// If 2^32 - 1 timers are armed already.
    pub fn arm(&mut self, deadline: Instant, value: T) -> TimerKey {
        let index = self.nodes.insert(deadline, value);
        self.place(index);
        self.nodes.key(index)
    }

    /// Takes a timer back; `None` if it has fired or was cancelled before.
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let index = self.nodes.find(key)?;
        self.unlink(index);
        self.nodes.remove(index)
    }

    /// Gives an armed timer another deadline, earlier or later; `false` if it has fired or was
    /// cancelled. The key stays good.
    pub fn rearm(&mut self, key: TimerKey, deadline: Instant) -> bool {
        let Some(index) = self.nodes.find(key) else { return false };
        self.unlink(index);
        self.nodes.set_deadline(index, deadline);
        self.place(index);
        true
    }

    /// What an armed timer carries.
    pub fn get(&self, key: TimerKey) -> Option<&T> {
        self.nodes.value(self.nodes.find(key)?)
    }

    /// When an armed timer is due.
    pub fn deadline(&self, key: TimerKey) -> Option<Instant> {
        Some(self.nodes.deadline(self.nodes.find(key)?))
    }

    /// When to call [`expire`](Wheel::expire) next; `None` if no timer is armed.
    ///
    /// It is never later than the first deadline, and exactly that unless a timer that would have
    /// fired earlier was cancelled. After `expire(now)` has returned `None` it is later than `now`,
    /// so that time always advances.
    pub fn next(&self) -> Option<Instant> {
        let due = &self.lists[DUE];
        if !due.is_empty() {
            return Some(due.earliest);
        }
        self.first_slots().map(|slot| self.lists[slot].earliest).min()
    }

    /// Takes one timer whose deadline is not after `now`; `None` once there is no more.
    ///
    /// `now` doesn't go back from call to call; if it does, the latest counts.
    pub fn expire(&mut self, now: Instant) -> Option<T> {
        self.expire_with_deadline(now).map(|(_, value)| value)
    }

    /// As [`expire`](Wheel::expire), and says when the timer was due: how late it fires is told by
    /// its own deadline only, as [`next`](Wheel::next) may be that of one that was cancelled.
    pub fn expire_with_deadline(&mut self, now: Instant) -> Option<(Instant, T)> {
        if self.lists[DUE].is_empty() {
            self.advance(now);
        }
        let index = self.lists[DUE].head;
        if index == NIL {
            return None;
        }
        self.unlink(index);
        let deadline = self.nodes.deadline(index);
        self.nodes.remove(index).map(|value| (deadline, value))
    }

    /// The first occupied slot of each level that has one.
    fn first_slots(&self) -> impl Iterator<Item = usize> + '_ {
        let mut levels = self.levels;
        core::iter::from_fn(move || {
            if levels == 0 {
                return None;
            }
            let level = levels.trailing_zeros() as usize;
            levels &= levels - 1;
            Some(level * SLOTS + self.occupied[level].trailing_zeros() as usize)
        })
    }

    /// A slot that holds what may be due by `now`.
    fn first_due_slot(&self, now: Instant) -> Option<usize> {
        self.first_slots().find(|&slot| self.lists[slot].earliest <= now)
    }

    /// Makes `now` the present: whatever is due goes into the list for that.
    fn advance(&mut self, now: Instant) {
        if now <= self.present {
            return;
        }
        let mut later = NIL;
        while let Some(slot) = self.first_due_slot(now) {
            later = self.empty_slot(slot, now, later);
        }
        // Every timer in a slot is now later than `now`. Those above a level share its higher
        // digits with the old present and so, lying between, with the new one: they stand right.
        self.present = now;
        while later != NIL {
            let next = self.nodes.next(later);
            self.place(later);
            later = next;
        }
    }

    /// Empties a slot: what is due by `now` is put in the list of that, the rest chained before
    /// `later`, to be placed anew. Of each level only the slot that `now` falls into has a rest.
    fn empty_slot(&mut self, slot: usize, now: Instant, mut later: u32) -> u32 {
        while self.lists[slot].head != NIL {
            let index = self.lists[slot].head;
            self.unlink(index);
            if self.nodes.deadline(index) <= now {
                self.nodes.push_back(&mut self.lists[DUE], DUE as u16, index);
            } else {
                self.nodes.set_next(index, later);
                later = index;
            }
        }
        later
    }

    /// Puts a node that is in no list where its deadline belongs.
    fn place(&mut self, index: u32) {
        let deadline = self.nodes.deadline(index);
        let list = if deadline <= self.present {
            DUE
        } else {
            let differing = deadline.as_nanos() ^ self.present.as_nanos();
            let level = (differing.ilog2() / DIGIT_BITS) as usize;
            let digit = (deadline.as_nanos() >> (level as u32 * DIGIT_BITS)) as usize % SLOTS;
            self.occupied[level] |= 1 << digit;
            self.levels |= 1 << level;
            level * SLOTS + digit
        };
        self.nodes.push_back(&mut self.lists[list], list as u16, index);
    }

    /// Takes a node out of its list, and marks the slot and the level empty that it leaves so.
    fn unlink(&mut self, index: u32) {
        let list = self.nodes.list_of(index);
        self.nodes.unlink(&mut self.lists[list], index);
        if self.lists[list].is_empty() && list != DUE {
            let level = list / SLOTS;
            self.occupied[level] &= !(1 << (list % SLOTS));
            if self.occupied[level] == 0 {
                self.levels &= !(1 << level);
            }
        }
    }
}
