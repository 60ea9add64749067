//! A driver without io_uring behind it: it does what the kernel might do, at its worst.
//!
//! Connections are queues of bytes; files are real ones, read and written by plain system calls. A
//! request completes late, in any order and in small batches; sends and reads are short; multishot
//! requests end early, even with what they bring; the completion queue overflows; not all that is
//! submitted is taken; buffers are missing; a cancellation meets a request that completes all the
//! same; connections are reset. Every choice comes from a seed. As memory is written when a request
//! completes, and not before, a sanitizer sees whoever freed it too early.
//!
//! Descriptors are real, so that the layers above own and close them as ever, but sockets are never
//! connected: only their numbers count here.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use bowline_time::Instant;
use io_uring::types::BufRingEntry;
use socket2::{SockAddr, SockRef, Socket};

use super::{Completion, Request, Token, Transfer};
use crate::metrics::Counters;

/// How likely each evil is, in parts of 1000, whenever it could happen.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// A request that could complete does so later.
    pub delay: u16,
    /// A send, a read or a write moves but a part.
    pub short: u16,
    /// A multishot request ends though it could go on.
    pub end_early: u16,
    /// A receive finds no buffer though there is one.
    pub no_buffer: u16,
    /// A file operation is to be tried again.
    pub again: u16,
    /// A send resets its connection.
    pub reset: u16,
    /// A cancellation comes too late: the request completes, if it can.
    pub cancel_late: u16,
    /// Of what is submitted only a part is taken, and the rest stays queued.
    pub submit_short: u16,
}

impl Default for Faults {
    /// All of them often, but no resets.
    fn default() -> Self {
        Faults {
            delay: 500,
            short: 300,
            end_early: 100,
            no_buffer: 50,
            again: 100,
            reset: 0,
            cancel_late: 500,
            submit_short: 200,
        }
    }
}

/// A connection holds so many bytes on their way before sends have to wait.
const WINDOW: usize = 256 << 10;
/// At most so many completions come out at once.
const BATCH: u64 = 8;

struct Running {
    request: Request,
    token: Token,
    cancelled: bool,
}

/// One side of a connection.
#[derive(Default)]
struct Endpoint {
    peer: Option<RawFd>,
    incoming: VecDeque<u8>,
    /// The peer sends no more.
    ended: bool,
    reset: bool,
}

/// The ring of provided buffers, as the kernel sees it.
#[derive(Clone, Copy)]
struct Buffers {
    entries: NonNull<BufRingEntry>,
    count: u16,
    head: u16,
}

pub(crate) struct Sim {
    random: u64,
    faults: Faults,
    queued: VecDeque<(Request, Token)>,
    running: Vec<Running>,
    /// The completion queue: at most `room` of them, and the rest as the kernel keeps it.
    posted: VecDeque<Completion>,
    overflown: VecDeque<Completion>,
    room: usize,
    endpoints: HashMap<RawFd, Endpoint>,
    /// Connections that wait to be accepted, by listener.
    waiting: HashMap<RawFd, VecDeque<RawFd>>,
    buffers: Option<Buffers>,
    in_flight: usize,
}

/// What became of a request that was tried.
enum Step {
    /// It can't go on now.
    Blocked,
    /// It completed, for the last time or not.
    Done { result: i32, buffer: Option<u16>, more: bool },
}

fn last(result: i32) -> Step {
    Step::Done { result, buffer: None, more: false }
}

/// What a system call returned, as a completion says it.
fn outcome(result: isize) -> i32 {
    match i32::try_from(result) {
        Ok(result) if result >= 0 => result,
        _ => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
    }
}

impl Sim {
    /// With a completion queue of so many places.
    pub(crate) fn new(seed: u64, faults: Faults, completions: u32) -> Sim {
        Sim {
            random: seed,
            faults,
            queued: VecDeque::new(),
            running: Vec::new(),
            posted: VecDeque::new(),
            overflown: VecDeque::new(),
            room: completions as usize,
            endpoints: HashMap::new(),
            waiting: HashMap::new(),
            buffers: None,
            in_flight: 0,
        }
    }

    /// A number below `bound` (SplitMix64).
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    fn chance(&mut self, parts: u16) -> bool {
        self.below(1000) < u64::from(parts)
    }

    /// How much of a length moves.
    fn part(&mut self, length: usize) -> usize {
        match self.chance(self.faults.short) {
            true => self.below(length as u64) as usize + usize::from(length > 0),
            false => length,
        }
        .min(length)
    }

