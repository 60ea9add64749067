//! Runs a plan: starts the servers and a client in one simulation, makes the calls, lets go wrong
//! what is to, and judges.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bowline_client::core::{Budget, PolicyId};
use bowline_client::io::Snapshot;
use bowline_client::{Client, Config, Replica};
use bowline_protocol::{LinkConfig, ReplicaId};
use bowline_runtime::{Builder, Faults, Runtime, Simulation, metrics, sleep, spawn, timeout};
use bowline_server::Server;
use bowline_server::io::{Limits, Running};

use crate::plan::{Plan, Planned, Trouble, What};
use crate::store::{ONCE, Order, READ, Seen, Store};
use crate::wire;

/// No run takes longer than this in its own time.
const PATIENCE: Duration = Duration::from_secs(15);
/// What a machine without power was sent is given up after this.
const LINGER: Duration = Duration::from_secs(1);
/// By when after the last call everything has come to rest.
const SETTLE: Duration = Duration::from_secs(2);

/// What a run came to, or many together.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Ran {
    pub(crate) hash: u64,
    calls: u64,
    failed: u64,
    dropped: u64,
    copies: u64,
    starts: u64,
    both_started: u64,
    withdrawn: u64,
    aborted: u64,
    relayed: u64,
    hedges: u64,
    redispatches: u64,
    lost: u64,
    restarts: u64,
    power_losses: u64,
    not_accepted: u64,
}

impl Ran {
    pub(crate) fn add(&mut self, other: &Ran) {
        self.hash ^= other.hash;
        self.calls += other.calls;
        self.failed += other.failed;
        self.dropped += other.dropped;
        self.copies += other.copies;
        self.starts += other.starts;
        self.both_started += other.both_started;
        self.withdrawn += other.withdrawn;
        self.aborted += other.aborted;
        self.relayed += other.relayed;
        self.hedges += other.hedges;
        self.redispatches += other.redispatches;
        self.lost += other.lost;
        self.restarts += other.restarts;
        self.power_losses += other.power_losses;
        self.not_accepted += other.not_accepted;
    }

    /// Many runs together have had everything happen that the rules are about.
    pub(crate) fn saw_everything(&self) {
        for (what, count) in [
            ("failed calls", self.failed),
            ("dropped calls", self.dropped),
            ("double starts", self.both_started),
            ("withdrawn copies", self.withdrawn),
            ("aborted copies", self.aborted),
            ("relayed starts", self.relayed),
            ("hedges", self.hedges),
            ("copies sent again", self.redispatches),
            ("copies lost with their connection", self.lost),
            ("restarts", self.restarts),
            ("losses of power", self.power_losses),
            ("accepts without a descriptor", self.not_accepted),
        ] {
            assert!(count > 0, "no {what} in all runs");
        }
    }
}

/// Runs it. After a failure nothing is waited for, and nothing cleaned up: what is broken might never
/// end, and nobody would hear of it.
///
/// # Errors
///
/// What was broken, to be read.
pub(crate) fn run(plan: &Plan) -> Result<Ran, String> {
    let ran = catch_unwind(AssertUnwindSafe(|| run_to_its_end(plan)));
    ran.unwrap_or_else(|_| Err("it panicked, as is said above".to_owned()))
}

fn run_to_its_end(plan: &Plan) -> Result<Ran, String> {
    let simulation = Simulation::new(plan.seed, plan.faults, plan.servers + 1);
    let cluster = Cluster::start(plan, &simulation);
    let runtime = runtime(plan, &simulation).build().expect("no ring is needed");
    let runtime = ManuallyDrop::new(runtime);
    let played = async { timeout(PATIENCE, play(plan, &simulation, &cluster)).await };
    let ran = runtime.block_on(played).map_err(|_| "it does not come to its end".to_owned())??;
    // The runtime is dropped before its servers are waited for.
    drop(ManuallyDrop::into_inner(runtime));
    let sockets = simulation.sockets();
    if simulation.cores() > 0 || sockets > 0 {
        return Err(format!("at the end {sockets} sockets were open"));
    }
    let hash = simulation.hash();
    cluster.end()?;
    Ok(Ran { hash, ..ran })
}

fn runtime(plan: &Plan, simulation: &Simulation) -> Builder {
    let (count, size) = plan.buffers;
    let builder = Runtime::builder().buffers(count, size).linger(LINGER);
    builder.entries(plan.entries).completions(plan.entries).simulate_in(simulation)
}

/// Where no call may fail, nobody gives up a connection on which a long frame comes in slowly.
const fn link(plan: &Plan) -> LinkConfig {
    let patience = if plan.gentle { 5000 } else { 80 };
    LinkConfig {
        hello_timeout: Duration::from_millis(200),
        ping_after: Duration::from_millis(20),
        dead_after: Duration::from_millis(patience),
    }
}

/// Addresses that nobody else has: of this process, and new for each run.
fn addresses(servers: usize) -> Vec<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    let port = NEXT.fetch_add(1, Ordering::Relaxed);
    let network = 127 << 24 | (std::process::id() & 0x3f_ffff) << 2;
    (0..servers as u32).map(|server| (Ipv4Addr::from(network | server), port).into()).collect()
}

