use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

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

/// Why a typed method has no reply: the service's own error, which is a number and bytes that only the
/// service understands; or one that every caller understands, with a text.
///
/// A handler that heard that nobody needs its answer any more may stop with any: its caller is told
/// that the copy was aborted, not of an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceError {
    status: Status,
    detail: Vec<u8>,
}

impl ServiceError {
    /// The service's own error, by its own number.
    pub const fn new(number: u16) -> ServiceError {
        ServiceError { status: Status::App(number), detail: Vec::new() }
    }

    /// The request is not one that this method understands; nothing was done.
    pub fn bad_request(why: &str) -> ServiceError {
        ServiceError { status: Status::BadRequest, detail: why.as_bytes().to_vec() }
    }

    /// The service can't do it now, or some of it was done and the rest can't be.
    pub fn failed(why: &str) -> ServiceError {
        ServiceError { status: Status::Failed, detail: why.as_bytes().to_vec() }
    }

    /// With what the caller is to be told beside it. `Ok` is no error, and taken as `Failed`.
    pub fn of(status: Status, detail: Vec<u8>) -> ServiceError {
        let status = if status == Status::Ok { Status::Failed } else { status };
        ServiceError { status, detail }
    }

    /// The same with bytes for the caller: whatever the service's error number promises.
    #[must_use]
    pub fn with_detail(self, detail: Vec<u8>) -> ServiceError {
        ServiceError { detail, ..self }
    }

    /// What the caller is told.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// What more the caller is told; a text, where the status is not the service's own.
    pub fn detail(&self) -> &[u8] {
        &self.detail
    }
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Status::App(number) => write!(f, "the service's error {number}"),
            status if self.detail.is_empty() => write!(f, "{status:?}"),
            status => {
                write!(f, "{status:?}: ")?;
                String::from_utf8_lossy(&self.detail).chars().try_for_each(|it| match it {
                    // Quotes stand in no literal here.
                    '\'' | '"' => f.write_char(it),
                    _ => write!(f, "{}", it.escape_debug()),
                })
            }
        }
    }
}

impl core::error::Error for ServiceError {}

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
/// `out`. `BadRequest` means that `run` was not called, or said so itself.
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
            error.status
        }
    }
}