    /// Takes the ring of provided buffers over, as registering it does.
    pub(crate) fn register_buffers(&mut self, entries: NonNull<BufRingEntry>, count: u16) {
        self.buffers = Some(Buffers { entries, count, head: 0 });
    }

    pub(crate) fn push(&mut self, request: Request, token: Token) {
        self.in_flight += 1;
        self.queued.push_back((request, token));
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn has_completions(&self) -> bool {
        !self.posted.is_empty() || !self.overflown.is_empty()
    }

    pub(crate) fn submit(&mut self) {
        let most = match self.chance(self.faults.submit_short) {
            true => self.below(self.queued.len() as u64) as usize,
            false => self.queued.len(),
        };
        for _ in 0..most {
            let Some((request, token)) = self.queued.pop_front() else { return };
            match request {
                Request::Cancel { token: victim } => {
                    let found = self.running.iter().position(|running| running.token == victim);
                    if let Some(found) = found {
                        self.running[found].cancelled = true;
                    }
                    let result = found.map_or(-libc::ENOENT, |_| 0);
                    self.post(token, result, None, false);
                }
                Request::CancelAll => {
                    self.running.iter_mut().for_each(|running| running.cancelled = true);
                    self.post(token, 0, None, false);
                }
                Request::AcceptMany { fd } => {
                    self.waiting.entry(fd).or_default();
                    self.running.push(Running { request, token, cancelled: false });
                }
                request => self.running.push(Running { request, token, cancelled: false }),
            }
        }
    }

    fn post(&mut self, token: Token, result: i32, buffer: Option<u16>, more: bool) {
        let queue = match self.has_room() {
            true => &mut self.posted,
            false => &mut self.overflown,
        };
        queue.push_back(Completion { token, result, buffer, more });
    }

    /// What overflows keeps its order: once there is some, all goes there until it is fetched.
    fn has_room(&self) -> bool {
        self.overflown.is_empty() && self.posted.len() < self.room
    }

    pub(crate) fn completions(&mut self, counters: &Counters, into: &mut Vec<Completion>) {
        if !self.overflown.is_empty() {
            counters.overflows.add(1);
            self.posted.append(&mut self.overflown);
        }
        self.step();
        let most = self.below(BATCH) as usize + 1;
        for completion in self.posted.drain(..most.min(self.posted.len())) {
            self.in_flight -= usize::from(!completion.more);
            into.push(completion);
        }
    }

    /// Waits for a completion, until the deadline.
    pub(crate) fn wait(&mut self, clock: &mut dyn FnMut() -> Instant, deadline: Option<Instant>) {
        self.submit();
        while !self.has_completions() {
            if self.step() || self.has_completions() {
                continue;
            }
            if !self.queued.is_empty() {
                self.submit();
                continue;
            }
            // Nothing can go on but what waits for other threads, or for time.
            let now = clock();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return;
            }
            let left = deadline.map_or(1000, |deadline| (deadline - now).as_millis().min(1000));
            self.wait_for_descriptors(left as i32);
        }
    }

