//! The runtime on a driver that does its worst, by a seed. Run under a sanitizer, these show who
//! frees memory too early; without one, who loses bytes, wakes, buffers or descriptors.
//!
//! `ROUNDS` sets how many seeds are tried; `SEED`, where to start.

mod common;

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use bowline_runtime::fs::{File, OpenOptions};
use bowline_runtime::net::{TcpListener, TcpStream};
use bowline_runtime::{
    Builder, Faults, ReceiveMode, Runtime, Simulation, Stage, buffer, metrics, spawn, spawn_at,
    timeout, yield_now,
};
use bytes::Bytes;
use common::log::Ear;
use common::{LONG, accept_one, listen, pattern, rounds, run_on, run_without_timer};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// Runs a future on a simulated driver, once for each seed, and checks that nothing is left.
fn simulate<F: Future<Output = ()>>(faults: Faults, make: impl Fn(u64) -> F) {
    simulate_on(&Runtime::builder().buffers(4, 512), faults, make);
}

fn simulate_on<F: Future<Output = ()>>(builder: &Builder, faults: Faults, make: impl Fn(u64) -> F) {
    for seed in seeds() {
        let runtime = builder.clone().simulate(seed, faults).build().unwrap();
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run_on(&runtime, make(seed));
        }));
        assert!(told.is_ok(), "seed {seed}");
    }
}

fn seeds() -> Range<u64> {
    let first = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    first..first + rounds(100) as u64
}

async fn echo(stream: TcpStream) -> std::io::Result<()> {
    while let Some(bytes) = stream.receive().await? {
        stream.send(&bytes);
    }
    Ok(())
}

fn serve_echo(listener: TcpListener) {
    drop(spawn_at(Stage::Input, async move {
        while let Ok(stream) = listener.accept().await {
            drop(spawn_at(Stage::Input, echo(stream)));
        }
    }));
}

/// Sends and checks what comes back; says how many rounds went well.
async fn ping(address: std::net::SocketAddr, number: usize) -> std::io::Result<usize> {
    let stream = loop {
        match TcpStream::connect(address, LONG).await {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                yield_now().await;
            }
            other => break other?,
        }
    };
    for round in 0..10 {
        let message = pattern(100 + round * 500, number + round);
        stream.send(&message[..50]);
        stream.send_piece(message[50..].to_vec());
        let mut reply = Vec::new();
        while reply.len() < message.len() {
            match stream.receive().await? {
                Some(lease) => reply.extend_from_slice(&lease),
                None => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            }
        }
        assert!(reply == message, "peer {number}, round {round}");
    }
    Ok(number)
}

#[test]
fn every_byte_comes_back_whatever_the_driver_does() {
    simulate(Faults::default(), async |_| {
        let (listener, address) = listen();
        serve_echo(listener);
        let peers: Vec<_> = (0..6).map(|number| spawn(ping(address, number))).collect();
        for (number, peer) in peers.into_iter().enumerate() {
            assert_eq!(peer.await.unwrap().unwrap(), number);
        }
    });
}

#[test]
fn every_byte_comes_back_and_every_buffer_however_the_driver_fills_them() {
    for mode in [ReceiveMode::Bundles, ReceiveMode::Incremental] {
        for count in [1, 8] {
            let builder = Runtime::builder().buffers(count, 300).receive_mode(mode);
            simulate_on(&builder, Faults::default(), async |seed| {
                let (listener, address) = listen();
                serve_echo(listener);
                let peers: Vec<_> = (0..6).map(|number| spawn(ping(address, number))).collect();
                for (number, peer) in peers.into_iter().enumerate() {
                    if (seed as usize + number).is_multiple_of(5) {
                        peer.abort();
                        let _ = peer.await;
                    } else {
                        assert_eq!(peer.await.unwrap().unwrap(), number, "{mode:?}");
                    }
                }
                while metrics().live_connections > 0 || metrics().free_buffers < count.into() {
                    yield_now().await;
                }
            });
        }
    }
}

#[test]
fn leases_that_are_kept_keep_what_is_in_them_and_hold_up_nobody() {
    for mode in [ReceiveMode::Single, ReceiveMode::Bundles, ReceiveMode::Incremental] {
        let builder = Runtime::builder().buffers(4, 256).receive_mode(mode);
        simulate_on(&builder, Faults::default(), async |seed| {
            let (listener, address) = listen();
            let connecting = spawn(TcpStream::connect(address, LONG));
            let server = listener.accept().await.unwrap();
            let client = connecting.await.unwrap().unwrap();
            let message = pattern(20_000, seed as usize);
            client.send(&message);
            drop(client);
            let mut leases = Vec::new();
            while let Some(lease) = server.receive().await.unwrap() {
                leases.push(lease);
            }
            let kept: Vec<u8> = leases.iter().flat_map(|lease| lease.iter().copied()).collect();
            assert!(kept == message, "{mode:?}");
            // The first of them have buffers still.
            assert!(metrics().free_buffers < 4 || mode == ReceiveMode::Incremental);
            drop((leases, server));
            while metrics().live_connections > 0 || metrics().free_buffers < 4 {
                yield_now().await;
            }
        });
    }
}

