//! The true story of every call: what each copy went through, as seen from outside.

use std::collections::{BTreeMap, BTreeSet};

use bowline_protocol::{
    Attempt, Cancel, CancelReason, Cause, Frame, Freshness, How, Request, Status, Twin,
};
use bowline_time::Instant;

use crate::check::allowance::Spent;
use crate::check::rule::{Broken, Rule};
use crate::check::story::{Call, Copy, Heard, Homes, Open, Outcome, There, Way};
use crate::check::verdict::{
    Said, gives_up_untried, is_early, is_forgotten, is_unarmed, judge_cancels, judge_end,
    judge_losers, judge_outcome, judge_send, settled,
};
use crate::kernel::net::{Host, Wire};
use crate::kernel::span::Nanos;
use crate::kernel::timeline::Topic;

/// A call's name: its client and its number.
type CallName = (u64, u64);

/// A call that begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begun {
    /// When it has to be done, in the world's time.
    pub deadline: Nanos,
    /// How many bytes its request has.
    pub size: usize,
    /// Its caller says that it may run twice.
    pub idempotent: bool,
    /// What it has to bring about once.
    pub key: Option<u128>,
    /// How fresh its answer has to be.
    pub asks: Option<Freshness>,
}

/// What calls wait for of which no copy is alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// When their client looks at them next.
    pub next: Option<Nanos>,
    /// How long it lets them wait for a connection; None if some may wait for room, for as long as
    /// that takes.
    pub patience: Option<Nanos>,
}

/// The story of all calls of a world, and the judge of it.
#[derive(Debug, Default)]
pub struct Book {
    calls: BTreeMap<CallName, Call>,
    touched: Vec<CallName>,
    running: BTreeMap<Host, u32>,
    /// Effects that were had, by store and key.
    effects: BTreeSet<(u16, u128)>,
    /// What each client had.
    spent: BTreeMap<u64, Spent>,
    /// Cancels of twins sent in this turn of a server: by whom, and whom they name.
    announced: Vec<(Host, Attempt)>,
    /// Running copies of which the server of this turn heard that they have to stop.
    to_stop: Vec<Attempt>,
    broken: Option<Broken>,
    now: Nanos,
    open: usize,
    retries: bool,
    homes: Homes,
    /// Copies that were started, in all.
    pub starts: u64,
    /// Copies that were sent, in all.
    pub sends: u64,
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that were not begun.
    pub refused: u64,
    /// Pairs of which both copies were started.
    pub double_starts: u64,
}

const fn name(attempt: Attempt) -> CallName {
    (attempt.client.0, attempt.seq.0)
}

const fn topic(name: CallName) -> Topic {
    Topic::Call(name.0, name.1)
}

impl Book {
    /// An empty book; `retries` says whether calls that every server refused may be tried again.
    pub fn new(retries: bool, homes: Homes) -> Book {
        Book { retries, homes, ..Book::default() }
    }

    /// The first rule that was broken, if any.
    pub const fn broken(&self) -> Option<&Broken> {
        self.broken.as_ref()
    }

    /// The world's time moves on.
    pub const fn set_now(&mut self, now: Nanos) {
        self.now = now;
    }

    /// A rule is broken; the first is kept.
    pub fn accuse(&mut self, rule: Rule, topic: Option<Topic>, how: impl Into<String>) {
        if self.broken.is_none() {
            self.broken = Some(Broken { rule, topic, at: self.now, how: how.into() });
        }
    }

    fn blame(&mut self, rule: Rule, attempt: Attempt, how: &str) {
        self.accuse(rule, Some(topic(name(attempt))), format!("{attempt:?} {how}"));
    }

    fn copy(&mut self, attempt: Attempt) -> Option<&mut Copy> {
        let call = self.calls.get_mut(&name(attempt))?;
        call.copies.iter_mut().find(|copy| copy.request.attempt == attempt)
    }

    fn touch(&mut self, name: CallName) {
        if let Some(call) = self.calls.get_mut(&name)
            && !std::mem::replace(&mut call.touched, true)
        {
            self.touched.push(name);
        }
    }

