//! The connection to one replica: dialled, kept, and dialled again.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use bowline_protocol::frame::Features;
use bowline_protocol::link::LinkEvent;
use bowline_protocol::{
    Arrived, Assembly, AssemblyError, Cancel, CancelReason, ClientId, Frame, Hello, Inbox, Link,
    LinkConfig, LinkError, Loss, Methods, NextDial, OptionSet, Options, PayloadOf, Peer, Redial,
    ReplicaId, Reply, Takes, WireError, codec, options,
};
use bowline_runtime::net::{Delivery, Lease, TcpStream};
use bowline_runtime::payload::Payload;
use bowline_runtime::{Duration, Instant, Sleep, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::config::Replica;
use super::line::Line;
use super::shell::{Answer, Shell, State};
use crate::core::{Brought, Heard};

/// The longest payload that is taken in one frame, in bytes.
const LONGEST_FRAME: u32 = 1 << 20;

/// What every connection of a client has in common.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) client: ClientId,
    /// Seeds the waits between dials.
    pub(super) seed: u64,
    pub(super) link: LinkConfig,
    pub(super) dial: Duration,
    pub(super) backoff: (Duration, Duration),
    pub(super) max_reply: u32,
    pub(super) reply_budget: usize,
    pub(super) payload_checksums: bool,
    /// What this side means by the methods that it calls.
    pub(super) methods: Option<Methods>,
}

impl Terms {
    /// The longest payload of a frame, in bytes: a reply's, behind its options. Longer replies come
    /// in segments.
    fn frame_bytes(&self) -> u32 {
        self.max_reply.min(LONGEST_FRAME) + options::MAX_LEN as u32
    }
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("it closed the connection")]
    Closed,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Link(#[from] LinkError),
    #[error("{0}")]
    Assembly(#[from] AssemblyError),
}

/// Keeps a connection to the replica for as long as the task lives.
pub(super) async fn keep(shell: Rc<Shell>, replica: Replica, terms: Terms) {
    let (first, max) = terms.backoff;
    let mut redial = Redial::new(first, max, terms.seed ^ u64::from(replica.id.0));
    loop {
        let (loss, ended) = match TcpStream::connect(replica.address, terms.dial).await {
            Ok(stream) => {
                let mut connection = Connection::new(&shell, stream, replica.id, &terms);
                let inbox = Inbox::new(terms.frame_bytes());
                let ended = connection.run(inbox.with_features(connection.link.features())).await;
                connection.close(&ended);
                let up = connection.up_since.map(|since| shell.now() - since);
                (up.map_or(Loss::Handshake, Loss::Broken), ended)
            }
            Err(error) => (Loss::Unreachable, Ended::Io(error)),
        };
        let NextDial { wait, is_news } = redial.after(loss);
        let (id, address) = (replica.id.0, replica.address);
        // That it was connected was told, and so is that it is not any more.
        match (is_news, loss) {
            (true, _) => {
                warn!(replica = id, %address, ?wait, "{ended}; it is dialled until it is back")
            }
            (false, Loss::Broken(_)) => info!(replica = id, %address, ?wait, "lost again: {ended}"),
            (false, _) => debug!(replica = id, %address, ?wait, "{ended}"),
        }
        shell.state.borrow_mut().last_errors.insert(id, ended.to_string());
        shell.changed.notify();
        sleep(wait).await;
    }
}

/// One connection.
struct Connection<'a> {
    shell: &'a Shell,
    stream: TcpStream,
    replica: ReplicaId,
    link: Link,
    /// Once both sides know each other.
    line: Option<Rc<Line>>,
    up_since: Option<Instant>,
    max_reply: u32,
    reply_budget: usize,
}

/// What a connection waits for.
enum Event {
    Bytes(Lease),
    Time,
    /// The kernel has taken enough of what waited for more to be handed over.
    Written,
}

impl<'a> Connection<'a> {
    fn new(shell: &'a Shell, stream: TcpStream, replica: ReplicaId, terms: &Terms) -> Self {
        let mut hello = Hello::client(terms.client);
        hello.features = Features::GO_AWAY
            .with(Features::OPTIONS)
            .with(Features::SEGMENTS)
            .with(Features::CREDIT)
            .with(if terms.payload_checksums { Features::NONE } else { Features::UNSUMMED });
        hello.methods = terms.methods.clone();
        hello.takes = Some(Takes { frame: terms.frame_bytes(), payload: terms.max_reply });
        let link = Link::dialled(hello, Some(replica), terms.link, shell.now());
        let Terms { max_reply, reply_budget, .. } = *terms;
        Connection {
            shell,
            stream,
            replica,
            link,
            line: None,
            up_since: None,
            max_reply,
            reply_budget,
        }
    }

