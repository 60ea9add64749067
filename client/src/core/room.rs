//! How much more may be sent to a replica now.

use bowline_protocol::{Credit, Spender};

/// Credit that the replica granted, and what of ours it has not read yet.
#[derive(Debug)]
pub(crate) struct Room {
    credit: Spender,
    /// Bytes that wait for the replica to read.
    backlog: usize,
    /// Bytes of requests that are decided on, and not sent yet: all that one turn decides sees what
    /// was decided before.
    decided: usize,
    /// With more than so many of both no request is added.
    most: usize,
    /// There was no room, and nobody has been told yet that there is some again.
    full: bool,
}

impl Room {
    /// Without a limit on credit, until there is one.
    pub(crate) fn new(most: usize) -> Room {
        Room { credit: Spender::new(None), backlog: 0, decided: 0, most, full: false }
    }

    /// A connection begins, with this grant, or none to keep to.
    pub(crate) fn begin(&mut self, grant: Option<Credit>) {
        self.credit = Spender::new(grant);
        self.backlog = 0;
    }

    /// More was granted.
    pub(crate) fn on_credit(&mut self, credit: Credit) {
        self.credit.on_credit(credit);
    }

    /// So many bytes wait now. True if it was full and is no more.
    pub(crate) const fn on_backlog(&mut self, bytes: usize) -> bool {
        self.backlog = bytes;
        let was_full = self.full;
        self.full = !self.is_read();
        was_full && !self.full
    }

    /// The replica reads what it is sent.
    const fn is_read(&self) -> bool {
        self.backlog + self.decided <= self.most
    }

    /// There is room for a request of so many bytes.
    pub(crate) const fn allows(&self, size: u32) -> bool {
        self.is_read() && self.credit.allows(size as usize)
    }

    /// There can be room for a request of so many bytes, since there was for as many once.
    pub(crate) const fn can_allow(&self, size: u32) -> bool {
        self.credit.has_allowed(size as usize)
    }

    /// A request is to be sent.
    pub(crate) const fn spend(&mut self, size: u32) {
        // Whoever picked the replica saw that there was credit.
        let _ = self.credit.try_request(size as usize);
        self.decided += size as usize;
        self.full |= !self.is_read();
    }

    /// It is sent, or will not be: from now on the backlog tells of it.
    pub(crate) const fn settle(&mut self, size: u32) {
        self.decided -= size as usize;
    }

    /// The replica will never hear of it.
    pub(crate) const fn refund(&mut self, size: u32) {
        self.credit.refund(size as usize);
    }

    /// There is room for a request, if that is small enough.
    pub(crate) const fn is_left(&self) -> bool {
        self.allows(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_decided_counts_until_the_backlog_tells_of_it() {
        let mut room = Room::new(1000);
        room.spend(600);
        assert!(room.allows(600), "it may be exceeded once");
        room.spend(600);
        assert!(!room.allows(1));
        room.settle(600);
        assert!(!room.on_backlog(600), "it is as full as before");
        room.settle(600);
        assert!(!room.on_backlog(1200) && !room.allows(1));
        assert!(room.on_backlog(900) && room.allows(1), "it is told once that there is room");
        assert!(!room.on_backlog(800));
    }

    #[test]
    fn a_request_that_is_not_sent_leaves_its_credit_to_another() {
        let mut room = Room::new(1000);
        room.begin(Some(Credit { requests: 1, bytes: 100 }));
        room.spend(100);
        assert!(!room.allows(0));
        room.settle(100);
        room.refund(100);
        assert!(room.allows(100) && !room.allows(101));
    }
}
