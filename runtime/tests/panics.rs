//! Code of a user's that the loop runs where no task is polled, and that panics.

mod common;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use bowline_runtime::net::TcpStream;
use bowline_runtime::{Faults, ReceiveMode, Runtime, Stage, metrics, spawn, spawn_at, yield_now};
use bytes::Bytes;
use common::log::Ear;
use common::{accept_one, listen, pattern, run, run_on};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};

/// The log's macros note at their first use whether anybody listens, which must not be while a test
/// beside begins to.
static ALONE: Mutex<()> = Mutex::new(());

/// Bytes whose owner panics when it is dropped, with what panics when that is dropped in turn.
struct Bomb(Vec<u8>);

impl AsRef<[u8]> for Bomb {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(Fuse);
    }
}

struct Fuse;

impl Drop for Fuse {
    fn drop(&mut self) {
        panic!("what the owner of bytes panicked with panics");
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

/// Panics at all but what machines have to say of themselves: that a clock strays.
fn panicking_log(level: Level) -> impl Subscriber + Send + Sync {
    Ear(level, |event: &Event<'_>| {
        assert!(event.metadata().target().ends_with("clock"), "the log panics");
    })
}

fn let_owners_go_that_panic() {
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
fn an_owner_of_bytes_that_panics_when_it_is_let_go_holds_nobody_up() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let_owners_go_that_panic();
}

#[test]
fn nor_does_a_log_that_panics_when_it_hears_of_that() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    tracing::subscriber::with_default(panicking_log(Level::ERROR), let_owners_go_that_panic);
}

#[test]
fn a_task_that_panics_ends_even_if_the_log_panics_that_hears_of_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    tracing::subscriber::with_default(panicking_log(Level::ERROR), || {
        run(async {
            let panicked = spawn(async { panic!("as planned") }).await;
            assert!(panicked.is_err_and(|error| error.is_panic()));
            let bomb = Bomb(Vec::new());
            let aborted = spawn(async move {
                let _bomb = bomb;
                std::future::pending::<()>().await;
            });
            yield_now().await;
            aborted.abort();
            assert!(aborted.await.is_err());
        });
    });
}

#[test]
fn what_arrived_as_the_log_panicked_is_received_when_the_loop_goes_on() {
    const LENGTH: usize = 20_000;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let sound = Faults {
        delay: 0,
        short: 0,
        end_early: 300,
        no_buffer: 0,
        refuse_zero_copy: 0,
        ..Faults::default()
    };
    // Of a bundle that is more than the connection's share, copies are made, which is told.
    let builder = Runtime::builder().buffers(4, 256).receive_mode(ReceiveMode::Bundles);
    let mut panicked = 0;
    for seed in 0..20 {
        let runtime = builder.clone().simulate(seed, sound).build().unwrap();
        let received = [const { RefCell::new(Vec::new()) }; 3].map(Rc::new);
        let all_received = async || {
            while received.iter().any(|received| received.borrow().len() < LENGTH) {
                yield_now().await;
            }
        };
        let went = catch_unwind(AssertUnwindSafe(|| {
            tracing::subscriber::with_default(panicking_log(Level::WARN), || {
                run_on(&runtime, async {
                    let (listener, address) = listen();
                    let mut pairs = Vec::new();
                    for _ in &received {
                        pairs.push(accept_one(&listener, address).await);
                    }
                    for ((client, server), received) in pairs.into_iter().zip(&received) {
                        client.send(&pattern(LENGTH, 5));
                        let received = received.clone();
                        drop(spawn_at(Stage::Input, async move {
                            while let Some(lease) = server.receive().await.unwrap() {
                                received.borrow_mut().extend_from_slice(&lease);
                            }
                        }));
                    }
                    all_received().await;
                });
            });
        }));
        if let Err(why) = went {
            assert_eq!(why.downcast_ref(), Some(&"the log panics"), "seed {seed}");
            panicked += 1;
            run_on(&runtime, all_received());
        }
        for received in &received {
            assert!(*received.borrow() == pattern(LENGTH, 5), "seed {seed}");
        }
    }
    assert!(panicked > 0, "no bundle was too large");
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