    fn wait_for_descriptors(&self, milliseconds: i32) {
        let mut waited: Vec<_> = self
            .running
            .iter()
            .filter_map(|running| match running.request {
                Request::Read(Transfer { fd, .. }) => {
                    Some(libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
                }
                _ => None,
            })
            .collect();
        // SAFETY: the pointer and the length are those of a vector.
        unsafe {
            libc::poll(waited.as_mut_ptr(), waited.len() as libc::nfds_t, milliseconds);
        }
    }

    /// Lets requests go on, those that the dice choose. False if none can.
    fn step(&mut self) -> bool {
        let mut any = false;
        let mut at = 0;
        while at < self.running.len() {
            if self.chance(self.faults.delay) {
                any = true;
                at += 1;
                continue;
            }
            let Running { request, token, cancelled } = self.running[at];
            let step = if cancelled && !self.chance(self.faults.cancel_late) {
                last(-libc::ECANCELED)
            } else {
                match self.attempt(request) {
                    Step::Blocked if cancelled => last(-libc::ECANCELED),
                    step => step,
                }
            };
            match step {
                Step::Blocked => at += 1,
                Step::Done { result, buffer, more } => {
                    any = true;
                    // As in the kernel: a completion that overflows is its request's last.
                    let more = more && self.has_room();
                    self.post(token, result, buffer, more);
                    match more {
                        true => at += 1,
                        false => drop(self.running.swap_remove(at)),
                    }
                }
            }
        }
        any
    }

    fn attempt(&mut self, request: Request) -> Step {
        match request {
            Request::AcceptMany { fd } => self.accept(fd),
            Request::Connect { fd, address, length } => self.connect(fd, address, length),
            Request::ReceiveMany { fd, .. } => self.receive(fd),
            Request::Send { fd, data, length } => self.send(fd, data, length as usize),
            Request::Read(Transfer { fd, data, length, offset, .. }) => {
                self.file(fd, length as usize, |length| {
                    // SAFETY: whoever pushed the request promised that the memory is valid.
                    unsafe {
                        match libc::lseek(fd, 0, libc::SEEK_CUR) {
                            ..0 => libc::read(fd, data.cast(), length.max(8)),
                            _ => libc::pread(fd, data.cast(), length, offset as libc::off_t),
                        }
                    }
                })
            }
            Request::Write(Transfer { fd, data, length, offset, .. }) => {
                self.file(fd, length as usize, |length| {
                    // SAFETY: as above.
                    unsafe { libc::pwrite(fd, data.cast(), length, offset as libc::off_t) }
                })
            }
            Request::Open { path, flags, mode } => {
                // SAFETY: whoever pushed the request promised that the path is valid.
                let fd = unsafe { libc::open(path, flags, mode as libc::c_uint) };
                last(outcome(fd as isize))
            }
            Request::Sync { fd, .. } => {
                // SAFETY: no memory is passed.
                last(outcome(unsafe { libc::fsync(fd) } as isize))
            }
            Request::Status { fd, mask, into } => {
                // SAFETY: the path is a string that ends in zero; that `into` is valid, whoever
                // pushed the request promised.
                let result =
                    unsafe { libc::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, mask, into) };
                last(outcome(result as isize))
            }
            Request::Close { fd } => {
                // SAFETY: no memory is passed; the descriptor was given up to the request.
                last(outcome(unsafe { libc::close(fd) } as isize))
            }
            Request::Allocate { fd, offset, length } => {
                // SAFETY: no memory is passed.
                let result =
                    unsafe { libc::fallocate(fd, 0, offset as libc::off_t, length as libc::off_t) };
                last(outcome(result as isize))
            }
            Request::Cancel { .. } | Request::CancelAll => last(0),
        }
    }

