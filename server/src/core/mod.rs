//! The server as a machine: copies of calls come in, what to do about them comes out.
//!
//! One core of a server is one [`Core`]; it alone owns its copies and changes their state. It does
//! no I/O and reads no clock. Whoever drives it (the shell on io_uring, a simulated world, a test)
//! follows one order within a turn:
//!
//! 1. Everything that came in is applied: [`on_opened`](Core::on_opened),
//!    [`on_request`](Core::on_request), [`on_cancel`](Core::on_cancel),
//!    [`on_closed`](Core::on_closed), [`on_mesh_up`](Core::on_mesh_up),
//!    [`on_mesh_down`](Core::on_mesh_down), [`on_finished`](Core::on_finished),
//!    [`on_aborted`](Core::on_aborted), [`on_freshness`](Core::on_freshness),
//!    [`on_unread`](Core::on_unread).
//! 2. [`dispatch`](Core::dispatch) takes from the queue what may start. Before it, nothing starts:
//!    so a cancel that has arrived is obeyed, however late this core looks at it.
//! 3. [`poll_effect`](Core::poll_effect), until it is empty. The cancels come out before the
//!    starts, and go to the kernel before any of those handlers runs.
//! 4. At [`next_timeout`](Core::next_timeout), [`on_timeout`](Core::on_timeout).
//!
//! The life of a copy:
//!
//! ```text
//! absent -> queued -> running -> replied
//!              |         \-> aborted   (started, then stopped at a point where the handler looks)
//!              |-> answered            (another copy with its key has run: with that one's result)
//!              |-> withdrawn           (never started: its twin did, or the caller is done)
//!              \-> shed                (never started: its deadline can't be met, or others need the room)
//! ```
//!
//! Each of these ends is told once, on the connection that brought the copy. Only a copy whose
//! connection has closed ends untold.

mod account;
mod arena;
mod arrive;
mod cancel;
mod clients;
mod config;
mod copies;
mod dispatch;
mod effect;
mod end;
mod estimate;
mod fresh;
mod histograms;
mod hold;
mod index;
mod keyed;
mod keys;
mod overload;
mod room;
mod shares;
mod slots;
mod stats;
#[cfg(test)]
mod tests;
mod tombs;
mod unread;
mod unstarted;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bowline_protocol::{Freshness, Load, OptionSet, Reply, Station};
use bowline_time::Instant;

use arena::Key;
use clients::{CLASSES, Clients};
use config::Methods;
use copies::Copies;
use estimate::Estimate;
use keys::Keys;
use overload::Governor;
use shares::Shares;
use slots::Slots;
use tombs::Tombs;
use unread::Unread;

pub use account::Account;
pub use config::{Config, ConfigError, MethodRule};
pub use effect::{Conn, CopyKey, Effect, Notice, Origin, Start, StopReason};
pub use histograms::{Histograms, MethodTimes};
#[cfg(feature = "io")]
pub(crate) use keyed::OTHER_USE;
pub use keys::KeyLimits;
pub use overload::Overload;
pub use slots::Adaptive;
pub use stats::Stats;
#[cfg(feature = "io")]
pub(crate) use stats::counters;
#[cfg(feature = "io")]
pub(crate) use unread::considerable;
pub use unstarted::{Gone, Unstarted};

/// There are as many client connections as may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the limit of client connections is reached")]
pub struct TooManyConnections;

/// One core of a server, generic over the payloads of requests, into which it never looks. See the
/// [module](self) for how to drive it.
pub struct Core<P> {
    config: Config,
    methods: Methods,
    copies: Copies<P>,
    tombs: Tombs,
    /// The peers' cores that can be told, in order.
    mesh: Vec<Station>,
    estimate: Estimate,
    /// One for each class.
    governors: [Governor; CLASSES],
    shares: Shares,
    slots: Slots,
    stats: Stats,
    histograms: Histograms,
    effects: Effects,
    /// Copies that never ran, while somebody wants to know of them.
    gone: VecDeque<Gone>,
    watched: bool,
    /// What this replica holds, if that is known.
    held: Option<Freshness>,
    /// Nothing starts, as too many replies wait in all: since when, and how long the next one would be.
    short: Option<(Instant, usize)>,
    /// Nothing new is taken on.
    draining: bool,
}

