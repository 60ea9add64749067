//! The parent's side: processes that are never left stopped or running.

use core::time::Duration;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;

use super::child::{READY, SERVING, peers_line};
use crate::faults::Pausable;

/// How long a replica may take to say that it listens.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a replica may take to end by itself when asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Why replicas could not be started.
#[derive(Debug, Error)]
pub enum LaunchError {
    /// The process could not be made.
    #[error("cannot start replica {replica}: {source}")]
    Spawn {
        /// Number of the replica.
        replica: usize,
        /// The system's answer.
        source: io::Error,
    },
    /// It ended, or fell silent; what it had to say stands on standard error.
    #[error("replica {replica} did not come up: {why}")]
    NotReady {
        /// Number of the replica.
        replica: usize,
        /// What it did instead.
        why: String,
    },
}

/// Replicas on this host.
///
/// Whatever way this value goes (end of scope, error, panic), each process is continued, killed
/// and reaped; should this process itself be killed, the kernel kills them.
#[derive(Debug)]
pub struct Cluster {
    replicas: Vec<Replica>,
}

#[derive(Debug)]
struct Replica {
    address: SocketAddr,
    /// Behind a lock, so that no signal is sent to a process id that was reaped meanwhile.
    process: Mutex<Process>,
}

/// A process that is killed and reaped when dropped.
#[derive(Debug)]
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Cluster {
    /// Starts `count` replicas and tells each where all of them listen; without a mesh, none of any
    /// other.
    ///
    /// `command` makes the command of a replica by its number; its program has to say
    /// [`send_ready`](super::send_ready), hear [`wait_for_peers`](super::wait_for_peers), and say
    /// [`send_serving`](super::send_serving). To be called from a thread that lasts as long as the
    /// cluster: the kernel ends the children with the *thread* that started them.
    ///
    /// # Errors
    /// [`LaunchError`]; replicas that had come up are ended.
    pub fn launch(
        count: usize,
        mesh: bool,
        command: impl Fn(usize) -> Command,
    ) -> Result<Cluster, LaunchError> {
        let started = (0..count).map(|number| Process::start(command(number), number));
        let started = started.collect::<Result<Vec<_>, _>>()?;
        let mut replicas = Vec::with_capacity(count);
        for (number, process) in started.into_iter().enumerate() {
            replicas.push(Replica::ready(process, number)?);
        }
        let addresses: Vec<SocketAddr> = replicas.iter().map(|r: &Replica| r.address).collect();
        let peers = peers_line(if mesh { &addresses } else { &[] });
        for (number, replica) in replicas.iter().enumerate() {
            replica.process().tell(&peers).map_err(|error| LaunchError::NotReady {
                replica: number,
                why: format!("it does not listen to its parent: {error}"),
            })?;
        }
        for (number, replica) in replicas.iter().enumerate() {
            let heard = replica.process().line();
            let not_ready = |why| LaunchError::NotReady { replica: number, why };
            match heard.map_err(not_ready)?.as_str() {
                SERVING => {}
                other => return Err(not_ready(format!("it said {other:?}"))),
            }
        }
        Ok(Cluster { replicas })
    }

    /// Where the replicas listen, by number.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.replicas.iter().map(|replica| replica.address).collect()
    }

    /// Process id of a replica.
    pub fn process_id(&self, replica: usize) -> u32 {
        self.replicas[replica].process().child.id()
    }

    /// The replicas that have ended, by number, with how.
    pub fn ended(&self) -> Vec<(usize, ExitStatus)> {
        let status = |replica: &Replica| replica.process().child.try_wait().ok().flatten();
        self.replicas.iter().enumerate().filter_map(|(n, r)| Some((n, status(r)?))).collect()
    }

    /// Whether no replica is left.
    pub fn all_ended(&self) -> bool {
        self.ended().len() == self.replicas.len()
    }

    /// Asks all replicas to end, and kills those that do not within two seconds.
    pub fn stop(&self) {
        for replica in &self.replicas {
            let mut process = replica.process();
            process.signal(Signal::CONT).ok();
            drop(process.input.take());
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !self.all_ended() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn signal(&self, replica: usize, signal: Signal) -> io::Result<()> {
        self.replicas[replica].process().signal(signal)
    }
}

impl Pausable for Cluster {
    fn pause(&self, replica: usize) -> io::Result<()> {
        self.signal(replica, Signal::STOP)
    }

    fn resume(&self, replica: usize) -> io::Result<()> {
        self.signal(replica, Signal::CONT)
    }
}

impl Replica {
    /// Waits until the process says where it listens.
    fn ready(mut process: Process, number: usize) -> Result<Replica, LaunchError> {
        let not_ready = |why: String| LaunchError::NotReady { replica: number, why };
        let line = process.line().map_err(not_ready)?;
        match line.strip_prefix(READY).and_then(|address| address.parse().ok()) {
            Some(address) => Ok(Replica { address, process: Mutex::new(process) }),
            None => Err(not_ready(format!("it said {line:?}"))),
        }
    }

    /// A holder that panicked leaves nothing half-done: the lock only orders signal and reaping.
    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Process {
    fn start(mut command: Command, replica: usize) -> Result<Self, LaunchError> {
        // A group of its own: Ctrl-C is for the parent, which ends the replicas in its own time.
        let child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|source| LaunchError::Spawn { replica, source })?;
        let mut process = Process { child, input: None, lines: mpsc::channel().1 };
        process.input = process.child.stdin.take();
        let Some(output) = process.child.stdout.take() else {
            let why = "it has no standard output".into();
            return Err(LaunchError::NotReady { replica, why });
        };
        process.lines = lines(output);
        Ok(process)
    }

    /// The next line that it says; why none comes.
    fn line(&mut self) -> Result<String, String> {
        match self.lines.recv_timeout(START_TIMEOUT) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("silent for {} s", START_TIMEOUT.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(match self.child.wait() {
                Ok(status) => format!("it ended with {status}"),
                Err(error) => format!("it closed its output: {error}"),
            }),
        }
    }

    fn tell(&mut self, line: &str) -> io::Result<()> {
        match &mut self.input {
            Some(input) => input.write_all(line.as_bytes()),
            None => Ok(()),
        }
    }

    /// Sends a signal, unless the process was reaped: then its id may be another's by now.
    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or(io::ErrorKind::NotFound)?, signal)?;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL ends a stopped process as well.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The lines of `output`, as they come.
fn lines(output: ChildStdout) -> Receiver<String> {
    let (told, heard) = mpsc::channel();
    // Goes on reading, so that the replica never blocks on its output; ends with the replica.
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            told.send(line.trim().to_owned()).ok();
        }
    });
    heard
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use rustix::process::{WaitId, WaitIdOptions, test_kill_process, waitid};

    use super::*;

    /// A replica in shell: says an address, hears its peers, lives until its input ends.
    fn shell(script: &'static str) -> impl Fn(usize) -> Command {
        move |number| {
            let mut command = Command::new("sh");
            command.args(["-c", script, "sh", &number.to_string()]);
            command
        }
    }

    const REPLICA: &str =
        "echo ready 127.0.0.1:$((7000 + $1)); read peers; echo serving; cat > /dev/null";
    const DEAF: &str = "echo ready 127.0.0.1:7000; read peers; echo serving; exec sleep 60";

    fn pid(cluster: &Cluster, replica: usize) -> Pid {
        i32::try_from(cluster.process_id(replica)).ok().and_then(Pid::from_raw).expect("a pid")
    }

    fn lives(pid: Pid) -> bool {
        test_kill_process(pid).is_ok()
    }

    /// Returns when the kernel has stopped the process; leaves its state to other waiters.
    fn await_stopped(pid: Pid) {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), options).expect("the process is a child of ours");
    }

    #[test]
    fn replicas_come_up_and_say_where() {
        let cluster = Cluster::launch(3, true, shell(REPLICA)).expect("a shell");
        let ports: Vec<u16> = cluster.addresses().iter().map(SocketAddr::port).collect();
        assert_eq!(ports, [7000, 7001, 7002]);
        assert!(cluster.ended().is_empty());
    }

    #[test]
    fn replicas_hear_of_each_other_where_there_is_a_mesh() {
        heard_by_each(true, "peers 0=127.0.0.1:7000 1=127.0.0.1:7001\n");
        heard_by_each(false, "peers\n");
    }

    fn heard_by_each(mesh: bool, expected: &str) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let heard = folder.path().join("heard");
        let cluster = Cluster::launch(2, mesh, |number| {
            let mut command = shell(
                "echo ready 127.0.0.1:$((7000 + $1)); read peers; echo $peers > \"$HEARD.$1\"; echo serving",
            )(number);
            command.env("HEARD", &heard);
            command
        })
        .expect("a shell");
        cluster.stop();
        for number in 0..2 {
            let line = std::fs::read_to_string(heard.with_extension(number.to_string()));
            assert_eq!(line.expect("written"), expected);
        }
    }

    #[test]
    fn a_stopped_replica_dies_with_its_cluster() {
        let cluster = Cluster::launch(1, true, shell(DEAF)).expect("a shell");
        let pid = pid(&cluster, 0);
        cluster.pause(0).expect("it runs");
        await_stopped(pid);
        drop(cluster);
        assert!(!lives(pid));
    }

    #[test]
    fn a_panic_leaves_no_replica_behind() {
        let cluster = Cluster::launch(2, true, shell(DEAF)).expect("a shell");
        let pids = [pid(&cluster, 0), pid(&cluster, 1)];
        let result = catch_unwind(AssertUnwindSafe(move || {
            cluster.pause(1).expect("it runs");
            panic!("on purpose, with {} replicas", cluster.addresses().len());
        }));
        assert!(result.is_err());
        assert!(!pids.into_iter().any(lives));
    }

    #[test]
    fn replicas_end_by_themselves_when_asked_even_if_stopped() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let done = folder.path().join("done");
        let cluster = Cluster::launch(1, true, |number| {
            let mut command = shell(
                "echo ready 127.0.0.1:7000; read peers; echo serving; cat > /dev/null; echo done > \"$DONE\"",
            )(number);
            command.env("DONE", &done);
            command
        })
        .expect("a shell");
        cluster.pause(0).expect("it runs");
        await_stopped(pid(&cluster, 0));
        cluster.stop();
        assert!(done.exists(), "it went on, saw the end of its input, and ended in order");
    }

    #[test]
    fn a_replica_that_ends_at_once_is_named_with_its_status() {
        let error =
            Cluster::launch(2, true, shell("test $1 = 0 && echo ready 127.0.0.1:1 || exit 3"))
                .expect_err("replica 1 ends");
        let message = error.to_string();
        assert!(message.contains("replica 1") && message.contains('3'), "{message}");
        let error =
            Cluster::launch(1, true, |_| Command::new("/no/such/program")).expect_err("no file");
        assert!(error.to_string().starts_with("cannot start replica 0"), "{error}");
    }

    #[test]
    fn a_dead_replica_is_seen_and_gets_no_signals() {
        let cluster = Cluster::launch(1, true, shell(DEAF)).expect("a shell");
        kill_process(pid(&cluster, 0), Signal::KILL).expect("it runs");
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid(&cluster, 0)), options).expect("the process is a child of ours");
        assert_eq!(cluster.ended().len(), 1);
        let error = cluster.pause(0).expect_err("reaped");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
