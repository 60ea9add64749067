//! A configuration that changes under a client which makes calls.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bowline_client::core::{Candidate, Counters, Delay, PickRule, Policy, RetryConfig};
use bowline_client::io::{Canary, Live, MethodConfig};
use bowline_client::{Client, Config, Failure, Reply as Answered};
use bowline_protocol::{ErrorKind, Frame, Load, Reply, Status};
use bowline_runtime::JoinHandle;

use crate::server::{Answer, READ, RETRY_AFTER, Server, config, run, tied};

const DEADLINE: Duration = Duration::from_secs(10);

fn method(policy: Policy) -> MethodConfig {
    MethodConfig { policy, idempotent: true, deadline: DEADLINE, ..MethodConfig::default() }
}

/// Until the client has followed what was set: it does so in a task of its own.
async fn until(mut what: impl FnMut() -> bool) {
    let wait = async {
        while !what() {
            bowline_runtime::yield_now().await;
        }
    };
    bowline_runtime::timeout(2 * DEADLINE, wait).await.expect("it did not follow");
}

#[test]
fn replicas_come_and_go_and_move_and_no_call_is_lost() {
    run(async {
        let [one, two] = [Server::start(1), Server::start(2)];
        let moved = Server::start_at(1, "127.0.0.1:0".parse().unwrap());
        let sets = [
            vec![one.clone()],
            vec![one.clone(), two.clone()],
            vec![two.clone()],
            vec![two.clone(), moved.clone()],
            vec![moved.clone()],
            vec![one.clone(), two.clone()],
        ];
        let live = Live::new(config(&sets[0])).unwrap();
        let client = Client::connect(live.client_config()).await.unwrap();
        let mut waiting = Vec::new();
        for (round, set) in sets.iter().cycle().take(24).enumerate() {
            live.set(config(set)).unwrap();
            for _ in 0..20 {
                let call = client.call(READ, b"x").idempotent().deadline(DEADLINE);
                waiting.push(bowline_runtime::spawn(call.into_future()));
                bowline_runtime::yield_now().await;
            }
            if round % 2 == 0 {
                until(|| client.connected() == set.len()).await;
            }
        }
        for call in waiting {
            assert!(call.await.is_ok());
        }
        until(|| one.accepted.get() == one.closed.get() + 1).await;
        until(|| moved.accepted.get() == moved.closed.get()).await;
        let counters = client.counters();
        assert_eq!((counters.failed, counters.lost), (0, 0));
        assert!(one.seen() > 0 && two.seen() > 0 && moved.seen() > 0);
    });
}

/// One replica, which calls wait for.
fn at(server: &Rc<Server>) -> Config {
    let mut config = config(std::slice::from_ref(server));
    config.core.patience = DEADLINE;
    config
}

#[test]
fn a_call_waits_for_the_only_replica_while_that_moves() {
    run(async {
        let [old, new] = [Server::start(1), Server::start(1)];
        old.answer.set(Answer::Silence);
        let live = Live::new(at(&old)).unwrap();
        let client = Client::connect(live.client_config()).await.unwrap();
        let call = || client.call(READ, b"x").deadline(DEADLINE);
        let out = bowline_runtime::spawn(call().into_future());
        old.until(|old| old.seen() == 1).await;
        old.answer.set(Answer::Echo);
        live.set(at(&new)).unwrap();
        let mut waiting = Vec::new();
        until(|| {
            // The first ones may still go to the old one, and be out when that ends.
            waiting.push(bowline_runtime::spawn(call().idempotent().into_future()));
            let Counters { stranded, refused, .. } = client.counters();
            stranded + refused > 0
        })
        .await;
        // What kept it from moving is lost.
        old.stop();
        assert!(out.await.unwrap().is_err());
        for call in waiting {
            call.await.unwrap().unwrap();
        }
        assert!(new.seen() > 0);
    });
}

/// A replica that is to move from one server to another, when what it was asked there is answered.
struct Moving {
    servers: [Rc<Server>; 2],
    live: Live,
    client: Rc<Client>,
    /// The one that it was asked, and those that wait for it.
    calls: Vec<JoinHandle<Result<Answered, Failure>>>,
}

impl Moving {
    async fn new() -> Moving {
        let servers = [1, 1].map(Server::start);
        let [old, new] = &servers;
        let live = Live::new(at(old)).unwrap();
        let client = Rc::new(Client::connect(live.client_config()).await.unwrap());
        let call =
            || bowline_runtime::spawn(client.call(READ, b"x").deadline(DEADLINE).into_future());
        old.answer.set(Answer::Silence);
        let mut calls = vec![call()];
        old.until(|old| old.seen() == 1).await;
        old.answer.set(Answer::Echo);
        live.set(at(new)).unwrap();
        until(|| {
            calls.push(call());
            client.counters().stranded > 0
        })
        .await;
        Moving { servers, live, client, calls }
    }

    /// Another set is followed before it has moved, with one replica more.
    async fn follow(&self, set: &[Rc<Server>]) {
        let mut config = config(set);
        config.core.patience = DEADLINE;
        self.live.set(config).unwrap();
        until(|| self.client.connected() == 2).await;
    }

    /// It is answered, and leaves.
    async fn end(self) {
        let [old, _] = &self.servers;
        let attempt = old.requests.borrow()[0].0.attempt;
        let reply = Reply { attempt, status: Status::Ok, executed: true, load: Load::default() };
        old.say(&Frame::Reply(reply, b"x"));
        old.until(|old| old.closed.get() == 1).await;
        for call in self.calls {
            call.await.unwrap().unwrap();
        }
    }
}

