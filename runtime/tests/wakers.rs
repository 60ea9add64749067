//! Wakers that are not the runtime's own, and do what they like.

mod common;

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use bowline_runtime::fs::{File, OpenOptions};
use bowline_runtime::{buffer, metrics, sleep, spawn, yield_now};
use common::{LONG, accept_one, listen, poll_once, run};

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("in a waker, as planned");
    }
}

#[test]
fn a_waker_that_panics_holds_up_nobody_else() {
    run(async {
        let waker = Waker::from(Arc::new(Panics));
        let mut context = Context::from_waker(&waker);
        let (listener, address) = listen();
        let mut peers = Vec::new();
        for _ in 0..8 {
            peers.push(accept_one(&listener, address).await);
        }
        // Completions of one batch; every other one's waker panics.
        for (_, server) in peers.iter().step_by(2) {
            assert!(server.poll_receive(&context).is_pending());
        }
        let readers: Vec<_> = peers
            .iter()
            .skip(1)
            .step_by(2)
            .map(|(_, server)| server.clone())
            .map(|server| spawn(async move { server.receive().await.unwrap().unwrap().len() }))
            .collect();
        let mut joining = Box::pin(spawn(yield_now()));
        assert!(joining.as_mut().poll(&mut context).is_pending());
        let mut sleeping = Box::pin(sleep(Duration::from_micros(10)));
        assert!(sleeping.as_mut().poll(&mut context).is_pending());
        yield_now().await;
        peers.iter().for_each(|(client, _)| client.send(b"bytes"));
        for reader in readers {
            assert_eq!(reader.await.unwrap(), 5);
        }
        for (_, server) in peers.iter().step_by(2) {
            assert_eq!(server.receive().await.unwrap().unwrap().len(), 5);
        }
        sleeping.await;
        joining.await.unwrap();
    });
}

/// A waker that comes back into the runtime whenever it is cloned.
static COMES_BACK: RawWakerVTable = RawWakerVTable::new(
    |_| {
        poll_once(sleep(LONG));
        drop(spawn(async {}));
        assert!(metrics().live_tasks > 0);
        RawWaker::new(std::ptr::null(), &COMES_BACK)
    },
    |_| {},
    |_| {},
    |_| {},
);

#[test]
fn a_waker_may_come_back_into_the_runtime_while_it_is_cloned() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, b"content").unwrap();
    run(async {
        // SAFETY: the functions do nothing with the pointer, on whatever thread.
        let waker = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &COMES_BACK)) };
        let context = &mut Context::from_waker(&waker);
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        let file = File::open(&path, OpenOptions::new().read(true)).await.unwrap();
        let mut reading = Box::pin(file.read_at(buffer::take(7), 0));
        assert!(reading.as_mut().poll(context).is_pending());
        let mut joining = Box::pin(spawn(yield_now()));
        assert!(joining.as_mut().poll(context).is_pending());
        let mut sleeping = Box::pin(sleep(LONG));
        assert!(sleeping.as_mut().poll(context).is_pending());
        client.send(b"bytes");
        let mut draining = Box::pin(client.drained(0));
        assert!(draining.as_mut().poll(context).is_pending());
        assert!(matches!(server.poll_receive(context), Poll::Pending));
        assert_eq!(reading.await.0.unwrap(), 7);
        joining.await.unwrap();
        draining.await.unwrap();
        assert_eq!(server.receive().await.unwrap().unwrap().len(), 5);
    });
}

struct Nothing;

impl Wake for Nothing {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn a_receiver_that_goes_lets_go_of_whom_it_would_have_woken() {
    let task = Arc::new(Nothing);
    let (sender, mut receiver) = bowline_runtime::channel::bounded::<u8>(1);
    let waker = Waker::from(task.clone());
    assert!(receiver.poll_receive(&Context::from_waker(&waker)).is_pending());
    drop((waker, receiver));
    assert_eq!(Arc::strong_count(&task), 1);
    drop(sender);
}

#[test]
fn a_waker_that_panics_in_a_line_leaves_nobody_behind_it_asleep() {
    let (sender, receiver) = bowline_runtime::channel::bounded(1);
    sender.try_send(1).unwrap();
    let (first, second) = (sender.clone(), sender.clone());
    let mut panics = Box::pin(first.send(2));
    let waker = Waker::from(Arc::new(Panics));
    assert!(panics.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    run(async {
        let waiting = spawn(async move { second.send(3).await });
        yield_now().await;
        drop(receiver);
        assert!(waiting.await.unwrap().is_err());
    });
}
