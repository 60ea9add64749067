//! What a call says beside its payload reaches the handler, and what the handler says of its reply
//! the caller.

use bowline_client::Remote;
use bowline_protocol::{
    Key, Label, Method, MethodInfo, ServiceInfo, TraceContext, TrafficClass, options,
};
use bowline_runtime::Runtime;
use bowline_server::{Context, Failure, Payload, Service};

use super::{config, run, serve};

const TELL: Method = Method(1);
const METHODS: &[MethodInfo] = &[MethodInfo::new(TELL, "tell").idempotent()];

/// Answers with what the context says of the call.
#[derive(Clone)]
struct Teller;

impl Service for Teller {
    type Reply = Vec<u8>;

    fn info(&self) -> ServiceInfo {
        ServiceInfo::new("teller", METHODS)
    }

    async fn call(&self, context: Context, _: Payload) -> Result<Vec<u8>, Failure> {
        if let Some(label) = context.label() {
            context.label_reply(Label::new(&format!("for {label}")));
        }
        Ok(told(context.key(), context.class(), context.trace(), context.label()).into_bytes())
    }
}

fn told(
    key: Option<Key>,
    class: TrafficClass,
    trace: Option<TraceContext>,
    label: Option<&str>,
) -> String {
    format!("{key:?} {class:?} {trace:?} {label:?}")
}

fn trace() -> TraceContext {
    TraceContext { trace: [1; 16], parent: [2; 8], flags: 1 }
}

#[test]
fn options_reach_the_handler_and_its_label_the_caller() {
    let server = serve(Teller, |builder| builder);
    run(config(&server), async |client| {
        let call = client.call(TELL, b"payload").key(7).class(TrafficClass(3)).trace(trace());
        let reply = call.label(Label::new("tenant-9")).await.expect("a reply");
        let key = Key { id: 7, fingerprint: options::fingerprint(b"payload") };
        let expected = told(Some(key), TrafficClass(3), Some(trace()), Some("tenant-9"));
        assert_eq!(String::from_utf8_lossy(&reply), expected);
        assert_eq!(reply.label(), Some("for tenant-9"));
    });
}

#[test]
fn without_options_neither_side_says_any() {
    let server = serve(Teller, |builder| builder);
    run(config(&server), async |client| {
        let reply = client.call(TELL, b"payload").await.expect("a reply");
        assert_eq!(String::from_utf8_lossy(&reply), told(None, TrafficClass(0), None, None));
        assert_eq!(reply.label(), None);
    });
}

#[test]
fn options_are_the_same_from_another_thread() {
    let server = serve(Teller, |builder| builder);
    let cores = Runtime::builder().cores([0], |_| std::future::pending::<()>()).expect("a core");
    Runtime::builder().build().expect("a runtime").block_on(async {
        let remote = Remote::connect(cores.handles(), config(&server)).await.expect("a client");
        let call = remote.call(TELL, b"payload").key(7).class(TrafficClass(3)).trace(trace());
        let reply = call.label(Label::new("tenant-9")).await.expect("a reply");
        let key = Key { id: 7, fingerprint: options::fingerprint(b"payload") };
        let expected = told(Some(key), TrafficClass(3), Some(trace()), Some("tenant-9"));
        assert_eq!(String::from_utf8_lossy(&reply.payload), expected);
        assert_eq!(reply.label.map(|label| label.to_string()).as_deref(), Some("for tenant-9"));
    });
}
