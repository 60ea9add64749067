//! What a request or a reply may say beside its header: optional, and free when absent.
//!
//! On the wire options are sections (tag, length, value; see [`crate::codec`]) at the head of the
//! payload. [`Options`] reads them where they lie; [`OptionSet`] is what a sender fills in.
//!
//! ```
//! use bowline_protocol::options::{Key, Label, OptionSet, TrafficClass};
//!
//! let set = OptionSet {
//!     key: Some(Key { id: 0xfeed, fingerprint: 7 }),
//!     class: Some(TrafficClass(2)),
//!     label: Some(Label::new("tenant-9")),
//!     ..OptionSet::default()
//! };
//! let bytes = set.to_bytes();
//! let options = bytes.as_options();
//! assert_eq!(options.key(), set.key);
//! assert_eq!(options.label(), Some("tenant-9"));
//! assert_eq!((options.to_set(), options.total()), (set, None));
//! ```

use core::fmt;
use core::time::Duration;

use crate::codec::section::{IGNORABLE, Sections};
use crate::codec::{self, WireError};

mod tag {
    pub(super) const TOTAL: u16 = 1;
    pub(super) const KEY: u16 = 2;
    pub(super) const CLASS: u16 = 0x8001;
    pub(super) const TRACE: u16 = 0x8002;
    pub(super) const LABEL: u16 = 0x8003;
    pub(super) const FRESH: u16 = 0x8004;
}

/// The longest label, in bytes.
pub const MAX_LABEL: usize = 32;

/// All options at their longest, in bytes: six heads of 4, and values of 4, 24, 1, 25, 32 and 16.
pub const MAX_LEN: usize = 6 * 4 + 4 + 24 + 1 + 25 + MAX_LABEL + 16;

/// Names what a call is to bring about, so that it is brought about once, however often it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// The key: 128 bits that the caller draws at random, or derives from what it does.
    pub id: u128,
    /// Of method and payload: the same key with another fingerprint is refused. See
    /// [`fingerprint`].
    pub fingerprint: u64,
}

/// A payload's fingerprint: its length (upper half) and its CRC-32. It tells a key that was used
/// again by mistake; it is no defence against one who looks for a collision.
pub fn fingerprint(payload: &[u8]) -> u64 {
    (payload.len() as u64) << 32 | u64::from(crc32fast::hash(payload))
}

/// Which queue and which delays a call belongs to; the numbers are the deployment's own. 0 is the
/// class of a request that names none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TrafficClass(pub u8);

/// The trace that a call belongs to, as W3C Trace Context has it (version 00).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// trace-id.
    pub trace: [u8; 16],
    /// parent-id: the caller's span.
    pub parent: [u8; 8],
    /// trace-flags; bit 0: sampled.
    pub flags: u8,
}

impl TraceContext {
    /// From a `traceparent` header's value; None if it is not one. Of a version above 00, what
    /// version 00 knows is taken, as the standard asks.
    ///
    /// ```
    /// use bowline_protocol::options::TraceContext;
    ///
    /// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// let context = TraceContext::from_traceparent(text).unwrap();
    /// assert_eq!(context.flags, 1);
    /// assert_eq!(context.to_string(), text);
    /// assert_eq!(TraceContext::from_traceparent(&text.replace('4', "0").replace("00-", "ff-")), None);
    /// ```
    pub fn from_traceparent(text: &str) -> Option<TraceContext> {
        let text = text.as_bytes();
        let exact = text.len() == 55;
        let (&[v0, v1, b'-'], rest) = text.split_first_chunk::<3>()? else {
            return None;
        };
        let [version] = unhex::<1>(&[v0, v1])?;
        if version == 0xff || (version == 0 && !exact) || (!exact && text.get(55) != Some(&b'-')) {
            return None;
        }
        let trace = unhex(rest.get(..32)?)?;
        let parent = unhex(rest.get(33..49)?)?;
        let [flags] = unhex(rest.get(50..52)?)?;
        let dashed = rest[32] == b'-' && rest[49] == b'-';
        (dashed && trace != [0; 16] && parent != [0; 8]).then_some(TraceContext {
            trace,
            parent,
            flags,
        })
    }
}

/// Bytes from twice as many lower-case hexadecimal digits, which is the only case the standard has.
fn unhex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    (digits.len() == 2 * N).then_some(bytes)
}

impl fmt::Display for TraceContext {
    /// As a `traceparent` header has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, parent) = (u128::from_be_bytes(self.trace), u64::from_be_bytes(self.parent));
        write!(f, "00-{trace:032x}-{parent:016x}-{:02x}", self.flags)
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A short word: whom a request is for (a tenant), or where a reply came from (a cache). One of a
/// few, by which metrics and delays may be kept apart; of at most [`MAX_LABEL`] bytes of UTF-8.
///
/// ```
/// use bowline_protocol::options::{Label, MAX_LABEL};
///
/// assert_eq!(Label::new("hit").as_str(), "hit");
/// assert_eq!(Label::new(&"x".repeat(99)).as_str().len(), MAX_LABEL);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Label {
    /// Zero beyond its length.
    bytes: [u8; MAX_LABEL],
    len: u8,
}

