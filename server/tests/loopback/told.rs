//! What a server says in the log of its process: when it is there, who comes and goes, and how it ends.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, process, thread};

use bowline_protocol::{LinkConfig, ReplicaId};
use bowline_server::io::Limits;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::PATIENCE;
use crate::peer::{Came, FakeReplica, Peer, calling, plain};
use crate::service::{HOLD, Hands};

const ROLE: &str = "BOWLINE_PEER_OF_WHO_TELLS";
/// So many descriptors its process may have to begin with, and so many connections it takes.
const FEW: u64 = 200;
const MORE: u32 = 300;

/// Prints events from INFO on, one a line.
pub(crate) struct Printer;

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl Subscriber for Printer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        println!("\n{}{}", event.metadata().level(), fields.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Not a test: what the server's process runs, until it is told to end.
#[test]
fn server() {
    let Ok(role) = env::var(ROLE) else { return };
    let (peer, grace) = role.split_once(' ').unwrap();
    let grace = Duration::from_millis(grace.parse().unwrap());
    // So that its parent never waits in vain.
    thread::spawn(|| {
        thread::park_timeout(3 * PATIENCE);
        process::exit(1);
    });
    tracing::subscriber::set_global_default(Printer).unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(FEW), ..limit }).unwrap();
    let limits = Limits { connections: MORE, ..Limits::default() };
    let mut server = Hands::default().serve_with(|builder| {
        let peers = [(ReplicaId(2), peer.parse().unwrap())];
        let link =
            LinkConfig { hello_timeout: PATIENCE, dead_after: PATIENCE, ..LinkConfig::default() };
        builder.peers(peers).limits(limits).link(link).grace(grace)
    });
    server.hear_signals().unwrap();
    println!("\nready");
    server.run_until_signal().unwrap();
}

/// A process that tells, with what it has told.
struct Teller {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    told: Vec<String>,
}

impl Teller {
    /// One with this peer and this grace.
    fn start(peer: SocketAddr, grace: Duration) -> Teller {
        let role = format!("{peer} {}", grace.as_millis());
        let mut process = Command::new(env::current_exe().unwrap());
        process.args(["told::server", "--exact", "--nocapture"]).env(ROLE, role);
        let mut process = process.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Teller { process, lines, told: Vec::new() }
    }

    /// The next line of which this is a part.
    fn told(&mut self, part: &str) -> String {
        for line in self.lines.by_ref() {
            self.told.push(line.unwrap());
            if let Some(line) = self.told.last().filter(|line| line.contains(part)) {
                return line.clone();
            }
        }
        panic!("{part:?} was not told: {:#?}", self.told);
    }

