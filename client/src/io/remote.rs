//! Calls from other threads, and other executors.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_protocol::{
    Error, ErrorKind, Executed, Freshness, Label, Method, MethodInfo, OptionSet, TraceContext,
    TrafficClass,
};
use bowline_runtime::{Handle, Lost, Notify, RemoteHandle};

use super::call::{Call, Calling};
use super::client::Client;
use super::config::{Config, ConnectError};
use super::numbers::{Numbers, Snapshot};
use super::reply::{Failure, Reply, debug_failure, version, write_error};
use super::shell::Answer;
use crate::core::{Counters, Outcome};

/// A client for any thread: calls are made on Bowline's cores, and can be awaited in any executor.
///
/// ```no_run
/// use bowline_client::{Config, Remote, Replica};
/// use bowline_protocol::Method;
/// use bowline_runtime::Runtime;
///
/// # async fn somewhere_in_a_tokio_program() -> Result<(), Box<dyn std::error::Error>> {
/// let cores = Runtime::builder().cores([0], |_| std::future::pending::<()>())?;
/// let replica = Replica::new(1, "10.0.0.1:7000".parse()?);
/// let client = Remote::connect(cores.handles(), Config::new([replica])).await?;
/// let block = client.call(Method(1), 9u64.to_le_bytes()).await?;
/// println!("{} bytes", block.payload.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
}

struct Inner {
    /// The cores, and what the client is called on each.
    cores: Vec<(Handle, u64)>,
    config: Config,
    turn: AtomicU64,
}

/// A reply that may go anywhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteReply {
    /// The payload.
    pub payload: Vec<u8>,
    /// Where it came from, if the service says so.
    pub label: Option<Label>,
    /// How fresh it is, if the service says so.
    pub fresh: Option<Freshness>,
    /// It is older than was asked: see [`Call::or_older`](super::Call::or_older).
    pub older: bool,
    /// What it took.
    pub outcome: Outcome,
}

/// A call that failed.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteFailure {
    /// What happened, whether it ran, and whether it is worth asking again.
    pub error: Error,
    /// As [`Failure::payload`].
    pub payload: Vec<u8>,
    /// What it took; None if the call was not begun.
    pub outcome: Option<Outcome>,
}

impl RemoteFailure {
    /// A call that was not begun, or whose reply could not be read.
    pub(super) const fn of(error: Error) -> RemoteFailure {
        RemoteFailure { error, payload: Vec::new(), outcome: None }
    }
}

impl RemoteReply {
    /// As [`Reply::version`](super::Reply::version).
    pub fn version(&self) -> Option<u64> {
        version(self.fresh)
    }
}

impl AsRef<[u8]> for RemoteReply {
    fn as_ref(&self) -> &[u8] {
        &self.payload
    }
}

impl fmt::Display for RemoteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_error(f, &self.error, &self.payload)
    }
}

/// As `main` prints what it returns: with what was said of the error.
impl fmt::Debug for RemoteFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_failure(f, "RemoteFailure", self, &self.payload, self.outcome.as_ref())
    }
}

impl std::error::Error for RemoteFailure {}

/// What one core keeps for other threads.
#[derive(Default)]
struct Local {
    clients: HashMap<u64, Client>,
    /// Calls that are under way, to be cancelled.
    calls: HashMap<u64, Rc<Notify>>,
}

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::default();
}

/// Names clients and calls; no two are alike within the process.
static NAMES: AtomicU64 = AtomicU64::new(1);

fn name() -> u64 {
    NAMES.fetch_add(1, Relaxed)
}

impl Remote {
    /// Connects a client on each of these cores. They share the configuration's budget.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] of the first core that could not.
    pub async fn connect(cores: &[Handle], config: Config) -> Result<Remote, ConnectError> {
        config.tell()?;
        let turn = AtomicU64::new(0);
        let mut inner = Inner { cores: Vec::new(), config: config.clone(), turn };
        // Dropped before `inner`, which has the clients removed: a client that connects only after
        // that finds that nobody wants it.
        let wanted = Arc::new(());
        for core in cores {
            let (config, name) = (config.clone(), name());
            let wanted = Arc::downgrade(&wanted);
            inner.cores.push((core.clone(), name));
            let connected = core.spawn(move || async move {
                let client = Client::connect_one(config).await?;
                if wanted.strong_count() > 0 {
                    LOCAL.with_borrow_mut(|local| local.clients.insert(name, client));
                }
                Ok::<(), ConnectError>(())
            });
            connected.await.map_err(|_| ConnectError::NoCore)??;
        }
        if inner.cores.is_empty() {
            return Err(ConnectError::NoCore);
        }
        Ok(Remote { inner: Arc::new(inner) })
    }

