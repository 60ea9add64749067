//! How long calls of 64 B take beside a stream of replies of 4 MiB on the same connection, where
//! those come in segments, with and without checksums, and where each comes in one frame.
//!
//! The client is a plain socket that reads as fast as it can, so that what is measured is the order in
//! which a server sends. Give the whole machine to it: `cargo bench --bench overtake`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bowline_protocol::{
    Attempt, Cause, ClientId, Features, Frame, Hello, HelloAck, Inbox, LinkConfig, Method,
    MethodInfo, Request, Seq, ServiceInfo, Takes, codec,
};
use bowline_server::io::{Limits, Running};
use bowline_server::{Context, Failure, Payload, Server, Service};
use hdrhistogram::Histogram;

const LARGE: usize = 4 << 20;
/// Large replies that are on their way at a time.
const STREAM: usize = 2;
const ECHO: Method = Method(1);
const BLOW: Method = Method(2);
const METHODS: &[MethodInfo] =
    &[MethodInfo::new(ECHO, "echo").idempotent(), MethodInfo::new(BLOW, "blow").idempotent()];
const CLIENT: ClientId = ClientId(7);

#[derive(Clone)]
struct Blower;

impl Service for Blower {
    type Reply = Payload;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("blower", METHODS)
    }

    async fn call(&self, context: Context, request: Payload) -> Result<Payload, Failure> {
        if context.method() == ECHO {
            return Ok(request);
        }
        let mut reply = request.sibling(LARGE);
        reply.as_mut().resize(LARGE, 7);
        Ok(reply)
    }
}

fn serve() -> Running {
    let any = "127.0.0.1:0".parse().expect("an address");
    let limits = Limits { outgoing_bytes: 256 << 20, ..Limits::default() };
    // The client answers no pings: it must not be taken for dead where the machine is slow.
    let link = LinkConfig { dead_after: Duration::from_secs(60), ..LinkConfig::default() };
    Server::builder().listen(any).limits(limits).link(link).start(Blower).expect("a server")
}

/// What was measured.
struct Measured {
    small: Histogram<u64>,
    large: u64,
    took: Duration,
}

struct Client {
    stream: TcpStream,
    inbox: Inbox,
    buffer: Vec<u8>,
    next: u64,
    /// Large payloads that were begun, and how much of each is still to come.
    coming: usize,
}

impl Client {
    fn connect(address: SocketAddr, features: Features) -> Client {
        let stream = TcpStream::connect(address).expect("the server is there");
        stream.set_nodelay(true).expect("a socket");
        let frame = (2 * LARGE) as u32;
        let mut client = Client {
            stream,
            inbox: Inbox::new(frame).with_features(features),
            buffer: vec![0; 256 << 10],
            next: 1,
            coming: 0,
        };
        let takes = Some(Takes { frame, payload: frame });
        client.send(&Frame::Hello(Hello { features, takes, ..Hello::client(CLIENT) }));
        client.send(&Frame::HelloAck(HelloAck { obeys_cancels: false, grant: None }));
        client
    }

    fn send(&mut self, frame: &Frame<'_>) {
        let mut bytes = Vec::new();
        codec::encode(frame, &mut bytes);
        self.stream.write_all(&bytes).expect("the server reads");
    }

    fn request(&mut self, method: Method, payload: &[u8]) -> u64 {
        let seq = self.next;
        self.next += 1;
        let request = Request {
            attempt: Attempt { client: CLIENT, seq: Seq(seq), n: 0 },
            method,
            remaining: Duration::from_secs(60),
            cause: Cause::First,
            idempotent: true,
            tie: None,
        };
        self.send(&Frame::Request(request, payload));
        seq
    }

