//! Programs that are given so much of a processor, and no more.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use crate::Result;

/// Who sleeps for so many times that is not busy elsewhere, but hangs.
const PATIENCE: u64 = 10;
/// The signal of who is killed: by the kernel for its time on a processor, or by the clock.
const KILL: i32 = 9;

/// What a program said and how it ended.
pub(crate) struct Finished {
    pub(crate) ok: bool,
    pub(crate) hangs: bool,
    pub(crate) output: String,
}

/// Runs a program to its end, or until it has had so much of a processor, however many share that. So
/// has each that it starts.
pub(crate) fn finish(command: &Command, most: Duration) -> Result<Finished> {
    let most = most.as_secs();
    let mut bounded = Command::new("timeout");
    bounded.args(["-s", "KILL", &(most * PATIENCE).to_string()]);
    // One stream, so that all that it says stays in order.
    bounded.args(["sh", "-c", "ulimit -t \"$0\" && exec \"$@\" 2>&1", &most.to_string()]);
    bounded.arg(command.get_program()).args(command.get_args());
    bounded.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        bounded.current_dir(folder);
    }
    let run = bounded.output()?;
    Ok(Finished {
        ok: run.status.success(),
        // A shell's status, or the signal itself, as the clock hands it on.
        hangs: run.status.code() == Some(128 + KILL) || run.status.signal() == Some(KILL),
        output: String::from_utf8_lossy(&run.stdout).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, most: Duration) -> Finished {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env("WORD", "said");
        finish(&command, most).expect("a shell")
    }

    #[test]
    fn what_a_program_says_is_kept_in_its_order_with_how_it_ended() {
        let run = shell("echo $WORD; echo more >&2; echo last; exit 3", Duration::from_secs(60));
        assert_eq!((run.ok, run.hangs, run.output.as_str()), (false, false, "said\nmore\nlast\n"));
        assert!(shell("true", Duration::from_secs(60)).ok);
        assert_eq!(shell("ulimit -t", Duration::from_secs(60)).output, "60\n");
        let crashed = shell("kill -ABRT $$", Duration::from_secs(60));
        assert!(!crashed.ok && !crashed.hangs);
    }

    #[test]
    fn who_has_had_its_time_on_a_processor_hangs_and_so_does_who_sleeps_for_longer() {
        for script in ["while :; do :; done", "exec sleep 1000"] {
            let run = shell(script, Duration::from_secs(1));
            assert!(run.hangs && !run.ok, "{script}");
        }
    }
}
