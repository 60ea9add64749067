//! Services as data: what a method is called, and what may be done with it.

mod methods;

pub use methods::{Methods, Mismatch};

use core::time::Duration;

use crate::id::Method;

/// What a service says of one of its methods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MethodInfo {
    /// Its number, which is all that a request says.
    pub number: Method,
    /// Its name, which a hello checks.
    pub name: &'static str,
    /// Running it twice does no harm.
    pub idempotent: bool,
    /// The largest payload, in bytes, with which a second copy may be sent (a hedge or a tied one);
    /// None if never.
    pub duplicable: Option<u32>,
    /// With less time left than this it is not worth starting.
    pub least_useful: Duration,
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
