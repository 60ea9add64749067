//! What takes a rule of ties, of hedges or of shedding out of a machine that a world of a few dozen
//! calls can hardly miss it in: each is held by the test that was written for the rule.

use super::{Mutation, mutation};

const ARRIVE: &str = "server/src/core/arrive.rs";
const CANCEL: &str = "server/src/core/cancel.rs";
const TOMBS: &str = "server/src/core/tombs.rs";
const DISPATCH: &str = "server/src/core/dispatch.rs";
const MAKE_ROOM: &str = "server/src/core/room.rs";
const END: &str = "server/src/core/end.rs";
const TIE: &str = "client/src/core/tie.rs";
const BEGIN: &str = "client/src/core/calls/dispatch.rs";
const EXTRA: &str = "client/src/core/calls/extra.rs";
const ENDS: &str = "client/src/core/calls/ends.rs";
const HEDGE: &str = "client/src/core/hedge.rs";
const BUDGET: &str = "client/src/core/budget.rs";
const GUARD: &str = "client/src/core/guard.rs";
const RETRY: &str = "client/src/core/calls/retry.rs";
const CALL: &str = "client/src/io/call.rs";
const WITHIN: &str = "client/src/io/within.rs";
const ROUTES: &str = "server/src/io/routes.rs";

pub(super) const ALL: &[Mutation] = &[
    mutation(
        "a server takes on a tied or hedged copy of what must not run twice",
        ARRIVE,
        "        if beside_another && !idempotent && !once {",
        "        if beside_another && !idempotent && !once && false {",
    )
    .held_by("core::tests::ties::a_method_that_must_not_run_twice_is_not_tied_whoever_says_so"),
    mutation(
        "a tombstone outlives what its cancel says",
        CANCEL,
        "        let life = cancel.lifetime.min(self.config.tombstone_life_max);",
        "        let life = match cancel.lifetime.is_zero() {\n            true => cancel.lifetime,\n            false => self.config.tombstone_life_max,\n        };",
    )
    .held_by("core::tests::tombstones::a_tombstone_lives_as_long_as_its_cancel_says"),
    mutation(
        "a tombstone lives for as long as its cancel asks",
        CANCEL,
        "        let life = cancel.lifetime.min(self.config.tombstone_life_max);",
        "        let life = cancel.lifetime;",
    )
    .held_by("core::tests::tombstones::a_tombstone_lives_no_longer_than_this_server_allows"),
    mutation(
        "of too many tombstones the newest is lost",
        TOMBS,
        "        let evicted = self.tombs.is_full() && self.evict_oldest();",
        "        let evicted = self.tombs.is_full() && false && self.evict_oldest();",
    )
    .held_by("core::tests::tombstones::tombstones_are_bounded_and_the_oldest_makes_room"),
    mutation(
        "a client's cancel leaves a tombstone",
        CANCEL,
        "            Origin::Client(_) => self.stats.cancels_late += 1,",
        "            Origin::Client(_) => {\n                self.tombs.set(cancel.attempt, Twin::default(), now + self.config.tombstone_life_max);\n                self.stats.cancels_late += 1;\n            }",
    )
    .held_by("core::tests::cancels::a_clients_cancel_of_an_unknown_copy_leaves_nothing_behind"),
    mutation(
        "a twin's cancel is remembered past the call's deadline",
        DISPATCH,
        "                lifetime: tie.window.min(copy.deadline - now),",
        "                lifetime: tie.window.max(now - now),",
    )
    .held_by("core::tests::ties::a_cancel_does_not_outlive_the_call"),
    mutation(
        "a copy is taken on however long it would have to wait",
        MAKE_ROOM,
        "        } else if !excess.is_zero() {",
        "        } else if !excess.is_zero() && false {",
    )
    .held_by("core::tests::arrivals::a_copy_that_would_wait_longer_than_it_can_is_refused_at_once"),
    mutation(
        "in the dark copies are refused all the same",
        MAKE_ROOM,
        "            *dark += 1;\n            return Ok(());",
        "            *dark += 1;",
    )
    .held_by("core::tests::overload::in_the_dark_nothing_is_refused_or_shed_for_its_time_and_all_is_counted"),
    mutation(
        "a primary makes no room for itself among extra copies",
        MAKE_ROOM,
        "        if !request.is_extra() && self.room_in_queue(bytes, true).is_ok() {",
        "        if !request.is_extra() && self.room_in_queue(bytes, true).is_ok() && false {",
    )
    .held_by("core::tests::arrivals::a_primary_displaces_the_extra_that_came_last"),
    mutation(
        "under overload the oldest is served first all the same",
        DISPATCH,
        "        let newest_first = self.governors[usize::from(class)].is_overloaded();",
        "        let newest_first = self.governors[usize::from(class)].is_overloaded() && false;",
    )
    .held_by("core::tests::overload::under_overload_the_newest_is_served_first"),
    mutation(
        "an answer that nobody waits for is sent",
        END,
        "        if running.stop == Some(StopReason::CallerDone) {",
        "        if running.stop == Some(StopReason::CallerDone) && false {",
    )
    .held_by("core::tests::ends::an_answer_that_nobody_waits_for_is_not_sent"),
    mutation(
        "the copies of a connection that closed stay in the queue",
        END,
        "                    self.take_waiting(index, Unstarted::DroppedQueued, now);",
        "                    self.copies.orphan(index, now);",
    )
    .held_by("core::tests::closes::a_close_in_the_same_turn_keeps_a_copy_from_starting"),
    mutation(
        "the stagger is the one way delay once",
        TIE,
        "(rtt / 2).mul_f64(factor).min(max)",
        "(rtt / 2).mul_f64(factor / 2.0).min(max)",
    )
    .held_by("core::tie::tests::the_stagger_is_so_many_one_way_delays_and_never_above_the_maximum"),
    mutation(
        "a tombstone does not outlast the stagger and the way",
        TIE,
        "    policy.window.max(stagger + rtt.unwrap_or_default() * 5)",
        "    policy.window.max((stagger + rtt.unwrap_or_default()) * 0)",
    )
    .held_by("core::tie::tests::the_window_outlasts_the_stagger_and_the_way"),
    mutation(
        "the second copy does not wait for the stagger",
        BEGIN,
        "        call.twin_at = now + stagger;",
        "        call.twin_at = now + stagger * 0;",
    )
    .held_by("core::calls::tests::tying::both_copies_name_each_other_and_the_second_follows_after_the_stagger"),
    mutation(
        "the second copy stays in the failure domain of the first",
        EXTRA,
        "u8::from(beside) << 2 |",
        "u8::from(beside && false) << 2 |",
    )
    .held_by("core::calls::tests::tying::the_second_copy_goes_to_another_failure_domain"),
    mutation(
        "a second copy goes where the service allows none",
        BEGIN,
        "        } else if !self.slots.get(slot).allows_second() {",
        "        } else if !self.slots.get(slot).allows_second() && false {",
    )
    .held_by("core::calls::tests::limits::a_call_is_tied_and_hedged_only_among_replicas_that_allow_it"),
    mutation(
        "a call out of an extra copy has a second copy itself",
        BEGIN,
        "        } else if self.slots.get(slot).from_extra {",
        "        } else if self.slots.get(slot).from_extra && false {",
    )
    .held_by("core::calls::tests::hedging::large_payloads_and_calls_of_extra_copies_are_not_hedged"),
    mutation(
        "a payload above the ceiling is hedged",
        EXTRA,
        "        if call.size > hedge.max_payload {",
        "        if call.size > hedge.max_payload && false {",
    )
    .held_by("core::calls::tests::hedging::large_payloads_and_calls_of_extra_copies_are_not_hedged"),
    mutation(
        "what losers took is not learned from",
        ENDS,
        "            let ratio = self.methods.censored(class, until - sent, now);",
        "            let ratio = self.methods.censored(class, (until - sent) * 0, now);",
    )
    .held_by("core::calls::tests::hedging::copies_that_were_stopped_teach_that_they_took_longer"),
    mutation(
        "without samples a call is hedged as soon as may be",
        HEDGE,
        "            self.delay = percentile.fallback;",
        "            self.delay = percentile.fallback.or(Some(percentile.min));",
    )
    .held_by("core::calls::tests::hedging::without_samples_a_percentile_hedges_nothing"),
    mutation(
        "the delay jumps to what the percentile is",
        HEDGE,
        "            Some(delay) if self.learned => limited(delay, target, percentile, steps),",
        "            Some(delay) if self.learned && false => limited(delay, target, percentile, steps),",
    )
    .held_by("core::hedge::tests::an_incident_moves_the_delay_no_faster_than_allowed_and_not_beyond_the_maximum"),
    mutation(
        "an incident raises the delay without bound",
        HEDGE,
        "        let target = self.bounded(target, percentile, steps);",
        "        let _ = self.bounded(target, percentile, steps);",
    )
    .held_by("core::hedge::tests::no_incident_raises_the_delay_without_bound_and_it_is_forgotten_afterwards"),
    mutation(
        "a call has as many copies as there is room for",
        EXTRA,
        "        sent >= most || usize::from(call.len) == MAX_ATTEMPTS",
        "        sent >= most && usize::from(call.len) == MAX_ATTEMPTS",
    )
    .held_by("core::calls::tests::limits::a_call_has_no_more_copies_than_its_policy_allows"),
    mutation(
        "a call that succeeds earns nothing",
        BUDGET,
        "        self.units += budget.fraction.load(Relaxed);",
        "        self.units += budget.fraction.load(Relaxed) * 0;",
    )
    .held_by("core::budget::tests::successes_refill_it_by_their_fraction_up_to_the_burst"),
    mutation(
        "a call that fails takes nothing out of the bucket",
        BUDGET,
        "        if drain > 0 {",
        "        if drain > 0 && false {",
    )
    .held_by("core::budget::tests::failures_drain_it_fast_and_successes_bring_it_back"),
    mutation(
        "servers that push back do not switch hedging off",
        GUARD,
        "        if per(self.pushback, self.calls) > rule.max_pushback {",
        "        if per(self.pushback, self.calls) > rule.max_pushback && false {",
    )
    .held_by("core::guard::tests::each_reason_switches_it_off"),
    mutation(
        "calls that fail do not switch hedging off",
        GUARD,
        "per(self.failed, self.calls) > rule.max_errors {",
        "per(self.failed, self.calls) > rule.max_errors && false {",
    )
    .held_by("core::guard::tests::each_reason_switches_it_off"),
    mutation(
        "full queues do not switch hedging off",
        GUARD,
        "queued > rule.max_queued {",
        "queued > rule.max_queued && false {",
    )
    .held_by("core::guard::tests::each_reason_switches_it_off"),
    mutation(
        "far more hedges than the percentile implies do not switch hedging off",
        GUARD,
        "f64::from(self.due) > implied) {",
        "f64::from(self.due) > implied) && false {",
    )
    .held_by("core::guard::tests::each_reason_switches_it_off"),
    mutation(
        "hedges that never win do not switch hedging off",
        GUARD,
        "per(self.won, self.sent) < rule.min_wins {",
        "per(self.won, self.sent) < rule.min_wins && false {",
    )
    .held_by("core::guard::tests::each_reason_switches_it_off"),
    mutation(
        "an error leaves the pending hedge to its time",
        EXTRA,
        "        if call.hedge_at != Instant::FAR_FUTURE && call.copies[usize::from(n)].failed {",
        "        if call.hedge_at != Instant::FAR_FUTURE && call.copies[usize::from(n)].failed && false {",
    )
    .held_by("core::calls::tests::tying::an_error_of_one_tied_copy_fires_the_pending_hedge_now"),
    mutation(
        "a call that may have run is tried again",
        RETRY,
        "        let may_be = call.was_only_refused() && call.is_any_to_be_forgiven();",
        "        let may_be = (call.was_only_refused() || true) && call.is_any_to_be_forgiven();",
    )
    .held_by("core::calls::tests::retrying::a_call_that_may_have_run_is_not_retried"),
    mutation(
        "a replica that is no peer hears of starts",
        ROUTES,
        "        peers.any(|(peer, cores)| peer.replica == station.replica && cores.has(station.core))",
        "        peers.any(|(peer, cores)| peer.replica == station.replica && cores.has(station.core)) || true",
    )
    .held_in("loopback", "mesh::a_core_that_the_peer_does_not_have_hears_nothing"),
    mutation(
        "a call in a handler has its own deadline",
        CALL,
        "        self.until = parent.deadline();\n",
        "",
    )
    .held_in(
        "loopback",
        "together::a_call_on_behalf_of_another_has_its_deadline_and_is_not_doubled_if_that_is_an_extra_copy",
    ),
    mutation(
        "amplification multiplies",
        CALL,
        "        self.from_extra |= parent.is_extra();\n",
        "",
    )
    .held_in(
        "loopback",
        "together::a_call_on_behalf_of_another_has_its_deadline_and_is_not_doubled_if_that_is_an_extra_copy",
    ),
    mutation(
        "a call in a handler goes on though nobody needs the handler any more",
        WITHIN,
        "        if this.parent.poll_cancelled(context.waker()).is_pending() {",
        "        if this.parent.poll_cancelled(context.waker()).is_pending() || true {",
    )
    .held_in("loopback", "together::when_nobody_needs_the_parent_its_calls_are_cancelled_on_the_wire"),
];
