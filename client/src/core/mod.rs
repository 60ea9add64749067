//! The client's policies, as one pure machine and its leaves.
//!
//! [`Calls`] owns every call and every copy of it. It asks leaves that return values: `pick`
//! (which replica), [`hedge`] (when a slow reply earns a second copy), [`tie`] (how the second of
//! two tied copies follows the first), [`budget`] (may we afford it), [`latency`] (what is slow).
//! Inputs are facts with a time; what is to be done comes out of [`Calls::poll_effect`].
//!
//! ```
//! use bowline_client::core::{Calls, Config, Effect, Policy, Spec};
//! use bowline_protocol::{ClientId, Load, Method, ReplicaId, Reply, Station, Status};
//! use bowline_time::{Duration, Instant};
//!
//! let mut calls: Calls<&str> = Calls::new(ClientId(7), Config::default())?;
//! calls.add_replica(ReplicaId(1), 0);
//! calls.on_connected(ReplicaId(1), Station { replica: ReplicaId(1), core: 0 });
//!
//! let now = Instant::from_nanos(1_000);
//! let spec = Spec::new(Method(3), "block 9", now + Duration::from_millis(50));
//! let call = calls.start(now, spec)?;
//!
//! let Some(Effect::Send { replica, request, .. }) = calls.poll_effect() else { panic!() };
//! assert_eq!(calls.payload(call), Some(&"block 9"));
//!
//! let (attempt, load) = (request.attempt, Load::default());
//! let reply = Reply { attempt, status: Status::Ok, executed: true, load };
//! let done = calls.on_reply(replica, &reply, now + Duration::from_micros(80)).unwrap();
//! assert_eq!(done.outcome.attempts, 1);
//! # let _ = Policy::None;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod budget;
mod c3;
mod call;
mod calls;
mod classify;
mod config;
mod counters;
mod guard;
mod health;
pub mod hedge;
pub mod latency;
mod line;
mod methods;
mod notice;
mod outcome;
mod pick;
mod placement;
mod policies;
mod policy;
mod random;
mod replicas;
mod room;
mod shadow;
mod slots;
mod switch;
pub mod tie;

pub use budget::{Budget, BudgetConfig, NoToken, Token};
pub use call::MAX_ATTEMPTS;
pub use calls::{Calls, Histograms};
pub use classify::{Brought, Classifier, Verdict};
pub use config::{Config, ConfigError, Limits, RetryConfig};
#[cfg(feature = "io")]
pub(crate) use config::{check, check_span};
pub use counters::{Counters, Denied, SwitchedOff};
pub use guard::{AutoOff, OffReason};
pub use health::EjectConfig;
pub use notice::Notice;
pub use outcome::{CallKey, CopyEnd, Done, Effect, End, Heard, Outcome, Spec, Winner};
pub use pick::PickRule;
pub use placement::Placement;
pub use policies::{Figures, Trial};
pub use policy::{
    Delay, HedgePolicy, Percentile, Policy, PolicyId, PolicyState, Stagger, TiePolicy,
};
pub use replicas::ReplicaState;
pub use shadow::{Candidate, MAX_CANDIDATES, Shadowed};
pub use switch::Switch;
