//! What a core counts of itself.

use std::cell::Cell;

use crate::histogram::{Histogram, Recorder};

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

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
            pub(crate) timer_lateness: Recorder,
            pub(crate) completion_batches: Recorder,
            pub(crate) submission_batches: Recorder,
        }

        /// Counts of a runtime's life so far, and what lives in it now.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Metrics {
            $($(#[$doc])* pub $name: u64,)*
            /// How many nanoseconds after their deadlines timers fired.
            pub timer_lateness: Histogram,
            /// How many completions were found at once, if any were: the depth of the completion
            /// queue, and the sends that were done as they were handed over, for which the kernel
            /// puts none there.
            pub completion_batches: Histogram,
            /// How many requests were handed to the kernel at once, if any were: the depth of the
            /// submission queue.
            pub submission_batches: Histogram,
            /// Tasks that have not ended.
            pub live_tasks: usize,
            /// Connections whose descriptor is open.
            pub live_connections: usize,
            /// Requests that the kernel, or the queue to it, still holds. What leaves as a core falls
            /// asleep is among them until it wakes.
            pub requests_in_flight: usize,
            /// Receive buffers that the kernel can fill.
            pub free_buffers: usize,
            /// Timers that are armed.
            pub armed_timers: usize,
            /// Futures of other threads that were refused, as too many waited for this core; see
            /// [`Handle::spawn`](crate::Handle::spawn).
            pub remote_refused: u64,
        }

        impl Counters {
            /// The counters; what is live, the caller fills in.
            pub(crate) fn snapshot(&self) -> Metrics {
                Metrics {
                    $($name: self.$name.get(),)*
                    timer_lateness: self.timer_lateness.snapshot(),
                    completion_batches: self.completion_batches.snapshot(),
                    submission_batches: self.submission_batches.snapshot(),
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
    /// Times that the core looked for something to do before it would have slept; see
    /// [`Builder::spin`](crate::Builder::spin).
    spins,
    /// Those of them that found nothing.
    spins_in_vain,
    /// Calls of io_uring_enter that a signal ended. Nothing is lost by it: the loop goes on, and comes back.
    interrupted,
    /// Completions, of which one request may have many, and sends that were done as they were handed
    /// over, for which the kernel makes none.
    completions,
    /// Times that the completion queue was found overflown. Nothing is lost by it but time.
    overflows,
    /// Times that completions were put aside before a batch of requests, as the completion queue had
    /// no room for those of the batch.
    reaped_early,
    /// The most requests that ever waited at once for a place in the submission queue.
    longest_backlog,
    /// Times that a connection found no receive buffer free, and was parked until one was.
    parks,
    /// Times that received bytes were copied out of their receive buffer, as few were free: readers
    /// lag, or keep leases.
    copies,
    /// Times that a connection was paused because its reader lagged.
    pauses,
    /// Polls of tasks.
    polls,
    /// Tasks made ready, by their own core.
    wakes,
    /// Tasks made ready, by other threads.
    remote_wakes,
    /// Times that another thread ended this core's sleep by a message to its ring, where the kernel
    /// can; elsewhere it writes to an eventfd.
    messages,
    /// Tasks spawned.
    spawns,
    /// Tasks that panicked.
    panics,
    /// Polls that took as long as [`Builder::stall`](crate::Builder::stall) says, or longer.
    stalls,
    /// Timers that fired.
    timers,
    /// Nanoseconds for which background tasks ran while others were ready.
    background_nanos,
    /// Send requests, each of which carries all that a connection had to say.
    sends,
    /// Send requests that did not copy, of [`sends`](Metrics::sends).
    zero_copy_sends,
    /// Requests of [`zero_copy_sends`](Metrics::zero_copy_sends) that the kernel refused, and whose
    /// bytes were copied then, as [`Builder::zero_copy`](crate::Builder::zero_copy) says.
    zero_copy_refused,
    /// Bytes that the kernel took to send. What leaves as a core falls asleep is counted when it wakes.
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
