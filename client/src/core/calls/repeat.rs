//! Where a call may have one more copy.
//!
//! What certainly never ran may go anywhere. Beside a copy that may run, or may have run, another does
//! no harm where all of those that have one hold the method to be idempotent, if the call's caller does.
//! (While replicas are replaced by others of another version, they may differ.) Else a key makes its
//! effect happen once in each store of results: it keeps to replicas that keep its result where the
//! first would have kept it: to the same one, or to those of one shared store.

use crate::core::call::{Call, Copied, State};
use crate::core::outcome::End;
use crate::core::replicas::{Promise, Replica};

impl<P> Call<P> {
    /// Somewhere it may have one more copy, whatever became of those before.
    pub(super) fn may_repeat(&self) -> bool {
        let runs = || self.copies().iter().filter(|copy| copy.may_run());
        self.options.key.is_some() || self.idempotent && runs().all(Copied::is_idempotent)
    }

    /// The replica has not failed the call, and one more copy does no harm there.
    pub(super) fn may_try(&self, place: u16, replica: &Replica) -> bool {
        !self.was_failed_by(place) && self.is_safe_at(place, replica)
    }

    /// One more copy does no harm there.
    pub(super) fn is_safe_at(&self, place: u16, replica: &Replica) -> bool {
        let Some(promise) = replica.promise(self.method) else { return true };
        let runs = || self.copies().iter().filter(|copy| copy.may_run());
        let store = replica.placement.results;
        let keyed = self.options.key.is_some() && promise.keyed;
        let is_kept_there = |copy: &Copied| {
            // A replica may have another store by now than when the copy went there.
            let one_store = copy.store == store && (store.is_some() || copy.replica == place);
            one_store && keyed && copy.is_kept()
        };
        self.is_idempotent_by(promise) && runs().all(Copied::is_idempotent)
            || runs().all(is_kept_there)
    }

    /// The service allows a second copy, and so does the replica of the first.
    pub(super) fn allows_second(&self) -> bool {
        let first = self.copies[0].promise.unwrap_or_default();
        let keyed = self.options.key.is_some() && first.keyed;
        !self.single && first.duplicable && (self.is_idempotent_by(first) || keyed)
    }

    /// The replica of the first copy has its store of results in common with others, or the call does
    /// not need that.
    pub(super) fn shares_results(&self) -> bool {
        let first = &self.copies[0];
        first.store.is_some() || self.is_idempotent_by(first.promise.unwrap_or_default())
    }

    /// Its caller holds it to be idempotent, and who says that does not say otherwise.
    pub(super) const fn is_idempotent_by(&self, promise: Promise) -> bool {
        self.idempotent && promise.idempotent
    }
}

impl Copied {
    /// It may have had its effect, or may have it yet. (A replica that has no such method answers so.)
    pub(super) fn may_run(&self) -> bool {
        let may = self.is_live() || self.state == State::Ended(End::Lost);
        self.executed || may && self.promise.is_some()
    }

    /// Its replica holds the method to be idempotent.
    fn is_idempotent(&self) -> bool {
        self.promise.is_some_and(|it| it.idempotent)
    }

    /// Its replica keeps the results of the method by their keys.
    fn is_kept(&self) -> bool {
        self.promise.is_some_and(|it| it.keyed)
    }
}
