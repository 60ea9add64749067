//! Cores that are simulated together: who of them runs, and what time it is.
//!
//! Each core has its thread, as ever, but only one runs at a time. Whenever it looks for completions
//! or sleeps, chance decides who runs next. When all sleep, time moves on to the next timer. So a
//! seed decides the course of everything, and no time is waited for.

use std::fmt;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bowline_time::{Duration, Instant};

use super::network::{Network, Traffic};
use super::{Faults, Random};

/// Several cores, each on a thread of its own, on one network and with clocks that run together.
/// Runtimes join with [`Builder::simulate_in`](crate::Builder::simulate_in).
///
/// Until as many have joined as were announced, each runs up to its first sleep, and no further.
/// From then on only one runs at a time, and all are of the same seed's making. A core that another
/// thread waits for, be it to join it or for an answer, must not be held up by that thread's own
/// runtime: drop that first.
#[derive(Clone)]
pub struct Simulation {
    world: Arc<World>,
}

impl Simulation {
    /// A simulation that begins when so many cores have joined.
    pub fn new(seed: u64, faults: Faults, cores: usize) -> Simulation {
        Simulation { world: World::new(seed, faults, cores, true) }
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.world.lock().faults = faults;
    }

    /// Has a core stand still for a while, as a process does that is stopped. Cores are numbered in
    /// the order in which they joined.
    pub fn freeze(&self, core: usize, span: Duration) {
        let mut state = self.world.lock();
        let until = state.now + span.as_nanos() as u64;
        state.seats[core].frozen_until = until;
    }

    /// Breaks each connection that there is between cores, with so many chances in a thousand.
    pub fn cut(&self, permille: u16) {
        let mut state = self.world.lock();
        let State { network, random, .. } = &mut *state;
        network.cut(|| random.chance(permille));
    }

    /// Has the machine of a core lose power, as its connections see it: none of them ends, what was
    /// under way arrives, and from then on nothing does. (The core itself is to be ended by who calls
    /// this.)
    pub fn lose_power(&self, core: usize) {
        self.world.lock().network.lose_power(core);
    }

    /// Time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.world.lock().elapsed()
    }

    /// Cores that have joined and not left.
    pub fn cores(&self) -> usize {
        self.world.lock().seats.iter().filter(|seat| seat.phase != Phase::Gone).count()
    }

    /// Sockets that are open.
    pub fn sockets(&self) -> usize {
        self.world.lock().network.sockets()
    }

    /// A number that stands for all that has happened: two runs with the same were the same.
    pub fn hash(&self) -> u64 {
        self.world.lock().hash
    }

    /// What went over each connection so far, in the order in which they were made.
    pub fn traffic(&self) -> Vec<Traffic> {
        self.world.lock().network.traffic().to_vec()
    }

    pub(crate) fn world(&self) -> Arc<World> {
        self.world.clone()
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").finish_non_exhaustive()
    }
}

/// The world's clock begins here, so that what lies before the beginning can be named.
const BEGINNING: u64 = 1_000_000_000;

/// What the cores of a simulation share.
pub(crate) struct World {
    state: Mutex<State>,
    /// Clocks are the world's own, and nobody waits for real time.
    timeless: bool,
}

pub(super) struct State {
    pub(super) random: Random,
    pub(super) faults: Faults,
    pub(super) network: Network,
    now: u64,
    hash: u64,
    seats: Vec<Seat>,
    /// Cores that have to join before anything happens.
    awaited: usize,
    running: Option<usize>,
    /// The core that ran last.
    latest: usize,
}

/// A core's place in the world.
struct Seat {
    phase: Phase,
    frozen_until: u64,
    /// What else than time can wake it.
    wishes: Vec<Wish>,
    turn: Arc<Condvar>,
    clock: LocalClock,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It has joined, and not slept yet.
    Arriving,
    /// It runs, or could.
    Ready,
    /// It has nothing to do: until then, or until a wish is granted.
    Asleep { until: Option<u64> },
    /// It is no more.
    Gone,
}

