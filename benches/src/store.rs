//! The service of a replica: blocks of 4 KiB, read from a file past the page cache.

use core::cell::Cell;
use core::ops::Deref;
use core::time::Duration;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bowline_protocol::{Method, MethodInfo, ServiceInfo};
use bowline_runtime::buffer::{self, Buffer};
use bowline_runtime::fs::{File, OpenOptions};
use bowline_runtime::{clock_now, sleep};
use bowline_server::io::Control;
use bowline_server::{Context, Failure, Payload, Service};

use crate::data::{BLOCK_BYTES, DataSet};
use crate::figures::Figures;
use crate::output::say;
use crate::random::Random;

/// Reads a block. Request: its number, and (if there is one) the number by which the modelled part
/// of its time is drawn, each as 8 bytes, little-endian. Reply: the block.
pub const READ: Method = Method(1);
/// What the replica is and has done: [`Figures`] as JSON.
pub const FIGURES: Method = Method(2);

/// What no device takes for 4 KiB unless others keep it busy (or the replica was stalled meanwhile):
/// a disk that turns seeks in 10 ms.
pub const SLOW_DEVICE: Duration = Duration::from_millis(10);

/// The file could not be read.
pub const IO_ERROR: u16 = 1;

/// What a store says of itself. Reads may run twice.
pub const INFO: ServiceInfo = ServiceInfo {
    name: "bowline blocks",
    methods: &[
        MethodInfo::new(READ, "read").idempotent().duplicable(64),
        MethodInfo::new(FIGURES, "figures").idempotent(),
    ],
};

/// What a store is made of.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// The file, which holds `set`.
    pub file: PathBuf,
    /// The blocks.
    pub set: DataSet,
    /// The modelled part of a read's time.
    pub device: Device,
    /// Tells the server's own counters; filled in when it has started.
    pub control: Arc<OnceLock<Control>>,
}

/// A device that is slower than the real one.
///
/// Each read takes a log-normal time more, drawn from the seed, the replica and the number that
/// the read carries: the same reads take the same times under every policy, and one read takes
/// unrelated times on different replicas.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    seed: u64,
    stream: String,
    mean: Duration,
    spread: f64,
}

impl Device {
    /// The device of a replica; `spread` is the standard deviation of the time's logarithm.
    pub fn new(seed: u64, replica: u16, mean: Duration, spread: f64) -> Self {
        Device { seed, stream: format!("device {replica}"), mean, spread }
    }

    /// What read number `draw` takes beside the real device's own time.
    pub fn time(&self, draw: u64) -> Duration {
        let mut random = Random::new(self.seed.wrapping_add(draw.rotate_left(32)), &self.stream);
        Duration::from_nanos(random.log_normal(self.mean.as_nanos() as f64, self.spread) as u64)
    }
}

/// The blocks of one replica on one core.
#[derive(Debug)]
pub struct BlockStore {
    file: File,
    config: StoreConfig,
    direct: bool,
    reads_started: Cell<u64>,
    /// Time for which reads ran, those that were refused at once aside.
    busy: Cell<Duration>,
    /// Reads for which the real device took longer than [`SLOW_DEVICE`].
    slow: Cell<u64>,
}

impl BlockStore {
    /// Opens the file, past the page cache where the file system lets one, and says so where it
    /// does not.
    ///
    /// # Errors
    /// It cannot be opened or read at all.
    pub async fn open(config: StoreConfig) -> io::Result<Self> {
        let (file, direct) = match open_direct(&config.file).await? {
            Some(file) => (file, true),
            None => (File::open(&config.file, OpenOptions::new().read(true)).await?, false),
        };
        if !direct {
            say(format_args!(
                "bowline: WARNING: the file system of {} has no O_DIRECT: reads come from the \
                 page cache, and say nothing of the device",
                config.file.display()
            ));
        }
        Ok(BlockStore {
            file,
            config,
            direct,
            reads_started: Cell::new(0),
            busy: Cell::default(),
            slow: Cell::new(0),
        })
    }

    /// A read that has begun runs to its end, whether or not its answer is still needed, as it
    /// would on a device: what second copies waste is not made to look small.
    async fn read(&self, request: &[u8]) -> Result<Answer, Failure> {
        self.reads_started.set(self.reads_started.get() + 1);
        let (block, draw) = parse(request)?;
        if block >= self.config.set.blocks {
            return Err(Failure::bad_request("there is no such block"));
        }
        let began = clock_now();
        let bytes = buffer::take(BLOCK_BYTES);
        let (read, bytes) = self.file.read_exact_at(bytes, block * BLOCK_BYTES as u64).await;
        if let Err(error) = read {
            return Err(Failure::app(IO_ERROR).with_payload(error.to_string().into_bytes()));
        }
        if clock_now() - began > SLOW_DEVICE {
            self.slow.set(self.slow.get() + 1);
        }
        let more = self.config.device.time(draw);
        if !more.is_zero() {
            sleep(more).await;
        }
        self.busy.set(self.busy.get() + (clock_now() - began));
        Ok(Answer::Block(bytes))
    }

