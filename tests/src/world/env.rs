//! What all machines of a world share: its time, its wires, its future, and those who watch.

use std::collections::BTreeMap;
use std::sync::Arc;

use bowline_client::core::{Budget, Counters};
use bowline_protocol::{Attempt, Frame, Freshness, Station};
use bowline_server::core::{CopyKey, Stats};

use crate::check::{Allowance, Book};
use crate::kernel::events::Events;
use crate::kernel::net::{Arrival, Due, End, Host, Net, Wire};
use crate::kernel::rng::mix;
use crate::kernel::span::Nanos;
use crate::kernel::timeline::{Timeline, Topic, digest};
use crate::world::report::Failed;
use crate::world::scenario::Scenario;
use crate::world::store::Stores;
use crate::world::unread::Held;

/// Something that will happen. What belongs to one life of a process is void after its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A parcel arrives.
    Arrival(Arrival),
    /// A host's timer may be due.
    Wake(Host, u32),
    /// A host's loop turns: there is input.
    Turn(Host, u32),
    /// A handler comes to a point where it looks up, or to its end.
    Handler(Host, u32, CopyKey),
    /// A client's user makes the next call.
    Call(Host, u32),
    /// A client's user does not want the result of this call any more.
    GiveUp(Host, u32, u64),
    /// Nothing: the run looks whether it is over.
    Tick,
    /// A fault begins.
    Fault(usize),
    /// A fault ends.
    Heal(usize),
}

/// What waits for a host's next turn.
#[derive(Debug)]
pub(crate) enum Input {
    /// Somebody dialled.
    Knock(Wire),
    /// The dialled wire is open.
    Connected(Wire),
    /// Bytes came.
    Bytes(Wire, Vec<u8>),
    /// The other end has read so many bytes.
    Read(Wire, usize),
    /// The other end is gone.
    Closed(Wire),
    /// A handler looks up.
    Handler(CopyKey),
    /// The user does not want this call's result any more.
    GiveUp(u64),
    /// The user makes a call.
    Call {
        /// Made after all faults: it has to succeed.
        probe: bool,
    },
}

impl Input {
    /// Adds this input to a number that stands for all before it.
    pub(crate) fn mix_into(hash: u64, input: &Input) -> u64 {
        let parts = match input {
            Input::Knock(wire) => [1, wire.0],
            Input::Connected(wire) => [2, wire.0],
            Input::Bytes(wire, bytes) => [digest(bytes), wire.0],
            Input::Closed(wire) => [3, wire.0],
            Input::Read(wire, count) => [mix(7 ^ *count as u64), wire.0],
            Input::Handler(key) => [4, key.index() as u64],
            Input::GiveUp(call) => [5, *call],
            Input::Call { probe } => [6, u64::from(*probe)],
        };
        parts.into_iter().fold(hash, |hash, part| mix(hash ^ part))
    }
}

/// What all machines share.
#[derive(Debug)]
pub(crate) struct Env {
    /// The world's time.
    pub(crate) now: Nanos,
    /// The wires.
    pub(crate) net: Net,
    /// The future.
    pub(crate) events: Events<Event>,
    /// The true story of every call.
    pub(crate) book: Book,
    /// The bucket that all clients share, if they do.
    pub(crate) budget: Option<Arc<Budget>>,
    /// What each bucket grants, by its only client; the shared one by 0.
    pub(crate) allowances: BTreeMap<u64, Allowance>,
    /// What keyed methods did, for good.
    pub(crate) stores: Stores,
    /// How fresh the answers of copies that were asked for freshness are, whatever they say.
    pub(crate) truths: BTreeMap<Attempt, Freshness>,
    /// The record.
    pub(crate) timeline: Timeline,
    /// What the world is made of.
    pub(crate) scenario: Scenario,
    /// Frames that were delivered.
    pub(crate) frames: u64,
    /// How long the calls took that succeeded.
    pub(crate) latencies: Vec<Nanos>,
    /// When they ended.
    pub(crate) ends: Vec<Nanos>,
    /// The calls that failed.
    pub(crate) failures: Vec<Failed>,
    /// Calls after all faults that succeeded.
    pub(crate) probes: u64,
    /// Calls that the second of two tied copies answered.
    pub(crate) second_wins: u64,
    /// What became of copies that were held back.
    pub(crate) held: Held,
    /// What those counted that are dead.
    pub(crate) dead_clients: Vec<Counters>,
    pub(crate) dead_servers: Vec<Stats>,
}

impl Env {
    /// The host of a server's core.
    pub(crate) const fn host_of(&self, station: Station) -> Host {
        Host(station.replica.0 as usize * self.scenario.cores + station.core as usize)
    }

    /// Dials another host.
    pub(crate) fn dial(&mut self, from: Host, to: Host) -> Wire {
        let (wire, (at, knock)) = self.net.dial(from, to, self.now);
        self.events.push(at, Event::Arrival(knock));
        wire
    }

