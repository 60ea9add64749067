//! Calls from threads that are no core of ours.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use bowline_client::io::{Live, Numbers};
use bowline_client::{Config, Remote, Replica};
use bowline_protocol::ErrorKind;
use bowline_runtime::{Handle, Runtime};

use crate::server::{Answer, READ, Server, patient};

const DEADLINE: Duration = Duration::from_secs(10);

/// Servers on a core of their own, and that core.
pub(crate) fn servers() -> (Handle, Vec<Replica>) {
    let (send, receive) = mpsc::channel();
    let cores = Runtime::builder().cores([0], |_| std::future::pending::<()>()).unwrap();
    let handle = cores.handles()[0].clone();
    let started = handle.spawn(|| async move {
        let servers = [1, 2, 3].map(Server::start);
        let replicas = servers.iter().map(|server| Replica::new(server.id, server.address));
        send.send(replicas.collect()).unwrap();
        SERVERS.set(servers.into());
    });
    started.wait().unwrap();
    (handle, receive.recv().unwrap())
}

thread_local! {
    static SERVERS: std::cell::RefCell<Vec<std::rc::Rc<Server>>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// The first of them does that from now on.
pub(crate) fn first_answers(handle: &Handle, answer: Answer) {
    let set = handle.spawn(move || async move {
        SERVERS.with_borrow(|servers| servers[0].answer.set(answer));
    });
    set.wait().unwrap();
}

/// Waits on the servers' core until that is so of the first of them.
fn until(handle: &Handle, what: impl Fn(&Server) -> bool + Send + 'static) {
    let wait = handle.spawn(|| async move {
        let server = SERVERS.with_borrow(|servers| servers[0].clone());
        server.until(what).await;
    });
    wait.wait().unwrap();
}

/// Any executor does; this is one of Bowline's, on a thread of its own.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    Runtime::builder().build().unwrap().block_on(future)
}

#[test]
fn calls_from_many_threads_are_answered() {
    let (_servers, replicas) = servers();
    let cores = Runtime::builder().cores([0, 1], |_| std::future::pending::<()>()).unwrap();
    let client = block_on(Remote::connect(cores.handles(), patient(replicas))).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let client = client.clone();
            scope.spawn(move || {
                block_on(async {
                    for number in 0..50 {
                        let call = client.call(READ, [thread, number]).deadline(DEADLINE);
                        assert_eq!(call.await.unwrap().payload, [thread, number]);
                    }
                })
            });
        }
    });
    let counters = block_on(client.counters()).unwrap();
    assert_eq!(counters.iter().map(|core| core.ok).sum::<u64>(), 200);
    assert!(counters.iter().all(|core| core.ok == 100), "in turn");
}

#[test]
fn what_each_core_knows_is_told_and_published_under_its_number() {
    let (_servers, replicas) = servers();
    let cores = Runtime::builder().cores([0, 1], |_| std::future::pending::<()>()).unwrap();
    let live = Live::new(patient(replicas)).unwrap();
    let client = block_on(Remote::connect(cores.handles(), live.client_config())).unwrap();
    block_on(async {
        for number in 0..10 {
            client.call(READ, [number]).deadline(DEADLINE).await.unwrap();
        }
    });
    let snapshots = block_on(client.snapshots()).unwrap();
    assert!(snapshots.iter().all(|core| core.counters.ok == 5 && core.connected == 3));
    let numbers = Numbers::default();
    block_on(client.publish(&numbers, Duration::from_millis(1))).unwrap();
    let until = Instant::now() + DEADLINE;
    let published = loop {
        let published = numbers.snapshots();
        if published.len() == 2 {
            break published;
        }
        assert!(Instant::now() < until, "not both cores: {published:?}");
        std::thread::yield_now();
    };
    let page = numbers.page();
    let mut of: Vec<usize> = published.iter().map(|(core, _)| *core).collect();
    of.sort_unstable();
    assert_eq!(of, [0, 1]);
    for core in of {
        let line = format!("bowline_client_calls_ok_total{{core=\"{core}\"}} 5\n");
        assert!(page.contains(&line), "{page}");
    }
    assert_eq!(client.config().replicas.len(), 3);
    let less = Config { replicas: client.config().replicas[..2].to_vec(), ..client.config() };
    live.set(less).unwrap();
    assert_eq!(client.config().replicas.len(), 2, "as it is now");
}

#[test]
fn dropping_the_future_on_its_thread_cancels_on_the_wire() {
    let (servers, replicas) = servers();
    let cores = Runtime::builder().cores([0], |_| std::future::pending::<()>()).unwrap();
    let mut config = patient(replicas);
    config.core.pick = bowline_client::core::PickRule::First;
    let client = block_on(Remote::connect(cores.handles(), config)).unwrap();
    first_answers(&servers, Answer::Silence);
    let calling = client.call(READ, *b"x").deadline(DEADLINE).into_future();
    until(&servers, |server| server.seen() == 1);
    drop(calling);
    until(&servers, |server| server.cancels.borrow().len() == 1);
}

#[test]
fn a_client_that_nobody_waits_for_any_more_does_not_stay_connected() {
    let (servers, replicas) = servers();
    let cores = Runtime::builder().cores([0], |_| std::future::pending::<()>()).unwrap();
    block_on(async {
        let mut connecting = std::pin::pin!(Remote::connect(cores.handles(), patient(replicas)));
        // Whether it is connected by then or not, it is not wanted afterwards.
        std::future::poll_fn(|context| {
            drop(connecting.as_mut().poll(context));
            std::task::Poll::Ready(())
        })
        .await;
    });
    until(&servers, |server| server.accepted.get() == 1 && server.closed.get() == 1);
}

#[test]
fn a_failure_comes_back_with_its_error() {
    let (servers, replicas) = servers();
    let cores = Runtime::builder().cores([0], |_| std::future::pending::<()>()).unwrap();
    let client = block_on(Remote::connect(cores.handles(), patient(replicas))).unwrap();
    let fail = servers.spawn(|| async {
        let status = bowline_protocol::Status::App(7);
        SERVERS
            .with_borrow(|servers| servers.iter().for_each(|s| s.answer.set(Answer::Fail(status))));
    });
    fail.wait().unwrap();
    let failure = block_on(client.call(READ, *b"x").deadline(DEADLINE).into_future()).unwrap_err();
    assert_eq!(failure.error.kind, ErrorKind::App(7));
    assert_eq!(failure.payload, b"why");
}

#[test]
fn a_core_that_has_ended_is_an_error_and_no_hang() {
    let (_servers, replicas) = servers();
    let stop = std::sync::Arc::new(std::sync::Mutex::new(None));
    let cores = {
        let stop = stop.clone();
        Runtime::builder()
            .cores([0], move |_| {
                let (send, receive) = mpsc::channel::<()>();
                *stop.lock().unwrap() = Some(send);
                async move {
                    while receive.try_recv().is_err() {
                        bowline_runtime::sleep(Duration::from_millis(1)).await;
                    }
                }
            })
            .unwrap()
    };
    let client = block_on(Remote::connect(cores.handles(), patient(replicas))).unwrap();
    let stop = stop.lock().unwrap().take().unwrap();
    stop.send(()).unwrap();
    cores.join().unwrap();
    let failure = block_on(client.call(READ, *b"x").into_future()).unwrap_err();
    assert_eq!(failure.error.kind, ErrorKind::Closed);
}
