//! One end of a connection, as every shell has it: bytes to frames, the link's own talk, large
//! payloads in segments, credit, and a buffer of which the kernel takes what it has room for.

use bowline_protocol::outbox::Sent;
use bowline_protocol::{
    Assembly, Attempt, Cut, Frame, Inbox, Link, OptionSet, Outbox, PayloadOf, Peer, Reply, Request,
    Spender, codec,
};
use bowline_server::core::Account;
use bowline_time::Instant;

use crate::kernel::net::{End, Wire};
use crate::world::env::Env;
use crate::world::scenario::Wires;

/// Larger payloads than any that the world makes.
pub(crate) const PAYLOAD_LIMIT: u32 = 1 << 16;
/// While so many segments wait for the kernel, no more are added to them.
const BACKLOG: usize = 2;

/// A large payload on its way out.
#[derive(Debug)]
struct Letter {
    bytes: Vec<u8>,
    /// The reply that it is, and how many bytes the request had that it ends.
    ends: Option<(Reply, usize)>,
}

impl AsRef<[u8]> for Letter {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Port {
    /// Which end.
    pub(crate) end: End,
    /// The kernel says that it is open.
    pub(crate) open: bool,
    /// The link above it.
    pub(crate) link: Link,
    /// What has arrived of a frame that is not there whole.
    pub(crate) inbox: Inbox,
    /// Large payloads on their way here.
    pub(crate) assembly: Assembly,
    /// What a server granted, and what it owes of that.
    pub(crate) account: Option<Account>,
    /// The same as a client reckons, by what goes out.
    pub(crate) credit: Spender,
    outbox: Outbox<Letter>,
    segment: usize,
    /// What waits for the kernel.
    out: Vec<u8>,
    /// What the kernel has and the other end has not read, and how much that may be.
    unread: usize,
    window: Option<usize>,
}

impl Port {
    /// The end that dialled.
    pub(crate) fn dialled(link: Link, wires: &Wires) -> Port {
        Port::new(End::Dialler, false, link, wires)
    }

    /// The end that was dialled.
    pub(crate) fn accepted(link: Link, wires: &Wires) -> Port {
        Port::new(End::Listener, true, link, wires)
    }

    fn new(end: End, open: bool, link: Link, wires: &Wires) -> Port {
        let budget = if end == End::Listener { wires.requests_bytes } else { usize::MAX };
        Port {
            end,
            open,
            link,
            inbox: Inbox::new(PAYLOAD_LIMIT),
            assembly: Assembly::new(PAYLOAD_LIMIT, budget),
            account: None,
            credit: Spender::new(None),
            outbox: Outbox::new(wires.segment),
            segment: wires.segment as usize,
            out: Vec::new(),
            unread: 0,
            window: wires.window,
        }
    }

    /// What the other side takes and understands.
    fn peer(&self) -> Peer {
        Peer { takes: self.link.peer_takes(), features: self.link.peer_features() }
    }

    /// Puts a frame after those that wait to be sent.
    pub(crate) fn put(&mut self, frame: &Frame<'_>, now: Instant) {
        self.pump(now);
        self.encode(frame);
    }

    /// The same with a frame that ends a request of so many bytes.
    pub(crate) fn put_end(&mut self, frame: &Frame<'_>, frees: usize, now: Instant) {
        self.put(frame, now);
        self.account.as_mut().into_iter().for_each(|account| account.owe(frees));
    }

    fn encode(&mut self, frame: &Frame<'_>) {
        let before = self.out.len();
        codec::encode(frame, &mut self.out);
        let added = self.out.len() - before;
        self.account.as_mut().into_iter().for_each(|account| account.queue(added));
    }

    fn pump(&mut self, now: Instant) {
        while let Some(frame) = self.link.poll_transmit(now) {
            self.encode(&frame);
        }
    }

    /// Sends a request: at once, or in segments if it is long. False if the other side does not
    /// take it.
    pub(crate) fn request(
        &mut self,
        request: Request,
        options: &OptionSet,
        bytes: &[u8],
        now: Instant,
    ) -> bool {
        if bytes.len() > self.segment {
            let letter = Letter { bytes: bytes.to_vec(), ends: None };
            let peer = self.peer();
            return self.outbox.push_request(request, options, letter, &peer, now).is_ok();
        }
        if options.is_empty() {
            self.put(&Frame::Request(request, bytes), now);
        } else {
            let options = options.to_bytes();
            self.put(&Frame::RequestWith(request, options.as_options(), bytes), now);
        }
        true
    }