    /// Reads until that small call is answered. Returns how many large ones ended meanwhile.
    fn until(&mut self, small: u64) -> u64 {
        let mut ended = 0;
        loop {
            let length = self.stream.read(&mut self.buffer).expect("the server writes");
            let (mut found, mut left) = (false, self.coming);
            let mut frames = self.inbox.feed(&self.buffer[..length]);
            while let Some(frame) = frames.next().expect("sound frames") {
                let came = match frame {
                    Frame::Reply(reply, _) if reply.attempt.seq.0 == small => {
                        found = true;
                        0
                    }
                    Frame::Reply(_, bytes)
                    | Frame::ReplyWith(_, _, bytes)
                    | Frame::Segment(_, bytes) => bytes.len(),
                    _ => 0,
                };
                let before = left.div_ceil(LARGE);
                left -= came;
                ended += (before - left.div_ceil(LARGE)) as u64;
            }
            self.coming = left;
            if found {
                return ended;
            }
        }
    }

    /// Small calls, one after the other, beside large ones.
    fn run(&mut self, calls: u64) -> Measured {
        let mut small = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("sound bounds");
        let (mut large, start) = (0, Instant::now());
        for _ in 0..calls {
            while self.coming.div_ceil(LARGE) < STREAM {
                self.request(BLOW, b"");
                self.coming += LARGE;
            }
            let sent = Instant::now();
            let seq = self.request(ECHO, &[1; 64]);
            large += self.until(seq);
            small.record(sent.elapsed().as_nanos() as u64).expect("within a minute");
        }
        Measured { small, large, took: start.elapsed() }
    }
}

/// What one way of sending came to, in each round.
#[derive(Default)]
struct Way {
    /// Milliseconds within which so many of a hundred calls were answered.
    p50: Vec<f64>,
    p99: Vec<f64>,
    /// Megabytes of large replies a second.
    rate: Vec<f64>,
}

impl Way {
    fn add(&mut self, measured: &Measured) {
        let at = |quantile| measured.small.value_at_quantile(quantile) as f64 / 1e6;
        self.p50.push(at(0.5));
        self.p99.push(at(0.99));
        let bytes = (measured.large * LARGE as u64) as f64;
        self.rate.push(bytes / measured.took.as_secs_f64() / 1e6);
    }
}

/// The median of some rounds, and the least and the most.
fn spread(mut rounds: Vec<f64>) -> [f64; 3] {
    rounds.sort_by(f64::total_cmp);
    [rounds[rounds.len() / 2], rounds[0], rounds[rounds.len() - 1]]
}

fn show(name: &str, way: Way) {
    let [p50, p50_least, p50_most] = spread(way.p50);
    let [p99, p99_least, p99_most] = spread(way.p99);
    let [rate, rate_least, rate_most] = spread(way.rate);
    println!(
        "{name:<12} p50 {p50:7.3} ms ({p50_least:.3}-{p50_most:.3})  \
         p99 {p99:7.3} ms ({p99_least:.3}-{p99_most:.3})  \
         beside {rate:5.0} MB/s ({rate_least:.0}-{rate_most:.0})"
    );
}

fn main() {
    // Without cargo bench it is only to be seen that it runs.
    let bench = std::env::args().any(|word| word == "--bench");
    let (rounds, calls) = if bench { (9, 1_000) } else { (2, 20) };
    let segments = Features::OPTIONS.with(Features::SEGMENTS);
    let ways = [
        ("one frame", Features::NONE),
        ("in segments", segments),
        ("no checksums", segments.with(Features::UNSUMMED)),
    ];
    let mut measured: [Way; 3] = Default::default();
    // Each round begins with another: what changes with time on the machine meets all alike.
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let at = (round + turn) % ways.len();
            let server = serve();
            measured[at].add(&Client::connect(server.address(), ways[at].1).run(calls));
        }
    }
    println!(
        "calls of 64 B beside {STREAM} replies of 4 MiB on one connection: {rounds} rounds of {calls} \
         calls; the median of the rounds (the least and the most)"
    );
    ways.into_iter().zip(measured).for_each(|((name, _), way)| show(name, way));
}
