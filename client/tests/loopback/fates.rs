//! Many calls that end in every way there is, and what is left of them.

use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bowline_client::core::PolicyId;
use bowline_protocol::{How, Status};
use bowline_runtime::{spawn, timeout, yield_now};

use crate::server::{Answer, LONG, READ, Server, World, hedged, run, tied};

/// What servers do in turn.
const WAYS: [Answer; 8] = [
    Answer::Echo,
    Answer::Silence,
    Answer::Refuse,
    Answer::Wait,
    Answer::Fail(Status::App(7)),
    Answer::End(How::Shed),
    Answer::Hangup,
    Answer::Start,
];

#[test]
fn nothing_is_left_of_twenty_thousand_calls_of_mixed_fate() {
    run(async {
        let world = World::with(|config| config.core.pick = Default::default()).await;
        let client = &world.client;
        let policies =
            [PolicyId::NONE, client.register(hedged()).unwrap(), client.register(tied()).unwrap()];
        for round in 0..200 {
            for (which, server) in world.servers.iter().enumerate() {
                server.answer.set(WAYS[(round + 3 * which) % WAYS.len()]);
            }
            let calls: Vec<_> = (0..100)
                .map(|number| {
                    let call = client.call(READ, b"x").idempotent().policy(policies[number % 3]);
                    let mut call = call.deadline(Duration::from_millis(4)).into_future();
                    spawn(async move {
                        if number % 5 == 0 {
                            // Its future is dropped once it is under way.
                            poll_fn(|context| {
                                drop(Pin::new(&mut call).poll(context));
                                Poll::Ready(())
                            })
                            .await;
                        } else {
                            drop(call.await);
                        }
                    })
                })
                .collect();
            for call in calls {
                call.await.unwrap();
            }
        }
        // Copies whose servers keep silent are out until their connections break.
        world.servers.iter().for_each(|server| server.answer.set(Answer::Echo));
        world.servers.iter().map(AsRef::as_ref).for_each(Server::break_connections);
        let rest = async {
            while client.counters().live > 0 {
                yield_now().await;
            }
        };
        timeout(LONG, rest).await.expect("copies are left");
        let left = client.snapshot();
        let counters = left.counters;
        assert!(counters.reconcile() && counters.calls == 20_000, "{counters:?}");
        assert_eq!((left.futures, counters.waiting, left.budget_outstanding), (0, 0, 0));
        assert!(left.replicas.iter().all(|replica| replica.in_flight == 0));
        let fates = [
            ("a reply", counters.ok),
            ("an error", counters.failed - counters.deadline_missed),
            ("its deadline", counters.deadline_missed),
            ("its caller", counters.cancelled),
            ("a withdrawal", counters.withdrawn),
            ("a refusal", counters.rejected),
            ("a shed copy", counters.shed),
            ("a connection", counters.lost - counters.unwatched),
            ("a hedge", counters.hedges),
            ("a tie", counters.tied),
        ];
        for (what, times) in fates {
            assert!(times > 0, "no call met {what}: {counters:?}");
        }
    });
}
