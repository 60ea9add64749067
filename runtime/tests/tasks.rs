//! Tasks, stages, timers and wakers.

mod common;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use bowline_runtime::net::{TcpStream, UnixAddr, UnixListener, UnixStream};
use bowline_runtime::{
    Notify, Runtime, Stage, clock_now, metrics, now, sleep, sleep_until, spawn, spawn_at, timeout,
    yield_now,
};
use common::log::Ear;
use common::{LONG, accept_one, listen, run, run_on};

#[test]
fn tasks_give_their_output_to_who_awaits_them() {
    run(async {
        let handles: Vec<_> = (0..1000)
            .map(|number: u64| {
                spawn(async move {
                    for _ in 0..number % 4 {
                        yield_now().await;
                    }
                    number
                })
            })
            .collect();
        let mut sum = 0;
        for handle in handles {
            sum += handle.await.unwrap();
        }
        assert_eq!(sum, 999 * 1000 / 2);
        assert_eq!(metrics().live_tasks, 1);
    });
}

/// Tells when it is dropped.
struct Tell(Rc<Cell<u32>>);

impl Drop for Tell {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn an_aborted_task_is_dropped_and_says_so() {
    run(async {
        let drops = Rc::new(Cell::new(0));
        let tell = Tell(drops.clone());
        let handle = spawn(async move {
            let _tell = tell;
            pending::<()>().await;
        });
        yield_now().await;
        assert!(!handle.is_finished());
        handle.abort();
        assert!(handle.await.unwrap_err().is_aborted());
        assert_eq!(drops.get(), 1);
        let finished = spawn(async { 1 });
        yield_now().await;
        finished.abort();
        assert_eq!(finished.await.unwrap(), 1, "it had ended before");
    });
}

#[test]
fn a_task_may_abort_itself() {
    run(async {
        let own = Rc::new(RefCell::new(None::<bowline_runtime::JoinHandle<()>>));
        let handle = spawn({
            let own = own.clone();
            async move {
                yield_now().await;
                own.borrow().as_ref().unwrap().abort();
                pending::<()>().await;
            }
        });
        own.replace(Some(handle));
        let handle = poll_fn(|_| match own.borrow().as_ref().unwrap().is_finished() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        let waiting = spawn(async { sleep(Duration::from_millis(1)).await });
        waiting.await.unwrap();
        handle.await;
        let handle = own.take().unwrap();
        assert!(handle.await.unwrap_err().is_aborted());
    });
}

#[test]
fn a_panic_stays_in_its_task() {
    run(async {
        let drops = Rc::new(Cell::new(0));
        let tell = Tell(drops.clone());
        let handle = spawn(async move {
            let _tell = tell;
            yield_now().await;
            panic!("as planned");
        });
        let error = handle.await.unwrap_err();
        assert!(error.is_panic());
        assert_eq!(error.to_string(), "the task panicked: as planned");
        assert_eq!(drops.get(), 1);
        assert_eq!(metrics().panics, 1);
        drop(spawn(async { panic!("nobody awaits this one") }));
        yield_now().await;
        assert_eq!(metrics().panics, 2);
        assert_eq!(spawn(async { 5 }).await.unwrap(), 5);
    });
}

#[test]
fn a_panicking_destructor_stays_in_its_task() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in a destructor, as planned");
        }
    }
    run(async {
        let bomb = Bomb;
        let handle = spawn(async move {
            let _bomb = bomb;
            pending::<()>().await;
        });
        yield_now().await;
        handle.abort();
        assert!(handle.await.unwrap_err().is_aborted());
        let bomb = Bomb;
        let output = spawn(async move { bomb });
        yield_now().await;
        drop(output);
        assert_eq!(spawn(async { 5 }).await.unwrap(), 5);
    });
}

