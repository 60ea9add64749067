//! Channels between cores, and between a core and any other thread.
//!
//! A channel holds a fixed number of messages and allocates nothing for each. Either end may be on
//! any thread and in any executor; a core is woken only if it sleeps.
//!
//! There is one kind, for many senders and one receiver, and it serves a single sender as well: what
//! one of its own would spare is a compare-and-swap that nobody else contends for, beside a wake.
//!
//! ```
//! use bowline_runtime::{Runtime, channel};
//!
//! let (numbers, mut receiver) = channel::bounded(16);
//! let (result, mut sum) = channel::bounded(1);
//! let adding = std::thread::spawn(move || {
//!     Runtime::builder().build().unwrap().block_on(async move {
//!         let mut total = 0;
//!         while let Some(number) = receiver.receive().await {
//!             total += number;
//!         }
//!         result.send(total).await.unwrap();
//!     });
//! });
//! Runtime::builder().build()?.block_on(async move {
//!     for number in 0..1000 {
//!         numbers.send(number).await.unwrap();
//!     }
//!     drop(numbers);
//!     assert_eq!(sum.receive().await, Some(999 * 1000 / 2));
//! });
//! adding.join().unwrap();
//! # Ok::<(), bowline_runtime::Error>(())
//! ```

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::queue::ArrayQueue;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::waiters::{Place, Waiters};

struct Channel<T> {
    messages: ArrayQueue<T>,
    senders: AtomicUsize,
    /// The receiver is gone.
    closed: AtomicBool,
    receiving: Waiters,
    sending: Waiters,
}

impl<T> Channel<T> {
    fn drop_messages(&self) {
        while self.messages.pop().is_some() {}
    }
}

/// A channel that holds up to `capacity` messages, at least one.
pub fn bounded<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let channel = Arc::new(Channel {
        messages: ArrayQueue::new(capacity.max(1)),
        senders: AtomicUsize::new(1),
        closed: AtomicBool::new(false),
        receiving: Waiters::new(),
        sending: Waiters::new(),
    });
    (Sender(channel.clone()), Receiver { channel, place: Place::default() })
}

/// Why a message could not be sent now. It carries the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The channel is full.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "the channel is full",
            TrySendError::Closed(_) => "the receiver is gone",
        })
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrySendError({self})")
    }
}

impl<T> std::error::Error for TrySendError<T> {}

/// The receiver is gone. It carries the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Closed<T>(pub T);

impl<T> fmt::Display for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the receiver is gone")
    }
}

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed")
    }
}

impl<T> std::error::Error for Closed<T> {}

/// The end that sends. There may be many.
pub struct Sender<T>(Arc<Channel<T>>);

impl<T: Send> Sender<T> {
    /// Sends a message if there is room. If the receiver goes before it receives it, the message is
    /// dropped.
    ///
    /// # Errors
    ///
    /// Gives the message back if there is none, or nobody to receive it.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        if self.is_closed() {
            return Err(TrySendError::Closed(message));
        }
        self.0.messages.push(message).map_err(TrySendError::Full)?;
        self.0.receiving.wake_one();
        if self.0.closed.load(Ordering::Acquire) {
            // The receiver went meanwhile, and may have emptied the queue before the message was in
            // it. A fence in the wake here, and one in the wake there, make one of both see it.
            self.0.drop_messages();
        }
        Ok(())
    }

    /// Whether the receiver has gone, so that nothing that is sent is ever received.
    pub fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Acquire)
    }

    /// Sends a message as soon as there is room. Who waits longest is served first, if it is polled
    /// when it is woken. If the future is dropped before it is done, the message was not sent.
    ///
    /// # Errors
    ///
    /// Gives the message back if the receiver is gone.
    pub async fn send(&self, message: T) -> Result<(), Closed<T>> {
        Sending { sender: self, message: Some(message), place: Place::default() }.await
    }
}

/// A message that waits for room.
struct Sending<'a, T> {
    sender: &'a Sender<T>,
    message: Option<T>,
    place: Place,
}

/// The message is moved out of it, never pinned in it.
impl<T> Unpin for Sending<'_, T> {}

impl<T: Send> Future for Sending<'_, T> {
    type Output = Result<(), Closed<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Sending { sender, message, place } = &mut *self;
        let waiters = &sender.0.sending;
        waiters.use_wake(place);
        for last in [false, true] {
            let Some(unsent) = message.take() else { return Poll::Ready(Ok(())) };
            match sender.try_send(unsent) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(TrySendError::Closed(unsent)) => return Poll::Ready(Err(Closed(unsent))),
                Err(TrySendError::Full(unsent)) => *message = Some(unsent),
            }
            if !last {
                waiters.wait(place, context.waker());
            }
        }
        Poll::Pending
    }
}

