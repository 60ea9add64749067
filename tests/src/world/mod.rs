//! The simulated world: the real machines of clients and servers, on wires and clocks that a seed
//! made.

mod arrive;
mod choose;
mod client;
mod env;
mod fault;
mod hold_client;
mod hold_server;
mod lag;
mod payload;
mod port;
mod report;
mod run;
mod scenario;
mod server;
mod store;
mod strike;

pub use choose::Choice;
pub use fault::{Fault, What};
pub use lag::{Asks, Lag, Lags, Teller};
pub use report::{Failed, Report};
pub use run::{World, replay};
pub use scenario::{
    Class, ClientSetup, KeyUse, Look, Scenario, ServerSetup, Service, Surge, Wires,
};