/// A copy to be answered with what another one with its key was answered: [`Effect::Answer`].
struct Repeat {
    conn: Conn,
    reply: Reply,
    options: OptionSet,
    result: Arc<[u8]>,
    /// How many bytes the request had.
    frees: usize,
}

/// What is to be done, by kind, in the order in which it is to be done.
struct Effects {
    cancels: VecDeque<(Station, bowline_protocol::Cancel)>,
    /// With how many bytes the request had that each ends, if it ends one.
    notices: VecDeque<(Conn, Notice, Option<usize>)>,
    answers: VecDeque<Repeat>,
    starts: VecDeque<Key>,
    aborts: VecDeque<(Key, StopReason)>,
}

impl<P> Core<P> {
    /// A core with nothing to do. Allocates all that its limits ask for.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the limit or the method that can't be.
    pub fn new(config: Config) -> Result<Core<P>, ConfigError> {
        config.check()?;
        let (slots, seed) = (config.slots as usize, config.hash_seed);
        let methods = Methods::new(&config.methods)?;
        let keyed = config.slots + config.queue_requests;
        let keys = Keys::new(config.keys, keyed, config.outgoing_total / 4, seed);
        let copies = slots + config.queue_requests as usize;
        let unread =
            Unread::new(config.outgoing_bytes, config.outgoing_total, methods.iter().count());
        let waiting = config.slots + config.queue_requests;
        let clients = Clients::with_capacity(config.connections, waiting, unread);
        Ok(Core {
            histograms: Histograms::new(methods.iter()),
            methods,
            copies: Copies::new(config.queue_requests, config.slots, clients, keys, seed),
            tombs: Tombs::with_capacity(config.tombstones, seed),
            mesh: Vec::new(),
            estimate: Estimate::new(),
            governors: core::array::from_fn(|_| Governor::new(config.overload)),
            shares: Shares::new(&config.shares),
            slots: Slots::new(config.slots, config.adaptive),
            stats: Stats::default(),
            effects: Effects {
                cancels: VecDeque::with_capacity(slots),
                notices: VecDeque::with_capacity(copies),
                answers: VecDeque::with_capacity(copies),
                starts: VecDeque::with_capacity(slots),
                aborts: VecDeque::with_capacity(slots),
            },
            gone: VecDeque::new(),
            watched: false,
            held: None,
            short: None,
            draining: false,
            config,
        })
    }

    /// A client's connection is open.
    ///
    /// # Errors
    ///
    /// [`TooManyConnections`]: it is to be closed again.
    pub fn on_opened(&mut self) -> Result<Conn, TooManyConnections> {
        self.copies.clients.open().map(Conn).ok_or(TooManyConnections)
    }

    /// Cancels can be sent to this core of a peer: a connection that it obeys is up.
    pub fn on_mesh_up(&mut self, station: Station) {
        if let Err(place) = self.mesh.binary_search(&station) {
            self.mesh.insert(place, station);
        }
    }

    /// Cancels can't be sent to this core of a peer any more.
    pub fn on_mesh_down(&mut self, station: Station) {
        if let Ok(place) = self.mesh.binary_search(&station) {
            self.mesh.remove(place);
        }
    }

    /// From now on nothing new is taken on; what is here goes on to its end.
    pub const fn drain(&mut self) {
        self.draining = true;
    }

