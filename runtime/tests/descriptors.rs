//! Operations that are dropped as they complete leak no descriptor. These tests count the process's
//! descriptors, and so stand in a binary of their own and run one at a time.

mod common;

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use bowline_runtime::fs::{File, OpenOptions};
use bowline_runtime::net::TcpStream;
use bowline_runtime::{metrics, spawn, yield_now};
use common::{LONG, listen, poll_once, run};

static ALONE: Mutex<()> = Mutex::new(());

fn alone(future: impl Future<Output = ()>) {
    let _guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(future);
}

/// How many descriptors the process has open.
fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
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
        while metrics().live_connections > 0 || metrics().requests_in_flight > 1 {
            yield_now().await;
        }
        assert_eq!(open_descriptors(), before);
    });
}

#[test]
fn opens_that_are_dropped_leak_no_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, b"content").unwrap();
    alone(async {
        let before = open_descriptors();
        for round in 0..2000 {
            poll_once(File::open(&path, OpenOptions::new().read(true)));
            if round % 3 == 0 {
                yield_now().await;
            }
        }
        while metrics().requests_in_flight > 1 {
            yield_now().await;
        }
        assert_eq!(open_descriptors(), before);
    });
}
