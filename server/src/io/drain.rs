//! What other threads may ask of a core: how it is doing, and to end in good order.

use std::boxed::Box;
use std::rc::Rc;
use std::time::Duration;
use std::vec::Vec;

use bowline_protocol::{Credit, GoodbyeReason};
use bowline_runtime::{JoinHandle, metrics, now, spawn, timeout, timeout_at};
use bowline_time::Instant;

use super::farewell::LAST_WORDS;
use super::mesh::Cores;
use super::server::Collected;
use super::service::Service;
use super::shell::Shell;
use super::stats::{Snapshot, sum};
use crate::core::Histograms;

impl<S: Service> Shell<S> {
    /// Keeps the tasks that accept connections, to end them when the core drains.
    pub(super) fn keep_acceptor(&self, acceptor: JoinHandle<()>) {
        self.acceptors.borrow_mut().push(acceptor);
    }

    /// No copy is here, in whole or in part, and no reply on its way out.
    fn has_nothing_left(&self) -> bool {
        let stats = self.core.borrow().stats();
        let accepted = self.accepted.borrow();
        let mut connections = accepted.iter().flatten();
        stats.queued + stats.running == 0
            && self.assembling.get() == 0
            && connections.all(|connection| connection.out.is_empty())
    }

    /// Nor is one on its way here.
    fn is_left_in_peace(&self) -> bool {
        let accepted = self.accepted.borrow();
        accepted.iter().flatten().all(|connection| connection.is_leave_heard())
    }

    /// Takes on nothing new, waits for what is here until its time is up, and says goodbye.
    async fn drain(self: Rc<Self>, began: Instant) {
        let ends_at = || self.ends_at.get().unwrap_or(began);
        self.acceptors.borrow().iter().for_each(JoinHandle::abort);
        self.core.borrow_mut().drain();
        let connections: Vec<_> = self.accepted.borrow().iter().flatten().cloned().collect();
        connections.iter().for_each(|connection| connection.leave(ends_at() - began));
        while !(self.has_nothing_left() && self.is_left_in_peace()) && now() < ends_at() {
            // What is left when the time is up is told of by the close.
            let _ = timeout_at(ends_at(), self.drained.notified()).await;
        }
        if !self.has_nothing_left() {
            let crate::core::Stats { queued, running, .. } = self.core.borrow().stats();
            tracing::warn!(
                queued,
                running,
                grace = ?(ends_at() - began),
                "a core ends before it has finished, as its grace is over"
            );
        }
        let connections: Vec<_> = self.accepted.borrow().iter().flatten().cloned().collect();
        for connection in &connections {
            connection.out.say_goodbye(GoodbyeReason::Leaving, "the server is shutting down");
        }
        drop(connections);
        let all_closed = async {
            while self.core.borrow().connections() > 0 {
                self.drained.notified().await;
            }
        };
        let _ = timeout(LAST_WORDS, all_closed).await;
        self.over.notify();
    }
}

/// What other threads may ask of a core, on its own thread.
pub(super) trait Inside {
    fn snapshot(&self) -> Snapshot;
    fn collect(&self, spare: Box<Histograms>) -> Collected;
    fn shut_down(self: Rc<Self>, grace: Duration);
}

impl<S: Service> Inside for Shell<S> {
    fn snapshot(&self) -> Snapshot {
        let core = self.core.borrow();
        let (mut credit_left, mut credit_withheld) = <(Credit, Credit)>::default();
        for connection in self.accepted.borrow().iter().flatten() {
            let (left, owed) = connection.out.credit();
            credit_left = sum(credit_left, left);
            credit_withheld = sum(credit_withheld, owed);
        }
        Snapshot {
            copies: core.stats(),
            connections: self.io.get(),
            clients: core.connections(),
            credit_left,
            credit_withheld,
            mesh_up: self.routes.borrow().len(),
            mesh_kept: self.cores.iter().map(Cores::kept).sum(),
            tombstones: core.tombstones(),
            assembling: self.assembling.get(),
        }
    }

    fn collect(&self, spare: Box<Histograms>) -> Collected {
        let mut histograms = spare;
        self.core.borrow_mut().swap_histograms(&mut histograms);
        let core = self.core.borrow();
        Collected {
            slots: core.slots(),
            overloaded: core.is_overloaded(),
            snapshot: self.snapshot(),
            rows: self.tally.rows(),
            runtime: metrics(),
            histograms,
        }
    }

    fn shut_down(self: Rc<Self>, grace: Duration) {
        let began = now();
        let ends_at = began + grace;
        if let Some(told) = self.ends_at.get() {
            self.ends_at.set(Some(told.min(ends_at)));
            self.drained.notify();
            return;
        }
        self.ends_at.set(Some(ends_at));
        if self.station().core == 0 {
            tracing::info!(?grace, "takes on nothing new, and ends");
        }
        drop(spawn(self.drain(began)));
    }
}
