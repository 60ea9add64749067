//! What rings can do here: flags of their set-up, what can be registered with them, how they wait,
//! and the operations that the runtime does not use, or not always.

use std::alloc::Layout;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use io_uring::types::{Fd, Napi, SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, cqueue, opcode, squeue};

use super::Use::{Never, OnDemand, Required, WhereItWorks};
use super::{Answer, Feature, receive, row};
use crate::driver::provided::{GROUP, LARGEST_PAGE};
use crate::driver::ring::has_sound_bundles;
use crate::driver::switch::INCREMENTAL;
use crate::driver::{Token, at_once, message};
use crate::operation::own;

/// How long a completion is waited for, or a byte, in seconds.
const LIMIT: u64 = 5;
/// Marks the completions that are waited for.
const MARK: u64 = 7;

pub(super) fn features() -> Vec<Feature> {
    let mut features = set_up();
    match trial_ring() {
        Ok(ring) => {
            features.extend(waits(&ring));
            features.extend(registrations(ring));
        }
        Err(error) => {
            features.push(row("a ring", "5.1", Answer::of::<()>(Err(error)), Required, ""))
        }
    }
    features.extend(operations());
    features
}

/// A ring as the runtime's is.
fn trial_ring() -> io::Result<IoUring> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(8)
}

fn set_up() -> Vec<Feature> {
    let with = |flag: fn(&mut Builder) -> &mut Builder| {
        let mut builder = IoUring::builder();
        Answer::of(flag(&mut builder).build(8))
    };
    let none = "nothing: required";
    vec![
        row("CQSIZE", "5.5", with(|ring| ring.setup_cqsize(64)), Required, none),
        row("SUBMIT_ALL", "5.18", with(|ring| ring.setup_submit_all()), Required, none),
        row("SINGLE_ISSUER", "6.0", with(|ring| ring.setup_single_issuer()), Required, none),
        row(
            "DEFER_TASKRUN",
            "6.1",
            with(|ring| ring.setup_single_issuer().setup_defer_taskrun()),
            Required,
            none,
        ),
        row(
            "TASKRUN_FLAG",
            "5.19",
            with(|ring| ring.setup_coop_taskrun().setup_taskrun_flag()),
            Required,
            none,
        ),
        row(
            "COOP_TASKRUN",
            "5.19",
            with(|ring| ring.setup_coop_taskrun()),
            Never,
            "DEFER_TASKRUN goes further",
        ),
        row(
            "NO_SQARRAY",
            "6.6",
            with(|ring| ring.setup_no_sqarray()),
            WhereItWorks,
            "an array of indices",
        ),
        row(
            "SQPOLL",
            "5.11",
            with(|ring| ring.setup_single_issuer().setup_sqpoll(10)),
            OnDemand,
            "the core's own thread submits",
        ),
    ]
}

fn waits(ring: &IoUring) -> Vec<Feature> {
    let parameters = ring.params();
    let wait = |flags| {
        // A time long ago, if it is taken for one; else a wait of a nanosecond.
        let until = Timespec::new().nsec(1);
        let args = SubmitArgs::new().timespec(&until);
        match ring.submitter().submit_with_args_and_flags(1, &args, flags) {
            Err(error) if error.raw_os_error() == Some(libc::ETIME) => Answer::Works,
            other => Answer::of(other),
        }
    };
    let ext_arg = match parameters.is_feature_ext_arg() {
        true => wait(EnterFlags::empty()),
        false => Answer::told(false),
    };
    let none = "nothing: required";
    vec![
        row("EXT_ARG, timed wait", "5.11", ext_arg, Required, none),
        row("NODROP", "5.5", Answer::told(parameters.is_feature_nodrop()), Required, none),
        row("ABS_TIMER", "6.12", wait(EnterFlags::ABS_TIMER), WhereItWorks, "a relative wait"),
        row(
            "NO_IOWAIT",
            "6.15",
            wait(EnterFlags::NO_IOWAIT),
            WhereItWorks,
            "waits count as iowait",
        ),
    ]
}

