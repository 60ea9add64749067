//! How much a client may have under way on a connection: the server grants, the client keeps to it.
//!
//! Credit is counted from the connection's first request and only ever grows, so no word of it is
//! added up twice. The server gives back what an ended copy took once the frame that ends it is
//! with the kernel: a client that does not read runs dry before the server runs out of memory.
//!
//! ```
//! use bowline_protocol::{Credit, Granter, Spender};
//!
//! let mut server = Granter::new(Credit { requests: 2, bytes: 1000 });
//! // The first grant goes along with the hello-ack (`Link::with_grant`, `Link::peer_grant`).
//! let mut client = Spender::new(Some(server.granted()));
//!
//! assert!(client.try_request(400) && client.try_request(400));
//! assert!(!client.try_request(10), "a third has to wait");
//! server.on_request(400)?;
//! server.on_request(400)?;
//! assert!(server.on_request(10).is_err(), "one that comes nevertheless ends the connection");
//!
//! server.give_back(Credit { requests: 1, bytes: 400 });
//! let grant = server.poll_grant().expect("half of the window is free again");
//! client.on_credit(grant);
//! assert!(client.try_request(10));
//! # Ok::<(), bowline_protocol::CreditError>(())
//! ```

use crate::frame::{Goodbye, GoodbyeReason};
use crate::hello::Credit;

/// A client sent more than it was granted. It ends the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CreditError {
    /// More requests.
    #[error("request {0} came, and only {1} were granted")]
    Requests(u64, u64),
    /// More bytes.
    #[error("{0} bytes of requests came, and only {1} were granted")]
    Bytes(u64, u64),
}

impl CreditError {
    /// What to tell the client before the connection is closed.
    pub const fn goodbye(&self) -> Goodbye {
        Goodbye { reason: GoodbyeReason::Credit }
    }
}

/// The server's half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granter {
    window: Credit,
    came: Credit,
    returned: Credit,
    granted: Credit,
}

impl Granter {
    /// Allows so much to be under way at a time. The window of bytes must be no less than twice the
    /// largest payload that this side takes: of what came free less than half is not granted yet,
    /// and the largest payload must not have to wait for that.
    pub const fn new(window: Credit) -> Granter {
        let none = Credit { requests: 0, bytes: 0 };
        Granter { window, came: none, returned: none, granted: window }
    }

    /// What was granted so far; at first, what the hello-ack grants.
    pub const fn granted(&self) -> Credit {
        self.granted
    }

    /// What the client may still send.
    pub const fn left(&self) -> Credit {
        Credit {
            requests: self.granted.requests.saturating_sub(self.came.requests),
            bytes: self.granted.bytes.saturating_sub(self.came.bytes),
        }
    }

    /// A request came, with a payload of so many bytes in all, here or still to come.
    ///
    /// # Errors
    ///
    /// [`CreditError`]: it was not granted.
    pub const fn on_request(&mut self, bytes: usize) -> Result<(), CreditError> {
        self.came.requests += 1;
        if self.came.requests > self.granted.requests {
            return Err(CreditError::Requests(self.came.requests, self.granted.requests));
        }
        self.came.bytes = self.came.bytes.saturating_add(bytes as u64);
        if self.came.bytes > self.granted.bytes {
            return Err(CreditError::Bytes(self.came.bytes, self.granted.bytes));
        }
        Ok(())
    }

    /// So much is no longer under way: copies ended, their last frames are with the kernel. More
    /// than came is never given back, whatever is said.
    pub fn give_back(&mut self, credit: Credit) {
        let Granter { came, returned, .. } = self;
        returned.requests = returned.requests.saturating_add(credit.requests).min(came.requests);
        returned.bytes = returned.bytes.saturating_add(credit.bytes).min(came.bytes);
    }

    /// What came and was not given back yet.
    pub const fn under_way(&self) -> Credit {
        Credit {
            requests: self.came.requests - self.returned.requests,
            bytes: self.came.bytes - self.returned.bytes,
        }
    }

    /// Once that is given back, too, there will be credit to send.
    pub fn would_grant(&self, credit: Credit) -> bool {
        let mut then = *self;
        then.give_back(credit);
        then.poll_grant().is_some()
    }

    /// The credit to send now, if half of the window came free since the last.
    pub const fn poll_grant(&mut self) -> Option<Credit> {
        let now = Credit {
            requests: self.returned.requests.saturating_add(self.window.requests),
            bytes: self.returned.bytes.saturating_add(self.window.bytes),
        };
        let (requests, bytes) =
            (now.requests - self.granted.requests, now.bytes - self.granted.bytes);
        let due = (requests > 0 && requests >= self.window.requests / 2)
            || (bytes > 0 && bytes >= self.window.bytes / 2);
        if !due {
            return None;
        }
        self.granted = now;
        Some(now)
    }
}

/// The client's half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spender {
    granted: Credit,
    spent: Credit,
    /// The most bytes that could be sent at a time so far.
    widest: u64,
}

impl Spender {
    /// With the first grant ([`crate::Link::peer_grant`]); without one nothing is counted.
    pub fn new(grant: Option<Credit>) -> Spender {
        let all = Credit { requests: u64::MAX, bytes: u64::MAX };
        let granted = grant.unwrap_or(all);
        Spender { granted, spent: Credit::default(), widest: granted.bytes }
    }

    /// A credit frame came. One that grants less than an earlier one says nothing.
    pub fn on_credit(&mut self, credit: Credit) {
        self.granted.requests = self.granted.requests.max(credit.requests);
        self.granted.bytes = self.granted.bytes.max(credit.bytes);
        self.widest = self.widest.max(self.left().bytes);
    }

    /// What may be sent now.
    pub const fn left(&self) -> Credit {
        Credit {
            requests: self.granted.requests - self.spent.requests,
            bytes: self.granted.bytes - self.spent.bytes,
        }
    }

    /// There is credit for a request with a payload of so many bytes in all.
    pub const fn allows(&self, bytes: usize) -> bool {
        let left = self.left();
        left.requests > 0 && left.bytes >= bytes as u64
    }

    /// There was credit for so many bytes at a time once, so there will be again when what is under
    /// way has ended. For a larger one there may never be any: the server's window is not told, and
    /// nobody should wait for room that it can't have.
    pub const fn has_allowed(&self, bytes: usize) -> bool {
        self.widest >= bytes as u64
    }

    /// A request for which credit was spent was not sent after all.
    pub const fn refund(&mut self, bytes: usize) {
        self.spent.requests = self.spent.requests.saturating_sub(1);
        self.spent.bytes = self.spent.bytes.saturating_sub(bytes as u64);
    }

    /// Spends the credit of a request with a payload of so many bytes in all. False if there is
    /// not enough: the request has to wait, or go elsewhere.
    #[must_use]
    pub const fn try_request(&mut self, bytes: usize) -> bool {
        if !self.allows(bytes) {
            return false;
        }
        self.spent.requests += 1;
        self.spent.bytes += bytes as u64;
        true
    }
}
