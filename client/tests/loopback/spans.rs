//! The spans of a call and of its copies.

use std::time::Duration;

use crate::ear;
use crate::server::{Answer, READ, World, hedged, run};

#[test]
fn a_call_has_a_span_and_each_copy_a_child_that_says_how_it_ended() {
    let spans = ear::spans(|| {
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
        })
    });
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
