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

mod network;
mod world;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use bowline_time::Instant;
use io_uring::types::BufRingEntry;
use socket2::{SockAddr, SockRef, Socket};

use self::world::{State, Wish, readable};
use super::{Completion, Kind, Request, SendWay, Token, Transfer};
use crate::metrics::Counters;

pub use self::network::{Lane, Traffic};
pub use self::world::Simulation;
pub(crate) use self::world::World;

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
    /// An accept fails: its other side has given up, or there are no descriptors.
    pub accept: u16,
    /// A send that is not to copy is refused, as where no more memory may be locked.
    pub refuse_zero_copy: u16,
    /// A cancellation comes too late: the request completes, if it can.
    pub cancel_late: u16,
    /// Of what is submitted only a part is taken, and the rest stays queued.
    pub submit_short: u16,
    /// A connection holds so many bytes on their way, or one piece more, before sends have to wait.
    pub window: usize,
    /// At most so many nanoseconds pass while a core of a [`Simulation`] runs.
    pub pace: u32,
}

impl Default for Faults {
    /// All of them often, but no resets and no failing accepts; 256 KiB under way, and 5 µs a turn.
    fn default() -> Self {
        Faults {
            delay: 500,
            short: 300,
            end_early: 100,
            no_buffer: 50,
            again: 100,
            reset: 0,
            accept: 0,
            refuse_zero_copy: 50,
            cancel_late: 500,
            submit_short: 200,
            window: 256 << 10,
            pace: 5_000,
        }
    }
}

/// At most so many completions come out at once.
const BATCH: u64 = 8;
/// At most so many buffers are filled for one completion.
const MOST_IN_BUNDLE: u64 = 4;
/// A core that has not slept after so many looks for completions is held to be busy.
const LOOKS_WITHOUT_SLEEP: u32 = 16;

/// Chance (SplitMix64).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn chance(&mut self, parts: u16) -> bool {
        self.below(1000) < u64::from(parts)
    }
}

impl State {
    fn chance(&mut self, of: impl FnOnce(&Faults) -> u16) -> bool {
        self.random.chance(of(&self.faults))
    }

    /// How much of a length moves.
    fn part(&mut self, length: usize) -> usize {
        match self.chance(|faults| faults.short) {
            true => self.random.below(length as u64) as usize + usize::from(length > 0),
            false => length,
        }
        .min(length)
    }
}

struct Running {
    request: Request,
    token: Token,
    cancelled: bool,
    /// What was sent without a copy, and is to be there, unchanged, until that is told.
    lent: Option<Vec<u8>>,
}

/// The ring of provided buffers, as the kernel sees it.
#[derive(Clone, Copy)]
struct Buffers {
    entries: NonNull<BufRingEntry>,
    count: u16,
    head: u16,
    /// They are filled piece by piece.
    incremental: bool,
}

pub(crate) struct Sim {
    world: Arc<World>,
    /// This core's number in the world.
    core: usize,
    /// Looks for completions before the first sleep; None after it.
    looks: Option<u32>,
    queued: VecDeque<(Request, Token)>,
    running: Vec<Running>,
    /// The completion queue: at most `room` of them, and the rest as the kernel keeps it.
    posted: VecDeque<Completion>,
    overflown: VecDeque<Completion>,
    /// Of sends that were done at once.
    sent: Vec<Completion>,
    /// What was found, and is not told yet.
    found: VecDeque<Completion>,
    room: usize,
    buffers: Option<Buffers>,
    in_flight: usize,
}

/// What became of a request: it completed, for the last time or not.
struct Step {
    result: i32,
    buffer: Option<u16>,
    buffer_more: bool,
    more: bool,
}

fn last(result: i32) -> Step {
    Step { result, buffer: None, buffer_more: false, more: false }
}

/// What a system call returned, as a completion says it.
fn outcome(result: isize) -> i32 {
    match i32::try_from(result) {
        Ok(result) if result >= 0 => result,
        _ => -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
    }
}

