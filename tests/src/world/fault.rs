//! What can go wrong.

use crate::kernel::span::Nanos;

/// Something goes wrong for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// When.
    pub at: Nanos,
    /// For how long.
    pub lasts: Nanos,
    /// What.
    pub what: What,
}

/// What goes wrong. Processes are numbered: the servers first, then the clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// The process dies, its connections close, and it comes back empty.
    Kill(usize),
    /// The process's machine loses power: nobody is told, and it comes back empty.
    Vanish(usize),
    /// The process stands still, as after SIGSTOP; what arrives waits for it.
    Freeze(usize),
    /// Every connection between two processes breaks (at once; they may dial again).
    Cut(usize, usize),
    /// Nothing gets from the first process to the second.
    Block(usize, usize),
    /// Nothing gets through between the two.
    Part(usize, usize),
    /// The handlers of a server take so many percent of their time.
    Slow(usize, u64),
    /// What a process sends, and what is sent to it, is so many percent of the time under way.
    SlowNet(usize, u64),
    /// A process sends forged cancels for the calls of others, on all of its connections.
    Forge(usize),
    /// A server leaves in good order, within the fault's time, and comes back empty.
    Leave(usize),
    /// A process reads slowly: one thing of all that has arrived in each turn, and a turn now and
    /// then.
    Sip(usize),
    /// A client makes so many calls at once.
    Burst(usize, u64),
    /// A server loses what was written last, so much of it, and follows as far behind as that. (In a
    /// world without lags nothing is written.)
    FallBehind(usize, Nanos),
}
