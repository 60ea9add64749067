//! A world whose next event somebody else chooses, whatever its time: for a search that tries them
//! all.

use bowline_client::core::MAX_ATTEMPTS;
use bowline_protocol::{Attempt, Frame, Inbox};

use crate::kernel::events::Events;
use crate::kernel::net::{Arrival, Host, Parcel};
use crate::kernel::rng::mix;
use crate::kernel::span::Nanos;
use crate::world::env::Event;
use crate::world::fault::What;
use crate::world::report::Report;
use crate::world::run::{Machine, World};

/// One event that may be the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    event: Event,
    /// The one or two hosts that it touches, unless it touches more, or moves the time on for all.
    hosts: Option<[Host; 2]>,
}

impl Choice {
    /// Whether it makes no difference which of two comes first: each touches hosts of its own.
    pub fn commutes_with(self, other: Choice) -> bool {
        let (Some(ours), Some(theirs)) = (self.hosts, other.hosts) else { return false };
        ours.iter().all(|host| !theirs.contains(host))
    }
}

impl World {
    /// Lets the world go its own way until `until`: connections are made, nothing is called yet.
    pub fn settle_until(&mut self, until: Nanos) {
        self.searched = true;
        while self.env.events.next_at().is_some_and(|at| at < until)
            && let Some((at, event)) = self.env.events.pop()
        {
            self.step(at, event);
        }
    }

    /// The events up to `horizon` that may come next, as far as it matters which does: word that is of
    /// no use to anybody any more comes first, alone.
    pub fn choices(&self, horizon: Nanos) -> Vec<Choice> {
        let choices = self.all_choices(horizon);
        match choices.iter().find(|choice| self.is_of_no_use(choice.event)) {
            Some(&choice) => vec![choice],
            None => choices,
        }
    }

    /// The events up to `horizon` that may come next, each as good as any other: messages and
    /// handlers take as long as they like, loops turn when they like.
    pub fn all_choices(&self, horizon: Nanos) -> Vec<Choice> {
        let mut choices: Vec<Choice> = Vec::new();
        for (_, at, &event) in self.env.events.waiting() {
            let may = self.is_live(at, event);
            // Of those that look alike, as the arrivals of one lane do, the first comes first.
            let first = choices.iter().all(|choice| choice.event != event);
            if may && first && at <= horizon {
                let hosts = self.touched_by(event).filter(|_| at <= self.env.now);
                choices.push(Choice { event, hosts });
            }
        }
        choices
    }

    /// An arrival that changes nothing but what its host has counted, now or whenever it may come: any
    /// at a client all of whose calls are over, and cancels of copies that are over. So every course in
    /// which it comes later has its like among those in which it comes now, and they need not be
    /// followed. Of a world with faults that is not said: a wire may break before. Nor where a tombstone
    /// that is of no use may take the place of another.
    fn is_of_no_use(&self, event: Event) -> bool {
        let Event::Arrival(arrival) = event else { return false };
        let host = self.env.net.host(arrival.wire, arrival.at);
        let (Some(host), Some(parcel)) = (host, self.env.net.next(arrival)) else { return false };
        let Parcel::Bytes(bytes) = parcel else { return false };
        let (node, book) = (&self.nodes[host.0], &self.env.book);
        let scenario = &self.env.scenario;
        let copies = MAX_ATTEMPTS as u64 * scenario.calls * scenario.clients as u64;
        let tombstones = u64::from(scenario.server.tombstones);
        let over = match node.machine {
            Machine::Client(_) => {
                node.calls_left == 0 && node.inbox.is_empty() && book.is_over(host)
            }
            Machine::Server(_) if tombstones == 0 || tombstones >= copies => cancelled(bytes)
                .is_some_and(|named| named.iter().all(|&attempt| book.has_ended(attempt))),
            Machine::Server(_) | Machine::Dead { .. } => false,
        };
        over && scenario.faults.is_empty()
    }

    /// Whether an event means anything yet: a timer that was set anew, for example, does not; nor does the
    /// arrival of what was lost on its way, after which the world would be as before, and left as seen.
    fn is_live(&self, at: Nanos, event: Event) -> bool {
        match event {
            Event::Wake(host, life) => {
                let node = &self.nodes[host.0];
                node.life == life && node.wake == Some(at)
            }
            Event::Turn(host, life) => self.nodes[host.0].life == life,
            Event::Arrival(arrival) => self.env.net.next(arrival).is_some(),
            Event::Tick => false,
            _ => true,
        }
    }

