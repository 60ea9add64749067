//! How the kernel fills receive buffers: one, several, or a part of one for each completion.

mod common;

use std::time::Duration;

use bowline_runtime::net::TcpStream;
use bowline_runtime::{
    Answer, Builder, ReceiveMode, Runtime, Stage, metrics, probe, spawn_at, yield_now,
};
use common::{accept_one, listen, pattern, run_on};

const MODES: [ReceiveMode; 3] =
    [ReceiveMode::Single, ReceiveMode::Bundles, ReceiveMode::Incremental];

fn builder(mode: ReceiveMode, count: u16, size: u32) -> Builder {
    Runtime::builder().buffers(count, size).receive_mode(mode)
}

/// All that comes until the end; every third lease is kept for a while.
async fn receive_all(stream: &TcpStream) -> Vec<u8> {
    let (mut bytes, mut kept) = (Vec::new(), Vec::new());
    while let Some(lease) = stream.receive().await.unwrap() {
        bytes.extend_from_slice(&lease);
        if bytes.len() % 3 == 0 {
            kept.push((bytes.len() - lease.len(), lease));
        }
        if kept.len() > 5 {
            let (at, lease) = kept.swap_remove(0);
            assert!(lease[..] == bytes[at..at + lease.len()], "a lease changed while it was kept");
        }
    }
    for (at, lease) in kept {
        assert!(lease[..] == bytes[at..at + lease.len()], "a lease changed while it was kept");
    }
    bytes
}

#[test]
fn what_is_sent_arrives_in_order_and_all_buffers_come_back() {
    for mode in MODES {
        for (count, size) in [(1, 4096), (16, 4096), (64, 1000)] {
            run_on(&builder(mode, count, size).build().unwrap(), async {
                let (listener, address) = listen();
                let mut readers = Vec::new();
                for seed in 0..4 {
                    let (client, server) = accept_one(&listener, address).await;
                    let message = pattern(300_000 + seed, seed);
                    drop(spawn_at(Stage::Work, {
                        let message = message.clone();
                        async move {
                            for part in message.chunks(1 + 700 * (1 + seed)) {
                                client.send(part);
                                client.drained(8000).await.unwrap();
                            }
                        }
                    }));
                    readers.push(spawn_at(Stage::Input, async move {
                        assert!(receive_all(&server).await == message, "{mode:?}: {seed}");
                    }));
                }
                for reader in readers {
                    reader.await.unwrap();
                }
                while metrics().live_connections > 0 || metrics().free_buffers < count.into() {
                    yield_now().await;
                }
            });
        }
    }
}

/// Whether the kernel has what the probe calls so.
fn works(feature: &str) -> bool {
    let report = probe().unwrap();
    let row = report.features.iter().find(|row| row.name == feature).unwrap();
    row.answer == Answer::Works
}

#[test]
fn the_mode_is_the_one_asked_for_where_the_kernel_has_it() {
    let bundles = works("RECVSEND_BUNDLE");
    let incremental = works("PBUF_RING, incremental");
    for (mode, works) in MODES.into_iter().zip([true, bundles, incremental]) {
        let expected = if works { mode } else { ReceiveMode::Single };
        assert_eq!(builder(mode, 4, 4096).build().unwrap().receive_mode(), expected);
    }
}

#[test]
fn with_a_submission_thread_buffers_are_filled_one_at_a_time() {
    let idle = Some(Duration::from_millis(1));
    for mode in MODES {
        let runtime = builder(mode, 4, 4096).submission_thread(idle).build().unwrap();
        assert_eq!(runtime.receive_mode(), ReceiveMode::Single);
    }
}

#[test]
fn a_bundle_is_one_completion_and_takes_no_more_than_a_share_of_the_buffers() {
    const COUNT: u16 = 64;
    let runtime = builder(ReceiveMode::Bundles, COUNT, 1024).build().unwrap();
    if runtime.receive_mode() != ReceiveMode::Bundles {
        return;
    }
    run_on(&runtime, async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        let message = pattern(48 << 10, 3);
        client.send(&message);
        client.drained(0).await.unwrap();
        let before = metrics().completions;
        // It is armed now, when all has arrived.
        let mut bytes = Vec::new();
        let mut least = COUNT.into();
        while bytes.len() < message.len() {
            bytes.extend_from_slice(&server.receive().await.unwrap().unwrap());
            least = metrics().free_buffers.min(least);
        }
        assert!(bytes == message);
        let completions = metrics().completions - before;
        assert!(completions < 24, "{completions} for 48 buffers");
        assert!(least >= usize::from(COUNT - COUNT / 4), "{least} of {COUNT} were free");
        assert_eq!(metrics().free_buffers, COUNT.into());
    });
}

#[test]
fn small_messages_share_a_buffer_where_it_is_filled_piece_by_piece() {
    let runtime = builder(ReceiveMode::Incremental, 4, 4096).build().unwrap();
    if runtime.receive_mode() != ReceiveMode::Incremental {
        return;
    }
    run_on(&runtime, async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        let mut leases = Vec::new();
        for number in 0..20 {
            client.send(&[number; 100]);
            leases.push(server.receive().await.unwrap().unwrap());
        }
        for (number, lease) in leases.iter().enumerate() {
            assert_eq!(lease[..], [number as u8; 100]);
        }
        assert_eq!(metrics().free_buffers, 4, "2000 bytes are in the first");
        for number in 0..24 {
            client.send(&[number; 100]);
            leases.push(server.receive().await.unwrap().unwrap());
        }
        assert_eq!(metrics().free_buffers, 3);
        leases.truncate(1);
        assert_eq!(metrics().free_buffers, 3, "the oldest is in it still");
        assert_eq!(leases[0][..], [0; 100]);
        leases.clear();
        assert_eq!((metrics().free_buffers, metrics().copies), (4, 0));
    });
}

#[test]
fn a_reader_that_lags_by_little_is_not_paused_for_the_number_of_its_messages() {
    let runtime = builder(ReceiveMode::Incremental, 4, 4096).build().unwrap();
    if runtime.receive_mode() != ReceiveMode::Incremental {
        return;
    }
    run_on(&runtime, async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        client.send(b"!");
        assert_eq!(server.receive().await.unwrap().unwrap()[..], *b"!");
        for number in 1..=20 {
            client.send(&[number; 50]);
            while metrics().bytes_received < 1 + 50 * u64::from(number) && metrics().pauses == 0 {
                yield_now().await;
            }
        }
        assert_eq!(metrics().pauses, 0, "a thousand bytes in twenty parts wait");
        let mut bytes = 0;
        while bytes < 1000 {
            bytes += server.receive().await.unwrap().unwrap().len();
        }
        // But each part takes a place as well, which is more than a byte: no more than some hundred
        // wait.
        let mut sent = 0;
        while metrics().pauses == 0 {
            assert!(sent < 4096, "as many parts as a buffer has bytes wait");
            client.send(b"?");
            sent += 1;
            while metrics().bytes_received < 1001 + sent {
                yield_now().await;
            }
        }
        assert!(sent > 20);
    });
}
