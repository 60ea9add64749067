//! Whoever listens to what is logged.

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Calls its function with each event of a level, or of a graver one.
pub(crate) struct Ear<F>(pub(crate) Level, pub(crate) F);

impl<F: Fn(&Event<'_>) + 'static> Subscriber for Ear<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.0
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        (self.1)(event);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
