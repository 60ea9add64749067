//! Deliberate bugs, each of which the simulated worlds have to find.
//!
//! A mutation is a text to find in a source file, once, and what to put in its place: so the product
//! holds no trace of it. `cargo run -p bowline-tests --bin mutants` builds each in a copy of the
//! project and says what caught it; a test checks that every text is still there.

/// A deliberate bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mutation {
    /// What goes wrong.
    pub name: &'static str,
    /// The file, from the project's root.
    pub file: &'static str,
    /// What is there.
    pub find: &'static str,
    /// What is put there.
    pub replace: &'static str,
}

impl Mutation {
    /// It is in the shells or the runtime, which only run on the simulated driver.
    pub fn is_in_a_shell(&self) -> bool {
        self.file.starts_with("runtime/") || self.file.contains("/io/")
    }

    /// The crate that it is in.
    pub fn package(&self) -> &'static str {
        match self.file.split('/').next() {
            Some("client") => "bowline-client",
            Some("protocol") => "bowline-protocol",
            Some("runtime") => "bowline-runtime",
            _ => "bowline-server",
        }
    }
}

const fn mutation(
    name: &'static str,
    file: &'static str,
    find: &'static str,
    replace: &'static str,
) -> Mutation {
    Mutation { name, file, find, replace }
}

const ARRIVE: &str = "server/src/core/arrive.rs";
const CANCEL: &str = "server/src/core/cancel.rs";
const DISPATCH: &str = "server/src/core/dispatch.rs";
const END: &str = "server/src/core/end.rs";
const COPIES: &str = "server/src/core/copies.rs";
const TOMBS: &str = "server/src/core/tombs.rs";
const CORE: &str = "server/src/core/mod.rs";
const BY_KEY: &str = "server/src/core/keyed.rs";
const KEYS: &str = "server/src/core/keys.rs";
const SHARES: &str = "server/src/core/shares.rs";
const MAKE_ROOM: &str = "server/src/core/room.rs";
const CONFIG: &str = "server/src/core/config.rs";
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
const STRAND: &str = "client/src/core/calls/strand.rs";
const LINES: &str = "client/src/core/calls/lines.rs";
const KEYED: &str = "client/src/core/calls/keyed.rs";
const REPLICAS: &str = "client/src/core/replicas.rs";
const HEALTH: &str = "client/src/core/health.rs";
const GUARD: &str = "client/src/core/guard.rs";
const POLICIES: &str = "client/src/core/policies.rs";
const FRESH: &str = "server/src/core/fresh.rs";
const SENDING: &str = "runtime/src/net/sending.rs";
const RECEIVING: &str = "runtime/src/net/receiving.rs";
const CONNECTION: &str = "server/src/io/connection.rs";
const ACCOUNT: &str = "server/src/core/account.rs";
const OUTBOX: &str = "protocol/src/outbox.rs";
const ASSEMBLY: &str = "protocol/src/assembly.rs";