#[test]
fn a_panic_of_the_main_future_comes_out_of_block_on() {
    let runtime = Runtime::builder().build().unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.block_on(async { panic!("as planned") });
    }));
    assert!(panicked.is_err());
    assert_eq!(runtime.block_on(async { 3 }), 3);
}

#[test]
fn tasks_end_with_their_runtime_and_those_they_spawn_too() {
    let drops = Rc::new(Cell::new(0));
    struct SpawnOnDrop(Rc<Cell<u32>>);
    impl Drop for SpawnOnDrop {
        fn drop(&mut self) {
            let tell = Tell(self.0.clone());
            drop(spawn(async move {
                let _tell = tell;
                pending::<()>().await;
            }));
        }
    }
    let runtime = Runtime::builder().build().unwrap();
    let guard = SpawnOnDrop(drops.clone());
    let kept = runtime.spawn(async move {
        let _guard = guard;
        pending::<()>().await;
    });
    runtime.block_on(yield_now());
    drop(runtime);
    assert_eq!(drops.get(), 1);
    assert!(kept.is_finished());
}

/// A task that notes its name each time it is woken.
fn noter(
    stage: Stage,
    name: &'static str,
    event: &Rc<Notify>,
    notes: &Rc<RefCell<Vec<&'static str>>>,
) {
    let (event, notes) = (event.clone(), notes.clone());
    drop(spawn_at(stage, async move {
        loop {
            event.notified().await;
            notes.borrow_mut().push(name);
        }
    }));
}

#[test]
fn stages_run_in_order_whatever_woke_first() {
    run(async {
        let notes = Rc::new(RefCell::new(Vec::new()));
        let events: Vec<_> = (0..3).map(|_| Rc::new(Notify::new())).collect();
        noter(Stage::Work, "work", &events[0], &notes);
        noter(Stage::Decide, "decide", &events[1], &notes);
        noter(Stage::Input, "input", &events[2], &notes);
        yield_now().await;
        for round in 0..10 {
            events.iter().for_each(|event| event.notify());
            yield_now().await;
            // This task, of Stage::Work, was first in its queue, or not.
            yield_now().await;
            // The noter at work runs in this turn still, the others in the next.
            assert_eq!(notes.take(), ["work", "input", "decide"], "round {round}");
        }
    });
}

/// A runtime that cuts nothing short because the machine is slow.
fn patient() -> Runtime {
    Runtime::builder().budget(LONG).build().unwrap()
}

#[test]
fn all_input_is_applied_before_anything_is_decided() {
    run_on(&patient(), async {
        const PEERS: usize = 20;
        let (listener, address) = listen();
        let applied = Rc::new(Cell::new(0));
        let event = Rc::new(Notify::new());
        let mut clients = Vec::new();
        for _ in 0..PEERS {
            let (client, server) = accept_one(&listener, address).await;
            clients.push(client);
            let (applied, event) = (applied.clone(), event.clone());
            drop(spawn_at(Stage::Input, async move {
                while let Ok(Some(lease)) = server.receive().await {
                    applied.set(applied.get() + lease.len());
                    event.notify();
                }
            }));
        }
        let decided = Rc::new(RefCell::new(Vec::new()));
        drop(spawn_at(Stage::Decide, {
            let (applied, decided, event) = (applied.clone(), decided.clone(), event.clone());
            async move {
                loop {
                    event.notified().await;
                    decided.borrow_mut().push(applied.take());
                }
            }
        }));
        yield_now().await;
        for _ in 0..50 {
            clients.iter().for_each(|client| client.send(&[1; 10]));
            // Loopback delivers within the send, so that after the turn's flush all are there.
            while decided.borrow().is_empty() {
                yield_now().await;
            }
            assert_eq!(decided.take(), [PEERS * 10]);
        }
    });
}

