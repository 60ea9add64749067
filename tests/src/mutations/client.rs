//! What a client's machine may get wrong.

use super::{Mutation, mutation};

const CALLS: &str = "client/src/core/calls/mod.rs";
const BEGIN: &str = "client/src/core/calls/dispatch.rs";
const ENDS: &str = "client/src/core/calls/ends.rs";
const EXTRA: &str = "client/src/core/calls/extra.rs";
const FRAMES: &str = "client/src/core/calls/frames.rs";
const TIMERS: &str = "client/src/core/calls/timers.rs";
const BUDGET: &str = "client/src/core/budget.rs";
const OUTCOME: &str = "client/src/core/outcome.rs";
const CALL: &str = "client/src/core/call.rs";
const ROOM: &str = "client/src/core/room.rs";
const RETRY: &str = "client/src/core/calls/retry.rs";
const STRAND: &str = "client/src/core/calls/strand.rs";
const LINES: &str = "client/src/core/calls/lines.rs";
const REPEAT: &str = "client/src/core/calls/repeat.rs";
const REPLICAS: &str = "client/src/core/replicas.rs";
const HEALTH: &str = "client/src/core/health.rs";
const METHODS: &str = "client/src/core/methods.rs";
const GUARD: &str = "client/src/core/guard.rs";
const POLICIES: &str = "client/src/core/policies.rs";
const PICK: &str = "client/src/core/pick.rs";
const C3: &str = "client/src/core/c3.rs";
const SHADOW: &str = "client/src/core/shadow.rs";

