//! Sends that are done as they are handed over, of which the kernel tells only if they are not.
//!
//! Most sends find room in their socket. Told of each, a core that has said all and would sleep is
//! woken at once to hear that it was said: one more call of the kernel's for each message. So a
//! send nobody waits for is made not to wait (`MSG_DONTWAIT`), and not to be told of if it went
//! well (`IOSQE_CQE_SKIP_SUCCESS`). When the call that handed it over returns, it is done, or there
//! is a completion that says how much of it is: `MSG_WAITALL` makes a part of it a failure.
//!
//! Whoever sent it hears of it with the next completions, as of any other send.

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
    sends: Vec<Completion>,
    /// How many of them the kernel has taken.
    taken: usize,
}

impl AtOnce {
    pub(super) fn push(&mut self, token: Token, length: u32) {
        // A request's length is below a result's largest.
        let result = length as i32;
        self.sends.push(Completion {
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

    /// Whether some are done, or have failed, and nobody was told.
    pub(super) fn is_any_taken(&self) -> bool {
        self.taken > 0
    }

    /// Takes note of what the kernel says about one. It does so only if that is not done.
    pub(super) fn note(&mut self, user_data: u64, token: Token) {
        if user_data & MARK == 0 {
            return;
        }
        if let Some(at) = self.sends.iter().position(|send| send.token == token) {
            self.sends.remove(at);
            self.taken -= usize::from(at < self.taken);
        }
    }

    /// Tells of those that are done. All that the kernel has said was noted before.
    pub(super) fn tell(&mut self, into: &mut impl Extend<Completion>) {
        into.extend(self.sends.drain(..std::mem::take(&mut self.taken)));
    }
}

/// Whether the kernel tells of such a send if, and only if, it is not done: tried on two pairs of
/// sockets, one of which has not the room. The ring is at rest, and will be.
pub(crate) fn works(ring: &mut IoUring) -> bool {
    /// The kernel may read it for as long as it likes.
    static BYTES: [u8; 64 << 10] = [0; 64 << 10];
    let send = |ring: &mut IoUring, length: usize| {
        let (sender, receiver) = UnixStream::pair().ok()?;
        SockRef::from(&sender).set_send_buffer_size(4096).ok()?;
        let entry = entry(sender.as_raw_fd(), BYTES.as_ptr(), length as u32, Token::NOBODY);
        // SAFETY: what is sent is there for ever, and the kernel holds the socket itself.
        unsafe { ring.submission().push(&entry) }.ok()?;
        ring.submit().ok()?;
        drop(receiver);
        Some(ring.completion().map(|completion| completion.result()).collect::<Vec<i32>>())
    };
    let whole = send(ring, 1);
    let part = send(ring, BYTES.len());
    let is_a_part = |&result: &i32| result > 0 && (result as usize) < BYTES.len();
    whole.is_some_and(|told| told.is_empty())
        && part.is_some_and(|told| told.len() == 1 && told.iter().all(is_a_part))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::driver::Kind;

    fn told(at_once: &mut AtOnce) -> Vec<(u32, i32)> {
        let mut told = Vec::new();
        at_once.tell(&mut told);
        told.iter()
            .map(|completion: &Completion| (completion.token.index, completion.result))
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
        assert!(!at_once.is_any_taken());
        at_once.all_taken();
        assert_eq!(told(&mut at_once), [(2, 12)]);
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
