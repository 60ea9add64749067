//! A service that does what a test tells it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bowline_protocol::{Label, LinkConfig, Method, MethodInfo, Parent, ReplicaId, ServiceInfo};
use bowline_runtime::{clock_now, sleep};
use bowline_server::io::{Builder, Running};
use bowline_server::{Context, Failure, Payload, Server, Service};

use crate::{PATIENCE, ear, eventually};

/// Answers at once, with what it was sent.
pub(crate) const ECHO: Method = Method(1);
/// Answers when the test opens the gate; the core goes on meanwhile.
pub(crate) const HOLD: Method = Method(2);
/// Blocks the core's whole thread, once the test closes it in, until the gate opens.
pub(crate) const STALL: Method = Method(3);
/// Panics.
pub(crate) const PANIC: Method = Method(4);
/// Fails with the service's error 7.
pub(crate) const FAIL: Method = Method(5);
/// As HOLD, but may be dropped at its await.
pub(crate) const YIELD: Method = Method(6);
/// Answers with as many bytes as the request's four bytes say.
pub(crate) const BLOW: Method = Method(7);
/// As HOLD, but stops by itself when it is cancelled.
pub(crate) const LOOK: Method = Method(8);
/// Must not run twice.
pub(crate) const ONCE: Method = Method(9);

/// Answers with how often the core's thread has allocated.
pub(crate) const COUNT: Method = Method(10);
/// Answers with what the handler is told of its copy, and says that it was "told".
pub(crate) const TELL: Method = Method(11);
/// Has its core's spans kept from now on, and answers with those that there were so far.
pub(crate) const LISTEN: Method = Method(12);
/// Answers with what the handler is told of its time, in microseconds: how much is left, by the
/// remaining time and by the deadline, and how long it waited.
pub(crate) const TIMES: Method = Method(13);
/// Answers with how many bytes the core's thread has allocated and not freed.
pub(crate) const WEIGH: Method = Method(14);

const fn method(number: Method, name: &'static str, idempotent: bool) -> MethodInfo {
    let duplicable = if idempotent { Some(1 << 20) } else { None };
    MethodInfo { idempotent, duplicable, ..MethodInfo::new(number, name) }
}

const INFO: ServiceInfo = ServiceInfo {
    name: "test",
    methods: &[
        method(ECHO, "echo", true),
        method(HOLD, "hold", true),
        method(STALL, "stall", true),
        method(PANIC, "panic", true),
        method(FAIL, "fail", true),
        method(YIELD, "yield", true),
        method(BLOW, "blow", true),
        method(LOOK, "look", true),
        method(ONCE, "once", false),
        method(COUNT, "count", true),
        method(TELL, "tell", true),
        method(LISTEN, "listen", true),
        method(TIMES, "times", true),
        method(WEIGH, "weigh", true),
    ],
};

/// The test's hands on the service.
#[derive(Clone, Default)]
pub(crate) struct Hands(Arc<Inner>);

#[derive(Default)]
struct Inner {
    open: AtomicBool,
    started: AtomicU64,
    cancelled: AtomicU64,
    dropped: AtomicU64,
    /// STALL is to block, or blocks.
    stalling: Mutex<Stalling>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stalling {
    #[default]
    No,
    Wanted,
    Now,
}

impl Hands {
    /// Handlers that were started.
    pub(crate) fn started(&self) -> u64 {
        self.0.started.load(Ordering::SeqCst)
    }

    /// Handlers that saw that they were cancelled.
    pub(crate) fn cancelled(&self) -> u64 {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// Handlers that were dropped at their await.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::SeqCst)
    }

    pub(crate) fn await_started(&self, count: u64) {
        eventually("the handlers were started", || self.started() >= count);
    }

    /// Lets all that hold go on.
    pub(crate) fn open(&self) {
        self.0.open.store(true, Ordering::SeqCst);
        self.set(Stalling::No);
    }

    /// Has the STALL handler block its thread, and waits until it does.
    pub(crate) fn stall(&self) {
        self.stall_soon();
        self.await_stall();
    }

    /// Has the STALL handler block its thread: at once, if it starts after this.
    pub(crate) fn stall_soon(&self) {
        self.set(Stalling::Wanted);
    }

    pub(crate) fn await_stall(&self) {
        eventually("the core stalls", || *self.0.stalling.lock().unwrap() == Stalling::Now);
    }

