//! Services as they are declared: from a typed call to frames and back.

use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

use bowline_protocol::service::{
    Caller, CodecError, Dispatch, HandleMethod, Mismatch, Raw, ServiceError, TypedMethod,
    VisitMethod, WithReply,
};
use bowline_protocol::{
    Attempt, Cause, ClientId, Frame, Inbox, Load, Method, MethodInfo, Reply, Request, Seq,
    ServiceInfo, Status, codec,
};

bowline_protocol::service! {
    /// Words, kept under other words.
    mod words("words") with Raw {
        /// The word that is kept under another.
        1 => get(String) -> String {
            idempotent, duplicable: 16, least_useful: Duration::from_micros(20), cost: 3
        };
        /// Keeps one.
        4 => put(Vec<u8>) -> ();
    }
}

/// Keeps one word under "knot", and is full.
struct OneWord;

impl words::Server<Duration> for OneWord {
    async fn get(&self, remaining: Duration, word: String) -> Result<String, ServiceError> {
        assert_eq!(remaining, Duration::from_millis(5));
        (word == "knot").then(|| "bowline".into()).ok_or(ServiceError::new(44))
    }

    async fn put(&self, _: Duration, _: Vec<u8>) -> Result<(), ServiceError> {
        Err(ServiceError::new(7).with_detail(b"full".to_vec()))
    }
}

#[derive(Debug, PartialEq)]
enum Failure {
    Answered(Status, Vec<u8>),
    Codec(CodecError),
}

impl From<CodecError> for Failure {
    fn from(error: CodecError) -> Failure {
        Failure::Codec(error)
    }
}

/// A client and a server without a wire: frames go from one to the other at once.
struct Loopback;

impl Caller for Loopback {
    type Payload = Vec<u8>;
    type Answer<T> = T;
    type Error = Failure;

    fn answer<T>(&self, value: T, _: Vec<u8>) -> T {
        value
    }

