//! Echo of 64-byte frames over loopback: the runtime beside a hand-written io_uring loop, in turns.
//!
//! `cargo bench -p bowline-runtime-bench --bench echo [-- seconds-per-cell rounds]`
//!
//! Both sides of a connection run on threads of their own. So many frames are in flight at once as
//! the depth says. The raw loop is what one writes first: one multishot receive, one send a turn, no
//! tasks, no timers. The lean one is what is left if it also does without the completions of its
//! sends, as the runtime does (and so can't go on where a socket has no room). What is printed are the
//! medians of interleaved rounds, and of the runtime's ratio to either within a round; of the ratios
//! also the quartiles.

use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bowline_runtime::net::{ListenOptions, TcpListener, TcpStream};
use bowline_runtime::{Metrics, Runtime, Stage, metrics, spawn_at};

const FRAME: usize = 64;

/// What is measured: how many connections, how many frames in flight on each, and whether to spin.
#[derive(Clone, Copy)]
struct Cell {
    connections: usize,
    depth: usize,
    spin: Duration,
}

/// Frames a second there and back; of the client's side, calls of io_uring_enter a frame and
/// nanoseconds of CPU time, which tell something even on a machine that is not idle.
#[derive(Clone, Copy, Default)]
struct Outcome {
    rate: f64,
    enters: f64,
    cpu: f64,
}

/// The CPU time of this thread, in nanoseconds.
fn cpu_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to the struct that is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn main() {
    let numbers: Vec<f64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    // Run as a test it only shows that it works.
    let measured = std::env::args().any(|argument| argument == "--bench");
    let (time, rounds) = if measured { (0.5, 5.0) } else { (0.01, 1.0) };
    let time = Duration::from_secs_f64(numbers.first().copied().unwrap_or(time));
    let rounds = (numbers.get(1).copied().unwrap_or(rounds) as usize).max(1);
    let spins = [Duration::ZERO, Duration::from_micros(50)];
    println!(
        "connections depth  spin      raw/s     lean/s  runtime/s  {:<22} {:<22} enters a frame     \
         CPU ns a frame",
        "to raw", "to lean"
    );
    for spin in spins {
        for (connections, depth) in [(1, 1), (1, 32), (1, 128), (64, 1)] {
            let cell = Cell { connections, depth, spin };
            let rounds: Vec<_> = (0..rounds).map(|turn| round(cell, time, turn)).collect();
            println!("{connections:>11} {depth:>5} {:>4}us {}", spin.as_micros(), line(&rounds));
        }
    }
}

/// What the raw loop, the lean one and the runtime reached, one after the other; who begins, changes.
fn round(cell: Cell, time: Duration, turn: usize) -> [Outcome; 3] {
    let mut outcomes = [Outcome::default(); 3];
    for place in 0..3 {
        let who = (turn + place) % 3;
        outcomes[who] = match who {
            0 => raw(cell, time, false),
            1 => raw(cell, time, true),
            _ => runtime(cell, time),
        };
    }
    outcomes
}

/// The medians of all rounds, and of their ratios, with the quartiles of those.
fn line(rounds: &[[Outcome; 3]]) -> String {
    let of = |figure: fn(&Outcome) -> f64| {
        [0, 1, 2].map(|who| quartiles(rounds.iter().map(|round| figure(&round[who])))[1])
    };
    let ratio = |to: usize| {
        let [low, median, high] = quartiles(rounds.iter().map(|of| of[2].rate / of[to].rate));
        format!("{median:.3} ({low:.3} to {high:.3})")
    };
    let [raw, lean, runtime] = of(|outcome| outcome.rate);
    let enters = of(|outcome| outcome.enters).map(|enters| format!("{enters:.3}")).join(" ");
    let cpu = of(|outcome| outcome.cpu).map(|cpu| format!("{cpu:>6.0}")).join(" ");
    let (to_raw, to_lean) = (ratio(0), ratio(1));
    format!("{raw:>10.0} {lean:>10.0} {runtime:>10.0}  {to_raw} {to_lean} {enters} {cpu}")
}

fn quartiles(figures: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| figures[(figures.len() - 1) * quarter / 4])
}

// The runtime.

