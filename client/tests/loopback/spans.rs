//! The spans of a call and of its copies.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bowline_protocol::Status;

use crate::ear;
use crate::server::{Answer, READ, World, hedged, run, tied};

/// The number in that field of a span.
fn number(span: &str, field: &str) -> u64 {
    let at = span.find(&format!(" {field}=")).unwrap_or_else(|| panic!("no {field} in {span}"));
    let value = &span[at + field.len() + 2..];
    value.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_call_has_a_span_and_each_copy_a_child_that_says_how_it_ended() {
    let spans = ear::spans(|| {
        run(async {
            let world = World::new().await;
            let rest = async || {
                while world.client.counters().live > 0 {
                    bowline_runtime::yield_now().await;
                }
            };
            world.servers[0].answer.set(Answer::Silence);
            let [hedged, tied] = [hedged(), tied()].map(|it| world.client.register(it).unwrap());
            let call = |policy| world.client.call(READ, b"x").idempotent().policy(policy);
            call(hedged).deadline(Duration::from_secs(10)).await.unwrap();
            world.servers[0].break_connections();
            rest().await;
            world.servers.iter().for_each(|it| it.answer.set(Answer::Fail(Status::App(7))));
            assert!(call(tied).deadline(Duration::from_secs(10)).await.is_err());
            rest().await;
            // One is dropped as it is under way.
            world.servers.iter().for_each(|it| it.answer.set(Answer::Wait));
            let mut dropped = call(tied).deadline(Duration::from_secs(10)).into_future();
            poll_fn(|context| {
                assert!(Pin::new(&mut dropped).poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            assert_eq!(world.client.snapshot().spans, 1);
            drop(dropped);
            rest().await;
            assert_eq!(world.client.snapshot().spans, 0, "none is left");
        })
    });
    let (call, parent) = &spans[&1];
    assert!(call.starts_with("call ") && parent.is_none(), "{call}");
    assert!(call.ends_with(" attempts=2 hedges=1 tied=false winner=1"), "{call}");
    let copies: Vec<&str> = (2..=3)
        .map(|id| {
            assert_eq!(spans[&id].1, Some(1));
            spans[&id].0.as_str()
        })
        .collect();
    assert!(copies[0].contains(" replica=1 cause=First tied=false"), "{}", copies[0]);
    assert!(copies[0].ends_with(" end=Lost"), "{}", copies[0]);
    assert!(copies[1].contains(" replica=2 cause=Hedge tied=false"), "{}", copies[1]);
    assert!(copies[1].ends_with(" end=Replied"), "{}", copies[1]);
    // The hedge went out a millisecond after its call began, and had as much less time. (Of each, the way
    // to its own replica is taken off as well.)
    let [delays, left] =
        ["delay_us", "remaining_us"].map(|of| [0, 1].map(|n| number(copies[n], of)));
    assert!(delays[0] == 0 && delays[1] >= 1_000, "{delays:?}");
    assert!(left[0] <= 10_000_000 && left[1] > 0, "{left:?}");
    assert!(left[1] + delays[1] <= 10_000_000, "{left:?} {delays:?}");
    let failed = spans.values().find(|(span, _)| span.contains(" error=")).expect("one fails");
    assert!(failed.0.contains(" tied=true ") && failed.0.starts_with("call "), "{}", failed.0);
    assert!(failed.0.contains("error 7"), "{}", failed.0);
}
