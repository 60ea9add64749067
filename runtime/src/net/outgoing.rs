//! The sending half of a connection: what the kernel sends from, and who waits for it to be sent.

use std::task::Waker;

/// A buffer that grew beyond this is not kept when it has been sent: there are two for each
/// connection, and the connections may be many, and idle.
const KEPT_CAPACITY: usize = 64 << 10;
/// One request sends at most so many bytes, to bound how long a connection's memory is pinned.
const MOST_PER_SEND: usize = 1 << 30;

#[derive(Default)]
pub(super) struct Outgoing {
    /// What the kernel sends from while a request is in flight, and then not to be touched.
    out: Vec<u8>,
    /// How much of `out` the kernel has taken.
    sent: usize,
    in_flight: bool,
    /// To be shut down for writing when all is sent.
    pub(super) shut: bool,
    /// Who waits until at most so many bytes are queued.
    pub(super) waiting: Vec<(usize, Waker)>,
}

impl Outgoing {
    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// How much the kernel has not taken yet.
    pub(super) fn queued(&self) -> usize {
        self.out.len() - self.sent
    }

    /// What to send next, if there is something and no request is in flight: one is from now on.
    /// When all of the buffer is sent it changes places with the one that was filled.
    pub(super) fn next(&mut self, filling: &mut Vec<u8>) -> Option<(*const u8, u32)> {
        if self.in_flight {
            return None;
        }
        if self.queued() == 0 {
            self.forget();
            std::mem::swap(&mut self.out, filling);
        }
        let rest = &self.out[self.sent..];
        self.in_flight = !rest.is_empty();
        self.in_flight.then(|| (rest.as_ptr(), rest.len().min(MOST_PER_SEND) as u32))
    }

    /// Notes that the request in flight has ended, and how much the kernel took.
    pub(super) fn completed(&mut self, taken: usize) {
        self.in_flight = false;
        self.sent += taken;
        if self.queued() == 0 {
            self.forget();
        }
    }

    /// Forgets what is not sent, but what the kernel may still read, and the memory if it is much.
    pub(super) fn forget(&mut self) {
        if self.in_flight {
            return;
        }
        self.sent = 0;
        self.out.clear();
        if self.out.capacity() > KEPT_CAPACITY {
            self.out = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_flight(length: usize) -> Outgoing {
        let mut outgoing = Outgoing::default();
        assert!(outgoing.next(&mut vec![1; length]).is_some());
        outgoing
    }

    #[test]
    fn what_a_large_reply_took_is_freed_when_it_is_sent() {
        let mut outgoing = in_flight(KEPT_CAPACITY + 1);
        outgoing.completed(KEPT_CAPACITY);
        assert_eq!(outgoing.queued(), 1);
        assert!(outgoing.next(&mut Vec::new()).is_some());
        outgoing.completed(1);
        assert_eq!(outgoing.out.capacity(), 0, "it would be kept by a connection that is idle");
    }

    #[test]
    fn what_a_small_reply_took_is_used_again() {
        let mut outgoing = in_flight(100);
        outgoing.completed(100);
        assert!(outgoing.out.capacity() >= 100);
    }

    #[test]
    fn what_the_kernel_sends_from_is_forgotten_only_after() {
        let mut outgoing = in_flight(100);
        outgoing.forget();
        assert_eq!(outgoing.queued(), 100);
        outgoing.completed(0);
        outgoing.forget();
        assert_eq!(outgoing.queued(), 0);
    }
}