    /// A call to be awaited, on the next core in turn.
    pub fn call(&self, method: Method, payload: impl Into<Vec<u8>>) -> RemoteCall {
        let turn = self.inner.turn.fetch_add(1, Relaxed) as usize % self.inner.cores.len();
        RemoteCall {
            remote: self.clone(),
            core: turn,
            method,
            payload: payload.into(),
            deadline: None,
            shard_key: None,
            key: None,
            options: OptionSet::NONE,
            idempotent: false,
            makes_do: false,
            promises: None,
        }
    }

    /// What has happened so far, on each core.
    ///
    /// # Errors
    ///
    /// [`Lost`] if a core has ended, or is swamped.
    pub async fn counters(&self) -> Result<Vec<Counters>, Lost> {
        self.ask(|_, client| client.counters()).await
    }

    /// All that is known, on each core.
    ///
    /// # Errors
    ///
    /// As [`Remote::counters`].
    pub async fn snapshots(&self) -> Result<Vec<Snapshot>, Lost> {
        self.ask(|_, client| client.snapshot()).await
    }

    /// As [`Client::publish`], on each core, under the numbers from 0 on in the order in which they
    /// were given.
    ///
    /// # Errors
    ///
    /// As [`Remote::counters`].
    pub async fn publish(&self, numbers: &Numbers, every: Duration) -> Result<(), Lost> {
        let numbers = numbers.clone();
        self.ask(move |core, client| client.publish(&numbers, core, every)).await?;
        Ok(())
    }

    /// As [`Client::config`]: all cores follow the same.
    pub fn config(&self) -> Config {
        self.inner.config.current()
    }

    /// What the client on each core answers, with the number of its core.
    async fn ask<T: Send + 'static>(
        &self,
        what: impl Fn(usize, &Client) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Lost> {
        let mut all = Vec::new();
        for (number, &(ref core, name)) in self.inner.cores.iter().enumerate() {
            let what = what.clone();
            let asked =
                core.spawn(move || async move { find(name).map(|client| what(number, &client)) });
            all.push(asked.await?.ok_or(Lost::Ended)?);
        }
        Ok(all)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for (core, name) in self.cores.drain(..) {
            core.order(move || {
                let client = LOCAL.with_borrow_mut(|local| local.clients.remove(&name));
                drop(client);
            });
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("cores", &self.inner.cores.len()).finish()
    }
}

fn find(name: u64) -> Option<Client> {
    LOCAL.with_borrow(|local| local.clients.get(&name).cloned())
}

/// A call that is being described; awaiting it makes it. Its method's settings hold, as the
/// configuration has them.
#[must_use = "a call does nothing unless awaited"]
pub struct RemoteCall {
    remote: Remote,
    core: usize,
    method: Method,
    payload: Vec<u8>,
    deadline: Option<Duration>,
    shard_key: Option<u64>,
    key: Option<u128>,
    /// All but the key, whose fingerprint is the payload's.
    options: OptionSet,
    idempotent: bool,
    makes_do: bool,
    /// What its service promises of the method.
    promises: Option<&'static MethodInfo>,
}

impl RemoteCall {
    /// With what its service promises of the method.
    pub(super) const fn promised(mut self, method: &'static MethodInfo) -> RemoteCall {
        self.promises = Some(method);
        self
    }

    /// It must be done within this time.
    pub fn deadline(mut self, within: Duration) -> RemoteCall {
        self.deadline = Some(within);
        self
    }

    /// What it is about, which decides the order in which the replicas are asked.
    pub fn shard_key(mut self, key: u64) -> RemoteCall {
        self.shard_key = Some(key);
        self
    }

    /// As [`Call::key`](super::Call::key).
    pub fn key(mut self, id: u128) -> RemoteCall {
        self.key = Some(id);
        self
    }

    /// As [`Call::class`](super::Call::class).
    pub fn class(mut self, class: TrafficClass) -> RemoteCall {
        self.options.class = Some(class);
        self
    }

    /// As [`Call::at_least`](super::Call::at_least).
    pub fn at_least(self, version: u64) -> RemoteCall {
        self.fresh(Freshness::version(version))
    }

    /// As [`Call::at_most_stale`](super::Call::at_most_stale).
    pub fn at_most_stale(self, staleness: Duration) -> RemoteCall {
        self.fresh(Freshness::within(staleness))
    }

    fn fresh(mut self, asked: Freshness) -> RemoteCall {
        self.options.fresh = Some(self.options.fresh.map_or(asked, |known| known.and(asked)));
        self
    }