    /// A caller makes a call.
    pub fn began(&mut self, host: Host, (client, seq): CallName, begun: Begun) {
        let Begun { deadline, size, idempotent, key, asks } = begun;
        let retried = self.retries;
        let (copies, done, touched) = (Vec::new(), None, false);
        let news = self.now;
        let effect_in = None;
        let call = Call {
            host,
            size,
            deadline,
            idempotent,
            key,
            asks,
            effect_in,
            retried,
            copies,
            done,
            news,
            touched,
        };
        if self.calls.insert((client, seq), call).is_some() {
            let topic = topic((client, seq));
            self.accuse(Rule::FreshNumbers, Some(topic), "a call's number was used twice");
        }
        self.open += 1;
        self.touch((client, seq));
    }

    /// A client sends a copy; `until` is when its `remaining` will have passed.
    pub fn sent(&mut self, request: &Request, wire: Wire, server: Host, until: Nanos) {
        self.sends += 1;
        let attempt = request.attempt;
        self.touch(name(attempt));
        let Some(call) = self.calls.get_mut(&name(attempt)) else {
            return self.blame(Rule::WithinTheDeadline, attempt, "was sent for no call");
        };
        if call.may_be_retried(request, self.now) {
            call.forgive_refusals();
        }
        let verdict = judge_send(call, request, server, self.homes, until, self.now);
        call.copies.push(Copy {
            request: *request,
            wire,
            server,
            there: There::UnderWay,
            started: false,
            until: None,
            stopped_by_twin: false,
            cancel_arrived: false,
            heard: None,
            wire_gone: false,
            caller_done_sent: false,
            forgiven: false,
            by_key: false,
        });
        if let Some((rule, how)) = verdict {
            self.blame(rule, attempt, how);
        }
    }

    /// A client sends a cancel: of its own, or relayed.
    pub fn client_cancels(&mut self, cancel: &Cancel) {
        let attempt = cancel.attempt;
        if !matches!(cancel.reason, CancelReason::CallerDone) {
            return self.relayed(cancel);
        }
        self.touch(name(attempt));
        let twice = match self.copy(attempt) {
            None => return,
            Some(copy) => std::mem::replace(&mut copy.caller_done_sent, true),
        };
        if twice {
            self.blame(Rule::LosersCancelledOnce, attempt, "was cancelled twice by its caller");
        }
    }

    fn relayed(&mut self, cancel: &Cancel) {
        let CancelReason::TwinStarted { by } = cancel.reason else { return };
        let started = self.copy(cancel.attempt.sibling(by.n)).is_some_and(|twin| twin.started);
        if !started {
            let how = "is cancelled by a client for a twin that has not started";
            self.blame(Rule::CancelsOnlyWhenStarting, cancel.attempt, how);
        }
    }

    /// A copy was taken back before any of it had left.
    pub fn cut(&mut self, attempt: Attempt) {
        self.touch(name(attempt));
        if let Some(copy) = self.copy(attempt) {
            copy.there = There::Ended;
            copy.heard = Some(Heard::Withdrawn);
        }
        self.is_news(name(attempt));
    }

    /// The beginning of a request arrived; it may start until then, by the server's clock and by
    /// the world's.
    pub fn opened(&mut self, attempt: Attempt, until: (Instant, Nanos)) {
        if let Some(copy) = self.copy(attempt)
            && copy.there == There::UnderWay
        {
            copy.there = There::Arriving;
            copy.until = Some(until);
        }
    }

    /// A request arrived whole at its server's machine, and asks for this; the same of its time.
    pub fn arrived(&mut self, attempt: Attempt, asks: Option<Freshness>, until: (Instant, Nanos)) {
        if self.calls.get(&name(attempt)).is_some_and(|call| call.asks != asks) {
            let how = format!("asks for {asks:?}, as its call does not");
            self.blame(Rule::AsksAsItsCall, attempt, &how);
        }
        let Some(copy) = self.copy(attempt) else { return };
        let opened = copy.until;
        if matches!(copy.there, There::UnderWay | There::Arriving) {
            copy.there = There::Queued;
            copy.until = Some(until);
        }
        if opened.is_some_and(|opened| until.1 > opened.1.max(self.now)) {
            let how = "has more time when it is there whole than when it began to come";
            self.blame(Rule::StartsInTime, attempt, how);
        }
    }

    /// A copy is answered with what another copy with its key was answered, or told that it was: which key.
    pub fn answered_by_key(&mut self, attempt: Attempt) -> Option<u128> {
        self.copy(attempt)?.by_key = true;
        self.calls.get(&name(attempt))?.key
    }