#[test]
fn what_was_decided_is_sent_before_work_begins() {
    run(async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        let event = Rc::new(Notify::new());
        drop(spawn_at(Stage::Decide, {
            let (event, client) = (event.clone(), client.clone());
            async move {
                loop {
                    event.notified().await;
                    client.send(b"cancel");
                }
            }
        }));
        yield_now().await;
        for _ in 0..10 {
            event.notify();
            let before = metrics().sends;
            yield_now().await;
            // This very poll is work, in the turn in which the decision was made.
            assert_eq!(metrics().sends, before + 1);
            assert_eq!(client.queued(), 6, "in the kernel's hands, though not reaped yet");
            let lease = server.receive().await.unwrap().unwrap();
            assert_eq!(&lease[..], b"cancel");
        }
    });
}

#[test]
fn background_tasks_run_after_what_was_made_ready_after_them() {
    run(async {
        let order = Rc::new(RefCell::new(Vec::new()));
        let note = |stage: Stage| {
            let order = order.clone();
            spawn_at(stage, async move { order.borrow_mut().push(stage) })
        };
        for task in [Stage::Background, Stage::Work, Stage::Background, Stage::Work].map(note) {
            task.await.unwrap();
        }
        let (first, last) = (Stage::Work, Stage::Background);
        assert_eq!(*order.borrow(), [first, first, last, last]);
    });
}

#[test]
fn background_tasks_get_their_share_beside_work_that_never_ends() {
    share_beside_work(Runtime::builder().build().unwrap());
}

#[test]
fn background_tasks_get_on_without_a_budget_too() {
    share_beside_work(Runtime::builder().budget(Duration::ZERO).build().unwrap());
}

#[test]
fn a_budget_may_be_without_end() {
    let runtime = Runtime::builder().budget(Duration::MAX).build().unwrap();
    run_on(&runtime, async { spawn(yield_now()).await.unwrap() });
    share_beside_work(runtime);
}

fn share_beside_work(runtime: Runtime) {
    run_on(&runtime, async {
        let polls = Rc::new(Cell::new(0));
        let background = spawn_at(Stage::Background, {
            let polls = polls.clone();
            async move {
                loop {
                    polls.set(polls.get() + 1);
                    yield_now().await;
                }
            }
        });
        // This task is ready in every turn.
        while polls.get() < 100 {
            yield_now().await;
        }
        assert!(metrics().background_nanos > 0);
        background.abort();
    });
}

#[test]
fn background_tasks_get_no_more_than_the_share_that_was_set() {
    let busy = |time| {
        let start = clock_now();
        while clock_now() - start < Duration::from_micros(time) {}
    };
    run_on(&Runtime::builder().background_share(1).build().unwrap(), async {
        drop(spawn_at(Stage::Background, async move {
            loop {
                busy(20);
                yield_now().await;
            }
        }));
        let (began, mut got, mut largest) = (clock_now(), metrics().background_nanos, 0);
        let had = got;
        // This task is ready in every turn.
        while clock_now() - began < Duration::from_millis(100) {
            busy(50);
            yield_now().await;
            let before = std::mem::replace(&mut got, metrics().background_nanos);
            largest = largest.max(got - before);
        }
        // They may have taken more than they had earned once, which they owe; and the turn in which
        // this began had lasted for a while.
        let lasted = clock_now() - began + Duration::from_millis(50);
        let most = lasted.as_nanos() as u64 / 99 + largest;
        let got = got - had;
        assert!(got > 0 && got <= most, "{got} ns of {most}");
    });
}

#[test]
fn background_tasks_run_beside_others_that_wait() {
    run(async {
        let background = spawn_at(Stage::Background, async {
            for _ in 0..1000 {
                yield_now().await;
            }
        });
        assert!(timeout(LONG, background).await.is_ok());
        assert_eq!(metrics().background_nanos, 0, "nobody else was ready, and it was for nothing");
    });
}

