//! What the client and the replicas counted of one turn, brought together: each copy that was sent
//! has one end, whoever saw it.

use bowline_client::core::Counters;

use crate::cli::Policy;
use crate::figures::Served;
use crate::stats::{self, Ends, Slice, denials};
use crate::store::SLOW_DEVICE;
use crate::units::show_duration;

/// Counts the extra copies that a policy wanted and that were not sent: of ties, of hedges, and of
/// hedges while hedging had switched itself off.
pub(crate) fn note_denied(slice: &mut Slice, policy: Policy, client: &Counters) {
    let [ties, hedges, off] = denied(policy, client);
    slice.counters.ties_denied = ties;
    slice.counters.hedges_denied = hedges;
    slice.counters.hedges_switched_off = off;
    if ties + hedges > 0 {
        slice.denied = denials(&client.denied).collect();
    }
}

fn denied(policy: Policy, client: &Counters) -> [u64; 3] {
    let all = client.denied;
    let (ties, hedges) = match policy {
        Policy::None => return [0; 3],
        Policy::Hedged => (false, true),
        Policy::Tied => (true, false),
        Policy::TiedHedged => (true, true),
    };
    // Every call is to be tied; why one was not is counted together with why hedges were not.
    let ties = if ties { client.calls.saturating_sub(client.tied) } else { 0 };
    let reasons: u64 = denials(&all).map(|(_, copies)| copies).sum();
    let hedges = if hedges { reasons.saturating_sub(ties) } else { 0 };
    [ties, hedges, all.switched_off]
}

/// What replicas did as far as the client knows, for when one of them does not tell any more.
pub(super) fn seen_by(client: &Counters) -> Served {
    let (executions, arrived) = (client.executions, client.attempts);
    Served { executions, arrived, ends: ends_of(client, client.withdrawn), ..Served::default() }
}

/// How copies ended as their client has it, which knows of each, but not what it was withdrawn for.
///
/// What the replicas say to that is taken for as many as the client knows to be withdrawn: a replica
/// that stood still withdraws copies, too, that went down with their connection for the client.
fn ends_of(client: &Counters, withdrawn_by_twin: u64) -> Ends {
    let withdrawn_by_twin = withdrawn_by_twin.min(client.withdrawn);
    Ends {
        answered: client.replied,
        withdrawn_by_twin,
        withdrawn_by_caller: client.withdrawn - withdrawn_by_twin,
        aborted: client.aborted,
        shed: client.shed + client.rejected,
        lost: client.lost + client.live,
    }
}

/// Executions, and what copies were withdrawn for, are the servers' own counts; what was sent and
/// how it ended, the client's.
pub(crate) fn fill(slice: &mut Slice, client: &Counters, served: &Served, extra_wins: u64) {
    let counters = &mut slice.counters;
    counters.attempts = client.attempts;
    counters.executions = served.executions;
    counters.wasted_executions = served.executions.saturating_sub(counters.ok);
    counters.hedges = client.hedges;
    counters.second_copies = client.tied - client.untied;
    counters.extra_wins = extra_wins;
    counters.ends = ends_of(client, served.ends.withdrawn_by_twin);
    counters.both_started = client.both_started;
}

/// Says so where copies have not exactly one end each. Those that were `left` by the turn before
/// ended there as lost, and here once more.
pub(crate) fn add_up(turn: &str, counters: &stats::Counters, left: u64) -> Option<String> {
    let ended = counters.ends.sum();
    if counters.attempts + left != ended {
        return Some(format!(
            "{turn}: {} copies were sent, {left} were left from the turn before, and {ended} ended \
             in one way or another: the figures of copies do not add up.",
            counters.attempts,
        ));
    }
    (left > 0).then(|| {
        format!(
            "{turn}: {left} copies that a turn left behind ended in the next, and count in both: \
             copies have as many ends more than there were attempts."
        )
    })
}

