//! What a user writes: a service, and what its handlers return.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::vec::Vec;

use bowline_protocol::service::ServiceError;
use bowline_protocol::{Freshness, Method, ServiceInfo, Status};
use bowline_runtime::payload::Payload;

use super::context::Context;

/// Anything with methods that can be called.
///
/// Each core of a server has a service value of its own, which never leaves the core's thread: what
/// its handlers share they share without locks.
pub trait Service: 'static {
    /// What a handler answers with: any owned bytes, such as a `Vec<u8>`, a `Box<[u8]>`, the
    /// request's [`Payload`] itself, or a buffer that a file was read into.
    type Reply: Deref<Target = [u8]>;

    /// The methods: their numbers and names, and what may be done with them.
    fn info(&self) -> ServiceInfo;

    /// Runs one copy of one call. Only methods of [`Service::info`] get here, and never more copies
    /// at once than the core has slots.
    ///
    /// # Errors
    ///
    /// What the caller is told instead of a reply.
    fn call(
        &self,
        context: Context,
        request: Payload,
    ) -> impl Future<Output = Result<Self::Reply, Failure>>;

    /// Tells whoever wants to run a copy of this method its handler, as a type. By default there is
    /// one for all methods, [`Service::call`], whose future is as large as that of the largest: so is
    /// the memory that each running copy takes. A service with a method that needs much more than
    /// the others (some KiB across an await) has a [`Handler`] for each, as a
    /// [declared](super::Typed) one has by itself: then each copy takes what its own method needs.
    ///
    /// That memory is of the runtime's blocks for tasks, which are kept and used again by whatever
    /// has their size, up to 16 KiB: in steady state no call allocates any. (A larger future is
    /// allocated for each call; what is large had better be boxed, or borrowed, by its handler.)
    fn with_handler<W: WithHandler<Self>>(method: Method, with: W)
    where
        Self: Sized,
    {
        let _ = method;
        with.handler::<AnyMethod>();
    }

    /// Whether a handler of this method may be dropped at any of its awaits, once nobody needs its
    /// answer any more. By default none may: a handler then runs to its end, unless it looks at
    /// [`Context::is_cancelled`] by itself. (One that stops so may return [`Failure::stopped`] or any
    /// other failure: of a copy that was asked to stop, it is taken for its stopping.)
    ///
    /// Methods that are tied should be interruptible, or look. When both copies start at once, the
    /// secondary is to give way; where it can't, both do the whole work. Then two replicas whose
    /// copies take equally long go on to start the next call at the same moment, and the next: they
    /// march in step, and do everything twice until their queues run empty.
    fn interruptible(&self, method: Method) -> bool {
        let _ = method;
        false
    }

    /// What this replica holds now, as far as it knows; it is asked once in each turn of the loop, and
    /// when a request comes that asks.
    /// Replies say so, and a request that asks for more is refused without a start, so that its
    /// caller goes elsewhere. By default it is not known, and left to the handlers:
    /// [`Context::date_reply`].
    ///
    /// Of the two, version and staleness, one may be known alone: what is asked of the other is left
    /// to the handlers. (So a log whose version is known and that is empty is of version 1, not 0.)
    ///
    /// A staleness is an upper bound: what was written longer ago is here. A replica that hears
    /// nothing of its source any more has to let it grow.
    ///
    /// A reply of an idempotent method says what was held when its handler was started: what that
    /// read is of this freshness or better. What it *wrote* is not in there yet: a handler that writes
    /// says the version of its write itself, by [`Context::date_reply`], or callers who read what
    /// they wrote may not find it. A reply of any other method, which may well write, says of what
    /// was held no more than its caller asked for.
    ///
    /// A panic in here is none of a handler's, and ends the core.
    fn freshness(&self) -> Option<Freshness> {
        None
    }
}

/// What runs the copies of a method of a service: [`Service::with_handler`].
pub trait Handler<S: Service>: 'static {
    /// Runs one copy of one call, as [`Service::call`] does.
    ///
    /// # Errors
    ///
    /// What the caller is told instead of a reply.
    fn call(
        service: &S,
        context: Context,
        request: Payload,
    ) -> impl Future<Output = Result<S::Reply, Failure>>;
}

