//! What a core counts of itself.

use std::cell::Cell;

use bowline_time::Duration;

/// A number that goes up. One thread owns it, so that it costs an addition.
#[derive(Default)]
pub(crate) struct Counter(Cell<u64>);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.set(self.0.get().wrapping_add(count));
    }

    #[inline]
    pub(crate) fn raise_to(&self, value: u64) {
        self.0.set(self.0.get().max(value));
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// How many classes of lateness are counted apart.
const LATENESS: usize = 20;

impl Counters {
    /// Counts a timer that fired so many nanoseconds after its deadline.
    pub(crate) fn timer_fired(&self, nanos: u64) {
        let class = (nanos / 1000).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.lateness[class.min(LATENESS - 1)].add(1);
        self.latest_timer.raise_to(nanos);
        self.timers.add(1);
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
            pub(crate) latest_timer: Counter,
            pub(crate) lateness: [Counter; LATENESS],
        }

        /// Counts of a runtime's life so far, and what lives in it now.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Metrics {
            $($(#[$doc])* pub $name: u64,)*
            /// The furthest that a timer ever fired after its deadline.
            pub latest_timer: Duration,
            /// How many timers fired less than 1 µs after their deadline, less than 2 µs, than
            /// 4 µs and so on; the last counts all the rest.
            pub timer_lateness: [u64; LATENESS],
            /// Tasks that have not ended.
            pub live_tasks: usize,
            /// Connections whose descriptor is open.
            pub live_connections: usize,
            /// Requests that the kernel, or the queue to it, still holds.
            pub requests_in_flight: usize,
            /// Receive buffers that the kernel can fill.
            pub free_buffers: usize,
            /// Timers that are armed.
            pub armed_timers: usize,
        }

        impl Counters {
            /// The counters; what is live, the caller fills in.
            pub(crate) fn snapshot(&self) -> Metrics {
                Metrics {
                    $($name: self.$name.get(),)*
                    latest_timer: Duration::from_nanos(self.latest_timer.get()),
                    timer_lateness: std::array::from_fn(|class| self.lateness[class].get()),
                    ..Metrics::default()
                }
            }
        }
    };
}

counters! {
    /// Turns of the loop.
    turns,
    /// Calls of io_uring_enter.
    enters,
    /// Those of them that waited.
    waits,
    /// Completions, of which one request may have many.
    completions,
    /// Times that the completion queue was found overflown. Nothing is lost by it but time.
    overflows,
    /// Times that a connection found no receive buffer free, and was parked until one was.
    parks,
    /// Times that a connection was paused because its reader lagged.
    pauses,
    /// Polls of tasks.
    polls,
    /// Tasks made ready, by their own core.
    wakes,
    /// Tasks made ready, by other threads.
    remote_wakes,
    /// Tasks spawned.
    spawns,
    /// Tasks that panicked.
    panics,
    /// Polls that took as long as [`Builder::stall`](crate::Builder::stall) says, or longer.
    stalls,
    /// Timers that fired.
    timers,
    /// Send requests, each of which carries all that a connection had to say.
    sends,
    /// Bytes that the kernel took to send.
    bytes_sent,
    /// Bytes received.
    bytes_received,
    /// Transfers of files that moved but a part, and went on with the rest.
    short_transfers,
    /// Requests about files that the kernel put off (EAGAIN, EINTR), and that were made again.
    file_retries,
    /// Files that were to be registered, and found no place.
    unregistered_files,
    /// Files that could not be closed without an error, of which nobody was told but the log.
    close_errors,
    /// Times that tasks had to wait for the next turn, the budget of this one being used up.
    budgets_exhausted,
    /// Turns that decided though more input may have been there, as sockets that are never dry must
    /// not hold up everything else.
    inputs_cut_short,
}

/// What the current runtime has counted.
///
/// # Panics
///
/// Outside a runtime.
pub fn metrics() -> Metrics {
    crate::core::with(crate::core::Core::metrics)
}