#[test]
fn timers_never_fire_early_and_all_fire() {
    run(async {
        let mut handles = Vec::new();
        for step in 0..200_u64 {
            handles.push(spawn(async move {
                let wait = Duration::from_micros(step * 97 % 9000);
                let start = clock_now();
                sleep(wait).await;
                assert!(clock_now() - start >= wait, "early");
                assert!(now() - start >= wait, "the turn's time is early");
            }));
        }
        for handle in handles {
            handle.await.unwrap();
        }
        let metrics = metrics();
        assert_eq!(metrics.armed_timers, 1, "only the test's own timeout is armed");
        assert_eq!(metrics.timer_lateness.count(), metrics.timers);
        assert!(metrics.timers >= 190, "some are due at once and need no timer");
    });
}

#[test]
fn a_sleep_can_be_dropped_and_reset() {
    run(async {
        let mut sleeping = Box::pin(sleep(LONG));
        assert!(timeout(Duration::from_micros(10), &mut sleeping).await.is_err());
        assert_eq!(metrics().armed_timers, 2);
        sleeping.reset(now());
        sleeping.await;
        drop(sleep_until(now() + LONG));
        assert_eq!(metrics().armed_timers, 1);
    });
}

#[test]
fn a_hog_that_yields_starves_neither_input_nor_timers() {
    run(async {
        let (listener, address) = listen();
        let (client, server) = accept_one(&listener, address).await;
        let hog = spawn(async {
            loop {
                yield_now().await;
            }
        });
        for _ in 0..200 {
            client.send(b"ping");
            let lease = server.receive().await.unwrap().unwrap();
            assert_eq!(&lease[..], b"ping");
        }
        sleep(Duration::from_millis(1)).await;
        hog.abort();
    });
}

#[test]
fn two_tasks_that_wake_each_other_do_not_stop_the_loop() {
    run(async {
        let events = [Rc::new(Notify::new()), Rc::new(Notify::new())];
        for index in 0..2 {
            let events = events.clone();
            drop(spawn(async move {
                loop {
                    events[index].notified().await;
                    events[1 - index].notify();
                }
            }));
        }
        events[0].notify();
        sleep(Duration::from_millis(5)).await;
        assert!(metrics().budgets_exhausted > 0);
    });
}

#[test]
fn a_task_that_holds_its_core_is_reported() {
    let limit = Duration::from_millis(1);
    let runtime = Runtime::builder().stall(Some(limit)).build().unwrap();
    run_on(&runtime, async {
        let holding = spawn(async move {
            let start = clock_now();
            while clock_now() - start < limit {}
        });
        holding.await.unwrap();
        assert!(metrics().stalls >= 1);
    });
}

/// Keeps what is said of tasks in events.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Said {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        if field.name() == "task" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

#[test]
fn what_is_told_of_a_task_names_it_and_where_it_was_spawned() {
    let said = Said::default();
    let hears = said.clone();
    let ear = Ear(tracing::Level::TRACE, move |event: &tracing::Event<'_>| {
        event.record(&mut hears.clone())
    });
    tracing::subscriber::with_default(ear, || {
        // Every poll is one that took too long.
        let runtime = Runtime::builder().stall(Some(Duration::ZERO)).build().unwrap();
        let told = |name: &str, line: u32| {
            let place = format!("{}:{line}:", file!());
            let fits = |said: &&String| said.starts_with(name) && said.contains(&place);
            said.0.lock().unwrap().iter().filter(fits).count()
        };
        run_on(&runtime, async {
            let line = line!() + 1;
            spawn(async { panic!("as planned") }).named("the reader").await.unwrap_err();
            assert_eq!(told("the reader, spawned at", line), 2, "a stall, and a panic");
            let line = line!() + 1;
            spawn_at(Stage::Input, yield_now()).await.unwrap();
            assert_eq!(told("bowline_runtime::timer::", line), 2, "two polls");
        });
        let handle = runtime.handle();
        let thread = std::thread::spawn(move || (line!(), handle.spawn(|| async {})));
        let (line, spawned) = thread.join().unwrap();
        run_on(&runtime, async { spawned.await.unwrap() });
        assert_eq!(told("", line), 1);
    });
}