    async fn call(
        &self,
        method: &'static MethodInfo,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
    ) -> Result<Vec<u8>, Failure> {
        let mut payload = Vec::new();
        encode(&mut payload)?;
        let request = Request {
            attempt: Attempt { client: ClientId(1), seq: Seq(1), n: 0 },
            method: method.number,
            remaining: Duration::from_millis(5),
            cause: Cause::First,
            idempotent: method.idempotent,
            tie: None,
        };
        let mut wire = Vec::new();
        codec::encode(&Frame::Request(request, &payload), &mut wire);
        let mut wire_back = Vec::new();
        answer(&wire, &mut wire_back).await;
        let mut inbox = Inbox::new(1 << 16);
        match inbox.feed(&wire_back).next() {
            Ok(Some(Frame::Reply(Reply { status: Status::Ok, .. }, payload))) => {
                Ok(payload.to_vec())
            }
            Ok(Some(Frame::Reply(Reply { status, .. }, payload))) => {
                Err(Failure::Answered(status, payload.to_vec()))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What a server's shell does with a request.
async fn answer(wire: &[u8], wire_back: &mut Vec<u8>) {
    let mut inbox = Inbox::new(1 << 16);
    let mut frames = inbox.feed(wire);
    let Ok(Some(Frame::Request(request, payload))) = frames.next() else { panic!("a request") };
    let mut reply = Vec::new();
    let status = words::Serving(OneWord)
        .dispatch(request.remaining, request.method, payload, &mut reply)
        .await;
    let executed = !matches!(status, Status::NoSuchMethod | Status::BadRequest);
    let head = Reply { attempt: request.attempt, status, executed, load: Load::default() };
    codec::encode(&Frame::Reply(head, &reply), wire_back);
}

/// Runs a future that never has to wait.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("nothing here waits"),
    }
}

#[test]
fn a_typed_call_goes_there_and_back() {
    let client = words::Client(&Loopback);
    assert_eq!(now(client.get(&"knot".into())), Ok("bowline".into()));
    let client = words::Client(WithReply(&Loopback));
    assert_eq!(now(client.get(&"knot".into())), Ok(("bowline".into(), b"bowline".to_vec())));
}

#[test]
fn the_services_own_errors_come_back_with_number_and_detail() {
    let client = words::Client(Loopback);
    let no_such_word = Failure::Answered(Status::App(44), Vec::new());
    assert_eq!(now(client.get(&"bend".into())), Err(no_such_word));
    let full = Failure::Answered(Status::App(7), b"full".to_vec());
    assert_eq!(now(client.put(&vec![1])), Err(full));
}

#[test]
fn a_request_that_is_no_value_and_a_method_that_is_not_there_do_not_run() {
    let serve = |method, payload: &[u8]| {
        let mut out = b"before ".to_vec();
        let context = Duration::from_millis(5);
        let status =
            now(words::Serving(OneWord).dispatch(context, Method(method), payload, &mut out));
        (status, String::from_utf8(out).unwrap())
    };
    assert_eq!(serve(1, &[0xff]), (Status::BadRequest, "before it is not UTF-8".into()));
    assert_eq!(serve(2, b"knot"), (Status::NoSuchMethod, "before ".into()));
    assert_eq!(serve(1, b"knot"), (Status::Ok, "before bowline".into()));
}

#[test]
fn a_declaration_says_what_its_methods_promise() {
    assert_eq!(words::SERVICE.name, "words");
    let [get, put] = words::SERVICE.methods else { panic!("two methods") };
    assert_eq!((get.number, get.name, get.idempotent), (Method(1), "get", true));
    assert_eq!(get.least_useful, Duration::from_micros(20));
    assert_eq!(*put, MethodInfo::new(Method(4), "put"));
    assert!(get.may_duplicate(16) && !get.may_duplicate(17) && !put.may_duplicate(0));
    assert_eq!(words::SERVICE.method(Method(4)), Some(put));
    assert_eq!(words::SERVICE.method(Method(2)), None);
    assert_eq!(<words::get as TypedMethod>::INFO, get);
}

#[test]
fn what_is_not_idempotent_is_never_duplicated() {
    assert!(!MethodInfo::new(Method(1), "pay").duplicable(1 << 20).may_duplicate(1));
}

#[test]
#[should_panic(expected = "ascending order")]
fn numbers_out_of_order_do_not_make_a_service() {
    const METHODS: &[MethodInfo] =
        &[MethodInfo::new(Method(2), "a"), MethodInfo::new(Method(2), "b")];
    let methods = core::hint::black_box(METHODS);
    ServiceInfo::new("twice", methods);
}

#[test]
fn services_that_grew_apart_are_told_by_name_and_one_that_only_grew_is_not() {
    const GET: MethodInfo = MethodInfo::new(Method(1), "get").idempotent().duplicable(99);
    let ours = words::SERVICE.to_methods();
    let check = |name, methods| ours.check(&ServiceInfo::new(name, methods).to_methods());
    assert_eq!(check("words", const { &[GET, MethodInfo::new(Method(9), "size")] }), Ok(()));
    assert_eq!(
        check("birds", const { &[GET] }),
        Err(Mismatch::Service { ours: "words".into(), theirs: "birds".into() })
    );
    assert_eq!(
        check("words", const { &[MethodInfo::new(Method(1), "size").idempotent().duplicable(99)] }),
        Err(Mismatch::Name { number: Method(1), ours: "get".into(), theirs: "size".into() })
    );
    assert_eq!(
        check("words", const { &[MethodInfo::new(Method(2), "put")] }),
        Err(Mismatch::Number { name: "put".into(), ours: Method(4), theirs: Method(2) })
    );
    let put = const { &[MethodInfo::new(Method(4), "put").keyed().duplicable(9)] };
    assert_eq!(
        check("words", put).unwrap_err().to_string(),
        "\"put\" is keyed and duplicable there and nothing of that (idempotent, keyed, duplicable) \
         here; declare it alike on both sides"
    );
    let get = const { &[MethodInfo::new(Method(1), "get").idempotent()] };
    assert_eq!(
        check("words", get).unwrap_err().to_string(),
        "\"get\" is idempotent there and idempotent and duplicable here; declare it alike on both \
         sides"
    );
}

#[cfg(feature = "prost")]
#[test]
fn messages_of_protocol_buffers_go_there_and_back() {
    use bowline_protocol::service::{Codec, Prost};

    // The wrapper of a string: field 1, with its length.
    let mut bytes = b"x".to_vec();
    Prost::encode(&"bowline".to_owned(), &mut bytes).unwrap();
    assert_eq!(&bytes[1..], b"\x0a\x07bowline");
    assert_eq!(Prost::decode(&bytes[1..]), Ok("bowline".to_owned()));
    let short: Result<String, CodecError> = Prost::decode(&bytes[1..5]);
    assert!(short.is_err());
}

#[cfg(feature = "serde")]
mod with_serde {
    use bowline_protocol::service::{Codec, CodecError, Dispatch, Postcard};

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    pub(crate) struct Read {
        pub(crate) block: u64,
        pub(crate) parts: Vec<(u32, u32)>,
    }

    bowline_protocol::service! {
        pub(crate) mod blocks("blocks") with Postcard {
            1 => read(Read) -> Option<Vec<u8>> { idempotent };
        }
    }

    #[test]
    fn serdes_types_go_there_and_back() {
        let read = Read { block: 1 << 40, parts: vec![(0, 512), (4096, 8)] };
        let mut bytes = b"x".to_vec();
        Postcard::encode(&read, &mut bytes).unwrap();
        assert_eq!(Postcard::decode(&bytes[1..]), Ok(read));
        let short: Result<Read, CodecError> = Postcard::decode(&bytes[1..bytes.len() - 1]);
        assert!(short.is_err());
        bytes.push(0);
        let long: Result<Read, CodecError> = Postcard::decode(&bytes[1..]);
        assert_eq!(long, Err(CodecError("there are bytes behind the value")));
    }

    #[test]
    fn a_declaration_takes_serdes_types() {
        struct Empty;
        impl blocks::Server<()> for Empty {
            async fn read(
                &self,
                (): (),
                read: Read,
            ) -> Result<Option<Vec<u8>>, super::ServiceError> {
                Ok((read.block == 1).then(|| vec![7]))
            }
        }
        let mut request = Vec::new();
        Postcard::encode(&Read { block: 1, parts: vec![] }, &mut request).unwrap();
        let mut out = Vec::new();
        let method = blocks::SERVICE.methods[0].number;
        let status = super::now(blocks::Serving(Empty).dispatch((), method, &request, &mut out));
        assert_eq!(status, super::Status::Ok);
        assert_eq!(Postcard::decode(&out), Ok(Some(vec![7_u8])));
    }
}

bowline_protocol::service! {
    /// Methods of very different sizes.
    mod sizes("sizes") with Raw {
        1 => small(Vec<u8>) -> ();
        2 => large(Vec<u8>) -> ();
    }
}

struct Sizes;

impl sizes::Server<()> for Sizes {
    async fn small(&self, (): (), _: Vec<u8>) -> Result<(), ServiceError> {
        std::future::ready(()).await;
        Ok(())
    }

    async fn large(&self, (): (), request: Vec<u8>) -> Result<(), ServiceError> {
        let mut kept = [0_u8; 8192];
        kept[0] = request.len() as u8;
        std::future::ready(()).await;
        std::hint::black_box(&kept);
        Ok(())
    }
}

/// Notes how large the future of a method's handler is.
struct Size<'a>(&'a mut usize);

impl VisitMethod<sizes::Serving<Sizes>, ()> for Size<'_> {
    fn method<M: HandleMethod<sizes::Serving<Sizes>, ()> + 'static>(self) {
        *self.0 = size_of_val(&M::handle(&sizes::Serving(Sizes), (), &[], &mut Vec::new()));
    }
}

