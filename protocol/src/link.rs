//! What both ends of every connection do, whoever dialled: say hello, acknowledge the other's
//! hello, ping when it is quiet, give up when it is silent.
//!
//! ```text
//!   dialled or accepted          the other's hello          its acknowledgement of mine
//!   [hello sent] ------------------> [known] -----------------------> [up]
//!        |  no hello in time           |  silent for too long           |
//!        +-----------------------------+--------------------------------+--> [dead]
//! ```
//!
//! A link is *up* only when both hellos were acknowledged. That matters most between servers:
//! whoever is told `obeys_cancels` may leave out the detour over the client, so half a mesh would
//! silently never cancel.
//!
//! A side that wants to leave says so ([`Link::leave`]): the other sends it nothing new, and what
//! was accepted comes to its end before the connection does. Behind the go-away goes a ping: once it
//! is answered, all that the other side had sent before it knew is here ([`Link::is_leave_heard`]).
//!
//! A ping may have to wait behind megabytes that the kernel has already, on a slow path for longer than
//! a silence may last. So who knows what the other side's host has acknowledged says so
//! ([`Link::on_delivery`]): until the ping is there, a host that goes on acknowledging what lies before
//! it is a sign of life. That a host acknowledges says nothing of its process, though; once the ping is
//! there, only an answer does.

use core::mem;
use core::time::Duration;

use bowline_time::Instant;

use crate::frame::{Frame, GoAway, Goodbye, GoodbyeReason, Ping};
use crate::hello::{Credit, Features, Hello, HelloAck, Identity, Takes};
use crate::id::ReplicaId;
use crate::rtt::RoundTrip;
use crate::service::Mismatch;

/// So many bytes of a frame that is still coming in are as good a sign of life as a frame: at the
/// usual patience of a second, 4 KiB/s.
const SIGN_OF_LIFE: usize = 4 << 10;

/// How patient a link is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// How long the other side's hello and acknowledgement may take.
    pub hello_timeout: Duration,
    /// How long nothing may arrive before a ping is sent.
    pub ping_after: Duration,
    /// How long nothing may arrive before the link is given up.
    pub dead_after: Duration,
}

impl Default for LinkConfig {
    /// Two seconds for a hello, a ping after 250 ms of silence, dead after a second.
    fn default() -> Self {
        LinkConfig {
            hello_timeout: Duration::from_secs(2),
            ping_after: Duration::from_millis(250),
            dead_after: Duration::from_secs(1),
        }
    }
}

/// Why a link ends.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    /// A frame that has no place before the hellos, or a second hello.
    #[error("a frame ({0}) came out of turn")]
    OutOfTurn(&'static str),
    /// No version that both speak.
    #[error("it speaks versions {oldest} to {newest}, and we only {}", crate::VERSION)]
    NoCommonVersion {
        /// The oldest that the other side speaks.
        oldest: u8,
        /// The newest that it speaks.
        newest: u8,
    },
    /// Someone else answered where a configured peer was expected.
    #[error(
        "replica {expected} was expected there, but it says that it is {found}: the number or the address is another's"
    )]
    Stranger {
        /// Who was expected.
        expected: ReplicaId,
        /// Who is there.
        found: Identity,
    },
    /// Nothing came for too long.
    #[error("nothing came for {0:?}")]
    Silent(Duration),
    /// It and this side do not mean the same by a method.
    #[error("{0}")]
    Methods(Mismatch),
    /// This side said that it would leave, and the time for that has come.
    #[error("the time to drain is over")]
    Drained,
    /// It said goodbye.
    #[error("it said goodbye: {0}")]
    Goodbye(GoodbyeReason),
}

impl LinkError {
    /// What to tell the other side before the connection is closed, if anything.
    pub const fn goodbye(&self) -> Option<Goodbye> {
        let reason = match self {
            LinkError::OutOfTurn(_) | LinkError::NoCommonVersion { .. } | LinkError::Methods(_) => {
                GoodbyeReason::Protocol
            }
            LinkError::Drained => GoodbyeReason::Leaving,
            LinkError::Stranger { .. } => GoodbyeReason::Stranger,
            LinkError::Silent(_) => GoodbyeReason::Silent,
            LinkError::Goodbye(_) => return None,
        };
        Some(Goodbye { reason })
    }
}

/// What a frame meant for the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// It was the link's own business.
    Handled,
    /// The other side's hello came: it is known now, and [`Link::peer`] says who it is.
    Known,
    /// Both hellos are acknowledged.
    Up,
    /// The other side is about to leave: nothing new for it.
    Leaving,
    /// Not for the link: the frame belongs to calls.
    NotMine,
}

