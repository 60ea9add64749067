//! One transfer between a file and a buffer, from its first request to its last.
//!
//! The kernel may move less than it was asked to, or ask to be asked again. [`Progress`] decides
//! what then happens, and knows nothing of the kernel; [`Transfer`] makes the requests.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::File;
use crate::buffer::Buffer;
use crate::driver::{self, Request};
use crate::operation::{Kept, Operation};

/// So often in a row the kernel may put a request off (EAGAIN, EINTR); after each, a turn of the
/// loop passes. Then whoever asked hears of it: a file that is never ready must not keep the core
/// busy for ever.
const MOST_TRIES: u32 = 100;
/// The kernel moves no more than 2 GiB less a page at once.
const MOST_AT_ONCE: usize = 1 << 30;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// How much is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Amount {
    /// As much as the kernel moves at once.
    Some,
    /// The whole buffer.
    Whole,
}

/// What to do after a request.
#[derive(Debug)]
enum Next {
    Done(io::Result<usize>),
    /// Ask for the rest.
    Rest,
    /// Ask for the same in the next turn.
    SameLater,
}

/// How far a transfer has come.
#[derive(Debug)]
struct Progress {
    length: usize,
    done: usize,
    /// Where the next request starts. Direct I/O can't start within a block, so that after a short
    /// transfer a part of what is done is done again.
    start: usize,
    /// What starts are multiples of.
    step: usize,
    amount: Amount,
    direction: Direction,
    tries: u32,
}

impl Progress {
    fn judge(&mut self, result: io::Result<u32>) -> Next {
        let moved = match result {
            Ok(moved) => moved as usize,
            Err(error) if may_try_again(&error, &mut self.tries) => return Next::SameLater,
            Err(error) => return Next::Done(Err(error)),
        };
        self.tries = 0;
        let reached = self.start + moved;
        // Nothing new: the file ends here, or the device is full.
        let stuck = reached <= self.done;
        self.done = self.done.max(reached);
        if self.done == self.length || self.amount == Amount::Some {
            return Next::Done(Ok(self.done));
        }
        if stuck {
            return Next::Done(Err(match self.direction {
                Direction::Read => io::ErrorKind::UnexpectedEof.into(),
                Direction::Write => io::ErrorKind::WriteZero.into(),
            }));
        }
        self.start = self.done - self.done % self.step;
        Next::Rest
    }
}

/// Whether the same request may well succeed in the next turn: the kernel put it off, and not too
/// often in a row, which this counts.
pub(super) fn may_try_again(error: &io::Error, tries: &mut u32) -> bool {
    let passes = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
    *tries += u32::from(passes);
    passes && *tries <= MOST_TRIES
}

/// A transfer under way. Dropped before its end, it is cancelled, and its buffer stays with the
/// runtime until the kernel has let go.
pub(crate) struct Transfer {
    file: File,
    offset: u64,
    progress: Progress,
    state: State,
}

enum State {
    /// The next request is to be made of this buffer.
    Ready(Buffer),
    Running(Operation),
    Ended,
}

impl Transfer {
    pub(crate) fn new(
        file: &File,
        buffer: Buffer,
        offset: u64,
        direction: Direction,
        amount: Amount,
    ) -> Transfer {
        let progress = Progress {
            length: buffer.len(),
            done: 0,
            start: 0,
            step: file.descriptor.step(),
            amount,
            direction,
            tries: 0,
        };
        Transfer { file: file.clone(), offset, progress, state: State::Ready(buffer) }
    }