/// What a sleeping core waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    /// Somebody connects to this listener.
    Accept(RawFd),
    /// Something arrives on this connection.
    Receive(RawFd),
    /// There is room on the way of this connection.
    Send(RawFd),
    /// Another thread writes to this event.
    Event(RawFd),
}

impl Wish {
    pub(super) fn event(self) -> Option<RawFd> {
        if let Wish::Event(fd) = self { Some(fd) } else { None }
    }
}

/// How a core's clock differs from the world's.
#[derive(Clone, Copy)]
struct LocalClock {
    offset: u64,
    /// Parts in a million by which it is faster.
    ppm: u64,
}

/// How likely the same core runs on, in parts of 1000: a change of threads costs microseconds.
const STAYS: u16 = 700;

const MILLION: u64 = 1_000_000;

impl LocalClock {
    fn read(self, now: u64) -> Instant {
        let local = now.saturating_add(now / MILLION * self.ppm);
        Instant::from_nanos(self.offset.saturating_add(local))
    }

    /// The first time of the world at which it shows that, or later.
    fn when(self, instant: Instant) -> u64 {
        let local = instant.as_nanos().saturating_sub(self.offset);
        let mut at = local - local / (MILLION + self.ppm) * self.ppm;
        while self.read(at) < instant {
            at = at.saturating_add((instant - self.read(at)).as_nanos() as u64);
        }
        at
    }
}

impl World {
    /// With `timeless`, the clocks of the cores are the world's own.
    pub(super) fn new(seed: u64, faults: Faults, awaited: usize, timeless: bool) -> Arc<World> {
        let state = State {
            random: Random(seed),
            faults,
            network: Network::new(timeless),
            now: BEGINNING,
            hash: 0,
            seats: Vec::new(),
            awaited,
            running: None,
            latest: 0,
        };
        Arc::new(World { state: Mutex::new(state), timeless })
    }

    pub(super) fn is_timeless(&self) -> bool {
        self.timeless
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A core that panics has said so itself; what it leaves is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a core in. Returns its number.
    pub(super) fn join(&self) -> usize {
        let mut state = self.lock();
        let number = state.seats.len();
        // Named by the number: cores that join at one time may draw in any order.
        let mut random = Random(state.random.0 ^ (number as u64 + 1) << 32);
        let clock = LocalClock { offset: random.below(1 << 40), ppm: random.below(200) };
        state.seats.push(Seat {
            phase: Phase::Arriving,
            frozen_until: 0,
            wishes: Vec::new(),
            turn: Arc::default(),
            clock,
        });
        state.awaited = state.awaited.saturating_sub(1);
        number
    }

    /// A core is no more.
    pub(super) fn leave(&self, core: usize) {
        let mut state = self.lock();
        state.seats[core].phase = Phase::Gone;
        if state.running == Some(core) {
            state.running = None;
        }
        drop(self.choose(state));
    }

    /// What a core's clock shows.
    pub(crate) fn clock(&self, core: usize) -> Instant {
        let state = self.lock();
        state.seats[core].clock.read(state.now)
    }

    /// Lets others run, perhaps, and comes back when it is this core's turn again.
    pub(super) fn pause(&self, core: usize) -> MutexGuard<'_, State> {
        self.rest(core, Phase::Ready, Vec::new())
    }