/// Whoever is told the handler of a method: [`Service::with_handler`].
pub trait WithHandler<S: Service> {
    /// It is this one.
    fn handler<H: Handler<S>>(self);
}

/// The handler of all methods: [`Service::call`].
#[derive(Clone, Copy, Debug)]
pub struct AnyMethod;

impl<S: Service> Handler<S> for AnyMethod {
    fn call(
        service: &S,
        context: Context,
        request: Payload,
    ) -> impl Future<Output = Result<S::Reply, Failure>> {
        service.call(context, request)
    }
}

/// A service that says what it holds: for one that can't itself, as a [declared](super::Typed) one.
///
/// ```
/// use bowline_protocol::Freshness;
/// use bowline_server::{Service, io::Holding};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// /// `applied` is the last entry of the log that was applied, on whatever thread.
/// fn holding<S: Service>(service: S, applied: Arc<AtomicU64>) -> impl Service {
///     Holding(service, move || Some(Freshness::version(applied.load(Relaxed))))
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Holding<S, F>(pub S, pub F);

impl<S: Service, F: Fn() -> Option<Freshness> + 'static> Service for Holding<S, F> {
    type Reply = S::Reply;

    fn info(&self) -> ServiceInfo {
        self.0.info()
    }

    fn call(
        &self,
        context: Context,
        request: Payload,
    ) -> impl Future<Output = Result<S::Reply, Failure>> {
        self.0.call(context, request)
    }

    fn with_handler<W: WithHandler<Self>>(method: Method, with: W) {
        S::with_handler(method, Held(with, PhantomData));
    }

    fn interruptible(&self, method: Method) -> bool {
        self.0.interruptible(method)
    }

    fn freshness(&self) -> Option<Freshness> {
        self.1()
    }
}

/// A handler of the service inside, and whoever is told of it.
struct Held<T, F>(T, PhantomData<F>);

impl<S, F, W> WithHandler<S> for Held<W, F>
where
    S: Service,
    F: Fn() -> Option<Freshness> + 'static,
    W: WithHandler<Holding<S, F>>,
{
    fn handler<H: Handler<S>>(self) {
        self.0.handler::<Held<H, F>>();
    }
}

impl<S, F, H> Handler<Holding<S, F>> for Held<H, F>
where
    S: Service,
    F: Fn() -> Option<Freshness> + 'static,
    H: Handler<S>,
{
    fn call(
        service: &Holding<S, F>,
        context: Context,
        request: Payload,
    ) -> impl Future<Output = Result<S::Reply, Failure>> {
        H::call(&service.0, context, request)
    }
}

/// Why a handler has no reply.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    /// None: it stopped, as it was asked to.
    pub(super) status: Option<Status>,
    pub(super) payload: Vec<u8>,
}

impl Failure {
    /// The service's own error, by its own number.
    pub const fn app(number: u16) -> Failure {
        Failure { status: Some(Status::App(number)), payload: Vec::new() }
    }

    /// The request is not one that this method understands; nothing was done.
    pub fn bad_request(why: &str) -> Failure {
        Failure { status: Some(Status::BadRequest), payload: why.as_bytes().to_vec() }
    }

    /// The service can't do it now, or some of it was done and the rest can't be.
    ///
    /// ```
    /// use bowline_server::Failure;
    ///
    /// let failure = Failure::failed("the disk \"ä\" is full");
    /// assert_eq!(failure.to_string(), "Failed: the disk \"ä\" is full");
    /// ```
    pub fn failed(why: &str) -> Failure {
        Failure { status: Some(Status::Failed), payload: why.as_bytes().to_vec() }
    }

    /// The handler stopped before it was done, since the context said that nobody waits.
    pub const fn stopped() -> Failure {
        Failure { status: None, payload: Vec::new() }
    }

    /// With bytes for the caller: whatever the service's error number promises.
    #[must_use]
    pub fn with_payload(self, payload: Vec<u8>) -> Failure {
        Failure { payload, ..self }
    }

    /// What the caller is told; None if the handler stopped, as it was asked to.
    pub const fn status(&self) -> Option<Status> {
        self.status
    }

    /// The bytes for the caller. Where the status is not the service's own they are text.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => ServiceError::of(status, self.payload.clone()).fmt(f),
            None => f.write_str("stopped, as nobody waits"),
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failure({self})")
    }
}

impl std::error::Error for Failure {}
