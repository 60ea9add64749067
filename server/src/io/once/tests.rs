//! What holds in any store, without a server around it.

use std::format;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::vec::Vec;

use bowline_protocol::options::Key;
use bowline_protocol::{Method, Status};
use bowline_runtime::{Runtime, spawn, timeout, yield_now};

use super::{
    Batch, Ledger, Memory, Reader, Retention, Space, Store, StoreError, Transaction, View,
};
use crate::io::Failure;

const METHOD: Method = Method(1);

const fn key(id: u128) -> Key {
    Key { id, fingerprint: 1 }
}

/// Puts the next number under "n", and answers with it.
fn next(data: &mut Transaction<'_>) -> Result<Vec<u8>, Failure> {
    let next = data.get(b"n")?.map_or(1, |n| n[0] + 1);
    data.put(b"n", &[next]);
    Ok([next].to_vec())
}

fn run<T>(work: impl AsyncFnOnce() -> T) -> T {
    Runtime::builder().build().unwrap().block_on(work())
}

async fn number(ledger: &Ledger) -> Vec<u8> {
    ledger.read(|data| Ok(data.get(b"n")?.unwrap_or_default())).await.unwrap()
}

#[test]
fn an_effect_is_had_once_for_each_key() {
    run(async || {
        let ledger = Ledger::in_memory();
        for (id, expected) in [(1, 1), (2, 2), (1, 1), (2, 2), (3, 3)] {
            assert_eq!(ledger.once(key(id), METHOD, next).await.unwrap(), [expected]);
        }
        let stats = ledger.stats();
        assert_eq!((stats.effects, stats.prevented, stats.commits), (3, 2, 3));
    });
}

#[test]
fn another_method_or_payload_under_the_same_key_is_refused() {
    run(async || {
        let ledger = Ledger::in_memory();
        ledger.once(key(1), METHOD, next).await.unwrap();
        let other = Key { fingerprint: 2, ..key(1) };
        for (key, method) in [(other, METHOD), (key(1), Method(2))] {
            let refused = ledger.once(key, method, next).await.unwrap_err();
            assert_eq!(refused.status, Some(Status::BadRequest));
        }
        assert_eq!((number(&ledger).await, ledger.stats().other_use), ([1].to_vec(), 2));
    });
}

#[test]
fn an_effect_that_fails_or_panics_leaves_nothing_and_may_be_tried_again() {
    run(async || {
        let ledger = Ledger::in_memory();
        let fails = |data: &mut Transaction<'_>| next(data).and(Err::<Vec<u8>, _>(Failure::app(3)));
        assert_eq!(ledger.once(key(1), METHOD, fails).await, Err(Failure::app(3)));
        let panics = |data: &mut Transaction<'_>| -> Result<Vec<u8>, Failure> {
            data.put(b"n", &[9]);
            panic!("as the test wants it")
        };
        let failed = ledger.once(key(1), METHOD, panics).await.unwrap_err();
        assert_eq!(failed.status, Some(Status::Failed));
        assert_eq!(ledger.once(key(1), METHOD, next).await.unwrap(), [1]);
        assert_eq!((ledger.stats().failed, ledger.stats().effects), (2, 1));
    });
}

#[test]
fn effects_that_wait_together_are_committed_together() {
    run(async || {
        let ledger = Ledger::in_memory();
        let (open, gate) = channel::<()>();
        let holds = move |data: &mut Transaction<'_>| {
            gate.recv().map_err(|_| Failure::app(1))?;
            next(data)
        };
        let mut calls = Vec::new();
        let first = ledger.clone();
        calls.push(spawn(async move { first.once(key(1), METHOD, holds).await }));
        for id in 2..=5 {
            let ledger = ledger.clone();
            calls.push(spawn(async move { ledger.once(key(id), METHOD, next).await }));
        }
        // All have been handed over, or will be while the first still holds the thread up.
        yield_now().await;
        open.send(()).unwrap();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(number(&ledger).await, [5]);
        assert_eq!((ledger.stats().effects, ledger.stats().commits), (5, 1));
    });
}