#[test]
fn a_replica_that_is_taken_out_while_it_moves_stays_out() {
    run(async {
        let moving = Moving::new().await;
        let (client, new) = (moving.client.clone(), moving.servers[1].clone());
        moving.follow(&[Server::start(2)]).await;
        moving.end().await;
        let ids: Vec<_> = client.snapshot().replicas.iter().map(|it| it.id.0).collect();
        assert_eq!(ids, [2], "of the first there is no hope");
        assert_eq!(new.accepted.get(), 0);
    });
}

#[test]
fn a_replica_that_moves_on_while_it_moves_is_dialled_where_it_is_last() {
    run(async {
        let moving = Moving::new().await;
        let (client, passed) = (moving.client.clone(), moving.servers[1].clone());
        let set = [1, 2].map(Server::start);
        moving.follow(&set).await;
        moving.end().await;
        set[0].until(|last| last.accepted.get() == 1).await;
        until(|| client.connected() == 2).await;
        assert_eq!(passed.accepted.get(), 0);
    });
}

#[test]
fn policies_trials_thoughts_and_the_switch_follow_the_configuration() {
    run(async {
        let servers = [Server::start(1), Server::start(2)];
        let base = config(&servers);
        let live = Live::new(base.clone().method(READ, method(Policy::None))).unwrap();
        let client = Client::connect(live.client_config()).await.unwrap();
        let is_tied = async || client.call(READ, b"x").await.unwrap().outcome().tied;
        assert!(!is_tied().await);

        live.set(base.clone().method(READ, method(tied()))).unwrap();
        until_async(&is_tied, true).await;

        live.config().core.switch.turn_off();
        assert!(!is_tied().await, "at once");
        live.config().core.switch.turn_on();
        assert!(is_tied().await);
        // What comes from a file has a switch of its own.
        let mut read = base.clone().method(READ, method(tied()));
        read.core.switch = Arc::default();
        for second_copies in [false, true] {
            read.core.switch.set(second_copies);
            live.set(read.clone()).unwrap();
            assert_eq!(is_tied().await, second_copies, "and so does a configuration that says so");
        }

        let canary = Some(Canary { policy: tied(), share: 1.0 });
        let shadow = vec![Candidate::Hedge(Delay::Fixed(Duration::ZERO))];
        let of = MethodConfig { canary, shadow, ..method(Policy::None) };
        live.set(base.clone().method(READ, of)).unwrap();
        until(|| client.trial(READ, None).is_some()).await;
        assert!(is_tied().await);
        let trial = client.trial(READ, None).unwrap();
        assert_eq!((trial.canary.ok > 0, trial.stable.ok), (true, 0));
        assert_eq!(client.shadows(READ, None).len(), 1);

        // Its method is no more in the configuration: what holds is the default.
        live.set(base).unwrap();
        until_async(&is_tied, false).await;
        assert!(client.trial(READ, None).is_none());
    });
}

/// Makes calls until they are tied, or are not.
async fn until_async(is_tied: &impl AsyncFn() -> bool, wanted: bool) {
    let wait = async { while is_tied().await != wanted {} };
    bowline_runtime::timeout(2 * DEADLINE, wait).await.expect("it did not follow");
}

#[test]
fn a_configuration_that_can_not_be_had_changes_nothing() {
    run(async {
        let servers = [Server::start(1)];
        let live = Live::new(config(&servers)).unwrap();
        assert!(live.set(Config::new([])).is_err());
        let hedge = bowline_client::core::HedgePolicy { max_hedges: 9, ..Default::default() };
        let wrong = config(&servers).method(READ, method(Policy::Hedged(hedge)));
        assert_eq!(
            live.set(wrong).unwrap_err().to_string(),
            "hedge.max_hedges is 9, but must be 1 to 6"
        );
        assert_eq!(live.generation(), 0);
        servers[0].answer.set(Answer::Echo);
    });
}

#[test]
fn how_refused_calls_are_tried_again_and_replicas_picked_follows_the_configuration() {
    run(async {
        let servers = [Server::start(1), Server::start(2)];
        let base = config(&servers);
        let live = Live::new(base.clone()).unwrap();
        let client = Client::connect(live.client_config()).await.unwrap();
        servers.iter().for_each(|server| server.answer.set(Answer::Refuse));
        let call = async || client.call(READ, b"x").idempotent().deadline(DEADLINE).await;
        assert_eq!(call().await.unwrap_err().error().kind, ErrorKind::Overloaded);
        assert_eq!(client.counters().retries, 0);

        let mut other = base;
        other.core.retry = Some(RetryConfig::default());
        other.core.pick = PickRule::RoundRobin;
        live.set(other).unwrap();
        let wait = async {
            while client.counters().retries == 0 {
                assert!(call().await.is_err());
            }
        };
        bowline_runtime::timeout(2 * DEADLINE, wait).await.expect("it did not follow");
        servers.iter().for_each(|server| {
            server.answer.set(Answer::Echo);
            server.requests.borrow_mut().clear();
        });
        // Those that refused last are to be spared no more.
        bowline_runtime::sleep(RETRY_AFTER).await;
        for _ in 0..10 {
            call().await.unwrap();
        }
        assert_eq!(servers.map(|server| server.seen()), [5, 5], "in turn");
    });
}
