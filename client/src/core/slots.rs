//! Where calls live: slots that are used again, and names that are not.

use bowline_protocol::Seq;

use super::call::NIL;
use super::call::{Call, Phase};

/// The calls of one core.
#[derive(Debug)]
pub(crate) struct Slots<P> {
    calls: Vec<Call<P>>,
    free: u32,
    used: usize,
    /// A sequence number is a count, and below it the slot: it grows from call to call, is never
    /// used twice, and finds its slot without a search.
    slot_bits: u32,
    count: u64,
}

impl<P> Slots<P> {
    /// Room for `most` calls.
    pub(crate) fn new(most: u32) -> Slots<P> {
        let slot_bits = u32::BITS - most.next_power_of_two().leading_zeros();
        Slots { calls: Vec::new(), free: NIL, used: 0, slot_bits, count: 0 }
    }

    /// Takes a slot and gives it a name.
    pub(crate) fn take(&mut self) -> u32 {
        if self.free == NIL {
            self.free = self.calls.len() as u32;
            self.calls.push(Call::vacant(NIL));
        }
        let slot = self.free;
        let call = &mut self.calls[slot as usize];
        if let Phase::Free(next) = call.phase {
            self.free = next;
        }
        self.used += 1;
        self.count += 1;
        call.seq = self.count << self.slot_bits | u64::from(slot);
        slot
    }

    /// Gives a slot back.
    pub(crate) fn put(&mut self, slot: u32) {
        let call = &mut self.calls[slot as usize];
        call.phase = Phase::Free(self.free);
        call.seq = 0;
        self.free = slot;
        self.used -= 1;
    }

    /// The slot of the call of that name, if it is still there.
    pub(crate) fn find(&self, seq: Seq) -> Option<u32> {
        let slot = seq.0 & ((1 << self.slot_bits) - 1);
        let call = self.calls.get(slot as usize)?;
        (call.seq == seq.0 && seq.0 != 0).then_some(slot as u32)
    }

    pub(crate) fn get(&self, slot: u32) -> &Call<P> {
        &self.calls[slot as usize]
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Call<P> {
        &mut self.calls[slot as usize]
    }

    /// How many slots are in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_old_finds_nothing_where_another_call_lives_now() {
        let mut slots: Slots<()> = Slots::new(4);
        let slot = slots.take();
        let old = Seq(slots.get(slot).seq);
        assert_eq!(slots.find(old), Some(slot));
        slots.put(slot);
        assert_eq!(slots.find(old), None);
        assert_eq!(slots.take(), slot);
        let new = Seq(slots.get(slot).seq);
        assert!(new > old);
        assert_eq!((slots.find(old), slots.find(new)), (None, Some(slot)));
    }

    #[test]
    fn every_slot_up_to_the_most_has_its_own_name() {
        for most in [1, 2, 3, 8, 9] {
            let mut slots: Slots<()> = Slots::new(most);
            for _ in 0..most {
                let slot = slots.take();
                assert_eq!(slots.find(Seq(slots.get(slot).seq)), Some(slot));
            }
        }
    }

    #[test]
    fn names_that_were_never_given_find_nothing() {
        let slots: Slots<()> = Slots::new(4);
        assert_eq!(slots.find(Seq(0)), None);
        assert_eq!(slots.find(Seq(u64::MAX)), None);
    }
}
