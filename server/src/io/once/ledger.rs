//! Transactions, one after the other, on a thread of their own.

use std::boxed::Box;
use std::fmt;
use std::future::Future;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::string::String;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as Task, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::vec::Vec;

use bowline_protocol::options::Key;
use bowline_protocol::{Method, Status};
use bowline_runtime::Instant;
use bowline_runtime::channel::{self, Receiver, Sender};

use super::memory::Memory;
use super::worker::Worker;
use super::{Batch, Entry, Reader, Space, Store, StoreError, Transaction, View};
use crate::core::counters;
use crate::io::Failure;
use crate::io::ration::Ration;

/// So many transactions may wait; whoever has one more waits until there is room.
const WAITING: usize = 1024;
/// So many are committed together, at most: then their sum is still a short one.
const TOGETHER: usize = 64;
/// So many old results are forgotten for each new one, at most: so a store that is far above its
/// bounds comes down to them, and no transaction becomes a long one.
const FORGET_AT_ONCE: usize = 4;

/// So long the end of a ledger waits for its store.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long results are kept in a store: as long as all three bounds hold. The oldest goes first,
/// whenever a new one comes.
///
/// Who asks again after that is taken for new. So the time must be longer than any caller goes on
/// asking, and the other two bounds large enough for what comes within that time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// So many, at most.
    pub results: u64,
    /// So many bytes of results in all, at most.
    pub bytes: u64,
    /// For so long, by the wall clock.
    pub life: Duration,
}

impl Default for Retention {
    /// A million results of a GiB in all, for a day.
    fn default() -> Self {
        let life = Duration::from_secs(24 * 60 * 60);
        Retention { results: 1_000_000, bytes: 1 << 30, life }
    }
}

counters! {
    /// What happened in a ledger.
    pub struct LedgerStats {
        /// Effects that were had.
        effects,
        /// Effects that were not had again, as their key was there already.
        prevented,
        /// Calls that were refused, as their key was used for something else.
        other_use,
        /// Effects that failed, and left nothing.
        failed,
        /// Commits, each of one effect or several.
        commits,
        /// Batches that the store could not make durable.
        store_errors,
        /// Results that were forgotten.
        forgotten,
    }
}

/// The counters of a ledger, which outlive it.
#[derive(Clone, Default, Debug)]
pub(in crate::io) struct Counts(Arc<Mutex<LedgerStats>>);

impl Counts {
    pub(in crate::io) fn get(&self) -> LedgerStats {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, happened: &LedgerStats) {
        let mut stats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *stats = stats.plus(happened);
    }
}

/// The way to a store. Clones share it, and may be on any thread: on all cores of a server, and
/// of all servers of a process. The last one to go waits for what it still has to do, but only for a
/// second: what the store has not made durable by then is given up, and an error tells of it.
#[derive(Clone)]
pub struct Ledger(Arc<Inner>);

struct Inner {
    /// None only while it is dropped.
    ways: Option<Ways>,
    workers: Mutex<Vec<Worker>>,
    shared: Arc<Shared>,
    counts: Counts,
    place: String,
    patience: Duration,
}

/// To the two threads.
struct Ways {
    jobs: Sender<Job>,
    readings: Sender<Reading>,
}

/// What a ledger and its clerk know of each other.
#[derive(Default)]
struct Shared {
    /// So many effects were handed over, and not answered yet.
    open: AtomicU64,
    /// Nobody waits any more: what is not being committed is not to be.
    given_up: AtomicBool,
}

