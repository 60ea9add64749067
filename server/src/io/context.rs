//! What a handler knows of the call that it runs, and how it hears that nobody waits any more.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;
use std::vec::Vec;

use bowline_protocol::{Attempt, Cause, Freshness, Key, Label, Method, OptionSet, Parent, Request};
use bowline_protocol::{TraceContext, TrafficClass};
use bowline_time::Instant;

use super::once::{Ledger, Transaction};
use super::service::Failure;
use super::tally::Row;
use crate::core::{CopyKey, Start, StopReason};

/// What is said to a call that is to have an effect once and has no key.
const NO_KEY: &str = "the call has no key, and this method has its effect once for each: give it one \
                      (`Call::key`), and the same one when asking again; nothing was done";

/// Which of a call's copies one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The call's first, or of a tied pair the one that goes on if both have started.
    Primary,
    /// Of a tied pair the one that stops if both have started.
    Secondary,
    /// Sent as an earlier copy was slow.
    Hedge,
    /// Sent as no copy was alive any more.
    Redispatch,
}

/// The call that a handler runs. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Context {
    facts: Rc<Facts>,
    token: CancelToken,
}

/// What does not change while a handler runs. It stays where it is: a context moves with its
/// handler's future, through every future that this one is made of.
#[derive(Clone, Copy, Debug)]
struct Facts {
    request: Request,
    options: OptionSet,
    class: TrafficClass,
    deadline: Instant,
    waited: Duration,
}

impl Context {
    pub(super) fn request(&self) -> &Request {
        &self.facts.request
    }

    /// What its answer counts for.
    pub(super) fn row(&self) -> Row {
        Row {
            method: self.method(),
            class: self.facts.class,
            tenant: self.facts.options.label,
            cache: self.token.stops.label_of(self.token.copy),
        }
    }

    /// What is asked for.
    pub fn method(&self) -> Method {
        self.facts.request.method
    }

    /// The copy's name.
    pub fn attempt(&self) -> Attempt {
        self.facts.request.attempt
    }

    /// Which of the call's copies it is.
    pub fn role(&self) -> Role {
        match self.facts.request.cause {
            Cause::Hedge => Role::Hedge,
            _ if !self.facts.request.is_primary() => Role::Secondary,
            Cause::Redispatch => Role::Redispatch,
            Cause::First => Role::Primary,
        }
    }

    /// What the call is to bring about once, however often it comes, if its caller gave it a key.
    pub fn key(&self) -> Option<Key> {
        self.facts.options.key
    }

    /// The call's class; 0 if its caller named none.
    pub fn class(&self) -> TrafficClass {
        self.facts.options.class.unwrap_or_default()
    }

    /// The trace that the call belongs to, if it does to one.
    pub fn trace(&self) -> Option<TraceContext> {
        self.facts.options.trace
    }

    /// Whom the call is for, if its caller said so.
    pub fn label(&self) -> Option<&str> {
        self.facts.options.label.as_ref().map(Label::as_str)
    }

    /// What the reply is to say of where it came from, such as "hit" or "disk". A caller that
    /// understands no options gets the reply without it. What was said last counts.
    pub fn label_reply(&self, label: Label) {
        self.token.stops.say(self.token.copy, |says| says.label = Some(label));
    }

    /// How fresh the answer has to be, if the caller asked. What its service says that it
    /// [holds](super::Service::freshness) is enough, or the copy would not have been started: this is
    /// for handlers that know better.
    pub fn freshness_asked(&self) -> Option<Freshness> {
        self.facts.options.fresh
    }

    /// What the reply is to say of how fresh it is, in the place of what the service held when the
    /// handler was started. A caller takes no reply that is less than it asked for. What was said
    /// last counts.
    pub fn date_reply(&self, fresh: Freshness) {
        self.token.stops.say(self.token.copy, |says| says.fresh = Some(fresh));
    }

