//! The replicas that one core's client is connected to, which may come and go while it runs.
//!
//! A replica that is taken out, or has moved, gets nothing new from that moment; its connection is
//! closed once all that is out there has ended. Only then is it dialled where it is now. So a change
//! loses no call, if there is another replica to go to meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use bowline_protocol::{Frame, Goodbye, GoodbyeReason, ReplicaId};
use bowline_runtime::{JoinHandle, Stage, sleep, spawn_at, timeout};
use tracing::{info, warn};

use super::config::{Config, Replica};
use super::connection::{self, Terms};
use super::shell::Shell;

/// After this long a connection is closed even with copies out; their calls go on elsewhere. The
/// same as the longest that copies of finished calls are watched, by default.
const MOST_DRAINING: Duration = Duration::from_secs(10);
/// How often it is looked whether all that is out has ended: a change of the set is rare.
const LOOK: Duration = Duration::from_millis(5);

/// Above the numbers of all names.
const ALONE: u32 = 1 << 31;

/// A task that ends with its owner.
struct Owned(JoinHandle<()>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Member {
    id: ReplicaId,
    /// Whom it dials, if not now then soon; None: the replica is not in the set any more.
    wanted: Option<Replica>,
    /// The task that keeps its connection, if there is one.
    kept: Kept,
    /// The task that changes that, the last one only: a change ends the one before it.
    change: Option<Owned>,
}

type Kept = Rc<Cell<Option<Owned>>>;

/// Who dials them, and leaves them.
struct Keeper {
    shell: Rc<Shell>,
    terms: Terms,
}

/// All of them, those included that are being left.
pub(super) struct Members {
    keeper: Rc<Keeper>,
    all: RefCell<Vec<Member>>,
    names: RefCell<Names>,
}

/// Failure domains and stores of results are numbers to the machine: a name has one, of its own and
/// for good, whatever else comes or goes. (What was sent to a replica that is gone is held against
/// the store that it had.)
#[derive(Default)]
struct Names {
    domains: HashMap<String, u32>,
    stores: HashMap<String, u32>,
}

/// The number of a name.
fn number(names: &mut HashMap<String, u32>, name: &str) -> u32 {
    let next = names.len() as u32;
    *names.entry(name.to_owned()).or_insert(next)
}

impl Members {
    pub(super) fn new(shell: Rc<Shell>, terms: Terms) -> Members {
        let keeper = Rc::new(Keeper { shell, terms });
        Members { keeper, all: RefCell::default(), names: RefCell::default() }
    }

    /// Makes these replicas the set.
    pub(super) fn follow(&self, config: &Config) {
        let replicas = &config.replicas;
        self.name(config);
        let mut all = self.all.borrow_mut();
        for member in all.iter_mut() {
            let wanted = replicas.iter().find(|replica| replica.id == member.id);
            let address = |replica: &Replica| replica.address;
            if wanted.map(address) != member.wanted.as_ref().map(address) {
                self.leave(member, wanted.cloned());
            }
        }
        for replica in replicas {
            if !all.iter().any(|member| member.id == replica.id) {
                let kept = Rc::new(Cell::new(Some(self.keeper.keep(replica.clone()))));
                let wanted = Some(replica.clone());
                all.push(Member { id: replica.id, wanted, kept, change: None });
            }
        }
    }

    /// Ends all of its tasks.
    pub(super) fn end(&self) {
        self.all.borrow_mut().clear();
    }

    /// Tells the machine who is there. A replica without a failure domain has one of its own, and one
    /// without a store of results shares none.
    fn name(&self, config: &Config) {
        let mut state = self.keeper.shell.state.borrow_mut();
        let Names { domains, stores } = &mut *self.names.borrow_mut();
        for replica in &config.replicas {
            let domain = match &replica.domain {
                Some(name) => number(domains, name),
                None => ALONE | u32::from(replica.id.0),
            };
            let results = replica.results.as_ref().map(|name| number(stores, name));
            let placement = replica.placement(domain, results, config.spot());
            if let Err(error) = state.calls.place_replica(replica.id, placement) {
                warn!(replica = replica.id.0, "it stays where it was: {error}");
            }
            let places = usize::from(replica.id.0) + 1;
            if state.lines.len() < places {
                state.lines.resize_with(places, || None);
            }
        }
    }

    /// Leaves a replica, to dial it elsewhere or not at all. For one that only moves calls may wait.
    fn leave(&self, member: &mut Member, next: Option<Replica>) {
        // Nothing is borrowed any more as a task is spawned.
        match next {
            Some(_) => self.keeper.shell.state.borrow_mut().calls.move_replica(member.id),
            None => self.keeper.shell.state.borrow_mut().calls.remove_replica(member.id),
        }
        let change = self.keeper.clone().change(member.id, member.kept.clone(), next.clone());
        member.change = Some(Owned(spawn_at(Stage::Input, change)));
        member.wanted = next;
    }
}

impl Keeper {
    fn keep(&self, replica: Replica) -> Owned {
        let kept = connection::keep(self.shell.clone(), replica, self.terms.clone());
        Owned(spawn_at(Stage::Input, kept))
    }

    /// Lets the replica finish what it has, closes the connection that is kept, and dials it where it is
    /// now.
    async fn change(self: Rc<Self>, id: ReplicaId, kept: Kept, next: Option<Replica>) {
        let shell = &self.shell;
        let drained = async {
            while shell.state.borrow().calls.in_flight(id) > 0 {
                sleep(LOOK).await;
            }
        };
        let in_time = timeout(MOST_DRAINING, drained).await.is_ok();
        // Who comes back was left before.
        if kept.take().is_some() {
            info!(replica = id.0, in_time, moved = next.is_some(), "left");
        }
        self.close(id);
        shell.state.borrow_mut().last_errors.remove(&id.0);
        if let Some(replica) = next {
            shell.state.borrow_mut().calls.restore_replica(id);
            kept.set(Some(self.keep(replica)));
        }
    }

    /// Says goodbye, and tells the machine. What was out there is lost to it.
    fn close(&self, id: ReplicaId) {
        let mut state = self.shell.state.borrow_mut();
        if let Some(line) = state.lines[usize::from(id.0)].take() {
            let goodbye = Goodbye { reason: GoodbyeReason::Leaving };
            line.send(&Frame::Goodbye(goodbye, &[]));
            state.calls.on_closed(id, bowline_runtime::now());
        }
        drop(state);
        self.shell.pump();
        self.shell.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_its_number_for_good_whoever_is_named_before_it_later() {
        let mut names = HashMap::new();
        let first = ["y", "x"].map(|name| number(&mut names, name));
        assert_eq!(["x", "z", "y"].map(|name| number(&mut names, name)), [first[1], 2, first[0]]);
    }
}
