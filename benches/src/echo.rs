//! `bowline echo`: the bare stack, closed loop.

use core::cell::RefCell;
use core::time::Duration;
use std::io;
use std::rc::Rc;

use bowline_client::{Client, Config, ConnectError, Replica};
use bowline_protocol::{Method, MethodInfo, ServiceInfo};
use bowline_runtime::{Instant, Runtime, clock_now, sleep_until, spawn};
use bowline_server::io::{Limits, ServeError};
use bowline_server::{Context, Failure, Payload, Server, Service};
use hdrhistogram::Histogram;
use serde::Serialize;
use thiserror::Error;

use crate::cli::{EchoClientArgs, EchoServerArgs};
use crate::cpu;
use crate::interrupt::Interrupt;
use crate::output::{print, say};
use crate::run::RunEnd;

const ECHO: Method = Method(1);
/// The largest payload that either side takes, in bytes.
pub const PAYLOAD_MAX: u32 = 16 << 20;
/// Calls that the server has room to run at once: more than clients are to have in flight, so that
/// an echo measures the stack, and never the queue and what overload does to it.
const IN_FLIGHT: u32 = 1 << 16;
/// How long one call may take; a closed loop has no other patience.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest sleep while loops run, so that a failure and the user's wish to end are seen.
const NAP: Duration = Duration::from_millis(50);

