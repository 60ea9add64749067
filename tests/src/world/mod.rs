//! The simulated world: the real machines of clients and servers, on wires and clocks that a seed
//! made.
//!
//! | where | what is there |
//! |---|---|
//! | `scenario`, `fault`, `lag` | a world as data: its parts, what goes wrong, who lags behind what |
//! | `run`, `strike`, `report` | it runs, faults strike and heal, and what that came to |
//! | `env` | what all in it share: time, wires, the future, and those who watch |
//! | `client`, `server` | the machines in their shells; `shell` and `port` are what both have |
//! | `arrive`, `payload`, `store` | requests as they come in, what they carry, and what they do for good |
//! | `unread` | what waits for clients to read, and what is held back for that |
//! | `hold_client`, `hold_server` | what each is held to, beside the rules in [`crate::check`] |
//! | `choose` | runs of which a search chooses what happens next |

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
mod shell;
mod store;
mod strike;
mod unread;

pub use choose::Choice;
pub use fault::{Fault, What};
pub use lag::{Asks, Lag, Lags, Teller};
pub use report::{Failed, Report};
pub use run::{World, replay};
pub use scenario::{
    Class, ClientSetup, KeyUse, Look, Room, Scenario, ServerSetup, Service, Surge, Wires,
};
pub use unread::Held;
