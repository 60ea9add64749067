//! What is told, in a log and by errors, to who has to do something about it.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bowline_client::core::{Classifier, Verdict};
use bowline_client::io::{Live, MethodConfig};
use bowline_client::{Client, Config};
use bowline_protocol::{ErrorKind, Executed, Method, MethodInfo, ServiceInfo, Status};

use crate::ear::{fail_once, lines, listen};
use crate::server::{Answer, LONG, READ, Server, World, config, run};

/// Lets the client get on until that is so.
pub(crate) async fn until(what: impl Fn() -> bool) {
    let wait = async {
        while !what() {
            bowline_runtime::yield_now().await;
        }
    };
    bowline_runtime::timeout(LONG, wait).await.expect("it did not come to that");
}

#[test]
fn a_setting_that_connected_clients_do_not_follow_is_named_with_the_cure() {
    listen();
    let replica = bowline_client::Replica::new(1, "127.0.0.1:7000".parse().unwrap());
    let live = Live::new(Config::new([replica])).unwrap();
    let before = live.config().as_ref().clone();
    live.set(Config { connect_wait: before.connect_wait, ..before.clone() }).unwrap();
    assert_eq!(lines("WARN"), Vec::<String>::new());
    live.set(Config { max_reply: 4096, ..before.clone() }).unwrap();
    let told = lines("WARN");
    assert!(told[0].starts_with("WARN max_reply is 4096 now and was 1048576: "), "{told:?}");
    assert!(
        told[0].ends_with("restart the program for it to count") && told.len() == 1,
        "{told:?}"
    );
    // It is told once, and no more when it is what connected clients have.
    live.set(Config { max_reply: 4096, ..before.clone() }).unwrap();
    live.set(before.clone()).unwrap();
    assert_eq!(lines("WARN"), told);
    live.set(Config { max_reply: 4096, ..before }).unwrap();
    assert_eq!(lines("WARN").len(), 2);
}

#[test]
fn what_is_set_in_vain_is_told_once_at_the_start_and_at_the_change_that_brings_it() {
    run(async {
        let servers = [1].map(Server::start);
        let reserved = |reserve| {
            let mut config = config(&servers);
            config.core.reserve = reserve;
            config
        };
        listen();
        let live = Live::new(reserved(Duration::ZERO)).unwrap();
        let _client = Client::connect(live.client_config()).await.unwrap();
        assert_eq!(lines("WARN"), Vec::<String>::new());
        for _ in 0..2 {
            live.set(reserved(LONG)).unwrap();
        }
        let told = lines("WARN");
        let expected = "WARN reserve is 120s, but no deadline is longer than 1s: ";
        assert!(told.len() == 1 && told[0].starts_with(expected), "{told:?}");
        // Without anything that follows it, it is told as one connects, on however many cores.
        let _other = Client::connect(live.client_config()).await.unwrap();
        assert_eq!(lines("WARN").len(), 1);
        let _plain = Client::connect(reserved(LONG)).await.unwrap();
        assert_eq!(lines("WARN").len(), 2);
    });
}

#[test]
fn clients_follow_what_is_set_whatever_the_log_does_with_what_is_told_of_it() {
    run(async {
        let servers = [1, 2].map(Server::start);
        let live = Live::new(config(&servers)).unwrap();
        let client = Client::connect(live.client_config()).await.unwrap();
        fail_once();
        let fewer = Config { max_reply: 4096, ..config(&servers[..1]) };
        let set = std::panic::catch_unwind(AssertUnwindSafe(|| live.set(fewer)));
        assert!(set.is_err(), "the log panics");
        until(|| client.connected() == 1).await;
    });
}

#[test]
fn each_loss_of_a_connection_is_told_but_only_the_first_of_an_outage_as_a_warning() {
    run(async {
        // None of its connections is steady, however slow the machine.
        let world = World::with(|config| config.backoff.1 = LONG).await;
        listen();
        let server = &world.servers[0];
        for round in 1..=3 {
            server.break_connections();
            until(|| server.accepted.get() == round + 1 && world.client.connected() == 3).await;
        }
        let about = |level| lines(level).into_iter().filter(|line| line.contains("replica=1 "));
        assert_eq!(about("WARN").count(), 1, "{:?}", lines(""));
        assert_eq!(about("INFO").filter(|line| line.contains("lost again: ")).count(), 2);
    });
}

#[test]
fn who_answers_in_the_place_of_a_replica_that_was_not_there_is_told_though_that_was_told_before() {
    run(async {
        let servers = [Server::start(1), Server::start(2)];
        servers[1].stop();
        listen();
        // It waits for both, longer than all of this takes.
        let connecting = bowline_runtime::spawn(Client::connect(config(&servers)));
        until(|| lines("WARN").iter().any(|line| line.contains("refused"))).await;
        let other = Server::start_at(9, servers[1].address);
        until(|| lines("WARN").iter().any(|line| line.contains("replica 2 was expected"))).await;
        // It goes on dialling, and says no more of it.
        let accepted = other.accepted.get();
        until(|| other.accepted.get() > accepted + 3).await;
        assert_eq!((lines("WARN").len(), servers[0].accepted.get()), (2, 1), "{:?}", lines("WARN"));
        connecting.abort();
    });
}

#[test]
fn a_request_above_a_limit_names_it_and_both_sizes() {
    run(async {
        let world = World::with(|config| config.core.max_payload = 10).await;
        let failure = world.client.call(READ, [0; 11]).await.unwrap_err();
        let expected = "the payload is above the limit (it did not run): \
                        the request has 11 bytes, and core.max_payload is 10 here";
        assert_eq!(failure.to_string(), expected);
        assert_eq!(failure.payload(), b"the request has 11 bytes, and core.max_payload is 10 here");
        assert!(world.client.call(READ, [0; 10]).await.is_ok());
    });
}

