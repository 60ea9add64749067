//! What a client's tasks and futures share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bowline_protocol::{Error, Freshness, Label};
use bowline_runtime::payload::{Payload, Pool};
use bowline_runtime::{Instant, Notify};
use slab::Slab;

use super::config::Config;
use super::line::Line;
use super::methods::Methods;
use super::reply::{Failure, Reply};
use super::spans::Spans;
use crate::core::{CallKey, Calls, ConfigError, Done, Effect, Spec};

/// Someone who waits for a call.
struct Waiter {
    call: Option<CallKey>,
    /// None once it was woken.
    waker: Option<Waker>,
    age: Age,
    /// The freshest result that was older than it asked.
    older: Option<Answer>,
    result: Option<(Done, Option<Answer>)>,
}

/// How old a call's result may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Age {
    /// No older than it asks.
    Asked,
    /// Older, for want of such.
    OrOlder,
    /// As it comes: there was none such.
    Any,
}

/// What a reply brought that ended a call.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) payload: Payload,
    pub(super) label: Option<Label>,
    pub(super) fresh: Option<Freshness>,
}

/// One core's client.
pub(super) struct Shell {
    pub(super) state: RefCell<State>,
    pub(super) pool: Rc<Pool>,
    /// The timer task's next wake-up has come nearer, or there is something to be told in a log.
    pub(super) sooner: Notify,
    /// A connection came or went.
    pub(super) changed: Notify,
    /// The time that was seen last; for those who can't ask the runtime, as it may be gone.
    pub(super) latest: Cell<Instant>,
}

pub(super) struct State {
    pub(super) calls: Calls<Payload>,
    /// By replica id.
    pub(super) lines: Vec<Option<Rc<Line>>>,
    pub(super) methods: Methods,
    waiters: Slab<Waiter>,
    /// Whom to wake once nothing is borrowed.
    woken: Vec<Waker>,
    /// When the timer task wakes up.
    pub(super) armed: Instant,
    /// What went wrong last with the connection to each replica that is not there, by its id.
    pub(super) last_errors: BTreeMap<u16, String>,
    /// Spans, if anybody wants them.
    spans: Option<Spans>,
}

impl Shell {
    pub(super) fn new(mut calls: Calls<Payload>) -> Shell {
        let spans = Spans::new();
        if spans.is_some() {
            calls.tell_ends();
        }
        let state = State {
            calls,
            lines: Vec::new(),
            methods: Methods::default(),
            waiters: Slab::new(),
            woken: Vec::new(),
            armed: Instant::FAR_FUTURE,
            last_errors: BTreeMap::new(),
            spans,
        };
        Shell {
            state: RefCell::new(state),
            pool: Rc::new(Pool::default()),
            sooner: Notify::new(),
            changed: Notify::new(),
            latest: Cell::new(Instant::EPOCH),
        }
    }

    /// Follows what the configuration says of methods, and what of the rest can change.
    pub(super) fn follow(&self, config: &Config) -> Result<(), ConfigError> {
        let mut state = self.state.borrow_mut();
        let State { methods: known, calls, .. } = &mut *state;
        let core = calls.follow(&config.core);
        known.follow(&config.methods, calls).and(core)
    }

    /// The time of this turn.
    pub(super) fn now(&self) -> Instant {
        let now = bowline_runtime::now();
        self.latest.set(now);
        now
    }

    /// Begins a call, and returns its place among the waiters.
    pub(super) fn start(
        &self,
        spec: Spec<Payload>,
        age: Age,
        now: Instant,
        context: &Context<'_>,
    ) -> Result<(usize, CallKey), Error> {
        let mut state = self.state.borrow_mut();
        let waker = Some(context.waker().clone());
        let waiter = Waiter { call: None, waker, age, older: None, result: None };
        let place = state.waiters.insert(waiter);
        match state.calls.start(now, Spec { tag: place as u64, ..spec }) {
            Ok(call) => {
                state.waiters[place].call = Some(call);
                drop(state);
                self.pump();
                Ok((place, call))
            }
            Err(error) => {
                state.waiters.remove(place);
                Err(error)
            }
        }
    }