/// How far this side's leave is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaving {
    No,
    Owed {
        within: Duration,
        until: Instant,
    },
    /// The go-away is out, and the ping behind it next.
    Said {
        until: Instant,
    },
    /// So is the ping.
    Asked {
        until: Instant,
        token: u64,
    },
    Heard {
        until: Instant,
    },
}

/// How far the ping that was not answered yet has come, in bytes that the other side's host has
/// acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Way {
    /// With so many it is there.
    arrives: u64,
    /// So many there were when it was last looked.
    acknowledged: u64,
    /// It was looked while the ping was not there yet, and time was given for that.
    is_long: bool,
}

/// One end of a connection, above the bytes and below the calls.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    /// Whom this side dialled, by its own configuration; None if it was dialled.
    expected: Option<ReplicaId>,
    me: Hello,
    grant: Option<Credit>,
    peer: Option<Hello>,
    acknowledged: Option<HelloAck>,
    hello_owed: bool,
    ack_owed: bool,
    pong_owed: Option<u64>,
    ping_owed: bool,
    /// The ping that was not answered yet.
    ping_sent: Option<Instant>,
    /// Where that is, if anybody says.
    way: Option<Way>,
    /// The last ping, answered or not; or when it was last known to be on its way.
    last_ping: Instant,
    last_token: u64,
    leaving: Leaving,
    peer_leaves: Option<Instant>,
    opened: Instant,
    heard: Instant,
    /// Bytes that came since.
    since_heard: usize,
    round_trip: RoundTrip,
}

impl Link {
    /// The end that dialled. `expected` is the replica that the configuration has at that address:
    /// only if that one answers will its cancels be obeyed. None takes whoever answers.
    pub const fn dialled(
        me: Hello,
        expected: Option<ReplicaId>,
        config: LinkConfig,
        now: Instant,
    ) -> Link {
        Link {
            config,
            expected,
            me,
            grant: None,
            peer: None,
            acknowledged: None,
            hello_owed: true,
            ack_owed: false,
            pong_owed: None,
            ping_owed: false,
            ping_sent: None,
            way: None,
            last_ping: now,
            last_token: 0,
            leaving: Leaving::No,
            peer_leaves: None,
            opened: now,
            heard: now,
            since_heard: 0,
            round_trip: RoundTrip::NONE,
        }
    }

    /// The end that was dialled.
    pub const fn accepted(me: Hello, config: LinkConfig, now: Instant) -> Link {
        Link::dialled(me, None, config, now)
    }

    /// With its acknowledgement this side grants `credit`, if the other side counts.
    #[must_use]
    pub fn with_grant(mut self, credit: Credit) -> Link {
        self.grant = Some(credit);
        self
    }

    /// This side will close the connection: at once when what it accepted has ended, and in any
    /// case `within` that time, when [`Link::on_timeout`] says [`LinkError::Drained`]. The other
    /// side is told, if it can hear it.
    pub fn leave(&mut self, within: Duration, now: Instant) {
        if self.leaving == Leaving::No {
            self.leaving = Leaving::Owed { within, until: now + within };
        }
    }

    /// So many bytes came, be they frames or part of one. If many came the other side is alive: one
    /// large frame that takes its time to come in is no silence, but a byte now and then is.
    pub const fn on_bytes(&mut self, count: usize, now: Instant) {
        self.since_heard = self.since_heard.saturating_add(count);
        if self.since_heard >= SIGN_OF_LIFE {
            self.hear(now);
        }
    }

    /// [`Link::on_delivery`] should be called: a ping has just been written, or it has been out for so
    /// long that the link is to be given up.
    pub fn wants_delivery(&self, now: Instant) -> bool {
        self.ping_sent.is_some() && (self.way.is_none() || now >= self.silent_at())
    }

    /// The other side's host has acknowledged so many bytes in all; so many that were written are still
    /// to be acknowledged, the last ping among them if this was not asked for since.
    pub fn on_delivery(&mut self, acknowledged: u64, outstanding: u64, now: Instant) {
        let Some(way) = &mut self.way else {
            let arrives = acknowledged.saturating_add(outstanding);
            self.way = Some(Way { arrives, acknowledged, is_long: false });
            return;
        };
        let goes_on = way.acknowledged < way.arrives && acknowledged > way.acknowledged;
        // If it is there at the first look, it may have been for nearly all of the time.
        way.is_long = goes_on && (way.is_long || acknowledged < way.arrives);
        way.acknowledged = acknowledged;
        if way.is_long {
            self.last_ping = now;
        }
    }

