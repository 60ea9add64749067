//! A replica tells what it does, `bowline stat` shows it, and SIGTERM ends it in good order.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{bowline, run, text};
use crate::deaths::is_hang_up_ignored;

#[test]
fn each_signal_that_asks_to_end_ends_a_replica_in_good_order() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let hang_up = (!is_hang_up_ignored()).then_some(Signal::HUP);
    for signal in [Signal::INT, Signal::TERM].into_iter().chain(hang_up) {
        let line = "serve --listen 127.0.0.1:0 --data-size 1MiB --file data";
        let mut serve = bowline(folder.path(), line);
        let mut replica = serve.stdout(Stdio::piped()).spawn().expect("the program is there");
        let mut said = BufReader::new(replica.stdout.take().expect("a pipe"));
        said.read_line(&mut String::new()).expect("it says that it serves");
        kill_process(Pid::from_child(&replica), signal).expect("it runs");
        // Nothing more to read: it has ended, or the test hangs, which its runner sees.
        said.read_line(&mut String::new()).expect("a pipe");
        assert_eq!(replica.wait().expect("a child").code(), Some(0), "{signal:?}");
    }
}

#[test]
fn stat_shows_a_replica_that_then_ends_in_good_order() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let line = "serve --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --data-size 1MiB --file data";
    let mut serve = bowline(folder.path(), line);
    let mut replica = serve.stdout(Stdio::piped()).spawn().expect("the program is there");
    let said = BufReader::new(replica.stdout.take().expect("a pipe"));
    let address = said.lines().find_map(|line| {
        let line = line.expect("a line");
        Some(line.split_once(" at ")?.1.to_owned()).filter(|at| at.starts_with("http://"))
    });
    let address = address.expect("it says where");
    let stat = run(bowline(folder.path(), &format!("stat {address} --once")));
    let screen = text(&stat.stdout);
    assert!(stat.status.success(), "{}", text(&stat.stderr));
    for part in
        ["replica 0, since it started", "0 running of 8 slots", "0 connections", "core 0", "read"]
    {
        assert!(screen.contains(part), "no {part:?} in:\n{screen}");
    }
    // Again and again, as long as somebody reads.
    let mut stat = bowline(folder.path(), &format!("stat {address} --every 100ms"));
    let mut live = stat.stdout(Stdio::piped()).spawn().expect("the program is there");
    let said = BufReader::new(live.stdout.take().expect("a pipe"));
    let mut screens =
        said.lines().filter(|line| line.as_ref().is_ok_and(|l| l.contains("replica 0")));
    let [first, second] = [(); 2].map(|()| screens.next().expect("a screen").expect("a line"));
    assert!(first.ends_with("since it started") && second.contains("in the last "), "{second}");
    drop(screens);
    assert_eq!(live.wait().expect("a child").code(), Some(0));
    kill_process(Pid::from_child(&replica), Signal::TERM).expect("it runs");
    assert_eq!(replica.wait().expect("a child").code(), Some(0));
    let late = run(bowline(folder.path(), &format!("stat {address} --once")));
    assert!(text(&late.stderr).contains("a server tells them where --metrics says"));
    assert!(!late.status.success());
}
