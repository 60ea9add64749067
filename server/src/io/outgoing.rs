//! What waits for all clients together has a bound, and so has what waits for one that does not read.

use std::time::Duration;
use std::vec::Vec;

use bowline_runtime::{Instant, now};

use super::connection::{Connection, Side};
use super::sender::GivenUp;
use super::service::Service;
use super::shell::Shell;

/// How often it is looked how much is queued for all connections: so much more than may be is queued
/// as handlers answer in this time.
const OUTGOING_LOOK: Duration = Duration::from_millis(1);

impl<S: Service> Shell<S> {
    /// When to look again how much waits, as the core holds copies back until it is less.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let next = self.outgoing_looked.get() + OUTGOING_LOOK;
        self.core.borrow().is_holding().then_some(next)
    }

    /// Sees to it, once a millisecond, that the core knows what waits for whom, that who reads too
    /// slowly is disconnected, and that no more is queued for all clients together than may be.
    pub(super) fn bound_outgoing(&self) {
        let now = now();
        if now < self.outgoing_looked.get() + OUTGOING_LOOK {
            return;
        }
        self.outgoing_looked.set(now);
        let (mut sum, mut readers, mut slow) = (0, 0, Vec::new());
        // Who is held back may find room that others have left.
        let is_holding = self.core.borrow().is_holding();
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
            self.tell_unread(connection, is_holding);
        }
        // A reply's drop is its service's, and runs while nothing is borrowed.
        slow.iter().for_each(|connection| connection.out.give_up(true));
        // Who has less than half of an equal share is not in the way of anybody, for however long; and
        // where too much waits somebody has more than a share.
        let least = (self.limits.outgoing_total / (2 * readers.max(1))).max(1);
        let (most, patience) = (self.limits.outgoing_total, self.limits.transfer_time);
        if self.core.borrow().short_for(now) >= patience {
            sum = self.give_up_most(sum, most / 2, now, |one| {
                one.out.waiting() >= least && one.out.idle(now) >= patience
            });
        }
        self.give_up_most(sum, most, now, |one| one.out.waiting() >= least);
    }

    /// While more than `most` bytes of `sum` wait for all clients together, disconnects those among
    /// the ones that are meant that have kept most of them for longest. Returns how many still wait.
    fn give_up_most(
        &self,
        mut sum: usize,
        most: usize,
        now: Instant,
        is_meant: impl Fn(&Connection<S::Reply>) -> bool,
    ) -> usize {
        while sum > most {
            let keeps_most = {
                let accepted = self.accepted.borrow();
                let open = accepted.iter().flatten().filter(|one| one.out.given_up().is_none());
                open.filter(|one| is_meant(one)).max_by_key(|one| one.out.keeps(now)).cloned()
            };
            let Some(one) = keeps_most else { break };
            sum -= one.out.waiting().min(sum);
            // A reply's drop is its service's, and runs while nothing is borrowed.
            one.out.give_up(false);
        }
        sum
    }

    /// Tells the core what waits for a client, if that has changed, or anyway.
    pub(super) fn tell_unread(&self, connection: &Connection<S::Reply>, anyway: bool) {
        let (waiting, is_news) = connection.out.unread();
        if let Side::Accepted(conn) = connection.side
            && (is_news || anyway)
        {
            self.core.borrow_mut().on_unread(conn, waiting, now());
        }
    }

    /// A client was disconnected over what waited for it.
    pub(super) fn tell_given_up(&self, why: GivenUp) {
        let GivenUp { is_slow, waiting, address } = why;
        let what = match is_slow {
            true => "disconnected who reads too slowly",
            false => {
                "disconnected who had kept most waiting for longest, as too much of outgoing_total is \
                 taken"
            }
        };
        match self.reader_lines.allows(now()) {
            true if is_slow => tracing::info!(?address, waiting, "{what}"),
            true => tracing::warn!(?address, waiting, "{what}"),
            false => tracing::debug!(?address, waiting, "{what}"),
        }
    }
}
