//! A replica that speaks the protocol, and does with each request what its test wants.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bowline_client::core::{Delay, HedgePolicy, Policy, Stagger, TiePolicy};
use bowline_client::{Client, Config, Replica};
use bowline_protocol::link::LinkEvent;
use bowline_protocol::{
    Cancel, Ended, Features, Frame, Hello, How, Inbox, Link, LinkConfig, Load, Method, Overloaded,
    ReplicaId, Reply, Request, ServiceInfo, Started, Station, Status, Takes, codec,
};
use bowline_runtime::net::{ListenOptions, TcpListener, TcpStream};
use bowline_runtime::{JoinHandle, Notify, Runtime, Stage, now, spawn_at, timeout};

pub(crate) const READ: Method = Method(1);
/// Far beyond what anything here takes; only a failing test waits so long.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// For how long a server that refuses a request wants to be spared.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(1);

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// The request's payload comes back.
    Echo,
    Fail(Status),
    End(How),
    Refuse,
    /// A notice of the start, and nothing more.
    Start,
    Silence,
    /// Nothing, until it is cancelled: then it is withdrawn.
    Wait,
    Hangup,
}

/// What the server and its test share.
pub(crate) struct Server {
    pub(crate) id: u16,
    pub(crate) address: SocketAddr,
    pub(crate) answer: Cell<Answer>,
    /// Its replies say that the handler ran.
    pub(crate) executes: Cell<bool>,
    /// It reads no more.
    pub(crate) deaf: Cell<bool>,
    /// What its hello says that it can do.
    pub(crate) features: Cell<Features>,
    /// What its hello says of its methods.
    pub(crate) methods: Cell<Option<&'static ServiceInfo>>,
    /// What the last client that said hello understands.
    pub(crate) understood: Cell<Features>,
    pub(crate) requests: RefCell<Vec<(Request, Vec<u8>)>>,
    pub(crate) cancels: RefCell<Vec<Cancel>>,
    pub(crate) accepted: Cell<u32>,
    pub(crate) closed: Cell<u32>,
    streams: RefCell<Vec<TcpStream>>,
    happened: Notify,
    task: RefCell<Option<JoinHandle<()>>>,
}

impl Server {
    pub(crate) fn start(id: u16) -> Rc<Server> {
        Server::start_at(id, "127.0.0.1:0".parse().unwrap())
    }

    pub(crate) fn start_at(id: u16, address: SocketAddr) -> Rc<Server> {
        let listener = TcpListener::bind(address, ListenOptions::default()).unwrap();
        let server = Rc::new(Server {
            id,
            address: listener.local_addr().unwrap(),
            executes: Cell::new(true),
            deaf: Cell::new(false),
            answer: Cell::new(Answer::Echo),
            features: Cell::default(),
            methods: Cell::default(),
            understood: Cell::default(),
            requests: RefCell::default(),
            cancels: RefCell::default(),
            accepted: Cell::new(0),
            closed: Cell::new(0),
            streams: RefCell::default(),
            happened: Notify::new(),
            task: RefCell::default(),
        });
        let task = spawn_at(Stage::Input, server.clone().accept(listener));
        *server.task.borrow_mut() = Some(task);
        server
    }

    async fn accept(self: Rc<Server>, listener: TcpListener) {
        while let Ok(stream) = listener.accept().await {
            self.accepted.set(self.accepted.get() + 1);
            self.happened.notify();
            self.streams.borrow_mut().push(stream.clone());
            drop(spawn_at(Stage::Input, self.clone().serve(stream)));
        }
    }

    async fn serve(self: Rc<Server>, stream: TcpStream) {
        self.speak(stream).await;
        self.closed.set(self.closed.get() + 1);
        self.happened.notify();
    }

    async fn speak(&self, stream: TcpStream) {
        let station = Station { replica: ReplicaId(self.id), core: 0 };
        let mut hello = Hello::server(station, vec![self.address.port()]);
        hello.features = self.features.get();
        hello.takes = Some(Takes { frame: 1 << 20, payload: 64 << 20 });
        hello.methods = self.methods.get().map(ServiceInfo::to_methods);
        let mut link = Link::accepted(hello, LinkConfig::default(), now());
        let mut inbox = Inbox::new(1 << 20);
        loop {
            while let Some(frame) = link.poll_transmit(now()) {
                stream.send_with(|out| codec::encode(&frame, out));
            }
            let Ok(Some(bytes)) = stream.receive().await else { break };
            if self.deaf.get() {
                std::future::pending::<()>().await;
            }
            let mut frames = inbox.feed(&bytes);
            while let Some(frame) = frames.next().unwrap() {
                match link.on_frame(&frame, now()) {
                    Ok(LinkEvent::NotMine) => self.on_frame(&stream, &frame),
                    Ok(_) => {
                        let features = link.peer().map(|hello| hello.features);
                        self.understood.set(features.unwrap_or_default());
                    }
                    Err(_) => return,
                }
            }
            self.happened.notify();
        }
    }

