//! Services that were declared with [`bowline_protocol::service!`], served.

use std::marker::PhantomData;

use bowline_protocol::service::{Dispatch, HandleMethod, ServiceError, VisitMethod};
use bowline_protocol::{Method, ServiceInfo, Status};
use bowline_runtime::payload::Payload;

use super::context::Context;
use super::service::{AnyMethod, Failure, Handler, Service, WithHandler};

/// Serves a declared service: whatever its module's `Serving` answers.
///
/// ```no_run
/// use bowline_protocol::service::{Raw, ServiceError};
/// use bowline_server::{Context, Server, Typed};
///
/// bowline_protocol::service! {
///     /// Says hello.
///     pub mod greeter("greeter") with Raw {
///         /// To one person.
///         1 => greet(String) -> String { idempotent, duplicable: 4096, interruptible };
///     }
/// }
///
/// #[derive(Clone)]
/// struct Polite;
///
/// impl greeter::Server<Context> for Polite {
///     async fn greet(&self, _: Context, name: String) -> Result<String, ServiceError> {
///         Ok(format!("hello, {name}"))
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// Server::builder().listen("[::]:7000".parse()?).serve(Typed(greeter::Serving(Polite)))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Typed<D>(pub D);

impl<D: Dispatch<Context> + 'static> Service for Typed<D> {
    type Reply = Payload;

    fn info(&self) -> ServiceInfo {
        D::SERVICE
    }

    async fn call(&self, context: Context, request: Payload) -> Result<Payload, Failure> {
        let method = context.method();
        let mut reply = request.sibling(0);
        let status = self.0.dispatch(context, method, &request, reply.as_mut()).await;
        outcome(status, reply)
    }

    fn with_handler<W: WithHandler<Self>>(method: Method, with: W) {
        if let Err(Told(with)) = D::visit(method, Told(with)) {
            with.handler::<AnyMethod>();
        }
    }

    fn interruptible(&self, method: Method) -> bool {
        D::SERVICE.method(method).is_some_and(|info| info.interruptible)
    }
}

/// What a context's methods fail with is passed on as it is: typed handlers use `?`.
impl From<Failure> for ServiceError {
    fn from(failure: Failure) -> ServiceError {
        // Who stopped without being asked to has failed.
        ServiceError::of(failure.status.unwrap_or(Status::Failed), failure.payload)
    }
}

fn outcome(status: Status, reply: Payload) -> Result<Payload, Failure> {
    match status {
        Status::Ok => Ok(reply),
        status => Err(Failure { status: Some(status), payload: reply.into_vec() }),
    }
}

/// Whoever is told the handler of a declared method.
struct Told<W>(W);

impl<D, W> VisitMethod<D, Context> for Told<W>
where
    D: Dispatch<Context> + 'static,
    W: WithHandler<Typed<D>>,
{
    fn method<M: HandleMethod<D, Context> + 'static>(self) {
        self.0.handler::<Declared<M>>();
    }
}

/// The handler of a declared method.
struct Declared<M>(PhantomData<M>);

impl<D, M> Handler<Typed<D>> for Declared<M>
where
    D: Dispatch<Context> + 'static,
    M: HandleMethod<D, Context> + 'static,
{
    async fn call(
        service: &Typed<D>,
        context: Context,
        request: Payload,
    ) -> Result<Payload, Failure> {
        let mut reply = request.sibling(0);
        let status = M::handle(&service.0, context, &request, reply.as_mut()).await;
        outcome(status, reply)
    }
}