#[test]
fn a_waker_may_be_used_on_another_thread() {
    run(async {
        for _ in 0..300 {
            let (send, receive) = mpsc::channel::<Waker>();
            let thread = std::thread::spawn(move || receive.recv().unwrap().wake());
            let mut polled = false;
            poll_fn(|context| {
                if std::mem::replace(&mut polled, true) {
                    return Poll::Ready(());
                }
                send.send(context.waker().clone()).unwrap();
                Poll::Pending
            })
            .await;
            thread.join().unwrap();
        }
        assert!(metrics().remote_wakes > 0);
    });
}

#[test]
fn a_waker_may_outlive_its_task_its_runtime_and_its_thread() {
    let waker = std::thread::spawn(|| run(poll_fn(|context| Poll::Ready(context.waker().clone()))))
        .join()
        .unwrap();
    waker.wake_by_ref();
    let other = waker.clone();
    // A new runtime may get the number of the old; its tasks bear a wake in vain.
    run(async {
        other.wake();
        yield_now().await;
    });
    drop(waker);
}

#[test]
fn more_wakes_than_the_inbox_holds_are_not_lost() {
    const TASKS: usize = 5000;
    run(async {
        let (send, receive) = mpsc::channel::<Waker>();
        let handles: Vec<_> = (0..TASKS)
            .map(|_| {
                let send = send.clone();
                let mut polled = false;
                spawn(poll_fn(move |context| {
                    if std::mem::replace(&mut polled, true) {
                        return Poll::Ready(());
                    }
                    send.send(context.waker().clone()).unwrap();
                    Poll::Pending
                }))
            })
            .collect();
        yield_now().await;
        let thread = std::thread::spawn(move || {
            receive.iter().take(TASKS).for_each(Waker::wake);
        });
        thread.join().unwrap();
        for handle in handles {
            handle.await.unwrap();
        }
    });
}

#[test]
fn other_threads_spawn_and_wait() {
    let (send, receive) = mpsc::channel();
    let (stop, mut stopped) = bowline_runtime::channel::bounded::<()>(1);
    let core = std::thread::spawn(move || {
        let runtime = Runtime::builder().build().unwrap();
        send.send(runtime.handle()).unwrap();
        run_on(&runtime, async { stopped.receive().await });
    });
    let handle = receive.recv().unwrap();
    let outputs: Vec<_> = (0..100)
        .map(|number| {
            handle.spawn(move || async move {
                yield_now().await;
                number
            })
        })
        .collect();
    for (number, output) in outputs.into_iter().enumerate() {
        assert_eq!(output.wait().unwrap(), number);
    }
    assert!(handle.spawn(|| async { panic!("as planned") }).wait().is_err());
    drop(stop);
    core.join().unwrap();
    assert!(handle.is_closed());
    assert!(handle.spawn(|| async {}).wait().is_err());
}

#[test]
fn jobs_that_race_with_the_end_are_lost_and_say_so() {
    for _ in 0..50 {
        let (send, receive) = mpsc::channel();
        let core = std::thread::spawn(move || {
            let runtime = Runtime::builder().build().unwrap();
            send.send(runtime.handle()).unwrap();
            run_on(&runtime, yield_now());
        });
        let handle = receive.recv().unwrap();
        while !handle.is_closed() {
            // Done or lost, but it never hangs.
            let _ = handle.spawn(|| async { 1 }).wait();
        }
        core.join().unwrap();
    }
}

#[test]
fn a_runtime_within_a_runtime_is_refused() {
    run(async {
        let error = Runtime::builder().build().unwrap_err();
        assert!(matches!(error, bowline_runtime::Error::Nested));
    });
}

