//! Credit of one connection: charged when a request comes, given back when the kernel has the frame
//! that ends it. So a client that does not read runs dry before this side's memory does.

use alloc::collections::VecDeque;

use bowline_protocol::{Credit, CreditError, Granter};

/// What a client was granted on a connection, and what of it is owed back.
#[derive(Debug)]
pub struct Account {
    granter: Granter,
    /// Bytes that were ever queued for the client.
    queued: u64,
    /// Where in those the frames end that end requests, and what each gives back: never more
    /// entries than requests are granted.
    owed: VecDeque<(u64, Credit)>,
    /// What all of them give back.
    owed_sum: Credit,
}

impl Account {
    /// Allows so much to be under way, while `backlog` bytes wait that came before.
    pub const fn new(window: Credit, backlog: usize) -> Account {
        let owed_sum = Credit { requests: 0, bytes: 0 };
        let granter = Granter::new(window);
        Account { granter, queued: backlog as u64, owed: VecDeque::new(), owed_sum }
    }

    /// What the client may still send.
    pub const fn left(&self) -> Credit {
        self.granter.left()
    }

    /// What the ends of requests give back that the kernel does not have yet.
    pub const fn owed(&self) -> Credit {
        self.owed_sum
    }

    /// A request came, with so many bytes.
    ///
    /// # Errors
    ///
    /// [`CreditError`]: it was not granted.
    pub const fn charge(&mut self, bytes: usize) -> Result<(), CreditError> {
        self.granter.on_request(bytes)
    }

    /// So many bytes were queued for the client.
    pub const fn queue(&mut self, bytes: usize) {
        self.queued += bytes as u64;
    }

    /// What was queued last ends a request, which had so many bytes.
    pub fn owe(&mut self, bytes: usize) {
        self.owed_sum.requests += 1;
        self.owed_sum.bytes += bytes as u64;
        match self.owed.back_mut() {
            Some((at, credit)) if *at == self.queued => {
                credit.requests += 1;
                credit.bytes += bytes as u64;
            }
            _ => self.owed.push_back((self.queued, Credit { requests: 1, bytes: bytes as u64 })),
        }
    }

    /// What came and was not given back: all of it is owed, or has not ended.
    pub const fn under_way(&self) -> Credit {
        self.granter.under_way()
    }

    /// There is credit to grant as soon as the kernel has all that is queued.
    pub fn is_due(&self) -> bool {
        self.granter.would_grant(self.owed_sum)
    }

    /// All but `backlog` bytes are with the kernel. Returns what is to be granted, if it is time.
    pub fn settle(&mut self, backlog: usize) -> Option<Credit> {
        let written = self.queued - (backlog as u64).min(self.queued);
        while let Some(&(at, credit)) = self.owed.front()
            && at <= written
        {
            self.owed.pop_front();
            self.owed_sum.requests = self.owed_sum.requests.saturating_sub(credit.requests);
            self.owed_sum.bytes = self.owed_sum.bytes.saturating_sub(credit.bytes);
            self.granter.give_back(credit);
        }
        self.granter.poll_grant()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_given_back_only_once_the_kernel_has_the_end_of_a_request() {
        let mut account = Account::new(Credit { requests: 2, bytes: 100 }, 10);
        assert_eq!((account.charge(60), account.charge(40)), (Ok(()), Ok(())));
        account.queue(50);
        account.owe(60);
        account.queue(5);
        assert!(account.is_due());
        assert_eq!(account.owed(), Credit { requests: 1, bytes: 60 });
        assert_eq!(account.settle(6), None, "a byte of the frame that ends it is not written");
        assert_eq!(account.settle(5), Some(Credit { requests: 3, bytes: 160 }));
        assert!(!account.is_due());
        assert_eq!((account.owed().requests, account.left().bytes), (0, 60));
        assert_eq!(account.charge(60), Ok(()));
        assert!(account.charge(1).is_err());
    }
}
