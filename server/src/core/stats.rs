//! Counters, one a reason, that reconcile.

/// Declares the counters once: the struct, their names and values in the order of declaration.
macro_rules! counters {
    ($(#[$meta:meta])* pub struct $Name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct $Name { $($(#[$doc])* pub $field: u64,)* }

        impl $Name {
            /// The counters' names, in the order of [`values`](Self::values).
            pub const NAMES: [&'static str; [$(stringify!($field)),*].len()] =
                [$(stringify!($field)),*];

            /// The counters' values, in the order of their declaration.
            pub const fn values(&self) -> [u64; Self::NAMES.len()] {
                [$(self.$field),*]
            }

            /// Back from [`values`](Self::values).
            pub const fn from_values(values: [u64; Self::NAMES.len()]) -> Self {
                let [$($field),*] = values;
                $Name { $($field),* }
            }

            /// Both together, as of two cores of a server.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                let mut sum = self.values();
                sum.iter_mut().zip(other.values()).for_each(|(sum, value)| *sum += value);
                Self::from_values(sum)
            }
        }
    };
}

#[cfg(feature = "io")]
pub(crate) use counters;

counters! {
    /// What happened since a core was made; only the first six go down again.
    ///
    /// They reconcile, see [`Stats::ended`]: accepted = ended + queued + running + parked.
    pub struct Stats {
        /// Copies in the queue now.
        queued,
        /// Copies that hold a slot now.
        running,
        /// Copies that wait for the result of another with their key.
        parked,
        /// Copies in the queue that are held back: their clients have to read first.
        held,
        /// Results that are remembered by their keys.
        keys,
        /// Bytes of those results.
        key_bytes,

        /// Requests that were taken on: from here on, exactly one end each.
        accepted,
        /// Handlers that were started.
        started,
        /// Ends: answered.
        replied,
        /// Of those answered: the handler failed without an answer of its own.
        replied_failed,
        /// Of those answered: with the result of another copy with their key. Each is an effect
        /// that was not had twice.
        replied_by_key,
        /// Of those answered: refused when they came to start, as their key was used for something
        /// else.
        replied_other_use,
        /// Of those answered: refused when they came to start, as this replica was not as fresh as
        /// they ask any more.
        replied_stale,
        /// Ends: taken from the queue, as the twin started.
        withdrawn_by_twin,
        /// Ends: its twin had started before it arrived.
        withdrawn_by_tombstone,
        /// Ends: taken from the queue, as the caller was done.
        withdrawn_by_caller,
        /// Ends: stopped while it ran, as its twin started, too, and is the primary.
        aborted_by_twin,
        /// Ends: stopped while it ran, or not answered any more, as the caller was done.
        aborted_by_caller,
        /// Ends: stopped while it ran, as its deadline passed.
        aborted_by_deadline,
        /// Ends: stopped by the shell for reasons of its own.
        aborted_by_server,
        /// Ends: its deadline had passed before it could start.
        shed_expired,
        /// Ends: less time was left than its method can use.
        shed_too_late,
        /// Ends: an extra copy that made room for a primary one.
        shed_displaced,
        /// Ends: waited longest when there was no room, under overload.
        shed_oldest,
        /// Ends: made room for a copy of a connection that had fewer, or that had read.
        shed_greedy,
        /// Ends: made room for a copy of a class that had fewer for its share.
        shed_share,
        /// Ends: its key's call was done, and what that was answered could not be kept until there was
        /// room for it.
        shed_unkept,
        /// Ends: in the queue when its connection closed.
        dropped_queued,
        /// Ends: running when its connection closed.
        dropped_running,

        /// Refused on arrival: as many requests wait as may.
        rejected_queue_requests,
        /// Refused on arrival: as many bytes wait as may.
        rejected_queue_bytes,
        /// Refused on arrival: it would wait longer than it can.
        rejected_wait,
        /// Refused on arrival: too little time was left to begin with.
        rejected_too_late,
        /// Refused on arrival: this core is about to end.
        rejected_draining,
        /// Refused on arrival: no such method.
        rejected_no_method,
        /// Refused on arrival: a second copy of a method that must not run twice.
        rejected_not_idempotent,
        /// Refused on arrival: its name is in use on its connection.
        rejected_duplicate,
        /// Refused on arrival: tied to this very core.
        rejected_own_twin,
        /// Refused on arrival: its key was used for another method or payload.
        rejected_other_use,
        /// Refused on arrival: this replica is not as fresh as it asks.
        rejected_stale,

        /// Would have been refused as too late, if that were not only counted.
        dark_too_late,
        /// Would have been refused for the wait, if that were not only counted.
        dark_wait,
        /// Would have been shed, if that were not only counted.
        dark_shed,
        /// Times that the newest began to be served first.
        overloads,
        /// Times that a client's copies began to be held back, as it had not read its replies.
        holds,
        /// Times that all clients' copies began to be held back, as too many replies waited in all.
        holds_of_all,

        /// Cancels that were sent to a twin's core.
        cancels_sent,
        /// Starts that were told to the client, to be relayed.
        starts_told,
        /// Cancels that came, from anybody: the sum of the eight that follow.
        cancels_received,
        /// ... and took a copy from the queue.
        cancels_withdrew,
        /// ... and asked a running copy to stop.
        cancels_stopped,
        /// ... and were ignored: the copy runs, and is the primary.
        cancels_ignored,
        /// ... for a copy that had been asked to stop before.
        cancels_repeated,
        /// ... and stopped a request or a reply on its way.
        cancels_on_the_way,
        /// ... from a peer, for a copy that is not here. How many of them were early, the tombstones
        /// tell that their copies ran into.
        cancels_early_or_late,
        /// ... from a client, for a copy that is not here any more.
        cancels_late,
        /// ... from where they must not come, or not matching the copy's tie.
        cancels_refused,
        /// Copies that ran when they heard that their twin had started as well.
        double_starts,

        /// Copies that had to wait for the result of another with their key.
        keys_waited,
        /// Results that were forgotten as their time was out.
        keys_expired,
        /// Results that were forgotten to make room for others, or were too large to be kept.
        keys_evicted,

        /// Tombstones that were set.
        tombstones_made,
        /// Tombstones that their copy ran into.
        tombstones_hit,
        /// Tombstones whose time ran out.
        tombstones_expired,
        /// Tombstones that made room for later ones.
        tombstones_evicted,
    }
}

impl Stats {
    /// Copies that never started since their twin did, or their caller was done.
    pub const fn withdrawn(&self) -> u64 {
        self.withdrawn_by_twin + self.withdrawn_by_tombstone + self.withdrawn_by_caller
    }

    /// Copies that were stopped while they ran.
    pub const fn aborted(&self) -> u64 {
        self.aborted_by_twin
            + self.aborted_by_caller
            + self.aborted_by_deadline
            + self.aborted_by_server
    }

    /// Copies that never started since it would have been of no use.
    pub const fn shed(&self) -> u64 {
        self.shed_expired
            + self.shed_too_late
            + self.shed_displaced
            + self.shed_oldest
            + self.shed_greedy
            + self.shed_share
            + self.shed_unkept
    }

    /// Copies that ended with their connection.
    pub const fn dropped(&self) -> u64 {
        self.dropped_queued + self.dropped_running
    }

    /// Every accepted copy ends exactly once, in one of these ways.
    pub const fn ended(&self) -> u64 {
        self.replied + self.aborted() + self.withdrawn() + self.shed() + self.dropped()
    }

    /// Requests that were refused on arrival.
    pub const fn rejected(&self) -> u64 {
        self.rejected_queue_requests
            + self.rejected_queue_bytes
            + self.rejected_wait
            + self.rejected_too_late
            + self.rejected_draining
            + self.rejected_no_method
            + self.rejected_not_idempotent
            + self.rejected_duplicate
            + self.rejected_own_twin
            + self.rejected_other_use
            + self.rejected_stale
    }

    /// Whether nothing was lost or counted twice.
    pub const fn reconcile(&self) -> bool {
        let cancels = self.cancels_withdrew
            + self.cancels_stopped
            + self.cancels_ignored
            + self.cancels_repeated
            + self.cancels_on_the_way
            + self.cancels_early_or_late
            + self.cancels_late
            + self.cancels_refused;
        self.accepted == self.ended() + self.queued + self.running + self.parked
            && self.cancels_received == cancels
    }
}
