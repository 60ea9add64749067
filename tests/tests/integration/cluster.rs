//! Replicas as processes: this very test program, run again to be one.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio, exit};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bowline_protocol::{LinkConfig, Method, MethodInfo, ReplicaId, ServiceInfo};
use bowline_server::core::Stats;
use bowline_server::io::Control;
use bowline_server::{Context, Failure, Payload, Server, Service};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::PATIENCE;

/// Takes a while, and answers with its payload turned round.
pub(crate) const READ: Method = Method(1);

/// How many replicas a cluster has.
pub(crate) const REPLICAS: usize = 3;

/// What tells a process of this program that it is to be a replica: which, and of which cluster.
const ROLE: &str = "BOWLINE_TEST_REPLICA";

const METHODS: &[MethodInfo] = &[MethodInfo::new(READ, "read").idempotent().duplicable(1 << 16)];

#[derive(Clone)]
struct Reader;

impl Service for Reader {
    type Reply = Vec<u8>;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("reader", METHODS)
    }

    async fn call(&self, _: Context, request: Payload) -> Result<Vec<u8>, Failure> {
        bowline_runtime::sleep(Duration::from_millis(1)).await;
        Ok(request.iter().rev().copied().collect())
    }

    fn interruptible(&self, _: Method) -> bool {
        true
    }
}

/// Each cluster has an address of its own in 127/8, so that no two ever want the same port.
fn address(cluster: u32, replica: usize) -> SocketAddr {
    let [_, a, b, c] = cluster.to_be_bytes();
    (Ipv4Addr::new(127, a | 1, b, c), 7100 + replica as u16).into()
}

/// Not a test by itself: in a process that is asked to, it is a replica until its input ends.
#[test]
fn replica() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (cluster, replica) = role.split_once(' ').expect("a cluster and a replica");
    let (cluster, replica) = (cluster.parse().expect("a number"), replica.parse().expect("one"));
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a tie to the parent's life");
    let peers = (0..REPLICAS).filter(|&peer| peer != replica);
    let peers = peers.map(|peer| (ReplicaId(peer as u16), address(cluster, peer).into()));
    let mut server = Server::builder()
        .replica(ReplicaId(replica as u16))
        .listen(address(cluster, replica))
        .peers(peers)
        // A client that gets no time for a while is not given up for its silence.
        .link(LinkConfig { dead_after: PATIENCE, ..LinkConfig::default() })
        .slots(2)
        .start(Reader)
        .expect("a server");
    server.hear_signals().expect("signals");
    let control = server.control().clone();
    // SIGTERM ends it in good order, and with it the process.
    drop(thread::spawn(move || exit(server.run_until_signal().is_err().into())));
    say("ready");
    for line in std::io::stdin().lock().lines() {
        match line.expect("a line").as_str() {
            "whole" => {
                until_whole(&control);
                say("whole");
            }
            "stats" => {
                let stats = control.snapshot().copies.values();
                say(&stats.map(|value| value.to_string()).join(" "));
            }
            other => panic!("what is {other:?}?"),
        }
    }
}

fn until_whole(control: &Control) {
    let end = Instant::now() + PATIENCE;
    while control.snapshot().mesh_up < REPLICAS - 1 {
        assert!(Instant::now() < end, "the mesh never became whole");
        std::thread::yield_now();
    }
}

/// A line for the parent, set off from what the test harness writes.
fn say(words: &str) {
    println!("\n> {words}");
}

struct Replica {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Replicas that run; they die with this.
pub(crate) struct Cluster {
    number: u32,
    replicas: Vec<Replica>,
}

impl Cluster {
    /// Replicas that can tell each other of their starts.
    pub(crate) fn start() -> Cluster {
        static CLUSTERS: AtomicU32 = AtomicU32::new(0);
        let number = std::process::id() << 4 | CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let replicas = (0..REPLICAS).map(|replica| launch(number, replica)).collect();
        let mut cluster = Cluster { number, replicas };
        (0..REPLICAS).for_each(|replica| cluster.until_whole(replica));
        cluster
    }

    /// Where a replica listens.
    pub(crate) fn address(&self, replica: usize) -> SocketAddr {
        address(self.number, replica)
    }

    /// Returns when a replica can tell all of its peers.
    pub(crate) fn until_whole(&mut self, replica: usize) {
        assert_eq!(self.ask(replica, "whole"), "whole");
    }

    /// A replica's counters.
    pub(crate) fn stats(&mut self, replica: usize) -> Stats {
        let answer = self.ask(replica, "stats");
        let values: Vec<u64> =
            answer.split(' ').map(|value| value.parse().expect("a counter")).collect();
        Stats::from_values(values.try_into().expect("as many as there are"))
    }

    /// Sends a signal to a replica.
    pub(crate) fn signal(&self, replica: usize, signal: Signal) {
        let pid = Pid::from_child(&self.replicas[replica].process);
        kill_process(pid, signal).expect("it runs");
    }

    /// Starts a replica that was killed again, with nothing that it knew.
    pub(crate) fn restart(&mut self, replica: usize) {
        self.replicas[replica].process.wait().expect("it has been killed");
        self.replicas[replica] = launch(self.number, replica);
        (0..REPLICAS).for_each(|replica| self.until_whole(replica));
    }

    /// Tells a replica to end, sees that it does so in good order, and starts it again. Returns when it
    /// is used again.
    pub(crate) fn roll(&mut self, replica: usize) {
        self.signal(replica, Signal::TERM);
        let ended = self.replicas[replica].process.wait().expect("it was told to end");
        assert_eq!(ended.code(), Some(0), "replica {replica} did not end in good order");
        self.replicas[replica] = launch(self.number, replica);
        (0..REPLICAS).for_each(|replica| self.until_whole(replica));
        let end = Instant::now() + PATIENCE;
        while self.stats(replica).replied == 0 {
            assert!(Instant::now() < end, "replica {replica} is never used again");
            thread::yield_now();
        }
    }

    fn ask(&mut self, replica: usize, question: &str) -> String {
        let replica = &mut self.replicas[replica];
        writeln!(replica.input, "{question}").expect("it listens");
        heard(&mut replica.output)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for replica in &mut self.replicas {
            // It may be dead already.
            let _ = replica.process.kill();
            let _ = replica.process.wait();
        }
    }
}

fn launch(cluster: u32, replica: usize) -> Replica {
    let program = std::env::current_exe().expect("this program");
    let mut process = Command::new(program)
        .args(["cluster::replica", "--exact", "--nocapture"])
        .env(ROLE, format!("{cluster} {replica}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let input = process.stdin.take().expect("piped");
    let mut output = BufReader::new(process.stdout.take().expect("piped"));
    assert_eq!(heard(&mut output), "ready");
    Replica { process, input, output }
}

fn heard(output: &mut BufReader<ChildStdout>) -> String {
    for line in output.lines() {
        if let Some(words) = line.expect("a line").strip_prefix("> ") {
            return words.to_owned();
        }
    }
    panic!("the replica ended without a word");
}
