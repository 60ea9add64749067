//! Large payloads on their way out: cut into segments, the short ones first, given up half-way on
//! demand.
//!
//! Small frames do not come here. A sender writes them first, then lets the outbox add what it has
//! in the room that is left of the turn; so a short reply waits for one turn of a long one, not for
//! all of it. Of payloads that are under way together the one that has least left goes first: those
//! of one length leave one after the other, each as early as it can, and a short one goes past long
//! ones. None waits for ever, as every other segment is of the one that has been here for longest. A
//! payload stays where it is, until all of it is sent, and each byte of it is copied once: into what is
//! handed to the kernel.
//!
//! ```
//! use bowline_protocol::{
//!     Assembly, Attempt, ClientId, Features, Frame, Inbox, Load, OptionSet, Outbox, Peer, Reply,
//!     Seq, Status, Takes,
//! };
//! use bowline_protocol::assembly::Arrived;
//! use bowline_time::Instant;
//!
//! // What the other side's hello said: `Link::peer_takes` and `Link::peer_features`.
//! let takes = Takes { frame: 64 << 10, payload: 64 << 20 };
//! let peer = Peer { takes, features: Features::OPTIONS.with(Features::SEGMENTS) };
//! let mut outbox = Outbox::new(16 << 10);
//!
//! let attempt = Attempt { client: ClientId(7), seq: Seq(1), n: 0 };
//! let reply = Reply { attempt, status: Status::Ok, executed: true, load: Load::default() };
//! outbox.push_reply(reply, &OptionSet::default(), vec![7; 1 << 20], &peer)?;
//!
//! let mut inbox = Inbox::new(64 << 10);
//! let mut assembly = Assembly::new(64 << 20, 128 << 20);
//! let mut arrived = None;
//! while !outbox.is_empty() {
//!     // One turn of the loop: small frames would be encoded into `wire` here.
//!     let mut wire = Vec::new();
//!     outbox.fill(&mut wire, 64 << 10, Instant::EPOCH);
//!     while let Some(done) = outbox.poll_sent() {
//!         drop(done.payload); // its buffer is free again
//!     }
//!     let mut frames = inbox.feed(&wire);
//!     while let Some(frame) = frames.next()? {
//!         let news = match frame {
//!             Frame::ReplyWith(reply, options, first) => {
//!                 assembly.open_reply(reply, &options, first, Vec::new())?
//!             }
//!             Frame::Segment(segment, bytes) => assembly.segment(&segment, bytes, Instant::EPOCH)?,
//!             other => panic!("{other:?}"),
//!         };
//!         if let Arrived::Reply(reply, _, payload) = news {
//!             arrived = Some((reply, payload));
//!         }
//!     }
//! }
//! assert_eq!(arrived, Some((reply, vec![7; 1 << 20])));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use bowline_time::Instant;

use crate::codec;
use crate::frame::{Frame, PayloadOf, Reply, Request, Segment};
use crate::head::Head;
use crate::hello::{Features, Takes};
use crate::id::Attempt;
use crate::options::{self, OptionBytes, OptionSet};

/// Who takes no frames of so many bytes is sent no segments, as each would be little but its header.
const LEAST_FRAME: u32 = 1 << 10;

/// What the other side's hello said of what can be sent to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Peer {
    /// The payloads that it takes.
    pub takes: Takes,
    /// What it can do.
    pub features: Features,
}

impl Peer {
    /// The largest payload that it takes, in bytes, whatever options go with it. Up to that
    /// [`Outbox::fits`] has nothing to say.
    pub fn largest(&self) -> u32 {
        let Peer { takes, features } = *self;
        let whole = match features.has(Features::OPTIONS) {
            true => takes.frame.saturating_sub(options::MAX_LEN as u32),
            false => takes.frame,
        };
        match features.has(Features::OPTIONS.with(Features::SEGMENTS)) {
            true if takes.frame >= LEAST_FRAME => takes.payload,
            true => whole.min(takes.payload),
            false => whole,
        }
    }
}

/// Why a payload can't be sent to the other side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unsendable {
    /// It takes none so large.
    #[error("a payload of {length} bytes is more than the {limit} that the other side takes")]
    TooLarge {
        /// The payload's length, in bytes.
        length: usize,
        /// What it takes, in bytes.
        limit: u32,
    },
    /// It does not understand options, and there are some.
    #[error("the other side does not understand options")]
    Options,
}