#[test]
fn each_method_s_future_is_of_its_own_size_and_that_of_all_as_large_as_the_largest() {
    let size = |method| {
        let mut size = 0;
        let met = sizes::Serving::<Sizes>::visit(Method(method), Size(&mut size));
        met.is_ok().then_some(size)
    };
    assert!(size(1).is_some_and(|size| size < 1024), "{:?}", size(1));
    assert!(size(2).is_some_and(|size| size > 8192));
    assert_eq!(size(3), None, "there is no such method");
    let serving = sizes::Serving(Sizes);
    let mut out = Vec::new();
    assert!(size_of_val(&serving.dispatch((), Method(1), &[], &mut out)) > 8192);
}

#[test]
fn what_a_service_says_of_an_error_is_shown_as_it_is_written_and_what_no_terminal_should_see_escaped()
 {
    let shown = |error: ServiceError| error.to_string();
    assert_eq!(shown(ServiceError::bad_request("Schlüssel fehlt")), "BadRequest: Schlüssel fehlt");
    assert_eq!(shown(ServiceError::failed("a\x1b[2Jb")), "Failed: a\\u{1b}[2Jb");
    assert_eq!(shown(ServiceError::failed("no \"ä\" isn't")), "Failed: no \"ä\" isn't");
    assert_eq!(shown(ServiceError::failed("")), "Failed");
    assert_eq!(shown(ServiceError::failed("x").with_detail(vec![b'x', 0xff])), "Failed: x\u{fffd}");
    assert_eq!(shown(ServiceError::new(7)), "the service's error 7");
}
