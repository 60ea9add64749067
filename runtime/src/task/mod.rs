//! Tasks: futures of one core, polled in the order of a turn's stages.
//!
//! * [`table`]: which tasks there are, who is ready, and who awaits whom.
//! * [`cell`]: a future, and then its output, in a place of its own whose type the table forgot.
//! * [`memory`]: the places, in classes of size, used again.
//! * [`waker`]: names a task by number, so that it may go anywhere and outlive everything.
//! * [`join`]: what a spawner gets.

pub(crate) mod cell;
pub(crate) mod join;
pub(crate) mod memory;
pub(crate) mod table;
pub(crate) mod waker;

use std::fmt;
use std::panic::Location;

pub use join::{JoinError, JoinHandle};

/// What tasks are told apart by in what is logged of them.
#[derive(Clone, Copy)]
pub(crate) struct Label {
    pub(crate) name: &'static str,
    /// Where it was made a task.
    pub(crate) spawned: &'static Location<'static>,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, spawned at {}", self.name, self.spawned)
    }
}

/// When in a turn of the loop a task runs.
///
/// A turn applies all that arrived before anything is decided on it, and submits what was decided
/// before any work is begun. See [the crate's documentation](crate#the-turn).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum Stage {
    /// Readers of connections: they apply what came in. Run until the sockets are dry.
    Input = 0,
    /// Whoever chooses what to do next, with all input applied. What it sends is submitted to the
    /// kernel before any task of [`Stage::Work`] is polled.
    Decide = 1,
    /// Everything else that somebody waits for.
    #[default]
    Work = 2,
    /// What can wait: it runs while nothing else is ready, and otherwise for its
    /// [share](crate::Builder::background_share) of the time. It never holds anything else up for
    /// longer than a [budget](crate::Builder::budget) and the poll that it ends with.
    Background = 3,
}

impl Stage {
    pub(crate) const COUNT: usize = Stage::Background as usize + 1;
}