    const fn hear(&mut self, now: Instant) {
        self.heard = now;
        self.since_heard = 0;
    }

    /// A frame came.
    ///
    /// # Errors
    ///
    /// [`LinkError`]: the connection is to be closed, after [`LinkError::goodbye`] was said.
    pub fn on_frame(&mut self, frame: &Frame<'_>, now: Instant) -> Result<LinkEvent, LinkError> {
        self.hear(now);
        match frame {
            Frame::Hello(hello) => return self.on_hello(hello),
            Frame::Goodbye(goodbye, _) => return Err(LinkError::Goodbye(goodbye.reason)),
            _ if self.peer.is_none() => return Err(LinkError::OutOfTurn(frame.name())),
            Frame::HelloAck(ack) => return self.on_ack(*ack),
            Frame::Ping(ping) => self.pong_owed = Some(ping.token),
            Frame::Pong(ping) => self.on_pong(*ping, now),
            Frame::GoAway(go) => {
                self.peer_leaves = Some(now + go.within);
                return Ok(LinkEvent::Leaving);
            }
            _ => return Ok(LinkEvent::NotMine),
        }
        Ok(LinkEvent::Handled)
    }

    fn on_hello(&mut self, hello: &Hello) -> Result<LinkEvent, LinkError> {
        if self.peer.is_some() {
            return Err(LinkError::OutOfTurn("second hello"));
        }
        let (oldest, newest) = (hello.oldest, hello.newest);
        if !(oldest..=newest).contains(&crate::VERSION) {
            return Err(LinkError::NoCommonVersion { oldest, newest });
        }
        if let Some(expected) = self.expected
            && hello.station().is_none_or(|station| station.replica != expected)
        {
            return Err(LinkError::Stranger { expected, found: hello.identity });
        }
        if let (Some(ours), Some(theirs)) = (&self.me.methods, &hello.methods) {
            ours.check(theirs).map_err(LinkError::Methods)?;
        }
        self.peer = Some(hello.clone());
        self.ack_owed = true;
        Ok(LinkEvent::Known)
    }

    const fn on_ack(&mut self, ack: HelloAck) -> Result<LinkEvent, LinkError> {
        if self.acknowledged.is_some() {
            return Err(LinkError::OutOfTurn("second hello-ack"));
        }
        self.acknowledged = Some(ack);
        Ok(LinkEvent::Up)
    }

    fn on_pong(&mut self, ping: Ping, now: Instant) {
        if ping.token != self.last_token {
            return;
        }
        if let Some(sent) = self.ping_sent.take() {
            self.round_trip.measured(now - sent);
        }
        if let Leaving::Asked { until, token } = self.leaving
            && ping.token >= token
        {
            self.leaving = Leaving::Heard { until };
        }
    }