/// Why there is no echo.
#[derive(Debug, Error)]
pub enum EchoError {
    /// The server.
    #[error(transparent)]
    Server(#[from] ServeError),
    /// The event loop.
    #[error(transparent)]
    Runtime(#[from] bowline_runtime::Error),
    /// The connection.
    #[error("{0}; does 'bowline echo server' run there?")]
    Connect(#[from] ConnectError),
    /// A call failed.
    #[error("a call failed: {0}")]
    Call(String),
    /// Signals.
    #[error("cannot listen for Ctrl-C: {0}")]
    Signals(io::Error),
    /// What there is to print.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// The result.
    #[error("cannot encode the result: {0}")]
    Json(#[from] serde_json::Error),
}

const INFO: ServiceInfo =
    ServiceInfo { name: "bowline echo", methods: &[MethodInfo::new(ECHO, "echo").idempotent()] };

#[derive(Clone)]
struct Echo;

impl Service for Echo {
    type Reply = Payload;

    fn info(&self) -> ServiceInfo {
        INFO
    }

    async fn call(&self, _: Context, request: Payload) -> Result<Payload, Failure> {
        Ok(request)
    }
}

/// Sends payloads back until SIGTERM or SIGINT.
///
/// # Errors
/// It cannot begin.
pub fn serve(args: &EchoServerArgs) -> Result<(), EchoError> {
    let limits = Limits {
        request_bytes: PAYLOAD_MAX,
        queue_bytes: 64 << 20,
        outgoing_bytes: 256 << 20,
        slots: IN_FLIGHT,
        queue_requests: IN_FLIGHT,
        ..Limits::default()
    };
    let server = Server::builder().listen(args.addr).limits(limits);
    let server = match args.cpu {
        Some(cpu) => server.pin_to([cpu]),
        None => server,
    };
    let running = server.runtime(Runtime::builder().spin(args.spin)).start(Echo)?;
    say(format_args!("bowline echo: serving at {}", running.address()));
    Ok(running.run_until_signal()?)
}

/// One line of JSON, with the field names that all peers share. Times without a call are null.
#[derive(Debug, Serialize)]
struct Line {
    peer: &'static str,
    payload: usize,
    inflight: u32,
    conns: u32,
    requests: u64,
    rps: f64,
    p50_ns: Option<u64>,
    p90_ns: Option<u64>,
    p99_ns: Option<u64>,
    p999_ns: Option<u64>,
    max_ns: Option<u64>,
    client_cpu_s: f64,
}

/// Keeps calls in flight and prints what they took, up to the user's wish to end.
///
/// # Errors
/// No connection, or a call that failed.
pub fn drive(args: &EchoClientArgs) -> Result<RunEnd, EchoError> {
    let runtime = Runtime::builder().pin(args.cpu).spin(args.spin).build()?;
    let interrupt = Interrupt::on_signals().map_err(EchoError::Signals)?;
    let line = runtime.block_on(measure(args, &interrupt))?;
    if line.requests == 0 {
        say("bowline: no call began and ended in the time that is measured");
    }
    print(serde_json::to_string(&line)?).map_err(EchoError::Output)?;
    Ok(if interrupt.asked() { RunEnd::Interrupted } else { RunEnd::Whole })
}

/// What the loops share.
struct Loops {
    payload: Vec<u8>,
    measured_from: Instant,
    until: Instant,
    times: RefCell<Histogram<u64>>,
    failed: RefCell<Option<String>>,
}

async fn measure(args: &EchoClientArgs, interrupt: &Interrupt) -> Result<Line, EchoError> {
    let clients = connect(args).await?;
    let measured_from = clock_now() + args.warmup;
    let times = Histogram::new_with_bounds(1, 100_000_000_000, 3);
    let loops = Rc::new(Loops {
        payload: vec![0x5a; args.payload],
        measured_from,
        until: measured_from + args.seconds,
        times: RefCell::new(times.expect("the bounds are constants that the crate accepts")),
        failed: RefCell::default(),
    });
    let mut tasks = Vec::new();
    for client in &clients {
        for _ in 0..args.inflight.get() {
            tasks.push(spawn(loops.clone().run(client.clone())));
        }
    }
    loops.pass(loops.measured_from, interrupt).await?;
    let (cpu_before, began) = (cpu::used_by_us(), clock_now());
    loops.pass(loops.until, interrupt).await?;
    let (used, took) = (cpu::used_by_us().saturating_sub(cpu_before), clock_now() - began);
    // Calls that end from now on are not counted, and the user who asked waits for none of them.
    for task in tasks.into_iter().filter(|_| !interrupt.asked()) {
        // Its error, if it had one, is in `failed`.
        task.await.ok();
    }
    loops.no_failure()?;
    let times = loops.times.borrow();
    let at = |quantile| (!times.is_empty()).then(|| times.value_at_quantile(quantile));
    Ok(Line {
        peer: "bowline",
        payload: args.payload,
        inflight: args.inflight.get(),
        conns: args.conns.get(),
        requests: times.len(),
        rps: if times.is_empty() { 0.0 } else { times.len() as f64 / took.as_secs_f64() },
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        max_ns: at(1.0),
        client_cpu_s: used.as_secs_f64(),
    })
}

/// A client has one connection to each replica: so as many clients as connections.
async fn connect(args: &EchoClientArgs) -> Result<Vec<Client>, EchoError> {
    let mut clients = Vec::new();
    for _ in 0..args.conns.get() {
        let mut config = Config::new([Replica::new(0, args.addr)]).service(INFO);
        config.max_reply = PAYLOAD_MAX;
        config.core.max_payload = PAYLOAD_MAX;
        clients.push(Client::connect(config).await?);
    }
    Ok(clients)
}

impl Loops {
    /// Lets the loops run until `end`, or until the user asks to end.
    async fn pass(&self, end: Instant, interrupt: &Interrupt) -> Result<(), EchoError> {
        loop {
            self.no_failure()?;
            let now = clock_now();
            if now >= end || interrupt.asked() {
                return Ok(());
            }
            sleep_until(end.min(now + NAP)).await;
        }
    }

    fn no_failure(&self) -> Result<(), EchoError> {
        self.failed.borrow_mut().take().map_or(Ok(()), |why| Err(EchoError::Call(why)))
    }

    /// The first failure is the one to tell: others follow from it.
    fn fail(&self, why: String) {
        self.failed.borrow_mut().get_or_insert(why);
    }

    /// One call after the other, until the time is up.
    async fn run(self: Rc<Self>, client: Client) {
        loop {
            let began = clock_now();
            if began >= self.until {
                return;
            }
            let reply = client.call(ECHO, &self.payload).deadline(DEADLINE).await;
            let ended = clock_now();
            match reply {
                Ok(reply) if reply.len() == self.payload.len() => {
                    if began >= self.measured_from && ended <= self.until {
                        let nanos = (ended - began).as_nanos() as u64;
                        self.times.borrow_mut().saturating_record(nanos);
                    }
                }
                Ok(reply) => {
                    let why = format!("{} bytes came back of {}", reply.len(), self.payload.len());
                    return self.fail(why);
                }
                Err(failure) => return self.fail(failure.to_string()),
            }
        }
    }
}
