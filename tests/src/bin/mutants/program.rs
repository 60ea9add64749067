//! Programs that are given so much of a processor, and no more.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// Who sleeps for so many times that is not busy elsewhere, but hangs.
const PATIENCE: u32 = 10;

/// What a program said and how it ended.
pub(crate) struct Finished {
    pub(crate) ok: bool,
    pub(crate) hangs: bool,
    pub(crate) output: String,
}

/// Runs a program to its end, or until it has had so much of a processor, however many share that.
pub(crate) fn finish(mut command: Command, most: Duration) -> Result<Finished> {
    let out = tempfile()?;
    command.stdout(Stdio::from(out.0.try_clone()?)).stderr(Stdio::from(out.0));
    let mut child = command.spawn()?;
    let start = Instant::now();
    let (ok, hangs) = loop {
        if let Some(status) = child.try_wait()? {
            break (status.success(), false);
        }
        if ran(child.id())? > most || start.elapsed() > most * PATIENCE {
            child.kill()?;
            child.wait()?;
            break (false, true);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let output = String::from_utf8_lossy(&fs::read(&out.1)?).into_owned();
    fs::remove_file(out.1)?;
    Ok(Finished { ok, hangs, output })
}

/// How long a process has run on a processor, on all its threads together.
fn ran(process: u32) -> Result<Duration> {
    /// What the kernel counts in, for user space, on every architecture: hundredths of a second.
    const TICK: Duration = Duration::from_millis(10);
    // It may have ended since it was last looked at, and is waited for: then it is still there.
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // Behind the name, which is in parentheses, utime is field 14 and stime 15 of proc(5).
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks = fields.skip(11).take(2).map(|field| field.parse::<u32>().unwrap_or(0));
    Ok(TICK * ticks.sum::<u32>())
}

fn tempfile() -> Result<(fs::File, PathBuf)> {
    let path = std::env::temp_dir().join(format!("bowline-mutants-{}", std::process::id()));
    Ok((fs::File::create(&path)?, path))
}
