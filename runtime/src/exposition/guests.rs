//! Who is being served: so many at a time, of whom those that say nothing give way to others.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bowline_time::{Instant, Trouble};

use crate::net::TcpStream;
use crate::notify::Notify;
use crate::{now, timeout};

/// So many are served at a time.
pub(super) const GUESTS: usize = 64;
/// Who has come has so long to ask before it gives way to others: many round trips within a data
/// centre.
const MOMENT: Duration = Duration::from_millis(10);

/// Who has come for a page so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Visits {
    /// Connections that were let in.
    pub admitted: u64,
    /// Of those: they had to give way to others, as 64 were being served.
    pub gave_way: u64,
}

/// Who is here, in the order in which they came.
#[derive(Default)]
pub(super) struct Guests {
    here: RefCell<Vec<Guest>>,
    /// Who was let in last has the number of all that were as its name.
    visits: Cell<Visits>,
    left: Notify,
    /// When somebody last had to give way.
    crowded: RefCell<Trouble>,
}

struct Guest {
    name: u64,
    stream: TcpStream,
    since: Instant,
    has_asked: bool,
}

impl Guests {
    /// Lets one in. If as many are here as may be, one gives way: of those that have not asked, who
    /// came first; if all have, who came first of all.
    pub(super) async fn admit(self: &Rc<Self>, stream: TcpStream) -> Place {
        while self.here.borrow().len() == GUESTS {
            let moment = self.next_to_go() - now();
            if moment.is_zero() {
                self.send_away();
            } else {
                // Or until one leaves.
                let _ = timeout(moment, self.left.notified()).await;
            }
        }
        let mut visits = self.visits.get();
        visits.admitted += 1;
        self.visits.set(visits);
        let name = visits.admitted;
        self.here.borrow_mut().push(Guest { name, stream, since: now(), has_asked: false });
        Place { name, guests: self.clone() }
    }

    /// Who has come so far.
    pub(super) fn visits(&self) -> Visits {
        self.visits.get()
    }

    /// Until when the next one to give way may stay.
    fn next_to_go(&self) -> Instant {
        let here = self.here.borrow();
        here.get(place_of_next(&here)).map_or_else(now, |guest| guest.since + MOMENT)
    }

    fn send_away(&self) {
        let mut here = self.here.borrow_mut();
        let place = place_of_next(&here);
        here.remove(place).stream.abort();
        let Visits { admitted, gave_way } = self.visits.get();
        self.visits.set(Visits { admitted, gave_way: gave_way + 1 });
        if self.crowded.borrow_mut().is_news(now()) {
            tracing::warn!(
                GUESTS,
                "as many ask for metrics as are served at a time: who says nothing gives way"
            );
        }
    }
}

fn place_of_next(here: &[Guest]) -> usize {
    here.iter().position(|guest| !guest.has_asked).unwrap_or(0)
}

/// One who is served, until dropped.
pub(super) struct Place {
    name: u64,
    guests: Rc<Guests>,
}

impl Place {
    /// It has said what it wants.
    pub(super) fn has_asked(&self) {
        let mut here = self.guests.here.borrow_mut();
        if let Some(guest) = here.iter_mut().find(|guest| guest.name == self.name) {
            guest.has_asked = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut here = self.guests.here.borrow_mut();
        here.retain(|guest| guest.name != self.name);
        drop(here);
        self.guests.left.notify();
    }
}