/// A file for the service to read, made once.
fn file() -> PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let name = format!("bowline-shells-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, [0x5a; 8192]).expect("a file can be written");
        path
    };
    FILE.get_or_init(make).clone()
}

/// The servers.
struct Cluster {
    addresses: Vec<SocketAddr>,
    /// Dropped they would be waited for, which is for who knows that they end.
    running: RefCell<Vec<ManuallyDrop<Running>>>,
    /// Which core of the simulation each is.
    cores: RefCell<Vec<usize>>,
    seen: Arc<Mutex<Seen>>,
}

impl Cluster {
    fn start(plan: &Plan, simulation: &Simulation) -> Cluster {
        let cluster = Cluster {
            addresses: addresses(plan.servers),
            running: RefCell::default(),
            cores: RefCell::new((0..plan.servers).collect()),
            seen: Arc::default(),
        };
        for server in 0..plan.servers {
            let running = cluster.server(plan, simulation, server);
            cluster.running.borrow_mut().push(ManuallyDrop::new(running));
        }
        cluster
    }

    fn server(&self, plan: &Plan, simulation: &Simulation, server: usize) -> Running {
        let numbered = (0..).map(ReplicaId).zip(self.addresses.iter().copied());
        let peers = numbered.filter(|(id, _)| plan.mesh && usize::from(id.0) != server);
        let peers = peers.map(|(id, address)| (id, address.into()));
        let store =
            Store { seen: self.seen.clone(), file: file(), interruptible: plan.interruptible };
        let limits = Limits { slots: plan.slots, queue_requests: plan.queue, ..Limits::default() };
        Server::builder()
            .replica(ReplicaId(server as u16))
            .listen(self.addresses[server])
            .peers(peers)
            .limits(limits)
            .link(link(plan))
            .runtime(runtime(plan, simulation))
            .start(store)
            .expect("the address is nobody else's")
    }

    fn core_of(&self, server: usize) -> usize {
        self.cores.borrow()[server]
    }

