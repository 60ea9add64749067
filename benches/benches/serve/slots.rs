//! What do adaptive slots find, beside fixed ones that were set too low, well and too high?
//!
//! Handlers wait for a device that serves four requests side by side, a millisecond each, and the
//! others one after the other: a disk. 64 calls are always under way. With too few slots the device
//! idles. With too many, calls wait inside of their handlers for each other, where nobody can withdraw,
//! shed or overtake them; with the right number they wait in the queue, where everybody can.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bowline_protocol::{Method, MethodInfo, ServiceInfo};
use bowline_runtime::{Instant, clock_now, sleep_until};
use bowline_server::core::Adaptive;
use bowline_server::{Context, Failure, Payload, Server, Service};
use hdrhistogram::Histogram;

use super::load::{PATIENT, carry};
use super::{Effort, spread};

const READ: Method = Method(1);
const METHODS: &[MethodInfo] = &[MethodInfo::new(READ, "read").idempotent()];
/// Requests that the device serves side by side.
const CHANNELS: usize = 4;
/// What one takes.
const SERVICE: Duration = Duration::from_millis(1);
/// Calls under way.
const DEPTH: usize = 64;

/// How long calls waited in the queue, and how long their handlers took.
struct Times {
    queue: Histogram<u64>,
    handler: Histogram<u64>,
}

impl Times {
    fn new() -> Times {
        let empty = || Histogram::new_with_bounds(1, 60_000_000, 3).expect("sound bounds");
        Times { queue: empty(), handler: empty() }
    }
}

/// A core's own device, and what all of them note down.
struct Disk {
    /// When each channel is free again.
    free: RefCell<[Instant; CHANNELS]>,
    times: Arc<Mutex<Times>>,
}

impl Service for Disk {
    type Reply = Payload;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("disk", METHODS)
    }

    async fn call(&self, context: Context, request: Payload) -> Result<Payload, Failure> {
        let began = clock_now();
        let done = {
            let mut free = self.free.borrow_mut();
            let channel = free.iter_mut().min().expect("there are some");
            *channel = (*channel).max(began) + SERVICE;
            *channel
        };
        sleep_until(done).await;
        let mut times = self.times.lock().expect("nobody panics with it");
        times.queue.saturating_record(context.waited().as_micros() as u64);
        times.handler.saturating_record((clock_now() - began).as_micros() as u64);
        Ok(request)
    }
}

/// How many slots a server has.
#[derive(Clone, Copy)]
enum Slots {
    Fixed(u32),
    Adaptive(u32),
}

/// What a turn measured; times in milliseconds.
struct Turn {
    calls_per_s: f64,
    queue_p50: f64,
    handler_p50: f64,
    handler_p99: f64,
    slots: f64,
}

fn turn(slots: Slots, effort: Effort) -> Turn {
    let times = Arc::new(Mutex::new(Times::new()));
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    // First come first served, so that what calls wait is no matter of luck.
    let builder = Server::builder().listen(any).overload(None).link(PATIENT);
    let builder = match slots {
        Slots::Fixed(slots) => builder.slots(slots),
        Slots::Adaptive(most) => builder.slots(most).adaptive_slots(Some(Adaptive::default())),
    };
    let noted = Arc::clone(&times);
    let server = builder.start_with(move |_| {
        let free = RefCell::new([clock_now(); CHANNELS]);
        std::future::ready(Ok(Disk { free, times: Arc::clone(&noted) }))
    });
    let server = server.expect("a server");
    // An adaptive limit begins at one, and looks ten times a second.
    let spans = (effort.time(6000), effort.time(3000));
    let forget = || *times.lock().expect("nobody panics with it") = Times::new();
    let carried = carry(&[server.address()], READ, DEPTH, spans, forget);
    let slots = server.control().collect().first().map_or(0, |core| core.slots);
    let times = times.lock().expect("nobody panics with it");
    let millis = |of: &Histogram<u64>, quantile| of.value_at_quantile(quantile) as f64 / 1e3;
    Turn {
        calls_per_s: carried.calls_per_s,
        queue_p50: millis(&times.queue, 0.5),
        handler_p50: millis(&times.handler, 0.5),
        handler_p99: millis(&times.handler, 0.99),
        slots: f64::from(slots),
    }
}

pub(crate) fn measure(effort: Effort) {
    let contestants = [
        ("fixed 2", Slots::Fixed(2)),
        ("fixed 4", Slots::Fixed(4)),
        ("fixed 64", Slots::Fixed(64)),
        ("adaptive 1-64", Slots::Adaptive(64)),
    ];
    println!(
        "What a server makes of a device that serves {CHANNELS} requests side by side in {SERVICE:?}, by how \
         many of {DEPTH} calls it lets run at once (slots):\nwith too few the device idles, with too many \
         calls wait inside of their handlers. Median of {} rounds (least-greatest).\n",
        effort.rounds
    );
    let mut turns: [Vec<Turn>; 4] = Default::default();
    for round in 0..effort.rounds {
        for place in 0..contestants.len() {
            let contestant = (place + round) % contestants.len();
            turns[contestant].push(turn(contestants[contestant].1, effort));
        }
    }
    println!(
        "{:<14} {:<20} {:<18} {:<20} {:<20} slots at the end",
        "slots", "calls/s", "queue p50 ms", "handler p50 ms", "handler p99 ms"
    );
    for ((name, _), turns) in contestants.iter().zip(&turns) {
        let of = |figure: fn(&Turn) -> f64, decimals| {
            spread(turns.iter().map(figure).collect(), decimals)
        };
        println!(
            "{name:<14} {:<20} {:<18} {:<20} {:<20} {}",
            of(|turn| turn.calls_per_s, 0),
            of(|turn| turn.queue_p50, 2),
            of(|turn| turn.handler_p50, 2),
            of(|turn| turn.handler_p99, 2),
            of(|turn| turn.slots, 0),
        );
    }
}