    async fn figures(&self) -> Result<Answer, Failure> {
        let Some(control) = self.config.control.get() else {
            return Err(Failure::app(IO_ERROR).with_payload(b"the server still starts".into()));
        };
        let figures = Figures {
            direct: self.direct,
            reads_started: self.reads_started.get(),
            slow_reads: self.slow.get(),
            busy_ns: self.busy.get().as_nanos() as u64,
            ..Figures::of(&self.config.set, &control.snapshot_soon().await)
        };
        Ok(Answer::Text(figures.to_json()))
    }
}

impl Service for BlockStore {
    type Reply = Answer;

    fn info(&self) -> ServiceInfo {
        INFO
    }

    async fn call(&self, context: Context, request: Payload) -> Result<Answer, Failure> {
        match context.method() {
            READ => self.read(&request).await,
            _ => self.figures().await,
        }
    }
}

/// What a store answers with.
#[derive(Debug)]
pub enum Answer {
    /// A block, in the memory that it was read into.
    Block(Buffer),
    /// Figures.
    Text(Vec<u8>),
}

impl Deref for Answer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Answer::Block(bytes) => bytes,
            Answer::Text(bytes) => bytes,
        }
    }
}

/// The payload of a read.
pub fn read_request(block: u64, draw: u64) -> [u8; 16] {
    let mut request = [0; 16];
    request[..8].copy_from_slice(&block.to_le_bytes());
    request[8..].copy_from_slice(&draw.to_le_bytes());
    request
}

fn parse(request: &[u8]) -> Result<(u64, u64), Failure> {
    let word = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
    let parsed = match request.len() {
        8 => word(request).map(|block| (block, block)),
        16 => word(&request[..8]).zip(word(&request[8..])),
        _ => None,
    };
    parsed.ok_or_else(|| Failure::bad_request("a read is a block's number in 8 bytes"))
}

/// The file past the page cache; none where the file system does not have that.
async fn open_direct(path: &std::path::Path) -> io::Result<Option<File>> {
    let options = OpenOptions::new().read(true).direct(true);
    let file = match File::open(path, options).await {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(None),
        Err(error) => return Err(error),
    };
    let fits = |at: u32| at != 0 && BLOCK_BYTES.is_multiple_of(at as usize);
    match file.direct_alignment() {
        Ok(Some(needed)) if !fits(needed.memory) || !fits(needed.offset) => return Ok(None),
        // A kernel or a file system that does not tell: a first read does.
        _ => {}
    }
    match file.read_exact_at(buffer::take(BLOCK_BYTES), 0).await.0 {
        Ok(()) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use bowline_runtime::Runtime;

    use super::*;
    use crate::data::ensure_files;
    use crate::interrupt::Interrupt;

    const SET: DataSet = DataSet { seed: 3, blocks: 64 };

    fn config(folder: &std::path::Path, mean: Duration) -> StoreConfig {
        let file = folder.join("blocks.dat");
        let files = core::slice::from_ref(&file);
        ensure_files(files, &SET, &Interrupt::default(), &mut |_| ()).expect("writable");
        let device = Device::new(1, 0, mean, 0.5);
        StoreConfig { file, set: SET, device, control: Arc::default() }
    }

    /// Runs `requests` against a store in a folder of its own.
    fn answers(requests: Vec<Vec<u8>>) -> Vec<Result<Answer, Failure>> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = config(folder.path(), Duration::ZERO);
        Runtime::builder().build().expect("io_uring").block_on(async move {
            let store = BlockStore::open(config).await.expect("it is there");
            let mut answers = Vec::new();
            for request in requests {
                answers.push(store.read(&request).await);
            }
            assert_eq!(store.reads_started.get(), answers.len() as u64);
            answers
        })
    }

    #[test]
    fn every_block_comes_as_it_was_written() {
        let numbers = [0, 1, 62, 63];
        let requests = numbers.map(|block| read_request(block, 9).to_vec()).to_vec();
        for (block, answer) in numbers.into_iter().zip(answers(requests)) {
            SET.verify(block, &answer.expect("a block")).expect("its bytes");
        }
    }

    #[test]
    fn a_block_beyond_the_end_and_a_malformed_request_are_refused() {
        let requests = vec![read_request(64, 0).to_vec(), vec![1, 2, 3], Vec::new()];
        for answer in answers(requests) {
            let failure = answer.expect_err("refused");
            assert!(failure.to_string().starts_with("BadRequest"), "{failure}");
        }
    }

    #[test]
    fn one_read_takes_the_same_time_on_one_replica_and_another_on_the_next() {
        let device = |replica| Device::new(1, replica, Duration::from_millis(5), 0.5);
        assert_eq!(device(0).time(7), device(0).time(7));
        assert_ne!(device(0).time(7), device(0).time(8));
        assert_ne!(device(0).time(7), device(1).time(7));
        let mean = (0..20_000).map(|n| device(2).time(n)).sum::<Duration>() / 20_000;
        assert!(mean.abs_diff(Duration::from_millis(5)) < Duration::from_micros(100), "{mean:?}");
        let none = Device::new(1, 0, Duration::ZERO, 0.5);
        assert_eq!(none.time(7), Duration::ZERO);
    }
}