#[test]
fn a_completion_queue_that_overflows_all_the_time_loses_nothing() {
    let builder = Runtime::builder().buffers(4, 512).entries(2).completions(2);
    let overflows = Cell::new(0);
    simulate_on(&builder, Faults { delay: 100, ..Faults::default() }, async |_| {
        let (listener, address) = listen();
        serve_echo(listener);
        let peers: Vec<_> = (0..12).map(|number| spawn(ping(address, number))).collect();
        for (number, peer) in peers.into_iter().enumerate() {
            assert_eq!(peer.await.unwrap().unwrap(), number);
        }
        overflows.set(overflows.get() + metrics().overflows);
    });
    assert!(overflows.get() > 0, "the queue had room for all");
}

#[test]
fn what_is_sent_without_a_copy_stays_as_it_is_until_the_driver_says_so() {
    let builder = Runtime::builder().buffers(4, 512).zero_copy(Some(600));
    simulate_on(&builder, Faults { reset: 10, ..Faults::default() }, async |_| {
        let (listener, address) = listen();
        serve_echo(listener);
        let peers: Vec<_> = (0..6).map(|number| spawn(ping(address, number))).collect();
        for (number, peer) in peers.into_iter().enumerate() {
            if number % 2 == 0 {
                peer.abort();
            }
            let _ = peer.await;
        }
        while metrics().live_connections > 0 || metrics().free_buffers < 4 {
            yield_now().await;
        }
    });
}

#[test]
fn a_send_that_may_lock_no_memory_is_copied_and_the_next_one_tries_again() {
    let builder = Runtime::builder().buffers(4, 512).zero_copy(Some(600));
    let (sends, refused) = (Cell::new(0), Cell::new(0));
    simulate_on(&builder, Faults { refuse_zero_copy: 500, ..Faults::default() }, async |_| {
        let (listener, address) = listen();
        serve_echo(listener);
        assert_eq!(ping(address, 7).await.unwrap(), 7);
        sends.set(sends.get() + metrics().zero_copy_sends);
        refused.set(refused.get() + metrics().zero_copy_refused);
    });
    let ends = 2 * rounds(100) as u64;
    assert!(refused.get() > ends, "{} refusals: none is a connection's last word", refused.get());
    assert!(sends.get() > refused.get() + ends, "{} of {}", refused.get(), sends.get());
}

#[test]
fn connections_that_are_reset_fail_and_leave_nothing() {
    simulate(Faults { reset: 20, ..Faults::default() }, async |_| {
        let (listener, address) = listen();
        serve_echo(listener);
        let peers: Vec<_> = (0..8).map(|number| spawn(ping(address, number))).collect();
        for peer in peers {
            if let Err(error) = peer.await.unwrap() {
                use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
                let kind = error.kind();
                assert!(matches!(kind, BrokenPipe | ConnectionReset | UnexpectedEof), "{error}");
            }
        }
        // All connections close, and every buffer comes back.
        while metrics().live_connections > 0 || metrics().free_buffers < 4 {
            yield_now().await;
        }
    });
}

#[test]
fn tasks_aborted_at_any_moment_leave_nothing() {
    simulate(Faults::default(), async |seed| {
        let (listener, address) = listen();
        serve_echo(listener);
        let peers: Vec<_> = (0..6).map(|number| spawn(ping(address, number))).collect();
        for (number, peer) in peers.iter().enumerate() {
            for _ in 0..(seed as usize * 7 + number * 13) % 40 {
                yield_now().await;
            }
            peer.abort();
        }
        for peer in peers {
            let _ = peer.await;
        }
        while metrics().live_connections > 0 || metrics().free_buffers < 4 {
            yield_now().await;
        }
    });
}

#[test]
fn who_waits_for_what_left_in_the_middle_of_a_turn_hears_of_it_though_it_was_taken_late() {
    let faults = Faults { submit_short: 500, ..Faults::default() };
    let builder = Runtime::builder().buffers(4, 512).budget(LONG);
    for seed in seeds() {
        run_without_timer(builder.clone().simulate(seed, faults), async || {
            let (listener, address) = listen();
            let connecting = spawn(TcpStream::connect(address, LONG));
            let _server = listener.accept().await.unwrap();
            let client = connecting.await.unwrap().unwrap();
            let sending = spawn_at(Stage::Work, {
                let client = client.clone();
                async move { client.send(&[1; 16 << 10]) }
            });
            let waiting = spawn_at(Stage::Work, async move { client.drained(0).await });
            sending.await.unwrap();
            waiting.await.unwrap().unwrap();
        });
    }
}

