//! From which length on it pays not to copy what is sent: what
//! [`Builder::zero_copy`](bowline_runtime::Builder::zero_copy) is to be set to.
//!
//! ```text
//! cargo bench -p bowline-runtime-bench --bench zero_copy                        # over loopback
//! cargo bench -p bowline-runtime-bench --bench zero_copy -- sink 0.0.0.0:7200   # on another host
//! cargo bench -p bowline-runtime-bench --bench zero_copy -- 10.0.0.2:7200       # to that host
//! ```
//!
//! Only the last two tell: over loopback the kernel copies all the same, and so the second column
//! shows the price of not copying without what it gains. Requests of one length go out one after the
//! other, copied and not, in rounds that take turns; printed are the medians of the rate and of the
//! sender's CPU time for a request, and the length from which on not to copy takes less of it.

use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bowline_runtime::net::TcpStream;
use bowline_runtime::{Runtime, metrics};

const LENGTHS: [usize; 9] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];

/// What sending requests of one length came to.
#[derive(Clone, Copy)]
struct Outcome {
    /// Bytes a second.
    rate: f64,
    /// Microseconds of the sender's CPU time a request.
    cpu: f64,
}

fn main() {
    // Cargo adds an argument of its own. Without it, run as a test, it only shows that it works.
    let measured = std::env::args().any(|argument| argument == "--bench");
    let (rounds, round) =
        if measured { (7, Duration::from_millis(200)) } else { (1, Duration::from_millis(1)) };
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let address = match (arguments.next().as_deref(), arguments.next()) {
        (Some("sink"), Some(address)) => return sink(&bind(&address)),
        (Some(address), None) => address.parse().expect("an address and a port to send to"),
        _ => {
            let listener = bind("127.0.0.1:0");
            let address = listener.local_addr().expect("an address");
            std::thread::spawn(move || sink(&listener));
            address
        }
    };
    println!("  bytes   copied MB/s  us CPU   lent MB/s  us CPU   ratio of CPU");
    let mut pays = None;
    for length in LENGTHS {
        let mut outcomes = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            outcomes[0].push(send(address, length, None, round));
            outcomes[1].push(send(address, length, Some(1), round));
        }
        let [copied, lent] = outcomes.map(median);
        let ratio = lent.cpu / copied.cpu;
        println!(
            "{length:>7} {:>13.0} {:>7.1} {:>11.0} {:>7.1} {ratio:>14.2}",
            copied.rate / 1e6,
            copied.cpu,
            lent.rate / 1e6,
            lent.cpu,
        );
        pays = if ratio < 1.0 { pays.or(Some(length)) } else { None };
    }
    match pays {
        Some(length) => println!("not to copy takes less CPU time from {length} bytes on"),
        None => println!("not to copy takes more CPU time, whatever the length"),
    }
}

fn median(mut outcomes: Vec<Outcome>) -> Outcome {
    outcomes.sort_by(|a, b| a.cpu.total_cmp(&b.cpu));
    outcomes[outcomes.len() / 2]
}

fn bind(address: &str) -> TcpListener {
    TcpListener::bind(address).expect("an address of this host, and a free port")
}

/// Reads what comes, one connection after the other.
fn sink(listener: &TcpListener) {
    use std::io::Read;
    let mut bytes = vec![0; 1 << 20];
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        while stream.read(&mut bytes).is_ok_and(|length| length > 0) {}
    }
}

fn send(address: SocketAddr, length: usize, zero_copy: Option<usize>, round: Duration) -> Outcome {
    let runtime = Runtime::builder().zero_copy(zero_copy).build().expect("io_uring");
    let piece: Rc<[u8]> = vec![7; length].into();
    runtime.block_on(async {
        let limit = Duration::from_secs(5);
        let stream = TcpStream::connect(address, limit).await.expect("a sink");
        let (start, start_cpu) = (Instant::now(), cpu_time());
        let mut count = 0.0;
        while start.elapsed() < round {
            stream.send_piece(piece.clone());
            stream.drained(0).await.expect("a sink that reads");
            count += 1.0;
        }
        let (time, cpu) = (start.elapsed(), cpu_time() - start_cpu);
        assert_eq!(metrics().zero_copy_refused, 0, "this kernel, or RLIMIT_MEMLOCK, refuses it");
        Outcome { rate: count * length as f64 / time.as_secs_f64(), cpu: cpu / count }
    })
}

/// The CPU time of this thread, in microseconds.
fn cpu_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to the struct that is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
