//! `bowline echo`: the bare stack, closed loop.

use core::cell::{Cell, RefCell};
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
use crate::output::{print, say};

const ECHO: Method = Method(1);
/// The largest payload, in bytes.
const PAYLOAD_MAX: u32 = 16 << 20;
/// How long one call may take; a closed loop has no other patience.
const DEADLINE: Duration = Duration::from_secs(10);

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
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A payload that neither side takes.
    #[error("--payload is {0}, more than the {PAYLOAD_MAX} bytes that the server takes")]
    Payload(usize),
    /// A call failed.
    #[error("a call failed: {0}")]
    Call(String),
    /// What there is to print.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// The result.
    #[error("cannot encode the result: {0}")]
    Json(#[from] serde_json::Error),
}

#[derive(Clone)]
struct Echo;

impl Service for Echo {
    type Reply = Payload;

    fn info(&self) -> ServiceInfo {
        ServiceInfo {
            name: "bowline echo",
            methods: &[MethodInfo {
                number: ECHO,
                name: "echo",
                idempotent: true,
                duplicable: None,
                least_useful: Duration::ZERO,
            }],
        }
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
        slots: 4096,
        queue_requests: 1 << 16,
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

/// One line of JSON, with the field names that all peers share.
#[derive(Debug, Serialize)]
struct Line {
    peer: &'static str,
    payload: usize,
    inflight: u32,
    conns: u32,
    requests: u64,
    rps: f64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
    client_cpu_s: f64,
}

/// Keeps calls in flight and prints what they took.
///
/// # Errors
/// No connection, or a call that failed.
pub fn drive(args: &EchoClientArgs) -> Result<(), EchoError> {
    if args.payload > PAYLOAD_MAX as usize {
        return Err(EchoError::Payload(args.payload));
    }
    let runtime = Runtime::builder().pin(args.cpu).spin(args.spin).build()?;
    let line = runtime.block_on(measure(args))?;
    print(serde_json::to_string(&line)?).map_err(EchoError::Output)
}

/// What the loops share.
struct Loops {
    payload: Vec<u8>,
    measured_from: Instant,
    until: Instant,
    times: RefCell<Histogram<u64>>,
    failed: Cell<Option<String>>,
}

async fn measure(args: &EchoClientArgs) -> Result<Line, EchoError> {
    let clients = connect(args).await?;
    let measured_from = clock_now() + args.warmup;
    let times = Histogram::new_with_bounds(1, 100_000_000_000, 3);
    let loops = Rc::new(Loops {
        payload: vec![0x5a; args.payload],
        measured_from,
        until: measured_from + args.seconds,
        times: RefCell::new(times.expect("the bounds are constants that the crate accepts")),
        failed: Cell::new(None),
    });
    let mut tasks = Vec::new();
    for client in &clients {
        for _ in 0..args.inflight.get() {
            tasks.push(spawn(loops.clone().run(client.clone())));
        }
    }
    sleep_until(loops.measured_from).await;
    let (cpu_before, began) = (cpu::used_by_us(), clock_now());
    sleep_until(loops.until).await;
    let (used, took) = (cpu::used_by_us().saturating_sub(cpu_before), clock_now() - began);
    for task in tasks {
        // Its error, if it had one, is in `failed`.
        task.await.ok();
    }
    if let Some(why) = loops.failed.take() {
        return Err(EchoError::Call(why));
    }
    let times = loops.times.borrow();
    Ok(Line {
        peer: "bowline",
        payload: args.payload,
        inflight: args.inflight.get(),
        conns: args.conns.get(),
        requests: times.len(),
        rps: times.len() as f64 / took.as_secs_f64(),
        p50_ns: times.value_at_quantile(0.5),
        p90_ns: times.value_at_quantile(0.9),
        p99_ns: times.value_at_quantile(0.99),
        p999_ns: times.value_at_quantile(0.999),
        max_ns: times.max(),
        client_cpu_s: used.as_secs_f64(),
    })
}

/// A client has one connection to each replica: so as many clients as connections.
async fn connect(args: &EchoClientArgs) -> Result<Vec<Client>, EchoError> {
    let mut clients = Vec::new();
    for _ in 0..args.conns.get() {
        let mut config = Config::new([Replica::new(0, args.addr)]);
        config.max_reply = PAYLOAD_MAX;
        config.core.max_payload = PAYLOAD_MAX;
        clients.push(Client::connect(config).await?);
    }
    Ok(clients)
}

impl Loops {
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
                    return self.failed.set(Some(why));
                }
                Err(failure) => return self.failed.set(Some(failure.to_string())),
            }
        }
    }
}
