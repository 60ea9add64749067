//! After a warm-up nothing allocates: neither tasks nor timers, wakes, messages nor transfers of
//! files. (To open a file, and to ask for its status, takes one.)
//!
//! `ROUNDS` sets how many round trips are counted; file reads are a tenth of that. The claim is made
//! for `ROUNDS=1000000`.

mod common;

use std::rc::Rc;
use std::time::Duration;

use bowline_runtime::channel::{TrySendError, bounded};
use bowline_runtime::counting::{CountingAllocator, allocations};
use bowline_runtime::fs::{Batch, File, OpenOptions};
use bowline_runtime::net::TcpStream;
use bowline_runtime::{
    Notify, Runtime, Stage, buffer, metrics, now, sleep_until, spawn, spawn_at, timeout, yield_now,
};
use bytes::Bytes;
use common::{LONG, accept_one, listen, rounds};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Runs a test's future, for longer the more rounds there are.
fn run_on<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    let limit = LONG + Duration::from_millis(1) * rounds(0) as u32;
    runtime.block_on(async { timeout(limit, future).await.expect("the test hangs") })
}

fn run<T>(future: impl Future<Output = T>) -> T {
    run_on(&Runtime::builder().build().unwrap(), future)
}

/// Counts what `round` allocates in so many rounds, after some that warm it up.
async fn count(rounds: usize, mut round: impl AsyncFnMut(usize)) -> u64 {
    for index in 0..500 {
        round(index).await;
    }
    let before = allocations();
    for index in 0..rounds {
        round(index).await;
    }
    allocations() - before
}

#[test]
fn echo_does_not_allocate() {
    run(async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        drop(spawn_at(Stage::Input, async move {
            while let Ok(Some(lease)) = server.receive().await {
                server.send(&lease);
                drop(lease);
                // Two timers that are cancelled, as a deadline and a hedge are.
                let _ = timeout(LONG, timeout(LONG, async {})).await;
            }
        }));
        let allocated = count(rounds(20_000), async |_| {
            client.send(&[1; 64]);
            let lease = timeout(LONG, client.receive()).await.unwrap().unwrap().unwrap();
            assert_eq!(lease.len(), 64);
        });
        assert_eq!(allocated.await, 0);
    });
}

/// Receives so many bytes.
async fn receive(stream: &TcpStream, mut missing: usize) {
    while missing > 0 {
        missing -= stream.receive().await.unwrap().unwrap().len();
    }
}

#[test]
fn pieces_do_not_allocate() {
    for zero_copy in [None, Some(1)] {
        let runtime = Runtime::builder().zero_copy(zero_copy).build().unwrap();
        run_on(&runtime, async {
            let (listener, address) = listen();
            let (client, server) = accept_one(&listener, address).await;
            let (shared, bytes) = (Rc::<[u8]>::from([1; 5000]), Bytes::from(vec![2; 5000]));
            // What comes in more parts than ever later, as it may at any time.
            const PARTS: usize = 32;
            for _ in 0..PARTS {
                client.send(b"part");
                client.drained(0).await.unwrap();
                yield_now().await;
            }
            receive(&server, PARTS * 4).await;
            let allocated = count(rounds(20_000).div_ceil(10), async |_| {
                client.send(b"head");
                client.send_piece(buffer::take(5000));
                client.send_piece(shared.clone());
                client.send(b"middle");
                client.send_piece(bytes.clone());
                receive(&server, 4 + 5000 + 5000 + 6 + 5000).await;
                client.drained(0).await.unwrap();
            });
            assert_eq!(allocated.await, 0);
            assert_eq!(metrics().zero_copy_sends > 0, zero_copy.is_some());
        });
    }
}

#[test]
fn tasks_wakes_and_timers_do_not_allocate() {
    run(async {
        let event = Rc::new(Notify::new());
        let allocated = count(rounds(20_000), async |index| {
            let small = spawn(async move { index });
            let large = spawn(async move {
                let block = [index; 200];
                yield_now().await;
                block[100]
            });
            let waiting = spawn({
                let event = event.clone();
                async move { event.notified().await }
            });
            event.notify();
            assert_eq!(small.await.unwrap() + large.await.unwrap(), 2 * index);
            waiting.await.unwrap();
            if index % 100 == 0 {
                sleep_until(now() + Duration::from_micros(10)).await;
            }
        });
        assert_eq!(allocated.await, 0);
    });
}