    /// A handler had an effect in a store of results.
    pub fn had_effect(&mut self, store: u16, attempt: Attempt) {
        let Some(call) = self.calls.get_mut(&name(attempt)) else { return };
        let before = call.effect_in.replace(store);
        let elsewhere = !call.idempotent && before.is_some_and(|before| before != store);
        if call.key.is_some_and(|key| !self.effects.insert((store, key))) {
            let how = "had an effect that its key had had in this store";
            self.blame(Rule::EffectsOnceInAStore, attempt, how);
        }
        if elsewhere {
            let how = "had an effect, which its call had had in another store";
            self.blame(Rule::EffectsOnceInAStore, attempt, how);
        }
    }

    /// Copies that servers hold or will get, with their twins: for those who would forge cancels.
    pub fn live_copies(&self) -> Vec<(Attempt, Option<Twin>)> {
        let copies = self.calls.values().flat_map(|call| &call.copies);
        let live = |copy: &&Copy| !matches!(copy.there, There::Ended | There::Lost);
        copies
            .filter(live)
            .map(|copy| (copy.request.attempt, copy.request.tie.map(|tie| tie.twin)))
            .collect()
    }

    /// A cancel arrived at a server's machine: on the wire of a client, or on a wire of the mesh
    /// that this server dialled to `peer`. Says whether it has to be obeyed.
    pub fn cancel_arrived(&mut self, server: Host, way: Way, cancel: &Cancel) {
        let Some(copy) = self.copy(cancel.attempt) else { return };
        let twin = copy.request.tie.map(|tie| tie.twin);
        let obeyed = match (way, cancel.reason) {
            (Way::Client(wire), CancelReason::CallerDone) => wire == copy.wire,
            (Way::Client(wire), CancelReason::TwinStarted { by }) => {
                wire == copy.wire && twin == Some(by)
            }
            (Way::Mesh(peer), CancelReason::TwinStarted { by }) => {
                copy.server == server && peer == by.station && twin == Some(by)
            }
            (Way::Mesh(_), CancelReason::CallerDone) | (Way::Stranger, _) => false,
        };
        copy.cancel_arrived |= obeyed && copy.there == There::Queued;
        // Of two that have started the one that was sent first goes on.
        let second = twin.is_some_and(|twin| twin.n < cancel.attempt.n);
        if obeyed
            && copy.there == There::Running
            && (second || matches!(cancel.reason, CancelReason::CallerDone))
        {
            self.to_stop.push(cancel.attempt);
        }
    }

    /// Running copies that the server whose turn this is has to have asked to stop by its end.
    pub fn to_stop(&mut self) -> Vec<Attempt> {
        std::mem::take(&mut self.to_stop)
    }

    /// A server tells a twin's that a copy starts: by the end of the turn it must have.
    pub fn announces(&mut self, server: Host, cancel: &Cancel) {
        if let CancelReason::TwinStarted { by } = cancel.reason {
            self.announced.push((server, cancel.attempt.sibling(by.n)));
        }
    }

    /// A server starts a copy of a method of which it knows whether it may run beside another.
    pub fn starts_beside(&mut self, request: &Request, harmless: bool) {
        let beside = request.tie.is_some() || request.cause == Cause::Hedge;
        if beside && !harmless {
            let how = "was started beside another, and shares no store of results with it";
            self.blame(Rule::BesideAnotherOnlyUnharmed, request.attempt, how);
        }
    }

