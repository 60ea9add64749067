//! Requests as they come in: whole, or in segments, and perhaps taken back on their way.

use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

use bowline_protocol::assembly::Arrived;
use bowline_protocol::{
    Assembly, Attempt, Cancel, CancelReason, Ended, Frame, How, OptionSet, Options, Overloaded,
    Request, Segment,
};
use bowline_runtime::now;
use bowline_runtime::payload::Payload;

use super::connection::{Connection, End};
use super::service::Service;
use super::shell::Shell;
use crate::core::{Conn, Origin};

/// When to ask again after there was no room for a request's payload: about as long as another
/// payload of the largest size takes to arrive.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(10);

impl<R: Deref<Target = [u8]> + 'static> Connection<R> {
    /// A request came, whole and without options.
    pub(super) fn on_request<S: Service<Reply = R>>(
        &self,
        shell: &Rc<Shell<S>>,
        conn: Conn,
        request: &Request,
        payload: &[u8],
    ) -> Result<(), End> {
        self.check(request, payload.len())?;
        let copy = || shell.payloads.copy(payload);
        let mut core = shell.core.borrow_mut();
        core.on_request(conn, *request, &OptionSet::NONE, payload.len(), copy, now());
        Ok(())
    }

    /// A request with options came, or the beginning of one.
    pub(super) fn on_request_with<S: Service<Reply = R>>(
        &self,
        shell: &Rc<Shell<S>>,
        conn: Conn,
        request: &Request,
        options: &Options<'_>,
        first: &[u8],
    ) -> Result<(), End> {
        let total = options.total().map_or(first.len(), |total| total as usize);
        self.check(request, total)?;
        if options.total().is_none() {
            let (options, copy) = (options.to_set(), || shell.payloads.copy(first));
            shell.look_at_freshness(&options);
            let mut core = shell.core.borrow_mut();
            core.on_request(conn, *request, &options, first.len(), copy, now());
            return Ok(());
        }
        if first.len() < total {
            if shell.core.borrow_mut().on_opening(conn, request, &options.to_set(), total) {
                return Ok(());
            }
            shell.make_room(self, total);
        }
        let memory = shell.payloads.empty(total);
        let budget = shell.budget(self.assembly.borrow().held(), total);
        let arrived = shell.assemble(&mut self.assembly.borrow_mut(), |assembly| {
            assembly.set_budget(budget);
            assembly.open_request(*request, options, first, memory, now())
        })?;
        match arrived {
            Arrived::NoRoom => self.refuse(shell, request.attempt, total),
            arrived => on_arrived(shell, conn, arrived),
        }
        Ok(())
    }

    /// More of a request came.
    pub(super) fn on_segment<S: Service<Reply = R>>(
        &self,
        shell: &Rc<Shell<S>>,
        conn: Conn,
        segment: &Segment,
        bytes: &[u8],
    ) -> Result<(), End> {
        let arrived = shell.assemble(&mut self.assembly.borrow_mut(), |assembly| {
            assembly.segment(segment, bytes, now())
        })?;
        on_arrived(shell, conn, arrived);
        Ok(())
    }

    /// A request is this connection's client's, and within its credit.
    fn check(&self, request: &Request, bytes: usize) -> Result<(), End> {
        if !self.is_of(request.attempt.client) {
            return Err(End::OtherClient);
        }
        Ok(self.out.charge(bytes)?)
    }

    /// There is no room for the payload of a request.
    fn refuse<S: Service<Reply = R>>(&self, shell: &Rc<Shell<S>>, attempt: Attempt, bytes: usize) {
        shell.count(|io| io.requests_no_room += 1);
        let load = shell.core.borrow().load();
        let refusal = Overloaded { attempt, retry_after: RETRY_AFTER, load };
        self.out.end(&Frame::Overloaded(refusal), bytes);
    }

    /// A cancel may stop a copy of which the request is on its way on this connection: true if it
    /// did, and the copy is over.
    fn stop_request<S: Service<Reply = R>>(&self, shell: &Rc<Shell<S>>, cancel: &Cancel) -> bool {
        let stopped =
            shell.assemble(&mut self.assembly.borrow_mut(), |assembly| assembly.stop(cancel));
        let Some(bytes) = stopped else { return false };
        let by = match cancel.reason {
            CancelReason::TwinStarted { by } => Some(by.n),
            CancelReason::CallerDone => None,
        };
        shell.core.borrow_mut().on_cancel_met();
        shell.count(|io| io.requests_withdrawn += 1);
        self.tell_ended(shell, cancel.attempt, How::Withdrawn, by, bytes as usize);
        true
    }

    /// A caller's cancel for a copy of which the reply is on its way: true if it was, and the copy is
    /// over. (Which twin started first does not matter to a reply: it is there.)
    fn stop_reply<S: Service<Reply = R>>(&self, shell: &Rc<Shell<S>>, cancel: &Cancel) -> bool {
        if cancel.reason != CancelReason::CallerDone {
            return false;
        }
        let Some(bytes) = self.out.cut(cancel.attempt) else { return false };
        shell.core.borrow_mut().on_cancel_met();
        shell.count(|io| io.replies_cut += 1);
        self.tell_ended(shell, cancel.attempt, How::Aborted, None, bytes);
        true
    }

    /// Gives up requests whose deadline passed on their way, and those that their sender stopped
    /// sending.
    pub(super) fn shed_late_requests<S: Service<Reply = R>>(&self, shell: &Rc<Shell<S>>) {
        loop {
            let stalled =
                shell.assemble(&mut self.assembly.borrow_mut(), |requests| requests.stalled(now()));
            let Some((attempt, bytes)) = stalled else { break };
            shell.count(|io| io.requests_stalled += 1);
            self.tell_ended(shell, attempt, How::Shed, None, bytes as usize);
        }
        loop {
            let late =
                shell.assemble(&mut self.assembly.borrow_mut(), |requests| requests.expire(now()));
            let Some((attempt, bytes)) = late else { return };
            shell.count(|io| io.requests_late += 1);
            self.tell_ended(shell, attempt, How::Shed, None, bytes as usize);
        }
    }

    pub(super) fn tell_ended<S: Service<Reply = R>>(
        &self,
        shell: &Shell<S>,
        attempt: Attempt,
        how: How,
        by: Option<u16>,
        bytes: usize,
    ) {
        let load = shell.core.borrow().load();
        self.out.end(&Frame::Ended(Ended { attempt, how, by, load }), bytes);
    }
}

