//! A call and its copies, as data.

use bowline_protocol::{
    Cause, Error, Executed, Freshness, Method, OptionSet, Station, Tie, TrafficClass,
};
use bowline_time::{Duration, Instant, TimerKey};

use super::line::Ticket;
use super::methods::Kind;
use super::outcome::{End, Spec};
use super::replicas::{Promise, Wanted};

/// How many copies a call may have over its life. A copy's number is its place, so a frame finds
/// its copy in two steps; and no call can be sent around for ever.
pub const MAX_ATTEMPTS: usize = 8;

/// No call may take longer.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// No link: the end of a replica's list.
pub(crate) const NIL: u32 = u32::MAX;

/// Where a copy is in its life, as far as the client knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Its twin was told of it; it is sent later, or never.
    Announced,
    /// Its send waits among the effects.
    Queued,
    /// It is out.
    Sent,
    /// It is over.
    Ended(End),
}

/// One copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    pub(crate) state: State,
    pub(crate) cause: Cause,
    /// The replica's place in the table.
    pub(crate) replica: u16,
    /// The place of its latency in the table.
    pub(crate) class: u16,
    /// The store of results that the replica shared when the copy went there, and what it promised of
    /// the method; None: it has no such method.
    pub(crate) store: Option<u32>,
    pub(crate) promise: Option<Promise>,
    /// One of the tied pair, which are always 0 and 1.
    pub(crate) tied: bool,
    /// The replica did not serve the call: it is not asked again.
    pub(crate) failed: bool,
    /// The replica said that it has no such method.
    pub(crate) lacks_method: bool,
    /// Its start was seen.
    pub(crate) executed: bool,
    /// Its start was relayed.
    pub(crate) relayed: bool,
    pub(crate) sent: Instant,
    /// When its server's time for it is up, at the earliest.
    pub(crate) until: Instant,
    /// Its neighbours in the replica's list of copies that are out.
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

impl Copied {
    pub(crate) const UNUSED: Copied = Copied {
        state: State::Ended(End::Unsent),
        cause: Cause::First,
        replica: 0,
        class: 0,
        store: None,
        promise: None,
        tied: false,
        failed: false,
        lacks_method: false,
        executed: false,
        relayed: false,
        sent: Instant::EPOCH,
        until: Instant::FAR_FUTURE,
        prev: NIL,
        next: NIL,
    };

    /// It is out, or about to be.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.state, State::Queued | State::Sent)
    }

    /// Its server ended it without a result, and not for its twin's sake. If that one does so with
    /// whatever it is sent, each copy is followed by another that may run, too: those have to be paid.
    pub(crate) const fn feeds_itself(&self) -> bool {
        self.failed && matches!(self.state, State::Ended(End::Replied | End::Aborted))
    }
}

/// What became of a call's copies at one replica.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Past {
    /// One is out, or about to be.
    pub(crate) lives: bool,
    /// One ended there without serving the call, while the connection held.
    refused: bool,
    /// So many were lost with the connection.
    pub(crate) lost: u8,
}

impl Past {
    /// The replica did not serve the call. One whose connection broke has another chance once it is
    /// connected again, for want of any other; the second time it may be the call itself that breaks
    /// it.
    pub(crate) const fn has_failed(self) -> bool {
        self.refused || self.lost > 1
    }
}

/// Where a call is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The slot is free; the next free one.
    Free(u32),
    /// The caller waits.
    Waiting,
    /// It is done since then, and some of its copies are still out.
    Watched(Instant),
}

/// What both copies of a tied pair must know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) stations: [Station; 2],
    pub(crate) tie: Tie,
}

/// One call.
#[derive(Debug)]
pub(crate) struct Call<P> {
    /// Slot and count in one number: it names the call on the wire, and tells this user of the
    /// slot from all before.
    pub(crate) seq: u64,
    pub(crate) phase: Phase,
    pub(crate) tag: u64,
    pub(crate) payload: Option<P>,
    pub(crate) size: u32,
    pub(crate) method: Method,
    /// A replica may have had that method as the call began: others are not asked.
    pub(crate) had: bool,
    /// Which calls it is like, and the place of those in the table of latencies: of its first
    /// copy, that is; the others may be farther.
    pub(crate) kind: Kind,
    pub(crate) class: u16,
    /// The name of its policy, and what that stood for when the call began.
    pub(crate) name: u16,
    /// The name of its method's policy.
    pub(crate) instead_of: u16,
    pub(crate) policy: u16,
    /// Decides the order in which the replicas are asked.
    pub(crate) shard_key: Option<u64>,
    pub(crate) options: OptionSet,
    pub(crate) idempotent: bool,
    /// Its policy's extra copies are for it: it is idempotent, and not itself part of one.
    pub(crate) redundant: bool,
    /// Its service allows no second copy of it.
    pub(crate) single: bool,
    /// Its parent is itself an extra copy.
    pub(crate) from_extra: bool,
    /// It began as a tied pair.
    pub(crate) tied: bool,
    pub(crate) started: Instant,
    pub(crate) deadline: Instant,
    /// When the announced second copy is to be sent.
    pub(crate) twin_at: Instant,
    /// When the next hedge is to be sent.
    pub(crate) hedge_at: Instant,
    /// Until when it waits for a replica to be connected, while none is.
    pub(crate) stranded_until: Instant,
    /// How often it came to stand in line.
    pub(crate) waits: u8,
    /// How often it was passed by others while it was the first to wait for room.
    pub(crate) passed: u8,
    /// When it is tried again, after every replica refused it.
    pub(crate) retry_at: Instant,
    pub(crate) retries: u8,
    pub(crate) timer: Option<TimerKey>,
    pub(crate) timer_at: Instant,
    pub(crate) len: u8,
    /// Copies that are out, or about to be.
    pub(crate) live: u8,
    /// Copies that ended and may have run.
    pub(crate) ran: u8,
    /// Tokens that were reserved for it, and those among them that are lent.
    pub(crate) tokens: u8,
    pub(crate) lent: u8,
    pub(crate) sent: u8,
    pub(crate) hedges: u8,
    pub(crate) held: Option<Error>,
    /// How fresh the freshest result was that was older than asked.
    pub(crate) older: Option<Freshness>,
    pub(crate) pair: Option<Pair>,
    pub(crate) copies: [Copied; MAX_ATTEMPTS],
}

