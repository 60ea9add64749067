//! The other side of a connection, by hand.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use bowline_protocol::{
    Attempt, Cancel, CancelReason, Cause, ClientId, Credit, Features, Frame, Hello, HelloAck,
    Inbox, Method, Ping, ReplicaId, Request, Seq, Station, Status, Takes, Tie, Twin, codec,
};
use std::time::{Duration, Instant};

use crate::PATIENCE;
use crate::service::ECHO;

/// A frame that came, with a payload of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    Reply(bowline_protocol::Reply, Vec<u8>),
    /// The beginning of a reply: how long all of it is, and how much came.
    Opening(bowline_protocol::Reply, u32, usize),
    /// More of one: where that begins, and how much it is.
    Segment(Attempt, u32, usize),
    Credit(Credit),
    Ended(bowline_protocol::Ended),
    Overloaded(bowline_protocol::Overloaded),
    Started(bowline_protocol::Started),
    Cancel(bowline_protocol::Cancel),
    Goodbye(bowline_protocol::GoodbyeReason, String),
    GoAway,
    Closed,
}

/// One end of a connection that is up.
pub(crate) struct Peer {
    stream: TcpStream,
    inbox: Inbox,
    came: std::collections::VecDeque<Came>,
    /// The tokens of pongs.
    pongs: Vec<u64>,
    /// Who the other side is.
    pub(crate) hello: Option<Hello>,
    /// What it said of cancels.
    pub(crate) ack: Option<HelloAck>,
}

pub(crate) const CLIENT: ClientId = ClientId(9);

impl Peer {
    /// A client that has said hello.
    pub(crate) fn client(address: SocketAddr) -> Peer {
        let mut peer = Peer::raw(TcpStream::connect(address).unwrap());
        peer.introduce(&Hello::client(CLIENT), false);
        peer
    }

    /// As `client`, one that hears when a server is about to leave.
    pub(crate) fn attentive_client(address: SocketAddr) -> Peer {
        let mut peer = Peer::raw(TcpStream::connect(address).unwrap());
        peer.introduce(&Hello { features: Features::GO_AWAY, ..Hello::client(CLIENT) }, false);
        peer
    }

    /// As `client`, one that understands options.
    pub(crate) fn client_with_options(address: SocketAddr) -> Peer {
        Peer::client_that(Features::OPTIONS, address)
    }

    /// As `client`, one that can do that.
    pub(crate) fn client_that(features: Features, address: SocketAddr) -> Peer {
        Peer::client_taking(Takes { frame: 1 << 20, payload: 64 << 20 }, features, address)
    }

    /// As `client_that`, one that takes so much.
    pub(crate) fn client_taking(takes: Takes, features: Features, address: SocketAddr) -> Peer {
        let mut peer = Peer::raw(TcpStream::connect(address).unwrap());
        let takes = Some(takes);
        peer.introduce(&Hello { features, takes, ..Hello::client(CLIENT) }, false);
        peer
    }

    /// A socket, and nothing said.
    pub(crate) fn raw(stream: TcpStream) -> Peer {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let (inbox, came) = (Inbox::new(1 << 24), Default::default());
        Peer { stream, inbox, came, pongs: Vec::new(), hello: None, ack: None }
    }

    /// Says who this is, acknowledges, and waits for the same from the other side.
    pub(crate) fn introduce(&mut self, hello: &Hello, obeys_cancels: bool) {
        self.send(&Frame::Hello(hello.clone()));
        self.send(&Frame::HelloAck(HelloAck { obeys_cancels, grant: None }));
        let end = Instant::now() + PATIENCE;
        while self.ack.is_none() {
            assert!(Instant::now() < end, "it never said hello");
            assert!(self.read(), "closed before it said hello: {:?}", self.came);
        }
    }

    pub(crate) fn send(&mut self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        codec::encode(frame, &mut bytes);
        self.send_bytes(&bytes);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends, unless the other side has gone.
    pub(crate) fn try_send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    pub(crate) fn request(&mut self, request: Request, payload: &[u8]) {
        self.send(&Frame::Request(request, payload));
    }

    /// Requests, unless the other side has gone.
    pub(crate) fn try_request(&mut self, request: Request, payload: &[u8]) {
        let mut bytes = Vec::new();
        codec::encode(&Frame::Request(request, payload), &mut bytes);
        self.try_send_bytes(&bytes);
    }

    /// The next frame that concerns calls, or the end.
    ///
    /// # Panics
    ///
    /// If none comes in the end, though pings may.
    pub(crate) fn next(&mut self) -> Came {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(came) = self.came.pop_front() {
                return came;
            }
            assert!(Instant::now() < end, "nothing came that concerns calls");
            if !self.read() {
                return Came::Closed;
            }
        }
    }

    /// The next frame but credit, which is a reply.
    pub(crate) fn reply(&mut self) -> (Attempt, Status, Vec<u8>) {
        loop {
            match self.next() {
                Came::Reply(reply, payload) => return (reply.attempt, reply.status, payload),
                Came::Credit(_) => {}
                other => panic!("{other:?} is no reply"),
            }
        }
    }

    /// The next frame, which is an end.
    pub(crate) fn ended(&mut self) -> bowline_protocol::Ended {
        match self.next() {
            Came::Ended(ended) => ended,
            other => panic!("{other:?} is no end"),
        }
    }

    /// Pings, and waits for the answer.
    pub(crate) fn ping(&mut self, token: u64) {
        self.send(&Frame::Ping(Ping { token }));
        let end = Instant::now() + PATIENCE;
        while !self.pongs.contains(&token) {
            assert!(Instant::now() < end && self.read(), "no answer to a ping");
        }
    }

