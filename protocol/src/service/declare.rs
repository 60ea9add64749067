/// Declares a service: for a server and its clients alike.
///
/// ```text
/// service! {
///     /// What the service is.
///     pub mod MODULE("name on the wire") with CODEC {
///         /// What the method does.
///         NUMBER => METHOD(REQUEST) -> REPLY {
///             idempotent, keyed, duplicable: BYTES, interruptible, least_useful: TIME, cost: CLASS
///         };
///         NUMBER => METHOD(REQUEST) -> REPLY;
///     }
/// }
/// ```
///
/// Numbers ascend, and neither numbers nor names of methods may ever mean something else: hellos
/// compare them. What stands in braces is said by methods of
/// [`MethodInfo`](crate::service::MethodInfo); `duplicable` counts only together with `idempotent` or
/// `keyed`.
///
/// The module holds, beside what `super` holds:
///
/// - `SERVICE`: a [`ServiceInfo`](crate::service::ServiceInfo), for hellos and policies.
/// - For each method a type of its name, a [`TypedMethod`](crate::service::TypedMethod), and the
///   [handler](crate::service::HandleMethod) of that method.
/// - `Client<C>`: a stub over any [`Caller`](crate::service::Caller) `C`, with an async method of
///   each name.
/// - `Server<Cx>`: a trait with an async method of each name, which takes a context of the server's
///   shell and the request.
/// - `Serving<S>`: a [`Dispatch`](crate::service::Dispatch) over any such server `S`, for the
///   server's shell.
#[macro_export]
macro_rules! service {
    // What the module holds is as visible as the module itself, so that types of that visibility
    // can stand in its methods.
    ($(#[$attribute:meta])* pub mod $($declaration:tt)*) => {
        $crate::service! { @declare (pub) (pub) $(#[$attribute])* $($declaration)* }
    };
    ($(#[$attribute:meta])* pub(crate) mod $($declaration:tt)*) => {
        $crate::service! { @declare (pub(crate)) (pub(crate)) $(#[$attribute])* $($declaration)* }
    };
    ($(#[$attribute:meta])* mod $($declaration:tt)*) => {
        $crate::service! { @declare () (pub(super)) $(#[$attribute])* $($declaration)* }
    };
    (
        @declare ($($visibility:tt)*) ($inner:vis)
        $(#[$attribute:meta])*
        $module:ident($name:literal) with $codec:ty {
            $(
                $(#[$method_attribute:meta])*
                $number:literal => $method:ident($request:ty) -> $reply:ty
                    $({ $($promise:ident $(: $value:expr)?),* $(,)? })?;
            )*
        }
    ) => {
        $(#[$attribute])*
        $($visibility)* mod $module {
            #[allow(unused_imports, reason = "a service may need no types of its own")]
            use super::*;
            use $crate::service as bowline;

            /// What the service says of itself.
            $inner const SERVICE: bowline::ServiceInfo = bowline::ServiceInfo::new(
                $name,
                const { &[$(*<$method as bowline::TypedMethod>::INFO),*] },
            );

            $(
                $(#[$method_attribute])*
                #[allow(non_camel_case_types, reason = "it is called as the method is")]
                #[derive(Clone, Copy, Debug)]
                $inner struct $method;

                impl bowline::TypedMethod for $method {
                    type Request = $request;
                    type Reply = $reply;
                    type Codec = $codec;
                    const INFO: &'static bowline::MethodInfo = &bowline::MethodInfo::new(
                        $crate::Method($number),
                        ::core::stringify!($method),
                    )$($(.$promise($($value)?))*)?;
                }
            )*

            /// Calls the service's methods through whoever can call.
            #[derive(Clone, Copy, Debug)]
            $inner struct Client<C>($inner C);

            impl<C: bowline::Caller> Client<C> {
                $(
                    $(#[$method_attribute])*
                    ///
                    /// # Errors
                    ///
                    /// The caller's.
                    $inner async fn $method(
                        &self,
                        request: &$request,
                    ) -> Result<C::Answer<$reply>, C::Error> {
                        bowline::call::<$method, C>(&self.0, request).await
                    }
                )*
            }

            /// Serves the service's methods.
            $inner trait Server<Cx> {
                $(
                    $(#[$method_attribute])*
                    fn $method(
                        &self,
                        context: Cx,
                        request: $request,
                    ) -> impl ::core::future::Future<Output = Result<$reply, bowline::ServiceError>>;
                )*
            }

            /// A server's service, out of whatever serves the methods.
            #[derive(Clone, Copy, Debug)]
            $inner struct Serving<S>($inner S);

            $(
                impl<S: Server<Cx>, Cx> bowline::HandleMethod<Serving<S>, Cx> for $method {
                    async fn handle(
                        service: &Serving<S>,
                        context: Cx,
                        payload: &[u8],
                        out: &mut bowline::declared::Vec<u8>,
                    ) -> $crate::Status {
                        let run = |request| service.0.$method(context, request);
                        bowline::answer::<$method, _>(payload, out, run).await
                    }
                }
            )*

            impl<S: Server<Cx>, Cx> bowline::Dispatch<Cx> for Serving<S> {
                const SERVICE: bowline::ServiceInfo = SERVICE;

                async fn dispatch(
                    &self,
                    context: Cx,
                    method: $crate::Method,
                    payload: &[u8],
                    out: &mut bowline::declared::Vec<u8>,
                ) -> $crate::Status {
                    use bowline::HandleMethod as _;
                    match method.0 {
                        $($number => $method::handle(self, context, payload, out).await,)*
                        _ => $crate::Status::NoSuchMethod,
                    }
                }

                fn visit<V: bowline::VisitMethod<Self, Cx>>(
                    method: $crate::Method,
                    visitor: V,
                ) -> ::core::result::Result<(), V> {
                    match method.0 {
                        $($number => visitor.method::<$method>(),)*
                        _ => return ::core::result::Result::Err(visitor),
                    }
                    ::core::result::Result::Ok(())
                }
            }
        }
    };
}
