//! Connections that break, come back, or never were.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use bowline_client::io::{Live, MethodConfig};
use bowline_client::{Client, Config, ConnectError, Replica};
use bowline_protocol::{
    Attempt, Ended, ErrorKind, Features, Frame, GoAway, How, Load, Method, MethodInfo, ReplicaId,
    ServiceInfo,
};
use bowline_runtime::exposition::Exposition;
use bowline_runtime::{JoinHandle, spawn, yield_now};

use crate::server::{Answer, LONG, READ, Server, World, config, run, tied};

const DEADLINE: Duration = Duration::from_secs(10);

#[test]
fn a_replica_that_hangs_up_in_the_middle_loses_no_call() {
    run(async {
        let world = World::new().await;
        world.servers[0].answer.set(Answer::Hangup);
        let reply = world.client.call(READ, b"x").idempotent().deadline(DEADLINE).await.unwrap();
        assert_eq!((reply.outcome().attempts, reply.outcome().winner.unwrap().n), (2, 1));
        assert_eq!(world.client.counters().lost, 1);
    });
}

#[test]
fn a_replica_that_stops_reading_is_sent_so_much_and_the_rest_goes_elsewhere() {
    run(async {
        let world = World::with(|config| config.core.max_backlog = 1 << 20).await;
        let [deaf, one, two] = &world.servers;
        deaf.deaf.set(true);
        // More than the kernel takes for one that does not read.
        let calls: Vec<_> = (0..100)
            .map(|_| {
                let call = world.client.call(READ, vec![7; 1_000_000]).idempotent();
                spawn(call.deadline(LONG).into_future())
            })
            .collect();
        one.until(|one| one.seen() + two.seen() >= 80).await;
        assert!(world.client.counters().waited_for_room > 0, "they, too, read in their time");
        calls.iter().for_each(JoinHandle::abort);
    });
}

#[test]
fn large_requests_that_had_to_wait_go_elsewhere_when_their_replica_leaves() {
    const CALLS: usize = 1000;
    run(async {
        let servers = [1, 2].map(Server::start);
        let [leaves, stays] = &servers;
        leaves.features.set(Features::OPTIONS.with(Features::SEGMENTS));
        let mut config = config(&servers);
        config.core.max_backlog = usize::MAX;
        let client = Client::connect(config).await.unwrap();
        leaves.deaf.set(true);
        // The kernel does not even take the first segment of each for one that does not read.
        let call = || client.call(READ, vec![7; 40_000]).deadline(LONG).into_future();
        let calls: Vec<_> = (0..CALLS).map(|_| spawn(call())).collect();
        while client.counters().attempts < CALLS as u64 {
            yield_now().await;
        }
        assert_eq!(stays.seen(), 0);
        leaves.say(&Frame::GoAway(GoAway { within: LONG }));
        // They must not run twice, and have not run.
        stays.until(|stays| stays.seen() >= CALLS / 4).await;
        calls.iter().for_each(JoinHandle::abort);
    });
}

#[test]
fn a_large_request_that_was_to_go_to_a_replica_as_that_leaves_goes_elsewhere() {
    const SMALL: u64 = 1500;
    run(async {
        let world = World::with(|config| config.core.max_backlog = usize::MAX).await;
        let World { servers: [leaves, lost, stays], client } = &world;
        leaves.features.set(Features::OPTIONS.with(Features::SEGMENTS));
        leaves.break_connections();
        leaves.until(|it| it.accepted.get() == 2 && it.understood.get() != Features::NONE).await;
        while client.connected() < 3 {
            yield_now().await;
        }
        lost.answer.set(Answer::Silence);
        let policy = client.register(tied()).unwrap();
        let call = client.call(READ, vec![7; 40_000]).idempotent().policy(policy);
        let call = spawn(call.deadline(LONG).into_future());
        lost.until(|lost| lost.seen() == 1).await;
        leaves.deaf.set(true);
        // The kernel does not take all of them for one that does not read: others wait behind them.
        let small = || client.call(READ, vec![7; 30_000]).deadline(LONG).into_future();
        let others: Vec<_> = (0..SMALL).map(|_| spawn(small())).collect();
        while client.counters().attempts < 2 + SMALL {
            yield_now().await;
        }
        lost.stop();
        while client.counters().lost == 0 {
            yield_now().await;
        }
        assert_eq!(stays.seen(), 0);
        let attempt = Attempt { n: 0, ..lost.requests.borrow()[0].0.attempt };
        let (how, by, load) = (How::Withdrawn, Some(1), Load::default());
        // So it goes to the first again, which leaves.
        leaves.say(&Frame::Ended(Ended { attempt, how, by, load }));
        leaves.say(&Frame::GoAway(GoAway { within: LONG }));
        let reply = call.await.unwrap().unwrap();
        assert_eq!((reply.outcome().attempts, reply.outcome().winner.unwrap().n), (4, 3));
        assert_eq!(stays.seen(), 1);
        others.iter().for_each(JoinHandle::abort);
    });
}