    /// A server starts a copy.
    pub fn started(&mut self, server: Host, attempt: Attempt, slots: u32, now: Instant) {
        self.starts += 1;
        let running = self.running.entry(server).or_default();
        *running += 1;
        if *running > slots {
            self.blame(Rule::WithinSlots, attempt, "was started, and no slot was free");
        }
        let Some(copy) = self.copy(attempt) else {
            return self.blame(Rule::StartsOnce, attempt, "was started, and never sent");
        };
        let verdict = match copy.there {
            There::Queued if copy.until.is_some_and(|(until, _)| now > until) => {
                Some((Rule::StartsInTime, "was started after its deadline"))
            }
            There::Queued if copy.cancel_arrived => {
                Some((Rule::CancelBeatsStart, "was started although its cancel had arrived"))
            }
            There::Queued => None,
            There::UnderWay | There::Arriving => {
                Some((Rule::StartsOnce, "was started before it arrived"))
            }
            There::Running => Some((Rule::StartsOnce, "was started twice")),
            There::Ended => Some((Rule::StartsOnce, "was started after its end")),
            There::Lost => Some((Rule::StartsOnce, "was started after its connection was gone")),
        };
        copy.there = There::Running;
        copy.started = true;
        let twin = copy.request.tie.map(|tie| tie.twin.n);
        if let Some(twin) = twin
            && self.copy(attempt.sibling(twin)).is_some_and(|twin| twin.started)
        {
            self.double_starts += 1;
        }
        if let Some((rule, how)) = verdict {
            self.blame(rule, attempt, how);
        }
        let call = &self.calls[&name(attempt)];
        let starts = call.copies.iter().filter(|copy| copy.started).count();
        self.spent.entry(attempt.client.0).or_default().extra += u64::from(starts > 1);
        if !call.idempotent && call.key.is_none() && starts > 1 {
            let how = "was started, the second start of a call that is not idempotent";
            self.blame(Rule::StartsOnceUnlessIdempotent, attempt, how);
        }
    }

    /// A handler ended, whatever comes of it.
    pub fn stopped_running(&mut self, server: Host) {
        if let Some(running) = self.running.get_mut(&server) {
            *running = running.saturating_sub(1);
        }
    }

    /// A server says something on a client's connection; `wire` is None if it is closed.
    pub fn server_says(&mut self, wire: Wire, frame: &Frame<'_>) {
        let (attempt, said) = match frame {
            Frame::Started(started) => return self.tells_start(started.attempt),
            Frame::Reply(reply, _) | Frame::ReplyWith(reply, ..) => {
                (reply.attempt, Said::Reply { executed: reply.executed })
            }
            Frame::Ended(ended) => (ended.attempt, Said::Ended { how: ended.how, by: ended.by }),
            Frame::Overloaded(overloaded) => (overloaded.attempt, Said::Refused),
            _ => return,
        };
        let now = self.now;
        let Some(copy) = self.copy(attempt) else {
            return self.blame(Rule::EndsOnce, attempt, "ended, and was never sent");
        };
        let verdict = judge_end(copy, wire, said, now);
        copy.there = There::Ended;
        if let Said::Ended { how, by: Some(by) } = said {
            copy.stopped_by_twin = true;
            self.judge_stop(attempt, how, by);
        }
        if let Some((rule, how)) = verdict {
            self.blame(rule, attempt, how);
        }
    }

    fn tells_start(&mut self, attempt: Attempt) {
        // The copy may start in the same turn, just after the notice: judged at the turn's end.
        if let Some(copy) = self.copy(attempt) {
            let server = copy.server;
            self.announced.push((server, attempt));
        }
    }

    /// A copy was stopped, or withdrawn, in the name of its twin.
    fn judge_stop(&mut self, attempt: Attempt, how: How, by: u16) {
        let twin = self.copy(attempt.sibling(by)).map(|twin| (twin.started, twin.stopped_by_twin));
        let done = self.calls.get(&name(attempt)).is_some_and(|call| call.done.is_some());
        match twin {
            Some((true, false)) => {}
            Some((true, true)) if done => {}
            Some((true, true)) => {
                self.blame(Rule::NeverBothStopped, attempt, "was stopped, and so was its twin");
            }
            _ => {
                let how = format!("{how:?} by #{by}, which never started");
                self.blame(Rule::EndsTruly, attempt, &how);
            }
        }
    }

    /// The turn of a server's machine is over.
    pub fn server_turn_over(&mut self) {
        while let Some((_, by)) = self.announced.pop() {
            if self.copy(by).is_some_and(|copy| !copy.started) {
                let how = "was said to start, and did not start in the same turn";
                self.blame(Rule::CancelsOnlyWhenStarting, by, how);
            }
        }
    }

