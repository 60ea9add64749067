//! Typed services: declared once, for both sides, without a build script.
//!
//! [`crate::service!`] makes a module out of a declaration: a type for each method, the table of
//! methods that a hello checks by name, a stub for clients and a trait for servers. How values
//! become bytes is a [`Codec`]: [`Raw`] for bytes and text, `Postcard` (feature `serde`) for
//! whatever serde knows, `Prost` (feature `prost`) for Protocol Buffers, or one's own.
//!
//! Nothing here sends anything: a client's shell is a [`Caller`], and a server's shell hands what
//! came to a [`Dispatch`].
//!
//! ```
//! use bowline_protocol::service::{Dispatch, Raw, ServiceError};
//! use core::time::Duration;
//!
//! bowline_protocol::service! {
//!     /// Words, kept under other words.
//!     pub mod words("words") with Raw {
//!         /// The word that is kept under another.
//!         1 => get(String) -> String {
//!             idempotent, duplicable: 4096, least_useful: Duration::from_micros(20), cost: 1
//!         };
//!         /// Forgets all.
//!         2 => clear(()) -> ();
//!     }
//! }
//!
//! struct Fixed;
//!
//! // A context (what is left of the deadline, the cancel token) comes from the server's shell.
//! impl<Cx> words::Server<Cx> for Fixed {
//!     async fn get(&self, _: Cx, word: String) -> Result<String, ServiceError> {
//!         (word == "knot").then(|| "bowline".into()).ok_or(ServiceError::new(44))
//!     }
//!     async fn clear(&self, _: Cx, (): ()) -> Result<(), ServiceError> {
//!         Ok(())
//!     }
//! }
//!
//! /// What a server's shell does with a request.
//! async fn answer(payload: &[u8], out: &mut Vec<u8>) -> bowline_protocol::Status {
//!     let method = words::SERVICE.methods[0].number;
//!     words::Serving(Fixed).dispatch((), method, payload, out).await
//! }
//! # fn main() {
//! let get = words::SERVICE.methods[0];
//! assert_eq!((get.name, get.idempotent, get.duplicable), ("get", true, Some(4096)));
//! # }
//! ```

mod codec;
mod declare;
mod methods;
mod typed;

#[cfg(feature = "serde")]
pub use codec::Postcard;
#[cfg(feature = "prost")]
pub use codec::Prost;
pub use codec::{Codec, CodecError, Raw};
pub use methods::{Known, Methods, Mismatch, Promises};
pub use typed::{
    Caller, Dispatch, HandleMethod, ServiceError, TypedMethod, VisitMethod, WithReply, answer, call,
};

use core::time::Duration;

use crate::id::Method;
use crate::options::TrafficClass;

/// What a declaration needs by a path that is good in every crate.
#[doc(hidden)]
pub mod declared {
    pub use alloc::vec::Vec;
}

/// What a service says of one of its methods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MethodInfo {
    /// Its number, which is all that a request says.
    pub number: Method,
    /// Its name, which a hello checks.
    pub name: &'static str,
    /// Running it twice does no harm.
    pub idempotent: bool,
    /// Its effect, its result and the call's key are stored in one transaction: with a key, running
    /// it again at the same store does no harm.
    pub keyed: bool,
    /// The largest payload, in bytes, with which a second copy may be sent (a hedge or a tied one);
    /// None if never.
    pub duplicable: Option<u32>,
    /// Its handler may be dropped at any of its awaits, once nobody needs its answer any more.
    pub interruptible: bool,
    /// With less time left than this it is not worth starting.
    pub least_useful: Duration,
    /// How much work a call of it is, as the class of those calls that name none themselves; None:
    /// the class of all that name none.
    pub cost: Option<TrafficClass>,
}

impl MethodInfo {
    /// A method of which nothing is promised: it must not run twice.
    pub const fn new(number: Method, name: &'static str) -> MethodInfo {
        let least_useful = Duration::ZERO;
        MethodInfo {
            number,
            name,
            idempotent: false,
            keyed: false,
            duplicable: None,
            interruptible: false,
            least_useful,
            cost: None,
        }
    }

    /// Running it twice does no harm.
    #[must_use]
    pub const fn idempotent(self) -> MethodInfo {
        MethodInfo { idempotent: true, ..self }
    }

    /// Its effect, its result and the call's key are stored in one transaction.
    #[must_use]
    pub const fn keyed(self) -> MethodInfo {
        MethodInfo { keyed: true, ..self }
    }

    /// A second copy may be sent of a request with a payload of at most so many bytes.
    #[must_use]
    pub const fn duplicable(self, largest: u32) -> MethodInfo {
        MethodInfo { duplicable: Some(largest), ..self }
    }

    /// Its handler may be dropped at any of its awaits, once nobody needs its answer any more: so
    /// should it be that of a method whose calls are tied. It is the server's alone, and no hello
    /// says it.
    #[must_use]
    pub const fn interruptible(self) -> MethodInfo {
        MethodInfo { interruptible: true, ..self }
    }

    /// With less time left than this it is not worth starting.
    #[must_use]
    pub const fn least_useful(self, time: Duration) -> MethodInfo {
        MethodInfo { least_useful: time, ..self }
    }

    /// Its calls are of this class unless they name one.
    #[must_use]
    pub const fn cost(self, class: u8) -> MethodInfo {
        MethodInfo { cost: Some(TrafficClass(class)), ..self }
    }

    /// A second copy may be sent of a request with a payload of this length, in bytes; if it is keyed
    /// and not idempotent, only with a key, and among replicas with one store of results.
    pub const fn may_duplicate(&self, length: usize) -> bool {
        match self.duplicable {
            Some(largest) => (self.idempotent || self.keyed) && length <= largest as usize,
            None => false,
        }
    }
}

/// What a service says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceInfo {
    /// Its name.
    pub name: &'static str,
    /// Its methods, by ascending number.
    pub methods: &'static [MethodInfo],
}

impl ServiceInfo {
    /// A service.
    ///
    /// # Panics
    ///
    /// If its methods are not in ascending order of their numbers; in a constant, when compiled.
    pub const fn new(name: &'static str, methods: &'static [MethodInfo]) -> ServiceInfo {
        let mut at = 1;
        while at < methods.len() {
            assert!(
                methods[at - 1].number.0 < methods[at].number.0,
                "the methods of a service stand in ascending order of their numbers"
            );
            at += 1;
        }
        ServiceInfo { name, methods }
    }

    /// The method of this number.
    pub fn method(&self, number: Method) -> Option<&'static MethodInfo> {
        let at = self.methods.binary_search_by_key(&number, |info| info.number).ok()?;
        self.methods.get(at)
    }

    /// For a hello.
    pub fn to_methods(&self) -> Methods {
        Methods::new(self)
    }
}