    fn on_frame(&self, stream: &TcpStream, frame: &Frame<'_>) {
        match frame {
            Frame::Request(request, payload) => {
                self.requests.borrow_mut().push((*request, payload.to_vec()));
                self.do_answer(stream, request, payload);
            }
            Frame::Cancel(cancel) => {
                self.cancels.borrow_mut().push(*cancel);
                if self.answer.get() == Answer::Wait {
                    let (attempt, load) = (cancel.attempt, Load::default());
                    let ended = Ended { attempt, how: How::Withdrawn, by: None, load };
                    stream.send_with(|out| codec::encode(&Frame::Ended(ended), out));
                }
            }
            _ => {}
        }
    }

    fn do_answer(&self, stream: &TcpStream, request: &Request, payload: &[u8]) {
        let (attempt, load) = (request.attempt, Load::default());
        let reply = |status| Reply { attempt, status, executed: self.executes.get(), load };
        let frame = match self.answer.get() {
            Answer::Echo => Frame::Reply(reply(Status::Ok), payload),
            Answer::Fail(status) => Frame::Reply(reply(status), b"why"),
            Answer::End(how) => Frame::Ended(Ended { attempt, how, by: None, load }),
            Answer::Refuse => {
                Frame::Overloaded(Overloaded { attempt, retry_after: RETRY_AFTER, load })
            }
            Answer::Start => Frame::Started(Started { attempt }),
            Answer::Silence | Answer::Wait => return,
            Answer::Hangup => return stream.abort(),
        };
        stream.send_with(|out| codec::encode(&frame, out));
    }

    /// Waits until that is so, of this server.
    pub(crate) async fn until(&self, what: impl Fn(&Server) -> bool) {
        let wait = async {
            while !what(self) {
                self.happened.notified().await;
            }
        };
        timeout(LONG, wait).await.expect("it did not come to that");
    }

    /// Says something on each connection, out of turn.
    pub(crate) fn say(&self, frame: &Frame<'_>) {
        let streams = self.streams.borrow();
        streams.iter().for_each(|stream| stream.send_with(|out| codec::encode(frame, out)));
    }

    pub(crate) fn seen(&self) -> usize {
        self.requests.borrow().len()
    }

    /// No more connections, and those that are there break.
    pub(crate) fn stop(&self) {
        self.task.borrow().iter().for_each(JoinHandle::abort);
        self.break_connections();
    }

    pub(crate) fn break_connections(&self) {
        self.streams.borrow_mut().drain(..).for_each(|stream| stream.abort());
    }
}

/// Three servers and a client of them, which asks them in their order.
pub(crate) struct World {
    pub(crate) servers: [Rc<Server>; 3],
    pub(crate) client: Client,
}

impl World {
    pub(crate) async fn new() -> World {
        World::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> World {
        let servers = [1, 2, 3].map(Server::start);
        let mut config = config(&servers);
        change(&mut config);
        let client = Client::connect(config).await.unwrap();
        assert_eq!(client.connected(), 3);
        World { servers, client }
    }
}

pub(crate) fn config(servers: &[Rc<Server>]) -> Config {
    let replicas = servers.iter().map(|server| Replica::new(server.id, server.address));
    let mut config = patient(replicas);
    config.core.pick = bowline_client::core::PickRule::First;
    config.backoff = (Duration::from_millis(1), Duration::from_millis(10));
    config
}

/// Nothing here is given up since the machine has too much to do.
pub(crate) fn patient(replicas: impl IntoIterator<Item = Replica>) -> Config {
    let mut config = Config::new(replicas);
    config.connect_wait = LONG;
    config.link = LinkConfig { hello_timeout: LONG, dead_after: LONG, ..config.link };
    config
}

/// A hedge after a millisecond.
pub(crate) fn hedged() -> Policy {
    let delay = Delay::Fixed(Duration::from_millis(1));
    Policy::Hedged(HedgePolicy { delay, ..HedgePolicy::default() })
}

/// Both copies at once.
pub(crate) fn tied() -> Policy {
    Policy::Tied(TiePolicy { stagger: Stagger::Fixed(Duration::ZERO), ..TiePolicy::default() })
}

/// Runs a test in a runtime of its own.
pub(crate) fn run<F: Future<Output = ()>>(test: F) {
    let runtime = Runtime::builder().build().unwrap();
    runtime.block_on(async { timeout(2 * LONG, test).await.expect("the test hangs") });
}