#[test]
fn a_cpu_that_does_not_exist_is_refused() {
    let error = Runtime::builder().pin(Some(1000)).build().unwrap_err();
    assert!(error.to_string().contains("CPU 1000"));
    let error = Runtime::builder().cores([0, 1000], |_| async {}).unwrap_err();
    assert!(error.to_string().contains("CPU 1000"));
}

/// A task that notes, at [`Stage::Decide`], how much had been applied each time it was asked to.
fn decide(applied: &Rc<Cell<usize>>) -> (Rc<Notify>, Rc<RefCell<Vec<usize>>>) {
    let (event, decided) = (Rc::new(Notify::new()), Rc::new(RefCell::new(Vec::new())));
    drop(spawn_at(Stage::Decide, {
        let (event, decided, applied) = (event.clone(), decided.clone(), applied.clone());
        async move {
            loop {
                event.notified().await;
                decided.borrow_mut().push(applied.take());
            }
        }
    }));
    (event, decided)
}

/// A listener whose connections have what the other end sent once it was sent. What goes through
/// TCP may be left to a thread of the kernel's, even on loopback, and so arrive too late for the turn
/// that it is meant for.
fn listen_at_once(name: &str) -> UnixListener {
    let name = format!("bowline-{name}-{}", std::process::id());
    UnixListener::bind(&UnixAddr::Name(name.into())).unwrap()
}

/// Both ends of a new connection, the connecting one first.
async fn both_ends(listener: &UnixListener) -> (UnixStream, UnixStream) {
    let address = listener.local_addr().clone();
    let connecting = spawn(async move { UnixStream::connect(&address, LONG).await });
    let server = listener.accept().await.unwrap();
    (connecting.await.unwrap().unwrap(), server)
}

/// A task that adds up, at [`Stage::Input`], what it receives.
fn apply(stream: UnixStream, applied: &Rc<Cell<usize>>) {
    let applied = applied.clone();
    drop(spawn_at(Stage::Input, async move {
        while let Ok(Some(lease)) = stream.receive().await {
            applied.set(applied.get() + lease.len());
        }
    }));
}

#[test]
fn input_of_a_connection_that_was_paused_is_applied_before_anything_is_decided() {
    // A connection's share is a single buffer: each one filled pauses it.
    let builder = Runtime::builder().buffers(4, 4096).budget(Duration::from_secs(10));
    run_on(&builder.build().unwrap(), async {
        let listener = listen_at_once("paused");
        let applied = Rc::new(Cell::new(0));
        let (client, server) = both_ends(&listener).await;
        apply(server, &applied);
        let (event, decided) = decide(&applied);
        yield_now().await;
        for _ in 0..20 {
            client.send(&[1; 40_000]);
            event.notify();
            while decided.borrow().is_empty() {
                yield_now().await;
            }
            assert_eq!(decided.take(), [40_000]);
        }
        assert!(metrics().pauses > 0);
    });
}

#[test]
fn input_on_which_nothing_is_to_be_decided_comes_in_with_what_leaves() {
    const PEERS: usize = 32;
    let (tell, told) = mpsc::channel();
    let peer = std::thread::spawn(move || {
        run(async {
            let (listener, address) = listen();
            tell.send(address).unwrap();
            let mut echoes = Vec::new();
            for _ in 0..PEERS {
                let stream = listener.accept().await.unwrap();
                echoes.push(spawn_at(Stage::Input, async move {
                    while let Ok(Some(bytes)) = stream.receive().await {
                        stream.send(&bytes);
                    }
                }));
            }
            for echo in echoes {
                echo.await.unwrap();
            }
        });
    });
    let address = told.recv().unwrap();
    run(async {
        let mut streams = Vec::new();
        for _ in 0..PEERS {
            streams.push(TcpStream::connect(address, LONG).await.unwrap());
        }
        let before = metrics();
        let asking = streams.into_iter().map(|stream| {
            spawn_at(Stage::Input, async move {
                for _ in 0..500 {
                    stream.send(b"ping");
                    assert_eq!(&stream.receive().await.unwrap().unwrap()[..], b"ping");
                }
            })
        });
        for asking in asking.collect::<Vec<_>>() {
            asking.await.unwrap();
        }
        let (enters, turns) = (metrics().enters - before.enters, metrics().turns - before.turns);
        // Each call hands over what there is and brings what came. If something came when nothing
        // was to leave, the call that brings it is one more.
        assert!(enters <= turns + turns / 8, "{enters} calls in {turns} turns");
    });
    peer.join().unwrap();
}

