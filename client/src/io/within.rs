//! A call made on behalf of another, inside a handler.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

use bowline_protocol::{Error, ErrorKind, Executed, Parent};

use super::call::{Call, Calling};
use super::reply::{Failure, Reply};

/// The future of a call with a parent; see [`Call::within`]. Dropping it cancels the call.
#[must_use = "futures do nothing unless awaited"]
pub struct Within<'a, P> {
    /// None once it is over.
    calling: Option<Calling>,
    parent: &'a P,
}

impl<'a, P: Parent> Within<'a, P> {
    pub(super) fn new(call: Call, parent: &'a P) -> Within<'a, P> {
        Within { calling: Some(call.into_future()), parent }
    }
}

impl<P: Parent> Future for Within<'_, P> {
    type Output = Result<Reply, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(calling) = &mut this.calling else {
            panic!("a call is awaited again after it was done")
        };
        if let Poll::Ready(result) = Pin::new(calling).poll(context) {
            this.calling = None;
            return Poll::Ready(result);
        }
        if this.parent.poll_cancelled(context.waker()).is_pending() {
            return Poll::Pending;
        }
        // Dropped, it is cancelled on the wire.
        this.calling = None;
        let error = Error::new(ErrorKind::Cancelled, Executed::Unknown);
        Poll::Ready(Err(Failure { error, payload: None, outcome: None }))
    }
}
