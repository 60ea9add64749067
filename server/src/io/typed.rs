//! Services that were declared with [`bowline_protocol::service!`], served.

use bowline_protocol::service::Dispatch;
use bowline_protocol::{ServiceInfo, Status};
use bowline_runtime::payload::Payload;

use super::context::Context;
use super::service::{Failure, Service};

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
///         1 => greet(String) -> String { idempotent, duplicable: 4096 };
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
        match self.0.dispatch(context, method, &request, reply.as_mut()).await {
            Status::Ok => Ok(reply),
            status => Err(Failure { status: Some(status), payload: reply.into_vec() }),
        }
    }
}
