//! What a client does when it may not send more: it asks others, or waits, and loses no call.

use std::future::IntoFuture;
use std::time::Duration;

use bowline_client::{Config, Replica};
use bowline_protocol::{Credit, Method, MethodInfo, ReplicaId, ServiceInfo};
use bowline_runtime::{sleep, spawn};
use bowline_server::io::{Limits, Running};
use bowline_server::{Context, Failure, Payload, Service};

use super::{config, run, serve};
use crate::PATIENCE;

const READ: Method = Method(1);
const METHODS: &[MethodInfo] = &[MethodInfo::new(READ, "read").idempotent()];

/// Takes a while.
#[derive(Clone)]
struct Reader;

impl Service for Reader {
    type Reply = Payload;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("reader", METHODS)
    }

    async fn call(&self, _: Context, request: Payload) -> Result<Payload, Failure> {
        sleep(Duration::from_micros(200)).await;
        Ok(request)
    }
}

fn server(replica: u16, credit: Credit) -> Running {
    let limits = Limits { credit, request_bytes: 100_000, ..Limits::default() };
    serve(Reader, |builder| builder.replica(ReplicaId(replica)).limits(limits))
}

#[test]
fn calls_beyond_the_credit_wait_for_it_and_none_is_lost() {
    let server = server(0, Credit { requests: 3, bytes: 250_000 });
    run(config(&server), async |client| {
        // Some are short of requests, some of bytes.
        let calls: Vec<_> = (0..200_usize)
            .map(|number| {
                let call = client.call(READ, vec![7; number * 500]).deadline(PATIENCE);
                spawn(call.into_future())
            })
            .collect();
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.expect("no panic").expect("a reply").len(), number * 500);
        }
        let counters = client.counters();
        assert!(counters.waited_for_room > 0);
        assert!(counters.reconcile());
        assert_eq!((counters.ok, counters.redispatches), (200, 0));
    });
    assert_eq!(server.control().snapshot().connections.credit_exceeded, 0);
}

#[test]
fn a_call_that_waits_for_credit_in_vain_ends_at_its_deadline_and_never_ran() {
    let server = server(0, Credit { requests: 1, bytes: 250_000 });
    run(config(&server), async |client| {
        let calls = (0..50).map(|_| {
            let call = client.call(READ, b"x").deadline(Duration::from_millis(2));
            spawn(call.into_future())
        });
        let calls: Vec<_> = calls.collect();
        for call in calls {
            // Some are in time.
            let _ = call.await.expect("no panic");
        }
        let late = client.counters().deadline_missed;
        assert!(late > 0, "fifty took 2 ms, at 200 us each, one by one");
        let call = client.call(READ, b"on").deadline(PATIENCE);
        assert_eq!(&call.await.expect("a reply")[..], b"on");
    });
}

#[test]
fn where_one_replica_grants_no_more_another_is_asked() {
    let narrow = server(0, Credit { requests: 1, bytes: 250_000 });
    let wide = server(1, Credit { requests: 1000, bytes: 250_000 });
    let mut both: Config = config(&narrow);
    both.replicas.push(Replica::new(1, wide.address()));
    both.core.pick = bowline_client::core::PickRule::First;
    run(both, async |client| {
        let calls: Vec<_> = (0..100)
            .map(|_| spawn(client.call(READ, b"x").deadline(PATIENCE).into_future()))
            .collect();
        for call in calls {
            call.await.expect("no panic").expect("a reply");
        }
        assert_eq!(client.counters().waited_for_room, 0);
    });
    let asked = wide.control().snapshot().copies.accepted;
    assert!(asked >= 50, "{asked}");
}
