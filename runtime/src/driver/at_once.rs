//! Sends that are done as they are handed over, of which the kernel tells only if they are not.
//!
//! Most sends find room in their socket. Told of each, a core that has said all and would sleep is
//! woken at once to hear that it was said: one more call of the kernel's for each message. So a
//! send nobody waits for is made not to wait (`MSG_DONTWAIT`), and not to be told of if it went
//! well (`IOSQE_CQE_SKIP_SUCCESS`). When the call that handed it over returns, it is done, or there
//! is a completion that says how much of it is: `MSG_WAITALL` makes a part of it a failure.
//!
//! Whoever sent it hears of it with the next completions, as of any other send. A core that falls
//! asleep as it leaves hears of it when it wakes; what it was sent from is kept anyway.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use io_uring::{IoUring, opcode, squeue, types};
use socket2::SockRef;

use super::{Completion, Token};

/// Set in what the kernel tells of such a send.
const MARK: u64 = 1 << 63;
const FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_DONTWAIT;

/// The request of such a send.
pub(super) fn entry(fd: RawFd, data: *const u8, length: u32, token: Token) -> squeue::Entry {
    opcode::Send::new(types::Fd(fd), data, length)
        .flags(FLAGS)
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS)
        .user_data(token.to_user_data() | MARK)
}

/// Those of which nobody was told yet.
#[derive(Default)]
pub(super) struct AtOnce {
    /// What will be told if all goes well, in the order of the requests.
    sends: VecDeque<Completion>,
    /// How many of them the kernel has taken.
    taken: usize,
}

impl AtOnce {
    pub(super) fn push(&mut self, token: Token, length: u32) {
        // A request's length is below a result's largest.
        let result = length as i32;
        self.sends.push_back(Completion {
            token,
            result,
            buffer: None,
            buffer_more: false,
            more: false,
        });
    }

    /// The kernel has taken all requests.
    pub(super) fn all_taken(&mut self) {
        self.taken = self.sends.len();
    }

    /// Whether everybody was told.
    pub(super) fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    /// Takes note of what the kernel says about one. It does so only if that is not done.
    #[inline]
    pub(super) fn note(&mut self, user_data: u64, token: Token) {
        if user_data & MARK == 0 {
            return;
        }
        if let Some(at) = self.sends.iter().position(|send| send.token == token) {
            self.sends.remove(at);
            self.taken -= usize::from(at < self.taken);
        }
    }

    /// How many are done, if all that the kernel has said was noted.
    pub(super) fn done(&self) -> usize {
        self.taken
    }

    /// Tells of the next of those.
    pub(super) fn next(&mut self) -> Option<Completion> {
        self.taken = self.taken.checked_sub(1)?;
        self.sends.pop_front()
    }
}

/// Whether the kernel tells of such a send if, and only if, it is not done: tried on two pairs of
/// sockets, of which one has not the room.
pub(crate) fn works() -> io::Result<bool> {
    /// The kernel may read it for as long as it likes.
    static BYTES: [u8; 64 << 10] = [0; 64 << 10];
    let mut ring = IoUring::new(2)?;
    let mut send = |length: usize| {
        let (sender, _receiver) = UnixStream::pair()?;
        SockRef::from(&sender).set_send_buffer_size(4096)?;
        let entry = entry(sender.as_raw_fd(), BYTES.as_ptr(), length as u32, Token::NOBODY);
        // SAFETY: what is sent is there for ever, and the socket until the kernel has the request.
        unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
        ring.submit()?;
        io::Result::Ok(ring.completion().map(|told| told.result()).collect::<Vec<i32>>())
    };
    let is_a_part = |result| result > 0 && (result as usize) < BYTES.len();
    Ok(send(1)?.is_empty() && matches!(send(BYTES.len())?[..], [told] if is_a_part(told)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::driver::Kind;

    fn told(at_once: &mut AtOnce) -> Vec<(u32, i32)> {
        std::iter::from_fn(|| at_once.next())
            .map(|completion| (completion.token.index, completion.result))
            .collect()
    }

    fn pushed(count: usize) -> AtOnce {
        let mut at_once = AtOnce::default();
        (0..count).for_each(|index| at_once.push(Token::new(Kind::Send, index), 10 + index as u32));
        at_once
    }

    #[test]
    fn what_the_kernel_has_not_taken_is_not_told_of() {
        let mut at_once = pushed(2);
        assert_eq!(told(&mut at_once), []);
        at_once.all_taken();
        at_once.push(Token::new(Kind::Send, 2), 12);
        assert_eq!(told(&mut at_once), [(0, 10), (1, 11)]);
        assert!(!at_once.is_empty());
        at_once.all_taken();
        assert_eq!(told(&mut at_once), [(2, 12)]);
        assert!(at_once.is_empty());
    }

    #[test]
    fn what_the_kernel_itself_tells_of_is_told_once() {
        let mut at_once = pushed(2);
        at_once.all_taken();
        at_once.push(Token::new(Kind::Send, 2), 12);
        let token = Token::new(Kind::Send, 1);
        at_once.note(token.to_user_data(), token);
        assert!(at_once.sends.len() == 3, "that was another send of the same connection");
        at_once.note(token.to_user_data() | MARK, token);
        let untaken = Token::new(Kind::Send, 2);
        at_once.note(untaken.to_user_data() | MARK, untaken);
        assert_eq!(told(&mut at_once), [(0, 10)]);
    }
}
