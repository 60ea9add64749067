//! Running the command, and what it writes.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use bowline_bench::cli::{Command as Parsed, parse};
use bowline_bench::frontend::Frontend;
use bowline_runtime::{Runtime, clock_now, sleep};
use rustix::process::{Pid, Signal, kill_process};

/// Nothing here takes a tenth of this, unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The program, with its folders in `folder`.
pub(crate) fn bowline(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bowline"));
    command.args(line.split_whitespace()).current_dir(folder);
    command
}

/// A comparison of small files and few calls, for so long.
pub(crate) fn comparison(folder: &Path, duration: &str) -> Command {
    // The second tied copies are sent at once: else on a slow machine a call may end before its second.
    let line = "--rate 300 --rounds 1 --warmup 50ms --data-size 1MiB --service 1ms --stagger 0us";
    bowline(folder, &format!("{line} --duration {duration}"))
}

/// Runs it to its end.
pub(crate) fn run(mut command: Command) -> Output {
    command.output().expect("the program is there")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A comparison that runs, with its replicas' process ids.
pub(crate) struct Comparison {
    pub(crate) child: Child,
    pub(crate) replicas: Vec<Pid>,
    /// Where the first replica listens.
    first: SocketAddr,
    /// Hears of the end of standard error, which all of them share: then all have ended.
    over: Receiver<String>,
}

impl Comparison {
    /// Starts one and returns when its replicas serve.
    pub(crate) fn start(mut command: Command) -> Comparison {
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().expect("the program is there");
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let (replicas, first) = loop {
            let mut line = String::new();
            let read = errors.read_line(&mut line).expect("a pipe");
            assert!(read > 0, "the comparison ended early");
            if line.starts_with("Replicas:") {
                let first = line.split_whitespace().nth(1).expect("an address");
                break (process_ids(&line), first.parse().expect("an address"));
            }
        };
        Comparison { child, replicas, first, over: told_of_end(errors) }
    }

    /// Waits until the first replica has read a block.
    pub(crate) fn await_read(&self) {
        await_read(self.first);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        kill_process(pid.expect("a process id"), signal).expect("it runs");
    }

    /// Waits until neither it nor any replica holds the pipe; what was written to it meanwhile.
    pub(crate) fn await_end_of_all(&self) -> String {
        self.over.recv_timeout(PATIENCE).expect("a process was left behind")
    }
}

/// Waits until a replica has read a block (and not only refused to, as when the client measures the
/// way): that call is counted, whatever comes.
pub(crate) fn await_read(replica: SocketAddr) {
    let Ok(Parsed::Load(args)) = parse(["bowline", "load", "--replicas", "x:1"]) else {
        panic!("options of a load");
    };
    let runtime = Runtime::builder().build().expect("io_uring");
    runtime.block_on(async {
        let began = clock_now();
        let asked = Frontend::connect(&[replica], &[], &args.settings, 1).await;
        let asked = asked.expect("it listens");
        while asked.figures().await.expect("it answers")[0].busy_ns == 0 {
            assert!(clock_now() - began < PATIENCE, "nothing is read");
            sleep(Duration::from_millis(5)).await;
        }
    });
}

fn told_of_end(mut errors: BufReader<ChildStderr>) -> Receiver<String> {
    let (told, over) = mpsc::channel();
    thread::spawn(move || {
        let mut rest = String::new();
        errors.read_to_string(&mut rest).ok();
        told.send(rest).ok();
    });
    over
}

/// Those of a line such as `Replicas: 127.0.0.1:1 (process 2), 127.0.0.1:3 (process 4).`
fn process_ids(line: &str) -> Vec<Pid> {
    let after = line.split("(process ").skip(1);
    let numbers = after.filter_map(|text| text.split(')').next()?.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

#[test]
fn a_comparison_writes_its_report_and_uses_its_data_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = run(comparison(folder.path(), "900ms"));
    let (said, errors) = (text(&first.stdout), text(&first.stderr));
    assert!(first.status.success(), "{errors}");
    assert!(errors.contains("3 written"), "{errors}");
    assert!(said.contains("tied / none") && said.contains("executions/call"), "{said}");

    let report = folder.path().join("bowline-report");
    let results = std::fs::read(report.join("results.json")).expect("written");
    let results: serde_json::Value = serde_json::from_slice(&results).expect("JSON");
    let policies = results["policies"].as_object().expect("policies");
    assert_eq!(policies.keys().collect::<Vec<_>>(), ["hedged", "none", "tied"]);
    for (name, figures) in policies {
        let calls = figures["calls"].as_u64().expect("a number");
        assert!(calls > 30, "{name}: {calls} calls in 300 ms at 300 /s");
        assert_eq!(figures["ok"].as_u64(), Some(calls), "{name}: {figures}");
        assert!(figures["executions_per_call"].as_f64() >= Some(1.0), "{name}: {figures}");
        let of = |name: &str| figures["counters"][name].as_u64().expect("a number");
        let ends = ["answered", "withdrawn", "withdrawn_by_caller", "aborted", "shed", "lost"];
        assert_eq!(ends.map(of).iter().sum::<u64>(), of("attempts"), "{name}: {figures}");
        assert!(of("answered") >= calls, "{name}: {figures}");
    }
    assert!(policies["tied"]["attempts_per_call"].as_f64() > Some(1.0));
    let warnings = results["setup"]["warnings"].as_array().expect("a list");
    let unsound = warnings.iter().filter(|warning| text_of(warning).contains("counted"));
    assert_eq!(unsound.count(), 0, "{warnings:?}");
    assert!(report.join("report.html").exists() && report.join("latency.hlog").exists());

    let second = run(comparison(folder.path(), "300ms"));
    assert!(text(&second.stderr).contains("reused"), "{}", text(&second.stderr));
}

#[test]
fn without_a_mesh_the_client_relays_and_double_starts_are_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = comparison(folder.path(), "900ms");
    command.args(["--policies", "tied", "--no-mesh"]);
    let output = run(command);
    let screen = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the client relays cancels"), "{screen}");
    assert!(screen.lines().any(|line| line.starts_with("both started")), "{screen}");
    // How many depends on how often both replicas were busy.
    assert!(screen.lines().any(|line| line.starts_with("+ withdrawn, twin")), "{screen}");
}

fn text_of(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A replica of 1 MiB in `blocks.dat` that reads in a millisecond, and where it listens.
pub(crate) fn replica(folder: &Path) -> (Child, SocketAddr) {
    let line = "serve --listen 127.0.0.1:0 --data-size 1MiB --service 1ms --file blocks.dat";
    let mut serve = bowline(folder, line);
    serve.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut replica = serve.spawn().expect("the program is there");
    let mut said = String::new();
    let mut output = BufReader::new(replica.stdout.take().expect("a pipe"));
    output.read_line(&mut said).expect("a pipe");
    let address = said.split(" at ").nth(1).and_then(|rest| rest.split(',').next());
    (replica, address.and_then(|it| it.parse().ok()).expect("its address"))
}

#[test]
fn load_uses_replicas_that_run_already() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (replica, address) = replica(folder.path());
    let line = format!(
        "load --replicas {address} --rate 200 --duration 300ms --warmup 50ms --data-size 1MiB"
    );
    let good = run(bowline(folder.path(), &line));
    let said = text(&good.stdout);
    assert!(good.status.success(), "{}", text(&good.stderr));
    assert!(said.contains("tied") && said.contains("completed /s"), "{said}");

    // Damaged under the replica's hands: all that it sends from now on is wrong.
    let blocks = folder.path().join("blocks.dat");
    let mut file = File::options().write(true).open(blocks).expect("the replica's file");
    file.write_all(&vec![0x5a; 1 << 20]).and_then(|()| file.sync_all()).expect("written");
    let damaged = run(bowline(folder.path(), &line));
    let said = text(&damaged.stdout);
    assert_eq!(damaged.status.code(), Some(1), "{said}");
    assert!(said.contains("FAILED: ") && said.contains("from replica 0 at"), "{said}");
    assert!(said.contains("failed the checksum"), "{said}");

    let other = run(bowline(folder.path(), &line.replace("1MiB", "2MiB")));
    let errors = text(&other.stderr);
    assert!(!other.status.success() && errors.contains("--data-size"), "{errors}");

    let pid = Pid::from_raw(i32::try_from(replica.id()).expect("a process id"));
    kill_process(pid.expect("a process id"), Signal::TERM).expect("it runs");
    let ended = replica.wait_with_output().expect("a child");
    let log = text(&ended.stderr);
    assert!(ended.status.success(), "SIGTERM ends a replica in good order: {log}");
    assert!(log.contains("INFO serves") && log.contains("INFO ended"), "{log}");
}

/// An echo server, and where it listens.
fn echo_server(folder: &Path) -> (Child, String) {
    let mut serve = bowline(folder, "echo server --addr 127.0.0.1:0");
    let mut server = serve.stderr(Stdio::piped()).spawn().expect("the program is there");
    let mut said = String::new();
    let mut errors = BufReader::new(server.stderr.take().expect("a pipe"));
    errors.read_line(&mut said).expect("a pipe");
    (server, said.trim().rsplit(' ').next().expect("its address").to_owned())
}

/// Waits until the process has a connection to `address` up.
fn await_connection(client: &Child, address: &str) {
    let port = address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    let remote = format!(":{:04X} 01 ", port.expect("a port"));
    let began = Instant::now();
    let table = format!("/proc/{}/net/tcp", client.id());
    while !std::fs::read_to_string(&table).expect("a table").contains(&remote) {
        assert!(began.elapsed() < PATIENCE, "no connection");
        thread::yield_now();
    }
}

#[test]
fn an_echo_client_that_is_interrupted_prints_what_it_measured() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut server, address) = echo_server(folder.path());
    let line = format!("echo client --addr {address} --seconds 600 --warmup 300");
    let mut command = bowline(folder.path(), &line);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let client = command.spawn().expect("the program is there");
    await_connection(&client, &address);
    let pid = Pid::from_raw(i32::try_from(client.id()).expect("a process id"));
    kill_process(pid.expect("a process id"), Signal::INT).expect("it runs");
    let output = client.wait_with_output().expect("a child");
    server.kill().and_then(|()| server.wait()).expect("a child");
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{errors}");
    let line: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    // It came in the warm-up, of which nothing is measured: no time is null, not zero.
    assert_eq!(line["requests"], 0, "{said}");
    assert!(line["p50_ns"].is_null() && line["max_ns"].is_null(), "{said}");
    assert!(errors.contains("no call"), "{errors}");
}