#[test]
fn a_call_of_a_method_that_is_not_there_names_it_and_those_that_are() {
    const METHODS: &[MethodInfo] =
        &[MethodInfo::new(READ, "read"), MethodInfo::new(Method(2), "write")];
    const INFO: ServiceInfo = ServiceInfo::new("store", METHODS);
    run(async {
        let server = Server::start(1);
        for (methods, expected) in
            [(Some(&INFO), "method 9; \"store\" has 1 (read), 2 (write)"), (None, "method 9")]
        {
            server.methods.set(methods);
            server.answer.set(Answer::Fail(Status::NoSuchMethod));
            let client = Client::connect(config(std::slice::from_ref(&server))).await.unwrap();
            let failure = client.call(Method(9), b"x").deadline(LONG).await.unwrap_err();
            let text = failure.to_string();
            let ran = text.strip_suffix(expected).unwrap_or(&text);
            assert_eq!(ran, "the service has no such method (it ran): ", "as this server says");
        }
    });
}

#[test]
fn of_replicas_that_differ_the_one_is_cited_that_has_not_the_method_however_long_its_names_are() {
    const NAMES: [&str; 13] =
        ["a_name_of_a_method_that_is_rather_long_as_it_says_what_it_does_well"; 13];
    const OLD: &[MethodInfo] = &{
        let mut methods = [MethodInfo::new(Method(0), ""); 13];
        let mut at = 0;
        while at < 13 {
            methods[at] = MethodInfo::new(Method(at as u16 + 1), NAMES[at]);
            at += 1;
        }
        methods
    };
    const NEW: &[MethodInfo] = &[MethodInfo::new(Method(98), "scan")];
    const INFOS: [ServiceInfo; 2] = [ServiceInfo::new("new", NEW), ServiceInfo::new("old", OLD)];
    run(async {
        let servers = [1, 2].map(Server::start);
        servers[0].methods.set(Some(&INFOS[0]));
        servers[1].methods.set(Some(&INFOS[1]));
        servers[0].answer.set(Answer::Refuse);
        servers[1].answer.set(Answer::Fail(Status::NoSuchMethod));
        let client = Client::connect(config(&servers)).await.unwrap();
        let failure = client.call(Method(99), b"x").deadline(LONG).await.unwrap_err();
        assert_eq!(failure.outcome().and_then(|it| it.winner).map(|it| it.replica.0), Some(2));
        let text = failure.to_string();
        assert!(text.contains(": method 99; \"old\" has 1 (a_name_of_a_method"), "{text}");
        assert!(text.ends_with(", and 1 more"), "{text}");
    });
}

#[test]
fn a_method_that_its_service_does_not_hold_to_be_idempotent_is_not_set_to_be() {
    const METHODS: &[MethodInfo] = &[MethodInfo::new(READ, "append").keyed()];
    let replica = bowline_client::Replica::new(1, "127.0.0.1:7000".parse().unwrap());
    let of = |idempotent| MethodConfig { idempotent, ..MethodConfig::default() };
    let with = |idempotent| Config {
        service: Some(ServiceInfo::new("store", METHODS)),
        ..Config::new([replica.clone()]).method(READ, of(idempotent))
    };
    assert!(Live::new(with(false)).is_ok());
    let error = Live::new(with(true)).unwrap_err().to_string();
    let expected =
        "method 1 (\"append\") is set to be idempotent, but \"store\" does not declare it so";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn a_reply_that_is_too_large_is_told_of_as_one_though_no_handler_ran() {
    run(async {
        let world = World::with(|config| config.max_reply = 4096).await;
        world.servers[0].executes.set(false);
        world.servers[0].answer.set(Answer::Fail(Status::TooLarge));
        let failure = world.client.call(READ, b"x").deadline(LONG).await.unwrap_err();
        let expected =
            "the payload is above the limit (it did not run): why; max_reply is 4096 here";
        assert_eq!(failure.to_string(), expected);
    });
}

#[test]
fn a_reply_that_is_too_large_is_told_of_as_one_though_it_was_not_the_last_word() {
    run(async {
        let patient = Classifier::new(|status, _: &[u8]| match status {
            Status::TooLarge => Verdict::Retryable,
            _ => Verdict::of(status),
        });
        let method = MethodConfig { classifier: patient, deadline: LONG, ..Default::default() };
        let world = World::with(|config| config.methods.push((READ, method))).await;
        for server in &world.servers {
            server.answer.set(Answer::Fail(Status::TooLarge));
        }
        let failure = world.client.call(READ, b"x").await.unwrap_err();
        let error = (failure.error().kind, failure.error().executed);
        assert_eq!(error, (ErrorKind::PayloadTooLarge, Executed::Yes));
        assert!(failure.to_string().contains("why; max_reply is "), "{failure}");
    });
}

#[test]
fn a_reply_above_the_limit_names_it_beside_what_the_server_says() {
    run(async {
        let world = World::with(|config| config.max_reply = 4096).await;
        world.servers[0].answer.set(Answer::Fail(Status::TooLarge));
        let failure = world.client.call(READ, b"x").deadline(LONG).await.unwrap_err();
        let error = (failure.error().kind, failure.error().executed);
        assert_eq!(error, (ErrorKind::PayloadTooLarge, Executed::Yes));
        let expected = "the payload is above the limit (it ran): why; max_reply is 4096 here";
        assert_eq!(failure.to_string(), expected);
    });
}
