//! What a client tells of itself, after some of everything has happened.

use std::time::Duration;

use bowline_client::core::{EjectConfig, PolicyId};
use bowline_protocol::Status;

use crate::server::{Answer, LONG, READ, World, hedged, run};

#[test]
fn hedges_that_win_and_lose_losers_that_end_and_replicas_that_fail_are_on_the_page() {
    const SOON: Duration = Duration::from_millis(1);
    run(async {
        let eject = EjectConfig { after: 1, first: SOON, max: SOON };
        let world = World::with(|config| config.core.eject = Some(eject)).await;
        let policy = world.client.register(hedged()).unwrap();
        let [one, two, _] = &world.servers;
        let call =
            |policy| world.client.call(READ, b"x").idempotent().policy(policy).deadline(LONG);
        // One hedge wins, and the call's other copy ends later; one is of no use in the end.
        one.answer.set(Answer::Wait);
        call(policy).await.unwrap();
        two.answer.set(Answer::Wait);
        let dropped = bowline_runtime::spawn(call(policy).into_future());
        two.until(|two| two.seen() == 2).await;
        dropped.abort();
        one.until(|one| one.cancels.borrow().len() == 2).await;
        two.until(|two| two.cancels.borrow().len() == 1).await;
        two.answer.set(Answer::Echo);
        // Its probe succeeds once, and then fails.
        let counters = || world.client.counters();
        one.answer.set(Answer::Fail(Status::Failed));
        while counters().ejected < 1 {
            call(PolicyId::NONE).await.unwrap();
        }
        one.answer.set(Answer::Echo);
        while counters().readmitted < 1 {
            call(PolicyId::NONE).await.unwrap();
        }
        one.answer.set(Answer::Fail(Status::Failed));
        while counters().ejected < 2 {
            call(PolicyId::NONE).await.unwrap();
        }
        let at_rest = async {
            while counters().live > 0 {
                bowline_runtime::yield_now().await;
            }
        };
        bowline_runtime::timeout(LONG, at_rest).await.expect("all copies end");
        let page = world.client.snapshot().to_openmetrics(0);
        let has = |line: &str| assert!(page.lines().any(|it| it == line), "{line} in {page}");
        let calls = counters().calls as f64;
        has(&format!("bowline_client_hedge_ratio{{core=\"0\"}} {}", 2.0 / calls));
        has("bowline_client_win_ratio{core=\"0\"} 0.5");
        has("bowline_client_hedges_total{core=\"0\"} 2");
        has("bowline_client_hedge_wins_total{core=\"0\"} 1");
        has("bowline_client_ends_total{core=\"0\",how=\"withdrawn\"} 3");
        has("bowline_client_loser_duration_seconds_count{core=\"0\"} 3");
        has("bowline_client_ejections_total{core=\"0\"} 2");
        has("bowline_client_readmissions_total{core=\"0\"} 1");
        has("bowline_client_replica_ejected{core=\"0\",replica=\"1\"} 1");
        has("bowline_client_replica_ejected{core=\"0\",replica=\"2\"} 0");
        has("bowline_client_futures{core=\"0\"} 0");
    });
}