pub(super) const ALL: &[Mutation] = &[
    mutation(
        "a loser is not cancelled",
        ENDS,
        "        self.effects.push_back(Pending::Cancel { place, cancel });",
        "        let _ = Pending::Cancel { place, cancel };",
    ),
    mutation(
        "a loser is cancelled twice",
        ENDS,
        "        self.effects.push_back(Pending::Cancel { place, cancel });",
        "        self.effects.push_back(Pending::Cancel { place, cancel });\n        self.effects.push_back(Pending::Cancel { place, cancel });",
    ),
    mutation(
        "the call is sent again only if the connection's end comes last",
        EXTRA,
        "        if call.live == 0 {\n            return self.redispatch(slot, n, now);",
        "        if call.live == 0 && call.copies[usize::from(n)].state == State::Ended(End::Lost) {\n            return self.redispatch(slot, n, now);",
    ),
    mutation(
        "the relay drops the reason",
        FRAMES,
        "                    reason: CancelReason::TwinStarted { by },",
        "                    reason: { let _ = by; CancelReason::CallerDone },",
    ),
    mutation(
        "the relay names the wrong origin",
        FRAMES,
        "                let by = Twin { station: pair.stations[usize::from(n)], n: u16::from(n) };",
        "                let by = Twin { station: pair.stations[usize::from(other)], n: u16::from(n) };",
    )
    .held_by("core::calls::tests::tying::a_start_is_relayed_to_the_twin_with_its_reason_and_origin_and_once"),
    mutation(
        "the tie is not void when #0 ends before #1 is sent",
        EXTRA,
        "        if call.is_announced() {\n            // The first ended",
        "        if call.is_announced() && false {\n            // The first ended",
    ),
    mutation(
        "a hedge goes out beside an unsent #1",
        EXTRA,
        "        if call.is_announced() {\n            // Until the second",
        "        if call.is_announced() && false {\n            // Until the second",
    ),
    mutation(
        "#1 is sent although #0 has started",
        FRAMES,
        "            State::Announced => self.void_twin(slot),",
        "            State::Announced => {}",
    )
    .held_by("core::calls::tests::tying::a_start_that_is_told_before_the_second_copy_is_sent_drops_that"),
    mutation(
        "tokens are charged afterwards",
        EXTRA,
        "        (0..missing).all(|_| self.take_token(slot, token, now))",
        "        missing < 99 || self.take_token(slot, token, now)",
    ),
    mutation(
        "the cap on what is outstanding is off by one",
        BUDGET,
        "            if outstanding >= cap {",
        "            if outstanding > cap {",
    ),
    mutation(
        "an empty bucket gives a token",
        BUDGET,
        "            if level < TOKEN {",
        "            if level < -TOKEN {",
    ),
    mutation(
        "tokens of copies that ran come back",
        ENDS,
        "            self.config.budget.settle(tokens - lent, lent, spent);",
        "            self.config.budget.settle(tokens - lent, lent, spent * 0);",
    ),
    mutation(
        "tokens of copies that never ran are lost",
        ENDS,
        "            self.config.budget.settle(tokens - lent, lent, spent);",
        "            self.config.budget.settle(tokens - lent, lent, tokens);",
    ),
    mutation(
        "an aborted copy is held never to have run",
        OUTCOME,
        "        matches!(self, End::Replied | End::Aborted | End::Lost)",
        "        matches!(self, End::Replied | End::Lost)",
    ),
    mutation(
        "an extra copy goes to the same replica",
        EXTRA,
        "            if past.lives || past.has_failed() || lost && !again {",
        "            if past.has_failed() || lost && !again {",
    ),
    mutation(
        "an extra copy goes to a replica that has failed the call",
        EXTRA,
        "            if past.lives || past.has_failed() || lost && !again {",
        "            if past.lives || lost && !again {",
    ),
    mutation(
        "a replica that broke and came back is not asked again",
        EXTRA,
        "            if past.lives || past.has_failed() || lost && !again {",
        "            if past.lives || past.has_failed() || lost {",
    ),
    mutation(
        "what was lent is not charged",
        BUDGET,
        "            let back = (paid as i32 - spent as i32) * TOKEN;",
        "            let back = (paid as i32 - (spent as i32).min(paid as i32)) * TOKEN;",
    ),
    mutation(
        "an error beats a live attempt",
        FRAMES,
        "            Verdict::Fatal => {",
        "            Verdict::Fatal | Verdict::Retryable => {",
    ),
    mutation(
        "a call that must not run twice is tied",
        BEGIN,
        "        if !self.slots.get(slot).may_repeat() {",
        "        if !self.slots.get(slot).may_repeat() && false {",
    )
    .held_by("core::calls::tests::plain::a_call_that_must_not_run_twice_is_sent_again_only_if_it_certainly_never_ran"),
    mutation(
        "a call that must not run twice is sent again",
        EXTRA,
        "        if !call.may_repeat() && !call.never_ran() {",
        "        if !call.may_repeat() && !call.never_ran() && false {",
    ),
    mutation(
        "a copy is given more time than is left",
        CALLS,
        "        let remaining = call.deadline - copy.sent;",
        "        let remaining = call.deadline - call.started + core::time::Duration::from_micros(1);",
    ),
    mutation(
        "a deadline passes unnoticed",
        TIMERS,
        "        if now >= call.deadline {",
        "        if now >= call.deadline && false {",
    ),
    mutation(
        "a closed connection leaves its copies in the book",
        FRAMES,
        "            self.lose_all(place, now);",
        "            let _ = now;",
    ),
    mutation(
        "the caller is told that nothing ran",
        CALL,
        "            Executed::Unknown\n",
        "            Executed::No\n",
    ),
    mutation(
        "a call that its caller gave up completes as well",
        CALLS,
        "        self.counters.cancelled += 1;\n        self.conclude(slot, now);",
        "        self.counters.cancelled += 1;\n        let done = self.fail_with(slot, ErrorKind::Cancelled, now);\n        self.effects.push_back(Pending::Done(done));",
    ),
    mutation(
        "what was decided on counts once more when it is sent",
        ROOM,
        "        self.decided -= size as usize;",
        "        let _ = size;",
    )
    .held_by("core::room::tests::what_is_decided_counts_until_the_backlog_tells_of_it"),
    mutation(
        "the credit of a request that is not sent is lost",
        ROOM,
        "        self.credit.refund(size as usize);",
        "        let _ = size;",
    ),
    mutation(
        "the credit of a copy that nobody watches any more is lost when it is taken back",
        FRAMES,
        "        self.refund(place, size);\n        if let",
        "        if self.find_copy(from, attempt).is_some() {\n            self.refund(place, size);\n        }\n        if let",
    )
    .held_by("core::calls::tests::room::so_does_one_that_is_taken_back_and_was_not_watched_any_more"),
    mutation(
        "more credit is spent than was granted",
        ROOM,
        "        self.is_read() && self.credit.allows(size as usize)",
        "        self.is_read() && (self.credit.allows(size as usize) || true)",
    ),
    mutation(
        "nobody is told that there is room again",
        LINES,
        "        replica.line_due |= due;",
        "        replica.line_due |= due && false;",
    ),
    mutation(
        "who begins goes before those who wait for room",
        CALLS,
        "        self.serve_lines(now);\n        let had",
        "        let had",
    )
    .held_by("core::calls::tests::room::calls_that_wait_go_in_the_order_in_which_they_came_and_before_one_that_only_begins"),
    mutation(
        "a large call is passed for ever",
        LINES,
        "        if call.passed >= MOST_PASSED && can_be && replica.kept_for == 0 {",
        "        if false && replica.kept_for == 0 {",
    )
    .held_by("core::calls::tests::room::a_call_that_needs_more_is_passed_so_often_and_then_has_its_turn"),
    mutation(
        "room stays kept for a call that is over",
        LINES,
        "                self.replicas.get_mut(place).kept_for = 0;\n                self.room_came(place);",
        "                self.room_came(place);",
    )
    .held_by("core::calls::tests::room::room_that_was_kept_is_there_for_others_when_its_call_is_over"),
    mutation(
        "a result that is older than was asked for wins",
        FRAMES,
        "            Verdict::Good if !is_fresh => Verdict::Stale,",
        "            Verdict::Good if !is_fresh && false => Verdict::Stale,",
    ),
    mutation(
        "a second copy goes to a replica that is known to be behind",
        EXTRA,
        "        let fresh = |replica: &Replica| !replica.is_behind(asked, now);",
        "        let fresh = |replica: &Replica| !replica.is_behind(asked, now) || true;",
    )
    .held_by("core::calls::tests::fresh::a_second_copy_is_not_made_do_with_a_replica_that_is_behind"),
    mutation(
        "the first copy goes to a replica that is known to be behind",
        CALLS,
        "        let fresh = |replica: &Replica| !replica.is_behind(asked, now);",
        "        let fresh = |replica: &Replica| !replica.is_behind(asked, now) || true;",
    )
    .held_by("core::calls::tests::fresh::a_replica_that_is_known_to_be_behind_is_left_out_by_the_first_copy_and_by_the_second"),
    mutation(
        "a call with a key has copies at two stores of results",
        REPEAT,
        "            one_store && keyed && copy.is_kept()",
        "            (one_store || true) && keyed && copy.is_kept()",
    ),
    mutation(
        "a key protects what keeps no results by it",
        REPEAT,
        "            one_store && keyed && copy.is_kept()",
        "            one_store && (keyed && copy.is_kept() || true)",
    )
    .held_by("core::calls::tests::keyed::a_key_that_the_method_does_not_keep_protects_nothing"),
    mutation(
        "the switch for second copies does nothing to calls that begin",
        BEGIN,
        "        } else if !self.config.switch.is_on() {",
        "        } else if !self.config.switch.is_on() && false {",
    )
    .held_by("core::calls::tests::live::the_switch_stops_what_is_due_and_announced_and_all_that_begins"),
    mutation(
        "hedging that switched itself off never comes back",
        GUARD,
        "            if now < until {",
        "            if now < until || true {",
    )
    .held_by("core::calls::tests::hedging::hedging_switches_itself_off_when_servers_push_back_and_comes_back_later"),
    mutation(
        "a policy on trial is followed by twice its share",
        POLICIES,
        "Random::new(call).next() >> 32 < running.share =>",
        "Random::new(call).next() >> 32 < 2 * running.share =>",
    )
    .held_by("core::calls::tests::live::a_share_of_the_calls_runs_the_policy_on_trial_and_the_figures_are_apart"),
    mutation(
        "a replica is never ejected",
        HEALTH,
        "            None if self.failures < rule.after => return false,",
        "            None if self.failures < rule.after || true => return false,",
    )
    .held_by("core::calls::tests::fresh::a_replica_whose_replies_the_classifier_refuses_is_ejected"),
    mutation(
        "a replica that was ejected is never readmitted",
        HEALTH,
        "        self.out.take().is_some()",
        "        self.out.is_some()",
    )
    .held_by("core::calls::tests::placing::failures_in_a_row_eject_a_replica_and_a_probe_readmits_it"),
    mutation(
        "a replica is asked what it does not serve",
        REPLICAS,
        "        !self.is_removed() && self.placement.serves(method, key)",
        "        !self.is_removed() && (self.placement.serves(method, key) || true)",
    )
    .held_by("core::calls::tests::placing::every_copy_of_a_call_goes_to_a_replica_that_serves_its_method_and_key"),
    mutation(
        "a call whose time is over is sent when there is room",
        STRAND,
        "        if self.fail_if_overdue(slot, now) {",
        "        if false && self.fail_if_overdue(slot, now) {",
    ),
    mutation(
        "a call that waits for its retry does not hear of room elsewhere",
        LINES,
        "        if replica.would_fit(call.wanted()) && call.may_try(place, replica) {",
        "        if call.is_stranded() && replica.would_fit(call.wanted()) && call.may_try(place, replica) {",
    )
    .held_by("core::calls::tests::retrying::a_call_that_waits_for_its_retry_goes_to_one_that_came_without_room_once_that_has_some"),
    mutation(
        "who was refused by one need not wait for the room of another",
        STRAND,
        "        self.replicas.iter().any(|it| lacks(it) && is_meant(it.1))",
        "        call.len == 0 && self.replicas.iter().any(|it| lacks(it) && is_meant(it.1))",
    ),
    mutation(
        "a call that waited too long is sent where it can't be answered in time",
        EXTRA,
        "        let is_near = |replica: &Replica| replica.rtt.is_none_or(|rtt| rtt < remaining);",
        "        let is_near = |replica: &Replica| replica.rtt.is_none_or(|rtt| rtt < remaining || true);",
    )
    .held_by("core::calls::tests::room::room_that_comes_too_late_for_a_round_trip_ends_the_wait"),
    mutation(
        "a call that can't be answered in time any more waits until its deadline",
        EXTRA,
        "            true => Next::TooLate,",
        "            true => Next::Nowhere,",
    )
    .held_by("core::calls::tests::room::room_that_comes_too_late_for_a_round_trip_ends_the_wait"),
    mutation(
        "a call does not wait for room nearby where there is some far away",
        EXTRA,
        "        match !self.lacks_room(slot, is_near) && self",
        "        match self",
    )
    .held_by("core::calls::tests::room::room_that_is_too_far_away_leaves_a_call_to_wait_for_some_nearby"),
    mutation(
        "who withdrew a copy of its own accord is asked again",
        FRAMES,
        "        self.end_unanswered(slot, n, end, (!by_twin).then_some(error), now);",
        "        let asked = by_twin || ended.how == How::Withdrawn;\n        self.end_unanswered(slot, n, end, (!asked).then_some(error), now);",
    )
    .held_by("core::calls::tests::tying::a_replica_that_withdraws_a_copy_which_no_twin_stopped_has_failed_the_call"),
    mutation(
        "none is waited for that may be back in a moment while one is connected that failed the call",
        STRAND,
        "        self.any_could_take(slot, |it| it.station.is_none() && now < it.back_until)",
        "        let _ = now;\n        self.any_could_take(slot, |it| it.station.is_none() && false)",
    )
    .held_by("core::calls::tests::stranding::beside_replicas_that_failed_it_a_call_waits_for_one_whose_connection_broke_just_now"),
    mutation(
        "a replica that was reached and never came up is held to be back in a moment",
        FRAMES,
        "            if replica.station.take().is_some() {",
        "            replica.station = None;\n            if !self.config.patience.is_zero() {",
    )
    .held_by("core::calls::tests::stranding::one_that_is_reached_again_and_again_but_never_comes_up_is_not_waited_for_either"),
    mutation(
        "a call that ran and has to wait for a replica is sent to that whether a token is there or not",
        EXTRA,
        "        if self.slots.get(slot).copies[usize::from(n)].feeds_itself()",
        "        if self.pick_other(slot, now).is_some() && self.slots.get(slot).copies[usize::from(n)].feeds_itself()",
    )
    .held_by("core::calls::tests::stranding::a_call_that_ran_waits_for_a_replica_only_if_the_budget_affords_it"),
    mutation(
        "who stops each copy as it runs has the next for nothing",
        CALL,
        "        self.failed && matches!(self.state, State::Ended(End::Replied | End::Aborted))",
        "        self.failed && matches!(self.state, State::Ended(End::Replied))",
    )
    .held_by("core::calls::tests::tying::a_copy_that_its_server_stopped_of_its_own_accord_as_it_ran_is_followed_only_for_a_token"),
    mutation(
        "a copy that its twin stopped is followed only for a token",
        CALL,
        "        self.failed && matches!(self.state, State::Ended(End::Replied | End::Aborted))",
        "        matches!(self.state, State::Ended(End::Replied | End::Aborted))",
    )
    .held_by("core::calls::tests::tying::a_copy_that_its_twin_stopped_is_followed_without_a_token_too_if_the_twin_is_lost"),
    mutation(
        "a retry is planned of which nobody could be asked",
        RETRY,
        "        let may_be = call.was_only_refused() && call.is_any_to_be_forgiven();",
        "        let may_be = call.was_only_refused() && (call.is_any_to_be_forgiven() || true);",
    )
    .held_by("core::calls::tests::retrying::no_retry_is_planned_of_which_no_replica_could_be_asked"),
    mutation(
        "who broke long ago is waited for as long as who broke just now",
        STRAND,
        "        back.max().map_or(until, |back| back.min(until))",
        "        back.max().map_or(until, |back| back.max(until))",
    )
    .held_by("core::calls::tests::stranding::one_whose_connection_broke_is_waited_for_since_it_broke_and_not_since_the_call_was_failed"),
    mutation(
        "who stopped a copy of its own accord is asked again",
        FRAMES,
        "        self.end_unanswered(slot, n, end, (!by_twin).then_some(error), now);",
        "        let asked = by_twin || ended.how == How::Aborted;\n        self.end_unanswered(slot, n, end, (!asked).then_some(error), now);",
    ),
    mutation(
        "a reply that does not say how fresh it is is fresh enough",
        FRAMES,
        "            brought.fresh.is_some_and(|fresh| fresh.satisfies(&asked))",
        "            brought.fresh.is_none_or(|fresh| fresh.satisfies(&asked))",
    ),
    mutation(
        "a stale answer is the end of its call",
        FRAMES,
        "                let done = self.hold_and_carry_on(slot, n, error, now);",
        "                let done = Some(self.win(slot, n, Err(error), now));",
    ),
    mutation(
        "a copy in the place of another asks for no freshness",
        EXTRA,
        "        self.launch(slot, place, Cause::Redispatch, now);",
        "        self.slots.get_mut(slot).options.fresh = None;\n        self.launch(slot, place, Cause::Redispatch, now);",
    ),
    mutation(
        "a call that must not run twice is given up when one replica refuses it",
        EXTRA,
        "        if !call.may_repeat() && !call.never_ran() {",
        "        if !call.may_repeat() {",
    ),
    mutation(
        "what waits in a replica's queue counts as time that it serves",
        C3,
        "        let service = (response - load.wait.as_secs_f64()).max(1e-6);",
        "        let service = response.max(1e-6);",
    )
    .held_by("core::c3::tests::what_waits_in_its_queue_is_no_part_of_what_it_takes_to_serve"),
    mutation(
        "a replica of which nothing is known is overrun",
        C3,
        "            return if in_flight == 0 { 0.0 } else { f64::MAX };",
        "            return 0.0;",
    )
    .held_by("core::c3::tests::a_replica_of_which_nothing_is_known_gets_one_copy_to_see"),
    mutation(
        "of all replicas the last is taken, and not the best by what answers take",
        PICK,
        "            PickRule::C3 { .. } => drawn[0] = self.better(replicas, [drawn[0], place], now),",
        "            PickRule::C3 { .. } => drawn[0] = place,",
    )
    .held_by("core::pick::tests::the_best_of_all_by_what_answers_take_is_taken_and_one_that_is_new_is_not_flooded"),
    mutation(
        "hedging goes on however much waits on the servers",
        FRAMES,
        "        self.note(slot, Event::Reply { queued: reply.load.queued });",
        "        self.note(slot, Event::Reply { queued: 0 });",
    )
    .held_by("core::calls::tests::switching::servers_that_say_how_much_waits_there_switch_hedging_off"),
    mutation(
        "hedges that win are not seen to",
        ENDS,
        "(Ok(()), Some(Winner { cause: Cause::Hedge, .. })) => self.note(slot, Event::Won),",
        "(Ok(()), Some(Winner { cause: Cause::Hedge, .. })) => {}",
    )
    .held_by("core::calls::tests::switching::hedges_that_win_leave_hedging_on"),
    mutation(
        "calls that fail are not seen to",
        ENDS,
        "(Err(error), _) if is_trouble(error.kind) => self.note(slot, Event::Failed),",
        "(Err(error), _) if is_trouble(error.kind) => {}",
    )
    .held_by("core::calls::tests::switching::calls_that_fail_switch_hedging_off"),
    mutation(
        "hedges that fall due are not counted",
        EXTRA,
        "        self.methods.hedging(call.class, call.policy).guard.note(Event::Due);",
        "        let _ = (&mut self.methods, Event::Due);",
    )
    .held_by("core::calls::tests::switching::far_more_hedges_than_the_percentile_implies_switch_hedging_off"),
    mutation(
        "a replica that comes back is as warm as it was",
        CALLS,
        "        replica.warm_since = None;",
        "        // It is as warm as it was.",
    )
    .held_by("core::calls::tests::balancing::a_replica_that_comes_back_warms_up_to_its_share_from_its_first_call_on"),
    mutation(
        "a report of load is gone by until the next",
        BEGIN,
        "        replica.uses = replica.uses.saturating_sub(1);",
        "        replica.uses = replica.uses.saturating_sub(0);",
    )
    .held_by("core::calls::tests::balancing::a_replica_is_hot_by_what_it_and_others_report_until_its_report_is_used_up"),
    mutation(
        "a copy to a far replica is expected as soon as one to a near one",
        BEGIN,
        "        let kind = call.kind.at(replica.placement.distance);",
        "        let kind = call.kind;",
    )
    .held_by("core::calls::tests::placing::calls_of_another_class_size_label_or_distance_do_not_teach_the_delay"),
    mutation(
        "who gives up before any answer came says what copies take",
        METHODS,
        "        if self.typical == 0.0 { 1.0 } else { nanos(span) as f64 / self.typical }",
        "        nanos(span) as f64 / self.typical.max(1.0)",
    )
    .held_by("core::methods::tests::a_copy_that_nobody_waited_for_does_not_say_what_copies_take"),
    mutation(
        "a call that follows another policy has none of its method's limits",
        POLICIES,
        "        own.or(others).unwrap_or_default()",
        "        let _ = others;\n        own.unwrap_or_default()",
    )
    .held_by("core::calls::tests::fresh::a_call_that_follows_another_policy_is_judged_and_bounded_as_all_of_its_method"),
    mutation(
        "a call that follows another policy is not judged as its method is",
        POLICIES,
        "        own.or(others)\n",
        "        let _ = others;\n        own\n",
    )
    .held_by("core::calls::tests::fresh::a_call_that_follows_another_policy_is_judged_and_bounded_as_all_of_its_method"),
    mutation(
        "of the results that are too old the oldest is kept",
        FRAMES,
        "order(known) >= order(fresh)",
        "order(known) <= order(fresh)",
    )
    .held_by("core::calls::tests::fresh::the_freshest_of_the_results_that_are_too_old_is_told_of_and_ends_the_call_as_stale"),
    mutation(
        "where all replicas are taken out a call is too large for them",
        REPLICAS,
        "        self.most_taken().is_some_and(|most| size > most)",
        "        self.most_taken().is_none_or(|most| size > most)",
    )
    .held_by("core::calls::tests::stranding::while_all_replicas_are_taken_out_there_is_none_which_is_not_to_say_that_a_call_is_too_large"),
    mutation(
        "what came with an error that weighs less is told of another",
        FRAMES,
        "status != Status::Ok && error.kind == kind_of(status)",
        "status != Status::Ok && error.kind == error.kind",
    )
    .held_by("core::calls::tests::fates::a_reply_that_ends_a_call_is_the_callers_only_if_it_tells_of_the_error_that_weighs_most"),
    mutation(
        "a deadline that passes while no replica is up is no missed one",
        ENDS,
        "now >= deadline || error.kind == ErrorKind::DeadlineExceeded",
        "error.kind == ErrorKind::DeadlineExceeded",
    )
    .held_by("core::calls::tests::stranding::the_deadline_ends_the_wait_before_patience_and_the_error_says_what_for"),
    mutation(
        "a call for which there is no other replica is denied a token",
        EXTRA,
        "            && self.any_could_take(slot, |_| true)\n",
        "",
    )
    .held_by("core::calls::tests::stranding::a_call_that_all_failed_is_denied_nothing_as_there_is_none_to_ask"),
    mutation(
        "a call is idempotent though its replica says that its method is not",
        REPEAT,
        "        self.idempotent && promise.idempotent\n",
        "        self.idempotent || promise.idempotent && false\n",
    )
    .held_by("core::calls::tests::unlike::a_copy_that_may_have_run_is_followed_only_where_nobody_denies_that_it_may_run_twice"),
    mutation(
        "a copy follows one that may have run where its method must not run twice",
        REPEAT,
        "        self.is_idempotent_by(promise) && runs().all(Copied::is_idempotent)\n",
        "        self.is_idempotent_by(promise)\n",
    )
    .held_by("core::calls::tests::unlike::what_may_have_run_where_that_is_denied_goes_nowhere"),
    mutation(
        "a replica that moves gets calls where it is once it is connected there again",
        REPLICAS,
        "        self.station.is_some() && !self.leaving && self.membership == Membership::Full",
        "        self.station.is_some() && !self.leaving && !self.is_removed()",
    )
    .held_by("core::calls::tests::placing::a_replica_that_moves_gets_nothing_where_it_is_though_it_is_connected_there_again"),
    mutation(
        "an announced copy is sent to who has begun anew, whatever that says of the method now",
        BEGIN,
        "replica.station == announced && may_be_second {",
        "replica.station == announced {",
    )
    .held_by("core::calls::tests::unlike::a_replica_that_has_begun_anew_and_denies_it_by_now_gets_no_announced_copy"),
    mutation(
        "a replica that has no such method denies that it is idempotent",
        REPLICAS,
        "        let at = methods.binary_search_by_key(&method, |&(number, _)| number).ok()?;\n        let promise = methods[at].1;\n",
        "        let at = methods.binary_search_by_key(&method, |&(number, _)| number);\n        let promise = at.map_or(Promise::default(), |at| methods[at].1);\n",
    )
    .held_by("core::calls::tests::unlike::who_has_no_such_method_denies_nothing_and_has_run_nothing"),
    mutation(
        "a call goes to a replica that is known not to have its method",
        REPLICAS,
        "        self.is_placed_for(method, key) && (!had || self.promise(method).is_some())",
        "        self.is_placed_for(method, key) && (!had || self.promise(method).is_some() || true)",
    )
    .held_by("core::calls::tests::unlike::no_copy_goes_to_a_replica_that_is_known_not_to_have_the_method_while_another_may"),
    mutation(
        "one that has not the method ends the call, whoever else may have it",
        FRAMES,
        "        let verdict = if elsewhere { Verdict::Retryable } else { verdict };",
        "        let _ = elsewhere;",
    )
    .held_by("core::calls::tests::unlike::a_call_of_which_one_has_not_the_method_is_sent_elsewhere_once_and_for_no_token"),
    mutation(
        "a call of which nobody has the method goes round",
        FRAMES,
        "|| call.had && !is_second && self",
        "|| call.had && (!is_second || true) && self",
    )
    .held_by("core::calls::tests::unlike::a_call_of_which_one_has_not_the_method_is_sent_elsewhere_once_and_for_no_token"),
    mutation(
        "copies that follow a pair cost a token in all",
        EXTRA,
        "        let missing = (call.live + call.ran).saturating_sub(call.tokens);",
        "        let missing = u8::from(call.live + call.ran > 0 && call.tokens == 0);",
    )
    .held_by("core::calls::tests::hedging::when_all_replicas_slow_down_executions_stay_within_the_budget_under_every_policy"),
    mutation(
        "the number of a copy is used twice",
        BEGIN,
        "        let n = call.len;\n",
        "        let n = if call.live == 0 { call.len.saturating_sub(1) } else { call.len };\n        call.len = n;\n",
    ),
    mutation(
        "a copy that follows is tied to one of those before",
        BEGIN,
        "Copied { cause, replica: place, ..Copied::UNUSED };",
        "Copied { cause, replica: place, tied: call.tied, ..Copied::UNUSED };",
    ),
    mutation(
        "a loser that was told that its twin started is not told that its caller is done",
        ENDS,
        "                    self.cancel_copy(slot, n);\n",
        "                    let call = self.slots.get(slot);\n                    if !call.copies().iter().any(|copy| copy.relayed) {\n                        self.cancel_copy(slot, n);\n                    }\n",
    )
    .held_by("core::calls::tests::tying::a_start_is_relayed_to_the_twin_with_its_reason_and_origin_and_once"),
    mutation(
        "a hedge goes out that can't be back in time",
        EXTRA,
        "        if call.deadline - now <= delay + hedge.least_useful {",
        "        if call.deadline - now <= (delay + hedge.least_useful) * 0 {",
    )
    .held_by("core::calls::tests::hedging::no_hedge_when_too_little_time_would_be_left"),
    mutation(
        "what is tried in thought claims to win against what nobody knows",
        SHADOW,
        "                None => self.unknown += 1,",
        "                None => took = delay,",
    )
    .held_by("core::shadow::tests::without_another_replica_to_go_by_nothing_is_claimed"),
    mutation(
        "where all replicas have become slow at once no hedge goes to any",
        REPLICAS,
        "        self.slowness > SLOW * least.max(1.0)",
        "        self.slowness > SLOW * (least * 0.0).max(1.0)",
    )
    .held_by("core::calls::tests::placing::where_all_replicas_become_slow_at_once_hedges_go_to_them_all_the_same"),
    mutation(
        "who waits is not looked at when a replica turns out to be nearer",
        CALLS,
        "self.all_due |= self.in_line > 0 && before.is_some_and(|before| rtt < before);",
        "let _ = before;",
    )
    .held_by(
        "core::calls::tests::room::a_replica_that_turns_out_to_be_nearer_gets_the_call_that_waits_for_another",
    ),
    mutation(
        "a second replica without the method ends the call though a third copy is out",
        FRAMES,
        "        call.live > 0 || call.is_any_to_be_forgiven() || by_another()",
        "        call.is_any_to_be_forgiven() || by_another()",
    )
    .held_by("core::calls::tests::unlike::a_second_copy_that_finds_no_such_method_leaves_the_call_to_a_third_that_is_out"),
    mutation(
        "a replica without the method ends a call that others refused",
        FRAMES,
        "        call.live > 0 || call.is_any_to_be_forgiven() || by_another()",
        "        call.live > 0 || by_another()",
    )
    .held_by("core::calls::tests::retrying::a_call_that_all_refused_but_one_that_has_not_the_method_is_tried_again_at_those"),
    mutation(
        "a replica without the method is asked again when the call is retried",
        RETRY,
        "        State::Ended(End::Replied) => !copy.executed && !copy.lacks_method,",
        "        State::Ended(End::Replied) => !copy.executed,",
    )
    .held_by("core::calls::tests::retrying::a_call_that_all_refused_but_one_that_has_not_the_method_is_tried_again_at_those"),
    mutation(
        "that a replica has not the method weighs as much as that another refused",
        ENDS,
        "        ErrorKind::NoSuchMethod => 0,",
        "        ErrorKind::NoSuchMethod => 1,",
    )
    .held_by("core::calls::tests::retrying::a_refusal_is_told_rather_than_that_another_has_not_the_method"),
    mutation(
        "a replica that has not the method is held to be well",
        FRAMES,
        "            (Status::NoSuchMethod, _) => {}\n",
        "",
    )
    .held_by("core::calls::tests::placing::a_replica_that_has_not_the_method_is_neither_ejected_nor_readmitted_for_that"),
];
