//! A core: all that belongs to one runtime and its thread.
//!
//! Everything is reached through shared references, and mutable within cells, as tasks, handles and
//! destructors come in from everywhere. One rule makes that safe to reason about: no user code, be
//! it a poll, a waker or a destructor, runs while a cell is borrowed.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use bowline_time::{Duration, Instant};
use slab::Slab;

use crate::buffer::Pool;
use crate::clock::Clock;
use crate::driver::provided::ProvidedBuffers;
use crate::driver::switch::Driver;
use crate::driver::{Completion, Kind, Request, Token, Transfer};
use crate::inbox::{Line, Places};
use crate::marks::Marks;
use crate::metrics::{Counters, Metrics};
use crate::net::connection::Connection;
use crate::net::listener::Listening;
use crate::operation;
use crate::remote::{Registration, Remote};
use crate::share::Share;
use crate::spin::Spin;
use crate::task::table::Tasks;
use crate::task::waker::TaskId;
use crate::timer::Timers;

/// What the builder decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// How long to look for work before sleeping, at most.
    pub(crate) spin: Duration,
    /// For how long tasks of a stage run before the loop turns.
    pub(crate) budget: Duration,
    /// What part of the time background tasks get while others are ready, in percent.
    pub(crate) background_percent: u8,
    /// How long a poll may take before it is reported.
    pub(crate) stall: Option<Duration>,
    /// How long a connection that was dropped may take to send what it holds.
    pub(crate) linger: Duration,
    /// From how many bytes on a send over TCP does not copy.
    pub(crate) zero_copy: Option<usize>,
}

pub(crate) struct Core {
    /// First, so that it is closed before the memory goes that the kernel knows.
    pub(crate) driver: RefCell<Driver>,
    pub(crate) buffers: ProvidedBuffers,
    pub(crate) id: u16,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    /// When this turn began, or, once its input was applied, when that was done.
    pub(crate) now: Cell<Instant>,
    pub(crate) tasks: Tasks,
    pub(crate) share: Cell<Share>,
    pub(crate) spin: Cell<Spin>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) operations: RefCell<Slab<operation::Slot>>,
    pub(crate) connections: RefCell<Slab<Rc<Connection>>>,
    pub(crate) listeners: RefCell<Slab<Rc<Listening>>>,
    /// Connections that have something to send.
    pub(crate) dirty: RefCell<VecDeque<Rc<Connection>>>,
    /// Connections that found no buffer to receive into, the longest waiting first.
    pub(crate) parked: RefCell<VecDeque<Rc<Connection>>>,
    /// The places of connections that may have buffers which their readers have not come to.
    pub(crate) unread: RefCell<Marks>,
    /// Receives or accepts were queued, or receives cancelled so that they can be: the kernel is to
    /// have these before the turn decides anything, as their sockets may hold input. (An accept is
    /// cancelled where so much input is there that it can wait.)
    pub(crate) rearmed: Cell<bool>,
    /// A connection has enough to send not to wait for the end of the turn.
    pub(crate) full_send: Cell<bool>,
    pub(crate) pool: Pool,
    /// Free places among the files registered.
    pub(crate) places: RefCell<Vec<u32>>,
    pub(crate) remote: Arc<Remote>,
    /// Of tasks that other threads asked for, by line, those that have not begun.
    unbegun: [Places; 2],
    /// More of them may be in the inbox, for which there was no place.
    left_behind: Cell<bool>,
    pub(crate) counters: Counters,
    registration: Cell<Option<Registration>>,
    /// Where the kernel puts what it reads from the remote's event. It writes there only while a
    /// read is in flight, and nobody reads it.
    wake_count: Box<Cell<u64>>,
}

impl Core {
    pub(crate) fn new(
        settings: Settings,
        driver: Driver,
        buffers: ProvidedBuffers,
        remote: Arc<Remote>,
        registration: Registration,
    ) -> Rc<Core> {
        let clock = Clock::of(&driver);
        let core = Rc::new(Core {
            driver: RefCell::new(driver),
            buffers,
            id: registration.number(),
            settings,
            now: Cell::new(clock.now()),
            clock,
            tasks: Tasks::new(registration.number()),
            share: Cell::new(Share::new(settings.background_percent, settings.budget)),
            spin: Cell::new(Spin::new(settings.spin)),
            timers: RefCell::default(),
            operations: RefCell::default(),
            connections: RefCell::default(),
            listeners: RefCell::default(),
            dirty: RefCell::default(),
            parked: RefCell::default(),
            unread: RefCell::default(),
            rearmed: Cell::new(false),
            full_send: Cell::new(false),
            pool: Pool::new(),
            places: RefCell::default(),
            remote,
            unbegun: Default::default(),
            left_behind: Cell::new(false),
            counters: Counters::default(),
            registration: Cell::new(Some(registration)),
            wake_count: Box::default(),
        });
        core.listen_for_wakes();
        core.remote.bell().name(core.driver.borrow().mailbox());
        core
    }

