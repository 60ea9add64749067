//! The kernel's side: one io_uring, made and used by one thread.
//!
//! Requests are queued and handed over in batches, by [`Ring::submit`] or [`Ring::wait`]. One that
//! finds the submission queue full waits in a backlog, so that none is ever refused or lost. Many
//! complete as they are handed over: so before each batch there is made room in the completion
//! queue for all of it, and completions for which nobody has come wait here. What overflows the
//! queue all the same, for it completes later, the kernel keeps in memory of its own.
//!
//! With DEFER_TASKRUN the kernel does a completion's work only when it is asked to, by an enter
//! with GETEVENTS; the ring's TASKRUN flag says that there is some. The same enter brings back what
//! overflowed the completion queue.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::OnceLock;

use bowline_time::{Duration, Instant};
use io_uring::{EnterFlags, IoUring, Parameters, Submitter, cqueue, opcode, squeue, types};

use super::at_once::{self, AtOnce};
use super::{Completion, Request, SendWay, Token, Transfer, message};
use crate::clock::Clock;
use crate::error::{Error, kernel_release};
use crate::metrics::Counters;

/// Where the kernel wants to know how long to wait, and not until when: it adds the present to it,
/// in 63 bits, and were that too much would not wait at all.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The number of the only region of registered memory.
const REGION: u16 = 0;

/// What the ring got of what newer kernels have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    /// Submission queue without an array of indices (6.6).
    pub(crate) no_array: bool,
    /// The ring's descriptor is registered (5.18).
    pub(crate) registered: bool,
    /// A wait ends at an absolute time (6.12).
    pub(crate) absolute_wait: bool,
    /// A wait doesn't count as waiting for a disk (6.15).
    pub(crate) no_iowait: bool,
    /// A receive may tell of several buffers at once (6.10), in the right order (6.16).
    pub(crate) bundles: bool,
    /// Other threads post to the ring without one of their own (6.13).
    pub(crate) messages: bool,
    /// Of sends that are done at once the kernel tells only if they are not (5.17).
    pub(crate) at_once: bool,
    /// A thread of the kernel's takes requests by itself, as was asked for.
    pub(crate) polled: bool,
}

pub(crate) struct Ring {
    /// On the heap, owned; the submitter refers to it. Only shared references to it are made.
    uring: NonNull<IoUring>,
    /// Knows under which number the ring's descriptor is registered.
    submitter: ManuallyDrop<Submitter<'static>>,
    features: Features,
    /// What the submission queue had no room for, in order.
    backlog: VecDeque<squeue::Entry>,
    /// Requests whose last completion was not seen yet, those in the queues included.
    in_flight: usize,
    /// What was taken out of the completion queue to make room.
    reaped: VecDeque<Completion>,
    at_once: AtOnce,
}