/// All of them.
pub const MUTATIONS: &[Mutation] = &[
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
        "the rest of a short send is lost",
        SENDING,
        "        batch.taken(taken);",
        "        if taken > 0 {\n            batch.taken(batch.queued());\n        }",
    ),
    mutation(
        "who found no buffer is not asked to receive again",
        RECEIVING,
        "                self.core().parked.borrow_mut().push_back(self.clone());",
        "",
    ),
    mutation(
        "what arrives for a connection that closes keeps its buffer",
        RECEIVING,
        "            false => buffers.release(part),",
        "            false => {}",
    ),
    mutation(
        "the end of a connection leaves its copies where they are",
        CONNECTION,
        "            shell.on_closed(conn);",
        "            let _ = conn;",
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
    ),
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
    ),
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
        "        if call.live == 0 {\n            return self.redispatch(slot, end, now);",
        "        if call.live == 0 && end == End::Lost {\n            return self.redispatch(slot, end, now);",
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
    ),
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
    ),
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
    ),
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
    ),
    mutation(
        "the credit of a request that is not sent is lost",
        ROOM,
        "        self.credit.refund(size as usize);",
        "        let _ = size;",
    ),
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
        "        self.serve_lines(now);\n        match self.admit",
        "        match self.admit",
    ),
    mutation(
        "a large call is passed for ever",
        LINES,
        "        if call.passed >= MOST_PASSED && can_be && replica.kept_for == 0 {",
        "        if false && replica.kept_for == 0 {",
    ),
    mutation(
        "room stays kept for a call that is over",
        LINES,
        "                self.replicas.get_mut(place).kept_for = 0;\n                self.room_came(place);",
        "                self.room_came(place);",
    ),
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
    ),
    mutation(
        "the first copy goes to a replica that is known to be behind",
        CALLS,
        "        let fresh = |replica: &Replica| !replica.is_behind(asked, now);",
        "        let fresh = |replica: &Replica| !replica.is_behind(asked, now) || true;",
    ),
    mutation(
        "a tied copy starts on a replica that fell behind, and tells its twin",
        FRESH,
        "        if !self.is_behind(&self.copies.at(index).options) {",
        "        if !self.is_behind(&self.copies.at(index).options) || true {",
    ),
    mutation(
        "a call with a key has copies at two stores of results",
        KEYED,
        "            one_store && keeps(place) && copy.keeps",
        "            (one_store || true) && keeps(place) && copy.keeps",
    ),
    mutation(
        "a key protects what keeps no results by it",
        KEYED,
        "            one_store && keeps(place) && copy.keeps",
        "            one_store && (keeps(place) && copy.keeps || true)",
    ),
    mutation(
        "the switch for second copies does nothing to calls that begin",
        BEGIN,
        "        } else if !self.config.switch.is_on() {",
        "        } else if !self.config.switch.is_on() && false {",
    ),
    mutation(
        "hedging that switched itself off never comes back",
        GUARD,
        "            if now < until {",
        "            if now < until || true {",
    ),
    mutation(
        "a policy on trial is followed by twice its share",
        POLICIES,
        "Random::new(call).next() >> 32 < running.share =>",
        "Random::new(call).next() >> 32 < 2 * running.share =>",
    ),
    mutation(
        "a replica is never ejected",
        HEALTH,
        "            None if self.failures < rule.after => return false,",
        "            None if self.failures < rule.after || true => return false,",
    ),
    mutation(
        "a replica that was ejected is never readmitted",
        HEALTH,
        "        self.out.take().is_some()",
        "        self.out.is_some()",
    ),
    mutation(
        "a replica is asked what it does not serve",
        REPLICAS,
        "        !self.removed && self.placement.serves(wanted.method, wanted.key)",
        "        !self.removed && (self.placement.serves(wanted.method, wanted.key) || true)",
    ),
    mutation(
        "a duplicate runs beside the copy that has its key",
        BY_KEY,
        "            Seen::Running(entry) => {\n                self.stats.keys_waited += 1;",
        "            Seen::Running(_) if key.id < u128::MAX => return false,\n            Seen::Running(entry) => {\n                self.stats.keys_waited += 1;",
    ),
    mutation(
        "what was done under a key is forgotten at once",
        BY_KEY,
        "                self.stats.keys_evicted += self.copies.keys.done(entry, outcome, now);",
        "                let _ = (outcome, now);\n                self.copies.keys.forget(entry);",
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
        "        while let Some(index) = self.copies.first_parked(entry) {\n            self.answer_waiting(index, status, outcome.clone(), now);",
        "        while let Some(index) = self.copies.first_parked(entry) {\n            self.copies.remove(index);",
    ),
    mutation(
        "nobody runs in the place of a copy that stopped and had a key",
        BY_KEY,
        "            self.copies.unpark(index);",
        "            self.copies.remove(index);",
    ),
    mutation(
        "a key's result lives on when its time is out",
        KEYS,
        "self.next_timeout().is_some_and(|until| until <= now);",
        "self.next_timeout().is_some_and(|until| until <= now && now == Instant::FAR_FUTURE);",
    ),
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
    ),
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
    ),
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
    ),
    mutation(
        "what was taken back before it left is sent nevertheless",
        OUTBOX,
        "        let Some(sending) = at.and_then(|at| self.sending.remove(at)) else {",
        "        let Some(sending) =\n            at.and_then(|at| self.sending.remove(at).filter(|it| it.done.is_some()))\n        else {",
    ),
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
        "a call whose time is over is sent when there is room",
        STRAND,
        "        if self.fail_if_overdue(slot, now) {",
        "        if false && self.fail_if_overdue(slot, now) {",
    ),
    mutation(
        "a call that waits for its retry does not hear of room elsewhere",
        LINES,
        "        if replica.would_fit(call.wanted()) && may {",
        "        if call.is_stranded() && replica.would_fit(call.wanted()) && may {",
    ),
    mutation(
        "who was refused by one need not wait for the room of another",
        STRAND,
        "        self.replicas.iter().any(|(place, it)| it.lacks_room(wanted) && may(place))",
        "        call.len == 0 && self.replicas.iter().any(|(place, it)| it.lacks_room(wanted) && may(place))",
    ),
    mutation(
        "who stopped a copy of its own accord is asked again",
        FRAMES,
        "                (End::Aborted, Some(Error::new(kind, Executed::Yes)))",
        "                let _ = kind;\n                (End::Aborted, None)",
    ),
    mutation(
        "a reply that is not needed any more says nothing of itself",
        ASSEMBLY,
        "(Head::Reply(reply), None) => Arrived::Discarded(reply, self.options),",
        "(Head::Reply(reply), None) => Arrived::Discarded(reply, OptionSet::NONE),",
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
        "                let done = self.hold_and_carry_on(slot, error, now);",
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
        "an answer by key is as fresh as on the first day",
        KEYS,
        "self.fresh.map(|fresh| fresh.aged(now - self.made));",
        "self.fresh.map(|fresh| fresh.aged(now - now));",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_mutation_fits_the_code_as_it_is() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a project around it");
        let mut unfit = Vec::new();
        for mutation in MUTATIONS {
            let source = std::fs::read_to_string(root.join(mutation.file)).expect(mutation.file);
            let found = source.matches(mutation.find).count();
            if found != 1 {
                unfit.push(format!("{} is there {found} times: {}", mutation.file, mutation.name));
            }
        }
        assert!(unfit.is_empty(), "{unfit:#?}");
    }

    #[test]
    fn no_two_mutations_have_one_name() {
        for (n, mutation) in MUTATIONS.iter().enumerate() {
            assert!(MUTATIONS[..n].iter().all(|other| other.name != mutation.name));
        }
    }
}