    /// A frame about a copy arrived at its client's machine; of a reply, what it says of how fresh it
    /// is.
    pub fn client_hears(&mut self, frame: &Frame<'_>, fresh: Option<Freshness>) {
        let (attempt, heard) = match frame {
            Frame::Reply(reply, _) if reply.status == Status::Ok => {
                let asks = self.calls.get(&name(reply.attempt)).and_then(|call| call.asks);
                let enough = |asked| fresh.is_some_and(|fresh| fresh.satisfies(&asked));
                let good = asks.is_none_or(enough);
                (reply.attempt, if good { Heard::Good } else { Heard::Bad })
            }
            Frame::Reply(reply, _) if !reply.executed => (reply.attempt, Heard::Refused),
            Frame::Reply(reply, _) => (reply.attempt, Heard::Bad),
            Frame::Ended(ended) if ended.how.started() && ended.by.is_none() => {
                (ended.attempt, Heard::GaveUp)
            }
            Frame::Ended(ended) if ended.how.started() => (ended.attempt, Heard::Aborted),
            Frame::Ended(ended) if ended.how == How::Shed => (ended.attempt, Heard::Refused),
            Frame::Ended(ended) => (ended.attempt, Heard::Withdrawn),
            Frame::Overloaded(overloaded) => (overloaded.attempt, Heard::Refused),
            _ => return,
        };
        self.touch(name(attempt));
        if let Some(copy) = self.copy(attempt) {
            copy.heard = Some(heard);
        }
        self.is_news(name(attempt));
    }

    fn is_news(&mut self, name: CallName) {
        if let Some(call) = self.calls.get_mut(&name) {
            call.news = self.now;
        }
    }

    /// A client's machine knows that a wire is gone.
    pub fn client_lost_wire(&mut self, wire: Wire) {
        self.for_copies(|copy| copy.wire == wire && copy.alive(), |copy| copy.wire_gone = true);
    }

    /// A server's machine knows that a wire is gone: it drops the copies that came on it.
    pub fn server_lost_wire(&mut self, wire: Wire) {
        let there =
            |copy: &Copy| matches!(copy.there, There::Arriving | There::Queued | There::Running);
        self.for_copies(|copy| copy.wire == wire && there(copy), |copy| copy.there = There::Lost);
    }

    /// A server is gone with all that it held.
    pub fn server_died(&mut self, server: Host) {
        self.running.remove(&server);
        let there = |copy: &Copy| copy.there != There::Ended;
        self.for_copies(
            |copy| copy.server == server && there(copy),
            |copy| copy.there = There::Lost,
        );
    }

    /// A client is gone, and nobody waits for its calls.
    pub fn client_died(&mut self, host: Host) {
        for call in self.calls.values_mut().filter(|call| call.host == host) {
            call.done = call.done.or(Some(self.now));
            call.copies.iter_mut().for_each(|copy| copy.wire_gone = true);
        }
        self.open = self.calls.values().filter(|call| call.done.is_none()).count();
    }

    fn for_copies(&mut self, which: impl Fn(&Copy) -> bool, change: impl Fn(&mut Copy)) {
        let mut touched = Vec::new();
        for (&name, call) in &mut self.calls {
            for copy in call.copies.iter_mut().filter(|copy| which(copy)) {
                change(copy);
                touched.push(name);
            }
        }
        for name in touched {
            self.touch(name);
            self.is_news(name);
        }
    }

    /// A caller does not want the result any more: it must hear nothing.
    pub fn cancelled(&mut self, client: u64, seq: u64) {
        self.touch((client, seq));
        let Some(call) = self.calls.get_mut(&(client, seq)) else { return };
        let twice = call.done.replace(self.now).is_some();
        self.open -= usize::from(!twice);
    }

    /// A caller is told how its call ended, while its client had these connections. It may be `late`
    /// after its deadline, or after its process stood still.
    pub fn done(
        &mut self,
        (client, seq): CallName,
        outcome: Outcome,
        connected: &[Open],
        thawed: Nanos,
        late: Nanos,
    ) {
        self.touch((client, seq));
        let topic = Some(topic((client, seq)));
        let now = self.now;
        let Some(call) = self.calls.get_mut(&(client, seq)) else {
            return self.accuse(Rule::CompletesOnce, topic, "a call ended that never began");
        };
        let twice = call.done.replace(now).is_some();
        self.open -= usize::from(!twice);
        let verdict = judge_outcome(call, outcome);
        let early = is_early(call, outcome);
        let untried = gives_up_untried(call, outcome, connected, now);
        let too_late = now > call.deadline.max(thawed).saturating_add(late);
        match outcome {
            Outcome::Ok(_) => {
                self.succeeded += 1;
                self.spent.entry(client).or_default().good += 1;
            }
            Outcome::Failed(_) => self.failed += 1,
        }
        if twice {
            self.accuse(Rule::CompletesOnce, topic, "the call ended twice");
        }
        if early {
            let how = format!("{outcome:?}, while a copy lives");
            self.accuse(Rule::ErrorsAreHeld, topic, how);
        }
        if untried {
            let how = format!("{outcome:?}, and a server was there that had not been asked");
            self.accuse(Rule::AsksElsewhere, topic, how);
        }
        if let Some(how) = verdict {
            self.accuse(Rule::TellsTheTruth, topic, format!("{outcome:?}, but {how}"));
        }
        if too_late {
            self.accuse(Rule::CompletesInTime, topic, "the call ended after its deadline");
        }
    }

