//! Messages to a ring from any thread, with a ring or without.

use std::io;
use std::os::fd::RawFd;

use io_uring::types::Fd;
use io_uring::{opcode, squeue};

use super::Token;

/// Has the kernel do a MSG_RING request at once, on behalf of the thread (6.13).
const REGISTER_SEND_MSG_RING: libc::c_uint = 31;
const _: () = assert!(size_of::<squeue::Entry>() == 64, "as large as the kernel's struct");
/// The message is not the last completion of the token: no request ends with it.
const MORE: u32 = 1 << 1;

/// Posts a completion to a ring, of which `more` is set and the result zero. If its thread waits it
/// is woken.
///
/// # Errors
///
/// The kernel can't do this, the descriptor is no ring's, or there is no memory.
pub(crate) fn post(ring: RawFd, token: Token) -> io::Result<()> {
    let message = opcode::MsgRingData::new(Fd(ring), 0, token.to_user_data(), Some(MORE)).build();
    // SAFETY: the entry, which is laid out as the kernel's struct is, is read during the call, and
    // points to no memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            -1,
            REGISTER_SEND_MSG_RING,
            &raw const message,
            1,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
