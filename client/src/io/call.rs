use std::future::IntoFuture;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_protocol::{
    Error, ErrorKind, Executed, Freshness, Key, Label, Method, MethodInfo, OptionSet, Parent,
    TraceContext, TrafficClass, options,
};
use bowline_runtime::Instant;
use bowline_runtime::payload::Payload;

use super::client::Shared;
use super::explain::Shape;
use super::reply::{Failure, Reply};
use super::shell::Age;
use super::within::Within;
use crate::core::{CallKey, PolicyId, Spec};

/// A call that is being described; awaiting it makes it.
#[must_use = "a call does nothing unless awaited"]
pub struct Call {
    shared: Rc<Shared>,
    method: Method,
    payload: Payload,
    policy: Option<PolicyId>,
    shard_key: Option<u64>,
    options: OptionSet,
    idempotent: bool,
    single: bool,
    from_extra: bool,
    age: Age,
    deadline: Option<Duration>,
    /// When its parent's caller stops waiting.
    until: Instant,
    /// With less time than this it is not made.
    least: Duration,
}

impl Call {
    pub(super) fn new(shared: Rc<Shared>, method: Method, payload: &[u8]) -> Call {
        let payload = shared.shell.pool.copy(payload);
        Call::of(shared, method, payload)
    }

    pub(super) const fn of(shared: Rc<Shared>, method: Method, payload: Payload) -> Call {
        Call {
            shared,
            method,
            payload,
            policy: None,
            shard_key: None,
            options: OptionSet::NONE,
            idempotent: false,
            single: false,
            from_extra: false,
            age: Age::Asked,
            deadline: None,
            until: Instant::FAR_FUTURE,
            least: Duration::ZERO,
        }
    }

    /// With what its service promises of the method.
    pub(super) fn promised(mut self, method: &MethodInfo) -> Call {
        self.idempotent |= method.idempotent;
        self.least = method.least_useful;
        self.options.class = self.options.class.or(method.cost);
        self.single |= !method.may_duplicate(self.payload.len());
        self
    }

    /// It must be done within this time, counted from when it is first awaited.
    pub fn deadline(mut self, within: Duration) -> Call {
        self.deadline = Some(within);
        self
    }

    /// What is done against its tail, in place of what the configuration says of its method. What it
    /// says of replies and of the number of copies holds still, unless this policy was
    /// [registered](super::Client::register_with) with a view of its own.
    pub fn policy(mut self, policy: PolicyId) -> Call {
        self.policy = Some(policy);
        self
    }

    /// What it is about: this, and not the rule, decides which replica is asked first, and which
    /// next. Calls with one shard key begin at one replica, whatever their policy and whoever makes them.
    pub fn shard_key(mut self, key: u64) -> Call {
        self.shard_key = Some(key);
        self
    }

    /// Names what it is to bring about, so that a service which keeps its results by such keys
    /// brings it about once, however often the call is made: 128 bits, drawn at random or derived
    /// from what the call does. The payload's fingerprint goes along, so that a key that was used
    /// again by mistake is refused.
    ///
    /// By itself it makes no call idempotent. A call that has a key and is not is sent again once it
    /// may have run, and has second copies, only at replicas that keep the results of its method, and
    /// of those only at one and the same, or at such as share a store of results
    /// ([`Replica::results`](field@super::Replica::results)): anywhere else its effect would be had once
    /// more. A replica that understands no options gets the call without this, and so do all options
    /// below.
    pub fn key(mut self, id: u128) -> Call {
        let fingerprint = options::fingerprint(&self.payload);
        self.options.key = Some(Key { id, fingerprint });
        self
    }

    /// All options but the key.
    pub(super) fn options(mut self, options: OptionSet) -> Call {
        self.options = options;
        self
    }

    /// Which queue and which delays it belongs to.
    pub fn class(mut self, class: TrafficClass) -> Call {
        self.options.class = Some(class);
        self
    }

    /// Its result has to be of this version at least: of one's own last write, say, of which
    /// [`Reply::version`] told. Replicas that are known to be behind are asked only for want of others;
    /// a reply that is not as fresh, or does not say so, is none, whichever copy it answers. If there is
    /// no other, the call fails as [stale](bowline_protocol::ErrorKind::Stale): so do all, where the
    /// service never says how fresh it is. It says so by `Service::freshness` (a declared one by
    /// `Holding`), or reply by reply by `Context::date_reply`, as whatever writes has to.
    pub fn at_least(self, version: u64) -> Call {
        self.fresh(Freshness::version(version))
    }

    /// The same for a result in which what was written may be missing for so long at most. What the
    /// configuration says of the method holds besides.
    pub fn at_most_stale(self, staleness: Duration) -> Call {
        self.fresh(Freshness::within(staleness))
    }

    fn fresh(mut self, asked: Freshness) -> Call {
        self.options.fresh = Some(self.options.fresh.map_or(asked, |known| known.and(asked)));
        self
    }

    /// For who would rather have a result that is older than the call asks than none. If it fails, for
    /// whatever reason, and such results came, the freshest of those is its result; if none did, since
    /// the replicas knew themselves behind, the call is made once more and takes what comes. That is only
    /// if none of its copies can have run, whoever holds it to be idempotent: so nothing runs twice for it,
    /// nor without a token. The reply [says so](Reply::is_older), and how fresh it is; the call that failed
    /// counts as failed all the same.
    pub fn or_older(mut self) -> Call {
        self.age = Age::OrOlder;
        self
    }

