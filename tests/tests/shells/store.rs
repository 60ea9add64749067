//! The service that the simulated servers run: it takes its time, reads a file now and then, looks
//! up or not when nobody waits, and answers with bytes that only the right request can have.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bowline_protocol::{Method, MethodInfo, ServiceInfo};
use bowline_runtime::fs::{File, OpenOptions};
use bowline_runtime::{buffer, sleep};
use bowline_server::{Context, Failure, Payload, Service};
use bowline_tests::kernel::rng::{Rng, mix};

use crate::plan::Planned;

/// May run twice.
pub(crate) const READ: Method = Method(1);
/// Must not run twice.
pub(crate) const ONCE: Method = Method(2);

const METHODS: &[MethodInfo] = &[
    MethodInfo::new(READ, "read").idempotent().duplicable(1 << 20),
    MethodInfo::new(ONCE, "once"),
];

/// What a request says: of which call it is, and what to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Order {
    pub(crate) token: u64,
    pub(crate) takes: u64,
    pub(crate) reply: u32,
    pub(crate) fails: bool,
}

const HEAD: usize = 21;

impl Order {
    pub(crate) fn of(number: usize, planned: &Planned) -> Order {
        Order {
            token: number as u64,
            takes: planned.takes.as_nanos() as u64,
            reply: planned.reply as u32,
            fails: planned.fails,
        }
    }

    /// As bytes, with as many more as are wanted.
    pub(crate) fn to_bytes(self, more: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + more);
        bytes.extend(self.token.to_le_bytes());
        bytes.extend(self.takes.to_le_bytes());
        bytes.extend(self.reply.to_le_bytes());
        bytes.push(self.fails.into());
        bytes.extend(pattern(!self.token, more));
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Order> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let number = |at: usize| head[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let reply = head[16..].first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
        let order = Order { token: number(0)?, takes: number(8)?, reply, fails: head[20] != 0 };
        (rest == pattern(!order.token, rest.len())).then_some(order)
    }

    /// What a handler answers.
    pub(crate) fn answer(self) -> Vec<u8> {
        pattern(self.token, self.reply as usize)
    }
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|n| mix(seed ^ n >> 3) as u8 ^ n as u8).collect()
}

/// How often each call was started, and requests that were damaged.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) starts: BTreeMap<u64, u32>,
    pub(crate) damaged: u32,
}

/// One server's service.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) seen: Arc<Mutex<Seen>>,
    pub(crate) file: PathBuf,
    pub(crate) interruptible: bool,
}

impl Store {
    async fn look_into_the_file(&self) -> std::io::Result<()> {
        let file = File::open(&self.file, OpenOptions::new().read(true)).await?;
        let (result, read) = file.read_exact_at(buffer::take(3000), 100).await;
        result?;
        let wrong = read.iter().any(|&byte| byte != 0x5a);
        if wrong { Err(std::io::ErrorKind::InvalidData.into()) } else { Ok(()) }
    }
}

impl Service for Store {
    type Reply = Vec<u8>;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("store", METHODS)
    }

    async fn call(&self, context: Context, request: Payload) -> Result<Vec<u8>, Failure> {
        let order = Order::from_bytes(&request);
        {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            match order {
                Some(order) => *seen.starts.entry(order.token).or_default() += 1,
                None => seen.damaged += 1,
            }
        }
        let order = order.ok_or_else(|| Failure::bad_request("it was damaged"))?;
        let label = u64::from(context.attempt().n);
        let mut rng = Rng::labelled(order.token, label);
        let takes = Duration::from_nanos((order.takes as f64 * rng.exponential()) as u64);
        let looks = rng.chance(500);
        for _ in 0..3 {
            sleep(takes / 3).await;
            if looks && context.is_cancelled() {
                return Err(Failure::stopped());
            }
        }
        if rng.chance(300) {
            self.look_into_the_file().await.map_err(|_| Failure::app(99))?;
        }
        if order.fails { Err(Failure::app(7)) } else { Ok(order.answer()) }
    }

    fn interruptible(&self, _: Method) -> bool {
        self.interruptible
    }
}