impl Label {
    /// A label of this text, cut at [`MAX_LABEL`] bytes between two characters.
    pub fn new(text: &str) -> Label {
        let text = codec::head_of_text(text.as_bytes(), MAX_LABEL);
        let mut label = Label::default();
        label.bytes[..text.len()].copy_from_slice(text);
        label.len = text.len() as u8;
        label
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// How fresh something is: of a request what the answer has to be, of a reply what it is.
///
/// Versions are the service's own: one number that grows with every write, as a position in a log
/// does. What was written under a version is there in all that is of this version or a later one.
///
/// ```
/// use bowline_protocol::options::Freshness;
/// use core::time::Duration;
///
/// let held = Freshness { version: 41, staleness: Duration::from_millis(3) };
/// assert!(held.satisfies(&Freshness::ANY));
/// assert!(held.satisfies(&Freshness::version(41)) && !held.satisfies(&Freshness::version(42)));
/// assert!(!held.satisfies(&Freshness::within(Duration::from_millis(2))));
/// assert!(!Freshness::ANY.satisfies(&held), "what is not known satisfies nobody who asks");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Freshness {
    /// Of a request: the least version. Of a reply: the version that it is of. 0: any, or none that
    /// is known.
    pub version: u64,
    /// Of a request: for how long at most a write may be missing. Of a reply: for how long at most
    /// one is. On the wire in nanoseconds; 2^64 - 1 of them, and more: any, or none that is known.
    pub staleness: Duration,
}

impl Freshness {
    /// Of a request: whatever is there. Of a reply: nothing is known.
    pub const ANY: Freshness = Freshness { version: 0, staleness: Duration::from_nanos(u64::MAX) };

    /// Of this version at least, however long ago that was: for who reads what they wrote.
    pub const fn version(version: u64) -> Freshness {
        Freshness { version, ..Freshness::ANY }
    }

    /// At most so stale, whatever the version.
    pub const fn within(staleness: Duration) -> Freshness {
        Freshness { staleness, ..Freshness::ANY }
    }

    /// What both demand.
    #[must_use]
    pub fn and(self, other: Freshness) -> Freshness {
        Freshness {
            version: self.version.max(other.version),
            staleness: self.staleness.min(other.staleness),
        }
    }

    /// How fresh what is of this freshness will be when so much time has passed.
    #[must_use]
    pub const fn aged(self, by: Duration) -> Freshness {
        Freshness { staleness: self.staleness.saturating_add(by), ..self }
    }

    /// What is of this freshness is known to be less than that demands.
    pub fn is_behind(&self, demand: &Freshness) -> bool {
        let old = self.version != 0 && self.version < demand.version;
        let stale = self.staleness < Freshness::ANY.staleness && self.staleness > demand.staleness;
        old || stale
    }

    /// What is of this freshness is as fresh as that demands.
    pub fn satisfies(&self, demand: &Freshness) -> bool {
        self.version >= demand.version && self.staleness <= demand.staleness
    }
}

/// What a sender says beside the header: of a request any of these, of a reply its label and how
/// fresh it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OptionSet {
    /// What the call is to bring about once.
    pub key: Option<Key>,
    /// Its class.
    pub class: Option<TrafficClass>,
    /// Its trace.
    pub trace: Option<TraceContext>,
    /// Whom it is for; of a reply, where that came from.
    pub label: Option<Label>,
    /// How fresh the answer has to be; of a reply, how fresh it is.
    pub fresh: Option<Freshness>,
}

impl OptionSet {
    /// Nothing is said.
    pub const NONE: OptionSet =
        OptionSet { key: None, class: None, trace: None, label: None, fresh: None };

    /// Nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == OptionSet::NONE
    }

    /// As they stand on the wire.
    pub fn to_bytes(&self) -> OptionBytes {
        self.write(None)
    }

    /// The same for a payload of `total` bytes, of which this frame brings the beginning and
    /// segments the rest.
    pub fn opening(&self, total: u32) -> OptionBytes {
        self.write(Some(total))
    }

    fn write(&self, total: Option<u32>) -> OptionBytes {
        let mut out = OptionBytes { bytes: [0; MAX_LEN], len: 0 };
        if let Some(total) = total {
            out.push(tag::TOTAL, &[&total.to_le_bytes()]);
        }
        if let Some(key) = self.key {
            out.push(tag::KEY, &[&key.id.to_le_bytes(), &key.fingerprint.to_le_bytes()]);
        }
        if let Some(TrafficClass(class)) = self.class {
            out.push(tag::CLASS, &[&[class]]);
        }
        if let Some(TraceContext { trace, parent, flags }) = self.trace {
            out.push(tag::TRACE, &[&trace, &parent, &[flags]]);
        }
        if let Some(label) = &self.label {
            out.push(tag::LABEL, &[label.as_str().as_bytes()]);
        }
        if let Some(Freshness { version, staleness }) = self.fresh {
            let staleness = u64::try_from(staleness.as_nanos()).unwrap_or(u64::MAX);
            out.push(tag::FRESH, &[&version.to_le_bytes(), &staleness.to_le_bytes()]);
        }
        out
    }
}