impl<T> Drop for Sending<'_, T> {
    fn drop(&mut self) {
        let waiters = &self.sender.0.sending;
        if waiters.leave(&mut self.place) {
            waiters.wake_one();
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.receiving.wake_one();
        }
    }
}

/// The end that receives.
pub struct Receiver<T> {
    channel: Arc<Channel<T>>,
    /// Its own, as there is one receiver: whoever polled last is woken.
    place: Place,
}

impl<T: Send> Receiver<T> {
    /// The next message, if there is one.
    pub fn try_receive(&mut self) -> Option<T> {
        let message = self.channel.messages.pop()?;
        self.channel.sending.wake_one();
        Some(message)
    }

    /// The next message; None once all senders are gone and all messages received. Dropping the
    /// future loses none.
    pub async fn receive(&mut self) -> Option<T> {
        poll_fn(|context| self.poll_receive(context)).await
    }

    /// As [`Receiver::receive`], for futures written by hand.
    pub fn poll_receive(&mut self, context: &Context<'_>) -> Poll<Option<T>> {
        self.channel.receiving.use_wake(&mut self.place);
        for last in [false, true] {
            // Read first: what the last sender sent before it went is in the queue then.
            let gone = self.channel.senders.load(Ordering::Acquire) == 0;
            if let Some(message) = self.try_receive() {
                return Poll::Ready(Some(message));
            }
            if gone {
                return Poll::Ready(None);
            }
            if !last {
                self.channel.receiving.wait(&mut self.place, context.waker());
            }
        }
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // It needs no wake: nobody else receives.
        let _ = self.channel.receiving.leave(&mut self.place);
        self.channel.closed.store(true, Ordering::Release);
        self.channel.sending.wake_all();
        // What nobody will receive is dropped now, not with the last sender.
        self.channel.drop_messages();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("queued", &self.0.messages.len()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queued = self.channel.messages.len();
        f.debug_struct("Receiver").field("queued", &queued).finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::future::block_on;
    use loom::thread;

    use super::*;

    #[test]
    fn a_message_that_is_sent_as_the_receiver_goes_does_not_outlive_it() {
        loom::model(|| {
            let (sender, receiver) = bounded(1);
            let message = Arc::new(());
            let going = thread::spawn(move || drop(receiver));
            let _ = sender.try_send(message.clone());
            going.join().unwrap();
            assert_eq!(Arc::strong_count(&message), 1);
        });
    }

    /// A wake that is lost shows as a deadlock, which loom finds; so below.
    #[test]
    fn who_waits_for_a_message_or_for_room_is_woken() {
        loom::model(|| {
            let (sender, mut receiver) = bounded(1);
            let sending = thread::spawn(move || {
                block_on(async {
                    sender.send(1).await.unwrap();
                    sender.send(2).await.unwrap();
                });
            });
            assert_eq!(block_on(receiver.receive()), Some(1));
            assert_eq!(block_on(receiver.receive()), Some(2));
            assert_eq!(block_on(receiver.receive()), None);
            sending.join().unwrap();
        });
    }

    #[test]
    fn who_waits_for_room_is_woken_as_the_receiver_goes() {
        loom::model(|| {
            let (sender, receiver) = bounded(1);
            let message = Arc::new(());
            sender.try_send(message.clone()).unwrap();
            let sending = thread::spawn({
                let (sender, message) = (sender.clone(), message.clone());
                // Either it is given back, or it was sent to who had gone already.
                move || drop(block_on(sender.send(message)))
            });
            drop(receiver);
            sending.join().unwrap();
            assert_eq!(Arc::strong_count(&message), 1);
        });
    }

    #[test]
    fn the_last_of_two_senders_that_goes_ends_it_and_no_message_is_lost() {
        loom::model(|| {
            let (sender, mut receiver) = bounded(1);
            let other = sender.clone();
            let going = thread::spawn(move || drop(other));
            let sending = thread::spawn(move || sender.try_send(1).unwrap());
            assert_eq!(block_on(receiver.receive()), Some(1));
            assert_eq!(block_on(receiver.receive()), None);
            going.join().unwrap();
            sending.join().unwrap();
        });
    }
}
