//! What becomes of calls.

use std::time::Duration;

use bowline_client::Client;
use bowline_client::core::{Budget, BudgetConfig, Classifier, Delay, HedgePolicy, Policy, Verdict};
use bowline_client::io::MethodConfig;
use bowline_protocol::{
    CancelReason, Cause, ErrorKind, How, Label, MethodInfo, ServiceInfo, Status,
};
use bowline_runtime::timeout;

use crate::server::{Answer, READ, Server, World, config, hedged, run, tied};

const DEADLINE: Duration = Duration::from_secs(10);

#[test]
fn a_call_brings_its_reply_and_what_it_took() {
    run(async {
        let world = World::new().await;
        let reply = world.client.call(READ, b"block 9").deadline(DEADLINE).await.unwrap();
        assert_eq!(&reply[..], b"block 9");
        assert_eq!((reply.outcome().attempts, reply.outcome().winner.unwrap().n), (1, 0));
        let (request, payload) = world.servers[0].requests.borrow()[0].clone();
        assert_eq!((request.method, &payload[..]), (READ, &b"block 9"[..]));
        assert!(request.remaining <= DEADLINE && request.remaining > DEADLINE / 2);
        assert!(!request.idempotent);
        assert!(world.client.counters().reconcile());
    });
}

#[test]
fn a_replica_that_understands_no_options_gets_the_call_without() {
    run(async {
        let world = World::new().await;
        let call = world.client.call(READ, b"block 9").key(7).label(Label::new("tenant"));
        assert_eq!(&call.deadline(DEADLINE).await.unwrap()[..], b"block 9");
    });
}

#[test]
fn many_calls_at_once_each_get_their_own_reply() {
    run(async {
        let world = World::with(|config| config.core.pick = Default::default()).await;
        let calls: Vec<_> = (0..500u64)
            .map(|number| {
                let call = world.client.call(READ, number.to_le_bytes()).deadline(DEADLINE);
                bowline_runtime::spawn(call.into_future())
            })
            .collect();
        for (number, call) in (0..500u64).zip(calls) {
            assert_eq!(&call.await.unwrap().unwrap()[..], number.to_le_bytes());
        }
        assert!(world.servers.iter().all(|server| server.seen() > 50), "all have their share");
        assert_eq!((world.client.counters().ok, world.client.counters().live), (500, 0));
    });
}

#[test]
fn a_slow_call_is_hedged_and_its_loser_cancelled_on_the_wire() {
    run(async {
        let world = World::new().await;
        let policy = world.client.register(hedged()).unwrap();
        let [slow, fast, _] = &world.servers;
        slow.answer.set(Answer::Silence);
        let call = world.client.call(READ, b"x").idempotent().policy(policy).deadline(DEADLINE);
        let reply = call.await.unwrap();
        assert_eq!(reply.outcome().winner.unwrap().cause, Cause::Hedge);
        assert_eq!(fast.seen(), 1);
        slow.until(|slow| !slow.cancels.borrow().is_empty()).await;
        let cancel = slow.cancels.borrow()[0];
        assert_eq!((cancel.attempt.n, cancel.reason), (0, CancelReason::CallerDone));
        assert_eq!(world.client.counters().hedge_wins, 1);
    });
}

#[test]
fn tied_copies_name_each_other_and_a_start_is_relayed_to_the_twin() {
    run(async {
        let world = World::new().await;
        let policy = world.client.register(tied()).unwrap();
        let [one, two, _] = &world.servers;
        one.answer.set(Answer::Start);
        two.answer.set(Answer::Silence);
        let call = world.client.call(READ, b"x").idempotent().policy(policy).deadline(DEADLINE);
        let call = bowline_runtime::spawn(call.into_future());
        two.until(|two| !two.cancels.borrow().is_empty()).await;
        let cancel = two.cancels.borrow()[0];
        let CancelReason::TwinStarted { by } = cancel.reason else { panic!("{cancel:?}") };
        assert_eq!((by.n, by.station.replica.0), (0, 1));
        let tie = |server: &crate::server::Server| server.requests.borrow()[0].0.tie.unwrap().twin;
        assert_eq!((tie(one).station.replica.0, tie(two).station.replica.0), (2, 1));
        call.abort();
    });
}

#[test]
fn a_failure_tells_what_happened_and_brings_the_services_payload() {
    run(async {
        let world = World::new().await;
        world.servers.iter().for_each(|server| server.answer.set(Answer::Fail(Status::App(7))));
        let failure = world.client.call(READ, b"x").deadline(DEADLINE).await.unwrap_err();
        assert_eq!(failure.error().kind, ErrorKind::App(7));
        assert_eq!(failure.payload(), b"why");
        assert_eq!(failure.outcome().unwrap().attempts, 1, "it ran, and is not idempotent");
        assert!(!failure.to_string().contains("why"), "that is for who knows the service");
        world.servers.iter().for_each(|server| server.answer.set(Answer::Fail(Status::Failed)));
        let failure = world.client.call(READ, b"x").deadline(DEADLINE).await.unwrap_err();
        assert_eq!(failure.to_string(), "the handler failed (it ran): why");
        let shown = format!("{failure:?}");
        assert!(
            shown.starts_with("Failure { error: the handler failed (it ran): why, "),
            "{shown}"
        );
    });
}