fn registrations(ring: IoUring) -> Vec<Feature> {
    let mut submitter = ring.submitter();
    let ring_descriptor = submitter.register_ring_fd();
    if ring_descriptor.is_ok() {
        // The registration, which is the thread's, would keep the ring open.
        let _ = submitter.unregister_ring_fd();
    }
    let mut napi = Napi::new();
    let busy_poll = submitter.register_napi(&mut napi);
    if busy_poll.is_ok() {
        let _ = submitter.unregister_napi(&mut napi);
    }
    let incremental = match buffer_ring(&ring, INCREMENTAL) {
        Answer::Works => receive::piece_by_piece(),
        refused => refused,
    };
    let bundles = match has_sound_bundles(ring.params()) {
        true => receive::in_bundles(),
        false => Answer::told(false),
    };
    vec![
        row(
            "registered ring descriptor",
            "5.18",
            Answer::of(ring_descriptor),
            WhereItWorks,
            "a lookup per call",
        ),
        row("PBUF_RING", "5.19", buffer_ring(&ring, 0), Required, "nothing: required"),
        row("PBUF_RING, incremental", "6.12", incremental, OnDemand, "a buffer per receive"),
        row("RECVSEND_BUNDLE", "6.16", bundles, OnDemand, "a completion per buffer"),
        row("NAPI busy poll", "6.9", Answer::of(busy_poll), OnDemand, "interrupts"),
    ]
}

/// Whether a ring of provided buffers can be registered.
fn buffer_ring(ring: &IoUring, flags: u16) -> Answer {
    const LAYOUT: Layout = match Layout::from_size_align(LARGEST_PAGE, LARGEST_PAGE) {
        Ok(layout) => layout,
        Err(_) => panic!("a page is a power of two"),
    };
    // SAFETY: the layout is not of size zero.
    let Some(memory) = NonNull::new(unsafe { std::alloc::alloc_zeroed(LAYOUT) }) else {
        return Answer::Refused(libc::ENOMEM);
    };
    let address = memory.as_ptr() as u64;
    // SAFETY: two entries fit into the memory, which is freed after the ring has been unregistered,
    // or else never.
    let registered =
        unsafe { ring.submitter().register_buf_ring_with_flags(address, 2, GROUP, flags) };
    if registered.is_err() || ring.submitter().unregister_buf_ring(GROUP).is_ok() {
        // SAFETY: it was allocated with this layout, and the kernel doesn't have it.
        unsafe { std::alloc::dealloc(memory.as_ptr(), LAYOUT) };
    }
    Answer::of(registered)
}

fn operations() -> Vec<Feature> {
    let nop = trial_ring().and_then(|ring| completes(ring, opcode::Nop::new().build()));
    let none = "nothing: required";
    vec![
        row("NOP", "5.1", Answer::of(nop), Required, none),
        row("READ, of an event", "5.6", Answer::of(reads_an_event()), Required, none),
        row("ASYNC_CANCEL, of one", "5.5", Answer::of(cancels_one()), Required, none),
        row("ASYNC_CANCEL, by kind", "5.19", Answer::of(cancels()), Required, none),
        row("MSG_RING", "5.18", Answer::of(messages()), Never, "SEND_MSG_RING waits for no batch"),
        row(
            "SEND_MSG_RING",
            "6.13",
            Answer::of(messages_without_ring()),
            WhereItWorks,
            "an eventfd wakes other cores",
        ),
        row(
            "SEND, CQE_SKIP_SUCCESS",
            "5.17",
            at_once::works().map_or_else(|error| Answer::of::<()>(Err(error)), Answer::told),
            WhereItWorks,
            "a completion per send",
        ),
        row("SEND_ZC", "6.0", Answer::of(sends_without_copy()), OnDemand, "SEND, which copies"),
    ]
}

/// Has a ring do one operation, which points to nothing.
fn completes(ring: IoUring, entry: squeue::Entry) -> io::Result<i32> {
    let mut ring = ring;
    // SAFETY: the entry points to no memory.
    unsafe { push(&mut ring, entry)? };
    next(&mut ring).and_then(|(result, _)| check(result))
}

/// # Safety
///
/// What the entry points to is valid until its last completion, or for ever.
unsafe fn push(ring: &mut IoUring, entry: squeue::Entry) -> io::Result<()> {
    // SAFETY: passed on to the caller.
    unsafe { ring.submission().push(&entry.user_data(MARK)) }.map_err(io::Error::other)
}

