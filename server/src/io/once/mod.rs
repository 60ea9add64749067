//! Effects that are had once, however often they are asked for.
//!
//! A keyed method runs its effect inside a [`Transaction`] that also keeps the call's key, its
//! fingerprint and the result: all of it is durable, or nothing is. So whoever asks again with the
//! same key, after a lost reply, a crash, or at another replica with the same store, is told the
//! stored result, and the effect is not had again. What a handler does *outside* of the transaction
//! (another store, a mail, a call of another service without a key of its own) is had at least once.
//!
//! A [`Ledger`] is the way to a [`Store`]: it runs transactions one after the other on a thread of
//! its own, off the loops of all cores, and commits those together that came while it committed
//! the ones before. A handler's reply leaves only when its transaction is durable. What only reads
//! ([`Ledger::read`]) does so on another thread, and waits for no transaction.
//!
//! ```
//! use bowline_protocol::{Method, MethodInfo, ServiceInfo};
//! use bowline_server::io::once::Ledger;
//! use bowline_server::{Context, Failure, Payload, Service};
//!
//! const METHODS: &[MethodInfo] = &[MethodInfo::new(Method(1), "deposit").keyed()];
//!
//! #[derive(Clone)]
//! struct Bank(Ledger);
//!
//! impl Service for Bank {
//!     type Reply = Vec<u8>;
//!
//!     fn info(&self) -> ServiceInfo {
//!         ServiceInfo::new("bank", METHODS)
//!     }
//!
//!     async fn call(&self, context: Context, amount: Payload) -> Result<Vec<u8>, Failure> {
//!         let amount = amount[..].try_into().map_err(|_| Failure::bad_request("not eight bytes"))?;
//!         let deposit = u64::from_le_bytes(amount);
//!         let balance = context.once(&self.0, move |account| {
//!             let before = account.get(b"balance")?.and_then(|bytes| bytes.try_into().ok());
//!             let after = before.map_or(0, u64::from_le_bytes) + deposit;
//!             account.put(b"balance", &after.to_le_bytes());
//!             Ok(after.to_le_bytes())
//!         });
//!         balance.await
//!     }
//! }
//! # let _ = Bank(Ledger::in_memory());
//! ```

mod ledger;
mod memory;
#[cfg(feature = "redb")]
mod redb;
#[cfg(test)]
mod tests;
mod transaction;
mod worker;

use std::boxed::Box;
use std::error::Error;
use std::fmt;
use std::ops::Bound;
use std::string::String;
use std::vec::Vec;

pub(super) use ledger::Counts;
pub use ledger::{Ledger, LedgerStats, Retention};
pub use memory::Memory;
pub use transaction::{Range, Transaction};

#[cfg(feature = "redb")]
pub use self::redb::Redb;

/// What failed in a store.
#[derive(thiserror::Error)]
#[error("the store of results failed: {0}")]
pub struct StoreError(Box<dyn Error + Send + Sync>);

/// What `main` prints of an error that it returns: with the cure, as Display has it.
impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StoreError {
    /// Whatever the store says.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
        StoreError(error.into())
    }
}

/// Which of a store's ordered maps from bytes to bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Space {
    /// What methods keep.
    Effects,
    /// What keyed calls were answered, by key.
    Results,
    /// The keys, in the order of their calls.
    Order,
}

/// Keeps bytes under bytes, and changes many of them at once or none.
///
/// Only a ledger's thread uses it, and another one its [`Reader`].
pub trait Store: Send + 'static {
    /// Changes that become durable together.
    type Batch<'a>: Batch
    where
        Self: 'a;
    /// Reads what is durable, on a thread of its own.
    type Reader: Reader;

    /// Begins a batch. Where other processes write as well, it is alone until it ends, and waits for
    /// theirs: for as long as those take.
    ///
    /// # Errors
    ///
    /// The store's.
    fn begin(&mut self) -> Result<Self::Batch<'_>, StoreError>;

    /// What reads beside the batches. It should wait for none that another process has under way.
    fn reader(&self) -> Self::Reader;

    /// Where it is, for those who read the log: a file's path, if it is one.
    fn place(&self) -> String {
        String::from("a store without a name")
    }
}

/// Reads what was committed to a store.
pub trait Reader: Send + 'static {
    /// Shows what was committed last, once, and as it was at one moment.
    ///
    /// # Errors
    ///
    /// The store's, which has shown nothing then.
    fn read(&mut self, read: &mut dyn FnMut(&dyn View)) -> Result<(), StoreError>;
}

/// What can be seen of a store. All errors are the store's.
pub trait View {
    /// What is kept there.
    ///
    /// # Errors
    ///
    /// The store's; so below.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// The least key of those from there on, and what is kept under it.
    ///
    /// # Errors
    ///
    /// The store's.
    fn next(&self, space: Space, from: Bound<&[u8]>) -> Result<Option<Entry>, StoreError>;
}

/// Changes that become durable together, when committed; dropped, they were never made. It sees
/// them before. All errors are the store's.
pub trait Batch: View {
    /// Keeps something there.
    ///
    /// # Errors
    ///
    /// The store's; so below.
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), StoreError>;

    /// Keeps nothing there any more.
    ///
    /// # Errors
    ///
    /// The store's.
    fn remove(&mut self, space: Space, key: &[u8]) -> Result<(), StoreError>;

    /// The greatest key, and what is kept there.
    ///
    /// # Errors
    ///
    /// The store's.
    fn last(&self, space: Space) -> Result<Option<Entry>, StoreError>;

    /// Makes all changes durable, before it returns.
    ///
    /// # Errors
    ///
    /// The store's. Whether the changes were made is unknown then.
    fn commit(self) -> Result<(), StoreError>;
}

/// A key, and what is kept there.
pub type Entry = (Vec<u8>, Vec<u8>);
