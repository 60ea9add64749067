//! What goes out on a connection: small frames at once, large replies in segments behind them (or one
//! by one, where the other side knows no segments), and credit once the kernel has what ends a request.
//!
//! The socket is handed a bounded number of bytes of large replies at a time, so that a small frame
//! never waits for more than those; and what was not handed over yet can be taken back.

use std::cell::{Cell, RefCell};
use std::format;
use std::net::SocketAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::string::String;
use std::time::Duration;
use std::vec::Vec;

use bowline_protocol::outbox::Sent;
use bowline_protocol::{
    Attempt, Credit, CreditError, Cut, Features, Frame, Goodbye, GoodbyeReason, OptionSet, Outbox,
    PayloadOf, Peer, Reply, Status, codec, options,
};
use bowline_runtime::net::{Shutdown, TcpStream};
use bowline_runtime::{Instant, JoinHandle, Notify, now, spawn};

use super::answer::Letter;
use super::reader::Reader;
use crate::core::{Account, considerable};

/// Longer replies go out in pieces of so many bytes, if the other side understands that. Checksum
/// and copy of one take some 10 us.
pub(super) const SEGMENT: u32 = 32 << 10;
/// While so many bytes wait for the kernel, no more of large replies are added to them: what a
/// small frame waits for, together with one segment.
const BACKLOG: usize = 64 << 10;
/// The least that may wait for one connection: a few small replies, and what a link says of itself.
pub(super) const LEAST: usize = 128 << 10;
/// So many bytes the kernel is to take before it has sent them: they lie before a small frame, too.
const UNSENT: u32 = 128 << 10;

/// It was disconnected over what waited for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenUp {
    /// It did not read what it had asked for; if not, too much waited for all together.
    pub(super) is_slow: bool,
    /// So many bytes waited for it.
    pub(super) waiting: usize,
    /// Where it was, if that could be had.
    pub(super) address: Option<SocketAddr>,
}

pub(super) struct Sender<R> {
    pub(super) stream: TcpStream,
    /// What the other side takes and understands, once it has said hello.
    pub(super) peer: Cell<Peer>,
    outbox: RefCell<Outbox<Letter<R>>>,
    /// None: the other side does not count.
    account: RefCell<Option<Account>>,
    /// Bytes that may wait for the other side to read, however slowly it does.
    most: usize,
    reader: Cell<Reader>,
    /// What the core was told last of how many bytes wait.
    told: Cell<usize>,
    /// Bytes handed to the stream, in all.
    appended: Cell<u64>,
    /// How many those were when the last of them were of a large reply.
    poured: Cell<u64>,
    given_up: Cell<Option<GivenUp>>,
    /// Goodbye was said: nothing more is.
    parted: Cell<bool>,
    /// The task that goes on when the kernel has taken what it was handed.
    following: RefCell<Option<JoinHandle<()>>>,
    is_following: Cell<bool>,
    /// Told whenever the last large reply has left.
    emptied: Rc<Notify>,
}

