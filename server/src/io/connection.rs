//! One connection: bytes in, frames out of them, each to whom it concerns.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::string::ToString;
use std::task::Poll;
use std::time::Duration;

use bowline_protocol::{
    ClientId, Features, Frame, Goodbye, GoodbyeReason, Hello, Identity, Inbox, Link, LinkError,
    LinkEvent, OptionSet, Reply, Request, Station, WireError, codec, options,
};
use bowline_runtime::net::{Shutdown, TcpStream};
use bowline_runtime::{Notify, now, sleep_until, spawn, timeout};
use bowline_time::Instant;

use super::mesh;
use super::service::Service;
use super::shell::Shell;
use crate::core::{Conn, Origin};

/// How long the other side may take to read what was said last, and to close the connection.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

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
    #[error("a {0} frame has no place on this connection")]
    Misplaced(&'static str),
    #[error("a request names another client than this connection's hello")]
    OtherClient,
    #[error("another core answered, of {}", .0.ports.len())]
    OtherCore(Hello),
    #[error("{0} cores are more than a replica can have ({max})", max = mesh::MOST_CORES)]
    TooManyCores(usize),
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
            End::OtherCore(_) => Some(Goodbye { reason: GoodbyeReason::Leaving }),
            End::Socket(_) | End::Closed => None,
        }
    }
}

pub(super) struct Connection {
    pub(super) side: Side,
    pub(super) stream: TcpStream,
    link: RefCell<Link>,
    /// Whose cancels go out on it, once it is up.
    route: Cell<Option<Station>>,
    /// What its timer is set to.
    alarm: Cell<Instant>,
    /// The link wants to be looked at before that.
    sooner: Notify,
    /// Why this side ended it, if a timer did.
    ended: RefCell<Option<LinkError>>,
    /// Bytes that may be queued for the other side.
    outgoing_max: usize,
    /// It was disconnected, as it did not read what it had asked for.
    too_slow: Cell<bool>,
    /// Goodbye was said: nothing more is, and what comes is not listened to.
    parted: Cell<bool>,
}

impl Connection {
    pub(super) fn new(
        side: Side,
        stream: TcpStream,
        link: Link,
        outgoing_max: usize,
    ) -> Rc<Connection> {
        Rc::new(Connection {
            side,
            stream,
            link: RefCell::new(link),
            route: Cell::new(None),
            alarm: Cell::new(Instant::FAR_FUTURE),
            sooner: Notify::new(),
            ended: RefCell::new(None),
            outgoing_max,
            too_slow: Cell::new(false),
            parted: Cell::new(false),
        })
    }

    /// Appends a frame to what goes out at the next flush. Who reads so slowly that more is queued
    /// than may be is disconnected, whatever it asked for: replies, or pongs only.
    pub(super) fn send(&self, frame: &Frame<'_>) {
        if self.parted.get() {
            return;
        }
        self.stream.send_with(|out| codec::encode(frame, out));
        if self.stream.queued() > self.outgoing_max {
            self.cut_off();
        }
    }

    /// Ends it at once, since it reads too slowly.
    pub(super) fn cut_off(&self) {
        self.too_slow.set(true);
        self.stream.abort();
    }

    /// As [`Connection::send`], with what the other side understands of the options.
    pub(super) fn reply(&self, reply: Reply, options: &OptionSet, payload: &[u8]) {
        if options.is_empty() || !self.link.borrow().peer_features().has(Features::OPTIONS) {
            return self.send(&Frame::Reply(reply, payload));
        }
        self.send(&Frame::ReplyWith(reply, options.to_bytes().as_options(), payload));
    }

    /// The peer's core that hears cancels on it, by its own account.
    pub(super) fn route(&self) -> Option<Station> {
        self.route.get()
    }

    /// Both sides know each other.
    pub(super) fn is_up(&self) -> bool {
        self.link.borrow().is_up()
    }

    /// The largest reply that the other side takes, in bytes.
    pub(super) fn reply_max(&self) -> usize {
        let link = self.link.borrow();
        let options =
            if link.peer_features().has(Features::OPTIONS) { options::MAX_LEN } else { 0 };
        (link.peer_takes().frame as usize).saturating_sub(options)
    }

    /// Sends what the link has to say.
    fn transmit(&self) {
        let mut link = self.link.borrow_mut();
        while let Some(frame) = link.poll_transmit(now()) {
            self.send(&frame);
        }
        if link.next_timeout() < self.alarm.get() {
            self.sooner.notify();
        }
    }

    /// Tells the other side that this one leaves, within that time.
    pub(super) fn leave(&self, within: Duration) {
        self.link.borrow_mut().leave(within, now());
        self.transmit();
    }

    /// Says goodbye. The other side will close the connection when it has read it.
    ///
    /// This side listens on (see `see_off`): if it closed with something unread, the
    /// kernel would take back what the other side has not yet got.
    pub(super) fn say_goodbye(&self, reason: GoodbyeReason, why: &str) {
        self.send(&Frame::Goodbye(Goodbye { reason }, why.as_bytes()));
        self.parted.set(true);
        self.stream.shutdown(Shutdown::Write);
    }

