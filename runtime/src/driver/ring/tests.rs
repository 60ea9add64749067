//! What is really asked of the kernel, beside what the probe says is used.

use crate::error::Error;
use std::{iter, ptr};

use super::*;
use crate::probe::probe;
use crate::{Answer, Use};

fn ring() -> Ring {
    Ring::new(8, 16, None).unwrap()
}

#[test]
fn a_ring_uses_what_the_probe_says_is_used() {
    let report = probe().unwrap();
    let polled =
        Ring::new(8, 16, Some(Duration::from_millis(1))).map(|ring| ring.features().polled);
    let Features {
        no_array, registered, absolute_wait, no_iowait, bundles, messages, at_once, ..
    } = ring().features();
    for (name, used) in [
        ("NO_SQARRAY", no_array),
        ("registered ring descriptor", registered),
        ("ABS_TIMER", absolute_wait),
        ("NO_IOWAIT", no_iowait),
        ("RECVSEND_BUNDLE", bundles),
        ("SEND_MSG_RING", messages),
        ("SEND, CQE_SKIP_SUCCESS", at_once),
        ("SQPOLL", polled.unwrap_or(false)),
    ] {
        let row = report.features.iter().find(|row| row.name == name).expect(name);
        assert!(matches!(row.used, Use::WhereItWorks | Use::OnDemand), "{name}");
        assert_eq!(used, row.answer == Answer::Works, "{name}");
    }
}

#[test]
fn a_ring_is_one_threads_and_as_large_as_asked() {
    let ring = ring();
    // SAFETY: the ring lives until the end of the test.
    let parameters = unsafe { ring.uring.as_ref() }.params();
    assert!(parameters.is_setup_single_issuer() && !parameters.is_setup_sqpoll());
    assert_eq!((parameters.sq_entries(), parameters.cq_entries()), (8, 16));
    // What is more than the kernel has is made less.
    let huge = Ring::new(u32::MAX, u32::MAX, None);
    assert!(matches!(huge, Ok(_) | Err(Error::Memory { .. })), "{:?}", huge.err());
}

#[test]
fn a_completion_is_made_when_the_ring_asks_for_it_and_told_of_before() {
    let mut ring = ring();
    let counters = Counters::default();
    // SAFETY: no memory is passed, and the descriptor is nobody else's.
    let event = crate::operation::own(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) });
    let mut count = 0_u64;
    let read = Transfer {
        fd: event.as_raw_fd(),
        place: None,
        data: (&raw mut count).cast(),
        length: 8,
        offset: 0,
        registered: false,
    };
    // SAFETY: the read ends before the test does, which would else fail below and abort.
    unsafe { ring.push(Request::Read(read), Token::WAKE) };
    ring.submit(&counters).unwrap();
    // A message of its own, by which it tried whether there are any.
    ring.look(&counters).unwrap();
    assert!(iter::from_fn(|| ring.next()).all(|told| told.token == Token::NOBODY));
    let one = 1_u64;
    // SAFETY: eight bytes are read from the number.
    unsafe { libc::write(event.as_raw_fd(), (&raw const one).cast(), 8) };
    // Each call into the kernel would have it make the completion at once.
    std::thread::yield_now();
    assert!(ring.completion().is_empty(), "it broke into what the thread was at");
    assert!(ring.submission().taskrun(), "nobody would know that there is one");
    assert_eq!(ring.look(&counters).unwrap(), 1);
    assert_eq!(ring.next().map(|told| told.result), Some(8));
    assert!(ring.next().is_none());
}

#[test]
fn a_request_that_makes_no_sense_keeps_none_behind_it_from_leaving() {
    let mut ring = ring();
    let counters = Counters::default();
    let nowhere = ptr::without_provenance(1);
    // SAFETY: nothing lies where the first points to, as the kernel finds out. The second points to
    // nothing.
    unsafe {
        ring.push(Request::Open { path: nowhere, flags: 0, mode: 0 }, Token::NOBODY);
        ring.push(Request::CancelAll, Token::NOBODY);
    }
    ring.submit(&counters).unwrap();
    assert_eq!(counters.enters.get(), 1, "the kernel stopped at the first");
}

#[test]
fn waits_end_at_a_time_and_are_not_for_a_disk_where_the_kernel_can() {
    let (old, new) = (
        Features::default(),
        Features { absolute_wait: true, no_iowait: true, ..Features::default() },
    );
    assert_eq!(wait_flags(&old, true), EnterFlags::empty());
    assert_eq!(wait_flags(&new, false), EnterFlags::NO_IOWAIT);
    assert_eq!(wait_flags(&new, true), EnterFlags::NO_IOWAIT | EnterFlags::ABS_TIMER);
}

/// The operation that is asked of the kernel, and its flags.
fn asked(request: Request) -> (u8, u8) {
    let said = format!("{:?}", entry(request));
    let field = |name: &str| {
        let (_, rest) = said.split_once(name).expect("a field");
        rest.split([',', ' ', '}']).next().and_then(|number| number.parse().ok()).expect("a number")
    };
    (field("op_code: "), field("flags: "))
}