    /// A server was connected to a client, or has granted it more: calls that wait may go on.
    pub fn room_came(&mut self, host: Host) {
        for name in self.waiting(host) {
            self.touch(name);
        }
    }

    /// A client's calls that wait, and have no copy alive.
    pub fn waiting(&self, host: Host) -> Vec<CallName> {
        let waits = |call: &Call| call.host == host && call.done.is_none() && !call.is_alive();
        self.calls.iter().filter(|(_, call)| waits(call)).map(|(&name, _)| name).collect()
    }

    /// The turn of a client's machine is over. A call that waits has a copy alive, unless each server
    /// that the client is connected to has failed it, or has no room for it: then it may wait. If it is
    /// not for room, it does so for as long as its client is patient, and a timer sees to that.
    pub fn client_turn_over(&mut self, host: Host, connected: &[Open], waits: Waits) {
        for name in std::mem::take(&mut self.touched) {
            let Some(call) = self.calls.get_mut(&name) else { continue };
            if call.host != host {
                self.touched.push(name);
                continue;
            }
            call.touched = false;
            let verdict = if call.done.is_some() {
                judge_losers(call)
            } else if is_forgotten(call, connected, self.homes, self.now) {
                Some((Rule::NeverForgotten, "the call waits, and no copy is alive".to_owned()))
            } else if is_unarmed(call, waits) {
                let how =
                    "the call waits, no copy is alive, and no timer but its deadline's is armed";
                Some((Rule::NeverForgotten, how.to_owned()))
            } else {
                judge_cancels(call)
            };
            if call.done.is_some() && call.copies.iter().all(settled) {
                self.calls.remove(&name);
            }
            if let Some((rule, how)) = verdict {
                self.accuse(rule, Some(topic(name)), how);
            }
        }
    }

    /// Every call that this client has begun is over.
    pub fn is_over(&self, host: Host) -> bool {
        self.calls.values().all(|call| call.host != host || call.done.is_some())
    }

    /// That copy is over at its server, for whatever reason.
    pub fn has_ended(&self, attempt: Attempt) -> bool {
        let copies = self.calls.get(&name(attempt)).map(|call| &call.copies);
        let copy = copies.and_then(|it| it.iter().find(|copy| copy.request.attempt == attempt));
        copies.is_none() || copy.is_some_and(|it| matches!(it.there, There::Ended | There::Lost))
    }

    /// How many calls are open.
    pub const fn open(&self) -> usize {
        self.open
    }

    /// What a client had of its budget.
    pub fn spent(&self, client: u64) -> Spent {
        self.spent.get(&client).copied().unwrap_or_default()
    }

    /// What all of them had.
    pub fn spent_in_all(&self) -> Spent {
        let add = |a: Spent, b: &Spent| Spent { extra: a.extra + b.extra, good: a.good + b.good };
        self.spent.values().fold(Spent::default(), add)
    }

    /// Until when a copy may run, by its server's clock.
    pub fn until(&mut self, attempt: Attempt) -> Option<Instant> {
        self.copy(attempt)?.until.map(|(until, _)| until)
    }

    /// Copies that arrived and of which nothing was heard, though everything has come to rest.
    pub fn judge_rest(&mut self) {
        let here = [There::Arriving, There::Queued, There::Running];
        let silent = self
            .calls
            .values()
            .flat_map(|call| &call.copies)
            .find(|copy| here.contains(&copy.there) && !copy.wire_gone);
        if let Some(copy) = silent {
            let attempt = copy.request.attempt;
            self.blame(Rule::EndsOnce, attempt, "was accepted and never ended");
        }
        let mut open = self.calls.iter().filter(|(_, call)| call.done.is_none());
        if let Some((&name, _)) = open.next() {
            self.accuse(Rule::CompletesOnce, Some(topic(name)), "the call never ended");
        }
    }
}
