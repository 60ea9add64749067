//! What each [`ReceiveMode`] costs, and what it spares.
//!
//! `cargo bench -p bowline-runtime-bench --bench receive_mode [-- seconds-per-cell rounds]`
//!
//! A thread with a blocking socket sends over loopback; the runtime receives. Either it sends small
//! messages on many connections, each when the one before was answered, or one stream of bytes as
//! fast as they are taken. The modes take turns; printed are medians: of the rate, of the
//! completions that the kernel made, and of the receiving core's CPU time. Modes that are not to be had
//! here are left out.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::time::{Duration, Instant};

use bowline_runtime::net::{ListenOptions, TcpListener};
use bowline_runtime::{ReceiveMode, Runtime, Stage, metrics, spawn_at};

const MODES: [ReceiveMode; 3] =
    [ReceiveMode::Single, ReceiveMode::Bundles, ReceiveMode::Incremental];
const MESSAGE: usize = 64;
const CONNECTIONS: usize = 64;

/// What comes in: small messages that are answered, or a stream.
#[derive(Clone, Copy)]
enum Load {
    Messages,
    Stream,
}

#[derive(Clone, Copy)]
struct Outcome {
    /// Bytes a second.
    rate: f64,
    /// Completions, and nanoseconds of CPU time, a unit: a message, or a KiB.
    completions: f64,
    cpu: f64,
}

fn main() {
    let numbers: Vec<f64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    // Run as a test it only shows that it works.
    let measured = std::env::args().any(|argument| argument == "--bench");
    let (time, rounds) = if measured { (0.5, 7.0) } else { (0.01, 1.0) };
    let time = Duration::from_secs_f64(numbers.first().copied().unwrap_or(time));
    let rounds = (numbers.get(1).copied().unwrap_or(rounds) as usize).max(1);
    let modes = MODES.into_iter().filter(|&mode| {
        let runtime = Runtime::builder().receive_mode(mode).build().expect("io_uring");
        runtime.receive_mode() == mode
    });
    let modes: Vec<ReceiveMode> = modes.collect();
    println!(
        "load      buffers of  mode          MB/s  completions    CPU ns  (a message, or a KiB)"
    );
    for (load, name) in [(Load::Messages, "messages"), (Load::Stream, "stream")] {
        for size in [4 << 10, 16 << 10] {
            let mut outcomes = vec![Vec::new(); modes.len()];
            for _ in 0..rounds {
                for (&mode, outcomes) in modes.iter().zip(&mut outcomes) {
                    outcomes.push(measure(load, mode, size, time));
                }
            }
            for (mode, mut outcomes) in modes.iter().zip(outcomes) {
                outcomes.sort_by(|a: &Outcome, b| a.cpu.total_cmp(&b.cpu));
                let Outcome { rate, completions, cpu } = outcomes[outcomes.len() / 2];
                let (mode, rate) = (format!("{mode:?}"), rate / 1e6);
                println!(
                    "{name:<8} {size:>11}  {mode:<11} {rate:>6.1} {completions:>12.3} {cpu:>9.1}"
                );
            }
        }
    }
}

fn measure(load: Load, mode: ReceiveMode, size: u32, time: Duration) -> Outcome {
    let builder = Runtime::builder().pin(Some(0)).buffers(256, size).receive_mode(mode);
    builder.build().expect("io_uring").block_on(async {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = TcpListener::bind(any, ListenOptions::default()).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (connections, unit) = match load {
            Load::Messages => (CONNECTIONS, MESSAGE),
            Load::Stream => (1, 1 << 10),
        };
        let peer = std::thread::spawn(move || {
            core_affinity::set_for_current(core_affinity::CoreId { id: 1 });
            match load {
                Load::Messages => exchange(address, time),
                Load::Stream => pour(address, time),
            }
        });
        let (start, start_cpu) = (Instant::now(), cpu_time());
        let mut readers = Vec::new();
        for _ in 0..connections {
            let stream = listener.accept().await.expect("a peer");
            readers.push(spawn_at(Stage::Input, async move {
                while let Ok(Some(bytes)) = stream.receive().await {
                    if let Load::Messages = load {
                        stream.send(&bytes);
                    }
                }
            }));
        }
        for reader in readers {
            reader.await.expect("a reader");
        }
        let units = metrics().bytes_received as f64 / unit as f64;
        let receives = metrics().completions - metrics().sends;
        let cpu = (cpu_time() - start_cpu) / units;
        peer.join().expect("a peer");
        let rate = metrics().bytes_received as f64 / start.elapsed().as_secs_f64();
        Outcome { rate, completions: receives as f64 / units, cpu }
    })
}

/// A message on each connection, and then the answers.
fn exchange(address: SocketAddr, time: Duration) {
    let connect = |_| StdStream::connect(address).expect("a listener");
    let mut streams: Vec<StdStream> = (0..CONNECTIONS).map(connect).collect();
    let start = Instant::now();
    let mut message = [7; MESSAGE];
    while start.elapsed() < time {
        streams.iter_mut().for_each(|stream| stream.write_all(&message).expect("a reader"));
        streams.iter_mut().for_each(|stream| stream.read_exact(&mut message).expect("an answer"));
    }
}

fn pour(address: SocketAddr, time: Duration) {
    let mut stream = StdStream::connect(address).expect("a listener");
    let start = Instant::now();
    let bytes = vec![7; 256 << 10];
    while start.elapsed() < time {
        stream.write_all(&bytes).expect("a reader");
    }
}

/// The CPU time of this thread, in nanoseconds.
fn cpu_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to the struct that is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
