//! A caller by hand: it asks with keys, and says nothing else.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use bowline_protocol::options::fingerprint;
use bowline_protocol::{
    Attempt, Cause, ClientId, Features, Frame, Hello, HelloAck, Inbox, Key, OptionSet, Ping,
    Request, Seq, Status, codec,
};

use crate::replica::{COUNT, PATIENCE, STATS};

pub(crate) struct Caller {
    stream: TcpStream,
    inbox: Inbox,
    /// The calls, by what their requests are named.
    asked: BTreeMap<u64, u64>,
    came: VecDeque<(u64, Status, Vec<u8>)>,
    next: u64,
    up: bool,
}

impl Caller {
    pub(crate) fn connect(address: SocketAddr) -> Caller {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (asked, came) = (BTreeMap::new(), VecDeque::new());
        let inbox = Inbox::new(1 << 20);
        let mut caller = Caller { stream, inbox, asked, came, next: 1, up: false };
        let hello = Hello { features: Features::OPTIONS, ..Hello::client(ClientId(9)) };
        caller.say(&[
            Frame::Hello(hello),
            Frame::HelloAck(HelloAck { obeys_cancels: false, grant: None }),
        ]);
        while !caller.up {
            assert!(caller.read(), "it closed before it said hello");
        }
        caller
    }

    fn say(&mut self, frames: &[Frame<'_>]) {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| codec::encode(frame, &mut bytes));
        // If the other side is dead, the next read says so.
        let _ = self.stream.write_all(&bytes);
    }

    /// Asks for each of these calls.
    pub(crate) fn send(&mut self, calls: impl Iterator<Item = u64>) {
        calls.for_each(|call| self.ask(call, call, Cause::First));
    }

    /// As the second copy of a call that is under way at another replica.
    pub(crate) fn hedge(&mut self, calls: impl Iterator<Item = u64>) {
        calls.for_each(|call| self.ask(call, call, Cause::Hedge));
    }

    /// Asks for a call with another payload than its own.
    pub(crate) fn send_as(&mut self, call: u64, payload: u64) {
        self.ask(call, payload, Cause::First);
    }

    fn ask(&mut self, call: u64, payload: u64, cause: Cause) {
        let payload = payload.to_le_bytes();
        let key = Key { id: u128::from(call) << 64 | 7, fingerprint: fingerprint(&payload) };
        let options = OptionSet { key: Some(key), ..OptionSet::NONE }.to_bytes();
        let request = self.request(COUNT, cause);
        self.asked.insert(request.attempt.seq.0, call);
        self.say(&[Frame::RequestWith(request, options.as_options(), &payload)]);
    }

    fn request(&mut self, method: bowline_protocol::Method, cause: Cause) -> Request {
        let seq = Seq(self.next);
        self.next += 1;
        let attempt = Attempt { client: ClientId(9), seq, n: 0 };
        let remaining = PATIENCE;
        Request { attempt, method, remaining, cause, idempotent: false, tie: None }
    }

    /// How many calls wait for their answers.
    pub(crate) fn under_way(&self) -> usize {
        self.asked.len()
    }

    /// The next answer, and to which call; None once the other side is dead.
    pub(crate) fn answer(&mut self) -> Option<(u64, Vec<u8>)> {
        let (seq, status, answer) = self.next_reply()?;
        assert_eq!(status, Status::Ok, "{}", String::from_utf8_lossy(&answer));
        Some((self.asked.remove(&seq).expect("asked for"), answer))
    }

    /// Whether the next answer is one, and what it says.
    pub(crate) fn said(&mut self) -> (bool, Vec<u8>) {
        let (_, status, answer) = self.next_reply().expect("it lives");
        (status == Status::Ok, answer)
    }

    /// How many effects the other side had, and how many it prevented.
    pub(crate) fn stats(&mut self) -> (u64, u64) {
        let request = self.request(STATS, Cause::First);
        self.say(&[Frame::Request(request, b"")]);
        let (_, _, answer) = self.next_reply().expect("it lives");
        let (effects, prevented) = answer.split_at(8);
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        (number(effects), number(prevented))
    }

    fn next_reply(&mut self) -> Option<(u64, Status, Vec<u8>)> {
        loop {
            if let Some(came) = self.came.pop_front() {
                return Some(came);
            }
            if !self.read() {
                return None;
            }
        }
    }

    /// Reads once; false at the end.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 1 << 14];
        // A process that was killed may leave a reset behind.
        let Ok(count @ 1..) = self.stream.read(&mut bytes) else { return false };
        let mut pings = Vec::new();
        let mut frames = self.inbox.feed(&bytes[..count]);
        while let Some(frame) = frames.next().unwrap() {
            match frame {
                Frame::HelloAck(_) => self.up = true,
                Frame::Ping(Ping { token }) => pings.push(token),
                Frame::Reply(reply, payload) => {
                    let seq = reply.attempt.seq.0;
                    self.came.push_back((seq, reply.status, payload.to_vec()));
                }
                Frame::Hello(_) | Frame::Pong(_) => {}
                other => panic!("{} was not expected", other.name()),
            }
        }
        for token in pings {
            self.say(&[Frame::Pong(Ping { token })]);
        }
        true
    }
}
