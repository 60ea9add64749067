//! Code of a user's that the loop runs where no task is polled, and that panics.

mod common;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use bowline_runtime::net::TcpStream;
use bowline_runtime::{Runtime, Stage, metrics, spawn, spawn_at, yield_now};
use bytes::Bytes;
use common::log::Ear;
use common::{accept_one, listen, pattern, run, run_on};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// The log's macros note at their first use whether anybody listens, which must not be while a test
/// beside begins to.
static ALONE: Mutex<()> = Mutex::new(());

/// Bytes whose owner panics when it is dropped.
struct Bomb(Vec<u8>);

impl AsRef<[u8]> for Bomb {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the owner of bytes panics");
    }
}

fn bomb(seed: usize) -> (Vec<u8>, Bytes) {
    let bytes = pattern(5000, seed);
    (bytes.clone(), Bytes::from_owner(Bomb(bytes)))
}

/// Receives exactly so many bytes.
async fn receive_exactly(stream: &TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        bytes.extend_from_slice(&stream.receive().await.unwrap().expect("there is more"));
    }
    bytes
}

#[test]
fn an_owner_of_bytes_that_panics_when_it_is_let_go_holds_nobody_up() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        let mut sent = Vec::new();
        for seed in 0..3 {
            let (bytes, owned) = bomb(seed);
            sent.extend_from_slice(&bytes);
            client.send_piece(owned);
            sent.push(7);
            client.send(&[7]);
        }
        assert!(receive_exactly(&server, sent.len()).await == sent);
        // What is not sent is let go too.
        server.send_piece(bomb(3).1);
        server.send_piece(bomb(4).1);
        server.abort();
        assert!(client.receive().await.is_ok_and(|end| end.is_none()) || client.error().is_some());
    });
}

#[test]
fn completions_that_came_with_one_that_panics_are_told_when_the_loop_goes_on() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::builder().build().unwrap();
    let kept = RefCell::new(None);
    let (bytes, owned) = bomb(0);
    // What machines have to say of themselves, such as that a clock strays, is no error.
    let deaf = Ear(Level::ERROR, |_: &Event<'_>| panic!("the log panics"));
    let went = catch_unwind(AssertUnwindSafe(|| {
        tracing::subscriber::with_default(deaf, || {
            run_on(&runtime, async {
                let (listener, address) = listen();
                let (client, server) = accept_one(&listener, address).await;
                client.send(&[1; 100]);
                assert_eq!(receive_exactly(&server, 100).await, [1; 100]);
                let reading = spawn_at(Stage::Input, async move {
                    let received = receive_exactly(&server, 5007).await;
                    (received, server)
                });
                *kept.borrow_mut() = Some((client.clone(), reading));
                // Once the reader waits, the receive completes right after the send.
                for _ in 0..10 {
                    yield_now().await;
                }
                client.send_piece(owned);
                std::future::pending::<()>().await;
            });
        });
    }));
    let why = went.expect_err("it never ends by itself");
    assert_eq!(why.downcast_ref(), Some(&"the log panics"));
    let (client, reading) = kept.take().unwrap();
    run_on(&runtime, async {
        client.send(&[7; 7]);
        let (received, _server) = reading.await.unwrap();
        assert!(received[..5000] == bytes && received[5000..] == [7; 7]);
    });
}

/// What an event says, field by field.
#[derive(Default)]
struct Said(Vec<(&'static str, String)>);

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }
}

#[test]
fn a_panic_of_a_task_that_nobody_awaits_is_told_with_its_message_and_holds_up_nobody() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let told = Arc::new(Mutex::new(Said::default()));
    let ear = Ear(Level::ERROR, {
        let told = told.clone();
        move |event: &Event<'_>| event.record(&mut *told.lock().unwrap())
    });
    tracing::subscriber::with_default(ear, || {
        run(async {
            drop(spawn(async { panic!("{} planned", "as") }));
            yield_now().await;
            assert_eq!(metrics().panics, 1);
            assert_eq!(spawn(async { 5 }).await.unwrap(), 5);
        });
    });
    let told = &told.lock().unwrap().0;
    let has = |name, text: &str| told.iter().any(|told| told.0 == name && told.1.contains(text));
    assert!(has("message", "a task panicked") && has("panic", "as planned"), "{told:?}");
    assert!(has("task", file!()), "{told:?}");
}