/// The result and the flags of the next completion.
fn next(ring: &mut IoUring) -> io::Result<(i32, u32)> {
    let limit = Timespec::new().sec(LIMIT);
    let args = SubmitArgs::new().timespec(&limit);
    if ring.completion().is_empty() {
        ring.submitter().submit_with_args(1, &args)?;
    }
    let completion = ring.completion().next().ok_or(io::ErrorKind::TimedOut)?;
    Ok((completion.result(), completion.flags()))
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// A ring with a read of an event that has not happened, and the event.
fn waiting_read() -> io::Result<(IoUring, OwnedFd)> {
    /// What is read goes here, where nobody looks.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // SAFETY: no memory is passed.
    let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if event < 0 {
        return Err(io::Error::last_os_error());
    }
    let event = own(event);
    let mut ring = trial_ring()?;
    let entry = opcode::Read::new(Fd(event.as_raw_fd()), COUNT.as_ptr().cast(), 8).build();
    // SAFETY: the memory is there for ever.
    unsafe { push(&mut ring, entry)? };
    ring.submit()?;
    Ok((ring, event))
}

/// The kernel did something, but not what it was asked.
const NOT_SO: io::ErrorKind = io::ErrorKind::InvalidData;

/// Has the kernel tell of an event.
fn reads_an_event() -> io::Result<()> {
    let (mut ring, event) = waiting_read()?;
    fs::File::from(event).write_all(&1_u64.to_ne_bytes())?;
    let (result, _) = next(&mut ring)?;
    if check(result)? == 8 { Ok(()) } else { Err(NOT_SO.into()) }
}

/// Cancels a read by its name, as who waits for it no more does.
fn cancels_one() -> io::Result<()> {
    let (mut ring, _event) = waiting_read()?;
    // SAFETY: the entry points to no memory.
    unsafe { push(&mut ring, opcode::AsyncCancel::new(MARK).build())? };
    let mut results = [next(&mut ring)?.0, next(&mut ring)?.0];
    results.sort_unstable();
    match results {
        [read, 0] if read == -libc::ECANCELED => Ok(()),
        [refused, _] if refused != -libc::ECANCELED => check(refused).and(Err(NOT_SO.into())),
        _ => Err(NOT_SO.into()),
    }
}

/// Cancels everything where there is nothing.
fn cancels() -> io::Result<i32> {
    let all = io_uring::types::CancelBuilder::any().all();
    completes(trial_ring()?, opcode::AsyncCancel2::new(all).build())
}

/// Has one ring post a completion to another.
fn messages() -> io::Result<i32> {
    let mut other = trial_ring()?;
    let message = opcode::MsgRingData::new(Fd(other.as_raw_fd()), 5, MARK, None);
    completes(trial_ring()?, message.build())?;
    let (result, _) = next(&mut other)?;
    if result == 5 { Ok(0) } else { Err(NOT_SO.into()) }
}

/// Has the kernel post a completion to a ring whose thread waits for it.
fn messages_without_ring() -> io::Result<()> {
    let mut ring = trial_ring()?;
    message::post(ring.as_raw_fd(), Token::WAKE)?;
    next(&mut ring).map(drop)
}

/// Sends a byte over loopback without a copy, as far as the kernel goes with that.
fn sends_without_copy() -> io::Result<i32> {
    /// The kernel reads it until it says that it has done so.
    static BYTE: [u8; 1] = *b"!";
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    receiver.set_read_timeout(Some(Duration::from_secs(LIMIT)))?;
    let mut ring = trial_ring()?;
    let entry = opcode::SendZc::new(Fd(sender.as_raw_fd()), BYTE.as_ptr(), 1).build();
    // SAFETY: what is sent is there for ever.
    unsafe { push(&mut ring, entry)? };
    let (result, flags) = next(&mut ring)?;
    check(result)?;
    let mut byte = [0];
    receiver.read_exact(&mut byte)?;
    if cqueue::more(flags) {
        next(&mut ring)?;
    }
    Ok(0)
}