impl<P> Call<P> {
    pub(crate) fn vacant(next_free: u32) -> Call<P> {
        let never = Instant::FAR_FUTURE;
        Call {
            seq: 0,
            phase: Phase::Free(next_free),
            tag: 0,
            payload: None,
            size: 0,
            method: Method(0),
            had: false,
            kind: Kind::new(Method(0), TrafficClass(0), 0, 0),
            class: 0,
            name: 0,
            instead_of: 0,
            policy: 0,
            shard_key: None,
            options: OptionSet::NONE,
            idempotent: false,
            redundant: false,
            single: false,
            from_extra: false,
            tied: false,
            started: Instant::EPOCH,
            deadline: never,
            twin_at: never,
            hedge_at: never,
            stranded_until: never,
            waits: 0,
            passed: 0,
            retry_at: never,
            retries: 0,
            timer: None,
            timer_at: never,
            len: 0,
            live: 0,
            ran: 0,
            tokens: 0,
            lent: 0,
            sent: 0,
            hedges: 0,
            held: None,
            older: None,
            pair: None,
            copies: [Copied::UNUSED; MAX_ATTEMPTS],
        }
    }

    /// Has the place of the call before: what is asked for, and nothing yet of what becomes of it.
    pub(crate) fn begin(&mut self, spec: Spec<P>, now: Instant) {
        self.phase = Phase::Waiting;
        self.tag = spec.tag;
        self.payload = Some(spec.payload);
        (self.method, self.size) = (spec.method, spec.size);
        self.shard_key = spec.shard_key;
        // Who asks for any freshness asks for none.
        let fresh = spec.options.fresh.filter(|asked| *asked != Freshness::ANY);
        self.options = OptionSet { fresh, ..spec.options };
        (self.idempotent, self.single) = (spec.idempotent, spec.single);
        self.from_extra = spec.from_extra;
        (self.redundant, self.tied) = (false, false);
        // A time without end would be none to wait for.
        (self.started, self.deadline) = (now, spec.deadline.min(now + LONGEST));
        let never = Instant::FAR_FUTURE;
        (self.twin_at, self.hedge_at, self.pair) = (never, never, None);
        (self.stranded_until, self.waits, self.passed) = (never, 0, 0);
        (self.retry_at, self.retries) = (never, 0);
        (self.len, self.live, self.ran) = (0, 0, 0);
        (self.tokens, self.lent) = (0, 0);
        (self.sent, self.hedges) = (0, 0);
        (self.held, self.older) = (None, None);
    }

    /// As it stands in line.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket { seq: self.seq, wait: self.waits }
    }

    pub(crate) fn wanted(&self) -> Wanted {
        let Call { seq, size, method, shard_key: key, had, .. } = *self;
        Wanted { seq, size, method, key, had }
    }

    pub(crate) fn copies(&self) -> &[Copied] {
        &self.copies[..usize::from(self.len)]
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.phase == Phase::Waiting
    }

    /// No copy is out, and none can be sent until a replica is connected.
    pub(crate) fn is_stranded(&self) -> bool {
        self.stranded_until != Instant::FAR_FUTURE
    }

    /// No copy is out, and the next goes to a replica that is connected meanwhile.
    pub(crate) fn is_in_line(&self) -> bool {
        self.is_stranded() || self.retry_at != Instant::FAR_FUTURE
    }

    /// The second copy was announced and is not sent.
    pub(crate) fn is_announced(&self) -> bool {
        self.pair.is_some() && self.copies[1].state == State::Announced
    }

    /// Whether any copy started, for the error that the caller gets.
    pub(crate) fn executed(&self) -> Executed {
        let copies = self.copies();
        if copies.iter().any(|copy| copy.executed) {
            Executed::Yes
        } else if copies
            .iter()
            .any(|copy| copy.state == State::Sent || copy.state == State::Ended(End::Lost))
        {
            Executed::Unknown
        } else {
            Executed::No
        }
    }

    /// How many hedges went out.
    pub(crate) fn hedges_sent(&self) -> u8 {
        let sent =
            |copy: &&Copied| copy.state != State::Ended(End::Unsent) && copy.state != State::Queued;
        self.copies().iter().filter(sent).filter(|copy| copy.cause == Cause::Hedge).count() as u8
    }

    /// Every copy so far certainly never ran.
    pub(crate) fn never_ran(&self) -> bool {
        self.live == 0 && self.ran == 0
    }

    /// What became of its copies at the replica at that place.
    pub(crate) fn past_at(&self, place: u16) -> Past {
        let mut past = Past::default();
        for copy in self.copies().iter().filter(|copy| copy.replica == place) {
            match copy.state {
                State::Queued | State::Sent => past.lives = true,
                State::Ended(End::Lost) => past.lost += 1,
                State::Announced | State::Ended(_) => past.refused |= copy.failed,
            }
        }
        past
    }

    /// The replica at that place did not serve the call.
    pub(crate) fn was_failed_by(&self, place: u16) -> bool {
        self.past_at(place).has_failed()
    }

    /// The other tied copy's number.
    pub(crate) const fn twin_of(n: u8) -> u8 {
        n ^ 1
    }
}
