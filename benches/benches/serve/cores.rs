//! Do two cores answer twice as many calls as one?
//!
//! Each call burns a fixed amount of work on the server's core, measured beforehand to be some 200 us
//! (work, not time: two threads that share a CPU spend time twice as fast, and work they do not). A
//! client needs a few us of CPU for that, on the same machine; what it takes is printed beside, for
//! on two CPUs it is what two cores can't have.

use std::hint::black_box;
use std::net::SocketAddr;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use bowline_protocol::{Method, MethodInfo, ServiceInfo};
use bowline_server::{Context, Failure, Payload, Server, Service};

use super::load::{Carried, PATIENT, carry};
use super::{Effort, median, spread};

const BURN: Method = Method(1);
const METHODS: &[MethodInfo] = &[MethodInfo::new(BURN, "burn").idempotent()];
/// What a call burns.
const WORK: Duration = Duration::from_micros(200);
/// Calls under way at each address.
const DEPTH: usize = 8;
/// Addresses: one for each of two cores, or both of the only one.
const CLIENTS: usize = 2;
/// Two cores answer at least this of what they could, of all that the clients leave them.
const LEAST: f64 = 0.8;

/// Burns so many steps a call.
#[derive(Clone)]
struct Burner(u64);

impl Service for Burner {
    type Reply = Payload;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("burner", METHODS)
    }

    async fn call(&self, _: Context, request: Payload) -> Result<Payload, Failure> {
        burn(self.0);
        Ok(request)
    }
}

/// Steps that depend on each other, so that no compiler and no processor takes several at once.
fn burn(steps: u64) {
    let mut value = black_box(1_u64);
    for step in 0..steps {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step);
    }
    black_box(value);
}

/// How many steps take as long as a call is to: by the fastest of several tries.
fn steps() -> u64 {
    const TRY: u64 = 1_000_000;
    let tries = (0..20).map(|_| {
        let began = Instant::now();
        burn(TRY);
        began.elapsed()
    });
    let fastest = tries.min().unwrap_or(WORK).max(Duration::from_nanos(1));
    (TRY as f64 * WORK.as_secs_f64() / fastest.as_secs_f64()) as u64
}

fn turn(cores: usize, steps: u64, effort: Effort) -> Carried {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::builder().listen(any).pin_to(0..cores).link(PATIENT).start(Burner(steps));
    let server = server.expect("a server");
    let ports = server.ports();
    let address = |client| SocketAddr::new(any.ip(), ports[client % ports.len()]);
    let addresses: Vec<SocketAddr> = (0..CLIENTS).map(address).collect();
    carry(&addresses, BURN, DEPTH, (effort.time(500), effort.time(3000)), || ())
}

/// False if two cores answer less than they have to, where that was measured.
pub(crate) fn measure(effort: Effort) -> bool {
    if available_parallelism().map_or(1, usize::from) < 2 {
        println!("This machine has but one CPU: what two cores are of use is not measured.\n");
        return true;
    }
    let steps = steps();
    println!(
        "How many calls a second a server answers with one core (a thread on a CPU of its own), and with two."
    );
    println!(
        "{CLIENTS} clients keep {DEPTH} calls each under way, and a call burns {WORK:?} of the server's CPU. \
         Median of {} rounds (least-greatest).\n",
        effort.rounds
    );
    println!("{:<14} {:<24} {:<24}", "server cores", "calls/s", "CPUs that clients took");
    let mut turns = [Vec::new(), Vec::new()];
    for round in 0..effort.rounds {
        for contestant in 0..2 {
            let cores = (contestant + round) % 2 + 1;
            turns[cores - 1].push(turn(cores, steps, effort));
        }
    }
    for (cores, turns) in (1..).zip(&turns) {
        let rate = spread(turns.iter().map(|turn| turn.calls_per_s).collect(), 0);
        let client = spread(turns.iter().map(|turn| turn.client_cpus).collect(), 3);
        println!("{cores:<14} {rate:<24} {client:<24}");
    }
    let pairs = || turns[0].iter().zip(&turns[1]);
    let ratio = spread(pairs().map(|(one, two)| two.calls_per_s / one.calls_per_s).collect(), 3);
    // What the clients take of the machine's two CPUs is none of the server's.
    let most = |two: &Carried| (2.0 - two.client_cpus).max(1.0);
    let best = spread(turns[1].iter().map(most).collect(), 3);
    let mut reached: Vec<f64> =
        pairs().map(|(one, two)| two.calls_per_s / one.calls_per_s / most(two)).collect();
    println!("\nTwo cores answer {ratio} times as many calls as one.");
    println!(
        "On two CPUs, of which the clients take their part, it could be {best} times as many:"
    );
    println!("so two cores reach {} of what is possible.", spread(reached.clone(), 3));
    let scales = !effort.is_whole() || median(&mut reached) >= LEAST;
    match (effort.is_whole(), scales) {
        (false, _) => println!("(Too short a run to judge that: cargo bench takes the time.)\n"),
        (true, true) => println!("That is {LEAST} at least, as it has to be.\n"),
        (true, false) => println!("That is less than {LEAST}: they are in each other's way.\n"),
    }
    scales
}