#[test]
fn an_echo_client_ends_when_its_server_dies() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut server, address) = echo_server(folder.path());
    let line = format!("echo client --addr {address} --seconds 600 --inflight 8");
    let mut command = bowline(folder.path(), &line);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let client = command.spawn().expect("the program is there");
    await_connection(&client, &address);
    server.kill().and_then(|()| server.wait()).expect("a child");
    let output = client.wait_with_output().expect("a child");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!((errors.lines().count(), output.stdout.len()), (1, 0), "{errors}");
}

#[test]
fn no_method_of_a_service_that_is_no_store_is_called() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut server, address) = echo_server(folder.path());
    let output = run(bowline(folder.path(), &format!("load --replicas {address} --duration 1s")));
    server.kill().and_then(|()| server.wait()).expect("a child");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains(r#"it serves "bowline echo", and we speak "bowline blocks""#),
        "{errors}"
    );
}

#[test]
fn an_echo_client_prints_one_line_of_json() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut server, address) = echo_server(folder.path());
    let run_echo = |line: &str| run(bowline(folder.path(), &line.replace("ADDR", &address)));
    let huge = run_echo("echo client --addr ADDR --payload 3000000 --seconds 0.1 --warmup 0");
    let output = run_echo(
        "echo client --addr ADDR --payload 100 --inflight 4 --conns 2 --seconds 0.2 --warmup 0.1",
    );
    server.kill().expect("it runs");
    server.wait().expect("a child");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(huge.status.success(), "{}", text(&huge.stderr));
    assert_eq!(said.lines().count(), 1, "{said}");
    let line: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    for field in ["requests", "rps", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"] {
        assert!(line[field].as_f64() > Some(0.0), "{field} in {line}");
    }
    assert_eq!((&line["peer"], &line["payload"]), (&"bowline".into(), &100.into()));
    assert_eq!((&line["inflight"], &line["conns"]), (&4.into(), &2.into()));
    assert!(line["client_cpu_s"].is_f64());
}

#[test]
fn a_probe_tells_people_and_programs_that_bowline_can_run_here() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = run(bowline(folder.path(), "probe"));
    let told_json = run(bowline(folder.path(), "probe --json"));
    assert!(told.status.success() && told_json.status.success(), "{told:?}");
    let (told, told_json) = (text(&told.stdout), text(&told_json.stdout));
    assert!(told.contains("DEFER_TASKRUN") && told.contains("Bowline can run here."), "{told}");
    let json: serde_json::Value = serde_json::from_str(&told_json).expect("JSON");
    assert_eq!(json["usable"], true, "{told_json}");
    let features = json["features"].as_array().expect("rows");
    assert!(features.len() > 30, "{told_json}");
}
