//! What a server's machine may get wrong.

use super::{Mutation, mutation};

const ARRIVE: &str = "server/src/core/arrive.rs";
const CANCEL: &str = "server/src/core/cancel.rs";
const DISPATCH: &str = "server/src/core/dispatch.rs";
const END: &str = "server/src/core/end.rs";
const LEDGER: &str = "server/src/io/once/ledger.rs";
const COPIES: &str = "server/src/core/copies.rs";
const TOMBS: &str = "server/src/core/tombs.rs";
const CORE: &str = "server/src/core/mod.rs";
const BY_KEY: &str = "server/src/core/keyed.rs";
const KEYS: &str = "server/src/core/keys.rs";
const SHARES: &str = "server/src/core/shares.rs";
const MAKE_ROOM: &str = "server/src/core/room.rs";
const CONFIG: &str = "server/src/core/config.rs";
const FRESH: &str = "server/src/core/fresh.rs";
const ACCOUNT: &str = "server/src/core/account.rs";
const HOLD: &str = "server/src/core/hold.rs";
const UNREAD: &str = "server/src/core/unread.rs";
const CLIENTS: &str = "server/src/core/clients.rs";

pub(super) const ALL: &[Mutation] = &[
    mutation(
        "a twin's cancel names the call's other copy wrongly",
        DISPATCH,
        "attempt: attempt.sibling(tie.twin.n),",
        "attempt,",
    ),
    mutation(
        "a running copy is stopped in silence",
        END,
        "        let by = running.twin_started.filter(|_| running.stop == Some(StopReason::TwinStarted));\n        self.tell_ended(asker, How::Aborted, by);",
        "        let _ = asker;",
    ),
    mutation(
        "a queued copy ends in silence",
        END,
        "            self.tell_ended(asker, why.how(), by);\n        }\n    }\n\n    /// Takes away a copy",
        "            let _ = (asker, by);\n        }\n    }\n\n    /// Takes away a copy",
    ),
    mutation(
        "a copy's end is told twice",
        END,
        "            self.tell_ended(asker, why.how(), by);\n        }\n    }\n\n    /// Takes away a copy",
        "            self.tell_ended(asker, why.how(), by);\n            self.tell_ended(asker, why.how(), by);\n        }\n    }\n\n    /// Takes away a copy",
    ),
    mutation(
        "the twin is cancelled before the last check that can refuse",
        DISPATCH,
        "            let refused = self.shed_if_useless(index, now)",
        "            if let Some(tie) = self.copies.at(index).request.tie {\n                self.tell_twin(index, tie, now);\n            }\n            let refused = self.shed_if_useless(index, now)",
    ),
    mutation(
        "the twin is cancelled before it is known that there is room for the reply",
        DISPATCH,
        "            match self.room_for_reply(index) {",
        "            if let Some(tie) = self.copies.at(index).request.tie {\n                self.tell_twin(index, tie, now);\n            }\n            match self.room_for_reply(index) {",
    )
    .held_by("core::tests::hold::a_copy_that_is_held_back_tells_no_twin_and_its_twin_may_run"),
    mutation(
        "copies start for a client however much waits for it",
        UNREAD,
        "        if of_client > 0 && of_client",
        "        if false && of_client > 0 && of_client",
    )
    .held_by("core::tests::hold::who_has_not_read_is_held_back_until_it_has_and_nobody_else_is"),
    mutation(
        "who has had its share has all others wait until it has read",
        UNREAD,
        "            return Room::NotOfClient;",
        "            return if self.fits(more) { Room::NotOfClient } else { Room::NotOfAll };",
    )
    .held_by("core::tests::hold::who_has_had_its_share_has_nobody_else_wait"),
    mutation(
        "copies start however much waits for all clients",
        UNREAD,
        "        if self.fits(more) || of_client",
        "        if true || self.fits(more) || of_client",
    )
    .held_by("core::tests::hold::a_quarter_of_the_room_is_left_for_replies_that_are_longer_than_expected"),
    mutation(
        "replies are forgotten as long as they are not made",
        CLIENTS,
        "            self.change_room(index, unread, expected + copies.at(copy).expected);",
        "            self.change_room(index, unread, expected);",
    )
    .held_by("core::tests::hold::replies_count_before_they_are_made"),
    mutation(
        "what is held back counts as load",
        CORE,
        "            queued: u16::try_from(self.copies.startable())",
        "            queued: u16::try_from(self.copies.queued())",
    )
    .held_by("core::tests::hold::what_is_held_back_is_no_load"),
    mutation(
        "the time for which a copy is held back counts as its wait for a slot",
        DISPATCH,
        "        self.estimate.started(for_a_slot);",
        "        self.estimate.started(for_a_slot.max(waited));",
    )
    .held_by("core::tests::hold::what_is_held_back_is_no_load"),
    mutation(
        "a hold that a running copy's end is the end of counts as a wait for a slot",
        END,
        "        self.copies.clients.set_time(now);\n",
        "",
    )
    .held_by("core::tests::hold::who_waits_for_its_own_running_copy_is_no_load"),
    mutation(
        "who has read counts as having waited for a slot meanwhile",
        CLIENTS,
        "        of.held_until = self.now;\n",
        "",
    )
    .held_by("core::tests::hold::who_has_read_has_not_waited_for_a_slot_meanwhile"),
    mutation(
        "who is held back now and then hides an overload",
        COPIES,
        "        next.chain(since).min()",
        "        since.or(next.min())",
    )
    .held_by("core::tests::hold::who_is_held_back_now_and_then_hides_no_overload"),
    mutation(
        "who waited for another's result counts as having waited for a slot",
        COPIES,
        "        copy.queued = self.clients.now();\n",
        "",
    )
    .held_by("core::tests::keys::a_duplicate_that_is_queued_again_has_not_waited_for_a_slot_meanwhile"),
    mutation(
        "what leaves while it is held back counts as having waited for a slot",
        END,
        "            && self.copies.waits_since(index).is_some()",
        "            && (true || self.copies.waits_since(index).is_some())",
    )
    .held_by("core::tests::hold::what_leaves_while_it_is_held_back_says_nothing_of_those_that_wait"),
    mutation(
        "a short reply waits behind those that find no room",
        DISPATCH,
        "            self.copies.clients.turns(class, newest).find(may_pass)",
        "            self.copies.clients.turns(class, newest).next().filter(may_pass)",
    )
    .held_by("core::tests::hold::a_short_reply_passes_those_that_find_no_room"),
    mutation(
        "any reply passes one that is larger and finds no room",
        DISPATCH,
        "            let takes_none = all_but_last || ",
        "            let takes_none = true || ",
    )
    .held_by("core::tests::hold::a_large_reply_is_not_passed_by_smaller_ones_that_take_its_room"),
    mutation(
        "nobody is served once most of the room is taken by those who do not read",
        UNREAD,
        "self.fits(more) || of_client.saturating_add(more) <= spare",
        "self.fits(more) || (of_client.saturating_add(more) <= spare && false)",
    )
    .held_by("core::tests::hold::who_reads_is_served_however_many_others_do_not"),
    mutation(
        "a client is held back for what others' replies are like",
        CLIENTS,
        "        match own {\n            0 => self.unread.expected(method),",
        "        match own * 0 {\n            0 => self.unread.expected(method),",
    )
    .held_by("core::tests::hold::a_client_is_held_back_for_what_its_own_replies_are_like"),
    mutation(
        "a client is held back for what replies were like to who had its place before",
        CLIENTS,
        "        self.means[first..first + methods].fill(0);\n",
        "        let _ = first;\n",
    )
    .held_by("core::tests::hold::a_client_is_held_back_for_what_its_own_replies_are_like"),
    mutation(
        "who reads is never looked at behind many that find no room",
        DISPATCH,
        "            self.copies.clients.look_further();\n",
        "",
    )
    .held_by("core::tests::hold::who_reads_is_served_however_many_others_do_not"),
    mutation(
        "copies that are held back keep the queue from those that could start",
        MAKE_ROOM,
        "        clients.stuck().next().is_some() && others",
        "        clients.stuck().next().is_none() && others",
    )
    .held_by("core::tests::hold::copies_that_are_held_back_give_way_to_one_that_could_start"),
    mutation(
        "copies that are held back give way to others that would be, too",
        MAKE_ROOM,
        "                && self.room_for_new(conn, request, options, known) == Room::Enough\n",
        "",
    )
    .held_by("core::tests::hold::copies_that_are_held_back_give_way_to_one_that_could_start"),
    mutation(
        "copies that are held back give way though that makes too little room",
        MAKE_ROOM,
        "        clients.stuck().next().is_some() && others.saturating_add(bytes) <= self.config.queue_bytes",
        "        clients.stuck().next().is_some() && others < usize::MAX && bytes > 0",
    )
    .held_by("core::tests::hold::copies_that_are_held_back_give_way_to_one_that_could_start"),
    mutation(
        "who may start next waits behind copies that are held back",
        DISPATCH,
        "                    self.hold(index, now);\n                    continue;",
        "                    self.hold(index, now);\n                    break;",
    )
    .held_by("core::tests::hold::who_has_not_read_is_held_back_until_it_has_and_nobody_else_is"),
    mutation(
        "an answer that is remembered is sent without a look for room",
        ARRIVE,
        "            && self.may_answer(conn, considerable(outcome.result.len()))\n",
        "",
    )
    .held_by("core::tests::answers::answers_wait_for_room_however_many_are_asked_for_at_once"),
    mutation(
        "who waited for another's result is answered without a look for room",
        BY_KEY,
        "            if self.copies.at(index).conn.is_some_and(|conn| self.may_answer(conn, bytes)) {",
        "            let _ = bytes;\n            if self.copies.at(index).conn.is_some() {",
    )
    .held_by("core::tests::answers::who_waits_for_anothers_result_is_answered_as_there_is_room_and_does_not_run"),
    mutation(
        "answers count only once they are sent",
        BY_KEY,
        "        self.copies.clients.promise(conn.0, outcome.result.len());",
        "        self.copies.clients.promise(conn.0, outcome.result.len() / usize::MAX);",
    )
    .held_by("core::tests::answers::answers_that_were_queued_count_before_they_are_sent"),
    mutation(
        "an answer that is known is expected to be like others of its method",
        HOLD,
        "        self.expected_of(self.copies.answer_of(index), copy.conn, copy.method)",
        "        self.expected_of(None, copy.conn, copy.method)",
    )
    .held_by("core::tests::answers::an_answer_takes_as_much_room_as_it_is_long_whatever_others_were"),
    mutation(
        "copies that are held back give way to one whose answer has no room",
        HOLD,
        "        self.copies.clients.room(conn.0, self.expected_of(done, Some(conn), known))",
        "        self.copies.clients.room(conn.0, self.expected_of(done.filter(|_| false), Some(conn), known))",
    )
    .held_by("core::tests::answers::copies_give_way_to_one_whose_answer_has_room_and_to_no_other"),
    mutation(
        "an answer passes those that wait for the room that it takes",
        HOLD,
        "        (self.short.is_none() || takes_none) && room",
        "        (self.short.is_none() || takes_none || true) && room",
    )
    .held_by("core::tests::answers::answers_do_not_pass_a_large_reply_whose_room_they_take"),
    mutation(
        "a running copy's own reply has others with its key overlook it",
        END,
        "            let own = conn.map(|conn| (conn.0, result.len()));",
        "            let own = conn.map(|conn| (conn.0, 0));",
    )
    .held_by("core::tests::answers::who_waits_for_anothers_result_is_answered_as_there_is_room_and_does_not_run"),
    mutation(
        "who finds no room for another's result runs",
        BY_KEY,
        "            if status == Status::Ok {\n                self.copies.at_mut(index).wants",
        "            if status == Status::Ok && wanted == u32::MAX {\n                self.copies.at_mut(index).wants",
    )
    .held_by("core::tests::answers::a_result_that_is_not_kept_is_kept_for_those_that_wait_for_it"),
    mutation(
        "a result is forgotten though copies wait for room for it",
        KEYS,
        "            && done.wanted > 0\n",
        "            && done.wanted == u32::MAX\n",
    )
    .held_by("core::tests::answers::a_result_is_not_forgotten_while_a_copy_waits_for_room_for_it"),
    mutation(
        "who waits for room for a remembered result does not keep it",
        COPIES,
        "        if let Some(done) = self.answer_of(index) {",
        "        if let Some(done) = self.answer_of(index).filter(|_| false) {",
    )
    .held_by("core::tests::answers::a_result_is_not_forgotten_while_a_copy_waits_for_room_for_it"),
    mutation(
        "results are kept for those who wait for room, however many",
        KEYS,
        "            && self.owed_bytes + done.outcome.result.len() <= self.owed_most\n",
        "",
    )
    .held_by("core::tests::answers::what_can_not_be_kept_is_told_to_have_been_done_and_does_not_run_again"),
    mutation(
        "a result is kept when the last that waited for it has gone",
        COPIES,
        "            self.keys.unwant(entry);\n",
        "            let _ = entry;\n",
    )
    .held_by("core::tests::answers::a_result_that_is_not_kept_is_kept_for_those_that_wait_for_it"),
    mutation(
        "a copy whose key's call was done is told that it was not",
        END,
        "            if was_done && why.how() == How::Shed {",
        "            if was_done && why.how() == How::Aborted {",
    )
    .held_by("core::tests::answers::whose_time_is_over_before_there_is_room_is_told_that_it_was_done"),
    mutation(
        "who has turns again is not looked at before something happens",
        CLIENTS,
        "                self.released = true;\n",
        "",
    )
    .held_by("core::tests::answers::who_was_held_back_beside_an_answer_is_looked_at_again"),
    mutation(
        "a shortage is over as soon as anything starts",
        HOLD,
        "                if found >= Some(wanted)",
        "                if found >= Some(wanted) || found.is_some()",
    )
    .held_by("core::tests::hold::who_is_refused_for_a_full_queue_is_short_of_room_as_well"),
    mutation(
        "who is refused for a full queue is not short of room",
        ARRIVE,
        "            if matches!(full, Full::Requests | Full::Bytes) {",
        "            if matches!(full, Full::Draining) {",
    )
    .held_by("core::tests::hold::who_is_refused_for_a_full_queue_is_short_of_room_as_well"),
    mutation(
        "who has nothing waiting any more is still held back",
        CLIENTS,
        "                self.release(client);\n",
        "",
    )
    .held_by("core::tests::hold::who_has_nothing_waiting_any_more_is_not_held_back"),
    mutation(
        "who has read since gives way while others still have to",
        MAKE_ROOM,
        "        stuck().find(has_to_read).or_else",
        "        stuck().find(|copy| has_to_read(copy) || true).or_else",
    )
    .held_by("core::tests::hold::who_has_read_since_does_not_give_way_while_others_still_have_to"),
    mutation(
        "a shortage goes on though the answer that it was for has left",
        DISPATCH,
        "                found = found.max(Some(self.expected(index)));\n",
        "                found = found.max(None::<usize>);\n",
    )
    .held_by("core::tests::answers::a_shortage_is_over_once_the_answer_that_had_no_room_has_left"),
    mutation(
        "a shortage never ends if the reply is larger than any room",
        UNREAD,
        "        self.taken == 0 || self.taken.saturating_add",
        "        self.taken.saturating_add",
    )
    .held_by("core::tests::hold::a_shortage_is_over_where_nothing_waits_however_long_the_reply_would_be"),
    mutation(
        "a primary obeys its twin",
        CANCEL,
        "        if primary {",
        "        if primary && false {",
    ),
    mutation(
        "a secondary ignores its twin",
        CANCEL,
        "        if primary {",
        "        if primary || true {",
    ),
    mutation(
        "a tombstone kills another origin's request",
        ARRIVE,
        "self.tombs.take(request.attempt, tie.twin)",
        "(0..8).any(|replica| {\n                let replica = bowline_protocol::ReplicaId(replica);\n                let station = bowline_protocol::Station { replica, core: 0 };\n                self.tombs.take(request.attempt, bowline_protocol::Twin { station, n: tie.twin.n })\n            })",
    ),
    mutation(
        "a cancel is keyed by the call instead of the attempt",
        CANCEL,
        "        let meant = self.copies.named(cancel.attempt, |copy| may_cancel(copy, origin, &cancel));",
        "        let by_call = |copy: &Copy<P>| match (origin, cancel.reason) {\n            (Origin::Mesh(from), CancelReason::TwinStarted { .. }) => {\n                copy.request.tie.is_some_and(|tie| tie.twin.station == from)\n            }\n            _ => may_cancel(copy, origin, &cancel),\n        };\n        let meant =\n            (0..8).find_map(|n| self.copies.named(cancel.attempt.sibling(n), by_call));",
    ),
    mutation(
        "a cancel need not match the copy's own tie",
        CANCEL,
        "copy.request.tie.is_some_and(|tie| tie.twin == by);",
        "copy.request.tie.is_some_and(|tie| tie.twin == by || true);",
    ),
    mutation(
        "no tombstone is ever found",
        TOMBS,
        "                self.remove(index);\n                true\n            }\n            None => false,\n        }\n    }\n\n    /// Takes one",
        "                self.remove(index);\n                false\n            }\n            None => false,\n        }\n    }\n\n    /// Takes one",
    )
    .held_by("core::tests::tombstones::a_copy_whose_twin_has_started_is_withdrawn_as_it_arrives"),
    mutation(
        "cancels from strangers are obeyed",
        CANCEL,
        "        self.stats.cancels_received += 1;\n        let meant",
        "        self.stats.cancels_received += 1;\n        let origin = match (origin, cancel.reason) {\n            (Origin::Stranger, CancelReason::TwinStarted { by }) => Origin::Mesh(by.station),\n            (origin, _) => origin,\n        };\n        let meant",
    ),
    mutation(
        "a client may cancel another's copies",
        CANCEL,
        "    let on_its_connection = |conn: Conn| copy.conn == Some(conn);",
        "    let on_its_connection = |conn: Conn| copy.conn == Some(conn) || true;",
    ),
    mutation(
        "a peer may cancel in another's name",
        CANCEL,
        "            by.station == station && by_its_twin(by)",
        "            { let _ = station; by_its_twin(by) }",
    ),
    mutation(
        "the queue is served before this turn's input is taken in",
        ARRIVE,
        "        self.accept(Copy::new(request, options, known, conn, now, bytes, payload()), class);",
        "        self.accept(Copy::new(request, options, known, conn, now, bytes, payload()), class);\n        self.dispatch(now);",
    ),
    mutation(
        "a deadline is extended on arrival",
        COPIES,
        "            deadline: now + request.remaining,",
        "            deadline: now + request.remaining * 2,",
    ),
    mutation(
        "a copy starts however little time is left",
        DISPATCH,
        "        if !useless || self.config.dark {",
        "        if true {",
    ),
    mutation(
        "one copy too many runs",
        DISPATCH,
        "        while self.copies.running() < self.slots.limit()",
        "        while self.copies.running() <= self.slots.limit()",
    ),
    mutation(
        "a mesh that is down is used",
        DISPATCH,
        "        if self.is_mesh_up(tie.twin.station) {",
        "        if self.is_mesh_up(tie.twin.station) || true {",
    ),
    mutation(
        "nobody is told of a start where there is no mesh",
        DISPATCH,
        "            self.effects.notices.push_back((conn, Notice::Started(Started { attempt }), None));",
        "            let _ = (conn, Notice::Started(Started { attempt }));",
    )
    .held_by("core::tests::ties::without_a_mesh_the_client_is_told_and_relays"),
    mutation(
        "a lost mesh connection is not noticed",
        CORE,
        "            self.mesh.remove(place);",
        "            let _ = place;",
    ),
    mutation(
        "a started copy says that it was withdrawn",
        END,
        "            self.tell_ended(asker, How::Aborted, running.twin_started);",
        "            self.tell_ended(asker, How::Withdrawn, running.twin_started);",
    ),
    mutation(
        "a reply denies that it ran",
        END,
        "        let reply = Reply { attempt, status, executed: true, load: self.load() };",
        "        let reply = Reply { attempt, status, executed: false, load: self.load() };",
    ),
    mutation(
        "an accepted copy is not counted",
        ARRIVE,
        "            self.estimate.accepted(remaining);\n            self.stats.accepted += 1;",
        "            self.estimate.accepted(remaining);\n            self.stats.accepted += 0;",
    ),
    mutation(
        "a tied copy starts on a replica that fell behind, and tells its twin",
        FRESH,
        "        let behind = self.is_behind(&copy.options);",
        "        let behind = self.is_behind(&copy.options) && false;",
    ),
    mutation(
        "a remembered result that waits for room is denied for being behind",
        FRESH,
        "        if !behind || self.copies.answer_of(index).is_some() {",
        "        if !behind {",
    )
    .held_by("core::tests::hold::a_result_that_is_remembered_is_not_too_old_while_it_waits_for_room"),
    mutation(
        "a duplicate runs beside the copy that has its key",
        BY_KEY,
        "            Seen::Running(entry) => {\n                self.stats.keys_waited += 1;",
        "            Seen::Running(_) if key.id < u128::MAX => return false,\n            Seen::Running(entry) => {\n                self.stats.keys_waited += 1;",
    ),
    mutation(
        "what was done under a key is forgotten at once",
        BY_KEY,
        "                self.stats.keys_evicted += self.copies.keys.done(entry, outcome, wanted, now);",
        "                let _ = (outcome, wanted, now);\n                self.copies.keys.forget(entry);",
    ),
    mutation(
        "a key's other payload is answered as the first was",
        KEYS,
        "        if (entry.method, entry.fingerprint) != (method, key.fingerprint) {",
        "        if entry.method != method {",
    ),
    mutation(
        "a failure is remembered under its key",
        BY_KEY,
        "        match status {\n            Status::Ok => {",
        "        match status {\n            _ if now < Instant::FAR_FUTURE => {",
    ),
    mutation(
        "who waits for a key is told nothing when that is done",
        BY_KEY,
        "                self.answer_waiting(index, status, outcome.clone(), now);",
        "                self.copies.forget(index);",
    ),
    mutation(
        "nobody runs in the place of a copy that stopped and had a key",
        BY_KEY,
        "            self.copies.unpark(index);\n        }\n        self.copies.keys.forget(entry);",
        "            self.copies.forget(index);\n        }\n        self.copies.keys.forget(entry);",
    ),
    mutation(
        "a key's result lives on when its time is out",
        KEYS,
        "self.next_timeout().is_some_and(|until| until <= now);",
        "self.next_timeout().is_some_and(|until| until <= now && now == Instant::FAR_FUTURE);",
    )
    .held_by("core::tests::keys::results_are_forgotten_when_their_time_is_out"),
    mutation(
        "all traffic classes have the same share",
        SHARES,
        "self.now + STRIDE / u64::from(self.of(class));",
        "self.now + STRIDE;",
    ),
    mutation(
        "a traffic class saves up what it did not use",
        SHARES,
        "        self.clocks[usize::from(class)].max(self.now)",
        "        self.clocks[usize::from(class)]",
    ),
    mutation(
        "a traffic class that crowds the queue gives no room",
        MAKE_ROOM,
        "        (most != class && crowds).then_some(most)",
        "        (most == class && crowds).then_some(most)",
    )
    .held_by("core::tests::classes::a_full_queue_makes_room_for_the_class_that_has_less_than_its_share"),
    mutation(
        "a class that nobody configured is served after the others",
        CONFIG,
        "        if usize::from(class) < self.shares.len() { class } else { 0 }",
        "        class.min(self.shares.len() as u8 - 1)",
    ),
    mutation(
        "a key across two stores is held to be one",
        ARRIVE,
        "known.rule.keyed && self.config.shared_results && options.key.is_some();",
        "known.rule.keyed && options.key.is_some();",
    )
    .held_by("core::tests::keys::a_keyed_call_may_be_hedged_only_where_results_are_shared"),
    mutation(
        "who waits for a key's result is answered with nothing",
        BY_KEY,
        "            self.answer_waiting(index, status, outcome.clone(), now);",
        "            self.answer_waiting(index, status, Outcome::new(&[], &OptionSet::NONE, now), now);",
    ),
    mutation(
        "a copy that ended without a reply keeps its credit",
        END,
        "        self.effects.notices.push_back((conn, Notice::Ended(ended), Some(bytes)));",
        "        let _ = bytes;\n        self.effects.notices.push_back((conn, Notice::Ended(ended), None));",
    ),
    mutation(
        "credit is given back twice",
        ACCOUNT,
        "            self.granter.give_back(credit);",
        "            self.granter.give_back(credit);\n            self.granter.give_back(credit);",
    )
    .held_by("core::account::tests::credit_is_given_back_only_once_the_kernel_has_the_end_of_a_request"),
    mutation(
        "adaptive slots never hear how long copies hold them",
        END,
        "        self.slots.served(held);",
        "        let _ = held;",
    )
    .held_by("core::tests::classes::as_many_slots_are_used_as_do_good_while_copies_wait_and_no_more_while_none_do"),
    mutation(
        "adaptive slots grow though nobody waits for one",
        DISPATCH,
        "if short.is_none() && self.copies.startable() > 0 {",
        "if short.is_none() {",
    )
    .held_by("core::tests::classes::as_many_slots_are_used_as_do_good_while_copies_wait_and_no_more_while_none_do"),
    mutation(
        "results are kept in their store however old they are",
        LEDGER,
        "now.saturating_sub(oldest.came) > retention.life.as_secs();",
        "retention.life.is_zero() && now > oldest.came;",
    )
    .held_by("io::once::tests::a_result_whose_time_is_out_is_forgotten_when_another_comes"),
    mutation(
        "an answer by key is as fresh as on the first day",
        KEYS,
        "self.fresh.map(|fresh| fresh.aged(now - self.made));",
        "self.fresh.map(|fresh| fresh.aged(now - now));",
    ),
    mutation(
        "what is only to be counted is shed",
        DISPATCH,
        "        if !useless || self.config.dark {",
        "        if !useless {",
    )
    .held_by("core::tests::overload::in_the_dark_nothing_is_refused_or_shed_for_its_time_and_all_is_counted"),
];
