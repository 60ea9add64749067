//! Notes which revision the program is built from, for its reports.

use std::path::Path;
use std::process::Command;

/// Sources whose change makes a revision "dirty"; below the workspace's root.
const SOURCES: [&str; 6] = ["runtime", "protocol", "server", "client", "benches", "Cargo.toml"];

fn main() {
    let root = Path::new("..");
    for source in SOURCES.map(|source| root.join(source)).iter().filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    // Grows with every commit, checkout and reset.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    if let Some(log) = log.filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
    let revision = git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]);
    println!("cargo::rustc-env=BOWLINE_REVISION={}", revision.as_deref().unwrap_or("unknown"));
}

/// What git answers, if there is a git and a repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