#[test]
fn the_oldest_results_are_forgotten_beyond_their_number_and_their_bytes() {
    for retention in [
        Retention { results: 2, ..Retention::default() },
        Retention { bytes: 2, ..Retention::default() },
    ] {
        run(async || {
            let ledger = Ledger::open(Memory::default(), retention).unwrap();
            for id in 1..=3 {
                ledger.once(key(id), METHOD, next).await.unwrap();
            }
            assert_eq!(ledger.stats().forgotten, 1, "{retention:?}");
            for (id, expected) in [(3, 3), (2, 2), (1, 4)] {
                assert_eq!(ledger.once(key(id), METHOD, next).await.unwrap(), [expected]);
            }
        });
    }
}

#[test]
fn results_are_not_forgotten_before_their_time() {
    run(async || {
        let retention = Retention { life: Duration::from_secs(3600), ..Retention::default() };
        let ledger = Ledger::open(Memory::default(), retention).unwrap();
        for id in 1..=50 {
            ledger.once(key(id), METHOD, next).await.unwrap();
        }
        assert_eq!(ledger.stats().forgotten, 0);
    });
}

/// A store that remembers one result, of 1970: "old", for key 1.
fn of_1970() -> Memory {
    let (number, id) = (0_u64.to_be_bytes(), key(1).id.to_be_bytes());
    let (came, before, length) = (0_u64, 0_u64, 3_u64);
    let place = [came, before, length].map(u64::to_be_bytes);
    let mut memory = Memory::default();
    let mut batch = memory.begin().unwrap();
    batch.put(Space::Order, &number, &[place.as_flattened(), &id].concat()).unwrap();
    let fingerprint = key(1).fingerprint.to_be_bytes();
    let record = [&METHOD.0.to_be_bytes()[..], &fingerprint, b"old"].concat();
    batch.put(Space::Results, &id, &record).unwrap();
    batch.commit().unwrap();
    memory
}

#[test]
fn a_result_whose_time_is_out_is_forgotten_when_another_comes() {
    for (life, forgotten) in [(Duration::from_secs(3600), 1), (Duration::MAX, 0)] {
        run(async || {
            let retention = Retention { life, ..Retention::default() };
            let ledger = Ledger::open(of_1970(), retention).unwrap();
            assert_eq!(ledger.once(key(1), METHOD, next).await.unwrap(), b"old");
            assert_eq!(ledger.once(key(2), METHOD, next).await.unwrap(), [1]);
            assert_eq!(ledger.stats().forgotten, forgotten, "{retention:?}");
            let again = ledger.once(key(1), METHOD, next).await.unwrap();
            assert_eq!(again, if forgotten == 1 { &[2][..] } else { b"old" });
            assert_eq!(ledger.once(key(2), METHOD, next).await.unwrap(), [1]);
        });
    }
}

#[test]
fn changes_that_are_not_committed_were_never_made() {
    let mut memory = Memory::default();
    let mut batch = memory.begin().unwrap();
    batch.put(Space::Effects, b"a", b"1").unwrap();
    batch.commit().unwrap();
    let mut batch = memory.begin().unwrap();
    batch.put(Space::Effects, b"a", b"2").unwrap();
    batch.put(Space::Effects, b"b", b"2").unwrap();
    batch.remove(Space::Effects, b"a").unwrap();
    drop(batch);
    let batch = memory.begin().unwrap();
    assert_eq!(batch.get(Space::Effects, b"a").unwrap(), Some(b"1".to_vec()));
    assert_eq!(batch.get(Space::Effects, b"b").unwrap(), None);
    assert!(format!("{batch:?}").contains("Changes"));
}

/// A store in which another process has a transaction under way until the gate is gone.
struct Held {
    memory: Memory,
    gate: Receiver<()>,
    begins: Sender<()>,
}

impl Store for Held {
    type Batch<'a> = <Memory as Store>::Batch<'a>;
    type Reader = Memory;