    /// A reply is too long for one frame.
    pub(crate) const fn is_long(&self, reply: &[u8]) -> bool {
        reply.len() > self.segment
    }

    /// Sends a long reply, which ends a request of so many bytes once all of it has left. False if
    /// the other side does not take it.
    pub(crate) fn reply(
        &mut self,
        reply: Reply,
        options: &OptionSet,
        bytes: Vec<u8>,
        frees: usize,
    ) -> bool {
        let (letter, peer) = (Letter { bytes, ends: Some((reply, frees)) }, self.peer());
        self.outbox.push_reply(reply, options, letter, &peer).is_ok()
    }

    /// Sends no more of a request. How many bytes it had, if nothing of it had left.
    pub(crate) fn cut_request(&mut self, attempt: Attempt) -> Option<usize> {
        match self.outbox.cut(attempt, PayloadOf::Request) {
            Cut::Unsent(letter) => Some(letter.bytes.len()),
            Cut::Absent | Cut::UnderWay(_) => None,
        }
    }

    /// Sends no more of a reply. How many bytes its request had, if it was not sent in full.
    pub(crate) fn cut_reply(&mut self, attempt: Attempt) -> Option<usize> {
        match self.outbox.cut(attempt, PayloadOf::Reply) {
            Cut::Absent => None,
            Cut::Unsent(letter) | Cut::UnderWay(letter) => letter.ends.map(|(_, frees)| frees),
        }
    }

    /// The other end has read so many bytes more.
    pub(crate) const fn was_read(&mut self, count: usize) {
        self.unread = self.unread.saturating_sub(count);
    }

    /// Hands the kernel all that it has room for.
    pub(crate) fn flush(&mut self, wire: Wire, env: &mut Env, now: Instant) {
        if !self.open {
            return;
        }
        loop {
            self.pump(now);
            self.pour(wire, env, now);
            if let Some(credit) = self.account.as_mut().and_then(|it| it.settle(self.out.len())) {
                self.encode(&Frame::Credit(credit));
            }
            let room = self.window.map_or(usize::MAX, |window| window - self.unread);
            let taken = self.out.len().min(room);
            if taken == 0 {
                return;
            }
            let rest = self.out.split_off(taken);
            self.unread += self.window.map_or(0, |_| taken);
            env.send(wire, self.end, std::mem::replace(&mut self.out, rest));
        }
    }

    /// Hands over as much of large payloads as may lie before the next small frame.
    fn pour(&mut self, wire: Wire, env: &mut Env, now: Instant) {
        let room = (BACKLOG * self.segment).saturating_sub(self.out.len());
        if room == 0 || self.outbox.is_empty() {
            return;
        }
        let added = self.outbox.fill(&mut self.out, room, now);
        self.account.as_mut().into_iter().for_each(|account| account.queue(added));
        while let Some(Sent { payload, .. }) = self.outbox.poll_sent() {
            let Some((reply, frees)) = payload.ends else { continue };
            env.book.server_says(wire, &Frame::Reply(reply, &[]));
            self.account.as_mut().into_iter().for_each(|account| account.owe(frees));
        }
    }

    /// How many bytes wait until the other end has read.
    pub(crate) const fn waiting(&self) -> usize {
        self.out.len() + self.outbox.waiting()
    }

    /// What is left though everything has come to rest, in words.
    pub(crate) fn left(&self) -> Option<String> {
        let large = self.outbox.len() + self.assembly.len();
        let owed = self.account.as_ref().map(Account::under_way).unwrap_or_default();
        let left = large > 0 || owed.requests > 0 || owed.bytes > 0;
        left.then(|| format!("{large} payloads are under way, {owed:?} is not given back"))
    }
}

/// Why a connection is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Gone {
    /// The other side does what it must not.
    Unreadable(String),
    /// The link gives it up.
    Link(String),
}