impl<R: Deref<Target = [u8]> + 'static> Sender<R> {
    pub(super) fn new(stream: TcpStream, most: usize, emptied: Rc<Notify>) -> Rc<Sender<R>> {
        // If the other side is gone already this fails; the first receive tells.
        let _ = stream.set_unsent_limit(UNSENT);
        Rc::new(Sender {
            stream,
            peer: Cell::default(),
            outbox: RefCell::new(Outbox::new(SEGMENT)),
            account: RefCell::new(None),
            most,
            reader: Cell::default(),
            told: Cell::new(0),
            appended: Cell::new(0),
            poured: Cell::new(0),
            given_up: Cell::new(None),
            parted: Cell::new(false),
            following: RefCell::new(None),
            is_following: Cell::new(false),
            emptied,
        })
    }

    /// From now on requests are counted, of which so much was granted.
    pub(super) fn count(&self, window: Credit) {
        self.account.replace(Some(Account::new(window, self.stream.queued())));
    }

    /// What the other side may still send, and what it gets back as soon as the kernel has the ends
    /// of its requests. Nothing, if it does not count.
    pub(super) fn credit(&self) -> (Credit, Credit) {
        let account = self.account.borrow();
        account.as_ref().map_or_else(Default::default, |account| (account.left(), account.owed()))
    }

    /// A request came, with so many bytes in all.
    pub(super) fn charge(&self, bytes: usize) -> Result<(), CreditError> {
        self.account.borrow_mut().as_mut().map_or(Ok(()), |account| account.charge(bytes))
    }

    /// Appends a frame to what goes out at the next flush. Small frames are not held back: who does not
    /// read, so that more of them waits than may, is disconnected at once, be they pongs only. (What is
    /// before the last of large replies, which may be longer, does not count: there is little of it.)
    pub(super) fn send(&self, frame: &Frame<'_>) {
        if self.parted.get() {
            return;
        }
        self.append(|out| {
            let before = out.len();
            codec::encode_for(frame, self.peer.get().features, out);
            out.len() - before
        });
        let small = self.appended.get() - self.poured.get();
        if (self.stream.queued() as u64).min(small) > self.most as u64 {
            self.give_up(true);
        }
    }

    fn append(&self, write: impl FnOnce(&mut Vec<u8>) -> usize) {
        let added = self.stream.send_with(write);
        self.appended.set(self.appended.get() + added as u64);
        if let Some(account) = self.account.borrow_mut().as_mut() {
            account.queue(added);
        }
    }

    /// Ends it at once, since it reads too slowly itself, or since too much waits for all.
    pub(super) fn give_up(&self, is_slow: bool) {
        if self.given_up.get().is_some() {
            return;
        }
        let (waiting, address) = (self.waiting(), self.stream.peer_addr().ok());
        self.given_up.set(Some(GivenUp { is_slow, waiting, address }));
        self.stream.abort();
        // A reply's drop is its service's, and runs while nothing is borrowed.
        drop(self.outbox.replace(Outbox::new(SEGMENT)));
    }

    /// As [`Sender::send`], with a frame that ends a request of so many bytes.
    pub(super) fn end(self: &Rc<Self>, frame: &Frame<'_>, frees: usize) {
        self.send(frame);
        self.owe(frees);
        self.follow();
    }

    fn owe(&self, bytes: usize) {
        if let Some(account) = self.account.borrow_mut().as_mut() {
            account.owe(bytes);
        }
    }

    /// Answers a request: at once, or, if that is long, as the kernel takes what is before it, and in
    /// segments if the other side understands them. Of the options it gets what it understands. False if it takes no reply of that size: it
    /// was told so, or got the status of a failure without its words.
    pub(super) fn reply(
        self: &Rc<Self>,
        reply: Reply,
        options: &OptionSet,
        letter: Letter<R>,
    ) -> bool {
        let to = self.peer.get();
        let understood = to.features.has(Features::OPTIONS);
        let options = if understood { options } else { &OptionSet::NONE };
        let taken = if understood { options::MAX_LEN } else { 0 };
        let (frees, room) = (letter.frees, (to.takes.frame as usize).saturating_sub(taken));
        if letter.answer.len() <= room.min(SEGMENT as usize) {
            self.reply_whole(reply, options, &letter.answer, frees);
            return true;
        }
        if self.parted.get() {
            return true;
        }
        // One that does not fit is not pushed: its drop is its service's, and runs while nothing is
        // borrowed.
        let fits = self.outbox.borrow().fits(options, letter.answer.len(), &to);
        let pushed =
            fits.and_then(|()| self.outbox.borrow_mut().push_reply(reply, options, letter, &to));
        match pushed {
            Ok(()) => self.pour(),
            Err(error) => {
                // What a caller does next hangs on the status: of a failure only the words are missing.
                let (status, why) = match reply.status {
                    Status::Ok | Status::App(_) => {
                        (Status::TooLarge, format!("this reply can't be sent: {error}"))
                    }
                    failed => (failed, String::new()),
                };
                // Half of them would tell half of a number.
                let why = Some(why).filter(|why| why.len() <= room).unwrap_or_default();
                self.reply_whole(Reply { status, ..reply }, options, why.as_bytes(), frees);
            }
        }
        pushed.is_ok()
    }

    /// As [`Sender::end`], with a reply in one frame.
    fn reply_whole(
        self: &Rc<Self>,
        reply: Reply,
        options: &OptionSet,
        payload: &[u8],
        frees: usize,
    ) {
        let bytes = options.to_bytes();
        let frame = match options.is_empty() {
            true => Frame::Reply(reply, payload),
            false => Frame::ReplyWith(reply, bytes.as_options(), payload),
        };
        self.end(&frame, frees);
    }

    /// Sends no more of a reply that nobody waits for any more. Returns how many bytes its request
    /// had, if it was not sent in full: then the copy is still to be ended.
    pub(super) fn cut(&self, attempt: Attempt) -> Option<usize> {
        let cut = self.outbox.borrow_mut().cut(attempt, PayloadOf::Reply);
        match cut {
            Cut::Absent => None,
            Cut::Unsent(letter) | Cut::UnderWay(letter) => Some(letter.frees),
        }
    }

    /// Hands over as much of the large replies as may lie before the next small frame.
    fn pour(self: &Rc<Self>) {
        if self.parted.get() {
            return;
        }
        let room = BACKLOG.saturating_sub(self.stream.queued());
        if room > 0 && !self.is_empty() {
            self.append(|out| self.outbox.borrow_mut().fill(out, room, now()));
            self.poured.set(self.appended.get());
            // A reply's drop is its service's, and runs while nothing is borrowed.
            while let Some(Sent { payload, .. }) = self.next_sent() {
                self.owe(payload.frees);
            }
            if self.is_empty() {
                self.emptied.notify();
            }
        }
        self.follow();
    }

    fn next_sent(&self) -> Option<Sent<Letter<R>>> {
        self.outbox.borrow_mut().poll_sent()
    }

    /// Grants what has come free.
    pub(super) fn settle(&self) {
        let backlog = self.stream.queued();
        let grant = self.account.borrow_mut().as_mut().and_then(|account| account.settle(backlog));
        if let Some(credit) = grant {
            self.send(&Frame::Credit(credit));
        }
    }

    /// How little has to wait for the kernel until there is more to do here.
    fn awaited(&self) -> Option<usize> {
        if self.parted.get() {
            return None;
        }
        if !self.is_empty() {
            return Some(BACKLOG / 2);
        }
        self.account.borrow().as_ref().filter(|account| account.is_due()).map(|_| 0)
    }

    /// Sees to it that what is left goes on when the kernel has taken what it was handed.
    fn follow(self: &Rc<Self>) {
        if self.awaited().is_some() && !self.is_following.replace(true) {
            let sender = self.clone();
            let task = spawn(async move {
                while let Some(backlog) = sender.awaited()
                    && sender.stream.drained(backlog).await.is_ok()
                {
                    sender.settle();
                    sender.pour();
                }
                sender.is_following.set(false);
            });
            self.following.replace(Some(task));
        }
    }

    /// How many bytes of memory wait for the other side to read: a long reply takes all of its own
    /// until the last of it is sent.
    pub(super) fn waiting(&self) -> usize {
        self.stream.queued() + self.outbox.borrow().held()
    }

    /// How many bytes wait for it, and whether it reads too slowly: see [`Reader`].
    pub(super) fn look(&self, span: Duration, now: Instant) -> (usize, bool) {
        let queued = self.stream.queued();
        let left = queued + self.outbox.borrow().waiting();
        let (taken, mut reader) = (self.appended.get() - queued as u64, self.reader.get());
        let is_too_slow = reader.is_too_slow(left, taken, (self.most, span), now);
        self.reader.set(reader);
        (self.waiting(), is_too_slow)
    }

    /// How many bytes wait for it, and whether the core has to be told: many do, or did when it was
    /// told last.
    pub(super) fn unread(&self) -> (usize, bool) {
        let waiting = considerable(self.waiting());
        (waiting, self.told.replace(waiting) + waiting > 0)
    }

    /// For how long it has taken nothing of what waits.
    pub(super) fn idle(&self, now: Instant) -> Duration {
        self.reader.get().idle(now)
    }

    /// How much it keeps of the room for all; of those who keep as much, who has more waiting.
    pub(super) fn keeps(&self, now: Instant) -> (u128, usize) {
        let waiting = self.waiting();
        (self.reader.get().keeps(waiting, now), waiting)
    }

    /// No large reply is on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.outbox.borrow().is_empty()
    }

    /// It was disconnected over what waited for it.
    pub(super) fn given_up(&self) -> Option<GivenUp> {
        self.given_up.get()
    }

    /// Goodbye was said.
    pub(super) fn has_parted(&self) -> bool {
        self.parted.get()
    }

    /// Says goodbye, in place of what is left of large replies. The other side will close the
    /// connection when it has read it.
    ///
    /// This side listens on: if it closed with something unread, the kernel would take back what
    /// the other side has not yet got.
    pub(super) fn say_goodbye(&self, reason: GoodbyeReason, why: &str) {
        self.send(&Frame::Goodbye(Goodbye { reason }, why.as_bytes()));
        self.parted.set(true);
        self.stream.shutdown(Shutdown::Write);
        drop(self.outbox.replace(Outbox::new(SEGMENT)));
    }

    /// The connection is over: what has not been handed over never will be.
    pub(super) fn close(&self) {
        if let Some(task) = self.following.take() {
            task.abort();
        }
        self.account.replace(None);
        drop(self.outbox.replace(Outbox::new(SEGMENT)));
        self.parted.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline_protocol::{ClientId, Load, Ping, Seq, Takes};
    use bowline_runtime::Runtime;
    use bowline_runtime::net::{ListenOptions, TcpListener};
    use std::vec;

    use crate::io::answer::Answer;

    /// A reply of which the drop looks at the sender.
    struct Nosy {
        bytes: Vec<u8>,
        sender: Rc<Sender<Nosy>>,
        dropped: Rc<Cell<bool>>,
    }

    impl Deref for Nosy {
        type Target = [u8];

        fn deref(&self) -> &[u8] {
            &self.bytes
        }
    }

    impl Drop for Nosy {
        fn drop(&mut self) {
            self.sender.outbox.borrow_mut();
            self.dropped.set(true);
        }
    }

    /// The most that the other side takes: more than kernels keep for a connection.
    const TAKES: usize = 64 << 20;
    /// What may wait for it.
    const MOST: usize = 1 << 20;

    /// One, and where what it sends arrives.
    async fn sender() -> (Rc<Sender<Nosy>>, TcpStream) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(any, ListenOptions::default()).unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address, Duration::from_secs(20)).await.unwrap();
        let sender = Sender::new(stream, MOST, Rc::default());
        let features = Features::OPTIONS.with(Features::SEGMENTS);
        sender.peer.set(Peer { takes: Takes { frame: 1 << 20, payload: TAKES as u32 }, features });
        (sender, listener.accept().await.unwrap())
    }

    fn reply(sender: &Rc<Sender<Nosy>>, bytes: usize) -> (bool, Rc<Cell<bool>>) {
        let dropped = Rc::new(Cell::new(false));
        let (sender, told) = (sender.clone(), dropped.clone());
        let answer = Answer::Reply(Nosy { bytes: vec![7; bytes], sender: sender.clone(), dropped });
        let attempt = Attempt { client: ClientId(1), seq: Seq(1), n: 0 };
        let (status, load) = (Status::Ok, Load::default());
        let reply = Reply { attempt, status, executed: true, load };
        let letter = Letter { answer, frees: 0 };
        (sender.reply(reply, &OptionSet::NONE, letter), told)
    }

    /// Whether it is too large, cut off, or left behind.
    #[test]
    fn a_replys_drop_runs_while_nothing_is_borrowed() {
        Runtime::builder().build().unwrap().block_on(async {
            let (sender, _client) = sender().await;
            let (is_taken, dropped) = reply(&sender, TAKES + 1);
            assert!(!is_taken && dropped.get());
            let (is_taken, dropped) = reply(&sender, 1 << 20);
            assert!(is_taken && !dropped.get());
            let attempt = Attempt { client: ClientId(1), seq: Seq(1), n: 0 };
            assert!(sender.cut(attempt).is_some() && dropped.get());
            let (_, dropped) = reply(&sender, 1 << 20);
            sender.give_up(false);
            assert!(dropped.get());
        });
    }

    /// Though one that comes whole, as the other side knows no segments, is more than that by itself.
    #[test]
    fn who_is_cut_off_over_small_frames_is_so_for_those_alone() {
        Runtime::builder().build().unwrap().block_on(async {
            let (sender, _client) = sender().await;
            let takes = Takes { frame: TAKES as u32, payload: TAKES as u32 };
            sender.peer.set(Peer { takes, features: Features::OPTIONS });
            (0..3).for_each(|_| drop(reply(&sender, TAKES / 2)));
            assert!(sender.stream.queued() > TAKES / 2 && sender.waiting() > TAKES);
            let mut small = 0;
            while sender.given_up().is_none() {
                let before = sender.stream.queued();
                sender.send(&Frame::Pong(Ping { token: 7 }));
                assert!(small <= MOST, "nothing of them was taken meanwhile");
                small += sender.stream.queued().saturating_sub(before);
            }
            assert!(small > MOST / 2 && sender.given_up().unwrap().is_slow);
        });
    }

    /// Or who leaves the last bytes of many replies could have the server keep all of them.
    #[test]
    fn a_reply_waits_with_all_of_its_memory_however_much_of_it_is_read() {
        Runtime::builder().build().unwrap().block_on(async {
            let (sender, client) = sender().await;
            reply(&sender, TAKES);
            let mut read = 0;
            while read < 1 << 20 {
                read += client.receive().await.unwrap().expect("more of it").len();
                assert!(sender.waiting() >= TAKES);
            }
            let (sum, is_too_slow) = sender.look(Duration::from_secs(3600), now());
            assert!(sum >= TAKES && !is_too_slow);
            sender.give_up(false);
        });
    }
}
