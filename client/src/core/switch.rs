//! The switch that stops all extra copies at once.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether second copies may be sent, hedged or tied, on all cores that share it. Off, it acts on
/// the very next decision: calls that begin are plain, hedges that fall due and second copies that
/// were announced are not sent. What is out already is left to end; what replaces a copy that
/// ended still goes.
///
/// ```
/// use bowline_client::core::{Config, Switch};
///
/// let config = Config::default();
/// let switch = config.switch.clone(); // to be kept at hand
/// switch.turn_off();
/// assert!(!config.switch.is_on());
/// ```
#[derive(Debug)]
pub struct Switch {
    on: AtomicBool,
}

impl Default for Switch {
    /// On.
    fn default() -> Self {
        Switch { on: AtomicBool::new(true) }
    }
}

impl Switch {
    /// No second copies from now on.
    pub fn turn_off(&self) {
        self.set(false);
    }

    /// Second copies again, for calls that begin from now on.
    pub fn turn_on(&self) {
        self.set(true);
    }

    /// One or the other. Relaxed is enough: nothing else is published by it.
    pub fn set(&self, on: bool) {
        self.on.store(on, Relaxed);
    }

    /// Whether second copies may be sent.
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }
}
