//! Where a call may be sent that is protected by its key.
//!
//! A key makes an effect happen once in each store of results. So a call which is not idempotent by
//! itself may be sent beside itself, or again once it may have run, only to replicas that keep its
//! result where the first would have kept it: to the same one, or to those of one shared store.

use super::Calls;
use crate::core::call::{Call, Copied, State};
use crate::core::outcome::End;
use crate::core::replicas::{Promise, Replica, Replicas};

impl<P> Call<P> {
    /// It is its key that keeps it from having its effect twice.
    fn is_keyed(&self) -> bool {
        !self.idempotent && self.options.key.is_some()
    }

    /// Somewhere it may run twice.
    pub(crate) fn may_repeat(&self) -> bool {
        self.idempotent || self.options.key.is_some()
    }

    /// Whether a replica allows a second copy of the call, as far as it says.
    pub(crate) fn second(&self) -> impl Fn(&Replica) -> bool + use<P> {
        let (method, keyed) = (self.method, self.is_keyed());
        let safe = move |it: Promise| it.duplicable && if keyed { it.keyed } else { it.idempotent };
        move |replica| safe(replica.promise(method))
    }

    /// The key, if it is all that protects the call, allows a copy at that place besides those that
    /// have been sent.
    pub(crate) fn key_allows(&self, replicas: &Replicas, place: u16) -> bool {
        if !self.is_keyed() {
            return true;
        }
        let keeps = |place| replicas.get(place).promise(self.method).keyed;
        let store = replicas.get(place).placement.results;
        self.copies().iter().filter(|copy| copy.may_run()).all(|copy| {
            // A replica may have another store by now than when the copy went there.
            let one_store = copy.store == store && (store.is_some() || copy.replica == place);
            one_store && keeps(place) && copy.keeps
        })
    }
}

impl Copied {
    /// It may have had its effect, or may have it yet.
    pub(super) fn may_run(&self) -> bool {
        self.is_live() || self.executed || self.state == State::Ended(End::Lost)
    }
}

impl<P> Calls<P> {
    /// The replica of the first copy has its store of results in common with others, or the call does
    /// not need that.
    pub(super) fn first_shares_results(&self, slot: u32) -> bool {
        let call = self.slots.get(slot);
        let first = self.replicas.get(call.copies[0].replica);
        !call.is_keyed() || first.placement.results.is_some()
    }
}