    /// Waits until something has come that is left unread. Whose side closes then is answered with
    /// a reset.
    pub(crate) fn await_unread(&self) {
        assert_eq!(self.stream.peek(&mut [0]).unwrap(), 1);
    }

    /// Reads once; false at the end.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 1 << 16];
        let count = match self.stream.read(&mut bytes) {
            Ok(0) => return false,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return false,
            Err(error) => panic!("nothing came: {error}"),
        };
        let mut pongs = Vec::new();
        let mut frames = self.inbox.feed(&bytes[..count]);
        while let Some(frame) = frames.next().unwrap() {
            let came = match frame {
                Frame::Hello(hello) => {
                    self.hello = Some(hello);
                    continue;
                }
                Frame::HelloAck(ack) => {
                    self.ack = Some(ack);
                    continue;
                }
                Frame::Ping(Ping { token }) => {
                    codec::encode(&Frame::Pong(Ping { token }), &mut pongs);
                    continue;
                }
                Frame::Pong(Ping { token }) => {
                    self.pongs.push(token);
                    continue;
                }
                Frame::Reply(reply, payload) => Came::Reply(reply, payload.to_vec()),
                Frame::ReplyWith(reply, options, first) => match options.total() {
                    Some(total) => Came::Opening(reply, total, first.len()),
                    None => Came::Reply(reply, first.to_vec()),
                },
                Frame::Segment(it, bytes) => Came::Segment(it.attempt, it.offset, bytes.len()),
                Frame::Credit(credit) => Came::Credit(credit),
                Frame::Ended(ended) => Came::Ended(ended),
                Frame::Overloaded(refusal) => Came::Overloaded(refusal),
                Frame::Started(started) => Came::Started(started),
                Frame::Cancel(cancel) => Came::Cancel(cancel),
                Frame::Goodbye(goodbye, why) => {
                    Came::Goodbye(goodbye.reason, String::from_utf8(why.to_vec()).unwrap())
                }
                Frame::GoAway(_) => Came::GoAway,
                other => panic!("a server never says {}", other.name()),
            };
            self.came.push_back(came);
        }
        // A write to a connection that was just closed fails, and the next read tells.
        let _ = self.stream.write_all(&pongs);
        true
    }
}

/// An untied echo with ten seconds left.
pub(crate) const fn plain(seq: u64) -> Request {
    Request {
        attempt: Attempt { client: CLIENT, seq: Seq(seq), n: 0 },
        method: ECHO,
        remaining: Duration::from_secs(10),
        cause: Cause::First,
        idempotent: true,
        tie: None,
    }
}

pub(crate) const fn calling(method: Method, seq: u64) -> Request {
    Request { method, ..plain(seq) }
}

/// Copy n of a tied call, whose twin is on replica 2.
pub(crate) fn tied(method: Method, seq: u64, n: u16) -> Request {
    let twin = Twin { station: station(2), n: 1 - n };
    let tie = Some(Tie { twin, window: Duration::from_secs(5) });
    Request { attempt: Attempt { n, ..plain(seq).attempt }, tie, ..calling(method, seq) }
}

/// What replica 2 says when the twin of this copy starts there.
pub(crate) fn twin_of(request: Request) -> Cancel {
    let reason = CancelReason::TwinStarted { by: request.tie.unwrap().twin };
    Cancel { attempt: request.attempt, reason, lifetime: Duration::from_secs(5) }
}

pub(crate) const fn station(replica: u16) -> Station {
    Station { replica: ReplicaId(replica), core: 0 }
}

/// A replica that is nothing but a listener: it lets the server under test dial it.
pub(crate) struct FakeReplica {
    listener: TcpListener,
    station: Station,
}

impl FakeReplica {
    pub(crate) fn new(replica: u16) -> FakeReplica {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        FakeReplica { listener, station: station(replica) }
    }

    /// From now on it says that it is another one.
    pub(crate) fn pose_as(&mut self, replica: u16) {
        self.station = station(replica);
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// The server's dial: the connection on which it hears cancels.
    pub(crate) fn dialled(&self) -> Peer {
        let mut peer = Peer::raw(self.listener.accept().unwrap().0);
        peer.introduce(&self.hello(0, 1), false);
        peer
    }

    /// A dial that is answered by a core of so many.
    pub(crate) fn answer(&self, core: u16, cores: usize) -> Peer {
        self.reply_to(self.listener.accept().unwrap().0, core, cores)
    }

    /// As `answer`, if the server dials now.
    pub(crate) fn answer_if_dialled(&self, core: u16, cores: usize) -> Option<Peer> {
        self.listener.set_nonblocking(true).unwrap();
        let dialled = self.listener.accept().ok();
        dialled.map(|(stream, _)| self.reply_to(stream, core, cores))
    }

    fn reply_to(&self, stream: TcpStream, core: u16, cores: usize) -> Peer {
        let mut peer = Peer::raw(stream);
        peer.send(&Frame::Hello(self.hello(core, cores)));
        peer.send(&Frame::HelloAck(HelloAck { obeys_cancels: false, grant: None }));
        peer
    }

    /// Dials the server, to hear its cancels.
    pub(crate) fn dial(&self, server: SocketAddr) -> Peer {
        self.dial_as(0, server)
    }

    /// As `dial`, from this core.
    pub(crate) fn dial_as(&self, core: u16, server: SocketAddr) -> Peer {
        let mut peer = Peer::raw(TcpStream::connect(server).unwrap());
        peer.introduce(&self.hello(core, 1), true);
        peer
    }

    fn hello(&self, core: u16, cores: usize) -> Hello {
        Hello::server(Station { core, ..self.station }, vec![self.address().port(); cores])
    }
}
