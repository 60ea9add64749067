//! The sending half of the connection to a replica: small frames at once, large requests in
//! segments behind them.
//!
//! The socket is handed a bounded number of bytes of large requests at a time, so that a small one
//! never waits for more than those; and what was not handed over yet can be taken back.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use bowline_protocol::{
    Assembly, Attempt, Cancel, CancelReason, Cut, Features, Frame, Methods, OptionSet, Outbox,
    PayloadOf, Peer, Request, codec, options,
};
use bowline_runtime::net::TcpStream;
use bowline_runtime::payload::Payload;
use bowline_runtime::{Instant, Notify};

/// Longer requests go out in pieces of so many bytes, if the replica understands that. Checksum and
/// copy of one take some 10 us.
const SEGMENT: u32 = 32 << 10;
/// While so many bytes wait for the kernel, no more of large requests are added to them: what a
/// small frame waits for, together with one segment.
const BACKLOG: usize = 64 << 10;
/// So many bytes the kernel is to take before it has sent them: they lie before a small one, too.
const UNSENT: u32 = 128 << 10;

pub(super) struct Line {
    stream: TcpStream,
    /// What the replica takes and understands.
    peer: Peer,
    /// What it says of its methods.
    pub(super) methods: Option<Methods>,
    outbox: RefCell<Outbox<Payload>>,
    /// Replies on their way here.
    pub(super) assembly: RefCell<Assembly<Payload>>,
    /// Once so many bytes wait, the machine is told when they are half of that.
    most: usize,
    is_full: Cell<bool>,
    /// The connection's task is to look after what waits here.
    busy: Notify,
}

impl Line {
    pub(super) fn new(
        stream: TcpStream,
        peer: Peer,
        methods: Option<Methods>,
        assembly: Assembly<Payload>,
        most: usize,
    ) -> Line {
        // If the replica is gone already this fails; the first receive tells.
        let _ = stream.set_unsent_limit(UNSENT);
        Line {
            stream,
            peer,
            methods,
            outbox: RefCell::new(Outbox::new(SEGMENT)),
            assembly: RefCell::new(assembly),
            most,
            is_full: Cell::new(false),
            busy: Notify::new(),
        }
    }

    pub(super) fn send(&self, frame: &Frame<'_>) {
        self.stream.send_with(|out| codec::encode_for(frame, self.peer.features, out));
    }

    /// Sends a request, with what the replica understands of its options. False if the replica does
    /// not take it.
    pub(super) fn request(
        &self,
        request: Request,
        options: &OptionSet,
        payload: &Payload,
        now: Instant,
    ) -> bool {
        let understood = self.peer.features.has(Features::OPTIONS);
        let options = if understood { options } else { &OptionSet::NONE };
        if payload.len() > self.largest_request() as usize {
            return false;
        }
        let mut taken = true;
        if self.goes_in_segments(payload.len()) {
            let mut outbox = self.outbox.borrow_mut();
            taken = outbox.push_request(request, options, payload.clone(), &self.peer, now).is_ok();
            drop(outbox);
            self.pour(now);
            self.busy.notify();
        } else if options.is_empty() {
            self.send(&Frame::Request(request, payload));
        } else {
            self.send(&Frame::RequestWith(request, options.to_bytes().as_options(), payload));
        }
        if self.backlog() > self.most / 2 {
            self.is_full.set(true);
            self.busy.notify();
        }
        taken
    }

    /// Whether a request of so many bytes is sent in pieces, if the replica takes it: where it is longer
    /// than one of those, or than a frame may be there.
    fn goes_in_segments(&self, length: usize) -> bool {
        let whole = self.peer.takes.frame.saturating_sub(options::MAX_LEN as u32).min(SEGMENT);
        let understood = self.peer.features.has(Features::OPTIONS.with(Features::SEGMENTS));
        understood && length > whole as usize
    }