    /// The next thing to do, until there is none: first all cancels for twins, then what is to be
    /// told to clients, then the starts, then the aborts.
    pub fn poll_effect(&mut self) -> Option<Effect<P>> {
        if let Some((to, cancel)) = self.effects.cancels.pop_front() {
            return Some(Effect::Cancel { to, cancel });
        }
        if let Some((conn, notice, frees)) = self.effects.notices.pop_front() {
            return Some(Effect::Send { conn, notice, frees });
        }
        if let Some(Repeat { conn, reply, options, result, frees }) =
            self.effects.answers.pop_front()
        {
            self.copies.clients.deliver(conn.0, result.len());
            return Some(Effect::Answer { conn, reply, options, result, frees });
        }
        while let Some(key) = self.effects.starts.pop_front() {
            if let Some(start) = self.hand_over(key) {
                return Some(Effect::Start(start));
            }
        }
        while let Some((key, why)) = self.effects.aborts.pop_front() {
            if self.copies.find(key).is_some() {
                return Some(Effect::Abort { copy: CopyKey(key), why });
            }
        }
        None
    }

    /// When to call [`on_timeout`](Core::on_timeout) next; None while nothing waits for time.
    pub fn next_timeout(&self) -> Option<Instant> {
        let timeouts = [
            self.copies.next_timeout(),
            self.copies.keys.next_timeout(),
            self.tombs.next_timeout(),
        ];
        timeouts.into_iter().flatten().min()
    }

    /// Time has passed: gives up copies that wait in vain, asks those to stop that run in vain, and
    /// forgets tombstones and results.
    pub fn on_timeout(&mut self, now: Instant) {
        while let Some(index) = self.copies.expire_queued(now) {
            self.shed_if_useless(index, now);
        }
        while let Some(index) = self.copies.expire_running(now) {
            self.ask_to_stop(index, StopReason::Deadline, now);
        }
        while self.tombs.expire(now) {
            self.stats.tombstones_expired += 1;
        }
        while self.copies.keys.expire(now) {
            self.stats.keys_expired += 1;
        }
    }

    /// How this core is doing, as it tells clients in every frame that ends a copy: without what is held
    /// back, which no other client has to wait for.
    pub fn load(&self) -> Load {
        Load {
            running: u16::try_from(self.copies.running()).unwrap_or(u16::MAX),
            queued: u16::try_from(self.copies.startable()).unwrap_or(u16::MAX),
            wait: self.estimate.recent_wait(),
        }
    }

    /// The counters.
    pub const fn stats(&self) -> Stats {
        Stats {
            queued: self.copies.queued() as u64,
            running: self.copies.running() as u64,
            parked: self.copies.parked() as u64,
            held: self.copies.clients.held_copies() as u64,
            keys: self.copies.keys.results() as u64,
            key_bytes: self.copies.keys.bytes() as u64,
            ..self.stats
        }
    }

    /// How long things took since they were last swapped.
    pub const fn histograms(&self) -> &Histograms {
        &self.histograms
    }

    /// Hands over how long things took, and goes on with others: empty ones of the same service, as
    /// [`Histograms::clear`] leaves them.
    pub const fn swap_histograms(&mut self, other: &mut Histograms) {
        core::mem::swap(&mut self.histograms, other);
    }

    /// Whether the newest copies of a class are served first, as there is too much to do.
    pub fn is_overloaded(&self) -> bool {
        self.governors.iter().any(Governor::is_overloaded)
    }

    /// How many copies may run at once, now.
    pub const fn slots(&self) -> u32 {
        self.slots.limit()
    }

    /// Which core of which replica this is.
    pub const fn station(&self) -> Station {
        self.config.station
    }

    /// How many client connections are open.
    pub const fn connections(&self) -> usize {
        self.copies.clients.len() as usize
    }

    /// How many tombstones there are.
    pub const fn tombstones(&self) -> usize {
        self.tombs.len() as usize
    }

    /// Whether nothing is here that could still end, expire or be told.
    pub fn is_idle(&self) -> bool {
        self.copies.queued() + self.copies.running() + self.copies.parked() + self.tombs.len() == 0
            && self.effects.cancels.is_empty()
            && self.effects.notices.is_empty()
            && self.effects.answers.is_empty()
            && self.effects.starts.is_empty()
            && self.effects.aborts.is_empty()
    }

    fn is_mesh_up(&self, station: Station) -> bool {
        self.mesh.binary_search(&station).is_ok()
    }
}
