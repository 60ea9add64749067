//! What a server can tell of itself from outside.

use crate::core::{Stats, counters};

counters! {
    /// What happened on a core's connections.
    pub struct IoStats {
        /// Client connections that were accepted.
        accepted,
        /// Connections that were turned away, as there were as many as may be.
        turned_away,
        /// Of those: as their address had as many as one may.
        turned_away_by_address,
        /// Errors of accept, such as too many open files.
        accept_errors,
        /// Connections that ended in whatever way.
        closed,
        /// Of those: the other side broke the protocol.
        protocol_errors,
        /// Of those: the other side was silent for too long, or never said hello.
        silent,
        /// Of those: it did not read what it had asked for.
        slow_readers,
        /// Of those: it sent more than it was granted.
        credit_exceeded,
        /// Times that a connection was cut off, as too much was queued for all together.
        outgoing_full,
        /// Connections that were cut off before they can have read why they were told goodbye, as
        /// many others were being given time for that.
        not_seen_off,
        /// Connections to peers that came up.
        mesh_dialled,
        /// Attempts to reach a peer that failed.
        mesh_failed,
        /// Times that a newer connection took the place of the one by which a peer's core heard
        /// cancels. More than its restarts explain: somebody may pretend to be that peer.
        mesh_replaced,
        /// Connections of what said to be a core of a peer that, as far as it has told, has none of
        /// that number. Cancels go there only once it has.
        mesh_unknown,
        /// Handlers that panicked.
        panics,
        /// Replies that were larger than the caller takes.
        replies_too_large,
        /// Replies that were cut off on their way, as the caller was done. (They count as replied
        /// among the copies.)
        replies_cut,
        /// Requests that were refused, as there was no room to put their payloads together,
        /// or none of their connection's share of it.
        requests_no_room,
        /// Requests that were taken back on their way.
        requests_withdrawn,
        /// Requests whose deadline passed on their way.
        requests_late,
        /// Requests of which nothing more came, nor of any other of their connection.
        requests_stalled,
    }
}

/// The counters of one core at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Snapshot {
    /// Of its copies.
    pub copies: Stats,
    /// Of its connections.
    pub connections: IoStats,
    /// Client connections that are open.
    pub clients: usize,
    /// Peers' cores that can be told that a copy starts.
    pub mesh_up: usize,
    /// Peers' cores to which this one keeps connections, or tries to.
    pub mesh_kept: usize,
    /// Tombstones that wait for their copies.
    pub tombstones: usize,
}

impl Snapshot {
    /// Both together, as of two cores of a server.
    #[must_use]
    pub fn plus(&self, other: &Snapshot) -> Snapshot {
        Snapshot {
            copies: self.copies.plus(&other.copies),
            connections: self.connections.plus(&other.connections),
            clients: self.clients + other.clients,
            mesh_up: self.mesh_up + other.mesh_up,
            mesh_kept: self.mesh_kept + other.mesh_kept,
            tombstones: self.tombstones + other.tombstones,
        }
    }
}
