//! The rules by name, and what is said when one is broken.

use core::fmt;

use crate::kernel::span::Nanos;
use crate::kernel::timeline::Topic;

/// What must hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// Every call completes exactly once.
    CompletesOnce,
    /// Every call completes by its deadline, plus one timer tick.
    CompletesInTime,
    /// A call succeeds with the reply of one of its copies, and fails with the truth about what ran.
    TellsTheTruth,
    /// An error that another copy may better is held while one lives.
    ErrorsAreHeld,
    /// One fault never fails a call that has deadline left and another replica.
    SurvivesOneFault,
    /// While a call waits, a copy is alive, or a timer other than the deadline is armed.
    NeverForgotten,
    /// No number of a copy is used twice within a call.
    FreshNumbers,
    /// Only idempotent calls are sent twice while an earlier copy may run.
    SentOnceUnlessIdempotent,
    /// A call that is not idempotent starts at most once, whatever happens.
    StartsOnceUnlessIdempotent,
    /// An extra copy goes to a replica that has none of this call, live or failed.
    AnotherReplica,
    /// No hedge while the second copy of a pair is announced and unsent.
    NoHedgeBesideUnsentTwin,
    /// A tied copy names a twin that was sent, or will be, or was cancelled in its place.
    TiesMatch,
    /// Nothing is sent for a call that is over, or with more time than its deadline leaves.
    WithinTheDeadline,
    /// Losers are cancelled at once, once; no one else is.
    LosersCancelledOnce,
    /// An accepted copy ends with exactly one frame, on the connection that brought it.
    EndsOnce,
    /// What a server says of a copy's end is what became of it.
    EndsTruly,
    /// Withdrawn, shed and refused copies never ran.
    NeverRan,
    /// Every copy starts at most once, and not after its end.
    StartsOnce,
    /// A copy does not start once its cancel has arrived.
    CancelBeatsStart,
    /// A handler that looks is asked to stop when its caller is done, when its time is over, or its twin
    /// was sent before it and has started.
    StopsWhenAsked,
    /// Nothing starts after its deadline.
    StartsInTime,
    /// A server runs no more copies at once than it has slots.
    WithinSlots,
    /// The cancel of a twin goes out only when its sender starts, in the same turn.
    CancelsOnlyWhenStarting,
    /// Of two tied copies never both are stopped by their twin.
    NeverBothStopped,
    /// Extra copies stay within the budget.
    WithinBudget,
    /// Tokens taken and given back are accounted for.
    TokensReconcile,
    /// Counters add up, and agree with what was seen from outside.
    CountersReconcile,
    /// At rest nothing is left: no call, copy, timer, slot, tombstone.
    NothingLeft,
    /// After the last fault everything resolves, and new calls are served.
    Recovers,
    /// Payloads arrive as they were sent, whatever pieces they came in.
    PayloadsArriveWhole,
    /// A client sends no more than it was granted.
    WithinCredit,
    /// While several traffic classes have copies waiting, each gets its share of the starts.
    ClassesGetTheirShare,
    /// A core runs one copy of a key at a time, and none once one has succeeded; those that came
    /// meanwhile or later are told what that one was told.
    RunsOnceForItsKey,
    /// What is asked for under a key has its effect once in each store of results.
    EffectsOnceInAStore,
    /// A key that was used for something else brings no effect, and no success.
    KeysMeanOneThing,
    /// A copy beside another starts only where running twice does no harm, or where both share the
    /// store of results.
    BesideAnotherOnlyUnharmed,
    /// What wins is in truth as fresh as its call asked.
    AsFreshAsAsked,
    /// Every copy of a call asks for the same freshness, the call's.
    AsksAsItsCall,
    /// A client hears from every reply how fresh that is, if it says so, whether it wins or not.
    HearsHowFresh,
    /// A replica that knows itself behind starts nothing that asks for more.
    StartsNothingBehind,
    /// A copy starts only where there is room for its reply: for its client, and for all.
    StartsOnlyWithRoom,
    /// Where nobody has anything to read and nothing runs, nothing is held back.
    HoldsBackForReadersOnly,
    /// A call of which no copy ran, since servers refused them, is not given up while a server is there
    /// that was not asked: whatever the call is, and whatever the reason.
    AsksElsewhere,
    /// Machines understand every frame that the other sends.
    SpeaksTheProtocol,
}

/// A rule was broken.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which.
    pub rule: Rule,
    /// By which call, if by one.
    pub topic: Option<Topic>,
    /// When.
    pub at: Nanos,
    /// How.
    pub how: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}, at {:.3} us", self.rule, self.how, self.at as f64 / 1e3)
    }
}