#[test]
fn a_refused_or_shed_copy_is_sent_again_elsewhere() {
    run(async {
        let world = World::new().await;
        world.servers[0].answer.set(Answer::Refuse);
        world.servers[1].answer.set(Answer::End(How::Shed));
        let reply = world.client.call(READ, b"x").deadline(DEADLINE).await.unwrap();
        assert_eq!((reply.outcome().attempts, &reply[..]), (3, &b"x"[..]));
    });
}

#[test]
fn a_replica_that_withdraws_all_it_is_sent_fails_no_call_that_another_would_serve() {
    run(async {
        let world = World::new().await;
        world.servers[0].answer.set(Answer::End(How::Withdrawn));
        let reply = world.client.call(READ, b"x").deadline(DEADLINE).await.unwrap();
        assert_eq!((reply.outcome().attempts, &reply[..]), (2, &b"x"[..]));
        world.servers.iter().for_each(|server| server.answer.set(Answer::End(How::Withdrawn)));
        let failure = world.client.call(READ, b"x").deadline(DEADLINE).await.unwrap_err();
        assert_eq!(
            (failure.error().kind, failure.outcome().unwrap().attempts),
            (ErrorKind::Shed, 3)
        );
    });
}

#[test]
fn the_deadline_ends_a_call_that_nobody_answers() {
    run(async {
        let world = World::new().await;
        world.servers[0].answer.set(Answer::Silence);
        let call = world.client.call(READ, b"x").deadline(Duration::from_millis(2));
        let failure = call.await.unwrap_err();
        assert_eq!(failure.error().kind, ErrorKind::DeadlineExceeded);
        world.servers[0].until(|server| server.cancels.borrow().len() == 1).await;
    });
}

#[test]
fn dropping_the_future_cancels_on_the_wire() {
    run(async {
        let world = World::new().await;
        let server = &world.servers[0];
        server.answer.set(Answer::Silence);
        let call =
            bowline_runtime::spawn(world.client.call(READ, b"x").deadline(DEADLINE).into_future());
        server.until(|server| server.seen() == 1).await;
        call.abort();
        server.until(|server| server.cancels.borrow().len() == 1).await;
        let counters = world.client.counters();
        assert_eq!((counters.cancelled, counters.waiting), (1, 0));
    });
}

#[test]
fn a_call_that_is_never_awaited_is_never_made() {
    run(async {
        let world = World::new().await;
        drop(world.client.call(READ, b"x"));
        drop(world.client.call(READ, b"x").into_future());
        assert_eq!(world.client.counters().calls, 0);
    });
}

#[test]
fn a_methods_settings_hold_for_its_calls() {
    run(async {
        let config = MethodConfig {
            policy: tied(),
            idempotent: true,
            deadline: DEADLINE,
            ..Default::default()
        };
        let world = World::with(|all| all.methods.push((READ, config))).await;
        let reply = world.client.call(READ, b"x").await.unwrap();
        assert!(reply.outcome().tied);
        assert!(world.servers[0].requests.borrow()[0].0.idempotent);
    });
}

#[test]
fn a_methods_view_of_replies_holds_whatever_policy_a_call_follows() {
    run(async {
        let odd = Classifier::new(|status, payload: &[u8]| match payload {
            b"damaged" => Verdict::Fatal,
            _ => Verdict::of(status),
        });
        let config =
            MethodConfig { classifier: odd, deadline: DEADLINE, ..MethodConfig::default() };
        let world = World::with(|all| all.methods.push((READ, config))).await;
        let policy = world.client.register(tied()).unwrap();
        let failure = world.client.call(READ, b"damaged").policy(policy).await.unwrap_err();
        assert_eq!(failure.error().kind, ErrorKind::Invalid);
        assert!(failure.payload().is_empty(), "what was refused is data, and no error's");
        assert!(!failure.to_string().contains("damaged"), "{failure}");
        let lenient = world.client.register_with(tied(), Classifier::new(|_, _| Verdict::Good));
        let call = world.client.call(READ, b"damaged").policy(lenient.unwrap());
        assert_eq!(&call.await.unwrap()[..], b"damaged");
    });
}

#[test]
fn a_payload_above_what_the_replicas_take_is_refused_here() {
    run(async {
        let world = World::with(|config| config.core.max_payload = 8 << 20).await;
        let large = vec![0; (1 << 20) + 1];
        let failure = world.client.call(READ, &large).await.unwrap_err();
        assert_eq!(failure.error().kind, ErrorKind::PayloadTooLarge);
        assert!(world.client.call(READ, &large[1..]).deadline(DEADLINE).await.is_ok());
    });
}