    /// Ends a server within the world, and waits for that.
    async fn stop(&self, simulation: &Simulation, server: usize, grace: Duration) {
        let cores = simulation.cores();
        self.running.borrow()[server].control().shut_down(grace);
        while simulation.cores() >= cores {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Another server takes the place of one that has ended.
    fn replace(&self, plan: &Plan, simulation: &Simulation, server: usize) {
        let next = ManuallyDrop::new(self.server(plan, simulation, server));
        // It is the latest to join: after the client, and all that took a place before.
        let mut cores = self.cores.borrow_mut();
        let latest = cores.iter().fold(plan.servers, |latest, &core| latest.max(core));
        cores[server] = latest + 1;
        let last = std::mem::replace(&mut self.running.borrow_mut()[server], next);
        ManuallyDrop::into_inner(last).join().expect("it ended in good order");
    }

    fn end(self) -> Result<(), String> {
        let mut running = self.running.into_inner().into_iter().map(ManuallyDrop::into_inner);
        let ended = running.try_for_each(Running::join);
        ended.map_err(|error| error.to_string())
    }
}

fn config(plan: &Plan, cluster: &Cluster) -> Config {
    let replicas = (0..).zip(&cluster.addresses);
    let mut config = Config::new(replicas.map(|(id, &address)| Replica::new(id, address)));
    config.link = link(plan);
    config.core.seed = plan.seed | 1;
    config.core.watch = Duration::from_millis(500);
    config.core.budget = Arc::new(Budget::new(plan.budget).expect("a valid budget"));
    config
}

/// How a call ended.
enum End {
    Dropped,
    Good,
    Failed,
}

async fn play(plan: &Plan, simulation: &Simulation, cluster: &Cluster) -> Result<Ran, String> {
    let client = Client::connect(config(plan, cluster)).await.map_err(|error| error.to_string())?;
    let policies: Vec<PolicyId> = plan
        .policies
        .iter()
        .map(|&policy| client.register(policy))
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let policies = Rc::new(policies);
    let calls: Vec<_> = plan
        .calls
        .iter()
        .copied()
        .enumerate()
        .map(|(number, planned)| {
            spawn(make(client.clone(), policies.clone(), number, planned, plan.gentle))
        })
        .collect();
    let mut ran = Ran { calls: plan.calls.len() as u64, ..Ran::default() };
    let mut troubles = plan.troubles.clone();
    troubles.sort_by_key(|trouble| trouble.at);
    let begun = simulation.elapsed();
    for Trouble { at, what } in troubles {
        sleep((begun + at).saturating_sub(simulation.elapsed())).await;
        match what {
            What::Freeze(server, span) => simulation.freeze(cluster.core_of(server), span),
            What::Cut(permille) => simulation.cut(permille),
            What::Restart(server, grace) => {
                cluster.stop(simulation, server, grace).await;
                cluster.replace(plan, simulation, server);
                ran.restarts += 1;
            }
            What::PowerLoss(server, down) => {
                simulation.lose_power(cluster.core_of(server));
                cluster.stop(simulation, server, Duration::ZERO).await;
                sleep(down).await;
                cluster.replace(plan, simulation, server);
                ran.power_losses += 1;
            }
        }
    }
    for call in calls {
        match call.await.map_err(|error| error.to_string())?? {
            End::Dropped => ran.dropped += 1,
            End::Failed => ran.failed += 1,
            End::Good => {}
        }
    }
    settle(plan, simulation, cluster, &client, &mut ran).await?;
    drop(client);
    while metrics().live_connections > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    for server in 0..plan.servers {
        cluster.stop(simulation, server, Duration::from_millis(1)).await;
    }
    Ok(ran)
}

async fn make(
    client: Client,
    policies: Rc<Vec<PolicyId>>,
    number: usize,
    planned: Planned,
    gentle: bool,
) -> Result<End, String> {
    sleep(planned.at).await;
    let order = Order::of(number, &planned);
    let policy = policies.get(planned.policy);
    let method = if policy.is_some() { READ } else { ONCE };
    let mut call = client.call(method, order.to_bytes(planned.request)).deadline(planned.deadline);
    if let Some(&policy) = policy {
        call = call.policy(policy).idempotent();
    }
    let late = planned.deadline + Duration::from_millis(5);
    let told = match planned.patience {
        Some(patience) => match timeout(patience, call.into_future()).await {
            Ok(told) => told,
            Err(_) => return Ok(End::Dropped),
        },
        None => timeout(late, call.into_future())
            .await
            .map_err(|_| format!("call {number} did not end by its deadline"))?,
    };
    match told {
        Ok(reply) if *reply == order.answer() => Ok(End::Good),
        Ok(_) => Err(format!("call {number} got another's answer")),
        Err(failure) if gentle => Err(format!("call {number} failed: {}", failure.error())),
        Err(_) => Ok(End::Failed),
    }
}

/// Nothing goes wrong any more: everything comes to rest, and the books are right.
async fn settle(
    plan: &Plan,
    simulation: &Simulation,
    cluster: &Cluster,
    client: &Client,
    ran: &mut Ran,
) -> Result<(), String> {
    simulation.set_faults(Faults { reset: 0, accept: 0, ..plan.faults });
    sleep(SETTLE).await;
    let all = Planned { policy: 0, fails: false, ..plan.calls[0] };
    let probe = Planned { at: Duration::ZERO, deadline: SETTLE, patience: None, ..all };
    let plain = Rc::new(vec![PolicyId::NONE]);
    make(client.clone(), plain, plan.calls.len(), probe, true).await?;
    sleep(SETTLE).await;

    let Snapshot { counters, budget_outstanding, connected, futures, .. } = client.snapshot();
    if !counters.reconcile() || counters.waiting + counters.live > 0 || budget_outstanding > 0 {
        return Err(format!("{budget_outstanding} tokens are out: {counters:?}"));
    }
    if futures > 0 {
        return Err(format!("{futures} futures are kept of calls that are over"));
    }
    if connected != plan.servers {
        return Err(format!("{connected} of {} servers are connected", plan.servers));
    }
    ran.withdrawn = counters.withdrawn;
    ran.both_started = counters.both_started;
    ran.relayed = counters.relayed;
    ran.hedges = counters.hedges;
    ran.redispatches = counters.redispatches;
    ran.lost = counters.lost;
    let runtime = metrics();
    if runtime.live_connections != connected || runtime.free_buffers < plan.buffers.0.into() {
        return Err(format!("something is left of the client: {runtime:?}"));
    }
    let controls: Vec<_> =
        cluster.running.borrow().iter().map(|server| server.control().clone()).collect();
    for control in controls {
        let server = control.snapshot_soon().await;
        let copies = server.copies;
        if !copies.reconcile() || copies.queued + copies.running > 0 || server.tombstones > 0 {
            return Err(format!("something is left of a server: {server:?}"));
        }
        // The client and, in a mesh, the other servers.
        let dialled = if plan.mesh { plan.servers } else { 1 };
        if server.clients > dialled {
            return Err(format!("a server keeps connections that are no more: {server:?}"));
        }
        if server.connections.protocol_errors > 0 || server.connections.panics > 0 {
            return Err(format!("a server is at odds with others: {server:?}"));
        }
        ran.aborted += copies.aborted_by_twin;
        ran.not_accepted += server.connections.accept_errors;
    }
    ran.copies = wire::judge(&simulation.traffic(), plan.servers)?;
    let seen = cluster.seen.lock().unwrap_or_else(PoisonError::into_inner);
    judge_starts(plan, &seen)?;
    ran.starts = seen.starts.values().map(|&starts| u64::from(starts)).sum();
    Ok(())
}

fn judge_starts(plan: &Plan, seen: &Seen) -> Result<(), String> {
    if seen.damaged > 0 {
        return Err(format!("{} requests were damaged", seen.damaged));
    }
    for (number, planned) in (0..).zip(&plan.calls) {
        let starts = seen.starts.get(&number).copied().unwrap_or(0);
        if planned.policy >= plan.policies.len() && starts > 1 {
            return Err(format!("call {number}, which must not run twice, ran {starts} times"));
        }
    }
    Ok(())
}