/// A request of each kind, with what is to be asked of the kernel: operation and flags.
fn requests() -> Vec<(Request, u8, u8)> {
    let transfer = |place, registered| Transfer {
        fd: 3,
        place,
        data: ptr::null_mut(),
        length: 8,
        offset: 0,
        registered,
    };
    let send = |way| Request::Send { fd: 3, data: ptr::null(), length: 8, way };
    let vector = |zero_copy| Request::SendVector { fd: 3, header: ptr::null(), zero_copy };
    let fixed = squeue::Flags::FIXED_FILE.bits();
    let select = squeue::Flags::BUFFER_SELECT.bits();
    let receive = |bundles| Request::ReceiveMany { fd: 3, group: 1, bundles };
    let status = Request::Status { fd: 3, mask: 0, into: ptr::null_mut() };
    vec![
        (Request::AcceptMany { fd: 3 }, opcode::Accept::CODE, 0),
        (Request::Connect { fd: 3, address: ptr::null(), length: 0 }, opcode::Connect::CODE, 0),
        (Request::Open { path: ptr::null(), flags: 0, mode: 0 }, opcode::OpenAt::CODE, 0),
        (receive(false), opcode::Recv::CODE, select),
        (receive(true), opcode::Recv::CODE, select),
        (send(SendWay::Patient), opcode::Send::CODE, 0),
        (send(SendWay::ZeroCopy), opcode::SendZc::CODE, 0),
        (vector(false), opcode::SendMsg::CODE, 0),
        (vector(true), opcode::SendMsgZc::CODE, 0),
        (Request::Read(transfer(None, false)), opcode::Read::CODE, 0),
        (Request::Read(transfer(Some(2), false)), opcode::Read::CODE, fixed),
        (Request::Read(transfer(None, true)), opcode::ReadFixed::CODE, 0),
        (Request::Read(transfer(Some(2), true)), opcode::ReadFixed::CODE, fixed),
        (Request::Write(transfer(None, false)), opcode::Write::CODE, 0),
        (Request::Write(transfer(Some(2), true)), opcode::WriteFixed::CODE, fixed),
        (Request::Sync { fd: 3, data_only: true }, opcode::Fsync::CODE, 0),
        (Request::Allocate { fd: 3, offset: 0, length: 8 }, opcode::Fallocate::CODE, 0),
        (status, opcode::Statx::CODE, 0),
        (Request::Close { fd: 3 }, opcode::Close::CODE, 0),
        (Request::Cancel { token: Token::WAKE }, opcode::AsyncCancel::CODE, 0),
        (Request::CancelAll, opcode::AsyncCancel::CODE, 0),
    ]
}

/// The row of the probe's that tries what a request asks for: a request of a new kind needs one.
fn row_of(request: &Request) -> &'static str {
    match request {
        Request::AcceptMany { .. } => "ACCEPT, multishot",
        Request::Connect { .. } => "CONNECT",
        Request::ReceiveMany { bundles: false, .. } => "RECV, multishot",
        Request::ReceiveMany { bundles: true, .. } => "RECVSEND_BUNDLE",
        Request::Send { way: SendWay::Patient, .. } => "SEND",
        Request::Send { way: SendWay::AtOnce, .. } => "SEND, CQE_SKIP_SUCCESS",
        Request::Send { way: SendWay::ZeroCopy, .. } => "SEND_ZC",
        Request::SendVector { zero_copy: false, .. } => "SENDMSG",
        Request::SendVector { zero_copy: true, .. } => "SENDMSG_ZC",
        Request::Read(Transfer { registered: false, .. }) => "READ",
        Request::Read(Transfer { registered: true, .. }) => "READ_FIXED, fixed buffers",
        Request::Write(Transfer { registered: false, .. }) => "WRITE",
        Request::Write(Transfer { registered: true, .. }) => "WRITE_FIXED, fixed buffers",
        Request::Open { .. } => "OPENAT",
        Request::Sync { .. } => "FSYNC",
        Request::Allocate { .. } => "FALLOCATE",
        Request::Status { .. } => "STATX",
        Request::Close { .. } => "CLOSE",
        Request::Cancel { .. } => "ASYNC_CANCEL, of one",
        Request::CancelAll => "ASYNC_CANCEL, by kind",
    }
}

#[test]
fn each_request_is_the_operation_that_it_says() {
    for (request, code, flags) in requests() {
        assert_eq!(asked(request), (code, flags), "{request:?}");
    }
    let at_once = format!("{:?}", at_once::entry(3, ptr::null(), 8, Token::WAKE));
    let skip = squeue::Flags::SKIP_SUCCESS.bits();
    assert!(at_once.contains(&format!("flags: {skip}")), "{at_once}");
}

#[test]
fn each_request_is_one_that_the_probe_has_tried() {
    let report = probe().unwrap();
    for (request, ..) in requests() {
        let name = row_of(&request);
        let tried = report.features.iter().filter(|row| row.name == name).count();
        assert_eq!(tried, 1, "{name}, for {request:?}");
    }
}

#[test]
fn what_could_not_be_tried_is_not_relied_on_and_tried_again() {
    let works = OnceLock::new();
    assert!(!is_known(&works, || Err(io::ErrorKind::OutOfMemory.into())));
    assert!(is_known(&works, || Ok(true)));
    assert!(is_known(&works, || panic!("it is known")));
    assert!(!is_known(&OnceLock::new(), || Ok(false)));
}

#[test]
fn releases_are_compared_by_their_numbers() {
    for (release, sound) in [
        ("6.18.44-fc-v669", true),
        ("6.16", true),
        ("7.0.0-rc1", true),
        ("6.14.7-arch1", false),
        ("6.9.12", false),
        ("5.19.0", false),
        ("unknown", false),
    ] {
        assert_eq!(is_at_least(release, (6, 16)), sound, "{release}");
    }
}