#[test]
fn a_call_can_outlive_its_clients_last_handle_and_still_be_answered() {
    run(async {
        let world = World::new().await;
        let call = world.client.call(READ, b"x").deadline(DEADLINE).into_future();
        drop(world.client);
        assert!(call.await.is_ok());
    });
}

#[test]
fn a_future_that_outlives_the_runtime_is_dropped_in_peace() {
    let mut kept = None;
    run(async {
        let world = World::new().await;
        world.servers[0].answer.set(Answer::Silence);
        let mut call = world.client.call(READ, b"x").deadline(DEADLINE).into_future();
        let polled = timeout(Duration::from_millis(1), &mut call).await;
        assert!(polled.is_err());
        kept = Some((call, world));
    });
    drop(kept);
}

#[test]
fn a_call_is_not_tied_where_the_server_says_that_it_must_not_run_twice() {
    const METHODS: &[MethodInfo] = &[MethodInfo::new(READ, "once")];
    const SERVICE: ServiceInfo = ServiceInfo::new("store", METHODS);
    run(async {
        let servers = [1, 2].map(Server::start);
        servers.iter().for_each(|server| server.methods.set(Some(&SERVICE)));
        let client = Client::connect(config(&servers)).await.unwrap();
        let policy = client.register(tied()).unwrap();
        let reply = client.call(READ, b"block 9").idempotent().policy(policy).await.unwrap();
        assert_eq!((reply.outcome().attempts, reply.outcome().tied), (1, false));
        assert_eq!(client.counters().denied.not_idempotent, 1);
    });
}

#[test]
fn who_makes_do_with_an_older_result_asks_once_more_unless_the_call_may_have_run() {
    run(async {
        for executes in [true, false] {
            let World { servers, client } = World::new().await;
            servers.iter().for_each(|server| {
                server.executes.set(executes);
                server.answer.set(Answer::Fail(Status::Stale));
            });
            let call = client.call(READ, b"x").idempotent().at_least(5).or_older();
            let error = *call.await.expect_err("nobody has it").error();
            assert_eq!(error.kind, ErrorKind::Stale);
            let seen: usize = servers.iter().map(|server| server.seen()).sum();
            // Whoever is asked for what comes says the same here, and so all are asked once more.
            assert_eq!(seen, if executes { 3 } else { 6 });
        }
    });
}

#[test]
fn what_a_client_counts_is_seen_from_another_thread_as_a_page() {
    run(async {
        let budget = Budget::new(BudgetConfig { burst: 9, ..BudgetConfig::default() }).unwrap();
        let of_read = MethodConfig {
            policy: Policy::Hedged(HedgePolicy {
                delay: Delay::Fixed(DEADLINE / 2),
                ..HedgePolicy::default()
            }),
            budget: Some(budget.into()),
            idempotent: true,
            ..MethodConfig::default()
        };
        let world = World::with(|config| *config = config.clone().method(READ, of_read)).await;
        let numbers = bowline_client::io::Numbers::default();
        for _ in 0..3 {
            world.client.call(READ, b"x").deadline(DEADLINE).await.unwrap();
        }
        world.client.publish(&numbers, 7, Duration::from_secs(3600));
        while numbers.snapshots().is_empty() {
            bowline_runtime::yield_now().await;
        }
        let page = std::thread::spawn(move || numbers.page()).join().unwrap();
        let has = |line: &str| assert!(page.lines().any(|it| it == line), "{line} in {page}");
        has("# TYPE bowline_client_calls counter");
        has("bowline_client_calls_total{core=\"7\"} 3");
        has("bowline_client_ends_total{core=\"7\",how=\"replied\"} 3");
        has("bowline_client_denied_total{core=\"7\",reason=\"no_token\"} 0");
        has("bowline_client_budget_level{core=\"7\"} 256");
        has("bowline_client_amplification_ratio{core=\"7\"} 1");
        has("bowline_client_replica_open{core=\"7\",replica=\"2\"} 1");
        has("bowline_client_method_hedging{core=\"7\",method=\"1\",class=\"\"} 1");
        has("bowline_client_method_hedge_delay_seconds{core=\"7\",method=\"1\",class=\"\"} 5");
        has("bowline_client_method_budget_outstanding{core=\"7\",method=\"1\",class=\"\"} 0");
        has("bowline_client_method_budget_level{core=\"7\",method=\"1\",class=\"\"} 9");
        has("# UNIT bowline_client_call_duration_seconds seconds");
        has("bowline_client_call_duration_seconds_count{core=\"7\"} 3");
        has("bowline_client_attempt_duration_seconds_bucket{core=\"7\",le=\"+Inf\"} 3");
        assert!(page.ends_with("# EOF\n"));
        // Every name is declared once, and every line is of a name that was.
        let declared: Vec<_> = page.lines().filter_map(|it| it.strip_prefix("# TYPE ")).collect();
        for (n, name) in declared.iter().enumerate() {
            assert!(!declared[..n].contains(name), "{name}");
        }
    });
}
