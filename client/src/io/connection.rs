//! The connection to one replica: dialled, kept, and dialled again.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use bowline_protocol::frame::Features;
use bowline_protocol::link::LinkEvent;
use bowline_protocol::{
    Backoff, ClientId, Frame, Hello, Inbox, Label, Link, LinkConfig, LinkError, Options, ReplicaId,
    Reply, Takes, WireError, codec, options,
};
use bowline_runtime::net::{Lease, TcpStream};
use bowline_runtime::{Duration, Instant, Sleep, sleep, sleep_until};
use tracing::{info, warn};

use super::config::Replica;
use super::shell::{Answer, Line, Shell, State};

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
}

impl Terms {
    /// The longest payload of a frame, in bytes: a reply's, behind its options.
    fn frame_bytes(&self) -> u32 {
        self.max_reply.saturating_add(options::MAX_LEN as u32)
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
}

/// Keeps a connection to the replica for as long as the task lives.
pub(super) async fn keep(shell: Rc<Shell>, replica: Replica, terms: Terms) {
    let (first, max) = terms.backoff;
    let mut backoff = Backoff::new(first, max, terms.seed ^ u64::from(replica.id.0));
    loop {
        let ended = match TcpStream::connect(replica.address, terms.dial).await {
            Ok(stream) => {
                let mut connection = Connection::new(&shell, stream, replica.id, &terms);
                let ended = connection.run(Inbox::new(terms.frame_bytes())).await;
                connection.close(&ended);
                if connection.link.is_up() {
                    backoff.reset();
                }
                ended
            }
            Err(error) => Ended::Io(error),
        };
        let wait = backoff.next_wait();
        warn!(replica = replica.id.0, address = %replica.address, ?wait, "{ended}");
        let text = format!("replica {} at {}: {ended}", replica.id, replica.address);
        shell.state.borrow_mut().last_error = Some(text);
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
}

/// What a connection waits for.
enum Event {
    Bytes(Lease),
    Time,
}

impl<'a> Connection<'a> {
    fn new(shell: &'a Shell, stream: TcpStream, replica: ReplicaId, terms: &Terms) -> Self {
        let mut hello = Hello::client(terms.client);
        hello.features = Features::GO_AWAY.with(Features::OPTIONS);
        // Replies come in one frame.
        hello.takes = Some(Takes { frame: terms.frame_bytes(), payload: terms.max_reply });
        let link = Link::dialled(hello, Some(replica), terms.link, shell.now());
        Connection { shell, stream, replica, link }
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
                    let result = self.link.on_timeout(self.shell.now());
                    sleep.reset(self.link.next_timeout());
                    result.map_err(Ended::Link)
                }
                Ok(None) => return Ended::Closed,
                Err(error) => return Ended::Io(error),
            };
            self.shell.pump();
            if let Err(ended) = result {
                return ended;
            }
        }
    }

    async fn next(&self, mut sleep: Pin<&mut Sleep>) -> io::Result<Option<Event>> {
        poll_fn(|context| {
            if let Poll::Ready(received) = self.stream.poll_receive(context) {
                return Poll::Ready(received.map(|lease| lease.map(Event::Bytes)));
            }
            sleep.as_mut().poll(context).map(|()| Ok(Some(Event::Time)))
        })
        .await
    }

    fn transmit(&mut self) {
        let now = self.shell.now();
        while let Some(frame) = self.link.poll_transmit(now) {
            self.stream.send_with(|out| codec::encode(&frame, out));
        }
    }

    /// Takes in what has come, all of it.
    fn on_bytes(&mut self, inbox: &mut Inbox, first: Lease) -> Result<(), Ended> {
        let mut lease = Some(first);
        while let Some(bytes) = lease {
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
            LinkEvent::NotMine => self.on_call_frame(frame),
            LinkEvent::Up => self.on_up(),
            LinkEvent::Leaving => self.shell.state.borrow_mut().calls.on_leaving(self.replica),
            _ => {
                if let (Frame::Pong(_), Some(rtt)) = (frame, self.link.rtt()) {
                    self.shell.state.borrow_mut().calls.on_rtt(self.replica, rtt);
                }
            }
        }
        Ok(())
    }

    fn on_call_frame(&mut self, frame: &Frame<'_>) {
        let now = self.shell.now();
        let mut state = self.shell.state.borrow_mut();
        match frame {
            Frame::Reply(reply, payload) => {
                self.on_reply(&mut state, reply, &Options::NONE, payload, now);
            }
            Frame::ReplyWith(reply, options, payload) => {
                self.on_reply(&mut state, reply, options, payload, now);
            }
            Frame::Ended(ended) => state.calls.on_ended(self.replica, ended, now),
            Frame::Overloaded(overloaded) => {
                state.calls.on_overloaded(self.replica, overloaded, now);
            }
            Frame::Started(started) => state.calls.on_started(self.replica, started, now),
            // Nothing else was asked for in our hello; what is not understood does no harm.
            _ => {}
        }
    }

    fn on_reply(
        &self,
        state: &mut State,
        reply: &Reply,
        options: &Options<'_>,
        payload: &[u8],
        now: Instant,
    ) {
        if let Some(done) = state.calls.on_reply(self.replica, reply, now) {
            let payload = self.shell.pool.copy(payload);
            let label = options.label().map(Label::new);
            state.deliver(done, Some(Answer { payload, label }));
        }
    }

    fn on_up(&mut self) {
        let Some(station) = self.link.peer().and_then(Hello::station) else { return };
        let at = usize::from(self.replica.0);
        let mut state = self.shell.state.borrow_mut();
        let features = self.link.peer_features();
        state.lines[at] = Some(Line { stream: self.stream.clone(), features });
        let methods = self.link.peer().and_then(|hello| hello.methods.as_ref());
        state.calls.on_methods(self.replica, methods);
        state.calls.on_takes(self.replica, self.largest_request());
        state.calls.on_connected(self.replica, station);
        drop(state);
        info!(replica = self.replica.0, core = station.core, "connected");
        self.shell.changed.notify();
    }

    /// The largest payload that the replica takes together with options, in bytes.
    fn largest_request(&self) -> u32 {
        let understood = self.link.peer_features().has(Features::OPTIONS);
        let options = if understood { options::MAX_LEN as u32 } else { 0 };
        self.link.peer_takes().frame.saturating_sub(options)
    }

    /// Says goodbye, if there is anyone to say it to, and tells the machine.
    fn close(&mut self, ended: &Ended) {
        let goodbye = match ended {
            Ended::Link(error) => error.goodbye(),
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