    fn begin(&mut self) -> Result<Self::Batch<'_>, StoreError> {
        self.begins.send(()).map_err(StoreError::new)?;
        let _ = self.gate.recv();
        self.memory.begin()
    }

    fn reader(&self) -> Memory {
        self.memory.reader()
    }
}

/// Much longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A ledger on such a store, which waits for a moment at its end; the memory; what opens the store;
/// what tells when a transaction wants to begin, and ends when the store is gone.
fn held() -> (Ledger, Memory, Sender<()>, Receiver<()>) {
    let (memory, (open, gate), (begins, begun)) = (of_1970(), channel(), channel());
    let reader = memory.reader();
    let store = Held { memory, gate, begins };
    let ledger = Ledger::open_patiently(store, Retention::default(), Duration::from_millis(1));
    (ledger.unwrap(), reader, open, begun)
}

#[test]
fn who_only_reads_waits_for_no_transaction() {
    let (ledger, _, open, begun) = held();
    run(async || {
        let writer = ledger.clone();
        let write = spawn(async move { writer.once(key(2), METHOD, next).await });
        yield_now().await;
        begun.recv_timeout(LONG).unwrap();
        let read = timeout(LONG, number(&ledger)).await;
        assert_eq!(read.expect("it waits for the transaction"), []);
        drop(open);
        assert_eq!(write.await.unwrap().unwrap(), [1]);
        assert_eq!(number(&ledger).await, [1]);
    });
}

#[test]
fn a_ledger_ends_though_its_store_stands_still_and_then_has_no_effect_any_more() {
    let (ledger, mut memory, open, begun) = held();
    run(async || {
        let writer = ledger.clone();
        drop(spawn(async move { writer.once(key(2), METHOD, next).await }));
        yield_now().await;
        begun.recv_timeout(LONG).unwrap();
    });
    let (ended, end) = channel();
    drop(std::thread::spawn(move || {
        drop(ledger);
        ended.send(())
    }));
    end.recv_timeout(LONG).expect("it waits for its store");
    drop(open);
    // The store goes when its thread has ended.
    assert_eq!(begun.recv_timeout(LONG), Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    memory.read(&mut |view| assert_eq!(view.get(Space::Effects, b"n").unwrap(), None)).unwrap();
}

#[test]
fn a_read_that_panics_is_answered_and_so_is_the_next() {
    run(async || {
        let ledger = Ledger::in_memory();
        let panics =
            |_: &Transaction<'_>| -> Result<(), Failure> { panic!("as the test wants it") };
        let failed = ledger.read(panics).await.unwrap_err();
        assert_eq!(format!("{failed}"), "Failed: the read panicked");
        assert_eq!(ledger.read(|_| Ok(7_u64)).await, Ok(7));
    });
}

#[test]
fn a_range_has_what_is_kept_and_written_in_order_and_not_what_is_removed() {
    let mut memory = Memory::default();
    let mut batch = memory.begin().unwrap();
    for key in ["a", "c", "d", "e"] {
        batch.put(Space::Effects, key.as_bytes(), b"kept").unwrap();
    }
    let seen = Transaction::run(&mut batch, |data| {
        for key in ["b", "d", "f"] {
            data.put(key.as_bytes(), b"new");
        }
        for key in ["c", "e", "none"] {
            data.remove(key.as_bytes());
        }
        let of = |entry: Result<_, StoreError>| {
            let (key, value): (Vec<u8>, Vec<u8>) = entry.unwrap();
            format!("{} {}", key.escape_ascii(), value.escape_ascii())
        };
        let all: Vec<_> = data.range::<&[u8]>(..).map(of).collect();
        let some: Vec<_> = data.range("b"..="d").map(of).collect();
        let few: Vec<_> = data.range("a".."b").map(of).collect();
        let none = data.range("b".."a").count();
        Ok::<_, StoreError>((all, some, few, none))
    });
    let (all, some, few, none) = seen.unwrap();
    assert_eq!(all, ["a kept", "b new", "d new", "f new"]);
    assert_eq!((some, few, none), (all[1..3].to_vec(), all[..1].to_vec(), 0));
}
