//! Spans: one for a call, and a child of it for each copy.
//!
//! They are made only if a subscriber wants them when the client connects (target
//! `bowline::call`, at the level of debugging): a call then costs an entry in a table besides.

use std::collections::HashMap;

use bowline_protocol::{ReplicaId, Request};
use bowline_runtime::Instant;
use tracing::{Level, Span, debug_span, field};

use crate::core::{CallKey, CopyEnd, Done};

const TARGET: &str = "bowline::call";

/// The spans of what is under way.
#[derive(Default)]
pub(super) struct Spans {
    calls: HashMap<u64, Traced>,
}

struct Traced {
    /// None once the call has its result, or was dropped.
    span: Option<Span>,
    started: Instant,
    copies: Vec<(u16, Span)>,
}

impl Spans {
    /// If anybody wants them.
    pub(super) fn new() -> Option<Spans> {
        tracing::enabled!(target: "bowline::call", Level::DEBUG).then(Spans::default)
    }

    /// How many calls have some that are open.
    pub(super) fn open(&self) -> usize {
        self.calls.len()
    }

    /// A copy goes out; with the first, its call has begun.
    pub(super) fn sent(&mut self, replica: ReplicaId, request: &Request, now: Instant) {
        let seq = request.attempt.seq.0;
        let traced = self.calls.entry(seq).or_insert_with(|| {
            let method = request.method.0;
            let span = debug_span!(
                target: TARGET, "call", seq, method,
                attempts = field::Empty, hedges = field::Empty, tied = field::Empty,
                winner = field::Empty, error = field::Empty
            );
            Traced { span: Some(span), started: now, copies: Vec::new() }
        });
        let Some(parent) = &traced.span else { return };
        let n = request.attempt.n;
        let span = debug_span!(
            target: TARGET, parent: parent, "attempt", n,
            replica = replica.0, cause = ?request.cause, tied = request.tie.is_some(),
            delay_us = (now - traced.started).as_micros() as u64,
            remaining_us = request.remaining.as_micros() as u64,
            end = field::Empty
        );
        traced.copies.push((n, span));
    }

    /// A copy has ended.
    pub(super) fn ended(&mut self, ended: CopyEnd) {
        let seq = ended.call.seq().0;
        let Some(traced) = self.calls.get_mut(&seq) else { return };
        if let Some(at) = traced.copies.iter().position(|&(n, _)| n == ended.n) {
            let (_, span) = traced.copies.swap_remove(at);
            span.record("end", field::debug(ended.end));
        }
        if traced.span.is_none() && traced.copies.is_empty() {
            self.calls.remove(&seq);
        }
    }

    /// A call has its result.
    pub(super) fn done(&mut self, done: &Done) {
        let seq = done.call.seq().0;
        let Some(traced) = self.calls.get_mut(&seq) else { return };
        if let Some(span) = traced.span.take() {
            span.record("attempts", done.outcome.attempts);
            span.record("hedges", done.outcome.hedges);
            span.record("tied", done.outcome.tied);
            if let Some(winner) = done.outcome.winner {
                span.record("winner", winner.n);
            }
            if let Err(error) = &done.result {
                span.record("error", field::display(error));
            }
        }
        self.let_go(done.call);
    }

    /// A call was dropped by its caller, or has no copy out any more.
    pub(super) fn let_go(&mut self, call: CallKey) {
        let seq = call.seq().0;
        let Some(traced) = self.calls.get_mut(&seq) else { return };
        traced.span = None;
        if traced.copies.is_empty() {
            self.calls.remove(&seq);
        }
    }
}
