//! Who sends a large request too slowly gives way, once somebody else needs the room.
//!
//! The room for requests on their way is one for all connections. Without this, a few that send a
//! byte now and then could hold all of it for as long as they like. While there is room for all,
//! nobody is hurried.

use std::rc::Rc;

use bowline_protocol::{How, PayloadOf};
use bowline_runtime::now;

use super::requests::RETRY_AFTER;
use super::service::Service;
use super::shell::Shell;

impl<S: Service> Shell<S> {
    /// Sheds requests that come in too slowly, on whatever connection, until there is room for one
    /// of `total` bytes. It is looked for them no more often than who was refused is to ask again.
    pub(super) fn slow_give_way(self: &Rc<Self>, total: usize) {
        let now = now();
        if self.has_room(total) || now < self.paces_looked.get() + RETRY_AFTER {
            return;
        }
        self.paces_looked.set(now);
        let most = self.limits.transfer_time;
        for connection in self.accepted.borrow().iter().flatten() {
            loop {
                if self.has_room(total) {
                    return;
                }
                let Some(attempt) = connection.assembly.borrow().slow(most, now) else { break };
                let forgotten = self.assemble(&mut connection.assembly.borrow_mut(), |assembly| {
                    assembly.forget(attempt, PayloadOf::Request)
                });
                self.count(|io| io.requests_slow += 1);
                let bytes = forgotten.unwrap_or_default() as usize;
                connection.tell_ended(self, attempt, How::Shed, None, bytes);
            }
        }
    }

    fn has_room(&self, total: usize) -> bool {
        self.assembling.get().saturating_add(total) <= self.limits.assembly_bytes
    }
}
