//! What a call that is made on behalf of another inherits.

use core::task::{Poll, Waker};

use bowline_time::Instant;

use crate::options::TraceContext;

/// The call on whose behalf another is made: what a handler's context is for the calls that the
/// handler makes itself.
///
/// A call within a parent ends by the parent's deadline and is cancelled with it. If the parent is
/// an extra attempt itself, the call is by default neither hedged nor tied: amplification must not
/// multiply.
///
/// ```
/// use bowline_protocol::{Parent, options::TraceContext};
/// use bowline_time::Instant;
/// use core::task::{Poll, Waker};
///
/// /// A batch job: no hurry, and nobody to cancel it.
/// struct Batch;
///
/// impl Parent for Batch {
///     fn deadline(&self) -> Instant {
///         Instant::FAR_FUTURE
///     }
///     fn is_extra(&self) -> bool {
///         false
///     }
///     fn trace(&self) -> Option<TraceContext> {
///         None
///     }
///     fn poll_cancelled(&self, _: &Waker) -> Poll<()> {
///         Poll::Pending
///     }
/// }
/// ```
pub trait Parent {
    /// When the parent's caller stops waiting, by this core's clock.
    fn deadline(&self) -> Instant;

    /// Whether the parent was sent beside another attempt that is still alive: a hedge, or the
    /// second of a tied pair.
    fn is_extra(&self) -> bool;

    /// The trace that the parent belongs to.
    fn trace(&self) -> Option<TraceContext>;

    /// Ready once nobody needs the parent's answer any more; until then the waker is kept, and woken
    /// when it is so.
    fn poll_cancelled(&self, waker: &Waker) -> Poll<()>;
}