impl Ring {
    /// A ring with so many places for requests and for completions. If `poll` is given, a thread of
    /// the kernel's takes requests, and sleeps when there were none for so long.
    pub(crate) fn new(
        entries: u32,
        completions: u32,
        poll: Option<Duration>,
    ) -> Result<Ring, Error> {
        let (uring, no_array) = match set_up(entries, completions, poll, true) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                (set_up(entries, completions, poll, false), false)
            }
            other => (other, true),
        };
        if let Err(error) = &uring
            && error.raw_os_error() == Some(libc::EINVAL)
        {
            return Err(Error::too_old("DEFER_TASKRUN"));
        }
        let uring = uring.map_err(Error::of_setup)?;
        // SAFETY: the pointer is from a box, and so valid until `drop` makes it a box again.
        let (uring, shared) = unsafe {
            let uring = NonNull::from(Box::leak(Box::new(uring)));
            (uring, uring.as_ref())
        };
        let mut submitter = ManuallyDrop::new(shared.submitter());
        let registered = submitter.register_ring_fd().is_ok();
        let mut ring = Ring {
            uring,
            submitter,
            features: Features::default(),
            backlog: VecDeque::with_capacity(64),
            in_flight: 0,
            reaped: VecDeque::new(),
            at_once: AtOnce::default(),
        };
        let parameters = shared.params();
        if !parameters.is_feature_ext_arg() || !parameters.is_feature_nodrop() {
            return Err(Error::too_old("EXT_ARG or NODROP"));
        }
        ring.features = Features {
            no_array,
            registered,
            // The flag has no feature bit; it came with the same release as this one.
            absolute_wait: parameters.is_feature_min_timeout(),
            no_iowait: parameters.is_feature_no_iowait(),
            bundles: has_sound_bundles(parameters),
            // Seen by trying: the ring gets one, for nobody, from its own thread. It ends the first
            // wait, and means nothing.
            messages: message::post(shared.as_raw_fd(), Token::NOBODY).is_ok(),
            // A thread of the kernel's would take them later than they are handed over.
            at_once: poll.is_none() && sends_at_once(parameters),
            polled: parameters.is_setup_sqpoll(),
        };
        ring.try_out().map_err(Error::of_enter)?;
        Ok(ring)
    }

    /// Enters the kernel once, for nothing: who lets a ring be made may yet forbid that.
    fn try_out(&self) -> io::Result<()> {
        // SAFETY: nothing is handed over, and there is no argument.
        unsafe { self.submitter.enter::<types::Timespec>(0, 0, 0, None) }.map(drop)
    }

    /// Where other threads post messages, if they can.
    pub(crate) fn mailbox(&self) -> Option<RawFd> {
        // SAFETY: as in `submission`; a shared reference to the ring is all that is ever made.
        self.features.messages.then(|| unsafe { self.uring.as_ref() }.as_raw_fd())
    }

    pub(crate) fn features(&self) -> Features {
        self.features
    }

    /// Has the kernel poll the network cards that connections come from for so long, in whole
    /// microseconds, before a wait sleeps; if it can.
    pub(crate) fn busy_poll(&mut self, time: Duration) {
        let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let mut napi = types::Napi::new().set_busy_poll_timeout(micros).set_prefer_busy_poll(true);
        if let Err(error) = self.submitter.register_napi(&mut napi) {
            tracing::warn!(
                %error,
                "this kernel does not poll network cards for io_uring, which takes Linux 6.9 built \
                 with CONFIG_NET_RX_BUSY_POLL: it waits for interrupts"
            );
        }
    }

    pub(crate) fn submitter(&self) -> &Submitter<'static> {
        &self.submitter
    }

    /// Makes places for files, all empty.
    pub(crate) fn register_files(&self, count: u32) -> io::Result<()> {
        self.submitter.register_files_sparse(count)
    }

    /// Puts a file at a place, or, if it is -1, takes away what is there. Requests under way keep
    /// what they have.
    pub(crate) fn set_file(&self, place: u32, fd: RawFd) -> io::Result<()> {
        self.submitter.register_files_update(place, &[fd]).map(drop)
    }

    /// Has the kernel pin memory, so that transfers need not.
    ///
    /// # Safety
    ///
    /// The memory is valid for as long as requests are in flight that name it.
    pub(crate) unsafe fn register_memory(
        &self,
        memory: NonNull<u8>,
        length: usize,
    ) -> io::Result<()> {
        let memory = libc::iovec { iov_base: memory.as_ptr().cast(), iov_len: length };
        // SAFETY: passed on to the caller; pages that are pinned stay until the ring is closed.
        unsafe { self.submitter.register_buffers(&[memory]) }
    }

    fn submission(&mut self) -> squeue::SubmissionQueue<'_> {
        // SAFETY: the ring lives as long as `self`. That `self` is borrowed mutably makes sure that
        // there is one queue object at a time.
        unsafe { self.uring.as_ref().submission_shared() }
    }

    fn completion(&mut self) -> cqueue::CompletionQueue<'_> {
        // SAFETY: as in `submission`.
        unsafe { self.uring.as_ref().completion_shared() }
    }

    /// Queues a request.
    ///
    /// # Safety
    ///
    /// Memory that the request points to stays valid, and unmoved, until the last completion with
    /// this token has come out of [`Ring::next`], or for ever: the kernel writes into what
    /// it reads into, and reads the rest, at any time until then, even when the ring is closed.
    pub(crate) unsafe fn push(&mut self, request: Request, token: Token) {
        self.in_flight += 1;
        if self.push_at_once(request, token) {
            return;
        }
        let entry = entry(request).user_data(token.to_user_data());
        if !self.backlog.is_empty() {
            self.backlog.push_back(entry);
            return;
        }
        // SAFETY: the entry is valid, and what it points to is by the caller's promise.
        if unsafe { self.submission().push(&entry) }.is_err() {
            self.backlog.push_back(entry);
        }
    }

    /// Queues a send that is to be done at once. False if it is none, or can't be that here: where
    /// the queue is full, nobody could tell when it is handed over.
    fn push_at_once(&mut self, request: Request, token: Token) -> bool {
        let Request::Send { fd, data, length, way: SendWay::AtOnce } = request else {
            return false;
        };
        if !self.features.at_once || !self.backlog.is_empty() {
            return false;
        }
        let entry = at_once::entry(fd, data, length, token);
        // SAFETY: as in `push`. The send is told of after the kernel has done with it.
        if unsafe { self.submission().push(&entry) }.is_err() {
            return false;
        }
        self.at_once.push(token, length);
        true
    }

    /// How many requests have not seen their last completion.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether there are sends to be done at once, or done, of which nobody was told.
    pub(crate) fn has_untold(&self) -> bool {
        !self.at_once.is_empty()
    }

    /// Whether requests wait to be handed to the kernel.
    fn is_unsubmitted(&mut self) -> bool {
        !self.backlog.is_empty() || !self.submission().is_empty()
    }

    /// Whether the kernel has something that [`Ring::next`] would bring.
    #[inline]
    pub(crate) fn has_completions(&mut self) -> bool {
        !self.reaped.is_empty() || !self.completion().is_empty() || self.has_deferred()
    }

    /// Whether an enter with GETEVENTS would bring completions.
    fn has_deferred(&mut self) -> bool {
        let queue = self.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Hands over all requests, without waiting for anything.
    ///
    /// # Errors
    ///
    /// As for [`Ring::enter`]; so for the other two.
    pub(crate) fn submit(&mut self, counters: &Counters) -> io::Result<()> {
        counters.longest_backlog.raise_to(self.backlog.len() as u64);
        while self.is_unsubmitted() {
            if !self.enter(counters, false, None)? {
                break;
            }
            if self.features.polled {
                // The kernel's thread takes them when it likes; all it is waited for is places.
                if self.backlog.is_empty() {
                    break;
                }
                if !went(self.submitter.squeue_wait(), counters)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Hands over all requests and waits for a completion, until the deadline if there is one.
    /// Signals end the wait too.
    pub(crate) fn wait(
        &mut self,
        counters: &Counters,
        clock: &Clock,
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        if !self.backlog.is_empty() {
            self.submit(counters)?;
        }
        let until = deadline.filter(|&deadline| deadline != Instant::FAR_FUTURE).map(|deadline| {
            let nanos = match self.features.absolute_wait {
                true => deadline.as_nanos(),
                false => (deadline - clock.now()).min(LONGEST_WAIT).as_nanos() as u64,
            };
            types::Timespec::new().sec(nanos / 1_000_000_000).nsec((nanos % 1_000_000_000) as u32)
        });
        counters.waits.add(1);
        self.enter(counters, true, until.as_ref()).map(drop)
    }

    /// How many completions there are; if none, the kernel makes those now that it put off. At most so
    /// many come out of [`Ring::next`].
    #[inline]
    pub(crate) fn look(&mut self, counters: &Counters) -> io::Result<usize> {
        if self.ready() == 0 && self.has_deferred() {
            self.enter(counters, false, None)?;
        }
        Ok(self.ready() + self.at_once.done())
    }

    /// How many completions the kernel has made.
    fn ready(&mut self) -> usize {
        self.reaped.len() + self.completion().len()
    }

    /// The next completion.
    pub(crate) fn next(&mut self) -> Option<Completion> {
        if let Some(completion) = self.reaped.pop_front().or_else(|| self.pop()) {
            return Some(completion);
        }
        // Of one that failed the completion may be among those that overflowed.
        if self.at_once.done() == 0 || self.submission().cq_overflow() {
            return None;
        }
        self.in_flight -= 1;
        self.at_once.next()
    }

    /// Takes the next out of the completion queue.
    fn pop(&mut self) -> Option<Completion> {
        let entry = self.completion().next()?;
        let flags = entry.flags();
        let token = Token::from_user_data(entry.user_data());
        self.at_once.note(entry.user_data(), token);
        self.in_flight -= usize::from(!cqueue::more(flags));
        Some(Completion {
            token,
            result: entry.result(),
            buffer: cqueue::buffer_select(flags),
            buffer_more: cqueue::buffer_more(flags),
            more: cqueue::more(flags),
        })
    }

    /// Has the completion queue take a completion of each of so many requests.
    fn make_room(&mut self, counters: &Counters, batch: usize) {
        let queue = self.completion();
        if queue.capacity() - queue.len() < batch {
            drop(queue);
            counters.reaped_early.add(1);
            while let Some(completion) = self.pop() {
                self.reaped.push_back(completion);
            }
        }
    }

    /// Moves what fits from the backlog to the submission queue.
    fn fill(&mut self) {
        if self.backlog.is_empty() {
            return;
        }
        // SAFETY: as in `submission`; the backlog is another field.
        let mut queue = unsafe { self.uring.as_ref().submission_shared() };
        while let Some(entry) = self.backlog.front() {
            // SAFETY: as in `push`; the promise made there holds until the request completes.
            if unsafe { queue.push(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    /// Enters the kernel with all that is queued, and waits if it is told to and there is nothing to
    /// be told of. False if it took nothing for now: it lacks memory, or wants completions reaped
    /// first, or a signal came. What it didn't take stays queued.
    ///
    /// # Errors
    ///
    /// Those that don't pass: the ring is of no use any more. As its flags were probed, and it is
    /// this thread's, none is known to happen but EBADR: the kernel had no memory for completions
    /// that overflowed, and lost some.
    fn enter(
        &mut self,
        counters: &Counters,
        wait: bool,
        until: Option<&types::Timespec>,
    ) -> io::Result<bool> {
        counters.enters.add(1);
        self.fill();
        let (queued, overflown) = {
            let queue = self.submission();
            (queue.len(), queue.cq_overflow())
        };
        self.make_room(counters, queued);
        // Each enter brings what overflowed back.
        counters.overflows.add(u64::from(overflown));
        if queued > 0 {
            counters.submission_batches.record(queued as u64);
        }
        let mut args = types::SubmitArgs::new();
        if let Some(until) = until {
            args = args.timespec(until);
        }
        let flags = wait_flags(&self.features, until.is_some());
        // Both add GETEVENTS where task work or overflown completions wait.
        let result = match wait && self.reaped.is_empty() {
            true => self.submitter.submit_with_args_and_flags(1, &args, flags),
            false => self.submitter.submit(),
        };
        if self.submission().is_empty() {
            self.at_once.all_taken();
        }
        went(result, counters)
    }
}

/// How to wait: until a time, if there is one, and not as for a disk.
fn wait_flags(features: &Features, timed: bool) -> EnterFlags {
    let mut flags = EnterFlags::empty();
    flags.set(EnterFlags::ABS_TIMER, timed && features.absolute_wait);
    flags.set(EnterFlags::NO_IOWAIT, features.no_iowait);
    flags
}

/// Whether the kernel did as asked. False if something was in the way that passes.
fn went(result: io::Result<usize>, counters: &Counters) -> io::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINTR) => {
                counters.interrupted.add(1);
                Ok(false)
            }
            Some(libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(false),
            _ => Err(error),
        },
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The registration, which is the thread's, would keep the ring open.
        if self.features.registered {
            let _ = self.submitter.unregister_ring_fd();
        }
        // SAFETY: the pointer is from a box. Nothing refers to the ring any more but the
        // submitter, which is not used again.
        drop(unsafe { Box::from_raw(self.uring.as_ptr()) });
    }
}

fn set_up(
    entries: u32,
    completions: u32,
    poll: Option<Duration>,
    no_array: bool,
) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_clamp()
        .setup_cqsize(completions)
        .setup_submit_all()
        .setup_single_issuer();
    match poll {
        // The kernel's thread does the completions' work; it can't be deferred as well.
        Some(idle) => builder.setup_sqpoll(idle.as_millis().clamp(1, u32::MAX.into()) as u32),
        None => builder.setup_defer_taskrun().setup_taskrun_flag(),
    };
    if no_array {
        builder.setup_no_sqarray();
    }
    builder.build(entries)
}

/// Whether of sends that are done at once the kernel tells only if they are not. It says so itself; but
/// as one that forgot to tell of a part would lose bytes, it is tried once.
fn sends_at_once(parameters: &Parameters) -> bool {
    static WORKS: OnceLock<bool> = OnceLock::new();
    parameters.is_feature_skip_cqe_on_success() && is_known(&WORKS, at_once::works)
}

/// Whether it is known, or found out now, that something works. Where that can't be tried, it is not
/// relied on, and tried again by the next who asks.
fn is_known(works: &OnceLock<bool>, attempt: impl FnOnce() -> io::Result<bool>) -> bool {
    let known = works.get().copied().or_else(|| attempt().ok());
    known.is_some_and(|known| *works.get_or_init(|| known))
}

/// Whether a receive may tell of several buffers at once, and tells of them as they are. Kernels
/// before 6.16 may go on after a buffer that is not full, and count it as if it was (6.13.11 to
/// 6.14.8 for certain: axboe/liburing, issues 1409 and 1411). That shows under load only, so that it
/// is not to be found by trying, and the release has to do.
pub(crate) fn has_sound_bundles(parameters: &Parameters) -> bool {
    parameters.is_feature_recvsend_bundle() && is_at_least(&kernel_release(), (6, 16))
}

/// Whether a kernel's release is this one or a later one.
fn is_at_least(release: &str, (major, minor): (u32, u32)) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(has)), Some(Ok(has_minor))) => (has, has_minor) >= (major, minor),
        _ => false,
    }
}