    /// Asks the kernel to tell when another thread wants this core.
    fn listen_for_wakes(&self) {
        let request = Request::Read(Transfer {
            fd: self.remote.bell().event(),
            place: None,
            data: self.wake_count.as_ptr().cast(),
            length: 8,
            offset: 0,
            registered: false,
        });
        // SAFETY: the memory is on the heap and lives as long as the core does, as does the
        // descriptor; the core is not freed while anything is in flight.
        unsafe { self.driver.borrow_mut().push(request, Token::WAKE) };
    }

    /// Makes a task of this core ready.
    pub(crate) fn wake(&self, id: TaskId) {
        if self.tasks.wake(id) {
            self.counters.wakes.add(1);
        }
    }

    /// Tells everybody whom a completion concerns, of those that there are now.
    pub(crate) fn reap(&self) {
        let most = self.driver.borrow_mut().look(&self.counters);
        let mut came = 0;
        while came < most {
            let next = self.driver.borrow_mut().next();
            let Some(completion) = next else { break };
            came += 1;
            self.dispatch(completion);
        }
        if came > 0 {
            self.counters.completions.add(came as u64);
            self.counters.completion_batches.record(came as u64);
        }
    }

    fn dispatch(&self, completion: Completion) {
        match completion.token.kind {
            Kind::Receive => {
                if let Some(connection) = self.connection(completion.token.index) {
                    connection.received(completion);
                }
            }
            Kind::Send => {
                if let Some(connection) = self.connection(completion.token.index) {
                    connection.sent(completion);
                }
            }
            Kind::Operation => operation::completed(self, completion),
            Kind::Accept => {
                let index = completion.token.index as usize;
                let listener = self.listeners.borrow().get(index).cloned();
                if let Some(listener) = listener {
                    listener.accepted(completion);
                }
            }
            // A message, and no completion of the read.
            Kind::Wake if completion.more => self.counters.messages.add(1),
            Kind::Wake if !self.tasks.is_closed() => self.listen_for_wakes(),
            Kind::Wake | Kind::Nobody => {}
        }
    }

    /// The connection at a place of the table, if there is one.
    fn connection(&self, place: u32) -> Option<Rc<Connection>> {
        self.connections.borrow().get(place as usize).cloned()
    }

    /// Does what other threads have asked until now, as far as it may.
    pub(crate) fn take_remote(&self) {
        if self.remote.doze().wake_up() || self.left_behind.get() {
            self.take_asked();
        }
    }

    #[inline(never)]
    fn take_asked(&self) {
        let inbox = self.remote.inbox();
        if inbox.take_wake_all() {
            self.tasks.wake_all();
        }
        for id in inbox.take_wakes() {
            self.counters.remote_wakes.add(u64::from(self.tasks.wake(id)));
        }
        let mut left_behind = false;
        for (line, places) in Line::ALL.into_iter().zip(&self.unbegun) {
            inbox.take_asked(line, places.left()).for_each(|spawn| spawn(places.take()));
            left_behind |= inbox.has_asked(line);
        }
        self.left_behind.set(left_behind);
    }

    /// Whether other threads may ask for something that was not taken in.
    pub(crate) fn is_asked(&self) -> bool {
        self.left_behind.get() || self.remote.doze().is_called()
    }

    /// Whether they ask for something that may be taken in, and is more than background tasks.
    pub(crate) fn is_urgently_asked(&self) -> bool {
        let inbox = self.remote.inbox();
        inbox.has_wakes()
            || self.unbegun[Line::Front as usize].left() > 0 && inbox.has_asked(Line::Front)
    }

    /// Hands a send request to the ring for each connection that has something to say.
    pub(crate) fn flush(&self) {
        self.full_send.set(false);
        loop {
            let next = self.dirty.borrow_mut().pop_front();
            let Some(connection) = next else { return };
            connection.flush();
        }
    }

    /// Gets buffers back, if only readers that lag have any.
    fn relieve(&self) {
        if self.buffers.free() > 0 {
            return;
        }
        let mut from = 0;
        loop {
            let next = self.unread.borrow_mut().take(from);
            let Some(place) = next else { return };
            if let Some(connection) = self.connection(place) {
                connection.relieve();
            }
            from = place + 1;
        }
    }

    /// Lets parked connections receive again, as many as there are buffers. True if it did.
    #[inline]
    pub(crate) fn unpark(&self) -> bool {
        !self.parked.borrow().is_empty() && self.arm_parked()
    }