    /// Has an effect once for this call's key: runs it in a transaction that also keeps the key and
    /// the result, or, if the key is there already, returns the result that is kept with it. It is
    /// durable when this returns. The method should be declared as
    /// [keyed](bowline_protocol::MethodInfo::keyed).
    ///
    /// The effect runs on the ledger's thread, one after another, and should be short. Once it
    /// was handed over it is had, though nobody may wait for it any more.
    ///
    /// # Errors
    ///
    /// The effect's own, and then nothing of it remains; a bad request, if the call has no key or
    /// its key was used for something else; a failure, if the store fails or the effect panics. The
    /// methods of a [declared](super::Typed) service pass it on by `?`.
    pub async fn once<R: Into<Vec<u8>>>(
        &self,
        ledger: &Ledger,
        effect: impl FnOnce(&mut Transaction<'_>) -> Result<R, Failure> + Send + 'static,
    ) -> Result<Vec<u8>, Failure> {
        match self.key() {
            Some(key) => ledger.once(key, self.method(), effect).await,
            None => Err(Failure::bad_request(NO_KEY)),
        }
    }

    /// When the caller stops waiting, by the clock of this core's runtime.
    pub fn deadline(&self) -> Instant {
        self.facts.deadline
    }

    /// How much of the caller's patience is left.
    pub fn remaining(&self) -> Duration {
        self.facts.deadline - bowline_runtime::clock_now()
    }

    /// How long the copy waited in the queue.
    pub fn waited(&self) -> Duration {
        self.facts.waited
    }

    /// Whether nobody needs the answer any more: the handler may return [`Failure::stopped`].
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Waits until nobody needs the answer any more.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// A token to hand on to whatever the handler makes others do.
    pub const fn token(&self) -> &CancelToken {
        &self.token
    }
}

/// What the calls inherit that a handler makes.
impl Parent for Context {
    fn deadline(&self) -> Instant {
        self.facts.deadline
    }

    fn is_extra(&self) -> bool {
        self.facts.request.is_extra()
    }

    fn trace(&self) -> Option<TraceContext> {
        self.facts.options.trace
    }

    fn poll_cancelled(&self, waker: &Waker) -> Poll<()> {
        self.token.poll_cancelled(waker)
    }
}

/// Says whether a copy's answer is still needed. Clones are cheap.
#[derive(Clone)]
pub struct CancelToken {
    copy: CopyKey,
    stops: Rc<Stops>,
}

impl CancelToken {
    /// Whether nobody needs the answer any more; so it is, too, once the copy has ended.
    pub fn is_cancelled(&self) -> bool {
        !self.stops.is_wanted(self.copy)
    }

    /// Waits until nobody needs the answer any more.
    pub async fn cancelled(&self) {
        poll_fn(|task| self.poll_cancelled(task.waker())).await;
    }

    /// As [`CancelToken::cancelled`], for futures written by hand.
    pub fn poll_cancelled(&self, waker: &Waker) -> Poll<()> {
        self.stops.poll(self.copy, waker)
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("is_cancelled", &self.is_cancelled()).finish()
    }
}

/// Which running copies were asked to stop, who waits for that, and what their replies are to say.
pub(super) struct Stops(RefCell<Vec<Stop>>);

#[derive(Default)]
struct Stop {
    /// The copy that runs at this place.
    copy: Option<CopyKey>,
    /// What is known of it, or was of the one before.
    facts: Option<Rc<Facts>>,
    why: Option<StopReason>,
    says: Says,
    waiting: Vec<Waker>,
}

/// What a copy's reply is to say of itself.
#[derive(Clone, Copy, Default)]
struct Says {
    /// Where it came from.
    label: Option<Label>,
    /// How fresh it is, if the handler knows.
    fresh: Option<Freshness>,
    /// What it says otherwise, as of when the handler was started. What the service held later the
    /// handler may not have seen.
    dated: Option<(Freshness, Instant)>,
}

impl Says {
    fn options(&self, now: Instant) -> OptionSet {
        let fresh = self.fresh.or_else(|| self.dated.map(|(dated, at)| dated.aged(now - at)));
        OptionSet { label: self.label, fresh, ..OptionSet::NONE }
    }
}

impl Stop {
    /// Keeps what is known of a copy in the memory of the one before, if nobody looks at that.
    fn keep(&mut self, facts: Facts) -> Rc<Facts> {
        let kept = self.facts.get_or_insert_with(|| Rc::new(facts));
        *Rc::make_mut(kept) = facts;
        kept.clone()
    }
}

impl Stops {
    pub(super) const fn new() -> Stops {
        Stops(RefCell::new(Vec::new()))
    }

