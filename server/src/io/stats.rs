//! What a server can tell of itself from outside.

use bowline_protocol::Credit;

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
        /// Connections that ended in whatever way, among them those to peers, also if they never came
        /// up.
        closed,
        /// Of those: the other side broke the protocol.
        protocol_errors,
        /// Of those: the other side was silent for too long, or never said hello.
        silent,
        /// Of those: it did not read what it had asked for.
        slow_readers,
        /// Of those: too much waited for all together, and it had taken nothing of it for long, or kept
        /// most of it for longest.
        outgoing_full,
        /// Of those: it sent more than it was granted.
        credit_exceeded,
        /// Connections that were cut off before they can have read why they were told goodbye, as
        /// many others were being given time for that.
        not_seen_off,
        /// Connections to peers that came up.
        mesh_dialled,
        /// Attempts to reach a peer's core that failed: at none of its addresses a connection came up.
        mesh_failed,
        /// Attempts before which the peer's name could not be looked up. It was dialled where it was
        /// found last, if it ever was.
        mesh_unresolved,
        /// Times that a newer connection took the place of the one by which a peer's core heard
        /// cancels. More than its restarts explain: somebody may pretend to be that peer.
        mesh_replaced,
        /// Connections of what said to be a core of a peer that, as far as it has told, has none of
        /// that number. Cancels go there only once it has.
        mesh_unknown,
        /// Handlers that panicked.
        panics,
        /// Replies that were larger than the caller takes, and failures whose words were.
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
        /// Requests that came in so slowly that they gave way to one for which there was no room.
        requests_slow,
        /// Requests on their way that gave way to one of a connection that had less on its way.
        requests_displaced,
    }
}

/// The counters of one core at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Snapshot {
    /// Of its copies.
    pub copies: Stats,
    /// Of its connections.
    pub connections: IoStats,
    /// Connections that were accepted and are open: of clients, and of peers that hear this core's
    /// cancels.
    pub clients: usize,
    /// What clients that count their credit may still send.
    pub credit_left: Credit,
    /// What they get back only when they read: the ends of so many requests wait for them.
    pub credit_withheld: Credit,
    /// Peers' cores that can be told that a copy starts.
    pub mesh_up: usize,
    /// Peers' cores to which this one keeps connections, or tries to.
    pub mesh_kept: usize,
    /// Tombstones that wait for their copies.
    pub tombstones: usize,
    /// Bytes of requests that come in segments and are not there whole, as they were announced: of
    /// what [`Limits::assembly_bytes`](super::Limits::assembly_bytes) allows.
    pub assembling: usize,
}

impl Snapshot {
    /// Both together, as of two cores of a server.
    #[must_use]
    pub fn plus(&self, other: &Snapshot) -> Snapshot {
        Snapshot {
            copies: self.copies.plus(&other.copies),
            connections: self.connections.plus(&other.connections),
            clients: self.clients + other.clients,
            credit_left: sum(self.credit_left, other.credit_left),
            credit_withheld: sum(self.credit_withheld, other.credit_withheld),
            mesh_up: self.mesh_up + other.mesh_up,
            mesh_kept: self.mesh_kept + other.mesh_kept,
            tombstones: self.tombstones + other.tombstones,
            assembling: self.assembling + other.assembling,
        }
    }
}

/// What many clients have together.
pub(super) const fn sum(one: Credit, other: Credit) -> Credit {
    Credit {
        requests: one.requests.saturating_add(other.requests),
        bytes: one.bytes.saturating_add(other.bytes),
    }
}