/// WAITALL makes the kernel go on after a short send by itself.
const SEND: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

fn entry(request: Request) -> squeue::Entry {
    use types::Fd;
    match request {
        Request::AcceptMany { fd } => {
            opcode::AcceptMulti::new(Fd(fd)).flags(libc::SOCK_CLOEXEC).build()
        }
        Request::Connect { fd, address, length } => {
            opcode::Connect::new(Fd(fd), address, length).build()
        }
        Request::ReceiveMany { fd, group, bundles: false } => {
            opcode::RecvMulti::new(Fd(fd), group).build()
        }
        Request::ReceiveMany { fd, group, bundles: true } => {
            opcode::RecvMultiBundle::new(Fd(fd), group).build()
        }
        Request::Send { fd, data, length, way: SendWay::ZeroCopy } => {
            opcode::SendZc::new(Fd(fd), data, length).flags(SEND).build()
        }
        Request::Send { fd, data, length, .. } => {
            opcode::Send::new(Fd(fd), data, length).flags(SEND).build()
        }
        Request::SendVector { fd, header, zero_copy: false } => {
            opcode::SendMsg::new(Fd(fd), header).flags(SEND as u32).build()
        }
        Request::SendVector { fd, header, zero_copy: true } => {
            opcode::SendMsgZc::new(Fd(fd), header).flags(SEND as u32).build()
        }
        Request::Read(transfer) => transfer_entry(transfer, false),
        Request::Write(transfer) => transfer_entry(transfer, true),
        Request::Open { path, flags, mode } => {
            opcode::OpenAt::new(Fd(libc::AT_FDCWD), path).flags(flags).mode(mode).build()
        }
        Request::Sync { fd, data_only } => {
            let flags = match data_only {
                true => types::FsyncFlags::DATASYNC,
                false => types::FsyncFlags::empty(),
            };
            opcode::Fsync::new(Fd(fd)).flags(flags).build()
        }
        Request::Allocate { fd, offset, length } => {
            opcode::Fallocate::new(Fd(fd), length).offset(offset).build()
        }
        Request::Status { fd, mask, into } => opcode::Statx::new(Fd(fd), c"".as_ptr(), into.cast())
            .flags(libc::AT_EMPTY_PATH)
            .mask(mask)
            .build(),
        Request::Close { fd } => opcode::Close::new(Fd(fd)).build(),
        Request::Cancel { token } => opcode::AsyncCancel::new(token.to_user_data()).build(),
        Request::CancelAll => opcode::AsyncCancel2::new(types::CancelBuilder::any().all()).build(),
    }
}

fn transfer_entry(transfer: Transfer, write: bool) -> squeue::Entry {
    let Transfer { fd, place, data, length, offset, registered } = transfer;
    // A place among the files registered stands where else a descriptor does; a flag tells which.
    let file = types::Fd(place.map_or(fd, |place| place as i32));
    let entry = match (write, registered) {
        (false, false) => opcode::Read::new(file, data, length).offset(offset).build(),
        (false, true) => opcode::ReadFixed::new(file, data, length, REGION).offset(offset).build(),
        (true, false) => opcode::Write::new(file, data, length).offset(offset).build(),
        (true, true) => opcode::WriteFixed::new(file, data, length, REGION).offset(offset).build(),
    };
    match place {
        Some(_) => entry.flags(squeue::Flags::FIXED_FILE),
        None => entry,
    }
}

#[cfg(test)]
mod tests;
