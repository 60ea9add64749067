//! A runtime whose requests a thread of the kernel's takes.

mod common;

use std::time::Duration;

use bowline_runtime::fs::{Batch, File, OpenOptions};
use bowline_runtime::{Runtime, Stage, buffer, channel, sleep, spawn_at};
use common::{accept_one, listen, pattern, poll_once, run_on};

/// With few places for requests, so that they have to be waited for, unless the kernel's thread is
/// quicker than this one.
fn polled() -> Runtime {
    let idle = Some(Duration::from_millis(1));
    Runtime::builder().submission_thread(idle).entries(8).build().unwrap()
}

#[test]
fn connections_timers_and_other_threads_work_as_ever() {
    run_on(&polled(), async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        drop(spawn_at(Stage::Input, async move {
            while let Ok(Some(bytes)) = server.receive().await {
                server.send(&bytes);
            }
        }));
        for round in 0..100 {
            client.send(&[round; 64]);
            assert_eq!(client.receive().await.unwrap().unwrap()[..], [round; 64]);
            if round % 20 == 0 {
                // Long enough for the kernel's thread to fall asleep.
                sleep(Duration::from_millis(3)).await;
            }
        }
        let (sender, mut receiver) = channel::bounded(1);
        let thread = std::thread::spawn(move || sender.try_send(7).is_ok());
        assert_eq!(receiver.receive().await, Some(7));
        assert!(thread.join().unwrap());
    });
}

#[test]
fn more_reads_than_there_are_places_all_end_and_dropped_ones_harm_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(200 * 512, 3)).unwrap();
    let runtime = polled();
    run_on(&runtime, async {
        let file = File::open(&path, OpenOptions::new().read(true)).await.unwrap();
        let mut batch = Batch::new();
        for block in 0..200 {
            batch.read(&file, buffer::take(512), block * 512);
        }
        let mut blocks = 0;
        while let Some((result, block)) = batch.next().await {
            result.unwrap();
            assert!(block[..] == pattern(200 * 512, 3)[blocks * 512..][..512]);
            blocks += 1;
        }
        assert_eq!(blocks, 200);
        for _ in 0..50 {
            poll_once(file.read_at(buffer::take(512), 0));
            buffer::take(512).fill(0x55);
        }
    });
    // Some are in flight still.
    drop(runtime);
}