    /// A copy starts. Returns what its handler is told of it.
    pub(super) fn begin<P>(self: &Rc<Self>, start: &Start<P>, now: Instant) -> Context {
        let Start { copy, request, options, class, deadline, waited, dated, .. } = *start;
        let mut stops = self.0.borrow_mut();
        if stops.len() <= copy.index() {
            stops.resize_with(copy.index() + 1, Stop::default);
        }
        let stop = &mut stops[copy.index()];
        stop.copy = Some(copy);
        stop.why = None;
        stop.says = Says { dated: dated.map(|dated| (dated, now)), ..Says::default() };
        let facts = stop.keep(Facts { request, options, class, deadline, waited });
        Context { facts, token: CancelToken { copy, stops: self.clone() } }
    }

    /// A copy is to stop.
    pub(super) fn ask(&self, copy: CopyKey, why: StopReason) {
        self.change(copy, |stop| stop.why = Some(why));
    }

    /// A copy's reply is to say that.
    fn say(&self, copy: CopyKey, say: impl FnOnce(&mut Says)) {
        let mut stops = self.0.borrow_mut();
        if let Some(stop) = stops.get_mut(copy.index()).filter(|stop| stop.copy == Some(copy)) {
            say(&mut stop.says);
        }
    }

    /// What a copy's reply says of where it came from, so far.
    fn label_of(&self, copy: CopyKey) -> Option<Label> {
        let stops = self.0.borrow();
        stops.get(copy.index()).filter(|stop| stop.copy == Some(copy))?.says.label
    }

    /// A copy has ended. Returns what its reply is to say of itself.
    pub(super) fn end(&self, copy: CopyKey, now: Instant) -> OptionSet {
        let mut says = Says::default();
        self.change(copy, |stop| {
            stop.copy = None;
            says = stop.says;
        });
        says.options(now)
    }

    /// Changes a copy's entry, and wakes who waited for that.
    fn change(&self, copy: CopyKey, change: impl FnOnce(&mut Stop)) {
        let mut waiting = {
            let mut stops = self.0.borrow_mut();
            let Some(stop) = stops.get_mut(copy.index()) else { return };
            if stop.copy != Some(copy) {
                return;
            }
            change(stop);
            std::mem::take(&mut stop.waiting)
        };
        // Nothing is borrowed while wakers run. The list goes back for its memory.
        waiting.drain(..).for_each(Waker::wake);
        if let Some(stop) = self.0.borrow_mut().get_mut(copy.index())
            && stop.waiting.is_empty()
        {
            stop.waiting = waiting;
        }
    }

    fn is_wanted(&self, copy: CopyKey) -> bool {
        let stops = self.0.borrow();
        stops.get(copy.index()).is_some_and(|stop| stop.copy == Some(copy) && stop.why.is_none())
    }

    fn poll(&self, copy: CopyKey, waker: &Waker) -> Poll<()> {
        if !self.is_wanted(copy) {
            return Poll::Ready(());
        }
        let mut stops = self.0.borrow_mut();
        let waiting = &mut stops[copy.index()].waiting;
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        Poll::Pending
    }
}
