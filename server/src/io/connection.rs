//! One connection: bytes in, frames out of them, each to whom it concerns.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::string::ToString;
use std::task::Poll;
use std::time::Duration;

use bowline_protocol::{
    Assembly, AssemblyError, ClientId, CreditError, Features, Frame, Goodbye, GoodbyeReason, Hello,
    Identity, Inbox, Link, LinkError, LinkEvent, PayloadOf, Peer, Station, WireError,
};
use bowline_runtime::net::{Delivery, Shutdown};
use bowline_runtime::payload::Payload;
use bowline_runtime::{Notify, now, sleep_until, spawn};
use bowline_time::Instant;

use super::mesh;
use super::sender::{GivenUp, Sender};
use super::service::Service;
use super::shell::Shell;
use crate::core::{Conn, Origin};

/// Who made a connection, and for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// It was accepted: from a client, or from a peer that wants to hear this core's cancels.
    Accepted(Conn),
    /// This core dialled it, to hear the cancels of this core of a peer.
    Dialled(Station),
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Link(#[from] LinkError),
    #[error("a frame ({0}) has no place on this connection")]
    Misplaced(&'static str),
    #[error("a request names another client than this connection's hello")]
    OtherClient,
    #[error("another core answered, of {}", .0.ports.len())]
    OtherCore(Hello),
    #[error("{0} cores are more than a replica can have ({max})", max = mesh::MOST_CORES)]
    TooManyCores(usize),
    #[error("{0}")]
    Assembly(#[from] AssemblyError),
    #[error("{0}")]
    Credit(#[from] CreditError),
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("the other side closed it")]
    Closed,
}

impl End {
    /// What to tell the other side.
    fn goodbye(&self) -> Option<Goodbye> {
        match self {
            End::Wire(_) | End::Misplaced(_) | End::OtherClient | End::TooManyCores(_) => {
                Some(Goodbye { reason: GoodbyeReason::Protocol })
            }
            End::Link(error) => error.goodbye(),
            End::Assembly(error) => Some(error.goodbye()),
            End::Credit(error) => Some(error.goodbye()),
            End::OtherCore(_) => Some(Goodbye { reason: GoodbyeReason::Leaving }),
            End::Socket(_) | End::Closed => None,
        }
    }
}

pub(super) struct Connection<R> {
    pub(super) side: Side,
    pub(super) out: Rc<Sender<R>>,
    pub(super) assembly: RefCell<Assembly<Payload>>,
    link: RefCell<Link>,
    /// Since when both sides know each other.
    up_since: Cell<Option<Instant>>,
    /// Whose cancels go out on it, once it is up.
    route: Cell<Option<Station>>,
    /// What its timer is set to.
    alarm: Cell<Instant>,
    /// There is something to look at before that.
    sooner: Notify,
    /// When it was last looked whose requests could give way to its own.
    pub(super) room_looked: Cell<Instant>,
    /// Why this side ended it, if a timer did.
    ended: RefCell<Option<LinkError>>,
}

impl<R: Deref<Target = [u8]> + 'static> Connection<R> {
    pub(super) fn new(
        side: Side,
        out: Rc<Sender<R>>,
        link: Link,
        assembly: Assembly<Payload>,
    ) -> Rc<Connection<R>> {
        Rc::new(Connection {
            side,
            out,
            assembly: RefCell::new(assembly),
            link: RefCell::new(link),
            up_since: Cell::new(None),
            route: Cell::new(None),
            alarm: Cell::new(Instant::FAR_FUTURE),
            sooner: Notify::new(),
            room_looked: Cell::new(Instant::EPOCH),
            ended: RefCell::new(None),
        })
    }

    /// The peer's core that hears cancels on it, by its own account.
    pub(super) fn route(&self) -> Option<Station> {
        self.route.get()
    }

    /// For how long it has been up, if it ever was.
    pub(super) fn up_for(&self) -> Option<Duration> {
        self.up_since.get().map(|since| now() - since)
    }

    /// Sends what the link has to say, and sees to it that the timer is not too late.
    fn transmit(&self) {
        {
            let mut link = self.link.borrow_mut();
            while let Some(frame) = link.poll_transmit(now()) {
                self.out.send(&frame);
                self.follow_ping(&mut link);
            }
        }
        if self.next_timeout() < self.alarm.get() {
            self.sooner.notify();
        }
    }

    /// Sees how far a ping has come that was just written, or was not answered in time.
    fn follow_ping(&self, link: &mut Link) {
        let now = now();
        if link.wants_delivery(now)
            && let Ok(Delivery { acknowledged, outstanding }) = self.out.stream.delivery()
        {
            link.on_delivery(acknowledged, outstanding, now);
        }
    }

    fn next_timeout(&self) -> Instant {
        let requests = self.assembly.borrow().next_timeout();
        requests.unwrap_or(Instant::FAR_FUTURE).min(self.link.borrow().next_timeout())
    }

    /// Tells the other side that this one leaves, within that time.
    pub(super) fn leave(&self, within: Duration) {
        self.link.borrow_mut().leave(within, now());
        self.transmit();
    }

    /// Nothing new comes from a sound other side: it knows that this one leaves.
    pub(super) fn is_leave_heard(&self) -> bool {
        self.link.borrow().is_leave_heard()
    }

    /// Where a twin's cancel on this connection comes from.
    fn origin(&self) -> Origin {
        let link = self.link.borrow();
        match (self.side, link.peer().map(|peer| peer.identity)) {
            (Side::Dialled(_), Some(Identity::Server(station))) if link.obeys_cancels() => {
                Origin::Mesh(station)
            }
            (Side::Accepted(conn), Some(Identity::Client(_))) => Origin::Client(conn),
            _ => Origin::Stranger,
        }
    }

    /// Runs a connection to its end: hello first, then whatever comes. To be run at the stage of
    /// input, so that all that has arrived is applied before anything is decided.
    pub(super) async fn run<S: Service<Reply = R>>(self: &Rc<Self>, shell: &Rc<Shell<S>>) -> End {
        self.transmit();
        let timer = spawn(watch(self.clone(), shell.clone()));
        let features = self.link.borrow().features();
        let mut inbox = Inbox::new(shell.limits.frame_bytes()).with_features(features);
        let end = loop {
            if let Err(end) = self.receive(shell, &mut inbox).await {
                break end;
            }
            self.out.settle();
            self.transmit();
            shell.changed.notify();
        };
        timer.abort();
        let end = self.ended.borrow_mut().take().map_or(end, End::Link);
        self.finish(shell, &end);
        end
    }

    /// Waits for input, and applies all that is there.
    async fn receive<S: Service<Reply = R>>(
        self: &Rc<Self>,
        shell: &Rc<Shell<S>>,
        inbox: &mut Inbox,
    ) -> Result<(), End> {
        let mut lease = self.out.stream.receive().await?.ok_or(End::Closed)?;
        loop {
            self.link.borrow_mut().on_bytes(lease.len(), now());
            let mut frames = inbox.feed(&lease);
            // To the end of the piece also after a goodbye: the next one begins within a frame.
            while let Some(frame) = frames.next()? {
                if !self.out.has_parted() {
                    self.apply(shell, &frame)?;
                }
            }
            match self.out.stream.try_receive() {
                Some(next) => lease = next,
                None => return Ok(()),
            }
        }
    }

    fn apply<S: Service<Reply = R>>(
        self: &Rc<Self>,
        shell: &Rc<Shell<S>>,
        frame: &Frame<'_>,
    ) -> Result<(), End> {
        let event = self.link.borrow_mut().on_frame(frame, now())?;
        match event {
            LinkEvent::Known => self.on_known(shell),
            LinkEvent::Up => {
                self.on_up(shell);
                Ok(())
            }
            LinkEvent::NotMine => self.on_call_frame(shell, frame),
            _ => Ok(()),
        }
    }

    /// The other side said who it is. Where this side dialled, it must be the core it was meant for.
    fn on_known<S: Service<Reply = R>>(&self, shell: &Rc<Shell<S>>) -> Result<(), End> {
        let link = self.link.borrow();
        let (takes, features) = (link.peer_takes(), link.peer_features());
        self.out.peer.set(Peer { takes, features });
        if features.has(Features::CREDIT) && matches!(self.side, Side::Accepted(_)) {
            self.out.count(shell.limits.credit);
        }
        let (Side::Dialled(wanted), Some(hello)) = (self.side, link.peer()) else { return Ok(()) };
        if hello.ports.len() > mesh::MOST_CORES {
            return Err(End::TooManyCores(hello.ports.len()));
        }
        mesh::keep_cores(shell, wanted.replica, hello.ports.len());
        if hello.station() == Some(wanted) { Ok(()) } else { Err(End::OtherCore(hello.clone())) }
    }

    fn on_up<S: Service<Reply = R>>(self: &Rc<Self>, shell: &Rc<Shell<S>>) {
        self.up_since.set(Some(now()));
        let link = self.link.borrow();
        let Some(station) = link.peer().and_then(Hello::station) else { return };
        match self.side {
            Side::Dialled(wanted) => {
                shell.count(|io| io.mesh_dialled += 1);
                mesh::tell_reached(shell, wanted);
            }
            Side::Accepted(_) if link.peer_obeys_cancels() && shell.is_peer(station.replica) => {
                self.route.set(Some(station));
                shell.route_up(station, self);
            }
            Side::Accepted(_) => {}
        }
    }

    fn on_call_frame<S: Service<Reply = R>>(
        &self,
        shell: &Rc<Shell<S>>,
        frame: &Frame<'_>,
    ) -> Result<(), End> {
        match (frame, self.side) {
            (Frame::Request(request, payload), Side::Accepted(conn)) => {
                self.on_request(shell, conn, request, payload)
            }
            (Frame::RequestWith(request, options, first), Side::Accepted(conn)) => {
                self.on_request_with(shell, conn, request, options, first)
            }
            (Frame::Segment(segment, bytes), Side::Accepted(conn))
                if segment.of == PayloadOf::Request =>
            {
                self.on_segment(shell, conn, segment, bytes)
            }
            (Frame::Cancel(cancel), _) => {
                let origin = self.origin();
                if !shell.stop_on_its_way(origin, cancel) {
                    shell.core.borrow_mut().on_cancel(origin, *cancel, now());
                }
                Ok(())
            }
            _ => Err(End::Misplaced(frame.name())),
        }
    }

    /// The other side is this client, as it says.
    pub(super) fn is_of(&self, client: ClientId) -> bool {
        let link = self.link.borrow();
        link.peer().is_some_and(|peer| peer.identity == Identity::Client(client))
    }

    /// Tells all whom it concerns that the connection is over.
    fn finish<S: Service<Reply = R>>(self: &Rc<Self>, shell: &Rc<Shell<S>>, end: &End) {
        shell.count(|io| {
            io.closed += 1;
            match self.out.given_up() {
                Some(GivenUp { is_slow: true, .. }) => io.slow_readers += 1,
                Some(_) => io.outgoing_full += 1,
                None => {}
            }
            match end {
                End::Wire(_) | End::Misplaced(_) | End::OtherClient | End::Assembly(_) => {
                    io.protocol_errors += 1;
                }
                End::Credit(_) => io.credit_exceeded += 1,
                End::Link(LinkError::Silent(_)) => io.silent += 1,
                End::Link(LinkError::Goodbye(_) | LinkError::Drained) => {}
                End::Link(_) | End::TooManyCores(_) => io.protocol_errors += 1,
                End::OtherCore(_) | End::Socket(_) | End::Closed => {}
            }
        });
        if let Some(why) = self.out.given_up() {
            shell.tell_given_up(why);
        }
        if let Some(Goodbye { reason }) = end.goodbye() {
            self.out.say_goodbye(reason, &end.to_string());
            shell.see_off(self.out.stream.clone());
        }
        self.out.close();
        shell.release(&mut self.assembly.borrow_mut());
        if let Some(station) = self.route.take() {
            shell.route_down(station, self);
        }
        if let Side::Accepted(conn) = self.side {
            shell.on_closed(conn);
        }
        // What came with the end may have changed something, whoever's connection it was.
        shell.changed.notify();
        let (side, why) = (self.side, end.to_string());
        tracing::debug!(?side, why, "a connection ended");
    }
}

/// Lets time pass for a connection, until it ends.
async fn watch<S: Service>(connection: Rc<Connection<S::Reply>>, shell: Rc<Shell<S>>) {
    loop {
        let next = connection.next_timeout();
        connection.alarm.set(next);
        let (mut alarm, mut sooner) = (sleep_until(next), connection.sooner.notified());
        let rang = poll_fn(|task| {
            if Pin::new(&mut alarm).poll(task).is_ready() {
                return Poll::Ready(true);
            }
            Pin::new(&mut sooner).poll(task).map(|()| false)
        });
        if !rang.await {
            continue;
        }
        connection.shed_late_requests(&shell);
        let result = {
            let mut link = connection.link.borrow_mut();
            connection.follow_ping(&mut link);
            link.on_timeout(now())
        };
        if let Err(LinkError::Drained) = result {
            // Whoever had it leave says goodbye, and sees that it is read.
            return;
        }
        if let Err(error) = result {
            connection.ended.replace(Some(error));
            // Its reader wakes up, and sees to the rest.
            connection.out.stream.shutdown(Shutdown::Read);
            return;
        }
        connection.transmit();
    }
}
