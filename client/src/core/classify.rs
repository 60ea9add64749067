//! What replies are worth.

use core::fmt;
use std::sync::Arc;

use bowline_protocol::{Freshness, Status};

/// What a reply is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is the call's result.
    Good,
    /// It is an error, and no other replica would say otherwise: it ends the call at once.
    Fatal,
    /// It is an error, and another copy may do better. It is held back while one lives.
    Retryable,
    /// It is older than the caller can use. The same; if nobody does better, the call's error says
    /// that it is stale.
    Stale,
}

impl Verdict {
    /// Unless a [`Classifier`] knows better: a failure of the replica may be bettered elsewhere; a
    /// request that can't be meant is fatal, and so is an error of the service's own. That is an
    /// answer ("not found"), which other replicas would repeat, each for a token; were it not, a load
    /// of such answers would run everywhere and leave no tokens for the slow. A service whose
    /// replicas differ says which of its errors are worth asking elsewhere.
    pub const fn of(status: Status) -> Verdict {
        match status {
            Status::Ok => Verdict::Good,
            Status::NoSuchMethod | Status::BadRequest | Status::TooLarge | Status::App(_) => {
                Verdict::Fatal
            }
            Status::Failed => Verdict::Retryable,
            Status::Stale => Verdict::Stale,
        }
    }
}

/// What a reply brought beside its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Brought<'a> {
    /// How fresh it is, if it says so.
    pub fresh: Option<Freshness>,
    /// Its payload, which is shown to the classifier.
    pub payload: &'a [u8],
}

type Judge = dyn Fn(Status, &[u8]) -> Verdict + Send + Sync;

/// Says what a method's replies are worth, by status and payload: only a good one wins.
///
/// ```
/// use bowline_client::core::{Classifier, Verdict};
/// use bowline_protocol::Status;
///
/// // A block begins with its checksum; one that is damaged here may be sound elsewhere.
/// let sound = |block: &[u8]| block.first() == Some(&7);
/// let blocks = Classifier::new(move |status, payload| match Verdict::of(status) {
///     Verdict::Good if !sound(payload) => Verdict::Retryable,
///     verdict => verdict,
/// });
/// assert_eq!(blocks.judge(Status::Ok, &[7, 1]), Verdict::Good);
/// assert_eq!(blocks.judge(Status::Ok, &[8, 1]), Verdict::Retryable);
/// ```
///
/// It is called once for each reply to a call that waits, on the core's own thread, and so has to be
/// quick. It shall not panic: that ends the client's core.
#[derive(Clone, Default)]
pub struct Classifier(Option<Arc<Judge>>);

impl Classifier {
    /// By this. The default is [`Verdict::of`].
    pub fn new(judge: impl Fn(Status, &[u8]) -> Verdict + Send + Sync + 'static) -> Classifier {
        Classifier(Some(Arc::new(judge)))
    }

    /// By the numbers of the service's own errors; all else is as [`Verdict::of`] says.
    pub fn by_error(verdicts: Vec<(u16, Verdict)>) -> Classifier {
        Classifier::new(move |status, _| {
            let known = verdicts.iter().find(|&&(number, _)| status == Status::App(number));
            known.map_or(Verdict::of(status), |&(_, verdict)| verdict)
        })
    }

    /// This, or the other where this is the default.
    pub(crate) fn or<'a>(&'a self, other: &'a Classifier) -> &'a Classifier {
        if self.0.is_some() { self } else { other }
    }

    /// What a reply is worth.
    pub fn judge(&self, status: Status, payload: &[u8]) -> Verdict {
        match &self.0 {
            Some(judge) => judge(status, payload),
            None => Verdict::of(status),
        }
    }
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Classifier(..)" } else { "Classifier::default()" })
    }
}
