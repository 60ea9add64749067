//! What crosses from core to core.

mod common;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bowline_runtime::channel::{Closed, TrySendError, bounded};
use bowline_runtime::{Answer, Handle, Lost, Runtime, Stage, metrics, probe, spawn, yield_now};
use common::{rounds, run};

#[test]
fn every_message_arrives_once_and_in_its_senders_order() {
    let each = rounds(20_000);
    let (sender, mut receiver) = bounded(8);
    let sending = Runtime::builder()
        .cores([0, 0, 0], move |core| {
            let sender = sender.clone();
            async move {
                for number in 0..each {
                    sender.send((core, number)).await.unwrap();
                }
            }
        })
        .unwrap();
    run(async move {
        let mut next = [0; 3];
        // The closure above keeps a sender until it is dropped with the last core.
        for _ in 0..3 * each {
            let (core, number) = receiver.receive().await.unwrap();
            assert_eq!(next[core], number);
            next[core] += 1;
        }
    });
    sending.join().unwrap();
}

#[test]
fn cores_ping_each_other_out_of_their_sleep() {
    let each = rounds(5_000);
    let (to_other, mut other) = bounded(1);
    let (to_this, mut this) = bounded(1);
    let thread = std::thread::spawn(move || {
        run(async move {
            while let Some(number) = other.receive().await {
                to_this.send(number + 1).await.unwrap();
            }
        });
    });
    let messages = run(async move {
        for number in 0..each {
            to_other.send(number).await.unwrap();
            assert_eq!(this.receive().await, Some(number + 1));
        }
        metrics().messages
    });
    thread.join().unwrap();
    let report = probe().unwrap();
    let row = report.features.iter().find(|row| row.name == "SEND_MSG_RING").unwrap();
    assert_eq!(messages > 0, row.answer == Answer::Works, "{messages} messages woke it");
}