    /// The next frame to send, until there is none.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Frame<'static>> {
        if mem::take(&mut self.hello_owed) {
            return Some(Frame::Hello(self.me.clone()));
        }
        if mem::take(&mut self.ack_owed) {
            // The first ping goes along: the round trip of a new link is known at once.
            self.ping_owed = true;
            let obeys_cancels = self.expected.is_some();
            let grant = self.grant.filter(|_| self.peer_features().has(Features::CREDIT));
            return Some(Frame::HelloAck(HelloAck { obeys_cancels, grant }));
        }
        if let Some(token) = self.pong_owed.take() {
            return Some(Frame::Pong(Ping { token }));
        }
        if mem::take(&mut self.ping_owed) {
            self.last_token += 1;
            self.last_ping = now;
            self.ping_sent = Some(now);
            self.way = None;
            if let Leaving::Said { until } = self.leaving {
                self.leaving = Leaving::Asked { until, token: self.last_token };
            }
            return Some(Frame::Ping(Ping { token: self.last_token }));
        }
        self.poll_leave()
    }

    fn poll_leave(&mut self) -> Option<Frame<'static>> {
        let Leaving::Owed { within, until } = self.leaving else {
            return None;
        };
        let peer = self.peer.as_ref()?;
        if !peer.features.has(Features::GO_AWAY) {
            self.leaving = Leaving::Heard { until };
            return None;
        }
        self.leaving = Leaving::Said { until };
        self.ping_owed = true;
        Some(Frame::GoAway(GoAway { within }))
    }

    /// When to call [`Link::on_timeout`] next.
    pub fn next_timeout(&self) -> Instant {
        self.drained_at().min(self.next_check())
    }

    fn next_check(&self) -> Instant {
        if !self.is_up() {
            self.opened + self.config.hello_timeout
        } else if self.ping_sent.is_some() || self.ping_owed {
            self.silent_at()
        } else {
            // A busy link is asked now and then, too: its round-trip time must not grow old.
            (self.heard + self.config.ping_after).min(self.last_ping + self.config.dead_after)
        }
    }

    /// When the link is given up. After a ping the other side has its time to answer, even if this
    /// side slept, and sent it late.
    fn silent_at(&self) -> Instant {
        let grace = self.config.dead_after.saturating_sub(self.config.ping_after);
        (self.heard + self.config.dead_after).max(self.last_ping + grace)
    }

    /// Time has passed.
    ///
    /// # Errors
    ///
    /// [`LinkError::Silent`]: the other side has been quiet for too long. [`LinkError::Drained`]:
    /// the time to leave has come.
    pub fn on_timeout(&mut self, now: Instant) -> Result<(), LinkError> {
        if now >= self.drained_at() {
            return Err(LinkError::Drained);
        }
        if now < self.next_check() {
            return Ok(());
        }
        if !self.is_up() {
            return Err(LinkError::Silent(self.config.hello_timeout));
        }
        if self.ping_sent.is_some() || self.ping_owed {
            return Err(LinkError::Silent(self.config.dead_after));
        }
        self.ping_owed = true;
        Ok(())
    }

    fn drained_at(&self) -> Instant {
        match self.leaving {
            Leaving::No => Instant::FAR_FUTURE,
            Leaving::Owed { until, .. }
            | Leaving::Said { until }
            | Leaving::Asked { until, .. }
            | Leaving::Heard { until } => until,
        }
    }

    /// This side is about to close the connection, once what it accepted has ended.
    pub fn is_leaving(&self) -> bool {
        self.leaving != Leaving::No
    }

    /// This side leaves, and nothing more comes from a sound peer but what belongs to what it has
    /// begun: it answered a ping that was behind the go-away, or has not said hello. One that can't
    /// hear of a leave is not waited for.
    pub const fn is_leave_heard(&self) -> bool {
        match self.leaving {
            Leaving::No | Leaving::Said { .. } | Leaving::Asked { .. } => false,
            Leaving::Owed { .. } => self.peer.is_none(),
            Leaving::Heard { .. } => true,
        }
    }

    /// The other side is about to close the connection, at this time at the latest: nothing new
    /// should be sent to it.
    pub const fn peer_leaves(&self) -> Option<Instant> {
        self.peer_leaves
    }

    /// What this side says that it can do.
    pub const fn features(&self) -> Features {
        self.me.features
    }

    /// What the other side can do; nothing before its hello.
    pub fn peer_features(&self) -> Features {
        self.peer.as_ref().map_or(Features::NONE, |hello| hello.features)
    }

    /// The payloads that the other side takes.
    pub fn peer_takes(&self) -> Takes {
        self.peer.as_ref().and_then(|hello| hello.takes).unwrap_or_default()
    }

    /// What the other side granted with its acknowledgement; None if it does not count.
    pub const fn peer_grant(&self) -> Option<Credit> {
        match self.acknowledged {
            Some(ack) => ack.grant,
            None => None,
        }
    }

    /// Who the other side says it is, once it has.
    pub const fn peer(&self) -> Option<&Hello> {
        self.peer.as_ref()
    }

    /// Both hellos were acknowledged.
    pub const fn is_up(&self) -> bool {
        self.peer.is_some() && self.acknowledged.is_some()
    }

    /// The other side obeys a twin's cancel that comes on this connection.
    pub fn peer_obeys_cancels(&self) -> bool {
        self.is_up() && self.acknowledged.is_some_and(|ack| ack.obeys_cancels)
    }

    /// This side obeys a twin's cancel that comes on this connection: it dialled, and found whom
    /// it expected.
    pub const fn obeys_cancels(&self) -> bool {
        self.expected.is_some() && self.is_up()
    }

    /// The longest but one of the last eight round trips, so that a pause of the peer's that is alone is
    /// not taken for the network. Half of it is the one-way delay.
    pub const fn rtt(&self) -> Option<Duration> {
        self.round_trip.known()
    }
}
