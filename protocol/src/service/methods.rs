use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{MethodInfo, ServiceInfo};
use crate::id::Method;

const IDEMPOTENT: u8 = 1 << 0;
const DUPLICABLE: u8 = 1 << 1;
const KEYED: u8 = 1 << 2;

/// A service's methods as a hello carries them: length (u8) and text of the service's name; for
/// each method, by ascending number, the number (u16), flags (u8: 1 idempotent, 2 may be
/// duplicated, 4 keyed), length (u8) and text of its name.
///
/// Both sides of a connection say what they know, and compare: a number that means two things
/// would be garbage later, and is an error by name now.
#[derive(Clone, PartialEq, Eq)]
pub struct Methods(Vec<u8>);

/// One method of the other side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known<'a> {
    /// Its number.
    pub number: Method,
    /// Its name.
    pub name: &'a str,
    /// Running it twice does no harm.
    pub idempotent: bool,
    /// A second copy may be sent.
    pub duplicable: bool,
    /// Its effect, its result and the call's key are stored in one transaction.
    pub keyed: bool,
}

/// Where two sides do not mean the same.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Mismatch {
    /// They speak of two services.
    #[error("it serves {theirs:?}, and we speak {ours:?}")]
    Service {
        /// The name here.
        ours: String,
        /// The name there.
        theirs: String,
    },
    /// One number, two names.
    #[error("method {} is {theirs:?} there and {ours:?} here", number.0)]
    Name {
        /// The number.
        number: Method,
        /// The name here.
        ours: String,
        /// The name there.
        theirs: String,
    },
    /// One name, two numbers.
    #[error("{name:?} is method {} there and method {} here", theirs.0, ours.0)]
    Number {
        /// The name.
        name: String,
        /// The number here.
        ours: Method,
        /// The number there.
        theirs: Method,
    },
    /// One side promises something of it that the other does not.
    #[error("{name:?} is {theirs} there and {ours} here; declare it alike on both sides")]
    Promise {
        /// The method's name.
        name: String,
        /// What is promised here.
        ours: Promises,
        /// What is promised there.
        theirs: Promises,
    },
}

/// What two sides compare of what they promise of a method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promises {
    /// As [`Known::idempotent`].
    pub idempotent: bool,
    /// As [`Known::duplicable`].
    pub duplicable: bool,
    /// As [`Known::keyed`].
    pub keyed: bool,
}

impl fmt::Display for Promises {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.idempotent, "idempotent"),
            (self.keyed, "keyed"),
            (self.duplicable, "duplicable"),
        ];
        let mut said = all.iter().filter(|(is_so, _)| *is_so).map(|(_, what)| what);
        f.write_str(said.next().unwrap_or(&"nothing of that (idempotent, keyed, duplicable)"))?;
        said.try_for_each(|what| write!(f, " and {what}"))
    }
}

impl Methods {
    /// The methods of a service.
    ///
    /// # Panics
    ///
    /// If a name is longer than 255 bytes.
    pub fn new(service: &ServiceInfo) -> Methods {
        let mut bytes = Vec::new();
        push_name(service.name, &mut bytes);
        for MethodInfo { number, name, idempotent, keyed, duplicable, .. } in service.methods {
            let flags = if *idempotent { IDEMPOTENT } else { 0 }
                | if duplicable.is_some() { DUPLICABLE } else { 0 }
                | if *keyed { KEYED } else { 0 };
            bytes.extend_from_slice(&number.0.to_le_bytes());
            bytes.push(flags);
            push_name(name, &mut bytes);
        }
        Methods(bytes)
    }

    /// From the wire; None if they are not well formed.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Methods> {
        let (_, mut rest) = split_name(bytes)?;
        let mut last = None;
        while !rest.is_empty() {
            let (known, behind) = split_method(rest)?;
            if last.is_some_and(|last| last >= known.number) {
                return None;
            }
            last = Some(known.number);
            rest = behind;
        }
        Some(Methods(bytes.to_vec()))
    }

    /// As they stand on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The service's name.
    pub fn service(&self) -> &str {
        split_name(&self.0).map_or("", |(name, _)| name)
    }

    /// Each method, by ascending number.
    pub fn iter(&self) -> impl Iterator<Item = Known<'_>> {
        let mut rest = split_name(&self.0).map_or(&[][..], |(_, rest)| rest);
        core::iter::from_fn(move || {
            let (known, behind) = split_method(rest)?;
            rest = behind;
            Some(known)
        })
    }

    /// Whether both sides mean the same wherever both know a number or a name, and promise the same of
    /// it (which payloads may be duplicated, and what may be interrupted, each side knows for itself).
    /// A method that only one side knows is no mismatch: a call of it is answered with "no such method".
    ///
    /// # Errors
    ///
    /// The first [`Mismatch`].
    pub fn check(&self, theirs: &Methods) -> Result<(), Mismatch> {
        if self.service() != theirs.service() {
            let (ours, theirs) = (self.service().into(), theirs.service().into());
            return Err(Mismatch::Service { ours, theirs });
        }
        // Hellos are short and rare: a look at each pair is cheaper than an index.
        self.iter().try_for_each(|ours| theirs.iter().try_for_each(|theirs| ours.check(theirs)))
    }
}

impl Known<'_> {
    /// What is promised of it.
    pub const fn promises(&self) -> Promises {
        let Known { idempotent, duplicable, keyed, .. } = *self;
        Promises { idempotent, duplicable, keyed }
    }

    fn check(self, theirs: Known<'_>) -> Result<(), Mismatch> {
        match (self.number == theirs.number, self.name == theirs.name) {
            (false, false) => Ok(()),
            (true, false) => Err(Mismatch::Name {
                number: self.number,
                ours: self.name.into(),
                theirs: theirs.name.into(),
            }),
            (false, true) => Err(Mismatch::Number {
                name: self.name.into(),
                ours: self.number,
                theirs: theirs.number,
            }),
            (true, true) if self != theirs => Err(Mismatch::Promise {
                name: self.name.into(),
                ours: self.promises(),
                theirs: theirs.promises(),
            }),
            (true, true) => Ok(()),
        }
    }
}

fn push_name(name: &str, bytes: &mut Vec<u8>) {
    bytes.push(u8::try_from(name.len()).expect("a name of at most 255 bytes"));
    bytes.extend_from_slice(name.as_bytes());
}

fn split_name(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(length))?;
    Some((core::str::from_utf8(name).ok()?, rest))
}

fn split_method(bytes: &[u8]) -> Option<(Known<'_>, &[u8])> {
    let (&[low, high, flags], rest) = bytes.split_first_chunk::<3>()?;
    let (name, rest) = split_name(rest)?;
    let known = Known {
        number: Method(u16::from_le_bytes([low, high])),
        name,
        idempotent: flags & IDEMPOTENT != 0,
        duplicable: flags & DUPLICABLE != 0,
        keyed: flags & KEYED != 0,
    };
    Some((known, rest))
}

impl fmt::Debug for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ", self.service())?;
        f.debug_map().entries(self.iter().map(|known| (known.number.0, known.name))).finish()
    }
}
