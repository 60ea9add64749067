use super::guard::OffReason;

/// What has happened since the machine was made. All are numbers of events, except `live` and
/// `waiting`.
///
/// They reconcile: `attempts = replied + aborted + withdrawn + shed + rejected + lost + live`, and
/// `calls = ok + failed + cancelled + waiting`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Calls that were started.
    pub calls: u64,
    /// Calls that got a good reply.
    pub ok: u64,
    /// Calls that ended with an error.
    pub failed: u64,
    /// Of those that failed: their deadline passed, whatever error tells why, or what was left of their
    /// time was too little for another copy.
    pub deadline_missed: u64,
    /// Calls that their caller dropped.
    pub cancelled: u64,
    /// Calls that wait now.
    pub waiting: u64,
    /// Calls that had to wait for a replica to be connected.
    pub stranded: u64,
    /// Calls that had to wait until a replica granted more, or read what it had been sent.
    pub waited_for_room: u64,
    /// How often a replica was sent nothing until there was room for the call that had waited
    /// longest for it, and had been passed by others too often.
    pub room_kept: u64,
    /// Calls that were refused at the start: too many, too large, too late, no replica.
    pub refused: u64,

    /// Copies that were sent.
    pub attempts: u64,
    /// Copies that were answered.
    pub replied: u64,
    /// Copies that were stopped while they ran.
    pub aborted: u64,
    /// Copies that were taken out of a queue.
    pub withdrawn: u64,
    /// Copies that a server dropped before a start.
    pub shed: u64,
    /// Copies that a server refused.
    pub rejected: u64,
    /// Copies whose connection closed, or that were given up.
    pub lost: u64,
    /// Of those lost: given up after the call was done, since there were too many to watch or the
    /// watch ran out.
    pub unwatched: u64,
    /// Copies that are out now, those of finished calls included.
    pub live: u64,

    /// Calls that began as a tied pair.
    pub tied: u64,
    /// Second copies that were announced and not sent: the first had started, or ended, or the
    /// call was done.
    pub untied: u64,
    /// Starts that were relayed to the twin's replica.
    pub relayed: u64,
    /// Tied pairs of which both copies were seen to start.
    pub both_started: u64,
    /// Hedges that were sent.
    pub hedges: u64,
    /// Calls whose result was a hedge's reply.
    pub hedge_wins: u64,
    /// Copies that were sent since no other lived any more.
    pub redispatches: u64,
    /// Of those: without a token, after a connection broke with the bucket empty.
    pub uncharged: u64,

    /// How often a replica was ejected, for failures in a row or a probe that failed.
    pub ejected: u64,
    /// How often one was readmitted.
    pub readmitted: u64,
    /// Calls that were tried again after every replica had refused them.
    pub retries: u64,

    /// Copies that were seen to start.
    pub executions: u64,
    /// Copies that were seen to start, and whose reply was not used.
    pub wasted: u64,
    /// Error replies that did not end their call at once, and copies that servers stopped of their own
    /// accord as they ran, while it waited.
    pub errors: u64,
    /// Of those: replies that were not as fresh as their calls demand.
    pub stale: u64,
    /// Replies to calls that demand freshness, which do not say how fresh they are.
    pub unsaid: u64,
    /// Frames that named no copy that is out.
    pub stray: u64,
    /// Extra copies that were not sent.
    pub denied: Denied,
    /// How often hedging switched itself off, by reason.
    pub switched_off: SwitchedOff,
    /// How often it switched itself on again.
    pub switched_on: u64,
}

/// How often hedging switched itself off, by reason: once for each method and policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchedOff {
    /// Servers refused or shed too much.
    pub pushback: u64,
    /// Too many calls failed.
    pub errors: u64,
    /// Too much waited on the servers.
    pub queued: u64,
    /// Hedges hardly ever won.
    pub no_wins: u64,
    /// Far more hedges fell due than the percentile implies: the latencies have shifted.
    pub excess: u64,
}

impl SwitchedOff {
    pub(crate) const fn count(&mut self, reason: OffReason) {
        *match reason {
            OffReason::Pushback => &mut self.pushback,
            OffReason::Errors => &mut self.errors,
            OffReason::Queued => &mut self.queued,
            OffReason::NoWins => &mut self.no_wins,
            OffReason::Excess => &mut self.excess,
        } += 1;
    }
}

