//! What a subscriber sees of the spans of a core's copies.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

thread_local! {
    /// The spans of this thread's copies, if they are wanted. The subscriber is the whole process's:
    /// were it to listen to all cores, those of other tests would make spans as well.
    static SPANS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Asked by every core, and by each of them told that nobody listens until it says `listen`.
struct Ear;

/// From now on every core asks whether its spans are wanted.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| tracing::subscriber::set_global_default(Ear).unwrap());
}

/// From now on this thread's spans are wanted. Returns those that there were so far, one a line.
pub(crate) fn listen() -> String {
    install();
    SPANS.with_borrow_mut(|spans| spans.get_or_insert_default().join("\n"))
}

/// Writes fields down.
struct Pen<'a>(&'a mut String);

impl Visit for Pen<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Ear {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "bowline::copy" && SPANS.with_borrow(Option::is_some)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        SPANS.with_borrow_mut(|spans| {
            let spans = spans.get_or_insert_default();
            let mut text = String::new();
            span.record(&mut Pen(&mut text));
            spans.push(text);
            Id::from_u64(spans.len() as u64)
        })
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        SPANS.with_borrow_mut(|spans| {
            let spans = spans.get_or_insert_default();
            values.record(&mut Pen(&mut spans[span.into_u64() as usize - 1]));
        });
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
