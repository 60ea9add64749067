//! Ctrl-C and SIGTERM: the run ends early and reports what it has.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// What a shell reports of a program that SIGINT ended, and so do we.
pub const EXIT_INTERRUPTED: u8 = 130;

/// Whether the user has asked to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes note of SIGINT and SIGTERM from now on. A second one ends the process at once (the
    /// replicas that it started die with it).
    ///
    /// # Errors
    /// The system refuses the handlers.
    pub fn on_signals() -> io::Result<Self> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag down and passes the first handler.
            let asked = Arc::clone(&interrupt.asked);
            flag::register_conditional_shutdown(signal, i32::from(EXIT_INTERRUPTED), asked)?;
            flag::register(signal, Arc::clone(&interrupt.asked))?;
        }
        Ok(interrupt)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sigterm_raises_the_flag_and_ends_nothing() {
        let interrupt = Interrupt::on_signals().expect("handlers");
        assert!(!interrupt.asked());
        signal_hook::low_level::raise(SIGTERM).expect("raised");
        assert!(interrupt.asked());
    }
}