    /// Sends a cancel. If nothing of its copy's request had left, neither does the cancel, and the copy
    /// is over: how many bytes it had.
    pub(super) fn cancel(&self, cancel: Cancel) -> Option<u32> {
        // A cancel that is relayed may come too late: then the reply that comes is the call's.
        if cancel.reason == CancelReason::CallerDone {
            self.assembly.borrow_mut().discard(cancel.attempt);
        }
        let cut = self.outbox.borrow_mut().cut(cancel.attempt, PayloadOf::Request);
        if let Cut::Unsent(payload) = cut {
            return Some(payload.len() as u32);
        }
        self.send(&Frame::Cancel(cancel));
        None
    }

    /// Takes back a request of which nothing has left, if there is one.
    pub(super) fn take_back(&self) -> Option<Attempt> {
        self.outbox.borrow_mut().take_back()
    }

    /// Hands over as much of the large requests as may lie before the next small frame.
    pub(super) fn pour(&self, now: Instant) {
        let mut outbox = self.outbox.borrow_mut();
        let room = BACKLOG.saturating_sub(self.stream.queued());
        if room > 0 && !outbox.is_empty() {
            self.stream.send_with(|out| outbox.fill(out, room, now));
            while outbox.poll_sent().is_some() {}
        }
        if self.is_full.get() && self.backlog() <= self.most / 2 {
            self.is_full.set(false);
        }
    }

    /// How many bytes wait for the replica to read, beside large requests: of those no more than
    /// was handed over is here twice, as their calls have them anyway.
    pub(super) fn backlog(&self) -> usize {
        self.stream.queued()
    }

