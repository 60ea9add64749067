//! One copy's handler, as a task: of the type of its method's handler, so that it takes as much
//! memory as that needs, whatever others do.

use std::boxed::Box;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bowline_protocol::Status;
use bowline_runtime::payload::Payload;
use bowline_runtime::spawn;
use tracing::Span;

use super::answer::Answer;
use super::context::Context;
use super::service::{Failure, Handler, Service, WithHandler};
use super::shell::Shell;
use crate::core::CopyKey;

/// A copy that is to run.
pub(super) struct Run<S: Service> {
    pub(super) shell: Rc<Shell<S>>,
    pub(super) copy: CopyKey,
    pub(super) context: Context,
    pub(super) payload: Payload,
}

impl<S: Service> WithHandler<S> for Run<S> {
    fn handler<H: Handler<S>>(self) {
        drop(spawn(run::<S, H>(self)));
    }
}

/// Runs a copy's handler, and answers with what it returns.
async fn run<S: Service, H: Handler<S>>(run: Run<S>) {
    let Run { shell, copy, context, payload } = run;
    let span = shell.spans.begin(&context);
    let end = Ending { shell, copy, context: context.clone(), span, told: false };
    let service = &end.shell.service;
    let interruptible = service.interruptible(context.method());
    let token = context.token().clone();
    let outcome = {
        let mut call = pin!(H::call(service, context, payload));
        poll_fn(|task| {
            let _inside = end.span.as_ref().map(|span| span.enter());
            if interruptible && token.poll_cancelled(task.waker()).is_ready() {
                return Poll::Ready(None);
            }
            call.as_mut().poll(task).map(Some)
        })
        .await
    };
    end.tell(outcome.unwrap_or(Err(Failure::stopped())));
}

/// Sees to it that the core hears of a handler's end, even if that is a panic.
struct Ending<S: Service> {
    shell: Rc<Shell<S>>,
    copy: CopyKey,
    context: Context,
    span: Option<Box<Span>>,
    told: bool,
}

impl<S: Service> Ending<S> {
    fn tell(mut self, outcome: Result<S::Reply, Failure>) {
        self.told = true;
        match outcome {
            Ok(reply) => self.answer(Status::Ok, Answer::Reply(reply)),
            Err(Failure { status: Some(status), payload }) => {
                self.answer(status, Answer::Failure(payload));
            }
            Err(Failure { status: None, .. }) => self.abort(),
        }
    }

    fn answer(&self, status: Status, answer: Answer<S::Reply>) {
        if let Some(span) = &self.span {
            span.record("end", tracing::field::debug(status));
        }
        self.shell.tally.count(self.context.row());
        self.shell.finish(self.copy, status, answer);
    }

    fn abort(&self) {
        if let Some(span) = &self.span {
            span.record("end", "aborted");
        }
        self.shell.aborted(self.copy);
    }
}

impl<S: Service> Drop for Ending<S> {
    fn drop(&mut self) {
        if self.told {
            return;
        }
        if std::thread::panicking() {
            self.shell.count(|io| io.panics += 1);
            self.answer(Status::Failed, Answer::Text("the handler panicked"));
        } else {
            self.abort();
        }
    }
}