impl Sim {
    /// A core that is alone in its world, and whose clock is the real one.
    pub(crate) fn alone(seed: u64, faults: Faults, completions: u32) -> Sim {
        Sim::new(World::new(seed, faults, 1, false), completions)
    }

    /// A core that joins a world, with a completion queue of so many places.
    pub(crate) fn new(world: Arc<World>, completions: u32) -> Sim {
        Sim {
            core: world.join(),
            world,
            looks: Some(0),
            queued: VecDeque::new(),
            running: Vec::new(),
            posted: VecDeque::new(),
            overflown: VecDeque::new(),
            sent: Vec::new(),
            found: VecDeque::new(),
            room: completions as usize,
            buffers: None,
            in_flight: 0,
        }
    }

    /// The clock that the core is to use, if it is not the real one.
    pub(crate) fn clock(&self) -> Option<(Arc<World>, usize)> {
        self.world.is_timeless().then(|| (self.world.clone(), self.core))
    }

    /// Takes the ring of provided buffers over, as registering it does.
    pub(crate) fn register_buffers(
        &mut self,
        entries: NonNull<BufRingEntry>,
        count: u16,
        incremental: bool,
    ) {
        self.buffers = Some(Buffers { entries, count, head: 0, incremental });
    }

    pub(crate) fn push(&mut self, request: Request, token: Token) {
        self.in_flight += 1;
        self.queued.push_back((request, token));
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn has_completions(&self) -> bool {
        !self.found.is_empty() || !self.posted.is_empty() || !self.overflown.is_empty()
    }

    pub(crate) fn has_untold(&self) -> bool {
        let is_one = |(request, _): &(Request, Token)| {
            matches!(request, Request::Send { way: SendWay::AtOnce, .. })
        };
        !self.sent.is_empty() || self.queued.iter().any(is_one)
    }

    pub(crate) fn submit(&mut self) {
        if self.looks.is_some() {
            return;
        }
        let most = {
            let mut world = self.world.lock();
            match world.chance(|faults| faults.submit_short) {
                true => world.random.below(self.queued.len() as u64) as usize,
                false => self.queued.len(),
            }
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
                    self.post(token, last(result));
                }
                Request::CancelAll => {
                    self.running.iter_mut().for_each(|running| running.cancelled = true);
                    self.post(token, last(0));
                }
                Request::Send { fd, length, way: SendWay::AtOnce, .. } => {
                    self.send_at_once(fd, length, &bytes_of(&request), token);
                }
                Request::AcceptMany { fd } => {
                    self.world.lock().network.listen(fd, self.core);
                    self.running.push(Running { request, token, cancelled: false, lent: None });
                }
                request => {
                    self.running.push(Running { request, token, cancelled: false, lent: None });
                }
            }
        }
    }

    /// Sends what there is room for. Only that it was not all is a completion which ends a wait.
    fn send_at_once(&mut self, fd: RawFd, length: u32, bytes: &[u8], token: Token) {
        let step = {
            let mut world = self.world.lock();
            match world.grants(Wish::Send(fd)) {
                true => send(fd, bytes, &mut world),
                false => last(-libc::EAGAIN),
            }
        };
        if step.result == length as i32 {
            let Step { result, buffer, buffer_more, more } = step;
            self.sent.push(Completion { token, result, buffer, buffer_more, more });
        } else {
            self.post(token, step);
        }
    }

    fn post(&mut self, token: Token, step: Step) {
        let queue = match self.has_room() {
            true => &mut self.posted,
            false => &mut self.overflown,
        };
        let Step { result, buffer, buffer_more, more } = step;
        queue.push_back(Completion { token, result, buffer, buffer_more, more });
    }

    /// What overflows keeps its order: once there is some, all goes there until it is fetched.
    fn has_room(&self) -> bool {
        self.overflown.is_empty() && self.posted.len() < self.room
    }

    pub(crate) fn look(&mut self, counters: &Counters) -> usize {
        match &mut self.looks {
            Some(looks) if *looks < LOOKS_WITHOUT_SLEEP => {
                *looks += 1;
                return 0;
            }
            looks => *looks = None,
        }
        let world = self.world.clone();
        let mut state = world.pause(self.core);
        if !self.overflown.is_empty() {
            counters.overflows.add(1);
            self.posted.append(&mut self.overflown);
        }
        self.step(&mut state);
        let most = state.random.below(BATCH) as usize + 1;
        let sent = self.sent.drain(..);
        for completion in sent.chain(self.posted.drain(..most.min(self.posted.len()))) {
            self.in_flight -= usize::from(!completion.more);
            state.mix(&said_of(&completion, self.core));
            self.found.push_back(completion);
        }
        self.found.len()
    }

    pub(crate) fn next(&mut self) -> Option<Completion> {
        self.found.pop_front()
    }

    /// Waits for a completion, until the deadline.
    pub(crate) fn wait(&mut self, clock: &mut dyn FnMut() -> Instant, deadline: Option<Instant>) {
        let world = self.world.clone();
        if self.looks.take().is_some() {
            drop(world.pause(self.core));
        }
        self.submit();
        while !self.has_completions() {
            let going_on = {
                let mut state = world.pause(self.core);
                self.step(&mut state)
            };
            if self.has_completions() {
                return;
            }
            let now = clock();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return;
            }
            if going_on {
                continue;
            }
            if !self.queued.is_empty() {
                self.submit();
                continue;
            }
            // Nothing can go on but what waits for others, or for time.
            let wishes = self.running.iter().filter_map(|running| wish_of(&running.request));
            if world.is_timeless() {
                drop(world.sleep(self.core, deadline, wishes.collect()));
            } else {
                let left = deadline.map_or(1000, |deadline| (deadline - now).as_millis().min(1000));
                readable(wishes.filter_map(Wish::event), left as i32);
            }
        }
    }

    /// Lets requests go on, those that the dice choose. False if none can.
    fn step(&mut self, world: &mut State) -> bool {
        let mut any = false;
        let mut at = 0;
        while at < self.running.len() {
            let Running { request, token, cancelled, ref lent } = self.running[at];
            if let Some(lent) = lent {
                any = true;
                if world.chance(|faults| faults.delay) {
                    at += 1;
                    continue;
                }
                assert!(bytes_of(&request) == *lent, "what was sent without a copy has changed");
                self.post(token, last(0));
                drop(self.running.swap_remove(at));
                continue;
            }
            let blocked = wish_of(&request).is_some_and(|wish| !world.grants(wish));
            if blocked && !cancelled {
                at += 1;
                continue;
            }
            any = true;
            if world.chance(|faults| faults.delay) {
                at += 1;
                continue;
            }
            let in_time = cancelled && !world.chance(|faults| faults.cancel_late);
            let mut step = match blocked || in_time {
                true => last(-libc::ECANCELED),
                false => self.attempt(request, world),
            };
            if request.is_zero_copy() && step.result >= 0 {
                self.running[at].lent = Some(bytes_of(&request));
                self.post(token, Step { more: true, ..step });
                at += 1;
                continue;
            }
            // As in the kernel: a completion that overflows is its request's last.
            step.more &= self.has_room();
            let more = step.more;
            self.post(token, step);
            match more {
                true => at += 1,
                false => drop(self.running.swap_remove(at)),
            }
        }
        any
    }

    fn attempt(&mut self, request: Request, world: &mut State) -> Step {
        match request {
            Request::AcceptMany { fd } => accept(fd, world),
            Request::Connect { fd, address, length } => self.connect(fd, address, length, world),
            Request::ReceiveMany { fd, bundles, .. } => self.receive(fd, bundles, world),
            request if request.is_zero_copy() && world.chance(|faults| faults.refuse_zero_copy) => {
                last(-libc::ENOMEM)
            }
            Request::Send { fd, .. } | Request::SendVector { fd, .. } => {
                send(fd, &bytes_of(&request), world)
            }
            Request::Read(Transfer { fd, data, length, offset, .. }) => {
                file(length as usize, world, |length| {
                    // SAFETY: whoever pushed the request promised that the memory is valid.
                    unsafe {
                        match is_event(fd) {
                            true => libc::read(fd, data.cast(), length.max(8)),
                            false => libc::pread(fd, data.cast(), length, offset as libc::off_t),
                        }
                    }
                })
            }
            Request::Write(Transfer { fd, data, length, offset, .. }) => {
                file(length as usize, world, |length| {
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

    fn connect(
        &mut self,
        fd: RawFd,
        address: *const libc::sockaddr,
        length: libc::socklen_t,
        world: &mut State,
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
        let wanted = read.ok().map(|((), address)| address);
        let listener = world.network.listeners().find(|&fd| {
            // SAFETY: a listener is open until `close` makes the network forget it.
            let listener = unsafe { BorrowedFd::borrow_raw(fd) };
            SockRef::from(&listener).local_addr().ok() == wanted
        });
        let Some(listener) = listener.filter(|_| wanted.is_some()) else {
            return last(-libc::ECONNREFUSED);
        };
        let Ok(accepted) = Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None) else {
            return last(-libc::EMFILE);
        };
        let accepted = accepted.into_raw_fd();
        world.network.connect(fd, self.core, listener, accepted);
        last(0)
    }

    fn receive(&mut self, fd: RawFd, bundles: bool, world: &mut State) -> Step {
        let (end_early, no_buffer) =
            (world.chance(|faults| faults.end_early), world.chance(|faults| faults.no_buffer));
        let Some(endpoint) = world.network.endpoint(fd) else { return last(-libc::ENOTCONN) };
        if endpoint.reset {
            return last(-libc::ECONNRESET);
        }
        if endpoint.incoming.is_empty() {
            return last(0);
        }
        let buffers = self.buffers.as_mut().filter(|buffers| !no_buffer && !buffers.is_empty());
        let Some(buffers) = buffers else { return last(-libc::ENOBUFS) };
        let count = if bundles { 1 + world.random.below(MOST_IN_BUNDLE) } else { 1 };
        let first = buffers.first().bid();
        let (mut length, mut buffer_more) = (0, false);
        for _ in 0..count {
            let mut most = buffers.first().len() as usize;
            if bundles || buffers.incremental {
                most = world.part(most);
            }
            if bundles {
                // As in the kernel, which notes here how much it wants of a buffer.
                buffers.first().set_len(most as u32);
            }
            let (filled, goes_on) = buffers.fill(world.network.receive(fd, most));
            length += filled as i32;
            buffer_more = goes_on;
            let is_dry = world.network.endpoint(fd).is_none_or(|e| e.incoming.is_empty());
            if (filled as usize) < most || is_dry || buffers.is_empty() {
                break;
            }
        }
        Step { result: length, buffer: Some(first), buffer_more, more: !end_early }
    }

    pub(crate) fn shutdown(&mut self, fd: RawFd, how: i32) {
        self.world.lock().network.shutdown(fd, how);
    }

    /// Closes a socket.
    pub(crate) fn close(&mut self, fd: OwnedFd) {
        let network = &mut self.world.lock().network;
        network.forget(fd.as_raw_fd());
        for waiting in network.deafen(fd.as_raw_fd()) {
            network.forget(waiting);
            drop(crate::operation::own(waiting));
        }
        // While the network is ours: nobody is to get the number before it was forgotten.
        drop(fd);
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.world.leave(self.core);
    }
}

/// A completion as numbers. Those of descriptors are not of this world.
fn said_of(completion: &Completion, core: usize) -> [u64; 4] {
    let Completion { token, result, more, .. } = *completion;
    let result = match token.kind {
        Kind::Receive | Kind::Send => result,
        _ => result.min(1),
    };
    [core as u64, token.to_user_data(), result as u64, more.into()]
}

/// What a request may have to wait for; None: nothing.
fn wish_of(request: &Request) -> Option<Wish> {
    Some(match *request {
        Request::AcceptMany { fd } => Wish::Accept(fd),
        Request::ReceiveMany { fd, .. } => Wish::Receive(fd),
        Request::Send { fd, .. } | Request::SendVector { fd, .. } => Wish::Send(fd),
        Request::Read(Transfer { fd, .. }) if is_event(fd) => Wish::Event(fd),
        _ => return None,
    })
}

/// Whether a descriptor is no file, but something that others write to: an event, or a pipe.
fn is_event(fd: RawFd) -> bool {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the status is written to, and zeros are one, too.
    let status = unsafe {
        libc::fstat(fd, status.as_mut_ptr());
        status.assume_init()
    };
    !matches!(status.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK)
}

fn accept(fd: RawFd, world: &mut State) -> Step {
    if world.chance(|faults| faults.accept) {
        return fail_to_accept(fd, world);
    }
    match world.network.accept(fd) {
        Some(accepted) => {
            let more = !world.chance(|faults| faults.end_early);
            Step { more, ..last(accepted) }
        }
        None => last(-libc::EAGAIN),
    }
}

/// Who waits has given up, or waits on until there are descriptors.
fn fail_to_accept(fd: RawFd, world: &mut State) -> Step {
    if world.random.chance(500) {
        return last(-libc::EMFILE);
    }
    if let Some(gone) = world.network.accept(fd) {
        world.network.forget(gone);
        drop(crate::operation::own(gone));
    }
    last(-libc::ECONNABORTED)
}

/// What a request is to send.
fn bytes_of(request: &Request) -> Vec<u8> {
    match *request {
        Request::Send { data, length, .. } => {
            // SAFETY: whoever pushed the request promised that the memory is valid.
            unsafe { std::slice::from_raw_parts(data, length as usize).to_vec() }
        }
        Request::SendVector { header, .. } => {
            // SAFETY: as above, for the header and for all that it points to.
            let parts = unsafe {
                std::slice::from_raw_parts((*header).msg_iov, (*header).msg_iovlen)
                    .iter()
                    .map(|part| std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len))
                    .collect::<Vec<&[u8]>>()
            };
            parts.concat()
        }
        _ => Vec::new(),
    }
}

fn send(fd: RawFd, data: &[u8], world: &mut State) -> Step {
    let resets = world.chance(|faults| faults.reset);
    let part = world.part(data.len());
    if world.network.is_broken(fd) {
        return last(-libc::EPIPE);
    }
    if resets {
        world.network.reset(fd);
        return last(-libc::EPIPE);
    }
    let now = world.elapsed();
    world.network.send(fd, &data[..part], now);
    last(part as i32)
}

fn file(length: usize, world: &mut State, transfer: impl FnOnce(usize) -> isize) -> Step {
    if world.chance(|faults| faults.again) {
        return last(if world.random.below(2) == 0 { -libc::EAGAIN } else { -libc::EINTR });
    }
    let part = world.part(length);
    last(outcome(transfer(part)))
}

impl Buffers {
    fn is_empty(&self) -> bool {
        // SAFETY: the ring of `count` entries lives as long as the driver, and is written to by
        // this same thread only.
        self.head == unsafe { *BufRingEntry::tail(self.entries.as_ptr()) }
    }

    /// The next buffer that we were given. There is one.
    fn first(&mut self) -> &mut BufRingEntry {
        // SAFETY: as above, and the place is below `count`.
        unsafe { self.entries.add(usize::from(self.head & (self.count - 1))).as_mut() }
    }

    /// Puts bytes into it, no more than it has room for, and passes on to the next if we are done
    /// with it. Says how many they were, and whether we are not.
    fn fill(&mut self, bytes: impl Iterator<Item = u8>) -> (u32, bool) {
        let incremental = self.incremental;
        let entry = self.first();
        let (start, room) = (entry.addr(), entry.len());
        let mut filled = 0;
        for byte in bytes.take(room as usize) {
            let at = std::ptr::with_exposed_provenance_mut::<u8>(start as usize + filled as usize);
            // SAFETY: it lies in the buffer, of which so much is the kernel's, which we are.
            unsafe { at.write(byte) };
            filled += 1;
        }
        if incremental {
            entry.set_addr(start + u64::from(filled));
            entry.set_len(room - filled);
        }
        let goes_on = incremental && filled < room;
        if !goes_on {
            self.head = self.head.wrapping_add(1);
        }
        (filled, goes_on)
    }
}
