//! Several calls at once, under one deadline.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::call::{Call, Calling};
use super::reply::{Failure, Reply};

/// Several calls that belong together; awaiting one of its methods makes them all. Calls that are
/// not needed any more, or whose future is dropped, are cancelled on the wire.
///
/// ```no_run
/// # use bowline_client::{Client, io::FanOut};
/// # use bowline_protocol::Method;
/// # use std::time::Duration;
/// # async fn read(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// // Any two of three fragments are enough to put the block together.
/// let fragments = (0u64..3).map(|n| client.call(Method(1), n.to_le_bytes()).shard_key(n));
/// let two = FanOut::new(fragments).deadline(Duration::from_millis(20)).first(2).await?;
/// for (which, fragment) in two {
///     println!("fragment {which}: {} bytes", fragment.len());
/// }
/// # Ok(())
/// # }
/// ```
///
/// Each wake-up looks at all calls that are still out: it is meant for tens of calls, not for
/// thousands.
#[must_use = "calls do nothing unless awaited"]
pub struct FanOut {
    calls: Vec<Call>,
    deadline: Option<Duration>,
}

/// Why there are not enough replies.
#[derive(Debug, thiserror::Error)]
#[error("call {call} of {calls} failed, and too few are left: {failure}")]
pub struct TooFew {
    /// The call whose failure left too few.
    pub call: usize,
    /// How many there were.
    pub calls: usize,
    /// How it failed.
    pub failure: Failure,
}

impl FanOut {
    /// These calls.
    pub fn new(calls: impl IntoIterator<Item = Call>) -> FanOut {
        FanOut { calls: calls.into_iter().collect(), deadline: None }
    }

    /// All of them must be done within this time, whatever each of them says.
    pub fn deadline(mut self, within: Duration) -> FanOut {
        self.deadline = Some(within);
        self
    }

    /// All replies, in the order of the calls.
    ///
    /// # Errors
    ///
    /// [`TooFew`] as soon as one call fails.
    pub async fn all(self) -> Result<Vec<Reply>, TooFew> {
        let wanted = self.calls.len();
        let mut replies = self.first(wanted).await?;
        replies.sort_by_key(|&(call, _)| call);
        Ok(replies.into_iter().map(|(_, reply)| reply).collect())
    }

    /// The first `wanted` good replies, in the order in which they came, each with the number of its
    /// call. If there are no more calls than that, all are waited for.
    ///
    /// # Errors
    ///
    /// [`TooFew`] as soon as too many calls have failed.
    pub async fn first(self, wanted: usize) -> Result<Vec<(usize, Reply)>, TooFew> {
        let mut waiting = self.begin();
        let (mut good, mut failed) = (Vec::new(), 0);
        let calls = waiting.len();
        let wanted = wanted.min(calls);
        poll_fn(|context| {
            if good.len() >= wanted {
                return Poll::Ready(Ok(()));
            }
            for (call, slot) in waiting.iter_mut().enumerate() {
                match poll_slot(slot, context) {
                    Some(Ok(reply)) => good.push((call, reply)),
                    Some(Err(failure)) => {
                        failed += 1;
                        if calls - failed < wanted {
                            return Poll::Ready(Err(TooFew { call, calls, failure }));
                        }
                    }
                    None => {}
                }
                if good.len() == wanted {
                    return Poll::Ready(Ok(()));
                }
            }
            Poll::Pending
        })
        .await?;
        Ok(good)
    }

    /// What became of each call, in their order.
    pub async fn each(self) -> Vec<Result<Reply, Failure>> {
        let mut waiting = self.begin();
        let mut results: Vec<_> = waiting.iter().map(|_| None).collect();
        poll_fn(|context| {
            for (slot, result) in waiting.iter_mut().zip(&mut results) {
                if let Some(done) = poll_slot(slot, context) {
                    *result = Some(done);
                }
            }
            if waiting.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        results.into_iter().flatten().collect()
    }

    fn begin(self) -> Vec<Option<Calling>> {
        let deadline = self.deadline;
        let within = |call: Call| match deadline {
            Some(deadline) => call.deadline(deadline),
            None => call,
        };
        self.calls.into_iter().map(|call| Some(within(call).into_future())).collect()
    }
}

/// The result of a call that was out until now.
fn poll_slot(
    slot: &mut Option<Calling>,
    context: &mut Context<'_>,
) -> Option<Result<Reply, Failure>> {
    let calling = slot.as_mut()?;
    let Poll::Ready(result) = Pin::new(calling).poll(context) else { return None };
    *slot = None;
    Some(result)
}
