//! A closed loop of calls, on a thread of its own for each address.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use bowline_bench::cpu;
use bowline_client::{Client, Config, Replica};
use bowline_protocol::{LinkConfig, Method};
use bowline_runtime::{Runtime, clock_now, spawn};

/// Far longer than any call takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// However much else the machine has to do, nobody takes the other side for dead.
pub(crate) const PATIENT: LinkConfig = LinkConfig {
    hello_timeout: DEADLINE,
    ping_after: Duration::from_secs(1),
    dead_after: DEADLINE,
};

/// What came of it.
#[derive(Clone, Copy)]
pub(crate) struct Carried {
    pub(crate) calls_per_s: f64,
    /// How many CPUs the clients kept busy.
    pub(crate) client_cpus: f64,
}

/// Keeps `depth` calls under way at each address: for `warmup`, and then for `span`, which counts.
/// `begin` is called between the two.
pub(crate) fn carry(
    addresses: &[SocketAddr],
    method: Method,
    depth: usize,
    (warmup, span): (Duration, Duration),
    begin: impl FnOnce(),
) -> Carried {
    let (warm, over) = (Barrier::new(addresses.len() + 1), Barrier::new(addresses.len() + 1));
    thread::scope(|scope| {
        let clients: Vec<_> = addresses
            .iter()
            .map(|&address| {
                let (warm, over) = (&warm, &over);
                scope.spawn(move || {
                    let runtime = Runtime::builder().build().expect("io_uring");
                    runtime.block_on(async {
                        let mut config = Config::new([Replica::new(0, address)]);
                        config.link = PATIENT;
                        let client = Client::connect(config).await.expect("the server is there");
                        keep(&client, method, depth, warmup).await;
                        warm.wait();
                        let before = cpu::used_by_this_thread();
                        let calls = keep(&client, method, depth, span).await;
                        let used = cpu::used_by_this_thread().saturating_sub(before);
                        over.wait();
                        (calls, used)
                    })
                })
            })
            .collect();
        warm.wait();
        begin();
        let began = Instant::now();
        over.wait();
        let took = began.elapsed().as_secs_f64();
        let told = clients.into_iter().map(|client| client.join().expect("no call failed"));
        let (calls, used) =
            told.fold((0, Duration::ZERO), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        Carried { calls_per_s: calls as f64 / took, client_cpus: used.as_secs_f64() / took }
    })
}

/// How many calls ended in that time, with `depth` of them always under way.
async fn keep(client: &Client, method: Method, depth: usize, span: Duration) -> u64 {
    let until = clock_now() + span;
    let tasks: Vec<_> = (0..depth)
        .map(|_| {
            let client = client.clone();
            spawn(async move {
                let mut calls = 0;
                while clock_now() < until {
                    let call = client.call(method, [7; 64]).deadline(DEADLINE).await;
                    call.unwrap_or_else(|failure| panic!("a call failed: {failure}"));
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let mut calls = 0;
    for task in tasks {
        calls += task.await.expect("no call failed");
    }
    calls
}
