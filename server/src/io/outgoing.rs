//! What waits for all clients together has a bound, and so has what waits for one that does not read.

use std::rc::Rc;
use std::time::Duration;
use std::vec::Vec;

use bowline_runtime::{Instant, now};

use super::connection::Connection;
use super::sender::GivenUp;
use super::service::Service;
use super::shell::Shell;

/// How often it is looked how much is queued for all connections: so much more than may be is queued
/// as handlers answer in this time.
const OUTGOING_LOOK: Duration = Duration::from_millis(1);

impl<S: Service> Shell<S> {
    /// Sees to it, once a millisecond, that who reads too slowly is disconnected, and that no more is
    /// queued for all clients together than may be: those that keep most of it for longest are
    /// disconnected until it is so.
    pub(super) fn bound_outgoing(&self) {
        let now = now();
        if now < self.outgoing_looked.get() + OUTGOING_LOOK {
            return;
        }
        self.outgoing_looked.set(now);
        let (mut sum, mut readers, mut slow) = (0, 0, Vec::new());
        for connection in self.accepted.borrow().iter().flatten() {
            if connection.out.given_up().is_some() {
                continue;
            }
            let (waiting, is_too_slow) = connection.out.look(self.limits.transfer_time, now);
            match is_too_slow {
                true => slow.push(connection.clone()),
                false => {
                    sum += waiting;
                    readers += usize::from(waiting > 0);
                }
            }
        }
        // A reply's drop is its service's, and runs while nothing is borrowed.
        slow.iter().for_each(|connection| connection.out.give_up(true));
        // Who has less than half of an equal share is not in the way of anybody, for however long; and
        // where too much waits somebody has more than a share.
        let least = (self.limits.outgoing_total / (2 * readers.max(1))).max(1);
        while sum > self.limits.outgoing_total
            && let Some((most, waiting)) = self.keeps_most(least, now)
        {
            most.out.give_up(false);
            sum -= waiting.min(sum);
        }
    }

    /// Of the clients for which at least so much waits, the one that has kept most of it for longest,
    /// and how much that is.
    fn keeps_most(&self, least: usize, now: Instant) -> Option<(Rc<Connection<S::Reply>>, usize)> {
        let accepted = self.accepted.borrow();
        let is_meant = |one: &&Rc<Connection<S::Reply>>| {
            one.out.given_up().is_none() && one.out.waiting() >= least
        };
        let meant = accepted.iter().flatten().filter(is_meant);
        let most = meant.max_by_key(|one| one.out.keeps(now))?;
        Some((most.clone(), most.out.waiting()))
    }

    /// A client was disconnected over what waited for it.
    pub(super) fn tell_given_up(&self, why: GivenUp) {
        let GivenUp { is_slow, waiting, address } = why;
        let what = match is_slow {
            true => "disconnected who reads too slowly",
            false => {
                "disconnected who had kept most waiting for longest, as more than outgoing_total \
                 waits for all"
            }
        };
        match self.reader_lines.allows(now()) {
            true if is_slow => tracing::info!(?address, waiting, "{what}"),
            true => tracing::warn!(?address, waiting, "{what}"),
            false => tracing::debug!(?address, waiting, "{what}"),
        }
    }
}