    fn set(&self, to: Stalling) {
        *self.0.stalling.lock().unwrap() = to;
        self.0.changed.notify_all();
    }

    fn block_if_wanted(&self) -> bool {
        let mut stalling = self.0.stalling.lock().unwrap();
        if *stalling != Stalling::Wanted {
            return false;
        }
        *stalling = Stalling::Now;
        // A test that fails meanwhile waits for the core to end, and opens nothing.
        let blocked = self
            .0
            .changed
            .wait_timeout_while(stalling, 3 * PATIENCE, |stalling| *stalling == Stalling::Now);
        !blocked.unwrap().1.timed_out()
    }

    fn is_open(&self) -> bool {
        self.0.open.load(Ordering::SeqCst)
    }

    /// A server on one core, reachable by loopback.
    pub(crate) fn serve(&self) -> Running {
        self.serve_with(|builder| builder)
    }

    /// Who stands still for a while, as tests do on a slow machine, is not taken for dead.
    pub(crate) fn serve_with(&self, change: impl FnOnce(Builder) -> Builder) -> Running {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let link = LinkConfig { dead_after: PATIENCE, ..LinkConfig::default() };
        let builder = Server::builder().replica(ReplicaId(1)).listen(any).slots(4).link(link);
        change(builder).start(self.clone()).unwrap()
    }
}

/// Tells that a handler was dropped before it was done.
struct Dropped<'a>(&'a Hands, bool);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// What the service answers with.
pub(crate) enum Reply {
    Owned(Vec<u8>),
    Echo(Payload),
}

impl std::ops::Deref for Reply {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Reply::Owned(bytes) => bytes,
            Reply::Echo(payload) => payload,
        }
    }
}

const A_MOMENT: Duration = Duration::from_micros(200);

impl Service for Hands {
    type Reply = Reply;

    fn info(&self) -> ServiceInfo {
        INFO
    }

    async fn call(&self, context: Context, request: Payload) -> Result<Reply, Failure> {
        self.0.started.fetch_add(1, Ordering::SeqCst);
        match context.method() {
            PANIC => panic!("as the test wants it"),
            FAIL => return Err(Failure::app(7).with_payload(b"no luck".to_vec())),
            STALL => {
                while !self.block_if_wanted() {
                    sleep(A_MOMENT).await;
                }
            }
            HOLD => {
                while !self.is_open() {
                    if context.is_cancelled() {
                        self.0.cancelled.fetch_add(1, Ordering::SeqCst);
                        context.cancelled().await;
                    }
                    sleep(A_MOMENT).await;
                }
            }
            YIELD => {
                let mut dropped = Dropped(self, false);
                while !self.is_open() {
                    sleep(A_MOMENT).await;
                }
                dropped.1 = true;
            }
            LOOK => {
                context.cancelled().await;
                self.0.cancelled.fetch_add(1, Ordering::SeqCst);
                return Err(Failure::stopped());
            }
            BLOW => {
                let size = request[..].try_into().map(u32::from_le_bytes).unwrap_or(0);
                return Ok(Reply::Owned(vec![7; size as usize]));
            }
            COUNT => {
                let count = bowline_runtime::counting::allocations();
                return Ok(Reply::Owned(count.to_le_bytes().to_vec()));
            }
            LISTEN => return Ok(Reply::Owned(ear::listen().into_bytes())),
            WEIGH => {
                let held = bowline_runtime::counting::held_bytes();
                return Ok(Reply::Owned(held.to_le_bytes().to_vec()));
            }
            TIMES => {
                let by_deadline = context.deadline() - clock_now();
                let told = [context.remaining(), by_deadline, context.waited()];
                let told = told.map(|time| (time.as_micros() as u64).to_le_bytes());
                return Ok(Reply::Owned(told.as_flattened().to_vec()));
            }
            TELL => {
                let (role, extra) = (context.role(), Parent::is_extra(&context));
                let whose = (context.class().0, context.label().unwrap_or("nobody"));
                let told = format!("{role:?}, extra: {extra}, {whose:?}");
                context.label_reply(Label::new("told"));
                return Ok(Reply::Owned(told.into_bytes()));
            }
            _ => {}
        }
        Ok(Reply::Echo(request))
    }

    fn interruptible(&self, method: Method) -> bool {
        method == YIELD
    }
}
