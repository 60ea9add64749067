//! Replicas die, stand still, and lose their connections, while tied calls run.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bowline_client::core::{Budget, BudgetConfig, Policy};
use bowline_client::io::MethodConfig;
use bowline_client::{Client, Config, Replica};
use bowline_runtime::{Runtime, sleep, spawn, timeout, yield_now};
use rustix::process::Signal;

use crate::PATIENCE;
use crate::cluster::{Cluster, READ, REPLICAS};
use crate::proxy::Proxy;

/// Calls that wait at a time: more than a cluster has slots, so that copies queue.
const AT_ONCE: u64 = 16;
/// Calls of a run.
const CALLS: u64 = 800;

fn config(addresses: [SocketAddr; REPLICAS]) -> Config {
    config_with(Policy::tied(), addresses)
}

fn config_with(policy: Policy, addresses: [SocketAddr; REPLICAS]) -> Config {
    config_of(MethodConfig { policy, idempotent: true, ..Default::default() }, addresses)
}

fn config_of(method: MethodConfig, addresses: [SocketAddr; REPLICAS]) -> Config {
    let replicas = (0..).zip(addresses).map(|(id, address)| Replica::new(id, address));
    let method = MethodConfig { deadline: PATIENCE, ..method };
    let mut config = Config::new(replicas).method(READ, method);
    let budget =
        BudgetConfig { per_second: 0.0, fraction: 1.0, burst: 4096, outstanding: 4096, drain: 0.0 };
    config.core.budget = Arc::new(Budget::new(budget).expect("a budget"));
    config.core.max_calls = 1024;
    config
}

/// Makes calls, `AT_ONCE` at a time; each has to succeed. `strike` is called once, in their midst.
async fn run(client: &Client, strike: impl FnOnce() + 'static) {
    let strike = Rc::new(Cell::new(Some(strike)));
    let next = Rc::new(Cell::new(0));
    let mut workers = Vec::new();
    for _ in 0..AT_ONCE {
        let (client, next, strike) = (client.clone(), Rc::clone(&next), Rc::clone(&strike));
        workers.push(spawn(async move {
            while next.get() < CALLS {
                let number: u64 = next.get();
                next.set(number + 1);
                if number == CALLS / 4
                    && let Some(strike) = strike.take()
                {
                    strike();
                }
                let reply = client.call(READ, number.to_le_bytes()).await;
                let reply = reply.unwrap_or_else(|failure| panic!("call {number}: {failure}"));
                assert_eq!(&reply[..], number.to_be_bytes());
            }
        }));
    }
    for worker in workers {
        worker.await.expect("every call succeeded");
    }
}

/// Everything comes to rest, and the client's counters tell the whole story.
async fn at_rest(client: &Client) {
    while client.counters().live > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    let counters = client.counters();
    assert!(counters.reconcile(), "{counters:?}");
    assert_eq!((counters.failed, counters.waiting), (0, 0), "{counters:?}");
    assert_eq!(client.snapshot().budget_outstanding, 0, "all tokens are settled");
}

fn on_a_ring<F: Future<Output = ()>>(test: F) {
    let runtime = Runtime::builder().build().expect("a ring");
    runtime.block_on(async { timeout(2 * PATIENCE, test).await.expect("the test hangs") });
}

/// What the servers that lived through it say: every copy ended once, and nothing is left.
fn settled(cluster: &mut Cluster, replicas: impl IntoIterator<Item = usize>) {
    for replica in replicas {
        let stats = cluster.stats(replica);
        assert!(stats.reconcile(), "{stats:?}");
        assert_eq!((stats.queued, stats.running), (0, 0), "{stats:?}");
    }
}

#[test]
fn killing_a_replica_loses_no_tied_call() {
    let cluster = Rc::new(RefCell::new(Cluster::start()));
    let addresses = [0, 1, 2].map(|replica| cluster.borrow().address(replica));
    on_a_ring(async {
        let client = Client::connect(config(addresses)).await.expect("a client");
        let victim = Rc::clone(&cluster);
        run(&client, move || victim.borrow().signal(1, Signal::KILL)).await;
        at_rest(&client).await;
        let counters = client.counters();
        assert_eq!(counters.ok, CALLS);
        assert!(counters.withdrawn > 0, "copies were taken out of queues: {counters:?}");
        settled(&mut cluster.borrow_mut(), [0, 2]);

        // It comes back with an empty memory, and is used again.
        cluster.borrow_mut().restart(1);
        while client.connected() < REPLICAS {
            sleep(Duration::from_millis(1)).await;
        }
        run(&client, || {}).await;
        at_rest(&client).await;
        assert!(cluster.borrow_mut().stats(1).replied > 0);
        settled(&mut cluster.borrow_mut(), 0..REPLICAS);
    });
}

