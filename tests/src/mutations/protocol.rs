//! What both sides' links and payloads may get wrong.

use super::{Mutation, mutation};

const OUTBOX: &str = "protocol/src/outbox.rs";
const ASSEMBLY: &str = "protocol/src/assembly.rs";
const BACKOFF: &str = "protocol/src/backoff.rs";
const LINK: &str = "protocol/src/link.rs";

pub(super) const ALL: &[Mutation] = &[
    mutation(
        "what was taken back before it left is sent nevertheless",
        OUTBOX,
        "        let Some(sending) = at.and_then(|at| self.take(at)) else {",
        "        let at = at.filter(|&at| self.sending[at].done.is_some());\n        let Some(sending) = at.and_then(|at| self.take(at)) else {",
    ),
    mutation(
        "a short payload waits for the long ones before it",
        OUTBOX,
        "        (0..self.len()).min_by_key(|&at| self.sending[at].left())",
        "        (0..self.len()).next()",
    )
    .held_by("payloads::a_short_payload_goes_past_long_ones_and_the_oldest_of_those_gets_every_other_segment"),
    mutation(
        "a long payload waits for as long as short ones come",
        OUTBOX,
        "        if self.is_oldests_turn && !self.is_empty() {",
        "        if false {",
    )
    .held_by("payloads::a_short_payload_goes_past_long_ones_and_the_oldest_of_those_gets_every_other_segment"),
    mutation(
        "who takes a few bytes in a frame gets each payload in as many frames",
        OUTBOX,
        "            if takes.frame >= LEAST_FRAME {",
        "            if takes.frame > 0 {",
    )
    .held_by("payloads::a_payload_that_the_peer_does_not_take_is_refused_before_it_is_sent"),
    mutation(
        "segments of a payload that was given up end the connection",
        ASSEMBLY,
        "            return Ok(Arrived::Skipped);",
        "            let (expected, found) = (0, segment.offset);\n            return Err(AssemblyError::Gap { attempt, expected, found });",
    ),
    mutation(
        "a request has as much time when it is whole as when it began to come",
        ASSEMBLY,
        "                let remaining = request.remaining.saturating_sub(now - self.opened);",
        "                let remaining = request.remaining + (now - now);",
    ),
    mutation(
        "the piece of a payload that comes last goes before the others",
        ASSEMBLY,
        "        memory.extend_from_slice(bytes);",
        "        memory.splice(..0, bytes.iter().copied());",
    ),
    mutation(
        "a reply that is not needed any more says nothing of itself",
        ASSEMBLY,
        "(Head::Reply(reply), None) => Arrived::Discarded(reply, self.options),",
        "(Head::Reply(reply), None) => Arrived::Discarded(reply, OptionSet::NONE),",
    ),
    mutation(
        "a link is never given up for its silence",
        LINK,
        "        if self.ping_sent.is_some() || self.ping_owed {\n            return Err",
        "        if false {\n            return Err",
    ),
    mutation(
        "nobody is asked for a sign of life",
        LINK,
        "            (self.heard + self.config.ping_after).min(self.last_ping + self.config.dead_after)",
        "            Instant::FAR_FUTURE",
    ),
    mutation(
        "a hello is waited for for ever",
        LINK,
        "            self.opened + self.config.hello_timeout",
        "            Instant::FAR_FUTURE",
    )
    .held_by("rules::a_server_without_power_is_found_out_by_its_silence_and_costs_no_call"),
    mutation(
        "who is not there is dialled as often as ever",
        BACKOFF,
        "        self.span = self.span.saturating_mul(2).min(self.max);",
        "",
    )
    .held_by("waits::waits_double_up_to_the_cap_and_start_over_after_a_success"),
    mutation(
        "a connection that breaks as soon as it is up is dialled again as if nothing were",
        BACKOFF,
        "                if up >= self.steady {",
        "                if up >= Duration::ZERO {",
    )
    .held_by(
        "waits::who_is_lost_as_soon_as_it_is_there_is_dialled_ever_less_often_and_told_of_once",
    ),
    mutation(
        "the shortest of the last round trips is what one is held to take",
        "protocol/src/rtt.rs",
        "sorted[filled.saturating_sub(2)]",
        "sorted[0]",
    )
    .held_by("links::a_pong_that_nobody_asked_for_says_nothing"),
    mutation(
        "half a mesh counts as up",
        LINK,
        "        self.peer.is_some() && self.acknowledged.is_some()",
        "        self.peer.is_some()",
    )
    .held_by("links::who_has_heard_a_hello_and_not_that_its_own_was_heard_is_not_up"),
    mutation(
        "who obeys no cancels is sent them",
        LINK,
        "        self.is_up() && self.acknowledged.is_some_and(|ack| ack.obeys_cancels)",
        "        self.is_up()",
    )
    .held_by("links::only_the_side_that_dialled_a_configured_peer_obeys_cancels_and_only_when_up"),
    mutation(
        "who is sent to slowly passes for silent",
        LINK,
        "        let goes_on = way.acknowledged < way.arrives && acknowledged > way.acknowledged;",
        "        let goes_on = false;",
    )
    .held_by("links::who_goes_on_acknowledging_what_lies_before_the_ping_is_not_silent_until_that_is_there"),
    mutation(
        "a host that acknowledges passes for a process that lives",
        LINK,
        "        let goes_on = way.acknowledged < way.arrives && acknowledged > way.acknowledged;",
        "        let goes_on = acknowledged > way.acknowledged;",
    )
    .held_by("links::who_goes_on_acknowledging_what_lies_before_the_ping_is_not_silent_until_that_is_there"),
];