type Effect = Box<dyn FnOnce(&mut Transaction<'_>) -> Result<Vec<u8>, Failure> + Send>;

struct Job {
    /// What it is to be done once for.
    key: Key,
    /// By which method.
    method: Method,
    effect: Effect,
    answer: Sender<Answer>,
}

type Answer = Result<Vec<u8>, Failure>;

/// Answers by itself whoever wants to read.
type Reading = Box<dyn FnOnce(Result<&dyn View, StoreError>) + Send>;

impl Ledger {
    /// A ledger on this store, with a thread of its own.
    ///
    /// # Errors
    ///
    /// If the thread can't be had.
    pub fn open(store: impl Store, retention: Retention) -> std::io::Result<Ledger> {
        Ledger::open_patiently(store, retention, PATIENCE)
    }

    pub(super) fn open_patiently(
        store: impl Store,
        retention: Retention,
        patience: Duration,
    ) -> std::io::Result<Ledger> {
        let (jobs, waiting) = channel::bounded(WAITING);
        let (readings, wanted) = channel::bounded(WAITING);
        let (counts, shared) = (Counts::default(), Arc::<Shared>::default());
        let (place, reader) = (store.place(), store.reader());
        let tidings = Tidings::new(place.clone());
        let (known, told) = (shared.clone(), counts.clone());
        let mut clerk = Clerk { store, retention, shared: known, counts: told, tidings };
        let workers = [
            Worker::start("bowline-ledger", move || clerk.work(waiting))?,
            Worker::start("bowline-reads", move || show(reader, wanted))?,
        ];
        let (ways, workers) = (Some(Ways { jobs, readings }), Mutex::new(workers.into()));
        Ok(Ledger(Arc::new(Inner { ways, workers, shared, counts, place, patience })))
    }

    /// A ledger that lasts as long as its process.
    ///
    /// # Panics
    ///
    /// If there is no thread to be had.
    pub fn in_memory() -> Ledger {
        Ledger::open(Memory::default(), Retention::default()).expect("a thread")
    }

    /// What happened so far.
    pub fn stats(&self) -> LedgerStats {
        self.0.counts.get()
    }

    pub(in crate::io) fn counts(&self) -> Counts {
        self.0.counts.clone()
    }

    /// Reads what transactions left that were committed before. In a file it waits for none that is not,
    /// neither one of this process nor of another; in memory for the one that is under way.
    ///
    /// # Errors
    ///
    /// The closure's, or the store's; a failure, if it panics.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (answer, mut answered) = channel::bounded(1);
        let reading = move |view: Result<&dyn View, StoreError>| {
            let read = |view| read(&Transaction::over(view));
            let outcome = view
                .map_err(Failure::from)
                .and_then(|view| guarded("the read panicked", || read(view)));
            // Who does not wait any more does not hear.
            let _: Result<(), _> = answer.try_send(outcome);
        };
        let ways = self.0.ways.as_ref().ok_or_else(gone)?;
        ways.readings.send(Box::new(reading)).await.map_err(|_| gone())?;
        answered.receive().await.unwrap_or_else(|| Err(gone()))
    }

    /// Has an effect for a key, unless it was had before. See [`Context::once`](crate::Context::once).
    pub(in crate::io) async fn once<R: Into<Vec<u8>>>(
        &self,
        key: Key,
        method: Method,
        effect: impl FnOnce(&mut Transaction<'_>) -> Result<R, Failure> + Send + 'static,
    ) -> Result<Vec<u8>, Failure> {
        let (answer, mut answered) = channel::bounded(1);
        let effect = Box::new(move |data: &mut Transaction<'_>| effect(data).map(R::into));
        let ways = self.0.ways.as_ref().ok_or_else(gone)?;
        ways.jobs.send(Job { key, method, effect, answer }).await.map_err(|_| gone())?;
        self.0.shared.open.fetch_add(1, Relaxed);
        answered.receive().await.unwrap_or_else(|| Err(gone()))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.ways.take();
        let until = std::time::Instant::now() + self.patience;
        let workers = self.workers.get_mut().unwrap_or_else(PoisonError::into_inner);
        let late = workers.drain(..).filter_map(|worker| (!worker.end(until)).then_some(()));
        if late.count() > 0 {
            self.shared.given_up.store(true, Relaxed);
            tracing::error!(
                store = self.place,
                effects = self.shared.open.load(Relaxed),
                patience = ?self.patience,
                "a ledger ends before its store has done what it was asked: those effects are not had, but \
                 for what was just being made durable. Who asks again with their keys has them, and once. \
                 If other processes share the store, see whether one is stopped (`fuser -v FILE`)"
            );
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ledger").field(&self.stats()).finish()
    }
}

fn failed(why: &str) -> Failure {
    Failure { status: Some(Status::Failed), payload: why.as_bytes().to_vec() }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        failed(&std::format!("{error}"))
    }
}

fn gone() -> Failure {
    failed("the store's thread has ended")
}

/// Answers those who only read, one after the other.
fn show(mut reader: impl Reader, mut wanted: Receiver<Reading>) {
    while let Some(reading) = block_on(wanted.receive()) {
        let mut reading = Some(reading);
        let shown = reader.read(&mut |view| {
            if let Some(reading) = reading.take() {
                reading(Ok(view));
            }
        });
        if let Some(reading) = reading.take() {
            reading(Err(shown.err().unwrap_or_else(|| StoreError::new("it showed nothing"))));
        }
    }
}

/// The ledger's thread.
struct Clerk<S> {
    store: S,
    retention: Retention,
    shared: Arc<Shared>,
    counts: Counts,
    tidings: Tidings,
}

impl<S: Store> Clerk<S> {
    fn work(&mut self, mut waiting: Receiver<Job>) {
        let mut answers = Vec::with_capacity(TOGETHER);
        while let Some(first) = block_on(waiting.receive()) {
            let committed = self.commit(first, &mut waiting, &mut answers);
            let lost = LedgerStats { store_errors: 1, ..LedgerStats::default() };
            self.counts.add(committed.as_ref().unwrap_or(&lost));
            self.tidings.tell(committed.as_ref().err());
            self.shared.open.fetch_sub(answers.len() as u64, Relaxed);
            for (asked, answer) in answers.drain(..) {
                let answer = match &committed {
                    Ok(_) => answer,
                    Err(error) => Err(failed(&std::format!("{error}"))),
                };
                // Who does not wait any more does not hear.
                let _: Result<(), _> = asked.try_send(answer);
            }
        }
    }

    /// Runs the first and those that wait with it, and makes all of it durable. Says what happened.
    fn commit(
        &mut self,
        first: Job,
        waiting: &mut Receiver<Job>,
        answers: &mut Vec<(Sender<Answer>, Answer)>,
    ) -> Result<LedgerStats, StoreError> {
        let Clerk { store, retention, shared, .. } = self;
        let begun = store.begin();
        let (mut happened, mut torn) = (LedgerStats::default(), None);
        let (mut batch, mut next) = match begun {
            Ok(batch) => (batch, Some(first)),
            Err(error) => {
                answers.push((first.answer, Err(failed("no transaction can begin"))));
                return Err(error);
            }
        };
        while let Some(Job { key, method, effect, answer }) = next {
            let once = (key, method);
            let outcome = have_once(&mut batch, once, effect, retention, &mut happened);
            answers.push((
                answer,
                outcome.map_err(|trouble| match trouble {
                    Trouble::Effect(failure) => failure,
                    Trouble::Store(error) => failed(&std::format!("{}", torn.insert(error))),
                }),
            ));
            let more = torn.is_none() && answers.len() < TOGETHER;
            next = if more { waiting.try_receive() } else { None };
        }
        // Who knows what of it is in the batch: nothing of all may become durable.
        if let Some(error) = torn {
            return Err(error);
        }
        // It was told that these are not had.
        if shared.given_up.load(Relaxed) {
            return Err(StoreError::new("its ledger has ended"));
        }
        if happened.effects > 0 {
            batch.commit()?;
            happened.commits = 1;
        }
        Ok(happened)
    }
}

/// What is told of a store that fails, and works again.
struct Tidings {
    /// When its ledger began.
    began: std::time::Instant,
    /// Where it is.
    store: String,
    /// The store failed when it was last used.
    fails: bool,
    /// On a disk that is nearly full every other batch may fail.
    lines: Ration,
}

impl Tidings {
    fn new(store: String) -> Tidings {
        let began = std::time::Instant::now();
        Tidings { began, store, fails: false, lines: Ration::default() }
    }

    /// The store failed, or works.
    fn tell(&mut self, error: Option<&StoreError>) {
        let is_told = self.is_told(error.is_some(), Instant::EPOCH + self.began.elapsed());
        let store = self.store.as_str();
        match error {
            Some(error) if is_told => {
                tracing::error!(store, %error, "calls with keys fail until the store works again");
            }
            Some(error) => tracing::debug!(store, %error, "transactions failed"),
            None if is_told => tracing::info!(store, "the store of results works again"),
            None => {}
        }
    }

    /// Whether it is told that it fails, or works, now: if that is a change, and there were not too many
    /// such lines lately.
    fn is_told(&mut self, fails: bool, now: Instant) -> bool {
        std::mem::replace(&mut self.fails, fails) != fails && self.lines.allows(now)
    }
}

/// Why there is no result.
enum Trouble {
    /// The effect says so, and left nothing.
    Effect(Failure),
    /// The store failed on the way.
    Store(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        Trouble::Store(error)
    }
}

/// What `work` says, or, if it panics, a failure that says so.
fn guarded<T>(panicked: &str, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(failed(panicked)))
}

/// Has an effect and records its result, unless its key is there.
fn have_once<B: Batch>(
    batch: &mut B,
    (key, method): (Key, Method),
    effect: Effect,
    retention: &Retention,
    happened: &mut LedgerStats,
) -> Result<Vec<u8>, Trouble> {
    if let Some(bytes) = batch.get(Space::Results, &key.id.to_be_bytes())? {
        let record = Record::parse(&bytes)?;
        if (record.method, record.fingerprint) != (method, key.fingerprint) {
            happened.other_use += 1;
            return Err(Trouble::Effect(Failure::bad_request(crate::core::OTHER_USE)));
        }
        happened.prevented += 1;
        return Ok(record.result.to_vec());
    }
    let outcome = Transaction::run(batch, |transaction| {
        guarded("the effect panicked", || effect(transaction)).map_err(Trouble::Effect)
    });
    match &outcome {
        Ok(result) => {
            let record = Record { method, fingerprint: key.fingerprint, result };
            batch.put(Space::Results, &key.id.to_be_bytes(), &record.to_bytes())?;
            happened.forgotten += remember(batch, key.id, result.len() as u64, retention)?;
            happened.effects += 1;
        }
        Err(_) => happened.failed += 1,
    }
    outcome
}

/// What was answered to a key's call: method (u16), fingerprint (u64), the result.
struct Record<'a> {
    method: Method,
    fingerprint: u64,
    result: &'a [u8],
}