/// A request is there whole, or not yet, or nobody waits for it any more.
fn on_arrived<S: Service>(shell: &Rc<Shell<S>>, conn: Conn, arrived: Arrived<Payload>) {
    if let Arrived::Request(request, options, payload) = arrived {
        let bytes = payload.len();
        shell.look_at_freshness(&options);
        shell.core.borrow_mut().on_request(conn, request, &options, bytes, || payload, now());
    }
}

impl<S: Service> Shell<S> {
    /// A cancel came for a copy of which the request or the reply is on its way: true if it was, and
    /// the copy is over. A client's is for what is on its own connection, a peer's for a request on
    /// any.
    pub(super) fn stop_on_its_way(self: &Rc<Self>, origin: Origin, cancel: &Cancel) -> bool {
        match (origin, cancel.reason) {
            (Origin::Client(conn), _) => self.client(conn).is_some_and(|client| {
                client.stop_request(self, cancel) || client.stop_reply(self, cancel)
            }),
            (Origin::Mesh(station), CancelReason::TwinStarted { by })
                if by.station == station && self.assembling.get() > 0 =>
            {
                let accepted = self.accepted.borrow();
                accepted.iter().flatten().any(|client| client.stop_request(self, cancel))
            }
            _ => false,
        }
    }

    /// How much a connection that has so many bytes on their way may have of them, if the next request
    /// has `total`: what is left of the room for those of all connections, and of one's share of it.
    fn budget(&self, held: usize, total: usize) -> usize {
        let left = self.limits.assembly_room(total).saturating_sub(self.assembling.get());
        self.limits.assembly_share(total).min(held + left)
    }

    /// Has something done with a connection's requests that are on their way, and counts what it has
    /// of the room for those of all connections.
    pub(super) fn assemble<T>(
        &self,
        assembly: &mut Assembly<Payload>,
        act: impl FnOnce(&mut Assembly<Payload>) -> T,
    ) -> T {
        let (before, all) = (assembly.held(), self.assembling.get());
        let result = act(assembly);
        self.assembling.set(all - before + assembly.held());
        result
    }

    /// A connection is over, and with it what was on its way.
    pub(super) fn release(&self, assembly: &mut Assembly<Payload>) {
        self.assembling.set(self.assembling.get() - assembly.held());
        *assembly = Assembly::new(0, 0);
    }
}
