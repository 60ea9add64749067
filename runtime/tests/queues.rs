//! Queues to the kernel and back that are far too small for what goes through them.
//!
//! `ROUNDS` sets how much does.

mod common;

use std::future::Future;
use std::task::{Context, Waker};

use bowline_runtime::fs::{File, OpenOptions};
use bowline_runtime::{Runtime, buffer, metrics, spawn, yield_now};
use common::{accept_one, listen, pattern, rounds, run_on};

#[test]
fn a_flood_of_requests_that_complete_at_once_does_not_overflow_the_completion_queue() {
    let runtime = Runtime::builder().entries(8).completions(8).build().unwrap();
    run_on(&runtime, async {
        let flood = rounds(20_000);
        let file = File::open("/dev/zero", OpenOptions::new().read(true)).await.unwrap();
        let before = metrics();
        let mut reads: Vec<_> =
            (0..flood).map(|_| Box::pin(file.read_at(buffer::take(1), 0))).collect();
        for read in &mut reads {
            assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        for read in reads {
            assert_eq!(read.await.0.unwrap(), 1);
        }
        let after = metrics();
        assert_eq!(after.overflows, before.overflows, "the kernel had to put completions aside");
        assert!(after.reaped_early > before.reaped_early);
        assert!(after.longest_backlog > flood as u64 / 2, "the backlog's length is not told");
    });
}

#[test]
fn four_places_serve_many_peers_and_files_at_once() {
    let runtime = Runtime::builder().entries(4).completions(4).build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(1 << 20, 0)).unwrap();
    run_on(&runtime, async {
        let (listener, address) = listen();
        let file = File::open(&path, OpenOptions::new().read(true)).await.unwrap();
        let mut tasks = Vec::new();
        for number in 0..32 {
            let (client, server) = accept_one(&listener, address).await;
            drop(spawn(async move {
                while let Ok(Some(bytes)) = server.receive().await {
                    server.send(&bytes);
                }
            }));
            let file = file.clone();
            tasks.push(spawn(async move {
                for round in 0..rounds(40) {
                    let at = (number * 1000 + round * 100) % (1 << 19);
                    let (result, block) = file.read_exact_at(buffer::take(700), at as u64).await;
                    result.unwrap();
                    client.send(&block);
                    let mut back = Vec::new();
                    while back.len() < block.len() {
                        back.extend_from_slice(&client.receive().await.unwrap().unwrap());
                    }
                    assert!(back == block[..], "peer {number}, round {round}");
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        assert!(metrics().longest_backlog > 0);
        yield_now().await;
    });
}