impl<'a> Record<'a> {
    fn to_bytes(&self) -> Vec<u8> {
        let (method, fingerprint) = (self.method.0.to_be_bytes(), self.fingerprint.to_be_bytes());
        [&method[..], &fingerprint, self.result].concat()
    }

    fn parse(bytes: &'a [u8]) -> Result<Record<'a>, StoreError> {
        let parts = bytes.split_first_chunk::<2>().and_then(|(method, rest)| {
            let (fingerprint, result) = rest.split_first_chunk::<8>()?;
            let method = Method(u16::from_be_bytes(*method));
            Some(Record { method, fingerprint: u64::from_be_bytes(*fingerprint), result })
        });
        parts.ok_or_else(|| StoreError::new("a record is too short"))
    }
}

/// A result's place in the order, and what is needed to forget it in time: when it came (u64,
/// seconds since 1970), the bytes of all results before it and of its own (two u64), its key (u128).
#[derive(Clone, Copy)]
struct Place {
    number: u64,
    came: u64,
    before: u64,
    length: u64,
    id: u128,
}

impl Place {
    fn put(&self, batch: &mut impl Batch) -> Result<(), StoreError> {
        let numbers = [self.came, self.before, self.length].map(u64::to_be_bytes);
        let value = [numbers.as_flattened(), &self.id.to_be_bytes()].concat();
        batch.put(Space::Order, &self.number.to_be_bytes(), &value)
    }