    async fn run(&mut self, mut inbox: Inbox) -> Ended {
        let mut sleep = pin!(sleep_until(self.link.next_timeout()));
        loop {
            self.transmit();
            if self.link.next_timeout() < sleep.deadline() {
                sleep.reset(self.link.next_timeout());
            }
            let result = match self.next(sleep.as_mut()).await {
                Ok(Some(Event::Bytes(lease))) => self.on_bytes(&mut inbox, lease),
                Ok(Some(Event::Time)) => {
                    self.follow_ping();
                    let result = self.link.on_timeout(self.shell.now());
                    sleep.reset(self.link.next_timeout());
                    result.map_err(Ended::Link)
                }
                Ok(Some(Event::Written)) => Ok(()),
                Ok(None) => return Ended::Closed,
                Err(error) => return Ended::Io(error),
            };
            if let Some(line) = &self.line {
                line.pour(self.shell.now());
                let backlog = line.backlog();
                self.shell.state.borrow_mut().calls.on_backlog(self.replica, backlog);
            }
            self.shell.pump();
            if let Err(ended) = result {
                return ended;
            }
        }
    }

    async fn next(&self, mut sleep: Pin<&mut Sleep>) -> io::Result<Option<Event>> {
        let mut ready = pin!(async {
            match &self.line {
                Some(line) => line.ready().await,
                None => pending().await,
            }
        });
        poll_fn(|context| {
            if let Poll::Ready(received) = self.stream.poll_receive(context) {
                return Poll::Ready(received.map(|lease| lease.map(Event::Bytes)));
            }
            if ready.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(Some(Event::Written)));
            }
            sleep.as_mut().poll(context).map(|()| Ok(Some(Event::Time)))
        })
        .await
    }

    fn transmit(&mut self) {
        let now = self.shell.now();
        while let Some(frame) = self.link.poll_transmit(now) {
            self.stream.send_with(|out| codec::encode(&frame, out));
            self.follow_ping();
        }
    }

    /// Sees how far a ping has come that was just written, or was not answered in time.
    fn follow_ping(&mut self) {
        let now = self.shell.now();
        if self.link.wants_delivery(now)
            && let Ok(Delivery { acknowledged, outstanding }) = self.stream.delivery()
        {
            self.link.on_delivery(acknowledged, outstanding, now);
        }
    }

    /// Takes in what has come, all of it.
    fn on_bytes(&mut self, inbox: &mut Inbox, first: Lease) -> Result<(), Ended> {
        let mut lease = Some(first);
        while let Some(bytes) = lease {
            self.link.on_bytes(bytes.len(), self.shell.now());
            let mut frames = inbox.feed(&bytes);
            while let Some(frame) = frames.next()? {
                self.on_frame(&frame)?;
            }
            lease = self.stream.try_receive();
        }
        Ok(())
    }

    fn on_frame(&mut self, frame: &Frame<'_>) -> Result<(), Ended> {
        let now = self.shell.now();
        match self.link.on_frame(frame, now)? {
            LinkEvent::NotMine => self.on_call_frame(frame)?,
            LinkEvent::Up => self.on_up(),
            LinkEvent::Leaving => self.on_leaving(now),
            _ => {
                if let (Frame::Pong(_), Some(rtt)) = (frame, self.link.rtt()) {
                    self.shell.state.borrow_mut().calls.on_rtt(self.replica, rtt);
                }
            }
        }
        Ok(())
    }

    /// The replica leaves: what has begun to go there goes on, and the rest goes elsewhere.
    fn on_leaving(&self, now: Instant) {
        self.shell.state.borrow_mut().calls.on_leaving(self.replica);
        // What was to go there before this was known is handed over, to be taken back with the rest.
        self.shell.pump();
        let mut state = self.shell.state.borrow_mut();
        while let Some(attempt) = self.line.as_ref().and_then(|line| line.take_back()) {
            state.calls.on_left_behind(self.replica, attempt, now);
        }
    }

    fn on_call_frame(&mut self, frame: &Frame<'_>) -> Result<(), Ended> {
        let now = self.shell.now();
        let mut state = self.shell.state.borrow_mut();
        match frame {
            Frame::Reply(reply, payload) => {
                let copy = |payload: &[u8]| self.shell.pool.copy(payload);
                self.on_reply(&mut state, reply, &OptionSet::NONE, *payload, copy, now);
            }
            Frame::ReplyWith(reply, options, payload) if options.total().is_none() => {
                let (options, copy) = (options.to_set(), |it: &[u8]| self.shell.pool.copy(it));
                self.on_reply(&mut state, reply, &options, *payload, copy, now);
            }
            Frame::ReplyWith(reply, options, first) => {
                return self.on_opening(&mut state, reply, options, first, now);
            }
            Frame::Segment(segment, bytes) => {
                let Some(line) = &self.line else { return Ok(()) };
                let arrived = line.assembly.borrow_mut().segment(segment, bytes, now)?;
                self.on_arrived(&mut state, arrived, now);
            }
            Frame::Credit(credit) => state.calls.on_credit(self.replica, *credit),
            Frame::Ended(ended) => {
                if let Some(line) = &self.line {
                    line.assembly.borrow_mut().forget(ended.attempt, PayloadOf::Reply);
                }
                state.calls.on_ended(self.replica, ended, now);
            }
            Frame::Overloaded(overloaded) => {
                state.calls.on_overloaded(self.replica, overloaded, now);
            }
            Frame::Started(started) => state.calls.on_started(self.replica, started, now),
            // Nothing else was asked for in our hello; what is not understood does no harm.
            _ => {}
        }
        Ok(())
    }

    /// A reply came, whole. Its payload is kept only if somebody waits for it.
    fn on_reply<B: AsRef<[u8]>>(
        &self,
        state: &mut State,
        reply: &Reply,
        options: &OptionSet,
        payload: B,
        keep: impl FnOnce(B) -> Payload,
        now: Instant,
    ) {
        let OptionSet { label, fresh, .. } = *options;
        let brought = Brought { fresh, payload: payload.as_ref() };
        let answer = |payload| Answer { payload: keep(payload), label, fresh };
        match state.calls.on_reply_with(self.replica, reply, brought, now) {
            Heard::Nothing => {}
            Heard::Older { call, tag } => state.keep_older(call, tag, || answer(payload)),
            Heard::Done { done, is_told } => {
                state.deliver(done, is_told.then(|| answer(payload)));
            }
        }
    }

    /// A reply begins, of which segments bring the rest.
    fn on_opening(
        &self,
        state: &mut State,
        reply: &Reply,
        options: &Options<'_>,
        first: &[u8],
        now: Instant,
    ) -> Result<(), Ended> {
        let Some(line) = &self.line else { return Ok(()) };
        let mut assembly = line.assembly.borrow_mut();
        let total = options.total().unwrap_or_default();
        let memory = self.shell.pool.empty(total as usize);
        let arrived = assembly.open_reply(*reply, options, first, memory)?;
        if !state.calls.waits_for(reply.attempt) {
            // Nobody needs it; only its end is still to come.
            assembly.discard(reply.attempt);
        }
        drop(assembly);
        if let Arrived::NoRoom = arrived {
            let (attempt, reason) = (reply.attempt, CancelReason::CallerDone);
            line.send(&Frame::Cancel(Cancel { attempt, reason, lifetime: Duration::ZERO }));
            state.calls.on_no_room(self.replica, reply, now);
        }
        self.on_arrived(state, arrived, now);
        Ok(())
    }

    fn on_arrived(&self, state: &mut State, arrived: Arrived<Payload>, now: Instant) {
        match arrived {
            Arrived::Reply(reply, options, payload) => {
                self.on_reply(state, &reply, &options, payload, |payload| payload, now);
            }
            Arrived::Discarded(reply, OptionSet { fresh, .. }) => {
                // Its call is done: this only ends the copy, and says what its replica holds.
                let brought = Brought { fresh, payload: &[] };
                let _ = state.calls.on_reply_with(self.replica, &reply, brought, now);
            }
            Arrived::Request(..) | Arrived::UnderWay | Arrived::Skipped | Arrived::NoRoom => {}
        }
    }

    fn on_up(&mut self) {
        let Some(station) = self.link.peer().and_then(Hello::station) else { return };
        let at = usize::from(self.replica.0);
        let mut state = self.shell.state.borrow_mut();
        let peer = Peer { takes: self.link.peer_takes(), features: self.link.peer_features() };
        let assembly = Assembly::new(self.max_reply, self.reply_budget);
        let most = state.calls.config().max_backlog;
        let methods = self.link.peer().and_then(|hello| hello.methods.clone());
        state.calls.on_methods(self.replica, methods.as_ref());
        let line = Rc::new(Line::new(self.stream.clone(), peer, methods, assembly, most));
        state.lines[at] = Some(line.clone());
        state.calls.on_options(self.replica, peer.features.has(Features::OPTIONS));
        state.calls.on_takes(self.replica, line.largest_request());
        state.calls.on_granted(self.replica, self.link.peer_grant());
        state.calls.on_connected(self.replica, station);
        state.last_errors.remove(&self.replica.0);
        drop(state);
        self.line = Some(line);
        self.up_since = Some(self.shell.now());
        info!(replica = self.replica.0, core = station.core, "connected");
        self.shell.changed.notify();
    }

    /// Says goodbye, if there is anyone to say it to, and tells the machine.
    fn close(&mut self, ended: &Ended) {
        let goodbye = match ended {
            Ended::Link(error) => error.goodbye(),
            Ended::Assembly(error) => Some(error.goodbye()),
            Ended::Wire(_) => {
                let reason = bowline_protocol::GoodbyeReason::Protocol;
                Some(bowline_protocol::Goodbye { reason })
            }
            Ended::Closed | Ended::Io(_) => None,
        };
        if let Some(goodbye) = goodbye {
            let text = ended.to_string();
            let frame = Frame::Goodbye(goodbye, text.as_bytes());
            self.stream.send_with(|out| codec::encode(&frame, out));
        }
        let now = self.shell.now();
        let mut state = self.shell.state.borrow_mut();
        state.lines[usize::from(self.replica.0)] = None;
        state.calls.on_closed(self.replica, now);
        drop(state);
        self.shell.pump();
    }
}