    /// Lets the other side read what was said last, and close the connection.
    async fn see_off(self: Rc<Self>) {
        let other_side = async { while let Ok(Some(_)) = self.stream.receive().await {} };
        // Whoever does not close it in time has had its chance.
        let _ = timeout(LAST_WORDS, other_side).await;
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
    pub(super) async fn run<S: Service>(self: &Rc<Self>, shell: &Rc<Shell<S>>) -> End {
        self.transmit();
        let timer = spawn(watch(self.clone()));
        let mut inbox = Inbox::new(shell.limits.frame_bytes());
        let end = loop {
            if let Err(end) = self.receive(shell, &mut inbox).await {
                break end;
            }
            self.transmit();
            shell.changed.notify();
        };
        timer.abort();
        let end = self.ended.borrow_mut().take().map_or(end, End::Link);
        self.finish(shell, &end);
        end
    }

    /// Waits for input, and applies all that is there.
    async fn receive<S: Service>(
        self: &Rc<Self>,
        shell: &Rc<Shell<S>>,
        inbox: &mut Inbox,
    ) -> Result<(), End> {
        let mut lease = self.stream.receive().await?.ok_or(End::Closed)?;
        loop {
            let mut frames = inbox.feed(&lease);
            // To the end of the piece also after a goodbye: the next one begins within a frame.
            while let Some(frame) = frames.next()? {
                if !self.parted.get() {
                    self.apply(shell, &frame)?;
                }
            }
            match self.stream.try_receive() {
                Some(next) => lease = next,
                None => return Ok(()),
            }
        }
    }

    fn apply<S: Service>(
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
    fn on_known<S: Service>(&self, shell: &Rc<Shell<S>>) -> Result<(), End> {
        let link = self.link.borrow();
        let (Side::Dialled(wanted), Some(hello)) = (self.side, link.peer()) else { return Ok(()) };
        if hello.ports.len() > mesh::MOST_CORES {
            return Err(End::TooManyCores(hello.ports.len()));
        }
        mesh::keep_cores(shell, wanted.replica, hello.ports.len());
        if hello.station() == Some(wanted) { Ok(()) } else { Err(End::OtherCore(hello.clone())) }
    }

    fn on_up<S: Service>(self: &Rc<Self>, shell: &Rc<Shell<S>>) {
        let link = self.link.borrow();
        let Some(station) = link.peer().and_then(Hello::station) else { return };
        match self.side {
            Side::Dialled(_) => shell.count(|io| io.mesh_dialled += 1),
            Side::Accepted(_) if link.peer_obeys_cancels() && shell.is_peer(station.replica) => {
                self.route.set(Some(station));
                shell.route_up(station, self);
            }
            Side::Accepted(_) => {}
        }
    }

    fn on_call_frame<S: Service>(
        &self,
        shell: &Rc<Shell<S>>,
        frame: &Frame<'_>,
    ) -> Result<(), End> {
        match (frame, self.side) {
            (Frame::Request(request, payload), Side::Accepted(conn)) => {
                self.on_request(shell, conn, *request, &OptionSet::NONE, payload)
            }
            (Frame::RequestWith(request, options, payload), Side::Accepted(conn))
                if options.total().is_none() =>
            {
                self.on_request(shell, conn, *request, &options.to_set(), payload)
            }
            (Frame::Cancel(cancel), _) => {
                shell.core.borrow_mut().on_cancel(self.origin(), *cancel, now());
                Ok(())
            }
            _ => Err(End::Misplaced(frame.name())),
        }
    }

    /// The other side is this client, as it says.
    fn is_of(&self, client: ClientId) -> bool {
        let link = self.link.borrow();
        link.peer().is_some_and(|peer| peer.identity == Identity::Client(client))
    }

    fn on_request<S: Service>(
        &self,
        shell: &Rc<Shell<S>>,
        conn: Conn,
        request: Request,
        options: &OptionSet,
        payload: &[u8],
    ) -> Result<(), End> {
        if !self.is_of(request.attempt.client) {
            return Err(End::OtherClient);
        }
        let copy = || shell.payloads.copy(payload);
        shell.core.borrow_mut().on_request(conn, request, options, payload.len(), copy, now());
        Ok(())
    }

    /// Tells all whom it concerns that the connection is over.
    fn finish<S: Service>(self: &Rc<Self>, shell: &Rc<Shell<S>>, end: &End) {
        shell.count(|io| {
            io.closed += 1;
            io.slow_readers += u64::from(self.too_slow.get());
            match end {
                End::Wire(_) | End::Misplaced(_) | End::OtherClient => io.protocol_errors += 1,
                End::Link(LinkError::Silent(_)) => io.silent += 1,
                End::Link(LinkError::Goodbye(_) | LinkError::Drained) => {}
                End::Link(_) | End::TooManyCores(_) => io.protocol_errors += 1,
                End::OtherCore(_) | End::Socket(_) | End::Closed => {}
            }
        });
        if let Some(Goodbye { reason }) = end.goodbye() {
            self.say_goodbye(reason, &end.to_string());
            drop(spawn(self.clone().see_off()));
        }
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

/// Lets time pass for a connection's link, until it ends.
async fn watch(connection: Rc<Connection>) {
    loop {
        let next = connection.link.borrow().next_timeout();
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
        let result = connection.link.borrow_mut().on_timeout(now());
        if let Err(LinkError::Drained) = result {
            // Whoever had it leave says goodbye, and sees that it is read.
            return;
        }
        if let Err(error) = result {
            connection.ended.replace(Some(error));
            // Its reader wakes up, and sees to the rest.
            connection.stream.shutdown(Shutdown::Read);
            return;
        }
        connection.transmit();
    }
}