    fn parse((key, value): Entry) -> Result<Place, StoreError> {
        let number = key.try_into().ok().map(u64::from_be_bytes);
        let parts = number.and_then(|number| {
            let (numbers, id) = value.split_first_chunk::<24>()?;
            let [came, before, length] =
                [0, 8, 16].map(|at| numbers[at..].first_chunk().copied().map(u64::from_be_bytes));
            let id = id.try_into().ok().map(u128::from_be_bytes)?;
            Some(Place { number, came: came?, before: before?, length: length?, id })
        });
        parts.ok_or_else(|| StoreError::new("a place in the order is damaged"))
    }
}

/// Puts a new result at the end of the order, and forgets the oldest that are beyond the bounds.
/// Returns how many.
fn remember(
    batch: &mut impl Batch,
    id: u128,
    length: u64,
    retention: &Retention,
) -> Result<u64, StoreError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let last = batch.last(Space::Order)?.map(Place::parse).transpose()?;
    let (number, before) = last.map_or((0, 0), |last| (last.number + 1, last.before + last.length));
    let newest = Place { number, came: now, before, length, id };
    newest.put(batch)?;
    let mut forgotten = 0;
    for _ in 0..FORGET_AT_ONCE {
        let Some(oldest) =
            batch.next(Space::Order, Bound::Unbounded)?.map(Place::parse).transpose()?
        else {
            break;
        };
        let too_many = newest.number - oldest.number >= retention.results;
        let too_large = before + length - oldest.before > retention.bytes;
        let too_old = now.saturating_sub(oldest.came) > retention.life.as_secs();
        if oldest.number == newest.number || !(too_many || too_large || too_old) {
            break;
        }
        batch.remove(Space::Results, &oldest.id.to_be_bytes())?;
        batch.remove(Space::Order, &oldest.number.to_be_bytes())?;
        forgotten += 1;
    }
    Ok(forgotten)
}

/// Waits for a future on a thread that has nothing else to do.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Parked(Thread);
    impl Wake for Parked {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Task::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_fails_now_and_then_fills_no_log() {
        let mut tidings = Tidings::new(String::new());
        let mut told = |batch: u32| {
            let now = Instant::EPOCH + Duration::from_millis(10) * batch;
            tidings.is_told(batch.is_multiple_of(2), now)
        };
        assert!(told(0) && told(1), "that it fails, and that it works again");
        let lines = (2..60_000).filter(|batch| told(*batch)).count();
        assert!((300..=600).contains(&lines), "{lines} in ten minutes");
    }

    #[test]
    fn a_store_that_goes_on_to_fail_is_told_of_once() {
        let mut tidings = Tidings::new(String::new());
        let told = |fails: bool| tidings.is_told(fails, Instant::EPOCH);
        assert_eq!([false, true, true, false, false].map(told), [false, true, false, true, false]);
    }
}