    /// Waits until there is more to be done here: [`Line::pour`], and telling the machine of the
    /// backlog. Either the kernel has taken enough, or there is something new to wait for.
    pub(super) async fn ready(&self) {
        let is_busy = !self.outbox.borrow().is_empty();
        if !is_busy && !self.is_full.get() {
            return self.busy.notified().await;
        }
        let limit = if is_busy { BACKLOG / 2 } else { self.most / 2 };
        let (mut drained, mut busy) =
            (pin!(self.stream.drained(limit)), pin!(self.busy.notified()));
        // An error ends the connection by its receiving half.
        poll_fn(|context| match drained.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending => busy.as_mut().poll(context),
        })
        .await;
    }

    /// The largest payload that the replica takes, in bytes, whatever options go with it.
    pub(super) fn largest_request(&self) -> u32 {
        self.peer.largest()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use bowline_protocol::options::TrafficClass;
    use bowline_protocol::{
        Arrived, Attempt, Cause, ClientId, Load, Method, Reply, Segment, Seq, Status, Takes, Twin,
    };
    use bowline_runtime::net::{ListenOptions, TcpListener};
    use bowline_runtime::payload::Pool;
    use bowline_runtime::{Duration, Runtime, now};

    use super::*;

    fn request(seq: u64) -> Request {
        Request {
            attempt: Attempt { client: ClientId(7), seq: Seq(seq), n: 0 },
            method: Method(1),
            remaining: Duration::from_secs(1),
            cause: Cause::First,
            idempotent: true,
            tie: None,
        }
    }

    /// Runs a line to nobody, which takes replies of up to a mebibyte.
    fn with_line(test: impl FnOnce(&Line)) {
        let takes = Takes { frame: 1 << 20, payload: 8 << 20 };
        let features = Features::OPTIONS.with(Features::SEGMENTS);
        with_line_to(Peer { takes, features }, test);
    }

    fn with_line_to(peer: Peer, test: impl FnOnce(&Line)) {
        Runtime::builder().build().unwrap().block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let listener = TcpListener::bind(any, ListenOptions::default()).unwrap();
            let address = listener.local_addr().unwrap();
            let stream = TcpStream::connect(address, Duration::from_secs(60)).await.unwrap();
            let assembly = Assembly::new(1 << 20, 1 << 20);
            test(&Line::new(stream, peer, None, assembly, usize::MAX));
        });
    }

    #[test]
    fn a_reply_that_is_under_way_survives_a_cancel_that_is_relayed_and_no_other() {
        with_line(|line| {
            let pool = Rc::new(Pool::default());
            for (seq, by_caller) in [(1, false), (2, true)] {
                let attempt = request(seq).attempt;
                let reply =
                    Reply { attempt, status: Status::Ok, executed: true, load: Load::default() };
                let opening = OptionSet::NONE.opening(8);
                let mut assembly = line.assembly.borrow_mut();
                let arrived =
                    assembly.open_reply(reply, &opening.as_options(), b"half", pool.empty(8));
                assert!(matches!(arrived, Ok(Arrived::UnderWay)));
                drop(assembly);
                let reason = match by_caller {
                    true => CancelReason::CallerDone,
                    false => CancelReason::TwinStarted { by: Twin::default() },
                };
                line.cancel(Cancel { attempt, reason, lifetime: Duration::ZERO });
                let segment = Segment { attempt, of: PayloadOf::Reply, offset: 4 };
                let rest = line.assembly.borrow_mut().segment(&segment, b"half", now());
                match rest.unwrap() {
                    Arrived::Reply(_, _, payload) => assert_eq!(&payload[..], b"halfhalf"),
                    Arrived::Discarded(..) => assert!(by_caller, "its call may wait for it"),
                    other => panic!("{other:?}"),
                }
            }
        });
    }

    #[test]
    fn large_requests_are_handed_over_piece_by_piece_and_what_was_not_is_taken_back() {
        with_line(|line| {
            let payload = Rc::new(Pool::default()).copy(&vec![7; 8 << 20]);
            assert!(line.request(request(1), &OptionSet::NONE, &payload, now()));
            assert!(line.request(request(2), &OptionSet::NONE, &payload, now()));
            assert!(line.backlog() <= BACKLOG + 2 * SEGMENT as usize, "{}", line.backlog());
            let cancel = |seq| Cancel {
                attempt: request(seq).attempt,
                reason: CancelReason::CallerDone,
                lifetime: Duration::ZERO,
            };
            assert_eq!(line.cancel(cancel(2)), Some(8 << 20), "nothing of it had left");
            assert!(line.request(request(3), &OptionSet::NONE, &payload, now()));
            assert_eq!(line.take_back(), Some(request(3).attempt));
            assert_eq!(line.take_back(), None, "the first has begun");
            assert_eq!(line.cancel(cancel(1)), None, "its server has to be told");
            assert!(line.outbox.borrow().is_empty());
        });
    }

    #[test]
    fn a_replica_is_sent_the_largest_that_it_is_said_to_take_and_nothing_larger() {
        let options = Features::OPTIONS;
        for frame in [600, 1023, 1024, 4096, 1 << 20] {
            for features in [Features::NONE, options, options.with(Features::SEGMENTS)] {
                let takes = Takes { frame, payload: 2 << 20 };
                with_line_to(Peer { takes, features }, |line| {
                    let payload = |length| Rc::new(Pool::default()).copy(&vec![7; length]);
                    let most = line.largest_request() as usize;
                    let key = OptionSet { class: Some(TrafficClass(3)), ..OptionSet::NONE };
                    for options in [OptionSet::NONE, key] {
                        let said = format!("{features:?}, {frame}, {most}");
                        assert!(
                            line.request(request(1), &options, &payload(most), now()),
                            "{said}"
                        );
                        let larger = payload(most.max(frame as usize) + 1);
                        assert!(!line.request(request(2), &options, &larger, now()), "{said}");
                    }
                });
            }
        }
    }

    /// What goes in one frame is no longer than a frame may be at the replica.
    #[test]
    fn a_request_that_is_longer_than_a_frame_of_the_replica_goes_in_segments() {
        let takes = Takes { frame: 4096, payload: 1 << 20 };
        let features = Features::OPTIONS.with(Features::SEGMENTS);
        with_line_to(Peer { takes, features }, |line| {
            let payload = Rc::new(Pool::default()).copy(&[7; 20 << 10]);
            let mut outbox = Outbox::new(SEGMENT);
            let peer = Peer { takes, features };
            outbox
                .push_request(request(1), &OptionSet::NONE, payload.clone(), &peer, now())
                .unwrap();
            let mut frames = Vec::new();
            outbox.fill(&mut frames, usize::MAX, now());
            assert!(line.request(request(1), &OptionSet::NONE, &payload, now()));
            assert_eq!(line.backlog(), frames.len(), "one header for each piece");
        });
    }
}