#[test]
fn messages_within_a_core_do_not_allocate() {
    run(async {
        // Its senders always wait, in line.
        let (sender, mut full) = bounded(2);
        for _ in 0..3 {
            let sender = sender.clone();
            drop(spawn(async move { while sender.send([7; 100]).await.is_ok() {} }));
        }
        // Their receivers do.
        let (to_task, mut questions) = bounded(8);
        let (to_this, mut answers) = bounded(8);
        drop(spawn(async move {
            while let Some(question) = questions.receive().await {
                to_this.send(question + 1).await.unwrap();
            }
        }));
        let allocated = count(rounds(20_000), async |index| {
            assert_eq!(full.receive().await, Some([7; 100]));
            to_task.send(index).await.unwrap();
            assert_eq!(answers.receive().await, Some(index + 1));
        });
        assert_eq!(allocated.await, 0);
    });
}

#[test]
fn messages_between_cores_do_not_allocate_on_either() {
    let rounds = rounds(20_000).div_ceil(4);
    let (to_other, mut other) = bounded(1);
    let (to_this, mut this) = bounded(1);
    let echoing = std::thread::spawn(move || {
        run(count(rounds, async |index| {
            assert_eq!(other.receive().await, Some(index));
            to_this.send(index).await.unwrap();
        }))
    });
    let (allocated, woken) = run(async {
        let allocated = count(rounds, async |index| {
            to_other.send(index).await.unwrap();
            assert_eq!(this.receive().await, Some(index));
        });
        (allocated.await, metrics().remote_wakes)
    });
    assert_eq!((allocated, echoing.join().unwrap()), (0, 0));
    assert!(woken > 0, "it was never woken by the other");
}

#[test]
fn messages_of_a_thread_that_is_no_core_do_not_allocate_on_either() {
    let rounds = rounds(20_000);
    let (sender, mut receiver) = bounded(8);
    let (go, gone) = std::sync::mpsc::channel();
    let sending = std::thread::spawn(move || {
        let send = |index| {
            while let Err(TrySendError::Full(_)) = sender.try_send(index) {
                std::thread::yield_now();
            }
        };
        gone.recv().expect("somebody waits");
        (0..500).for_each(send);
        let before = allocations();
        (0..rounds).for_each(send);
        allocations() - before
    });
    let allocated = run(async move {
        let counted = spawn(count(rounds, async move |index| {
            assert_eq!(receiver.receive().await, Some(index));
        }));
        // It waits by now: the first wait of a receiver and the first wake of a thread keep a place each.
        yield_now().await;
        go.send(()).expect("the thread hears it");
        counted.await.unwrap()
    });
    assert_eq!((allocated, sending.join().unwrap()), (0, 0));
}

#[test]
fn transfers_of_files_do_not_allocate() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![3; 64 << 10]).unwrap();
    let runtime = Runtime::builder().registered_buffers(8, 4096).build().unwrap();
    run_on(&runtime, async {
        let options = OpenOptions::new().read(true).write(true);
        let plain = File::open(&path, options).await.unwrap();
        let options = OpenOptions::new().read(true).registered(true);
        let registered = File::open(&path, options).await.unwrap();
        let mut batch = Batch::new();
        // Each reads ten blocks.
        let allocated = count(rounds(20_000).div_ceil(100), async |index| {
            let offset = (index % 15) as u64 * 4096;
            let (result, block) = plain.read_at(buffer::take(4096), offset).await;
            assert_eq!(result.unwrap(), 4096);
            assert_eq!(block[17], 3);
            let (result, _) = plain.write_all_at(block, offset).await;
            result.unwrap();
            if index % 20 == 0 {
                plain.sync_data().await.unwrap();
            }
            // More than are registered.
            for _ in 0..9 {
                batch.read(&registered, buffer::take(4096), offset);
            }
            while let Some((result, block)) = batch.next().await {
                result.unwrap();
                assert_eq!(block[17], 3);
            }
        });
        assert_eq!(allocated.await, 0);
    });
}

#[test]
fn what_is_dropped_half_way_does_not_allocate() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![3; 64 << 10]).unwrap();
    run(async {
        let file = File::open(&path, OpenOptions::new().read(true)).await.unwrap();
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        let allocated = count(rounds(20_000).div_ceil(10), async |_| {
            common::poll_once(file.read_at(buffer::take(4096), 0));
            common::poll_once(server.receive());
            common::poll_once(sleep_until(now() + LONG));
            let aborted = spawn(std::future::pending::<()>());
            aborted.abort();
            assert!(aborted.await.unwrap_err().is_aborted());
            // What was cancelled ends, sooner or later; then its memory is there for the next.
            client.send(b"?");
            drop(server.receive().await.unwrap().unwrap());
            while metrics().requests_in_flight > 4 {
                yield_now().await;
            }
        });
        assert_eq!(allocated.await, 0);
    });
}