#[test]
fn a_replica_that_stands_still_loses_no_tied_call() {
    let cluster = Rc::new(RefCell::new(Cluster::start()));
    let addresses = [0, 1, 2].map(|replica| cluster.borrow().address(replica));
    on_a_ring(async {
        let client = Client::connect(config(addresses)).await.expect("a client");
        let victim = Rc::clone(&cluster);
        // It stands still until every call has completed without it.
        run(&client, move || victim.borrow().signal(0, Signal::STOP)).await;
        assert_eq!(client.counters().ok, CALLS);
        cluster.borrow().signal(0, Signal::CONT);
        (0..REPLICAS).for_each(|replica| cluster.borrow_mut().until_whole(replica));
        while client.connected() < REPLICAS {
            sleep(Duration::from_millis(1)).await;
        }
        run(&client, || {}).await;
        at_rest(&client).await;
        settled(&mut cluster.borrow_mut(), 0..REPLICAS);
    });
}

#[test]
fn a_cut_connection_loses_no_tied_call() {
    let cluster = Rc::new(RefCell::new(Cluster::start()));
    let proxy = Rc::new(Proxy::to(cluster.borrow().address(0)));
    let [_, one, two] = [0, 1, 2].map(|replica| cluster.borrow().address(replica));
    on_a_ring(async {
        let mut config = config([proxy.address(), one, two]);
        // That replica is not given up for its silence before it is cut off.
        config.link.dead_after = PATIENCE;
        let client = Client::connect(config).await.expect("a client");
        let (victim, knife, asked) = (Rc::clone(&cluster), Rc::clone(&proxy), client.clone());
        let cutting = Rc::new(Cell::new(None));
        let begun = Rc::clone(&cutting);
        let cut = move || {
            // It stands still meanwhile, and so has copies that did not end.
            victim.borrow().signal(0, Signal::STOP);
            let attempts = asked.counters().attempts;
            begun.set(Some(spawn(async move {
                while asked.counters().attempts < attempts + 64 {
                    yield_now().await;
                }
                assert_eq!(knife.cut(), 1, "one connection was there");
                victim.borrow().signal(0, Signal::CONT);
            })));
        };
        run(&client, cut).await;
        cutting.take().expect("it was begun").await.expect("it was cut, and goes on");
        at_rest(&client).await;
        let counters = client.counters();
        assert_eq!(counters.ok, CALLS);
        assert!(counters.lost > 0, "the cut took copies with it: {counters:?}");
        settled(&mut cluster.borrow_mut(), 0..REPLICAS);
    });
}

/// One replica after the other is told to end, does so in good order and comes back, while calls fall
/// due whether or not earlier ones have returned.
fn a_rolling_restart_loses_no_call(method: MethodConfig) {
    let mut cluster = Cluster::start();
    let addresses = [0, 1, 2].map(|replica| cluster.address(replica));
    let rolled = Arc::new(AtomicBool::new(false));
    on_a_ring(async {
        let mut config = config_of(method, addresses);
        // No replica is given up since the machine has too much to do.
        config.link.dead_after = PATIENCE;
        let client = Client::connect(config).await.expect("a client");
        let (over, (rest, rested)) = (Arc::clone(&rolled), mpsc::channel::<()>());
        // Replicas die with the thread that started them: it stays to the end.
        let roller = thread::spawn(move || {
            (0..REPLICAS).for_each(|replica| cluster.roll(replica));
            over.store(true, Ordering::Release);
            rested.recv().expect("all came to rest");
            settled(&mut cluster, 0..REPLICAS);
        });
        let mut calls = Vec::new();
        while !rolled.load(Ordering::Acquire) && !roller.is_finished() {
            let (client, number) = (client.clone(), calls.len() as u64);
            calls.push(spawn(async move {
                let reply = client.call(READ, number.to_le_bytes()).await;
                let reply = reply.unwrap_or_else(|failure| panic!("call {number}: {failure}"));
                assert_eq!(&reply[..], number.to_be_bytes());
            }));
            sleep(Duration::from_millis(2)).await;
        }
        let made = calls.len() as u64;
        for call in calls {
            call.await.expect("every call succeeded");
        }
        at_rest(&client).await;
        assert_eq!(client.counters().ok, made);
        rest.send(()).expect("the roller waits");
        roller.join().expect("all were restarted, and are at rest");
    });
}

fn a_rolling_restart_loses_no_call_under(policy: Policy) {
    a_rolling_restart_loses_no_call(MethodConfig {
        policy,
        idempotent: true,
        ..Default::default()
    });
}

#[test]
fn a_rolling_restart_loses_no_tied_call() {
    a_rolling_restart_loses_no_call_under(Policy::tied());
}

#[test]
fn a_rolling_restart_loses_no_hedged_call() {
    a_rolling_restart_loses_no_call_under(Policy::hedged());
}

#[test]
fn a_rolling_restart_loses_no_call_that_is_only_sent_again() {
    a_rolling_restart_loses_no_call_under(Policy::None);
}

/// Nothing helps it but that each server answers what it is sent before it goes.
#[test]
fn a_rolling_restart_loses_no_call_that_must_not_run_twice() {
    a_rolling_restart_loses_no_call(MethodConfig::default());
}