/// What became of a payload that was to be cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut<P> {
    /// It is not here: sent in full, or never pushed.
    Absent,
    /// Nothing of it was sent: the other side does not know of it, and need not be told.
    Unsent(P),
    /// It was under way: the other side has to be told, by a cancel or an end.
    UnderWay(P),
}

/// A payload that was sent in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent<P> {
    /// Whose it was.
    pub attempt: Attempt,
    /// Which of its payloads.
    pub of: PayloadOf,
    /// The payload, for who reuses its memory.
    pub payload: P,
}

/// The large payloads that one connection has under way.
#[derive(Debug)]
pub struct Outbox<P> {
    /// In the order in which they were pushed.
    sending: VecDeque<Sending<P>>,
    sent: VecDeque<Sent<P>>,
    segment: usize,
    waiting: usize,
    held: usize,
    /// The next segment is of the oldest, whatever is left of it.
    is_oldests_turn: bool,
}

#[derive(Debug)]
struct Sending<P> {
    head: Head,
    options: OptionBytes,
    payload: P,
    /// How much of the payload was sent; None before its request or reply.
    done: Option<usize>,
    /// The largest piece of it that goes into one frame.
    piece: usize,
    /// Since when it waits.
    pushed: Instant,
    /// What the receiver can do.
    features: Features,
}

impl<P: AsRef<[u8]>> Outbox<P> {
    /// An outbox that cuts payloads into pieces of `segment` bytes, or smaller ones where the
    /// other side takes only those.
    pub const fn new(segment: u32) -> Outbox<P> {
        let segment = segment as usize;
        Outbox {
            sending: VecDeque::new(),
            sent: VecDeque::new(),
            segment,
            waiting: 0,
            held: 0,
            is_oldests_turn: true,
        }
    }

    /// Takes a request to be sent to `peer`. What it waits here is taken from what remains of its
    /// deadline when it leaves.
    ///
    /// # Errors
    ///
    /// [`Unsendable`]: the other side would not take it.
    pub fn push_request(
        &mut self,
        request: Request,
        options: &OptionSet,
        payload: P,
        peer: &Peer,
        now: Instant,
    ) -> Result<(), Unsendable> {
        self.push(Head::Request(request), options, payload, peer, now)
    }

    /// Takes a reply to be sent to `peer`.
    ///
    /// # Errors
    ///
    /// [`Unsendable`]: the other side would not take it.
    pub fn push_reply(
        &mut self,
        reply: Reply,
        options: &OptionSet,
        payload: P,
        peer: &Peer,
    ) -> Result<(), Unsendable> {
        self.push(Head::Reply(reply), options, payload, peer, Instant::EPOCH)
    }

    fn push(
        &mut self,
        head: Head,
        options: &OptionSet,
        payload: P,
        peer: &Peer,
        pushed: Instant,
    ) -> Result<(), Unsendable> {
        let length = payload.as_ref().len();
        let piece = self.piece(options, length, peer)?;
        self.waiting += length;
        self.held += length;
        let options = match u32::try_from(length) {
            Ok(total) if length > piece => options.opening(total),
            _ => options.to_bytes(),
        };
        let features = peer.features;
        let sending = Sending { head, options, payload, done: None, piece, pushed, features };
        self.sending.push_back(sending);
        Ok(())
    }

    /// Whether `peer` takes a payload of so many bytes: what a push would say of it.
    ///
    /// # Errors
    ///
    /// [`Unsendable`]: it does not.
    pub fn fits(&self, set: &OptionSet, length: usize, peer: &Peer) -> Result<(), Unsendable> {
        self.piece(set, length, peer).map(drop)
    }

    /// The largest piece of a payload that goes into one frame to `peer`.
    fn piece(&self, set: &OptionSet, length: usize, peer: &Peer) -> Result<usize, Unsendable> {
        let Peer { takes, features } = *peer;
        let bare = set.is_empty();
        if !bare && !features.has(Features::OPTIONS) {
            return Err(Unsendable::Options);
        }
        // A payload's length goes with it as an option.
        let with_options = (takes.frame as usize).saturating_sub(options::MAX_LEN);
        if features.has(Features::OPTIONS.with(Features::SEGMENTS)) {
            let limit = takes.payload;
            if length > limit as usize {
                return Err(Unsendable::TooLarge { length, limit });
            }
            if takes.frame >= LEAST_FRAME {
                return Ok(self.segment.min(with_options));
            }
        }
        let frame = if bare { takes.frame as usize } else { with_options };
        match length > frame {
            true => Err(Unsendable::TooLarge { length, limit: takes.frame }),
            false => Ok(length),
        }
    }