#[test]
fn a_core_that_is_awake_is_woken_by_nobody() {
    let each = rounds(2_000);
    let (sender, mut receiver) = bounded(1);
    run(async move {
        let receiving = spawn(async move { while receiver.receive().await.is_some() {} });
        yield_now().await;
        // From here on nothing completes but wakes, as a message or as the read of an event.
        let before = metrics();
        let thread = std::thread::spawn(move || {
            for number in 0..each {
                while sender.try_send(number).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        // This task is ready in every turn, so that the core never sleeps.
        while !receiving.is_finished() {
            yield_now().await;
        }
        let after = metrics();
        thread.join().unwrap();
        assert!(after.remote_wakes > before.remote_wakes, "the receiver never waited");
        let woken = [before, after].map(|counted| (counted.completions, counted.messages));
        assert_eq!(woken[0], woken[1], "a system call that woke nobody");
    });
}

#[test]
fn who_wakes_a_core_may_wait_for_its_thread_in_place() {
    for _ in 0..rounds(100) {
        let (to_other, mut other) = bounded(1);
        let thread = std::thread::spawn(move || run(async move { other.receive().await }));
        run(async move {
            to_other.send(7).await.unwrap();
            // This core submits nothing before the other has ended.
            assert_eq!(thread.join().unwrap(), Some(7));
        });
    }
}

/// Counts itself while it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(live: &Arc<AtomicUsize>) -> Counted {
        live.fetch_add(1, Ordering::SeqCst);
        Counted(live.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_full_channel_gives_back_and_a_closed_one_too() {
    run(async {
        let (sender, mut receiver) = bounded(2);
        sender.try_send(1).unwrap();
        sender.try_send(2).unwrap();
        assert!(matches!(sender.try_send(3), Err(TrySendError::Full(3))));
        let waiting = spawn({
            let sender = sender.clone();
            async move { sender.send(4).await }
        });
        yield_now().await;
        assert!(!waiting.is_finished());
        assert_eq!(receiver.receive().await, Some(1));
        waiting.await.unwrap().unwrap();
        assert_eq!(receiver.receive().await, Some(2));
        assert_eq!(receiver.try_receive(), Some(4));
        assert_eq!(receiver.try_receive(), None);
        drop(receiver);
        assert!(matches!(sender.send(5).await, Err(Closed(5))));
    });
}

#[test]
fn messages_that_nobody_receives_are_dropped_and_senders_told() {
    let live = Arc::new(AtomicUsize::new(0));
    run(async {
        let (sender, receiver) = bounded(1);
        sender.send(Counted::new(&live)).await.ok().unwrap();
        let waiting = spawn({
            let message = Counted::new(&live);
            async move { sender.send(message).await.is_err() }
        });
        yield_now().await;
        drop(receiver);
        assert!(waiting.await.unwrap());
    });
    assert_eq!(live.load(Ordering::SeqCst), 0);
}

#[test]
fn a_send_that_is_dropped_was_not_sent() {
    let (sender, mut receiver) = bounded(1);
    sender.try_send(1).unwrap();
    {
        let mut sending = std::pin::pin!(sender.send(2));
        let poll = sending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(poll, Poll::Pending));
    }
    assert_eq!(receiver.try_receive(), Some(1));
    assert_eq!(receiver.try_receive(), None);
}

#[test]
fn a_send_that_is_dropped_takes_no_wake_from_another() {
    run(async {
        let (sender, mut receiver) = bounded(1);
        sender.try_send(1).unwrap();
        let given_up = spawn({
            let sender = sender.clone();
            async move {
                let _ = bowline_runtime::timeout(Duration::ZERO, sender.send(2)).await;
                std::future::pending::<()>().await;
            }
        });
        yield_now().await;
        let waiting = spawn(async move { sender.send(3).await });
        yield_now().await;
        assert_eq!(receiver.receive().await, Some(1));
        assert_eq!(receiver.receive().await, Some(3));
        waiting.await.unwrap().unwrap();
        drop(given_up);
    });
}

#[test]
fn join_waits_for_all_cores_though_one_panics() {
    let ended = Arc::new(AtomicUsize::new(0));
    let cores = Runtime::builder().cores([0, 0], {
        let ended = ended.clone();
        move |core| {
            let ended = ended.clone();
            async move {
                if core == 0 {
                    // Without the hook, which takes long to print a trace.
                    std::panic::resume_unwind(Box::new("as planned"));
                }
                bowline_runtime::sleep(Duration::from_millis(100)).await;
                ended.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    assert!(cores.unwrap().join().is_err());
    assert_eq!(ended.load(Ordering::SeqCst), 1, "the other core runs still");
}

#[test]
fn each_message_wakes_one_of_the_many_that_wait() {
    const SENDERS: u64 = 1000;
    run(async {
        let (sender, mut receiver) = bounded(1);
        for number in 0..SENDERS {
            let sender = sender.clone();
            drop(spawn(async move { sender.send(number).await.unwrap() }));
        }
        yield_now().await;
        let before = bowline_runtime::metrics().polls;
        for number in 0..SENDERS {
            assert_eq!(receiver.receive().await, Some(number), "who waits longest is served first");
        }
        let polls = bowline_runtime::metrics().polls - before;
        assert!(polls <= 4 * SENDERS, "{polls} polls for {SENDERS} messages");
    });
}

#[test]
fn a_send_that_gives_up_after_it_was_woken_wakes_the_next() {
    run(async {
        let (sender, mut receiver) = bounded(1);
        sender.try_send(1).unwrap();
        let mut given_up = Box::pin(sender.send(2));
        common::poll_pinned(given_up.as_mut());
        let waiting = spawn({
            let sender = sender.clone();
            async move { sender.send(3).await }
        });
        yield_now().await;
        assert_eq!(receiver.try_receive(), Some(1));
        // It was woken, has not been polled since, and never will be.
        drop(given_up);
        assert_eq!(receiver.receive().await, Some(3));
        waiting.await.unwrap().unwrap();
    });
}

#[test]
fn what_other_threads_ask_has_a_bound_and_who_meets_it_is_told() {
    let runtime = Runtime::builder().build().unwrap();
    let handle = runtime.handle();
    // The runtime does not turn yet, so that all of it waits.
    let mut asked: Vec<_> =
        (0..4098).map(|number| handle.spawn(move || async move { number })).collect();
    let refused = asked.split_off(4096);
    assert_eq!(refused.len(), 2);
    for refused in refused {
        assert_eq!(refused.wait(), Err(Lost::Refused));
    }
    common::run_on(&runtime, async {
        for (number, asked) in asked.into_iter().enumerate() {
            assert_eq!(asked.await, Ok(number));
        }
        assert_eq!(bowline_runtime::metrics().remote_refused, 2);
        assert_eq!(handle.spawn(|| async { 1 }).await, Ok(1), "there is room again");
    });
}

#[test]
fn an_order_to_end_something_is_heard_though_jobs_are_refused() {
    let runtime = Runtime::builder().build().unwrap();
    let handle = runtime.handle();
    let begun = Arc::new(AtomicBool::new(false));
    let sees = begun.clone();
    drop(handle.spawn(move || async move { sees.store(true, Ordering::Relaxed) }));
    (0..5000).for_each(|_| drop(handle.spawn(|| async {})));
    let (told, ended) = std::sync::mpsc::channel();
    handle.order(move || told.send(begun.load(Ordering::Relaxed)).unwrap());
    common::run_on(&runtime, async move {
        assert!(bowline_runtime::metrics().remote_refused > 0);
        while ended.try_recv().map_err(|_| ()) != Ok(true) {
            yield_now().await;
        }
    });
}

/// Asks for more of itself until that is refused.
fn flood(handle: Handle) {
    let context = &mut Context::from_waker(Waker::noop());
    loop {
        let more = handle.clone();
        let asked = handle.spawn(move || async move { flood(more) });
        if pin!(asked).poll(context) == Poll::Ready(Err(Lost::Refused)) {
            return;
        }
    }
}

#[test]
fn what_is_asked_faster_than_it_is_polled_does_not_pile_up_before_what_else_a_core_does() {
    // Without a budget a turn polls but a few.
    let runtime = Runtime::builder().budget(Duration::ZERO).build().unwrap();
    let handle = runtime.handle();
    common::run_on(&runtime, async move {
        flood(handle);
        for _ in 0..100 {
            let before = bowline_runtime::metrics();
            yield_now().await;
            let after = bowline_runtime::metrics();
            let polls = after.polls - before.polls;
            assert!(polls <= 300, "{polls} tasks were polled before one that was ready");
            assert!(after.live_tasks <= 300, "{} tasks have not begun", after.live_tasks);
        }
    });
}

#[test]
fn what_ends_something_does_not_wait_for_background_tasks() {
    let runtime = Runtime::builder().build().unwrap();
    let handle = runtime.handle();
    common::run_on(&runtime, async {
        for _ in 0..4000 {
            // As long as one of these is not done, there is no time to spare for the next.
            let spend = || async {
                let end = bowline_runtime::clock_now() + Duration::from_millis(1);
                while bowline_runtime::clock_now() < end {}
            };
            drop(handle.spawn_at(Stage::Background, spend));
        }
        let (told, ended) = std::sync::mpsc::channel();
        handle.order(move || told.send(()).unwrap());
        let answer = handle.spawn(|| async { 1 });
        let before = bowline_runtime::metrics().turns;
        assert_eq!(answer.await, Ok(1));
        ended.try_recv().expect("the order came before");
        let turns = bowline_runtime::metrics().turns - before;
        assert!(turns <= 3, "they waited for {turns} turns");
    });
}

#[test]
fn threads_that_ask_without_end_do_not_hold_up_a_core() {
    let runtime = Runtime::builder().build().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let flooding: Vec<_> = (0..3)
        .map(|_| {
            let (handle, stop) = (runtime.handle(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    drop(handle.spawn(|| async {}));
                }
            })
        })
        .collect();
    common::run_on(&runtime, async {
        for _ in 0..rounds(200) {
            yield_now().await;
            bowline_runtime::sleep(Duration::from_micros(1)).await;
        }
    });
    stop.store(true, Ordering::Relaxed);
    flooding.into_iter().for_each(|thread| thread.join().unwrap());
}
