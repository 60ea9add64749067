//! What a subscriber sees of this thread: spans of calls, and lines of a log.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::sync::{LazyLock, Mutex, MutexGuard};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

/// A span's name and fields, and its parent.
pub(crate) type Known = (String, Option<u64>);

thread_local! {
    /// Whether this thread's spans are wanted. The subscriber is the whole process's: one of a
    /// thread's own would be asked, or not, as other threads' tests come to the same spans first.
    static WANTED: Cell<bool> = const { Cell::new(false) };
    /// The lines of this thread, if they are wanted: the level, and what is said.
    static LINES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
    /// The next line can't be kept.
    static FAILS: Cell<bool> = const { Cell::new(false) };
}

/// What is known of each span.
#[derive(Default)]
struct Seen {
    spans: Mutex<HashMap<u64, Known>>,
}

static SEEN: LazyLock<&'static Seen> = LazyLock::new(|| {
    let seen: &'static Seen = Box::leak(Box::default());
    tracing::subscriber::set_global_default(seen).unwrap();
    seen
});

/// The spans of the calls that are made meanwhile. One test may ask for them.
pub(crate) fn spans(of: impl FnOnce()) -> MutexGuard<'static, HashMap<u64, Known>> {
    let seen = *SEEN;
    WANTED.set(true);
    of();
    WANTED.set(false);
    seen.spans.lock().unwrap()
}

/// From now on the lines of this thread are kept.
pub(crate) fn listen() {
    LazyLock::force(&SEEN);
    LINES.set(Some(Vec::new()));
}

/// The next line of this thread makes the log panic.
pub(crate) fn fail_once() {
    listen();
    FAILS.set(true);
}

/// The lines so far of that level.
pub(crate) fn lines(level: &str) -> Vec<String> {
    let is = |line: &&String| line.starts_with(level);
    LINES.with_borrow(|lines| lines.iter().flatten().filter(is).cloned().collect())
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => write!(self.0, " {value:?}").unwrap(),
            name => write!(self.0, " {name}={value:?}").unwrap(),
        }
    }
}

impl Subscriber for &'static Seen {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        match metadata.target() {
            "bowline::call" => WANTED.get(),
            _ => metadata.is_event() && LINES.with_borrow(Option::is_some),
        }
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut spans = self.spans.lock().unwrap();
        let id = spans.len() as u64 + 1;
        let mut text = span.metadata().name().to_owned();
        span.record(&mut Fields(&mut text));
        spans.insert(id, (text, span.parent().map(Id::into_u64)));
        Id::from_u64(id)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut spans = self.spans.lock().unwrap();
        values.record(&mut Fields(&mut spans.get_mut(&span.into_u64()).unwrap().0));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        assert!(!FAILS.take(), "the log is full");
        let mut line = event.metadata().level().to_string();
        event.record(&mut Fields(&mut line));
        LINES.with_borrow_mut(|lines| lines.iter_mut().for_each(|it| it.push(line.clone())));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