/// Says so where the real device made stalls of its own, which differ from policy to policy where
/// there are several.
pub(super) fn slow_device(turn: &str, served: &Served, several: bool) -> Option<String> {
    /// A stall by the plan finds a read at the device now and then.
    const USUAL_SHARE: u64 = 500;
    (served.slow_reads > 3 && served.slow_reads > served.executions / USUAL_SHARE).then(|| {
        let harm = if several { ", and the policies did not meet the same stalls" } else { "" };
        format!(
            "{turn}: the device itself took more than {} for {} of {} reads: others \
             keep it busy{harm}. Repeat it on a quiet machine.",
            show_duration(SLOW_DEVICE),
            served.slow_reads,
            served.executions
        )
    })
}

/// What the client sent has to be what the servers got, but for copies that one side knows of and the
/// other does not: who went down with a connection, had not ended in time, or was `left` by the turn
/// before.
pub(super) fn check(
    turn: &str,
    client: &Counters,
    served: &Served,
    left: u64,
    silent: u32,
) -> Option<String> {
    if silent > 0 {
        return Some(format!(
            "{turn}: {silent} of the replicas did not answer after a turn, or had been started \
             anew in it; the client's own counts stand for theirs, and all that was withdrawn \
             counts as withdrawn by a twin."
        ));
    }
    let slack = client.lost + client.live + left;
    let (ours, theirs) = (ends_of(client, served.ends.withdrawn_by_twin), served.ends);
    let counts = [
        ("sent", client.attempts, served.arrived),
        ("started", client.executions, served.executions),
        ("answered", ours.answered, theirs.answered),
        ("withdrawn", client.withdrawn, theirs.withdrawn_by_twin + theirs.withdrawn_by_caller),
        ("aborted", ours.aborted, theirs.aborted),
        ("shed or refused", ours.shed, theirs.shed),
    ];
    let differ = counts.iter().filter(|(_, ours, theirs)| ours.abs_diff(*theirs) > slack);
    let differ: Vec<String> = differ
        .map(|(what, ours, theirs)| format!("{ours} copies as {what}, the replicas {theirs}"))
        .collect();
    if !differ.is_empty() {
        return Some(format!(
            "{turn}: the client counted {}: somebody else used them, too, or something is wrong.",
            differ.join("; ")
        ));
    }
    (slack > 0).then(|| {
        format!(
            "{turn}: {slack} copies went down with a connection, had not ended in time or were left \
             from the turn before; what the client and the replicas counted can differ by as many."
        )
    })
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use bowline_client::core::Denied;

    use super::*;
    use crate::stats::CallEnd;

    #[test]
    fn extra_copies_that_were_not_sent_are_told_by_what_they_were_to_be() {
        let all = Denied { no_token: 4, no_candidate: 1, switched_off: 7, ..Denied::default() };
        let client = Counters { calls: 10, tied: 8, denied: all, ..Counters::default() };
        assert_eq!(denied(Policy::None, &client), [0, 0, 0]);
        assert_eq!(denied(Policy::Hedged, &client), [0, 5, 7]);
        assert_eq!(denied(Policy::Tied, &client), [2, 0, 7]);
        assert_eq!(denied(Policy::TiedHedged, &client), [2, 3, 7]);
    }

    #[test]
    fn counts_that_do_not_match_are_told() {
        let client = Counters { attempts: 20, executions: 11, ..Counters::default() };
        let served = Served { arrived: 20, executions: 11, ..Served::default() };
        let told = |client: &Counters, served: &Served, silent| {
            check("tied, round 2", client, served, 0, silent).unwrap_or_default()
        };
        assert_eq!(told(&client, &served, 0), "");
        let more = Served { executions: 12, ..served };
        assert!(told(&client, &more, 0).contains("something is wrong"));
        assert!(told(&client, &served, 1).contains("did not answer"));
        let ends = Ends { withdrawn_by_twin: 3, withdrawn_by_caller: 1, ..Ends::default() };
        let withdrew = Served { ends, ..served };
        let said = told(&Counters { withdrawn: 3, ..client }, &withdrew, 0);
        assert!(said.contains("counted 3 copies as withdrawn, the replicas 4"), "{said}");
        let lost = Counters { lost: 2, ..client };
        assert!(told(&lost, &more, 0).contains("2 copies went down"));
        let many = Served { executions: 14, ..served };
        assert!(told(&lost, &many, 0).contains("11 copies as started, the replicas 14"));
        let left = check("tied, round 2", &client, &Served { arrived: 22, ..served }, 2, 0);
        assert!(left.is_some_and(|told| told.contains("2 copies went down")));
    }

    #[test]
    fn a_device_that_stalls_by_itself_is_told() {
        let served = |slow_reads| Served { executions: 10_000, slow_reads, ..Served::default() };
        assert_eq!(slow_device("none, round 2", &served(20), true), None);
        let told = |several| slow_device("none, round 2", &served(21), several).expect("a note");
        let said = "none, round 2: the device itself took";
        assert!(
            told(true).starts_with(said) && told(true).contains("21 of 10000"),
            "{}",
            told(true)
        );
        assert!(told(true).contains("same stalls") && !told(false).contains("policies"));
    }

    #[test]
    fn what_was_executed_and_not_used_is_waste() {
        let mut slice = Slice::new(Duration::from_secs(1));
        for _ in 0..10 {
            slice.record(Duration::ZERO, Duration::ZERO, Duration::from_millis(5), CallEnd::Ok);
        }
        let client = Counters {
            attempts: 19,
            replied: 10,
            withdrawn: 9,
            tied: 10,
            untied: 1,
            ..Counters::default()
        };
        let ends = Ends { withdrawn_by_twin: 7, ..Ends::default() };
        let served = Served { executions: 11, ends, ..Served::default() };
        fill(&mut slice, &client, &served, 3);
        let counters = slice.counters;
        assert_eq!((counters.executions, counters.wasted_executions), (11, 1));
        assert_eq!((counters.second_copies, counters.extra_wins), (9, 3));
        let ends =
            Ends { answered: 10, withdrawn_by_twin: 7, withdrawn_by_caller: 2, ..Ends::default() };
        assert_eq!(counters.ends, ends);
        assert_eq!(add_up("tied, round 2", &counters, 0), None);
        let told = add_up("tied, round 2", &stats::Counters { attempts: 20, ..counters }, 0);
        let told = told.expect("a note");
        assert!(told.contains("20 copies were sent") && told.contains("19 ended"), "{told}");
    }

    #[test]
    fn a_copy_that_was_lost_to_the_client_and_withdrawn_by_a_replica_has_one_end() {
        let mut slice = Slice::new(Duration::from_secs(1));
        let client =
            Counters { attempts: 20, replied: 10, withdrawn: 6, lost: 4, ..Counters::default() };
        let ends = Ends { withdrawn_by_twin: 9, withdrawn_by_caller: 1, ..Ends::default() };
        fill(&mut slice, &client, &Served { ends, ..Served::default() }, 0);
        let counters = slice.counters;
        assert_eq!(counters.ends.sum(), counters.attempts, "{:?}", counters.ends);
        assert_eq!((counters.ends.withdrawn_by_twin, counters.ends.lost), (6, 4));
    }

    #[test]
    fn copies_that_a_turn_left_behind_are_told_where_they_end() {
        let of = |attempts, replied, live| {
            let client = Counters { attempts, replied, live, ..Counters::default() };
            let mut slice = Slice::new(Duration::from_secs(1));
            fill(&mut slice, &client, &seen_by(&client), 0);
            slice.counters
        };
        assert_eq!(add_up("none, round 2", &of(10, 8, 2), 0), None, "they are lost to this turn");
        let told = add_up("none, round 2", &of(10, 12, 0), 2).expect("a note");
        assert!(told.contains("2 copies that a turn left behind"), "{told}");
        let told = add_up("none, round 2", &of(10, 11, 0), 2).expect("a note");
        assert!(told.contains("do not add up"), "{told}");
    }
}
