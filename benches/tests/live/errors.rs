//! What cannot be done is said in one line, with a status that is not zero.

use std::fs::{self, File};
use std::net::TcpListener;
use std::process::{Child, Stdio};

use crate::command::{bowline, comparison, run, text};

/// Runs a line that fails; the one line that it says.
fn failure(line: &str, code: i32) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = run(bowline(folder.path(), line));
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{line}: {errors}");
    assert_eq!(errors.lines().count(), 1, "{line}: {errors}");
    assert!(errors.starts_with("bowline: "), "{line}: {errors}");
    errors
}

#[test]
fn an_unknown_command_is_named() {
    let said = failure("frobnicate", 2);
    assert!(said.contains("frobnicate"), "{said}");
}

#[test]
fn a_line_that_turns_out_to_be_wrong_late_is_as_wrong_as_any() {
    for (line, told) in [
        ("serve --listen 127.0.0.1", "--listen"),
        ("serve --peer 10.0.0.2:7000", "--peer"),
        ("serve --replica 1 --peer 1=10.0.0.2:7000", "replica 1 is named twice"),
        ("load --replicas store-1", "--replicas"),
        ("stat localhost", "HOST:PORT"),
        ("stat localhost:9 --every 0s", "at least 100ms"),
        ("simulate --network 5s", "--network: at most 100 ms"),
        ("simulate --load 0%", "--load"),
        ("simulate --rate 1 --calls 10000000", "change --calls"),
        ("predict --load 0%", "--load"),
    ] {
        let said = failure(line, 2);
        assert!(said.contains(told), "{line}: {said}");
    }
    let said = failure("serve --listen no.such.host.invalid:7000", 1);
    assert!(said.contains("no.such.host.invalid:7000"), "{said}");
}

#[test]
fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let said = failure(&format!("serve --log off --listen {address} --data-size 64KiB"), 1);
    assert!(said.contains(&address.to_string()), "{said}");
    let said = failure(&format!("echo server --addr {address}"), 1);
    assert!(said.contains(&address.to_string()), "{said}");
}

#[test]
fn a_replica_whose_page_has_no_port_says_that_and_nothing_of_a_server_that_ends() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let line =
        format!("serve --listen 127.0.0.1:0 --metrics {address} --data-size 64KiB --file data");
    let output = run(bowline(folder.path(), &line));
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    // It may warn of the machine before.
    let said: Vec<&str> = errors.lines().filter(|line| !line.contains(" WARN ")).collect();
    assert_eq!(said.len(), 1, "{errors}");
    assert!(said[0].contains(&address.to_string()), "{errors}");
}

#[test]
fn a_file_of_the_users_is_never_replaced() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, line) in [
        ("important.txt", "serve --file important.txt --data-size 64KiB --listen 127.0.0.1:0"),
        ("replica-1.dat", "compare --data . --data-size 64KiB --duration 1s"),
        ("report.html", "compare --out . --data-size 64KiB --duration 1s"),
        ("results.json", "load --out . --replicas 127.0.0.1:1"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, "precious").expect("writable");
        let output = run(bowline(folder.path(), line));
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{line}: {errors}");
        assert!(errors.contains(name) && errors.contains("is there"), "{line}: {errors}");
        assert_eq!(fs::read_to_string(&path).expect("readable"), "precious", "{line}");
        fs::remove_file(&path).expect("writable");
    }
}

#[test]
fn a_replica_makes_no_folder_for_a_file_that_somebody_named() {
    let said = failure("serve --file no/such/disk/blocks.dat --listen 127.0.0.1:0", 1);
    assert!(said.contains("no folder no/such/disk") && said.contains("--file FILE"), "{said}");
}

#[test]
fn an_unwritable_folder_is_named_before_anything_runs() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // A file in the way: not even root can make a folder below it.
    fs::write(folder.path().join("file"), "").expect("writable");
    for (option, cure) in [("--data", "--data DIR"), ("--out", "--out DIR")] {
        let mut command = comparison(folder.path(), "60s");
        let output = run({
            command.args([option, "file/below"]);
            command
        });
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert!(errors.contains("file/below") && errors.contains(cure), "{errors}");
    }
}

#[test]
fn replicas_that_are_not_there_are_named() {
    // A port that no system gives away, of an address that nobody uses.
    let nobody = "127.250.250.1:9";
    let said = failure(&format!("load --replicas {nobody}"), 1);
    assert!(said.contains(nobody), "{said}");
    let said = failure("compare --replicas no.such.host.invalid:1", 1);
    assert!(said.contains("no.such.host.invalid:1"), "{said}");
}

#[test]
fn a_standard_output_that_takes_nothing_loses_no_report() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = folder.path().join("bowline-report/results.json");
    let mut command = comparison(folder.path(), "300ms");
    command.stdout(Stdio::from(File::options().write(true).open("/dev/full").expect("Linux")));
    command.stderr(Stdio::piped());
    let full = command.spawn().and_then(Child::wait_with_output).expect("the program is there");
    let errors = text(&full.stderr);
    assert_eq!(full.status.code(), Some(1), "{errors}");
    assert!(errors.contains("cannot write to standard output"), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    fs::remove_file(&report).expect("a report");

    // A reader that is gone before anything is said.
    let mut command = comparison(folder.path(), "300ms");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("there");
    drop(child.stdout.take());
    let closed = child.wait_with_output().expect("a child");
    assert!(closed.status.success(), "{}", text(&closed.stderr));
    assert!(report.exists());
}
