//! Who did what when: a hash of everything that happened, and on demand a text to read.

use std::fmt::Write as _;

use crate::kernel::rng::mix;
use crate::kernel::span::Nanos;

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topic {
    /// One call: whose, and its number.
    Call(u64, u64),
    /// The world itself: faults, connections.
    World,
    /// What links tell each other of themselves.
    Link,
}

#[derive(Debug)]
struct Line {
    at: Nanos,
    who: String,
    topic: Topic,
    text: String,
}

/// The record of one run.
#[derive(Debug, Default)]
pub struct Timeline {
    hash: u64,
    events: u64,
    lines: Option<Vec<Line>>,
}

impl Timeline {
    /// A record that keeps the hash, and the lines too if it is to be read.
    pub fn new(readable: bool) -> Timeline {
        Timeline { hash: 0, events: 0, lines: readable.then(Vec::new) }
    }

    /// Something happened. `key` says everything about it in numbers; `text` makes the line, and is
    /// asked only if somebody will read it.
    pub fn note(
        &mut self,
        at: Nanos,
        topic: Topic,
        key: &[u64],
        text: impl FnOnce() -> (String, String),
    ) {
        self.mix(at, key);
        if let Some(lines) = &mut self.lines {
            let (who, text) = text();
            lines.push(Line { at, who, topic, text });
        }
    }

    /// Something happened that makes no line.
    pub fn mix(&mut self, at: Nanos, key: &[u64]) {
        self.hash = mix(self.hash ^ at);
        for &part in key {
            self.hash = mix(self.hash ^ part);
        }
        self.events += 1;
    }

    /// A line for the reader that adds nothing to the hash: what it says is in the hash already.
    pub fn line(&mut self, at: Nanos, topic: Topic, who: String, text: String) {
        if let Some(lines) = &mut self.lines {
            lines.push(Line { at, who, topic, text });
        }
    }

    /// Somebody will read the lines.
    pub const fn is_readable(&self) -> bool {
        self.lines.is_some()
    }

    /// Two runs with the same hash did the same things at the same times.
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// How many things happened.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// The lines about one call and about the world, or all of them, in their order.
    pub fn read(&self, topic: Option<Topic>) -> String {
        let about = |line: &&Line| {
            topic.is_none_or(|topic| line.topic == topic || line.topic == Topic::World)
        };
        let mut text = String::new();
        for line in self.lines.iter().flatten().filter(about) {
            let micros = line.at as f64 / 1e3;
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{micros:>14.3} us  {:<12} {}", line.who, line.text);
        }
        text
    }
}

/// A number that stands for some bytes.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    hash
}