    /// The trace that it belongs to.
    pub fn trace(mut self, trace: TraceContext) -> Call {
        self.options.trace = Some(trace);
        self
    }

    /// Whom it is for (a tenant): one of a few words, by which metrics may be kept apart.
    pub fn label(mut self, label: Label) -> Call {
        self.options.label = Some(label);
        self
    }

    /// Running it twice does no harm. This counts among replicas none of which says otherwise of its
    /// method: no copy is sent beside one that may have run at one that does, and none there.
    pub fn idempotent(mut self) -> Call {
        self.idempotent = true;
        self
    }

    /// It is made on behalf of another, whose handler's context this is: it has no more time than
    /// that has left, ends when nobody needs that any more, belongs to the same trace unless it
    /// says another, and has no second copies if that is itself one, so that amplification does not
    /// multiply.
    pub fn within<P: Parent>(mut self, parent: &P) -> Within<'_, P> {
        self.until = parent.deadline();
        self.from_extra |= parent.is_extra();
        self.options.trace = self.options.trace.or_else(|| parent.trace());
        Within::new(self, parent)
    }

    /// It is made inside a handler that itself runs as an extra copy: it gets none of its own.
    pub fn from_extra(mut self, is: bool) -> Call {
        self.from_extra = is;
        self
    }
}

impl IntoFuture for Call {
    type Output = Result<Reply, Failure>;
    type IntoFuture = Calling;

    fn into_future(self) -> Calling {
        let shared = self.shared.clone();
        let size = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        let shape = Shape { method: self.method, size };
        Calling { shared, shape, described: Some(self), waiting: None, last_resort: None }
    }
}

/// The future of a [`Call`]. Dropping it cancels the call on the wire.
#[must_use = "futures do nothing unless awaited"]
pub struct Calling {
    shared: Rc<Shared>,
    shape: Shape,
    /// Until it is first polled.
    described: Option<Call>,
    /// From then on, while it has no result.
    waiting: Option<(usize, CallKey)>,
    /// The same without a demand of freshness, for who makes do with less.
    last_resort: Option<Box<Spec<Payload>>>,
}

impl Future for Calling {
    type Output = Result<Reply, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(call) = this.described.take() {
            match this.begin(call, context) {
                Ok(waiting) => this.waiting = Some(waiting),
                Err(error) => {
                    let failure = this.shared.explain(this.shape, Failure::of(error));
                    return Poll::Ready(Err(failure));
                }
            }
        }
        let Some((place, _)) = this.waiting else {
            panic!("a call is awaited again after it was done")
        };
        let result = this.shared.shell.poll(place, context);
        if result.is_ready() {
            this.waiting = None;
        }
        match result {
            Poll::Ready(Err(failure)) => {
                this.make_do(this.shared.explain(this.shape, failure), context)
            }
            result => result,
        }
    }
}

impl Calling {
    fn begin(&mut self, call: Call, context: &Context<'_>) -> Result<(usize, CallKey), Error> {
        let shell = &self.shared.shell;
        let now = shell.now();
        let defaults = shell.state.borrow().methods.find(call.method, call.options.class);
        let within = call.deadline.unwrap_or(defaults.deadline);
        if within < call.least {
            return Err(Error::new(ErrorKind::DeadlineExceeded, Executed::No));
        }
        let asked = [call.options.fresh, defaults.fresh].into_iter().flatten();
        let fresh = asked.reduce(Freshness::and);
        let spec = Spec {
            method: call.method,
            payload: call.payload,
            size: self.shape.size,
            deadline: call.until.min(now + within),
            policy: call.policy.unwrap_or(defaults.policy),
            instead_of: defaults.policy,
            shard_key: call.shard_key,
            options: OptionSet { fresh, ..call.options },
            idempotent: call.idempotent || defaults.idempotent,
            single: call.single,
            from_extra: call.from_extra,
            tag: 0,
        };
        if call.age == Age::OrOlder {
            let options = OptionSet { fresh: None, ..spec.options };
            self.last_resort = Some(Box::new(Spec { options, ..spec.clone() }));
        }
        shell.start(spec, call.age, now, context)
    }

    /// No replica had a result that is as fresh as was asked, nor one that is older, as those which
    /// knew that they are behind did not run the call. They do if nothing is asked.
    fn make_do(&mut self, failure: Failure, context: &Context<'_>) -> Poll<Result<Reply, Failure>> {
        let Error { kind, executed, .. } = *failure.error();
        let never_ran = kind == ErrorKind::Stale && executed == Executed::No;
        let Some(spec) = self.last_resort.take().filter(|_| never_ran) else {
            return Poll::Ready(Err(failure));
        };
        let shell = &self.shared.shell;
        match shell.start(*spec, Age::Any, shell.now(), context) {
            Ok(waiting) => {
                self.waiting = Some(waiting);
                Poll::Pending
            }
            Err(_) => Poll::Ready(Err(failure)),
        }
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        if let Some((place, call)) = self.waiting {
            self.shared.shell.forget(place, call);
        }
    }
}
