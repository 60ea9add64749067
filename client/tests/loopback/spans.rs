//! What a subscriber sees of a call and of its copies.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::{Debug, Write};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

use crate::server::{Answer, READ, World, hedged, run};

/// A span's name and fields, and its parent.
type Known = (String, Option<u64>);

thread_local! {
    /// Whether this thread's spans are wanted. The subscriber is the whole process's: one of a
    /// thread's own would be asked, or not, as other threads' tests come to the same spans first.
    static WANTED: Cell<bool> = const { Cell::new(false) };
}

/// What is known of each span.
#[derive(Default)]
struct Seen {
    spans: Mutex<HashMap<u64, Known>>,
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for &'static Seen {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        WANTED.get() && metadata.target() == "bowline::call"
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut spans = self.spans.lock().unwrap();
        let id = spans.len() as u64 + 1;
        let mut text = span.metadata().name().to_owned();
        span.record(&mut Fields(&mut text));
        spans.insert(id, (text, span.parent().map(Id::into_u64)));
        Id::from_u64(id)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut spans = self.spans.lock().unwrap();
        values.record(&mut Fields(&mut spans.get_mut(&span.into_u64()).unwrap().0));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_call_has_a_span_and_each_copy_a_child_that_says_how_it_ended() {
    static SEEN: LazyLock<Seen> = LazyLock::new(Seen::default);
    let seen: &'static Seen = &SEEN;
    tracing::subscriber::set_global_default(seen).unwrap();
    WANTED.set(true);
    run(async {
        let world = World::new().await;
        world.servers[0].answer.set(Answer::Silence);
        let policy = world.client.register(hedged()).unwrap();
        let call = world.client.call(READ, b"x").idempotent().policy(policy);
        call.deadline(Duration::from_secs(10)).await.unwrap();
        world.servers[0].break_connections();
        while world.client.counters().live > 0 {
            bowline_runtime::yield_now().await;
        }
    });
    WANTED.set(false);
    let spans = seen.spans.lock().unwrap();
    let (call, parent) = &spans[&1];
    assert!(call.starts_with("call ") && parent.is_none(), "{call}");
    assert!(call.contains(" attempts=2") && call.contains(" winner=1"), "{call}");
    let copies: Vec<&str> = (2..=3)
        .map(|id| {
            assert_eq!(spans[&id].1, Some(1));
            spans[&id].0.as_str()
        })
        .collect();
    assert!(copies[0].contains(" replica=1 cause=First"), "{}", copies[0]);
    assert!(copies[0].ends_with(" end=Lost"), "{}", copies[0]);
    assert!(copies[1].contains(" replica=2 cause=Hedge"), "{}", copies[1]);
    assert!(copies[1].ends_with(" end=Replied"), "{}", copies[1]);
}
