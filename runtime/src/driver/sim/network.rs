//! The network of a simulation: connections are queues of bytes.
//!
//! Sockets are real descriptors that were never connected; only their numbers count here.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;

use bowline_time::Duration;

/// One direction of a connection.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// All that was sent.
    pub sent: Vec<u8>,
    /// When each piece was sent, and how many bytes had been then.
    pub pieces: Vec<(Duration, usize)>,
    /// How much of it was received.
    pub received: usize,
}

/// What went over a connection.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// The core that dialled, and the one that was dialled.
    pub cores: [usize; 2],
    /// From who dialled, and to them.
    pub lanes: [Lane; 2],
    /// One side has closed it, or it broke.
    pub over: bool,
}

/// One side of a connection.
#[derive(Default)]
pub(super) struct Endpoint {
    pub(super) peer: Option<RawFd>,
    /// The other side's machine lost power: so many bytes were sent there since, and nobody is told.
    lost: Option<usize>,
    core: usize,
    pub(super) incoming: VecDeque<u8>,
    /// The peer sends no more.
    pub(super) ended: bool,
    pub(super) reset: bool,
    /// The connection's number and the side of it; 0 is who dialled.
    traffic: (usize, usize),
}

/// A socket that listens: by whose core, and who waits to be accepted.
#[derive(Default)]
struct Listener {
    core: usize,
    waiting: VecDeque<RawFd>,
}

#[derive(Default)]
pub(super) struct Network {
    endpoints: BTreeMap<RawFd, Endpoint>,
    listeners: BTreeMap<RawFd, Listener>,
    /// None: nobody wants to know.
    record: Option<Vec<Traffic>>,
}

impl Network {
    pub(super) fn new(recorded: bool) -> Network {
        Network { record: recorded.then(Vec::new), ..Network::default() }
    }

    pub(super) fn traffic(&self) -> &[Traffic] {
        self.record.as_deref().unwrap_or_default()
    }

    pub(super) fn sockets(&self) -> usize {
        self.endpoints.len() + self.listeners.len()
    }

    pub(super) fn endpoint(&self, fd: RawFd) -> Option<&Endpoint> {
        self.endpoints.get(&fd)
    }

    /// Whether something has arrived, or nothing will.
    pub(super) fn has_news(&self, fd: RawFd) -> bool {
        let quiet = |e: &Endpoint| e.incoming.is_empty() && !e.ended && !e.reset;
        !self.endpoints.get(&fd).is_some_and(quiet)
    }

    /// Whether more can be sent, or sending fails.
    pub(super) fn has_room(&self, fd: RawFd, window: usize) -> bool {
        let endpoint = self.endpoints.get(&fd).filter(|endpoint| !endpoint.reset);
        let Some(endpoint) = endpoint else { return true };
        if let Some(lost) = endpoint.lost {
            return lost < window;
        }
        let peer = endpoint.peer.and_then(|peer| self.endpoints.get(&peer));
        peer.is_none_or(|peer| peer.incoming.len() < window)
    }

    /// Whether sending fails: the connection broke, or the other side has closed it.
    pub(super) fn is_broken(&self, fd: RawFd) -> bool {
        let endpoint = self.endpoints.get(&fd).filter(|endpoint| !endpoint.reset);
        endpoint.is_none_or(|it| it.lost.is_none() && it.peer.is_none())
    }

    // Listeners.

    pub(super) fn listen(&mut self, fd: RawFd, core: usize) {
        self.listeners.entry(fd).or_default().core = core;
    }

    pub(super) fn listeners(&self) -> impl Iterator<Item = RawFd> {
        self.listeners.keys().copied()
    }

    pub(super) fn somebody_waits(&self, listener: RawFd) -> bool {
        self.listeners.get(&listener).is_some_and(|listener| !listener.waiting.is_empty())
    }

    pub(super) fn accept(&mut self, listener: RawFd) -> Option<RawFd> {
        self.listeners.get_mut(&listener)?.waiting.pop_front()
    }

    /// Forgets a listener. Returns who waited for it in vain.
    pub(super) fn deafen(&mut self, fd: RawFd) -> VecDeque<RawFd> {
        self.listeners.remove(&fd).unwrap_or_default().waiting
    }

    // Connections.