#[test]
fn a_call_that_must_not_run_twice_ends_with_the_connection() {
    run(async {
        let world = World::new().await;
        world.servers[0].answer.set(Answer::Hangup);
        let failure = world.client.call(READ, b"x").deadline(DEADLINE).await.unwrap_err();
        assert_eq!(failure.error().kind, ErrorKind::ConnectionLost);
    });
}

#[test]
fn a_broken_connection_is_dialled_again() {
    run(async {
        let world = World::new().await;
        let server = &world.servers[0];
        server.break_connections();
        server.until(|server| server.accepted.get() == 2).await;
        while world.client.connected() < 3 {
            yield_now().await;
        }
        assert!(world.client.call(READ, b"x").deadline(DEADLINE).await.is_ok());
        assert_eq!(server.seen(), 1);
    });
}

#[test]
fn one_replica_in_reach_is_enough_once_patience_is_over() {
    run(async {
        let servers = [Server::start(1), Server::start(2)];
        servers[0].stop();
        let mut config = config(&servers);
        // Longer than it takes to dial the one that is there, on whatever machine.
        config.connect_wait = Duration::from_secs(3);
        let client = Client::connect(config).await.unwrap();
        assert_eq!(client.connected(), 1);
        assert!(client.call(READ, b"x").deadline(DEADLINE).await.is_ok());
        let server = Server::start_at(1, servers[0].address);
        while client.connected() < 2 {
            yield_now().await;
        }
        assert_eq!(server.accepted.get(), 1);
    });
}

#[test]
fn without_any_replica_the_error_says_who_failed_and_why() {
    run(async {
        let server = Server::start(1);
        server.stop();
        let mut config = config(std::slice::from_ref(&server));
        config.connect_wait = Duration::from_millis(50);
        let error = Client::connect(config).await.err().unwrap();
        assert!(matches!(error, ConnectError::NoReplica { .. }));
        // As `main` prints what it returns.
        let text = format!("{error:?}");
        assert!(text.contains("replica 1") && text.contains("refused"), "{text}");
    });
}

#[test]
fn who_dials_a_page_of_metrics_is_told_what_it_is_and_where_to_dial() {
    let page = Exposition::serve("127.0.0.1:0".parse().unwrap(), |_| String::new()).unwrap();
    run(async {
        let mut config = Config::new([Replica::new(1, page.address())]);
        // However long it takes until its answer was read.
        let mut told = String::new();
        let end = Instant::now() + LONG;
        while !told.contains("it answers as an HTTP server does") {
            assert!(Instant::now() < end, "{told}");
            config.connect_wait = Duration::from_millis(500);
            told = Client::connect(config.clone()).await.err().unwrap().to_string();
        }
        assert!(told.contains("take the one that the replica serves at"), "{told}");
    });
}

#[test]
fn without_any_replica_the_error_says_of_each_what_went_wrong_there() {
    run(async {
        let servers = [Server::start(1), Server::start(9)];
        servers[0].stop();
        let at = |n: usize| servers[n].address;
        let mut config = Config::new([Replica::new(1, at(0)), Replica::new(2, at(1))]);
        config.connect_wait = Duration::from_millis(50);
        let text = Client::connect(config).await.err().unwrap().to_string();
        for of in [format!("replica 1 at {}: ", at(0)), format!("replica 2 at {}: ", at(1))] {
            assert!(text.contains(&of), "{text}");
        }
        assert!(text.contains("refused") && text.contains("replica 2 was expected"), "{text}");
    });
}