    /// Sleeps until a time of the core's clock, or until a wish is granted.
    pub(super) fn sleep(
        &self,
        core: usize,
        until: Option<Instant>,
        wishes: Vec<Wish>,
    ) -> MutexGuard<'_, State> {
        let state = self.lock();
        let until = until.filter(|until| *until < Instant::FAR_FUTURE);
        let until = until.map(|until| state.seats[core].clock.when(until));
        drop(state);
        self.rest(core, Phase::Asleep { until }, wishes)
    }

    fn rest(&self, core: usize, phase: Phase, wishes: Vec<Wish>) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.seats[core].phase = phase;
        state.seats[core].wishes = wishes;
        if state.running.is_none_or(|running| running == core) {
            state.running = None;
            state = self.choose(state);
        }
        let turn = state.seats[core].turn.clone();
        while state.running != Some(core) {
            state = turn.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.seats[core].phase = Phase::Ready;
        state
    }

    /// Has chance choose who runs next, if nobody does.
    fn choose<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        loop {
            let arriving = state.seats.iter().any(|seat| seat.phase == Phase::Arriving);
            let over = state.seats.iter().all(|seat| seat.phase == Phase::Gone);
            if state.running.is_some() || state.awaited > 0 || arriving || over {
                return state;
            }
            let called = state.called(0);
            let able: Vec<_> =
                (0..state.seats.len()).filter(|&core| state.can_run(core, &called)).collect();
            if !able.is_empty() {
                let next = match able.contains(&state.latest) && state.random.chance(STAYS) {
                    true => state.latest,
                    false => able[state.random.below(able.len() as u64) as usize],
                };
                state.latest = next;
                let pace = u64::from(state.faults.pace);
                state.now += state.random.below(pace + 1);
                state.mix(&[next as u64]);
                state.running = Some(next);
                state.seats[next].turn.notify_one();
                return state;
            }
            match state.next_time() {
                Some(next) => state.now = next,
                None => {
                    // Only other threads can go on. They may want to join, too.
                    state.called(10);
                    drop(state);
                    state = self.lock();
                }
            }
        }
    }
}

impl State {
    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now - BEGINNING)
    }

    /// Adds something that happened to the hash.
    pub(super) fn mix(&mut self, parts: &[u64]) {
        let mut hash = Random(self.hash ^ self.now);
        for part in parts {
            hash = Random(hash.next() ^ part);
        }
        self.hash = hash.next();
    }

    fn can_run(&self, core: usize, called: &[RawFd]) -> bool {
        let seat = &self.seats[core];
        let awake = match seat.phase {
            Phase::Ready => true,
            Phase::Asleep { until } => {
                until.is_some_and(|until| until <= self.now)
                    || seat.wishes.iter().any(|&wish| match wish {
                        Wish::Event(event) => called.contains(&event),
                        wish => self.grants(wish),
                    })
            }
            Phase::Arriving | Phase::Gone => false,
        };
        awake && seat.frozen_until <= self.now
    }

    /// Whether a wish is granted now.
    pub(super) fn grants(&self, wish: Wish) -> bool {
        match wish {
            Wish::Accept(fd) => self.network.somebody_waits(fd),
            Wish::Receive(fd) => self.network.has_news(fd),
            Wish::Send(fd) => self.network.has_room(fd, self.faults.window),
            Wish::Event(fd) => !readable([fd].into_iter(), 0).is_empty(),
        }
    }

    /// The next time at which a core can run that can't now.
    fn next_time(&self) -> Option<u64> {
        let next = |seat: &Seat| match seat.phase {
            Phase::Arriving | Phase::Gone => None,
            _ if seat.frozen_until > self.now => Some(seat.frozen_until),
            Phase::Asleep { until } => until,
            Phase::Ready => None,
        };
        self.seats.iter().filter_map(next).min()
    }

    /// The events of sleeping cores that others have written to, or will within a real time.
    fn called(&self, milliseconds: i32) -> Vec<RawFd> {
        let asleep = self.seats.iter().filter(|seat| matches!(seat.phase, Phase::Asleep { .. }));
        let wishes = asleep.flat_map(|seat| &seat.wishes);
        readable(wishes.filter_map(|wish| wish.event()), milliseconds)
    }
}

/// Which descriptors can be read from, now or within a real time.
pub(super) fn readable(fds: impl Iterator<Item = RawFd>, milliseconds: i32) -> Vec<RawFd> {
    let mut polled: Vec<_> =
        fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the pointer and the length are those of a vector.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, milliseconds) };
    polled.iter().filter(|polled| polled.revents != 0).map(|polled| polled.fd).collect()
}
