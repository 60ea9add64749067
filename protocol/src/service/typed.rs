use alloc::vec::Vec;

use super::{Codec, CodecError, MethodInfo, ServiceInfo};
use crate::frame::Status;
use crate::id::Method;

/// A method as a type: what it takes, what it gives, and how both become bytes.
pub trait TypedMethod {
    /// What it takes.
    type Request;
    /// What it gives.
    type Reply;
    /// How both become bytes.
    type Codec: Codec<Self::Request> + Codec<Self::Reply>;
    /// What its service says of it.
    const INFO: &'static MethodInfo;
}

/// The service's own error: a number, and bytes that only the service understands.
///
/// A handler that heard that nobody needs its answer any more may stop with any: its caller is told
/// that the copy was aborted, not of an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceError {
    /// Its number; the numbers are the service's.
    pub number: u16,
    /// More of it, if the service says more.
    pub detail: Vec<u8>,
}

impl ServiceError {
    /// An error that is a number and nothing more.
    pub const fn new(number: u16) -> ServiceError {
        ServiceError { number, detail: Vec::new() }
    }
}

/// Whoever can send a request and wait for its reply: the shell of a client, with the deadline and
/// whatever else it was given for this call.
pub trait Caller {
    /// The payload of a reply.
    type Payload: AsRef<[u8]>;
    /// What a method of a module's `Client` gives, its reply having been read as a `T`.
    type Answer<T>;
    /// Why a call failed.
    type Error: From<CodecError>;

    /// What it gives for this value, which stood in that payload.
    fn answer<T>(&self, value: T, payload: Self::Payload) -> Self::Answer<T>;

    /// Calls `method`; `encode` writes the request's payload, behind whatever stands in the buffer.
    fn call(
        &self,
        method: &'static MethodInfo,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
    ) -> impl Future<Output = Result<Self::Payload, Self::Error>>;
}

impl<C: Caller> Caller for &C {
    type Payload = C::Payload;
    type Answer<T> = C::Answer<T>;
    type Error = C::Error;

    fn answer<T>(&self, value: T, payload: C::Payload) -> C::Answer<T> {
        C::answer(self, value, payload)
    }

    fn call(
        &self,
        method: &'static MethodInfo,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
    ) -> impl Future<Output = Result<Self::Payload, Self::Error>> {
        C::call(self, method, encode)
    }
}

/// A caller whose methods give the reply itself beside its value, for who wants to know more of it
/// than what it says: of which version it is, how long it took.
#[derive(Clone, Copy, Debug)]
pub struct WithReply<C>(pub C);

impl<C: Caller> Caller for WithReply<C> {
    type Payload = C::Payload;
    type Answer<T> = (T, C::Payload);
    type Error = C::Error;

    fn answer<T>(&self, value: T, payload: C::Payload) -> (T, C::Payload) {
        (value, payload)
    }

    fn call(
        &self,
        method: &'static MethodInfo,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
    ) -> impl Future<Output = Result<Self::Payload, Self::Error>> {
        self.0.call(method, encode)
    }
}

/// Whatever answers requests by their numbers: a module's `Serving`, for the shell of a server. The
/// context is the shell's: the time that is left, the cancel token.
pub trait Dispatch<Cx> {
    /// The methods that it answers.
    const SERVICE: ServiceInfo;

    /// Runs one request, and appends the payload of its reply to `out`. `NoSuchMethod` and
    /// `BadRequest` mean that nothing ran.
    fn dispatch(
        &self,
        context: Cx,
        method: Method,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> impl Future<Output = Status>;

    /// Tells a visitor the handler of one method, as a type. [`Dispatch::dispatch`]'s future has room
    /// for the largest of all; who makes each request's future by its own handler's type pays for
    /// that alone.
    ///
    /// # Errors
    ///
    /// The visitor comes back if the method is none of these.
    fn visit<V: VisitMethod<Self, Cx>>(method: Method, visitor: V) -> Result<(), V>
    where
        Self: Sized;
}

/// The handler of one of the methods that `D` answers.
pub trait HandleMethod<D, Cx> {
    /// Runs one request of this method, as [`Dispatch::dispatch`] does.
    fn handle(
        service: &D,
        context: Cx,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> impl Future<Output = Status>;
}

/// Whoever is told the handler of a method: see [`Dispatch::visit`].
pub trait VisitMethod<D, Cx> {
    /// It is this one.
    fn method<M: HandleMethod<D, Cx> + 'static>(self);
}

/// One call of a typed method: what the methods of a module's `Client` do.
///
/// # Errors
///
/// The caller's, or a [`CodecError`] in it if the reply is not what was expected.
pub async fn call<M: TypedMethod, C: Caller>(
    caller: &C,
    request: &M::Request,
) -> Result<C::Answer<M::Reply>, C::Error> {
    let encode = |out: &mut Vec<u8>| <M::Codec as Codec<M::Request>>::encode(request, out);
    let payload = caller.call(M::INFO, encode).await?;
    let value = <M::Codec as Codec<M::Reply>>::decode(payload.as_ref())?;
    Ok(caller.answer(value, payload))
}

/// One answer of a typed method: what a module's `Serving` does. The reply's payload is appended to
/// `out`. `NoSuchMethod` and `BadRequest` mean that `run` was not called.
pub async fn answer<M, F>(
    payload: &[u8],
    out: &mut Vec<u8>,
    run: impl FnOnce(M::Request) -> F,
) -> Status
where
    M: TypedMethod,
    F: Future<Output = Result<M::Reply, ServiceError>>,
{
    let request = match <M::Codec as Codec<M::Request>>::decode(payload) {
        Ok(request) => request,
        Err(CodecError(text)) => {
            out.extend_from_slice(text.as_bytes());
            return Status::BadRequest;
        }
    };
    let start = out.len();
    match run(request).await {
        Ok(reply) => match <M::Codec as Codec<M::Reply>>::encode(&reply, out) {
            Ok(()) => Status::Ok,
            Err(_) => {
                out.truncate(start);
                Status::Failed
            }
        },
        Err(error) => {
            out.extend_from_slice(&error.detail);
            Status::App(error.number)
        }
    }
}
