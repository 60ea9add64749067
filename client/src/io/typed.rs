//! Services that were declared with [`bowline_protocol::service!`], called.

use std::future::IntoFuture;

use bowline_protocol::service::{Caller, CodecError};
use bowline_protocol::{Error, ErrorKind, Executed, MethodInfo};

use super::call::Call;
use super::client::Client;
use super::remote::{Remote, RemoteCall, RemoteFailure, RemoteReply};
use super::reply::{Failure, Reply};

/// A client calls the methods of a declared service: with what the configuration says of each, and
/// what the service promises of it. A method that may not be duplicated, or not with so large a
/// payload, has one copy, whatever the policy; one that would have too little time left is not sent.
/// [`WithReply`](bowline_protocol::service::WithReply) around a client gives the reply beside each
/// value: its version, what it took.
///
/// ```no_run
/// use std::time::Duration;
///
/// use bowline_client::{Client, Config, Replica};
/// use bowline_protocol::service::{Raw, WithReply};
///
/// bowline_protocol::service! {
///     /// Says hello.
///     pub mod greeter("greeter") with Raw {
///         /// To one person.
///         1 => greet(String) -> String { idempotent, duplicable: 4096 };
///     }
/// }
///
/// # async fn somewhere() -> Result<(), Box<dyn std::error::Error>> {
/// let replica = Replica::new(1, "10.0.0.1:7000".parse()?);
/// let client = Client::connect(Config::new([replica]).service(greeter::SERVICE)).await?;
/// let hello = greeter::Client(&client).greet(&"Anna".to_owned()).await?;
/// let soon = client.with(|call| call.deadline(Duration::from_millis(50)));
/// println!("{hello}, {}", greeter::Client(soon).greet(&"Otto".to_owned()).await?);
/// let (_, reply) = greeter::Client(WithReply(&client)).greet(&"Ida".to_owned()).await?;
/// println!("of version {:?}, after {:?}", reply.version(), reply.outcome().latency);
/// # Ok(())
/// # }
/// # fn main() {}
/// ```
impl Caller for Client {
    type Payload = Reply;
    type Answer<T> = T;
    type Error = Failure;

    fn answer<T>(&self, value: T, _: Reply) -> T {
        value
    }

    async fn call(
        &self,
        method: &'static MethodInfo,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
    ) -> Result<Reply, Failure> {
        self.with(|call| call).call(method, encode).await
    }
}

/// A client whose calls are described further; see [`Client::with`].
#[derive(Clone)]
pub struct With<C, F> {
    client: C,
    describe: F,
}

impl Client {
    /// The same client, for calls of declared services that want to say more: a deadline, a policy,
    /// a key.
    pub fn with<F: Fn(Call) -> Call>(&self, describe: F) -> With<Client, F> {
        With { client: self.clone(), describe }
    }
}

impl<F: Fn(Call) -> Call> Caller for With<Client, F> {
    type Payload = Reply;
    type Answer<T> = T;
    type Error = Failure;

    fn answer<T>(&self, value: T, _: Reply) -> T {
        value
    }

    async fn call(
        &self,
        method: &'static MethodInfo,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
    ) -> Result<Reply, Failure> {
        let call = self.client.encode_call(method.number, encode);
        let call = call.map_err(|error| Failure::of(unsent(error)))?;
        (self.describe)(call).promised(method).into_future().await
    }
}

impl Caller for Remote {
    type Payload = RemoteReply;
    type Answer<T> = T;
    type Error = RemoteFailure;

    fn answer<T>(&self, value: T, _: RemoteReply) -> T {
        value
    }

    async fn call(
        &self,
        method: &'static MethodInfo,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
    ) -> Result<RemoteReply, RemoteFailure> {
        self.with(|call| call).call(method, encode).await
    }
}

impl Remote {
    /// As [`Client::with`].
    pub fn with<F: Fn(RemoteCall) -> RemoteCall>(&self, describe: F) -> With<Remote, F> {
        With { client: self.clone(), describe }
    }
}

impl<F: Fn(RemoteCall) -> RemoteCall> Caller for With<Remote, F> {
    type Payload = RemoteReply;
    type Answer<T> = T;
    type Error = RemoteFailure;

    fn answer<T>(&self, value: T, _: RemoteReply) -> T {
        value
    }

    async fn call(
        &self,
        method: &'static MethodInfo,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), CodecError>,
    ) -> Result<RemoteReply, RemoteFailure> {
        let mut payload = Vec::new();
        encode(&mut payload).map_err(|error| RemoteFailure::of(unsent(error)))?;
        let call = self.client.call(method.number, payload);
        (self.describe)(call).promised(method).into_future().await
    }
}

/// The request has no form in bytes: it was not sent.
const fn unsent(CodecError(why): CodecError) -> Error {
    Error::new(ErrorKind::Codec(why), Executed::No)
}

/// A reply came, and is not what its method promises.
const fn unread(CodecError(why): CodecError) -> Error {
    Error::new(ErrorKind::Codec(why), Executed::Yes)
}

impl From<CodecError> for Failure {
    fn from(error: CodecError) -> Failure {
        Failure::of(unread(error))
    }
}

impl From<CodecError> for RemoteFailure {
    fn from(error: CodecError) -> RemoteFailure {
        RemoteFailure::of(unread(error))
    }
}