#[test]
fn file_operations_survive_short_transfers_and_dropped_futures() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    simulate(Faults::default(), async |seed| {
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = File::open(&path, options).await.unwrap();
        let mut block = buffer::take(20_000);
        block.copy_from_slice(&pattern(20_000, seed as usize));
        let (result, block) = file.write_all_at(block, 0).await;
        result.unwrap();
        file.sync_all().await.unwrap();
        for round in 0..20 {
            let mut reading = Box::pin(file.read_exact_at(buffer::take(10_000), round * 500));
            let _ = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            for _ in 0..(seed + round) % 5 {
                yield_now().await;
            }
            if round % 2 == 0 {
                drop(reading);
                buffer::take(10_000).fill(0x55);
            } else {
                let (result, read) = reading.await;
                result.unwrap();
                let start = round as usize * 500;
                assert!(read[..] == block[start..start + 10_000], "round {round}");
            }
        }
        // Some are in flight when the runtime ends.
        for _ in 0..4 {
            let mut reading = Box::pin(file.read_at(buffer::take(10_000), 0));
            let _ = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
    });
}

#[test]
fn timers_and_other_threads_work_without_a_ring() {
    simulate(Faults { delay: 0, ..Faults::default() }, async |_| {
        bowline_runtime::sleep(Duration::from_micros(300)).await;
        assert!(timeout(Duration::from_micros(50), std::future::pending::<()>()).await.is_err());
        let (sender, mut receiver) = bowline_runtime::channel::bounded(1);
        let thread = std::thread::spawn(move || sender.try_send(7).is_ok());
        assert_eq!(receiver.receive().await, Some(7));
        assert!(thread.join().unwrap());
    });
}

/// Bytes of which one can tell whether they are there still.
struct Owned(#[expect(dead_code, reason = "it is counted")] Arc<()>);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &[7; 5000]
    }
}

/// What an event says.
#[derive(Default)]
struct Said {
    message: String,
    requests: u64,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "requests" {
            self.requests = value;
        }
    }
}

/// Ends a runtime with bytes on their way that `faults` befall. Gives what it said of that, for how
/// long it waited, and the bytes.
fn end(faults: Faults, patience: Duration) -> (Vec<Said>, Duration, Weak<()>) {
    let simulation = Simulation::new(1, Faults::default(), 1);
    let builder = Runtime::builder().patience(patience).simulate_in(&simulation);
    let runtime = builder.build().unwrap();
    let owner = Arc::new(());
    let owned = Arc::downgrade(&owner);
    run_on(&runtime, async {
        let (listener, address) = listen();
        let (client, _server) = accept_one(&listener, address).await;
        simulation.set_faults(faults);
        client.send_piece(Bytes::from_owner(Owned(owner)));
    });
    assert_eq!(owned.strong_count(), 1, "they have left already");
    let said = Arc::new(Mutex::new(Vec::new()));
    let ear = Ear(Level::ERROR, {
        let said = said.clone();
        move |event: &Event<'_>| {
            let mut heard = Said::default();
            event.record(&mut heard);
            said.lock().unwrap().push(heard);
        }
    });
    let began = simulation.elapsed();
    tracing::subscriber::with_default(ear, || drop(runtime));
    let said = std::mem::take(&mut *said.lock().unwrap());
    (said, simulation.elapsed() - began, owned)
}

#[test]
fn memory_that_the_kernel_never_lets_go_is_leaked_once_patience_is_over_and_that_is_told() {
    let patience = Duration::from_millis(300);
    let never = Faults { delay: 1000, ..Faults::default() };
    let (said, waited, owned) = end(never, patience);
    assert_eq!(owned.strong_count(), 1, "the kernel may still read what was freed");
    let [said] = &said[..] else { panic!("it said {} things", said.len()) };
    assert!(said.message.contains("the kernel still holds memory"), "{}", said.message);
    assert!(said.requests >= 1);
    // The core's clock may be a little faster than the world's.
    assert!(waited.abs_diff(patience) < Duration::from_millis(1), "{waited:?}");
}

#[test]
fn memory_that_the_kernel_lets_go_late_is_waited_for() {
    let late = Faults { delay: 990, cancel_late: 1000, ..Faults::default() };
    let (said, _, owned) = end(late, Duration::from_secs(300));
    assert_eq!((said.len(), owned.strong_count()), (0, 0));
}
