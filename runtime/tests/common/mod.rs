//! What the integration tests share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod log;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bowline_runtime::net::{ListenOptions, Stream, TcpListener, TcpStream};
use bowline_runtime::{Builder, Runtime, spawn, timeout};

/// Longer than anything here takes on the slowest machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// How often to do what is to be done again and again: `default`, or as `ROUNDS` says, be it a number
/// or a part of the default, as in `10%`.
pub(crate) fn rounds(default: usize) -> usize {
    let Ok(rounds) = std::env::var("ROUNDS") else { return default };
    let wanted = match rounds.strip_suffix('%') {
        Some(percent) => percent.parse().map(|percent: usize| (default * percent).div_ceil(100)),
        None => rounds.parse(),
    };
    wanted.unwrap_or_else(|_| panic!("ROUNDS is {rounds:?}, but must be a number or a percentage"))
}

/// Runs a test's future on a runtime of its own.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    run_on(&Runtime::builder().build().unwrap(), future)
}

/// Runs a test's future, but not for ever.
pub(crate) fn run_on<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    runtime.block_on(async { timeout(LONG, future).await.expect("the test hangs") })
}

/// Runs a test's future, but not for ever, on a runtime of which no timer goes off: one that does wakes
/// the core, which then tells what it should have told before.
pub(crate) fn run_without_timer<F: Future<Output = ()> + 'static>(
    builder: Builder,
    make: impl FnOnce() -> F + Send + 'static,
) {
    let (done, ended) = mpsc::channel();
    let running = std::thread::spawn(move || {
        builder.build().unwrap().block_on(make());
        done.send(()).unwrap();
    });
    match ended.recv_timeout(LONG) {
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
        Ok(()) | Err(RecvTimeoutError::Disconnected) => running.join().unwrap(),
    }
}

/// A listener on loopback, and its address.
pub(crate) fn listen() -> (TcpListener, SocketAddr) {
    let any = "127.0.0.1:0".parse().unwrap();
    let listener = TcpListener::bind(any, ListenOptions::default()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Both ends of a new connection, the connecting one first.
pub(crate) async fn accept_one(
    listener: &TcpListener,
    address: SocketAddr,
) -> (TcpStream, TcpStream) {
    let connecting = spawn(TcpStream::connect(address, LONG));
    let server = listener.accept().await.unwrap();
    (connecting.await.unwrap().unwrap(), server)
}

/// Receives exactly so many bytes.
pub(crate) async fn receive_exactly(stream: &Stream, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        bytes.extend_from_slice(&stream.receive().await.unwrap().expect("the peer sends so many"));
    }
    assert_eq!(bytes.len(), length);
    bytes
}

/// Bytes that differ with `seed`.
pub(crate) fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ seed.wrapping_mul(7)) as u8).collect()
}

/// Polls a future once and drops it.
pub(crate) fn poll_once(future: impl Future) {
    poll_pinned(std::pin::pin!(future));
}

/// Polls a future that is not ready yet.
pub(crate) fn poll_pinned(future: Pin<&mut impl Future>) {
    let poll = future.poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(poll, Poll::Pending));
}