    /// Appends frames to `out` until that is `room` bytes or more: at most one frame more than asked
    /// for. Returns how many bytes it appended.
    ///
    /// What was appended is as good as sent: ask for no more at a time than may lie before the next
    /// small frame.
    pub fn fill(&mut self, out: &mut Vec<u8>, room: usize, now: Instant) -> usize {
        let start = out.len();
        while out.len() - start < room
            && let Some(next) = self.next()
        {
            let sending = &mut self.sending[next];
            self.waiting -= sending.encode_next(out, now);
            if sending.left() == 0
                && let Some(Sending { head, payload, .. }) = self.take(next)
            {
                let (attempt, of) = head.name();
                self.sent.push_back(Sent { attempt, of, payload });
            }
        }
        out.len() - start
    }

    /// Whose segment is the next.
    fn next(&mut self) -> Option<usize> {
        self.is_oldests_turn = !self.is_oldests_turn;
        if self.is_oldests_turn && !self.is_empty() {
            return Some(0);
        }
        (0..self.len()).min_by_key(|&at| self.sending[at].left())
    }

    fn take(&mut self, at: usize) -> Option<Sending<P>> {
        let sending = self.sending.remove(at)?;
        self.held -= sending.payload.as_ref().len();
        Some(sending)
    }

    /// A payload that was sent in full since the last question, until there is none.
    pub fn poll_sent(&mut self) -> Option<Sent<P>> {
        self.sent.pop_front()
    }

    /// Sends no more of this payload.
    pub fn cut(&mut self, attempt: Attempt, of: PayloadOf) -> Cut<P> {
        let at = self.sending.iter().position(|sending| sending.head.name() == (attempt, of));
        let Some(sending) = at.and_then(|at| self.take(at)) else {
            return Cut::Absent;
        };
        self.waiting -= sending.left();
        match sending.done {
            None => Cut::Unsent(sending.payload),
            Some(_) => Cut::UnderWay(sending.payload),
        }
    }

    /// Takes back a payload of which nothing was sent, if there is one: for a side that may begin
    /// nothing new, as the other leaves. Returns whose it was.
    pub fn take_back(&mut self) -> Option<Attempt> {
        let unsent = self.sending.iter().find(|sending| sending.done.is_none())?;
        let (attempt, of) = unsent.head.name();
        self.cut(attempt, of);
        Some(attempt)
    }

    /// How many bytes of payloads wait to be sent.
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many bytes of memory payloads take: each all of its own, until the last of it is sent.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// How many payloads are under way or wait.
    pub fn len(&self) -> usize {
        self.sending.len()
    }

    /// No payload is under way or waits.
    pub fn is_empty(&self) -> bool {
        self.sending.is_empty()
    }
}

impl<P: AsRef<[u8]>> Sending<P> {
    fn left(&self) -> usize {
        self.payload.as_ref().len() - self.done.unwrap_or(0)
    }

    /// Appends the next frame. Returns how much of the payload it brings.
    fn encode_next(&mut self, out: &mut Vec<u8>, now: Instant) -> usize {
        let from = self.done.unwrap_or(0);
        let piece = self.left().min(self.piece);
        let bytes = &self.payload.as_ref()[from..from + piece];
        let options = self.options.as_options();
        let bare = options.as_bytes().is_empty();
        if let (None, Head::Request(request)) = (self.done, &mut self.head) {
            request.remaining = request.remaining.saturating_sub(now - self.pushed);
        }
        let frame = match (self.done, self.head) {
            (None, Head::Request(request)) if bare => Frame::Request(request, bytes),
            (None, Head::Request(request)) => Frame::RequestWith(request, options, bytes),
            (None, Head::Reply(reply)) if bare => Frame::Reply(reply, bytes),
            (None, Head::Reply(reply)) => Frame::ReplyWith(reply, options, bytes),
            (Some(_), head) => {
                let (attempt, of) = head.name();
                Frame::Segment(Segment { attempt, of, offset: from as u32 }, bytes)
            }
        };
        codec::encode_for(&frame, self.features, out);
        self.done = Some(from + piece);
        piece
    }
}