fn runtime(cell: Cell, time: Duration) -> Outcome {
    let (send, receive) = mpsc::channel();
    let server = std::thread::spawn(move || {
        let runtime = Runtime::builder().pin(Some(0)).spin(cell.spin).build().unwrap();
        runtime.block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let listener = TcpListener::bind(any, ListenOptions::default()).unwrap();
            send.send(listener.local_addr().unwrap()).unwrap();
            let mut tasks = Vec::new();
            for _ in 0..cell.connections {
                let stream = listener.accept().await.unwrap();
                tasks.push(spawn_at(Stage::Input, async move {
                    while let Ok(Some(lease)) = stream.receive().await {
                        stream.send(&lease);
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
    let address = receive.recv().unwrap();
    let client = Runtime::builder().pin(Some(1)).spin(cell.spin).build().unwrap();
    let start = cpu_time();
    let outcome = client.block_on(async {
        let mut tasks = Vec::new();
        for _ in 0..cell.connections {
            tasks.push(spawn_at(Stage::Input, drive(address, cell.depth, time)));
        }
        let mut rate = 0.0;
        for task in tasks {
            rate += task.await.unwrap();
        }
        let Metrics { enters, bytes_received, .. } = metrics();
        let frames = bytes_received as f64 / FRAME as f64;
        Outcome { rate, enters: enters as f64 / frames, cpu: (cpu_time() - start) / frames }
    });
    drop(client);
    server.join().unwrap();
    outcome
}

async fn drive(address: SocketAddr, depth: usize, time: Duration) -> f64 {
    let stream = TcpStream::connect(address, Duration::from_secs(5)).await.unwrap();
    let start = Instant::now();
    stream.send(&vec![7; FRAME * depth]);
    let mut bytes = 0;
    while start.elapsed() < time {
        let lease = stream.receive().await.unwrap().unwrap();
        bytes += lease.len();
        stream.send(&lease);
    }
    (bytes / FRAME) as f64 / start.elapsed().as_secs_f64()
}

// The raw loops.

fn raw(cell: Cell, time: Duration, lean: bool) -> Outcome {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        core_affinity::set_for_current(core_affinity::CoreId { id: 0 });
        let streams = (0..cell.connections).map(|_| listener.accept().unwrap().0).collect();
        raw::Loop::new(streams, cell.spin, lean).run(None)
    });
    core_affinity::set_for_current(core_affinity::CoreId { id: 1 });
    let streams = (0..cell.connections).map(|_| StdStream::connect(address).unwrap()).collect();
    let mut client = raw::Loop::new(streams, cell.spin, lean);
    client.start(FRAME * cell.depth);
    let (start, start_cpu) = (Instant::now(), cpu_time());
    let (bytes, enters) = client.run(Some(start + time));
    let frames = bytes as f64 / FRAME as f64;
    let rate = frames / start.elapsed().as_secs_f64();
    let cpu = (cpu_time() - start_cpu) / frames;
    drop(client);
    server.join().unwrap();
    Outcome { rate, enters: enters as f64 / frames, cpu }
}

mod raw {
    use super::*;
    use io_uring::{IoUring, cqueue, opcode, squeue, types};
    use std::sync::atomic::{AtomicU16, Ordering};

    const BUFFERS: u16 = 256;
    const SIZE: usize = 16 << 10;
    const STRIDE: usize = SIZE + 64;
    const SEND: u64 = 1 << 32;

    #[repr(C, align(4096))]
    struct Ring([types::BufRingEntry; BUFFERS as usize]);

    /// What is sent, double: one half may be in flight.
    #[derive(Default)]
    struct Out {
        filling: Vec<u8>,
        sending: Vec<u8>,
        in_flight: bool,
    }

    pub(super) struct Loop {
        ring: IoUring,
        streams: Vec<StdStream>,
        outs: Vec<Out>,
        buffers: Box<Ring>,
        memory: Vec<u8>,
        tail: u16,
        spin: Duration,
        lean: bool,
    }

    impl Loop {
        pub(super) fn new(streams: Vec<StdStream>, spin: Duration, lean: bool) -> Loop {
            let ring: IoUring = IoUring::builder()
                .setup_cqsize(4096)
                .setup_submit_all()
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_taskrun_flag()
                .build(1024)
                .unwrap();
            // SAFETY: entries are numbers, for which zero is valid.
            let buffers: Box<Ring> = Box::new(unsafe { std::mem::zeroed() });
            // SAFETY: the ring of buffers is aligned, and lives as long as the io_uring does.
            unsafe {
                ring.submitter().register_buf_ring_with_flags(
                    std::ptr::from_ref(&*buffers) as u64,
                    BUFFERS,
                    0,
                    0,
                )
            }
            .unwrap();
            let outs = streams.iter().map(|_| Out::default()).collect();
            let memory = vec![0; STRIDE * BUFFERS as usize];
            let mut this = Loop { ring, streams, outs, buffers, memory, tail: 0, spin, lean };
            (0..BUFFERS).for_each(|id| this.give(id));
            for index in 0..this.streams.len() {
                this.streams[index].set_nodelay(true).unwrap();
                this.receive(index);
            }
            this
        }

        pub(super) fn start(&mut self, length: usize) {
            for out in &mut self.outs {
                out.filling.resize(length, 7);
            }
            self.flush();
        }

        fn give(&mut self, id: u16) {
            let entry = &mut self.buffers.0[usize::from(self.tail % BUFFERS)];
            entry.set_addr(self.memory.as_ptr() as u64 + (usize::from(id) * STRIDE) as u64);
            entry.set_len(SIZE as u32);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            let first = self.buffers.0.as_ptr();
            // SAFETY: the pointer is to the first entry, and the field is two bytes, aligned.
            unsafe {
                AtomicU16::from_ptr(types::BufRingEntry::tail(first).cast_mut())
                    .store(self.tail, Ordering::Release);
            }
        }

        fn receive(&mut self, index: usize) {
            let fd = types::Fd(self.streams[index].as_raw_fd());
            let entry = opcode::RecvMulti::new(fd, 0).build().user_data(index as u64);
            // SAFETY: the buffers live as long as the ring.
            unsafe { self.ring.submission().push(&entry).unwrap() };
        }

        fn flush(&mut self) {
            for (index, out) in self.outs.iter_mut().enumerate() {
                if out.in_flight || out.filling.is_empty() {
                    continue;
                }
                out.sending.clear();
                std::mem::swap(&mut out.sending, &mut out.filling);
                out.in_flight = !self.lean;
                let (wait, tell) = match self.lean {
                    true => (libc::MSG_DONTWAIT, squeue::Flags::SKIP_SUCCESS),
                    false => (0, squeue::Flags::empty()),
                };
                let fd = types::Fd(self.streams[index].as_raw_fd());
                let entry = opcode::Send::new(fd, out.sending.as_ptr(), out.sending.len() as u32)
                    .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL | wait)
                    .build()
                    .flags(tell)
                    .user_data(SEND | index as u64);
                // SAFETY: the bytes are left alone until the completion.
                unsafe { self.ring.submission().push(&entry).unwrap() };
            }
        }

        /// Sends back what comes, until the time or the peer's end. Bytes and enters.
        pub(super) fn run(&mut self, until: Option<Instant>) -> (usize, usize) {
            let (mut bytes, mut enters, mut open) = (0, 0, self.streams.len());
            let mut entries = Vec::new();
            while open > 0 && until.is_none_or(|until| Instant::now() < until) {
                enters += self.wait();
                entries.extend(self.ring.completion());
                for entry in entries.drain(..) {
                    let index = entry.user_data() as u32 as usize;
                    if entry.user_data() & SEND != 0 {
                        let failed =
                            self.lean && (entry.result() >= 0 || entry.result() == -libc::EAGAIN);
                        assert!(!failed, "a frame found no room in its socket");
                        self.outs[index].in_flight = false;
                        continue;
                    }
                    if let Some(id) = cqueue::buffer_select(entry.flags()) {
                        let start = usize::from(id) * STRIDE;
                        let received = &self.memory[start..start + entry.result() as usize];
                        self.outs[index].filling.extend_from_slice(received);
                        bytes += received.len();
                        self.give(id);
                    } else {
                        open -= 1;
                    }
                }
                self.flush();
            }
            (bytes, enters)
        }

        fn wait(&mut self) -> usize {
            if self.spin.is_zero() {
                self.ring.submit_and_wait(1).unwrap();
                return 1;
            }
            self.ring.submit().unwrap();
            let end = Instant::now() + self.spin;
            while self.ring.completion().is_empty() && !self.ring.submission().taskrun() {
                if Instant::now() >= end {
                    self.ring.submit_and_wait(1).unwrap();
                    return 2;
                }
                std::hint::spin_loop();
            }
            if self.ring.submission().taskrun() {
                self.ring.submit().unwrap();
                return 2;
            }
            1
        }
    }
}