    /// Sends bytes from one end of a wire.
    pub(crate) fn send(&mut self, wire: Wire, from: End, bytes: Vec<u8>) {
        for due in self.net.send(wire, from, bytes, self.now) {
            self.schedule(due);
        }
    }

    /// One end of a wire has read so many bytes, if anybody counts them.
    pub(crate) fn read(&mut self, wire: Wire, by: End, count: usize) {
        if self.scenario.wires.window.is_some() {
            let due = self.net.read(wire, by, count, self.now);
            self.schedule(due);
        }
    }

    /// Closes one end of a wire.
    pub(crate) fn close(&mut self, wire: Wire, from: End) {
        let due = self.net.close(wire, from, self.now);
        self.schedule(due);
    }

    /// What the network said will arrive, will.
    pub(crate) fn schedule(&mut self, due: Option<Due>) {
        if let Some((at, arrival)) = due {
            self.events.push(at, Event::Arrival(arrival));
        }
    }

    /// A frame came to a host.
    pub(crate) fn note_frame(&mut self, host: Host, wire: Wire, frame: &Frame<'_>) {
        self.frames += 1;
        let at = self.now;
        let name = || self.name(host);
        let from = || self.peer_name(host, wire);
        let line = || (name(), format!("<- {:<12} {}", from(), describe(frame)));
        let line = self.timeline.is_readable().then(line);
        if let Some((who, text)) = line {
            self.timeline.line(at, topic(frame), who, text);
        }
    }

    /// A host does something of its own.
    pub(crate) fn note(
        &mut self,
        host: Host,
        topic: Topic,
        key: &[u64],
        text: impl FnOnce() -> String,
    ) {
        let at = self.now;
        let readable = self.timeline.is_readable();
        let line = readable.then(|| (self.name(host), text()));
        self.timeline.note(at, topic, key, || line.unwrap_or_default());
    }

    /// The world does something to everybody.
    pub(crate) fn note_world(&mut self, key: &[u64], text: impl FnOnce() -> String) {
        self.timeline.note(self.now, Topic::World, key, || ("world".to_owned(), text()));
    }

    /// A host's name for people.
    pub(crate) fn name(&self, host: Host) -> String {
        let cores = self.scenario.cores;
        let servers = self.scenario.servers * cores;
        match host.0.checked_sub(servers) {
            Some(client) => format!("client {client}"),
            None if cores == 1 => format!("server {}", host.0),
            None => format!("server {}.{}", host.0 / cores, host.0 % cores),
        }
    }

    fn peer_name(&self, host: Host, wire: Wire) -> String {
        let ends = [End::Dialler, End::Listener].map(|end| self.net.host(wire, end));
        let peer = ends.into_iter().flatten().find(|&end| end != host);
        peer.map_or_else(|| "somebody".to_owned(), |peer| self.name(peer))
    }
}

/// The topic of a frame.
pub(crate) fn topic(frame: &Frame<'_>) -> Topic {
    let attempt = match frame {
        Frame::Request(request, _) | Frame::RequestWith(request, ..) => request.attempt,
        Frame::Segment(segment, _) => segment.attempt,
        Frame::Cancel(cancel) => cancel.attempt,
        Frame::Started(started) => started.attempt,
        Frame::Reply(reply, _) | Frame::ReplyWith(reply, ..) => reply.attempt,
        Frame::Ended(ended) => ended.attempt,
        Frame::Overloaded(overloaded) => overloaded.attempt,
        _ => return Topic::Link,
    };
    Topic::Call(attempt.client.0, attempt.seq.0)
}

fn describe(frame: &Frame<'_>) -> String {
    match frame {
        Frame::Segment(segment, bytes) => {
            let (of, from) = (segment.of, segment.offset as usize);
            format!("segment {:?} {of:?}, {from} to {}", segment.attempt, from + bytes.len())
        }
        Frame::ReplyWith(reply, options, _) => {
            format!("reply {:?}: {:?}, {:?} bytes", reply.attempt, reply.status, options.total())
        }
        Frame::Request(request, _) | Frame::RequestWith(request, ..) => {
            let tie = request.tie.map(|tie| format!(", tied to {:?}", tie.twin));
            let (attempt, cause) = (request.attempt, request.cause);
            format!("request {attempt:?} {cause:?}{}", tie.unwrap_or_default())
        }
        Frame::Cancel(cancel) => format!("cancel {:?}: {:?}", cancel.attempt, cancel.reason),
        Frame::Started(started) => format!("started {:?}", started.attempt),
        Frame::Reply(reply, _) => format!("reply {:?}: {:?}", reply.attempt, reply.status),
        Frame::Ended(ended) => match ended.by {
            Some(by) => format!("ended {:?}: {:?} by #{by}", ended.attempt, ended.how),
            None => format!("ended {:?}: {:?}", ended.attempt, ended.how),
        },
        Frame::Overloaded(overloaded) => format!("overloaded {:?}", overloaded.attempt),
        other => format!("{other:?}"),
    }
}