    /// It serves, here.
    fn is_ready(&mut self) -> SocketAddr {
        let serves = self.told("message=serves");
        assert!(serves.starts_with("INFO"), "{serves}");
        let (_, address) = serves.split_once(" address=").unwrap();
        let address = address.split(' ').next().unwrap().parse().unwrap();
        self.told("ready");
        address
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_server_tells_that_it_is_there_who_comes_and_goes_and_what_its_end_cuts_short() {
    let mut fake = FakeReplica::new(2);
    let mut teller = Teller::start(fake.address(), Duration::from_millis(7));
    let raised = teller.told("raised the limit of open files");
    assert!(raised.starts_with("INFO") && raised.contains(" from=200 to="), "{raised}");
    let address = teller.is_ready();

    let mouth = fake.dialled();
    let ear = fake.dial(address);
    assert!(teller.told("cancels reach a peer's core").starts_with("INFO"));
    drop(ear);
    assert!(teller.told("cancels do not reach a peer's core").starts_with("INFO"));
    let at = fake.address();
    let warned = |line: String, why: &str| {
        assert!(line.starts_with("WARN") && line.contains(" peer=2 "), "{line}");
        assert!(line.contains(&at.to_string()) && line.contains(why), "{line}");
    };
    // Each reason is told, whatever was before it, and the next such end of a dial is not: it was not
    // well for a minute since. So is that it is there again, if it was told that it is not.
    drop(mouth);
    warned(teller.told("lost a peer"), "the other side closed it");
    let mouth = fake.dialled();
    let reached = teller.told("reached a peer");
    assert!(reached.starts_with("INFO") && reached.contains(" peer=2"), "{reached}");
    drop(mouth);
    drop(fake.dialled());
    fake.pose_as(5);
    for _ in 0..2 {
        let mut stranger = fake.answer(0, 1);
        while stranger.next() != Came::Closed {}
    }
    warned(teller.told("can't reach a peer"), "replica");
    drop(fake);
    warned(teller.told("can't reach a peer"), "refused");

    let mut client = Peer::client(address);
    client.request(calling(HOLD, 1), b"");
    client.request(plain(2), b"it has started by now");
    assert_eq!(client.reply().0, plain(2).attempt);
    teller.signal(Signal::TERM);
    assert!(teller.told("takes on nothing new").contains(" grace=7ms"));
    let cut = teller.told("ends before it has finished");
    assert!(cut.starts_with("WARN") && cut.contains(" queued=0 running=1 grace=7ms"), "{cut}");
    assert!(teller.told("message=ended").starts_with("INFO"));
    assert!(teller.process.wait().unwrap().success());
    for (part, times) in [("can't reach a peer", 2), ("lost a peer", 1), ("reached a peer", 1)] {
        let lines = teller.told.iter().filter(|line| line.contains(part));
        assert_eq!(lines.count(), times, "{part}: {:#?}", teller.told);
    }
}

#[test]
fn of_the_cores_of_a_peer_one_speaks_for_all() {
    let fake = FakeReplica::new(2);
    let mut teller = Teller::start(fake.address(), Duration::from_millis(7));
    let address = teller.is_ready();
    let _mouth = fake.answer(0, 2);
    let ears = [1, 0].map(|core| fake.dial_as(core, address));
    teller.told("cancels reach a peer's core");
    drop(ears);
    teller.told("cancels do not reach a peer's core");
    teller.signal(Signal::TERM);
    teller.told("message=ended");
    let routes = teller.told.iter().filter(|line| line.contains(" reach a peer's core"));
    assert!(routes.clone().all(|line| line.ends_with(" station=2.0")), "{:#?}", teller.told);
    assert_eq!(routes.count(), 2, "{:#?}", teller.told);
}

#[test]
fn a_second_signal_ends_what_is_left_of_the_grace_and_is_told() {
    let fake = FakeReplica::new(2);
    let mut teller = Teller::start(fake.address(), 4 * PATIENCE);
    let mut client = Peer::client(teller.is_ready());
    client.request(calling(HOLD, 1), b"");
    client.request(plain(2), b"it has started by now");
    assert_eq!(client.reply().0, plain(2).attempt);
    teller.signal(Signal::TERM);
    teller.told("takes on nothing new");
    // Those of the first second are taken for the same wish.
    let process = Pid::from_child(&teller.process);
    let is_heard = AtomicBool::new(false);
    let hurried = thread::scope(|scope| {
        let pesters = scope.spawn(|| {
            // As long as it would be waited for: if it never hears them, this ends as well.
            for _ in 0..4 * PATIENCE.as_secs() * 10 {
                if is_heard.load(Ordering::Relaxed) {
                    break;
                }
                kill_process(process, Signal::INT).unwrap();
                thread::park_timeout(Duration::from_millis(100));
            }
        });
        let hurried = teller.told("told once more to end");
        is_heard.store(true, Ordering::Relaxed);
        pesters.thread().unpark();
        hurried
    });
    assert!(hurried.starts_with("WARN") && hurried.contains(" signal=2"), "{hurried}");
    assert!(teller.told("ends before it has finished").contains(" running=1 "));
    assert!(teller.told("message=ended").starts_with("INFO"));
    assert!(teller.process.wait().unwrap().success());
}