    #[inline(never)]
    fn arm_parked(&self) -> bool {
        self.relieve();
        let mut free = self.buffers.free();
        let mut any = false;
        while free > 0 {
            let Some(connection) = self.parked.borrow_mut().pop_front() else { break };
            if connection.unpark() {
                free -= 1;
                any = true;
            }
        }
        any
    }

    /// Whether connections are parked though there are buffers.
    pub(crate) fn can_unpark(&self) -> bool {
        self.buffers.free() > 0 && !self.parked.borrow().is_empty()
    }

    pub(crate) fn metrics(&self) -> Metrics {
        Metrics {
            live_tasks: self.tasks.live(),
            live_connections: self.connections.borrow().len(),
            requests_in_flight: self.driver.borrow().in_flight(),
            free_buffers: usize::from(self.buffers.free()),
            armed_timers: self.timers.borrow().len(),
            remote_refused: self.remote.inbox().refused(),
            ..self.counters.snapshot()
        }
    }

    /// Ends it: drops all tasks, cancels what is in flight, waits until the kernel has let go of
    /// all memory, or gives up. False if it gave up; the core then must never be freed.
    pub(crate) fn close(&self, patience: Duration) -> bool {
        // Given up last: while this thread is inside the core, wakes by the core's number are taken
        // for its own, and must not be those of another that got the number since.
        let _registration = self.registration.take();
        self.remote.inbox().close();
        // Before the ring is closed: from here on the event wakes this core, though nobody has to.
        self.remote.bell().name(None);
        self.tasks.close();
        let connections: Vec<_> =
            self.connections.borrow().iter().map(|(_, connection)| connection.clone()).collect();
        connections.iter().for_each(|connection| connection.close());
        let listeners: Vec<_> =
            self.listeners.borrow().iter().map(|(_, listener)| listener.clone()).collect();
        listeners.iter().for_each(|listener| listener.close());
        // They hold the core, which holds them.
        drop((self.dirty.take(), self.parked.take(), connections, listeners));
        let deadline = self.clock.now() + patience;
        let mut reaped = VecDeque::new();
        loop {
            let mut driver = self.driver.borrow_mut();
            let drained = driver.drain(&self.counters, &self.clock, deadline, &mut reaped);
            drop(driver);
            // Telling those concerned may make new requests, if only of a kind that ends soon.
            reaped.drain(..).for_each(|completion| self.dispatch(completion));
            if !drained {
                return false;
            }
            if self.driver.borrow().in_flight() == 0 {
                return true;
            }
        }
    }
}

thread_local! {
    /// The core that this thread is running. It lives for as long as it stands here.
    static CURRENT: Cell<*const Core> = const { Cell::new(ptr::null()) };
}

/// Makes a core the current one of its thread, until dropped.
pub(crate) struct Entered {
    _core: Rc<Core>,
    /// The core that was current before, or null. Whoever entered it still holds it, further down
    /// the stack.
    outer: *const Core,
}

impl Entered {
    /// None if the thread runs a core already.
    pub(crate) fn enter(core: &Rc<Core>) -> Option<Entered> {
        (!is_entered()).then(|| Entered::enter_within(core))
    }

    /// Even if the thread runs another core, which is the current one again after.
    pub(crate) fn enter_within(core: &Rc<Core>) -> Entered {
        let outer = CURRENT.with(|current| current.replace(Rc::as_ptr(core)));
        Entered { _core: core.clone(), outer }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.with(|current| current.set(self.outer));
    }
}

pub(crate) fn is_entered() -> bool {
    CURRENT.with(|current| !current.get().is_null())
}

/// Calls `f` with the current core, if there is one.
#[inline]
pub(crate) fn try_with<T>(f: impl FnOnce(Option<&Core>) -> T) -> T {
    CURRENT.with(|current| {
        // SAFETY: a pointer that is not null was put there by an `Entered`, which holds the core,
        // and puts the pointer before it back before it lets go. These nest, as they are kept on
        // the stack; and the one in question is not dropped within `f`, as it stands in the frame
        // of `block_on` or of the runtime's destructor, below this one.
        f(unsafe { current.get().as_ref() })
    })
}

/// Calls `f` with the current core.
#[inline]
#[track_caller]
pub(crate) fn with<T>(f: impl FnOnce(&Core) -> T) -> T {
    try_with(|core| f(core.expect(OUTSIDE)))
}

/// The current core, to keep.
#[inline]
#[track_caller]
pub(crate) fn current() -> Rc<Core> {
    with(|core| {
        let core = ptr::from_ref(core);
        // SAFETY: `with` gives the core that `Rc::as_ptr` gave to `Entered`, which still holds it.
        unsafe {
            Rc::increment_strong_count(core);
            Rc::from_raw(core)
        }
    })
}

const OUTSIDE: &str = "this has to be called inside a runtime: from a future that runs on one";