    /// Connects two sockets: that of `core`, and a new one, which waits at the listener.
    pub(super) fn connect(&mut self, fd: RawFd, core: usize, listener: RawFd, accepted: RawFd) {
        self.forget(fd);
        self.forget(accepted);
        let Some(listener) = self.listeners.get_mut(&listener) else { return };
        listener.waiting.push_back(accepted);
        let number = self.record.as_mut().map_or(0, |record| {
            let cores = [core, listener.core];
            record.push(Traffic { cores, ..Traffic::default() });
            record.len() - 1
        });
        for (side, fd, peer, core) in [(0, fd, accepted, core), (1, accepted, fd, listener.core)] {
            let (peer, traffic) = (Some(peer), (number, side));
            self.endpoints.insert(fd, Endpoint { peer, core, traffic, ..Endpoint::default() });
        }
    }

    /// Puts bytes on their way, or to nowhere.
    pub(super) fn send(&mut self, fd: RawFd, bytes: &[u8], now: Duration) {
        let Some(endpoint) = self.endpoints.get_mut(&fd) else { return };
        let (number, side) = endpoint.traffic;
        if let Some(lost) = &mut endpoint.lost {
            *lost += bytes.len();
        } else if let Some(peer) = endpoint.peer.and_then(|peer| self.endpoints.get_mut(&peer)) {
            peer.incoming.extend(bytes);
        }
        if let Some(record) = &mut self.record {
            let lane = &mut record[number].lanes[side];
            lane.sent.extend_from_slice(bytes);
            lane.pieces.push((now, lane.sent.len()));
        }
    }

    /// Takes the first bytes that have arrived, at most as many.
    pub(super) fn receive(&mut self, fd: RawFd, most: usize) -> impl Iterator<Item = u8> {
        let endpoint = self.endpoints.get_mut(&fd);
        let length = endpoint.as_ref().map_or(0, |endpoint| endpoint.incoming.len().min(most));
        if let (Some(record), Some(endpoint)) = (&mut self.record, &endpoint) {
            let (number, side) = endpoint.traffic;
            record[number].lanes[1 - side].received += length;
        }
        endpoint.into_iter().flat_map(move |endpoint| endpoint.incoming.drain(..length))
    }

    pub(super) fn reset(&mut self, fd: RawFd) {
        let peer = self.endpoints.get(&fd).and_then(|endpoint| endpoint.peer);
        for side in [Some(fd), peer].into_iter().flatten() {
            if let Some(endpoint) = self.endpoints.get_mut(&side) {
                endpoint.reset = true;
                endpoint.incoming.clear();
            }
        }
        self.over(fd);
    }

    /// A core's machine loses power: what it sent still arrives, and nobody is told that no more will
    /// come, nor that what is sent to it gets nowhere.
    pub(super) fn lose_power(&mut self, core: usize) {
        let theirs: Vec<RawFd> =
            self.endpoints.iter().filter(|(_, it)| it.core == core).map(|(&fd, _)| fd).collect();
        for fd in theirs {
            let peer = self.endpoints.get(&fd).and_then(|endpoint| endpoint.peer);
            for side in [Some(fd), peer].into_iter().flatten() {
                if let Some(endpoint) = self.endpoints.get_mut(&side) {
                    (endpoint.peer, endpoint.lost) = (None, Some(0));
                }
            }
        }
    }

    /// Breaks each connection that `chosen` says.
    pub(super) fn cut(&mut self, mut chosen: impl FnMut() -> bool) {
        // In the order of their making, for descriptors have any numbers.
        let mut diallers: Vec<_> =
            self.endpoints.iter().filter(|(_, e)| e.traffic.1 == 0).collect();
        diallers.sort_unstable_by_key(|(_, endpoint)| endpoint.traffic);
        let diallers: Vec<_> = diallers.into_iter().map(|(&fd, _)| fd).collect();
        for fd in diallers {
            if chosen() {
                self.reset(fd);
            }
        }
    }

    pub(super) fn shutdown(&mut self, fd: RawFd, how: i32) {
        let Some(endpoint) = self.endpoints.get_mut(&fd) else { return };
        endpoint.ended |= how != libc::SHUT_WR;
        let peer = endpoint.peer;
        if how != libc::SHUT_RD
            && let Some(peer) = peer.and_then(|peer| self.endpoints.get_mut(&peer))
        {
            peer.ended = true;
        }
        self.over(fd);
    }

    /// Has the peer of a descriptor see the end.
    pub(super) fn forget(&mut self, fd: RawFd) {
        self.shutdown(fd, libc::SHUT_RDWR);
        if let Some(endpoint) = self.endpoints.remove(&fd)
            && let Some(peer) = endpoint.peer.and_then(|peer| self.endpoints.get_mut(&peer))
        {
            peer.peer = None;
        }
    }

    fn over(&mut self, fd: RawFd) {
        if let (Some(record), Some(endpoint)) = (&mut self.record, self.endpoints.get(&fd)) {
            record[endpoint.traffic.0].over = true;
        }
    }
}
