//! Ctrl-C, SIGTERM and the end of the terminal: the run ends early and reports what it has.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::unregister;
use signal_hook::{SigId, flag};

/// What a shell reports of a program that SIGINT ended, and so do we.
pub const EXIT_INTERRUPTED: u8 = 130;

/// Whether the user has asked to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
    signals: Vec<i32>,
    /// What ends the process at a second one.
    ends: Vec<SigId>,
}

impl Interrupt {
    /// Takes note of SIGINT, SIGTERM and, unless it is ignored as under nohup, SIGHUP from now on.
    /// A second one ends the process at once (the replicas that it started die with it).
    ///
    /// # Errors
    /// The system refuses the handlers.
    pub fn on_signals() -> io::Result<Self> {
        let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let signals = [SIGINT, SIGTERM].into_iter().chain(hang_up).collect();
        let mut interrupt = Interrupt { signals, ..Interrupt::default() };
        for &signal in &interrupt.signals {
            // In this order: the first signal finds the flag down and passes the first handler.
            let asked = Arc::clone(&interrupt.asked);
            let status = i32::from(EXIT_INTERRUPTED);
            interrupt.ends.push(flag::register_conditional_shutdown(signal, status, asked)?);
            flag::register(signal, Arc::clone(&interrupt.asked))?;
        }
        Ok(interrupt)
    }

    /// The signals that it takes note of, for who waits for each of them in another way from now on:
    /// here they are noted, and end nothing any more.
    pub fn hand_over(&self) -> &[i32] {
        for &end in &self.ends {
            unregister(end);
        }
        &self.signals
    }

    /// Whether the user has asked to end.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Ends as a signal would.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }
}

/// Whether whoever started this process had it ignore a signal. Where that cannot be told, it had
/// not.
fn is_ignored(signal: i32) -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores(&status, signal))
}

fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_was_ignored_stays_so() {
        let status = "Name:\tbowline\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000000002\n";
        assert!(ignores(status, SIGHUP) && !ignores(status, SIGINT));
        assert!(!ignores("", SIGHUP));
    }

    #[test]
    fn one_sigterm_raises_the_flag_and_ends_nothing_and_after_a_hand_over_no_other_does() {
        let interrupt = Interrupt::on_signals().expect("handlers");
        assert!(!interrupt.asked());
        signal_hook::low_level::raise(SIGTERM).expect("raised");
        assert!(interrupt.asked());
        assert!(interrupt.hand_over().contains(&SIGTERM));
        signal_hook::low_level::raise(SIGTERM).expect("raised");
    }
}