    /// The hosts that an event touches, if they are at most two.
    fn touched_by(&self, event: Event) -> Option<[Host; 2]> {
        let one = match event {
            Event::Arrival(Arrival { wire, at }) => self.env.net.host(wire, at)?,
            Event::Wake(host, _)
            | Event::Turn(host, _)
            | Event::Handler(host, ..)
            | Event::Call(host, _)
            | Event::GiveUp(host, ..) => host,
            Event::Fault(number) | Event::Heal(number) => return self.struck_by(number),
            Event::Tick => return None,
        };
        Some([one, one])
    }

    fn struck_by(&self, number: usize) -> Option<[Host; 2]> {
        let (a, b) = match self.env.scenario.faults[number].what {
            What::Kill(a) | What::Freeze(a) | What::FallBehind(a, _) => (a, a),
            What::Cut(a, b) => (a, b),
            _ => return None,
        };
        match (&*self.hosts_of(a), &*self.hosts_of(b)) {
            (&[a], &[b]) => Some([a, b]),
            _ => None,
        }
    }

    /// Lets this event happen next; and if loops turn `at_once`, the turns that it asks for.
    pub fn choose(&mut self, choice: Choice, at_once: bool) {
        let waiting = self.env.events.waiting();
        let is_chosen = |at, event| event == choice.event && self.is_live(at, event);
        let chosen = waiting.iter().find(|&&(_, at, &event)| is_chosen(at, event));
        let mut next = chosen.map(|&(number, ..)| number);
        while let Some(number) = next {
            if let Some((at, event)) = self.env.events.take(number) {
                self.step(at, event);
            }
            let waiting = self.env.events.waiting();
            let mut turns = waiting.iter().filter(|(.., event)| matches!(event, Event::Turn(..)));
            next = turns.next().map(|&(number, ..)| number).filter(|_| at_once);
        }
    }

    /// A number that stands for the state of all machines and of all that is under way: what can
    /// follow depends on nothing else.
    pub fn fingerprint(&self) -> u64 {
        let mut hash = mix(self.env.now ^ self.env.net.fingerprint());
        for node in &self.nodes {
            hash = mix(hash ^ node.history);
            hash = mix(node.inbox.iter().fold(hash, crate::world::env::Input::mix_into));
        }
        hash ^ future(&self.env.events)
    }

    /// Whether a rule has been broken.
    pub const fn is_broken(&self) -> bool {
        self.env.book.broken().is_some()
    }

    /// The report as of now.
    pub fn stop(self) -> Report {
        self.report()
    }
}

/// The copies that frames name if all of them are cancels.
fn cancelled(bytes: &[u8]) -> Option<Vec<Attempt>> {
    let mut inbox = Inbox::new(0);
    let mut frames = inbox.feed(bytes);
    let mut named = Vec::new();
    while let Some(frame) = frames.next().ok()? {
        let Frame::Cancel(cancel) = frame else { return None };
        named.push(cancel.attempt);
    }
    Some(named)
}

/// Stands for the events that wait, in any order. Arrivals are in the net's own fingerprint.
fn future(events: &Events<Event>) -> u64 {
    let one = |(_, at, event): (u64, Nanos, &Event)| match *event {
        Event::Arrival(_) => 0,
        Event::Wake(host, life) => mix(mix(1 ^ at) ^ (host.0 as u64) << 8 ^ u64::from(life)),
        Event::Turn(host, life) => mix(2 ^ (host.0 as u64) << 8 ^ u64::from(life) << 32),
        Event::Handler(host, life, key) => {
            mix(mix(3 ^ at) ^ (host.0 as u64) << 8 ^ u64::from(life) << 32 ^ key.index() as u64)
        }
        Event::Call(host, life) => mix(4 ^ (host.0 as u64) << 8 ^ u64::from(life) << 32),
        Event::GiveUp(host, life, call) => {
            mix(mix(5 ^ call) ^ (host.0 as u64) << 8 ^ u64::from(life) << 32)
        }
        Event::Tick => 0,
        Event::Fault(number) => mix(6 ^ (number as u64) << 8),
        Event::Heal(number) => mix(7 ^ (number as u64) << 8),
    };
    events.waiting().into_iter().map(one).fold(0, u64::wrapping_add)
}
