//! A replica in a process of its own: this test's binary, started once more.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::ops::Bound;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{env, fmt, thread};

use bowline_protocol::{LinkConfig, Method, MethodInfo, ReplicaId, ServiceInfo};
use bowline_server::io::once::{
    Batch, Entry, Ledger, Redb, Retention, Space, Store, StoreError, View,
};
use bowline_server::{Context, Failure, Payload, Server, Service};

/// Counts its call, once. The payload is the call's number; the answer is how many were counted.
pub(crate) const COUNT: Method = Method(1);
/// Answers with how many effects this process had and prevented.
pub(crate) const STATS: Method = Method(2);

const METHODS: &[MethodInfo] =
    &[MethodInfo::new(COUNT, "count").keyed(), MethodInfo::new(STATS, "stats").idempotent()];

/// Where the effects of a call are counted.
pub(crate) fn count_of(call: u64) -> Vec<u8> {
    format!("count of {call}").into_bytes()
}

#[derive(Clone)]
struct Counting(Ledger);

impl Service for Counting {
    type Reply = Vec<u8>;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("counting", METHODS)
    }

    async fn call(&self, context: Context, call: Payload) -> Result<Vec<u8>, Failure> {
        if context.method() == STATS {
            let stats = self.0.stats();
            return Ok([stats.effects.to_le_bytes(), stats.prevented.to_le_bytes()].concat());
        }
        let call = call[..].try_into().map_err(|_| Failure::bad_request("no number"))?;
        let count = count_of(u64::from_le_bytes(call));
        let sum = context.once(&self.0, move |data| {
            let mut sum = 0;
            for key in [&count[..], b"sum"] {
                let before = data.get(key)?.and_then(|bytes| bytes.try_into().ok());
                sum = before.map_or(0, u64::from_le_bytes) + 1;
                data.put(key, &sum.to_le_bytes());
            }
            Ok(sum.to_le_bytes().to_vec())
        });
        sum.await
    }
}

/// Where a replica stops for good, to be killed there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    No,
    /// So many effects have been had, and the last ones are not durable.
    BeforeCommit(u64),
    /// They are durable, and the last ones' replies have not left.
    AfterCommit(u64),
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hold::No => f.write_str("no 0"),
            Hold::BeforeCommit(number) => write!(f, "before {number}"),
            Hold::AfterCommit(number) => write!(f, "after {number}"),
        }
    }
}

/// A store that stops at a commit.
struct Holding {
    store: Redb,
    hold: Hold,
    effects: u64,
}

struct HoldingBatch<'a, B> {
    batch: B,
    hold: Hold,
    effects: &'a mut u64,
}

fn hold_for_good() -> ! {
    println!("held");
    loop {
        thread::park();
    }
}

impl Store for Holding {
    type Batch<'a> = HoldingBatch<'a, <Redb as Store>::Batch<'a>>;
    type Reader = <Redb as Store>::Reader;

    fn begin(&mut self) -> Result<Self::Batch<'_>, StoreError> {
        let Holding { store, hold, effects } = self;
        Ok(HoldingBatch { batch: store.begin()?, hold: *hold, effects })
    }

    fn reader(&self) -> Self::Reader {
        self.store.reader()
    }
}

impl<B: Batch> View for HoldingBatch<'_, B> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.batch.get(space, key)
    }

    fn next(&self, space: Space, from: Bound<&[u8]>) -> Result<Option<Entry>, StoreError> {
        self.batch.next(space, from)
    }
}

impl<B: Batch> Batch for HoldingBatch<'_, B> {
    fn put(&mut self, space: Space, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        *self.effects += u64::from(space == Space::Results);
        self.batch.put(space, key, value)
    }

    fn remove(&mut self, space: Space, key: &[u8]) -> Result<(), StoreError> {
        self.batch.remove(space, key)
    }

    fn last(&self, space: Space) -> Result<Option<Entry>, StoreError> {
        self.batch.last(space)
    }

    fn commit(self) -> Result<(), StoreError> {
        if matches!(self.hold, Hold::BeforeCommit(number) if *self.effects >= number) {
            hold_for_good();
        }
        self.batch.commit()?;
        if matches!(self.hold, Hold::AfterCommit(number) if *self.effects >= number) {
            hold_for_good();
        }
        Ok(())
    }
}

/// Far longer than a replica lives here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

const ROLE: &str = "BOWLINE_ONCE_REPLICA";

/// Not a test: what a replica's process runs. It goes on until it is killed.
#[test]
fn replica() {
    let Ok(role) = env::var(ROLE) else { return };
    // Whatever goes wrong, the one that waits for it waits in vain only for so long.
    drop(thread::spawn(|| {
        thread::park_timeout(PATIENCE);
        std::process::exit(1);
    }));
    let (how, path) = role.split_once(' ').unwrap();
    let mut words = how.split(',');
    let (number, shared) = (words.next().unwrap().parse().unwrap(), words.next() == Some("shared"));
    let at = words.next().unwrap().parse().unwrap();
    let hold = match words.next().unwrap() {
        "before" => Hold::BeforeCommit(at),
        "after" => Hold::AfterCommit(at),
        _ => Hold::No,
    };
    let store = if shared { Redb::open_shared(path) } else { Redb::open(path) }.unwrap();
    let ledger = Ledger::open(Holding { store, hold, effects: 0 }, Retention::default()).unwrap();
    // A caller that waits for something else meanwhile is not taken for dead.
    let link =
        LinkConfig { hello_timeout: PATIENCE, dead_after: PATIENCE, ..LinkConfig::default() };
    let server = Server::builder()
        .link(link)
        .replica(ReplicaId(number))
        .listen("127.0.0.1:0".parse().unwrap())
        .shared_results(shared)
        .start(Counting(ledger))
        .unwrap();
    println!("listens {}", server.address());
    server.join().unwrap();
}

/// A replica's process. Dropped, it is killed.
pub(crate) struct Replica {
    pub(crate) address: SocketAddr,
    process: Child,
    says: BufReader<ChildStdout>,
}

impl Replica {
    pub(crate) fn start(path: &Path, number: u16, hold: Hold) -> Replica {
        let hold = hold.to_string();
        let (kind, at) = hold.split_once(' ').unwrap();
        Replica::run(&format!("{number},alone,{at},{kind} {}", path.display()))
    }

    pub(crate) fn start_shared(path: &Path, number: u16) -> Replica {
        Replica::run(&format!("{number},shared,0,no {}", path.display()))
    }

    fn run(role: &str) -> Replica {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["replica::replica", "--exact", "--nocapture"])
            .env(ROLE, role)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut says = BufReader::new(process.stdout.take().unwrap());
        let address = await_word(&mut says, "listens ").parse().unwrap();
        Replica { address, process, says }
    }

    /// Waits until it stops where it was told to.
    pub(crate) fn await_hold(&mut self) {
        await_word(&mut self.says, "held");
    }

    /// SIGKILL, and returns when it is dead.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What follows a word on the line that contains it.
fn await_word(says: &mut BufReader<ChildStdout>, word: &str) -> String {
    for line in says.by_ref().lines() {
        if let Some((_, rest)) = line.unwrap().split_once(word) {
            return rest.to_string();
        }
    }
    panic!("the replica ended and never said {word:?}");
}