    /// Queues the next request, if one is to be made.
    pub(crate) fn start(&mut self) {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Ready(buffer) if self.progress.length > 0 => {
                self.state = State::Running(self.request(buffer));
            }
            state => self.state = state,
        }
    }

    fn request(&self, mut buffer: Buffer) -> Operation {
        let Progress { start, length, direction, .. } = self.progress;
        let descriptor = &self.file.descriptor;
        let transfer = driver::Transfer {
            fd: self.file.fd(),
            place: descriptor.place(),
            data: buffer[start..].as_mut_ptr(),
            length: (length - start).min(MOST_AT_ONCE) as u32,
            offset: self.offset.wrapping_add(start as u64),
            registered: descriptor.core.pool.has_registered(&buffer),
        };
        let request = match direction {
            Direction::Read => Request::Read(transfer),
            Direction::Write => Request::Write(transfer),
        };
        let kept =
            Kept { buffer: Some(buffer), descriptor: Some(descriptor.clone()), ..Kept::default() };
        // SAFETY: the memory is the buffer's, from `start` on as long as was said, and the buffer is
        // kept, as is the descriptor with its place.
        unsafe { Operation::submit(&descriptor.core, request, kept) }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<(io::Result<usize>, Buffer)> {
        loop {
            self.start();
            let (result, kept) = match &mut self.state {
                State::Running(operation) => ready!(Pin::new(operation).poll(context)),
                // Nothing to move.
                State::Ready(_) => match std::mem::replace(&mut self.state, State::Ended) {
                    State::Ready(buffer) => return Poll::Ready((Ok(0), buffer)),
                    State::Running(_) | State::Ended => unreachable!("it was ready"),
                },
                State::Ended => panic!("a transfer was polled after it had ended"),
            };
            let mut buffer = kept.buffer.expect("an operation gives back what it was given");
            let counters = &self.file.descriptor.core.counters;
            match self.progress.judge(result) {
                Next::Done(result) => {
                    self.state = State::Ended;
                    if let (Ok(read), Direction::Read) = (&result, self.progress.direction) {
                        // What the memory held before is nobody's business.
                        buffer.resize(*read);
                    }
                    return Poll::Ready((result.map_err(|error| self.explain(error)), buffer));
                }
                Next::Rest => {
                    counters.short_transfers.add(1);
                    self.state = State::Ready(buffer);
                }
                Next::SameLater => {
                    counters.file_retries.add(1);
                    self.state = State::Ready(buffer);
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
    }

    /// Names what isn't aligned, if that is what the kernel complains of.
    fn explain(&self, error: io::Error) -> io::Error {
        let step = self.progress.step;
        let (offset, length) = (self.offset, self.progress.length);
        let aligned = offset.is_multiple_of(step as u64) && length.is_multiple_of(step);
        if error.raw_os_error() != Some(libc::EINVAL) || aligned {
            return error;
        }
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "direct I/O on this file moves multiples of {step} bytes, at offsets that are \
                 multiples of it too: not {length} bytes at offset {offset}"
            ),
        )
    }
}

impl Future for Transfer {
    type Output = (io::Result<usize>, Buffer);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(length: usize, step: usize, amount: Amount) -> Progress {
        let direction = Direction::Read;
        Progress { length, done: 0, start: 0, step, amount, direction, tries: 0 }
    }

    fn again() -> io::Result<u32> {
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }

    #[test]
    fn a_short_transfer_goes_on_where_it_stopped() {
        let mut progress = progress(1000, 1, Amount::Whole);
        assert!(matches!(progress.judge(Ok(300)), Next::Rest));
        assert_eq!(progress.start, 300);
        assert!(matches!(progress.judge(Ok(700)), Next::Done(Ok(1000))));
    }

    #[test]
    fn a_short_direct_transfer_goes_on_at_the_start_of_its_block() {
        let mut progress = progress(2048, 512, Amount::Whole);
        assert!(matches!(progress.judge(Ok(700)), Next::Rest));
        assert_eq!(progress.start, 512);
        // The same 188 bytes again: there are no more.
        let Next::Done(Err(error)) = progress.judge(Ok(188)) else { panic!("it would go on") };
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_the_kernel_puts_off_is_tried_again_but_not_for_ever() {
        let mut progress = progress(10, 1, Amount::Some);
        for _ in 0..MOST_TRIES {
            assert!(matches!(progress.judge(again()), Next::SameLater));
        }
        let Next::Done(Err(error)) = progress.judge(again()) else { panic!("it would go on") };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn tries_count_from_the_last_progress() {
        let mut progress = progress(10, 1, Amount::Whole);
        for _ in 0..10 {
            for _ in 0..MOST_TRIES {
                assert!(matches!(progress.judge(again()), Next::SameLater));
            }
            if let Next::Done(result) = progress.judge(Ok(1)) {
                assert_eq!(result.unwrap(), 10);
                return;
            }
        }
        panic!("ten times one byte are ten");
    }
}
