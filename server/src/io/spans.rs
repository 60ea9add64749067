//! A span for each copy, for those of them that somebody wants to see. One that never runs has its
//! span when it ends.

use std::boxed::Box;
use std::cell::Cell;
use std::time::Duration;

use bowline_protocol::{Request, TraceContext};
use tracing::field::Empty;
use tracing::{Level, Span};

use super::context::Context;
use crate::core::Gone;

/// The target of all spans of copies.
const TARGET: &str = "bowline::copy";
/// The flag of a trace context that says that its spans are wanted.
const SAMPLED: u8 = 1;

/// Decides which copies have a span. While nobody listens to spans it costs a load and a branch.
#[derive(Debug)]
pub(super) struct Spans {
    /// One in so many copies has a span, whatever its trace says; 0: none.
    one_in: u32,
    since: Cell<u32>,
}

impl Spans {
    pub(super) const fn new(one_in: u32) -> Spans {
        Spans { one_in, since: Cell::new(0) }
    }

    /// Whether anybody listens to spans of copies.
    pub(super) fn are_heard(&self) -> bool {
        tracing::enabled!(target: TARGET, Level::INFO)
    }

    /// The span of a copy that starts; its end is to be recorded as `end`.
    pub(super) fn begin(&self, context: &Context) -> Option<Box<Span>> {
        if !self.are_heard() || !self.wants(context.trace()) {
            return None;
        }
        Some(Box::new(span(context.request(), context.trace(), context.waited())))
    }

    /// A copy ended and never ran.
    pub(super) fn tell(&self, gone: &Gone) {
        if self.wants(gone.options.trace) {
            let span = span(&gone.request, gone.options.trace, gone.waited);
            span.record("end", gone.why.name());
        }
    }

    fn wants(&self, trace: Option<TraceContext>) -> bool {
        if trace.is_some_and(|trace| trace.flags & SAMPLED != 0) {
            return true;
        }
        if self.one_in == 0 {
            return false;
        }
        let since = self.since.get() + 1;
        self.since.set(if since >= self.one_in { 0 } else { since });
        since >= self.one_in
    }
}

fn span(request: &Request, trace: Option<TraceContext>, waited: Duration) -> Span {
    let Request { attempt, method, cause, tie, .. } = *request;
    let span = tracing::info_span!(
        target: TARGET,
        "copy",
        client = attempt.client.0,
        seq = attempt.seq.0,
        attempt = attempt.n,
        method = method.0,
        cause = ?cause,
        waited_us = waited.as_micros() as u64,
        twin = Empty,
        trace = Empty,
        end = Empty,
    );
    if let Some(tie) = tie {
        span.record("twin", tracing::field::debug(tie.twin));
    }
    if let Some(trace) = trace {
        span.record("trace", tracing::field::display(trace));
    }
    span
}