    /// As [`Call::or_older`](super::Call::or_older).
    pub fn or_older(mut self) -> RemoteCall {
        self.makes_do = true;
        self
    }

    /// As [`Call::trace`](super::Call::trace).
    pub fn trace(mut self, trace: TraceContext) -> RemoteCall {
        self.options.trace = Some(trace);
        self
    }

    /// As [`Call::label`](super::Call::label).
    pub fn label(mut self, label: Label) -> RemoteCall {
        self.options.label = Some(label);
        self
    }

    /// Running it twice does no harm.
    pub fn idempotent(mut self) -> RemoteCall {
        self.idempotent = true;
        self
    }
}

impl RemoteCall {
    /// The same, on its core.
    fn on(self, client: &Client) -> Call {
        let mut call = client.call(self.method, self.payload).options(self.options);
        if let Some(deadline) = self.deadline {
            call = call.deadline(deadline);
        }
        if let Some(key) = self.shard_key {
            call = call.shard_key(key);
        }
        if let Some(key) = self.key {
            call = call.key(key);
        }
        if self.idempotent {
            call = call.idempotent();
        }
        if self.makes_do {
            call = call.or_older();
        }
        match self.promises {
            Some(method) => call.promised(method),
            None => call,
        }
    }
}

type Answered = Result<RemoteReply, RemoteFailure>;

impl IntoFuture for RemoteCall {
    type Output = Answered;
    type IntoFuture = RemoteCalling;

    fn into_future(self) -> RemoteCalling {
        let (handle, client) = self.remote.inner.cores[self.core].clone();
        let (name, remote) = (name(), self.remote.clone());
        let answer = handle.spawn(move || async move {
            let Some(client) = find(client) else { return Err(closed()) };
            until_cancelled(name, self.on(&client).into_future()).await
        });
        RemoteCalling { core: handle, name, answer, done: false, _remote: remote }
    }
}

/// The future of a [`RemoteCall`]. The call is under way already; dropping the future cancels it.
#[must_use = "dropping it cancels the call"]
pub struct RemoteCalling {
    core: Handle,
    name: u64,
    answer: RemoteHandle<Answered>,
    done: bool,
    /// The client lives as long as its calls.
    _remote: Remote,
}

impl Future for RemoteCalling {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answered> {
        let answer = Pin::new(&mut self.answer).poll(context);
        self.done = answer.is_ready();
        answer.map(|answer| answer.unwrap_or_else(|lost| Err(never_answered(lost))))
    }
}

impl Drop for RemoteCalling {
    fn drop(&mut self) {
        if !self.done {
            let name = self.name;
            self.core.order(move || {
                let call = LOCAL.with_borrow(|local| local.calls.get(&name).cloned());
                call.iter().for_each(|call| call.notify());
            });
        }
    }
}

fn closed() -> RemoteFailure {
    never_answered(Lost::Ended)
}

fn never_answered(lost: Lost) -> RemoteFailure {
    let error = match lost {
        Lost::Ended => Error::new(ErrorKind::Closed, Executed::Unknown),
        // The core was swamped, and has not even heard of the call.
        Lost::Refused => Error::new(ErrorKind::TooManyCalls, Executed::No),
    };
    RemoteFailure { error, payload: Vec::new(), outcome: None }
}

/// The call's result, unless the thread that wanted it lets go of it first.
async fn until_cancelled(name: u64, calling: Calling) -> Answered {
    let cancel = Rc::new(Notify::new());
    LOCAL.with_borrow_mut(|local| local.calls.insert(name, cancel.clone()));
    let result = {
        let (mut calling, mut cancelled) = (pin!(calling), pin!(cancel.notified()));
        poll_fn(|context| match calling.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => cancelled.as_mut().poll(context).map(|()| None),
        })
        .await
    };
    LOCAL.with_borrow_mut(|local| local.calls.remove(&name));
    match result {
        Some(Ok(reply)) => Ok(send_reply(reply)),
        Some(Err(failure)) => Err(send_failure(failure)),
        None => Err(closed()),
    }
}

fn send_reply(reply: Reply) -> RemoteReply {
    let Answer { label, fresh, .. } = reply.answer;
    let (older, outcome) = (reply.is_older, reply.outcome);
    RemoteReply { label, fresh, older, outcome, payload: reply.into_vec() }
}

fn send_failure(failure: Failure) -> RemoteFailure {
    let payload = failure.payload().to_vec();
    RemoteFailure { error: *failure.error(), payload, outcome: failure.outcome().copied() }
}
