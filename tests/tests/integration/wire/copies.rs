//! How often a payload is copied, which ARCHITECTURE.md tells.
//!
//! A copy needs a place. Where no memory is kept yet, each place of a long payload is an allocation, and
//! those are counted, on the client's thread and on the server's.

use std::borrow::Cow;

use bowline_client::{Client, Reply};
use bowline_protocol::{Method, MethodInfo, ServiceInfo};
use bowline_runtime::Runtime;
use bowline_runtime::counting::{LARGE, large_allocations};
use bowline_server::{Context, Failure, Payload, Service};

use super::{config, run_on, serve};
use crate::PATIENCE;

const TAKE: Method = Method(1);
const GIVE: Method = Method(2);
const COUNT: Method = Method(3);
const METHODS: &[MethodInfo] = &[
    MethodInfo::new(TAKE, "take"),
    MethodInfo::new(GIVE, "give"),
    MethodInfo::new(COUNT, "count"),
];

/// Long, and short enough for one frame.
static LONG: [u8; LARGE + 1] = [7; LARGE + 1];

#[derive(Clone)]
struct Keeper;

impl Service for Keeper {
    type Reply = Cow<'static, [u8]>;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("keeper", METHODS)
    }

    async fn call(&self, context: Context, request: Payload) -> Result<Self::Reply, Failure> {
        Ok(match context.method() {
            GIVE if request.is_empty() => Cow::Borrowed(&LONG),
            COUNT => Cow::Owned(large_allocations().to_le_bytes().to_vec()),
            _ => {
                assert!(request.iter().all(|byte| *byte == 7), "read where it lies");
                Cow::Borrowed(&[])
            }
        })
    }
}

async fn ask(client: &Client, method: Method, request: &[u8]) -> Reply {
    client.call(method, request).deadline(PATIENCE).await.expect("a reply")
}

/// How many places the client and the server have for what is long in one call of theirs.
fn places(method: Method, request: &[u8]) -> [u64; 2] {
    // So large that no frame lies across two of them.
    let runtime = || Runtime::builder().buffers(16, 1 << 20);
    let server = serve(Keeper, |builder| builder.runtime(runtime()));
    let mut places = [0; 2];
    run_on(runtime(), config(&server), async |client| {
        let theirs = async || {
            let count = ask(&client, COUNT, &[]).await;
            u64::from_le_bytes(count[..].try_into().expect("a number"))
        };
        // What the first calls of a method, and of a size, make for themselves is there then.
        for warm in [&LONG[..1], &LONG[..LARGE * 5 / 8]] {
            ask(&client, method, warm).await;
            theirs().await;
        }
        let before = [large_allocations(), theirs().await];
        ask(&client, method, request).await;
        places = [large_allocations() - before[0], theirs().await - before[1]];
    });
    places
}

#[test]
fn a_request_is_copied_for_the_call_for_the_kernel_and_for_the_handler() {
    assert_eq!(places(TAKE, &LONG), [2, 1], "the client, the server: does ARCHITECTURE.md say so?");
}

#[test]
fn a_reply_is_copied_for_the_kernel_and_for_the_caller() {
    assert_eq!(places(GIVE, &[]), [1, 1], "the client, the server: does ARCHITECTURE.md say so?");
}