/// Options as they stand on the wire, in a place of their own.
#[derive(Clone, Copy)]
pub struct OptionBytes {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl OptionBytes {
    fn push(&mut self, tag: u16, parts: &[&[u8]]) {
        let length = parts.iter().map(|part| part.len()).sum::<usize>() as u16;
        self.append(&tag.to_le_bytes());
        self.append(&length.to_le_bytes());
        parts.iter().for_each(|part| self.append(part));
    }

    fn append(&mut self, part: &[u8]) {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }

    /// For a frame.
    pub fn as_options(&self) -> Options<'_> {
        Options { bytes: &self.bytes[..self.len] }
    }
}

impl PartialEq for OptionBytes {
    fn eq(&self, other: &OptionBytes) -> bool {
        self.as_options() == other.as_options()
    }
}

impl Eq for OptionBytes {}

impl fmt::Debug for OptionBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_options().fmt(f)
    }
}

/// The options of a frame, read where they lie. They were found sound when the frame was decoded.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Options<'a> {
    bytes: &'a [u8],
}

impl<'a> Options<'a> {
    /// No options.
    pub const NONE: Options<'static> = Options { bytes: &[] };

    /// Options from the wire, if they are sound.
    pub(crate) fn parse(frame: &'static str, bytes: &'a [u8]) -> Result<Options<'a>, WireError> {
        for section in Sections::new(frame, bytes) {
            let (tag, value) = section?;
            let sound = match tag {
                tag::TOTAL => value.len() == 4,
                tag::KEY => value.len() == 24,
                tag::CLASS => value.len() == 1,
                tag::TRACE => value.len() == 25,
                tag::LABEL => value.len() <= MAX_LABEL && core::str::from_utf8(value).is_ok(),
                tag::FRESH => value.len() == 16,
                unknown => unknown >= IGNORABLE,
            };
            if !sound {
                return Err(WireError::Section { frame, tag });
            }
        }
        Ok(Options { bytes })
    }

    /// As they stand on the wire.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn find(&self, tag: u16) -> Option<&'a [u8]> {
        let sections = Sections::new("", self.bytes);
        sections.flatten().find(|(found, _)| *found == tag).map(|(_, value)| value)
    }

    /// The length of the whole payload, in bytes, if segments bring the rest of it.
    pub fn total(&self) -> Option<u32> {
        self.find(tag::TOTAL)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// See [`OptionSet::key`].
    pub fn key(&self) -> Option<Key> {
        let (id, fingerprint) = self.find(tag::KEY)?.split_first_chunk()?;
        let fingerprint = u64::from_le_bytes(fingerprint.try_into().ok()?);
        Some(Key { id: u128::from_le_bytes(*id), fingerprint })
    }

    /// See [`OptionSet::class`].
    pub fn class(&self) -> Option<TrafficClass> {
        self.find(tag::CLASS)?.first().copied().map(TrafficClass)
    }

    /// See [`OptionSet::trace`].
    pub fn trace(&self) -> Option<TraceContext> {
        let (trace, rest) = self.find(tag::TRACE)?.split_first_chunk()?;
        let (parent, flags) = rest.split_first_chunk()?;
        Some(TraceContext { trace: *trace, parent: *parent, flags: *flags.first()? })
    }

    /// See [`OptionSet::label`].
    pub fn label(&self) -> Option<&'a str> {
        core::str::from_utf8(self.find(tag::LABEL)?).ok()
    }

    /// See [`OptionSet::fresh`].
    pub fn fresh(&self) -> Option<Freshness> {
        let (version, staleness) = self.find(tag::FRESH)?.split_first_chunk()?;
        let staleness = u64::from_le_bytes(staleness.try_into().ok()?);
        let (version, staleness) = (u64::from_le_bytes(*version), Duration::from_nanos(staleness));
        Some(Freshness { version, staleness })
    }

    /// All of them, for who takes them along. What is not known here is left behind.
    pub fn to_set(&self) -> OptionSet {
        if self.bytes.is_empty() {
            return OptionSet::NONE;
        }
        OptionSet {
            key: self.key(),
            class: self.class(),
            trace: self.trace(),
            label: self.label().map(Label::new),
            fresh: self.fresh(),
        }
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("total", &self.total())
            .field("set", &self.to_set())
            .finish()
    }
}