    fn file(&mut self, fd: RawFd, length: usize, transfer: impl FnOnce(usize) -> isize) -> Step {
        let mut ready = libc::pollfd { fd, events: libc::POLLIN | libc::POLLOUT, revents: 0 };
        // An event counter can always be added to; only what can be read counts for it.
        // SAFETY: no memory is passed.
        if unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } < 0 {
            ready.events = libc::POLLIN;
        }
        // SAFETY: the pointer is to one valid structure.
        if unsafe { libc::poll(&raw mut ready, 1, 0) } == 0 {
            return Step::Blocked;
        }
        if self.chance(self.faults.again) {
            return last(if self.below(2) == 0 { -libc::EAGAIN } else { -libc::EINTR });
        }
        let part = self.part(length);
        last(outcome(transfer(part)))
    }

    fn accept(&mut self, fd: RawFd) -> Step {
        match self.waiting.entry(fd).or_default().pop_front() {
            Some(accepted) => {
                let more = !self.chance(self.faults.end_early);
                Step::Done { result: accepted, buffer: None, more }
            }
            None => Step::Blocked,
        }
    }

    fn connect(
        &mut self,
        fd: RawFd,
        address: *const libc::sockaddr,
        length: libc::socklen_t,
    ) -> Step {
        // SAFETY: whoever pushed the request promised that the address is valid.
        let read = unsafe {
            SockAddr::try_init(|storage, len| {
                std::ptr::copy_nonoverlapping(
                    address.cast::<u8>(),
                    storage.cast::<u8>(),
                    length as usize,
                );
                *len = length;
                Ok(())
            })
        };
        let wanted = read.ok().and_then(|((), address)| address.as_socket());
        let listener = self.waiting.keys().copied().find(|&fd| {
            // SAFETY: a listener is open until `close` takes it out of `waiting`.
            let listener = unsafe { BorrowedFd::borrow_raw(fd) };
            SockRef::from(&listener).local_addr().ok().and_then(|local| local.as_socket()) == wanted
        });
        let Some(listener) = listener.filter(|_| wanted.is_some()) else {
            return last(-libc::ECONNREFUSED);
        };
        let Ok(accepted) = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None) else {
            return last(-libc::EMFILE);
        };
        let accepted = accepted.into_raw_fd();
        self.forget(fd);
        self.forget(accepted);
        self.endpoints.insert(fd, Endpoint { peer: Some(accepted), ..Endpoint::default() });
        self.endpoints.insert(accepted, Endpoint { peer: Some(fd), ..Endpoint::default() });
        self.waiting.entry(listener).or_default().push_back(accepted);
        last(0)
    }

    fn receive(&mut self, fd: RawFd) -> Step {
        let (end_early, no_buffer) =
            (self.chance(self.faults.end_early), self.chance(self.faults.no_buffer));
        let Some(endpoint) = self.endpoints.get_mut(&fd) else { return last(-libc::ENOTCONN) };
        if endpoint.reset {
            return last(-libc::ECONNRESET);
        }
        if endpoint.incoming.is_empty() {
            return if endpoint.ended { last(0) } else { Step::Blocked };
        }
        let buffer = if no_buffer { None } else { self.buffers.as_mut().and_then(Buffers::take) };
        let Some((id, start, size)) = buffer else { return last(-libc::ENOBUFS) };
        let length = endpoint.incoming.len().min(size);
        for (index, byte) in endpoint.incoming.drain(..length).enumerate() {
            // SAFETY: the buffer, of `size` bytes, is the kernel's, which we are.
            unsafe { start.add(index).write(byte) };
        }
        Step::Done { result: length as i32, buffer: Some(id), more: !end_early }
    }

    fn send(&mut self, fd: RawFd, data: *const u8, length: usize) -> Step {
        let resets = self.chance(self.faults.reset);
        let part = self.part(length);
        let Some(peer) = self.endpoints.get(&fd).filter(|endpoint| !endpoint.reset) else {
            return last(-libc::EPIPE);
        };
        let Some(peer) = peer.peer else { return last(-libc::EPIPE) };
        if resets {
            for side in [fd, peer] {
                if let Some(endpoint) = self.endpoints.get_mut(&side) {
                    endpoint.reset = true;
                    endpoint.incoming.clear();
                }
            }
            return last(-libc::EPIPE);
        }
        let Some(peer) = self.endpoints.get_mut(&peer) else { return last(-libc::EPIPE) };
        if peer.incoming.len() >= WINDOW {
            return Step::Blocked;
        }
        // SAFETY: whoever pushed the request promised that the memory is valid.
        peer.incoming.extend(unsafe { std::slice::from_raw_parts(data, part) });
        last(part as i32)
    }

    pub(crate) fn shutdown(&mut self, fd: RawFd, how: i32) {
        let Some(endpoint) = self.endpoints.get_mut(&fd) else { return };
        endpoint.ended |= how != libc::SHUT_WR;
        let peer = endpoint.peer;
        if how != libc::SHUT_RD
            && let Some(peer) = peer.and_then(|peer| self.endpoints.get_mut(&peer))
        {
            peer.ended = true;
        }
    }

    /// Closes a socket.
    pub(crate) fn close(&mut self, fd: OwnedFd) {
        self.forget(fd.as_raw_fd());
        for waiting in self.waiting.remove(&fd.as_raw_fd()).into_iter().flatten() {
            self.forget(waiting);
            drop(crate::operation::own(waiting));
        }
    }

    /// Has the peer of a descriptor see the end.
    fn forget(&mut self, fd: RawFd) {
        self.shutdown(fd, libc::SHUT_RDWR);
        if let Some(endpoint) = self.endpoints.remove(&fd)
            && let Some(peer) = endpoint.peer.and_then(|peer| self.endpoints.get_mut(&peer))
        {
            peer.peer = None;
        }
    }
}

impl Buffers {
    /// The next buffer that we were given: its number, start and size.
    fn take(&mut self) -> Option<(u16, *mut u8, usize)> {
        // SAFETY: the ring of `count` entries lives as long as the driver, and is written to by
        // this same thread only.
        let tail = unsafe { *BufRingEntry::tail(self.entries.as_ptr()) };
        if self.head == tail {
            return None;
        }
        // SAFETY: the index is below `count`.
        let entry = unsafe { self.entries.add(usize::from(self.head & (self.count - 1))).as_ref() };
        self.head = self.head.wrapping_add(1);
        let start = std::ptr::with_exposed_provenance_mut(entry.addr() as usize);
        Some((entry.bid(), start, entry.len() as usize))
    }
}
