//! What a single thing that happens to a call is worth: pure judgements on its story.

use bowline_protocol::{Cause, ErrorKind, Executed, How, Request};

use crate::check::book::Waits;
use crate::check::rule::Rule;
use crate::check::story::{Call, Copy, Heard, Homes, Open, Outcome, There};
use crate::kernel::net::{Host, Wire};
use crate::kernel::span::Nanos;

/// Nothing more will be heard of this copy.
pub(super) const fn settled(copy: &Copy) -> bool {
    matches!(copy.there, There::Ended | There::Lost) && !copy.alive()
}

pub(super) type Verdict = Option<(Rule, &'static str)>;

pub(super) fn judge_send(
    call: &Call,
    request: &Request,
    server: Host,
    homes: Homes,
    until: Nanos,
    now: Nanos,
) -> Verdict {
    let n = request.attempt.n;
    let (copies, keyed) = (&call.copies, call.key.is_some());
    if call.done.is_some() {
        return Some((Rule::WithinTheDeadline, "was sent for a call that is over"));
    }
    if now > call.deadline || until > call.deadline.saturating_add(2) {
        return Some((Rule::WithinTheDeadline, "was sent with more time than is left"));
    }
    if copies.iter().any(|copy| copy.request.attempt.n == n) {
        return Some((Rule::FreshNumbers, "has a number that was used before"));
    }
    let tied_apart = request.tie.is_some() && !call.idempotent && !(keyed && homes.shared);
    if tied_apart || !call.may_repeat_at(server, homes) {
        let how = "was sent beside a copy that may run, and is not idempotent";
        return Some((Rule::SentOnceUnlessIdempotent, how));
    }
    if call.is_spoilt_at(server) {
        return Some((Rule::AnotherReplica, "goes to a replica that has one, or failed one"));
    }
    if request.cause == Cause::Hedge && request.tie.is_some() {
        return Some((Rule::TiesMatch, "is a hedge, and tied"));
    }
    judge_tie(call, request, server)
}

/// The second copy of a pair must name the first, and be the one that the first named.
pub(super) fn judge_tie(call: &Call, request: &Request, server: Host) -> Verdict {
    let n = request.attempt.n;
    let announced =
        call.copies.iter().find(|copy| copy.request.tie.is_some_and(|tie| tie.twin.n == n));
    match (announced, request.tie) {
        (None, None) => None,
        (None, Some(tie)) if tie.twin.n > n => None,
        (None, Some(_)) => Some((Rule::TiesMatch, "names a twin that did not announce it")),
        (Some(_), None) => Some((Rule::TiesMatch, "was announced as a twin, and is not tied")),
        (Some(first), Some(tie)) => {
            if tie.twin.n != first.request.attempt.n {
                return Some((Rule::TiesMatch, "names another twin than the one that named it"));
            }
            if call.copies.iter().any(|copy| copy.request.cause == Cause::Hedge) {
                return Some((Rule::NoHedgeBesideUnsentTwin, "is a twin sent after a hedge"));
            }
            if !first.alive() {
                return Some((Rule::TiesMatch, "is tied to a copy that has ended"));
            }
            (first.server == server).then_some((Rule::AnotherReplica, "is at its twin's server"))
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Said {
    Reply { executed: bool },
    Ended { how: How, by: Option<u16> },
    Refused,
}

pub(super) fn judge_end(copy: &Copy, wire: Wire, said: Said, now: Nanos) -> Verdict {
    if wire != copy.wire {
        return Some((Rule::EndsOnce, "ended on a connection that did not bring it"));
    }
    match copy.there {
        There::UnderWay => return Some((Rule::EndsOnce, "ended before it arrived")),
        There::Ended => return Some((Rule::EndsOnce, "ended twice")),
        There::Lost => return Some((Rule::EndsOnce, "ended after its connection was gone")),
        There::Arriving | There::Queued | There::Running => {}
    }
    match said {
        Said::Ended { how, .. } if how.started() != (copy.started || copy.by_key) => {
            Some((Rule::NeverRan, "did not end as it lived: started or not"))
        }
        Said::Ended { how: How::Withdrawn, by: None } if !copy.caller_done_sent => {
            Some((Rule::EndsTruly, "was withdrawn, and nobody asked for that"))
        }
        Said::Ended { how: How::Aborted, by: None }
            if !copy.caller_done_sent && copy.until.is_some_and(|(_, until)| now < until) =>
        {
            Some((Rule::EndsTruly, "was aborted, and nobody asked for that"))
        }
        Said::Reply { executed } if executed != (copy.started || copy.by_key) => {
            Some((Rule::NeverRan, "was answered, and its answer lies about its start"))
        }
        Said::Refused if copy.started => Some((Rule::NeverRan, "was refused after it started")),
        Said::Ended { .. } | Said::Reply { .. } | Said::Refused => None,
    }
}

pub(super) fn judge_outcome(call: &Call, outcome: Outcome) -> Option<&'static str> {
    let started = call.copies.iter().any(|copy| copy.started || copy.by_key);
    match outcome {
        Outcome::Ok(by) => {
            let good = |copy: &Copy| {
                copy.heard == Some(Heard::Good) && by.is_none_or(|n| n == copy.request.attempt.n)
            };
            (!call.copies.iter().any(good)).then_some("no such reply was heard")
        }
        Outcome::Failed(error) => match error.executed {
            Executed::No if started => Some("a copy ran"),
            Executed::Yes if !started => Some("no copy ran"),
            _ => None,
        },
    }
}

/// Every copy that may still run is told that its caller is done.
pub(super) fn judge_losers(call: &Call) -> Option<(Rule, String)> {
    let forgotten = |copy: &&Copy| copy.alive() && !copy.caller_done_sent;
    let copy = call.copies.iter().find(forgotten)?;
    let how = format!("{:?} lost, and was not cancelled", copy.request.attempt);
    Some((Rule::LosersCancelledOnce, how))
}

/// No copy of a call that waits is told that its caller is done.
pub(super) fn judge_cancels(call: &Call) -> Option<(Rule, String)> {
    let copy = call.copies.iter().find(|copy| copy.caller_done_sent)?;
    let how = format!("{:?} was cancelled while its call waits", copy.request.attempt);
    Some((Rule::LosersCancelledOnce, how))
}

/// The call fails with an error that another copy might better, and one lives.
pub(super) fn is_early(call: &Call, outcome: Outcome) -> bool {
    let Outcome::Failed(error) = outcome else { return false };
    let betterable = matches!(
        error.kind,
        ErrorKind::Failed
            | ErrorKind::ConnectionLost
            | ErrorKind::Overloaded
            | ErrorKind::Shed
            | ErrorKind::Stale
    );
    betterable && call.is_alive()
}

/// The call fails as a few servers refused it, and one is connected that was not asked, has room, and
/// can answer in time.
pub(super) fn gives_up_untried(
    call: &Call,
    outcome: Outcome,
    connected: &[Open],
    now: Nanos,
) -> bool {
    /// Round trips are no longer: who takes longer to answer a ping is gone.
    const NEAR: Nanos = 50_000_000;
    /// A call has so many copies at the most, those included that were never sent.
    const FEW: usize = 5;
    let Outcome::Failed(error) = outcome else { return false };
    let refused = matches!(error.kind, ErrorKind::Overloaded | ErrorKind::Shed | ErrorKind::Stale);
    let never_ran = call.copies.iter().all(|copy| copy.heard.is_some_and(Heard::never_ran));
    let asked = |server| call.copies.iter().any(|copy| copy.server == server);
    // One that was connected in this very turn may have been so too late.
    let there = |open: &Open| open.since < now && open.credit.allows(call.size);
    let serves = |open: &Open| there(open) && !asked(open.server);
    refused
        && never_ran
        && call.copies.len() < FEW
        && now + NEAR < call.deadline
        && connected.iter().any(serves)
}

/// No copy is alive, and a server is connected that has not failed the call, has room for it, and can
/// answer in time.
pub(super) fn is_forgotten(call: &Call, connected: &[Open], homes: Homes, now: Nanos) -> bool {
    let may = |server| !call.may_avoid(server) && call.may_repeat_at(server, homes);
    let near = |open: &Open| now + open.rtt < call.deadline;
    let serves = |open: &Open| open.credit.allows(call.size) && may(open.server) && near(open);
    !call.is_alive() && connected.iter().any(serves)
}

/// No copy is alive, and nothing will see to the call before its client's patience is over.
pub(super) fn is_unarmed(call: &Call, waits: Waits) -> bool {
    /// Clocks differ, and are read in whole nanoseconds.
    const SLACK: Nanos = 1_000_000;
    let Some(patience) = waits.patience else { return false };
    let until = call.deadline.min(call.news + patience) + SLACK;
    !call.is_alive() && waits.next.is_none_or(|next| next > until)
}