#[test]
fn what_is_set_for_a_method_that_the_service_has_not_is_refused_by_its_number() {
    const SERVICE: ServiceInfo = ServiceInfo::new("store", &[MethodInfo::new(READ, "read")]);
    run(async {
        let server = Server::start(1);
        let config = || config(std::slice::from_ref(&server)).service(SERVICE);
        let text = "method 7 is set, but \"store\" has no such method; it has 1 (read)";
        let set = config().method(Method(7), MethodConfig::default());
        assert_eq!(Client::connect(set).await.err().unwrap().to_string(), text);
        let mut served = config();
        served.replicas[0].methods = Some(vec![READ, Method(7)]);
        assert_eq!(Client::connect(served).await.err().unwrap().to_string(), text);
        assert!(Client::connect(config().method(READ, MethodConfig::default())).await.is_ok());
    });
}

#[test]
fn what_changes_while_it_is_used_may_be_ahead_of_the_program_by_a_method() {
    const SERVICE: ServiceInfo = ServiceInfo::new("store", &[MethodInfo::new(READ, "read")]);
    run(async {
        let server = Server::start(1);
        let config = || config(std::slice::from_ref(&server)).service(SERVICE);
        let live = Live::new(config()).unwrap();
        let ahead = config().method(Method(7), MethodConfig::default());
        ahead.core.switch.turn_off();
        live.set(ahead).unwrap();
        assert!(!live.config().core.switch.is_on(), "second copies can be stopped all the same");
        let client = Client::connect(live.client_config()).await.unwrap();
        assert!(client.call(READ, b"x").deadline(DEADLINE).await.is_ok());
        assert!(Live::new(live.client_config()).is_ok(), "it starts with what it would have taken");
    });
}

#[test]
fn a_stranger_at_a_replicas_address_is_not_taken_for_it() {
    run(async {
        let server = Server::start(9);
        let mut config = Config::new([Replica::new(1, server.address)]);
        config.connect_wait = Duration::from_millis(50);
        let error = Client::connect(config).await.err().unwrap();
        assert!(error.to_string().contains("replica 1 was expected"), "{error}");
    });
}

#[test]
fn a_bad_setting_is_refused_before_anything_is_dialled() {
    run(async {
        let server = Server::start(1);
        let mut config = config(std::slice::from_ref(&server));
        config.core.max_methods = 0;
        let error = Client::connect(config).await.err().unwrap();
        assert_eq!(error.to_string(), "max_methods is 0, but must be 1 to 1024");
        assert_eq!(server.accepted.get(), 0);
    });
}

#[test]
fn the_last_handle_closes_the_connections() {
    run(async {
        let world = World::new().await;
        let server = &world.servers[0];
        drop(world.client.clone());
        assert!(world.client.call(READ, b"x").deadline(DEADLINE).await.is_ok());
        drop(world.client);
        server.until(|server| server.closed.get() == 1).await;
    });
}

#[test]
fn two_replicas_of_one_number_and_no_replica_at_all_are_refused_at_once() {
    run(async {
        let [one, other] = [1, 1].map(Server::start);
        let error = Client::connect(config(&[one.clone(), other])).await.err().unwrap();
        assert!(matches!(error, ConnectError::Twice(ReplicaId(1))), "{error}");
        let error = Client::connect(config(&[])).await.err().unwrap();
        assert!(matches!(error, ConnectError::NoReplicas), "{error}");
        assert_eq!(one.accepted.get(), 0);
    });
}

#[test]
fn a_client_says_whether_payloads_need_checksums_on_their_way_to_it() {
    run(async {
        for needed in [true, false] {
            let world = World::with(|config| config.payload_checksums = needed).await;
            let understood = world.servers[0].understood.get();
            assert!(understood.has(Features::OPTIONS), "it said hello");
            assert_eq!(understood.has(Features::UNSUMMED), !needed);
        }
    });
}
