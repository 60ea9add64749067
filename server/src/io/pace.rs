//! Whose large requests give way, once somebody else needs the room.
//!
//! The room for requests on their way is one for all connections. Without this, a few that send a
//! byte now and then, or that take back what they began and begin anew, could hold all of it for as
//! long as they like. While there is room for all, nobody is hurried.

use std::rc::Rc;

use bowline_protocol::{Attempt, How, PayloadOf};
use bowline_runtime::now;

use super::connection::Connection;
use super::requests::RETRY_AFTER;
use super::service::Service;
use super::shell::Shell;

impl<S: Service> Shell<S> {
    /// Sheds requests on whatever connection, until there is room for one of `total` bytes: those that
    /// come in too slowly, and then those of connections that have several on their way, and more than
    /// this one would have. (A connection's only one stays: large as it may be, it would never come
    /// through beside small ones.)
    ///
    /// For one connection that is looked for no more often than who was refused is to ask again.
    pub(super) fn make_room(self: &Rc<Self>, asks: &Connection<S::Reply>, total: usize) {
        let now = now();
        if self.has_room(total) || now < asks.room_looked.get() + RETRY_AFTER {
            return;
        }
        asks.room_looked.set(now);
        let most = self.limits.transfer_time;
        for connection in self.accepted.borrow().iter().flatten() {
            while !self.has_room(total)
                && let Some(slow) = { connection.assembly.borrow().slow(most, now) }
            {
                self.count(|io| io.requests_slow += 1);
                self.give_way(connection, slow);
            }
        }
        let would_have = asks.assembly.borrow().held() + total;
        while !self.has_room(total)
            && would_have <= self.limits.assembly_share(total)
            && let Some((connection, newest)) = self.has_more_than(would_have)
        {
            self.count(|io| io.requests_displaced += 1);
            self.give_way(&connection, newest);
        }
    }

    /// Of the connections that have several requests on their way the one that has most, if that is
    /// more than so many bytes, and the last of its requests.
    fn has_more_than(&self, bytes: usize) -> Option<(Rc<Connection<S::Reply>>, Attempt)> {
        let accepted = self.accepted.borrow();
        let several = accepted.iter().flatten().filter(|one| one.assembly.borrow().len() > 1);
        let most = several.max_by_key(|one| one.assembly.borrow().held())?;
        let assembly = most.assembly.borrow();
        (assembly.held() > bytes).then_some(())?;
        Some((most.clone(), assembly.newest()?))
    }

    /// Sheds a request that is on its way.
    fn give_way(&self, connection: &Connection<S::Reply>, attempt: Attempt) {
        let forgotten = self.assemble(&mut connection.assembly.borrow_mut(), |assembly| {
            assembly.forget(attempt, PayloadOf::Request)
        });
        let bytes = forgotten.unwrap_or_default() as usize;
        connection.tell_ended(self, attempt, How::Shed, None, bytes);
    }

    fn has_room(&self, total: usize) -> bool {
        self.assembling.get().saturating_add(total) <= self.limits.assembly_room(total)
    }
}
