//! Operations that are dropped as they complete leak no descriptor. These tests count the process's
//! descriptors, and so stand in a binary of their own and run one at a time.
//!
//! `ROUNDS` sets how many of each are dropped: 100000 takes a minute.

mod common;

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use bowline_runtime::fs::{File, OpenOptions};
use bowline_runtime::net::{TcpStream, UnixAddr, UnixListener, UnixStream};
use bowline_runtime::{Runtime, buffer, metrics, spawn, yield_now};
use common::{LONG, listen, poll_once, rounds, run, run_on};

static ALONE: Mutex<()> = Mutex::new(());

fn alone(future: impl Future<Output = ()>) {
    let _guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(future);
}

/// The ring, the event, every socket and file: what is still open was leaked, and memory with it.
#[test]
fn a_runtime_that_ends_under_load_leaves_nothing_open() {
    let _guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir_in(".").unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, vec![1; 8 << 20]).unwrap();
    let before = open_descriptors();
    for round in 0..20 {
        let runtime = Runtime::builder().buffers(8, 1024).build().unwrap();
        let kept = run_on(&runtime, async {
            let (listener, address) = listen();
            let file = File::open(&path, OpenOptions::new().read(true).direct(true)).await.unwrap();
            for _ in 0..8 {
                let (client, server) = common::accept_one(&listener, address).await;
                drop(spawn(async move {
                    while let Ok(Some(lease)) = server.receive().await {
                        server.send(&lease);
                    }
                }));
                drop(spawn(async move {
                    client.send(&[0; 5000]);
                    while let Ok(Some(lease)) = client.receive().await {
                        client.send(&lease);
                    }
                }));
                let file = file.clone();
                drop(spawn(async move {
                    loop {
                        file.read_at(buffer::take(1 << 20), 0).await.0.unwrap();
                    }
                }));
            }
            let accepting = spawn(async move { listener.accept().await.map(drop) });
            let sleeping = bowline_runtime::sleep(LONG);
            for _ in 0..round * 3 {
                yield_now().await;
            }
            (accepting, sleeping)
        });
        drop(runtime);
        drop(kept);
        assert_eq!(open_descriptors(), before, "round {round}");
    }
}

/// How many descriptors the process has open.
fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// What is left when all that was cancelled has come to its end.
async fn settled() -> usize {
    while metrics().live_connections > 0 || metrics().requests_in_flight > 1 {
        yield_now().await;
    }
    open_descriptors()
}

#[test]
fn accepts_that_race_with_their_cancellation_leak_no_descriptor() {
    alone(async {
        let before = open_descriptors();
        for round in 0..300 {
            let (listener, address) = listen();
            let connecting: Vec<_> =
                (0..4).map(|_| spawn(TcpStream::connect(address, LONG))).collect();
            let accepting = spawn(async move { listener.accept().await.map(drop) });
            for _ in 0..round % 5 {
                yield_now().await;
            }
            accepting.abort();
            for connecting in connecting {
                // Refused or reset, or not.
                let _ = connecting.await.unwrap();
            }
        }
        assert_eq!(settled().await, before);
    });
}

/// The same by Unix sockets, of which as many as one likes can be made: ports run out.
#[test]
fn unix_accepts_that_race_with_their_cancellation_leak_no_descriptor() {
    alone(async {
        let before = open_descriptors();
        for round in 0..rounds(2000) / 4 {
            let name = format!("bowline-descriptors-{}-{round}", std::process::id());
            let address = UnixAddr::Name(name.into());
            let listener = UnixListener::bind(&address).unwrap();
            let connecting: Vec<_> = (0..4)
                .map(|_| {
                    let address = address.clone();
                    spawn(async move { UnixStream::connect(&address, LONG).await.map(drop) })
                })
                .collect();
            let accepting = spawn(async move { listener.accept().await.map(drop) });
            for _ in 0..round % 5 {
                yield_now().await;
            }
            accepting.abort();
            for connecting in connecting {
                let _ = connecting.await.unwrap();
            }
        }
        assert_eq!(settled().await, before);
    });
}

#[test]
fn opens_that_are_dropped_leak_no_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, b"content").unwrap();
    alone(async {
        let before = open_descriptors();
        for round in 0..rounds(2000) {
            poll_once(File::open(&path, OpenOptions::new().read(true)));
            if round % 3 == 0 {
                yield_now().await;
            }
        }
        assert_eq!(settled().await, before);
    });
}
