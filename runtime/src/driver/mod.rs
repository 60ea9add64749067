//! What the runtime asks of the kernel, and what it hears back.
//!
//! A [`Request`] goes in with a [`Token`]; one or more [`Completion`]s come out with the same one,
//! of which the last has `more` unset. Whatever memory or descriptor a request names must live
//! until then: that is the one contract that everything above keeps, each in its own way.

pub(crate) mod at_once;
pub(crate) mod message;
pub(crate) mod provided;
pub(crate) mod ring;
#[cfg(feature = "simulated-driver")]
pub(crate) mod sim;
pub(crate) mod switch;

use std::os::fd::RawFd;

/// Something for the kernel to do.
///
/// Requests hold raw pointers, as it is for their maker to know how long memory lives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// Accept connections until cancelled. Each completion's result is a descriptor.
    AcceptMany {
        fd: RawFd,
    },
    /// The result is zero.
    Connect {
        fd: RawFd,
        address: *const libc::sockaddr,
        length: libc::socklen_t,
    },
    /// Receive into provided buffers until cancelled, at the end, or out of buffers.
    ReceiveMany {
        fd: RawFd,
        group: u16,
        /// One completion may tell of several buffers.
        bundles: bool,
    },
    /// The result is how many bytes were taken.
    Send {
        fd: RawFd,
        data: *const u8,
        length: u32,
        way: SendWay,
    },
    /// Send bytes that lie in several places.
    ///
    /// This, and the former, may be told not to copy. Then, if it begins to send at all, its result
    /// is not its last completion: that follows when the kernel needs the memory no more.
    SendVector {
        fd: RawFd,
        header: *const libc::msghdr,
        zero_copy: bool,
    },
    Read(Transfer),
    /// Nothing is written to the memory.
    Write(Transfer),
    /// Relative to the working directory. The result is a descriptor.
    Open {
        path: *const libc::c_char,
        flags: i32,
        mode: u32,
    },
    /// Have what was written kept on the device: the data, and what is needed to find it, or
    /// times and such too.
    Sync {
        fd: RawFd,
        data_only: bool,
    },
    /// Set memory of the device aside for a part of a file: offset and length are in bytes.
    Allocate {
        fd: RawFd,
        offset: u64,
        length: u64,
    },
    /// What a file is, written to `into`.
    Status {
        fd: RawFd,
        mask: u32,
        into: *mut libc::statx,
    },
    /// Close a descriptor, which is the request's own.
    Close {
        fd: RawFd,
    },
    /// Cancel the request that has this token, if it still runs.
    Cancel {
        token: Token,
    },
    /// Cancel all that runs.
    CancelAll,
}

impl Request {
    /// Whether it is a send that does not copy.
    pub(crate) fn is_zero_copy(&self) -> bool {
        matches!(
            self,
            Request::Send { way: SendWay::ZeroCopy, .. }
                | Request::SendVector { zero_copy: true, .. }
        )
    }
}

/// How bytes are sent that lie together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SendWay {
    /// When there is room.
    Patient,
    /// As the request is handed over: all, or what there is room for, maybe nothing (`EAGAIN`).
    /// That all was sent ends no wait, and is told with the next completions.
    AtOnce,
    /// When there is room, and without a copy.
    ZeroCopy,
}

/// Bytes to be moved between a file and memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) fd: RawFd,
    /// The file's place among those registered, which spares a lookup.
    pub(crate) place: Option<u32>,
    pub(crate) data: *mut u8,
    pub(crate) length: u32,
    pub(crate) offset: u64,
    /// The memory is in the region registered, which spares having its pages pinned.
    pub(crate) registered: bool,
}

/// Who is to hear of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) index: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Nobody.
    Nobody = 0,
    /// The core itself: another thread wants it.
    Wake = 1,
    /// A connection's receive.
    Receive = 2,
    /// A connection's send.
    Send = 3,
    /// A listener's accept.
    Accept = 4,
    /// An operation's slot.
    Operation = 5,
}

impl Token {
    pub(crate) const NOBODY: Token = Token { kind: Kind::Nobody, index: 0 };
    pub(crate) const WAKE: Token = Token { kind: Kind::Wake, index: 0 };

    pub(crate) fn new(kind: Kind, index: usize) -> Token {
        Token { kind, index: index as u32 }
    }

    pub(crate) fn to_user_data(self) -> u64 {
        (self.kind as u64) << 32 | u64::from(self.index)
    }

    fn from_user_data(data: u64) -> Token {
        let kind = match (data >> 32) as u8 {
            1 => Kind::Wake,
            2 => Kind::Receive,
            3 => Kind::Send,
            4 => Kind::Accept,
            5 => Kind::Operation,
            _ => Kind::Nobody,
        };
        Token { kind, index: data as u32 }
    }
}

/// What became of a request, or of a part of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) token: Token,
    /// What the system call would return, or minus the error's number.
    pub(crate) result: i32,
    /// The provided buffer that was filled, or a part of it; in a bundle, the first of them.
    pub(crate) buffer: Option<u16>,
    /// The kernel goes on to fill the rest of that buffer.
    pub(crate) buffer_more: bool,
    /// More completions of the request will come.
    pub(crate) more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        for kind in
            [Kind::Nobody, Kind::Wake, Kind::Receive, Kind::Send, Kind::Accept, Kind::Operation]
        {
            for index in [0, 1, u32::MAX as usize] {
                let token = Token::new(kind, index);
                assert_eq!(Token::from_user_data(token.to_user_data()), token);
            }
        }
    }
}