    /// The result of the call at that place, if it is there.
    pub(super) fn poll(&self, place: usize, context: &Context<'_>) -> Poll<Result<Reply, Failure>> {
        let mut state = self.state.borrow_mut();
        let waiter = &mut state.waiters[place];
        let Some((done, answer)) = waiter.result.take() else {
            let same = waiter.waker.as_ref().is_some_and(|w| w.will_wake(context.waker()));
            if !same {
                waiter.waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        };
        let Waiter { age, older, .. } = state.waiters.remove(place);
        let (outcome, is_older) = (done.outcome, age == Age::Any);
        Poll::Ready(match (done.result, answer, older) {
            (Ok(()), Some(answer), _) => Ok(Reply { answer, is_older, outcome }),
            (Ok(()), None, _) => {
                let answer = Answer { payload: self.pool.copy(&[]), label: None, fresh: None };
                Ok(Reply { answer, is_older, outcome })
            }
            (Err(_), _, Some(answer)) => Ok(Reply { answer, is_older: true, outcome }),
            (Err(error), answer, None) => {
                let payload = answer.map(|answer| answer.payload);
                Err(Failure { error, payload, outcome: Some(outcome) })
            }
        })
    }

    /// Nobody waits at that place any more.
    pub(super) fn forget(&self, place: usize, call: CallKey) {
        let mut state = self.state.borrow_mut();
        let waiter = state.waiters.remove(place);
        let cancelled = waiter.result.is_none() && state.calls.cancel(call, self.latest.get());
        if let Some(spans) = &mut state.spans {
            spans.let_go(call);
        }
        drop((state, waiter));
        if cancelled {
            self.pump();
        }
    }

    /// Carries out all that the machine wants done.
    pub(super) fn pump(&self) {
        let mut state = self.state.borrow_mut();
        state.carry_out(self.latest.get());
        let sooner = state.calls.next_timeout().is_some_and(|next| next < state.armed);
        // Nobody whom a log may fail but the timers' task: it is woken for what is to be told, too.
        let sooner = sooner || state.calls.has_notice();
        let mut woken = match state.woken.is_empty() {
            true => Vec::new(),
            false => std::mem::take(&mut state.woken),
        };
        drop(state);
        if sooner {
            self.sooner.notify();
        }
        if !woken.is_empty() {
            woken.drain(..).for_each(Waker::wake);
            // The place is kept for the next time.
            self.state.borrow_mut().woken = woken;
        }
    }
}

impl State {
    /// How many futures wait for their result.
    pub(super) fn futures(&self) -> usize {
        self.waiters.len()
    }

    /// How many calls have open spans.
    pub(super) fn spans(&self) -> usize {
        self.spans.as_ref().map_or(0, Spans::open)
    }

    fn carry_out(&mut self, now: Instant) {
        while let Some(effect) = self.calls.poll_effect() {
            match effect {
                Effect::Send { replica, call, request } => {
                    let line = self.lines[usize::from(replica.0)].as_ref();
                    let (Some(payload), Some(options), Some(line)) =
                        (self.calls.payload(call), self.calls.options(call), line)
                    else {
                        continue;
                    };
                    if let Some(spans) = &mut self.spans {
                        spans.sent(replica, &request, now);
                    }
                    let size = payload.len() as u32;
                    let taken = line.request(request, options, payload, now);
                    self.calls.on_backlog(replica, line.backlog());
                    if !taken {
                        self.calls.on_cut(replica, request.attempt, size, now);
                    }
                }
                Effect::Cancel { replica, cancel } => {
                    if let Some(line) = &self.lines[usize::from(replica.0)]
                        && let Some(size) = line.cancel(cancel)
                    {
                        self.calls.on_cut(replica, cancel.attempt, size, now);
                    }
                }
                Effect::Done(done) => self.deliver(done, None),
            }
        }
        if let Some(spans) = &mut self.spans {
            while let Some(end) = self.calls.poll_end() {
                spans.ended(end);
            }
        }
    }

    /// Keeps a result that is older than was asked, if who waits makes do with that.
    pub(super) fn keep_older(&mut self, call: CallKey, tag: u64, answer: impl FnOnce() -> Answer) {
        let waiter = self.waiters.get_mut(tag as usize);
        if let Some(waiter) = waiter.filter(|it| it.call == Some(call) && it.age == Age::OrOlder) {
            waiter.older = Some(answer());
        }
    }

    /// Hands a result to who waits for it.
    pub(super) fn deliver(&mut self, done: Done, answer: Option<Answer>) {
        if let Some(spans) = &mut self.spans {
            spans.done(&done);
        }
        let waiter = self.waiters.get_mut(done.tag as usize);
        if let Some(waiter) = waiter.filter(|waiter| waiter.call == Some(done.call)) {
            waiter.result = Some((done, answer));
            self.woken.extend(waiter.waker.take());
        }
    }
}