/// Why an extra copy was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Denied {
    /// The budget was empty.
    pub no_token: u64,
    /// Too many extra copies were outstanding.
    pub outstanding: u64,
    /// The budget of the method was empty.
    pub method_no_token: u64,
    /// Too many extra copies of the method were outstanding.
    pub method_outstanding: u64,
    /// There was no other replica to send it to: none that is connected, allows it, has room, and is not
    /// known to be behind what the call demands.
    pub no_candidate: u64,
    /// Too little of the deadline was left.
    pub too_late: u64,
    /// There were too few samples to know what is slow.
    pub no_delay: u64,
    /// The call had as many copies as it may have.
    pub attempts: u64,
    /// The payload was too large.
    pub too_large: u64,
    /// The call must not run twice.
    pub not_idempotent: u64,
    /// The service, or the replica, does not allow a second copy of such a call.
    pub not_allowed: u64,
    /// The call has a key, and its replica shares its store of results with none.
    pub not_shared: u64,
    /// The call's parent is itself an extra copy.
    pub from_extra: u64,
    /// Hedging had switched itself off.
    pub switched_off: u64,
    /// The switch for all extra copies was off.
    pub killed: u64,
}

impl core::ops::Sub for SwitchedOff {
    type Output = SwitchedOff;

    /// What switched it off since `earlier`.
    fn sub(self, earlier: SwitchedOff) -> SwitchedOff {
        SwitchedOff {
            pushback: self.pushback - earlier.pushback,
            errors: self.errors - earlier.errors,
            queued: self.queued - earlier.queued,
            no_wins: self.no_wins - earlier.no_wins,
            excess: self.excess - earlier.excess,
        }
    }
}

impl core::ops::Sub for Denied {
    type Output = Denied;

    /// What was denied since `earlier`.
    fn sub(self, earlier: Denied) -> Denied {
        Denied {
            no_token: self.no_token - earlier.no_token,
            outstanding: self.outstanding - earlier.outstanding,
            method_no_token: self.method_no_token - earlier.method_no_token,
            method_outstanding: self.method_outstanding - earlier.method_outstanding,
            no_candidate: self.no_candidate - earlier.no_candidate,
            too_late: self.too_late - earlier.too_late,
            no_delay: self.no_delay - earlier.no_delay,
            attempts: self.attempts - earlier.attempts,
            too_large: self.too_large - earlier.too_large,
            not_idempotent: self.not_idempotent - earlier.not_idempotent,
            not_allowed: self.not_allowed - earlier.not_allowed,
            not_shared: self.not_shared - earlier.not_shared,
            from_extra: self.from_extra - earlier.from_extra,
            switched_off: self.switched_off - earlier.switched_off,
            killed: self.killed - earlier.killed,
        }
    }
}

impl Counters {
    /// What happened since `earlier`; what is live or waits is as it is now.
    #[must_use]
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            calls: self.calls - earlier.calls,
            ok: self.ok - earlier.ok,
            failed: self.failed - earlier.failed,
            deadline_missed: self.deadline_missed - earlier.deadline_missed,
            cancelled: self.cancelled - earlier.cancelled,
            waiting: self.waiting,
            stranded: self.stranded - earlier.stranded,
            waited_for_room: self.waited_for_room - earlier.waited_for_room,
            room_kept: self.room_kept - earlier.room_kept,
            refused: self.refused - earlier.refused,
            attempts: self.attempts - earlier.attempts,
            replied: self.replied - earlier.replied,
            aborted: self.aborted - earlier.aborted,
            withdrawn: self.withdrawn - earlier.withdrawn,
            shed: self.shed - earlier.shed,
            rejected: self.rejected - earlier.rejected,
            lost: self.lost - earlier.lost,
            unwatched: self.unwatched - earlier.unwatched,
            live: self.live,
            tied: self.tied - earlier.tied,
            untied: self.untied - earlier.untied,
            relayed: self.relayed - earlier.relayed,
            both_started: self.both_started - earlier.both_started,
            hedges: self.hedges - earlier.hedges,
            hedge_wins: self.hedge_wins - earlier.hedge_wins,
            redispatches: self.redispatches - earlier.redispatches,
            uncharged: self.uncharged - earlier.uncharged,
            ejected: self.ejected - earlier.ejected,
            readmitted: self.readmitted - earlier.readmitted,
            retries: self.retries - earlier.retries,
            executions: self.executions - earlier.executions,
            wasted: self.wasted - earlier.wasted,
            errors: self.errors - earlier.errors,
            stale: self.stale - earlier.stale,
            unsaid: self.unsaid - earlier.unsaid,
            stray: self.stray - earlier.stray,
            denied: self.denied - earlier.denied,
            switched_off: self.switched_off - earlier.switched_off,
            switched_on: self.switched_on - earlier.switched_on,
        }
    }

    /// Whether the sums hold that must.
    pub const fn reconcile(&self) -> bool {
        let ended = self.replied + self.aborted + self.withdrawn + self.shed + self.rejected;
        self.attempts == ended + self.lost + self.live
            && self.calls == self.ok + self.failed + self.cancelled + self.waiting
    }
}