#[test]
fn input_that_found_no_buffer_is_applied_before_anything_is_decided() {
    let builder = Runtime::builder().buffers(1, 256).budget(Duration::from_secs(10));
    run_on(&builder.build().unwrap(), async {
        let listener = listen_at_once("no-buffer");
        let applied = Rc::new(Cell::new(0));
        let (holder, held) = both_ends(&listener).await;
        let (client, server) = both_ends(&listener).await;
        // This one reads at Stage::Work, and so has the only buffer until after the decision.
        drop(spawn(async move { while let Ok(Some(_)) = held.receive().await {} }));
        apply(server, &applied);
        let (event, decided) = decide(&applied);
        yield_now().await;
        for _ in 0..20 {
            holder.send(&[1; 100]);
            client.send(&[1; 100]);
            event.notify();
            while decided.borrow().is_empty() {
                yield_now().await;
            }
            assert_eq!(decided.take(), [100]);
            yield_now().await;
        }
        assert!(metrics().parks > 0);
    });
}

#[test]
fn a_peer_that_never_pauses_does_not_hold_up_work() {
    const BUFFERS: usize = 16;
    // No time at all: a turn reaps once.
    let builder = Runtime::builder().buffers(BUFFERS as u16, 64).budget(Duration::ZERO);
    run_on(&builder.build().unwrap(), async {
        let (listener, address) = listen();
        let flood = std::thread::spawn(move || {
            use std::io::Write;
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            // Until the other end is closed.
            while stream.write_all(&[7; 4096]).is_ok() {}
        });
        let server = listener.accept().await.unwrap();
        let handle = server.clone();
        let applied = Rc::new(Cell::new(0));
        let reading = spawn_at(Stage::Input, {
            let applied = applied.clone();
            async move {
                while let Ok(Some(_)) = server.receive().await {
                    applied.set(applied.get() + 1);
                }
            }
        });
        while metrics().inputs_cut_short < 200 {
            yield_now().await;
            let leases = applied.take();
            assert!(leases <= BUFFERS, "{leases} buffers were applied in one turn");
        }
        handle.abort();
        reading.await.unwrap();
        drop(handle);
        while metrics().live_connections > 0 {
            yield_now().await;
        }
        flood.join().unwrap();
    });
}

#[test]
fn what_falls_due_while_input_is_applied_fires_in_the_same_turn() {
    run(async {
        let event = Rc::new(Notify::new());
        let deadline = Rc::new(Cell::new(now()));
        let deciding = spawn_at(Stage::Decide, {
            let (event, deadline) = (event.clone(), deadline.clone());
            async move {
                event.notified().await;
                let fired = metrics().timers;
                (now() >= deadline.get(), fired)
            }
        });
        yield_now().await;
        let fired = metrics().timers;
        drop(spawn_at(Stage::Input, async move {
            let due = clock_now() + Duration::from_micros(100);
            deadline.set(due);
            let mut sleeping = std::pin::pin!(sleep_until(due));
            assert!(polled(&mut sleeping).await.is_pending());
            while clock_now() < due {}
            event.notify();
            sleeping.await;
        }));
        assert_eq!(deciding.await.unwrap(), (true, fired + 1));
    });
}

/// Polls a future once, within a task.
async fn polled<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(std::pin::Pin::new(&mut *future).poll(context))).await
}
