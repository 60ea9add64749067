//! The rules of the server, one behaviour a test. No clock and no I/O: a [`Bench`] is a core with
//! hands on its time.

mod answers;
mod arrivals;
mod cancels;
mod classes;
mod closes;
mod configs;
mod deadlines;
mod ends;
mod fresh;
mod goodput;
mod hold;
mod keys;
mod overload;
mod random;
mod ties;
mod times;
mod tombstones;

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use bowline_protocol::{
    Attempt, Cancel, CancelReason, Cause, ClientId, Ended, How, Method, OptionSet, ReplicaId,
    Reply, Request, Seq, Started, Station, Status, Tie, Twin,
};
use bowline_time::Instant;

use super::{
    Config, Conn, CopyKey, Core, Effect, KeyLimits, MethodRule, Notice, Origin, Start, StopReason,
};

const READ: Method = Method(1);
const WRITE: Method = Method(2);
/// Not worth starting with less than 5 ms left.
const SCAN: Method = Method(3);
/// Keeps its result with its effect.
const PAY: Method = Method(4);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn station(replica: u16) -> Station {
    Station { replica: ReplicaId(replica), core: 0 }
}

/// This core.
const HERE: Station = station(1);
/// Where the twins of its tied copies are.
const PEER: Station = station(2);

const fn attempt(seq: u64, n: u16) -> Attempt {
    Attempt { client: ClientId(9), seq: Seq(seq), n }
}

/// An untied read with 100 ms left.
const fn plain(seq: u64) -> Request {
    Request {
        attempt: attempt(seq, 0),
        method: READ,
        remaining: ms(100),
        cause: Cause::First,
        idempotent: true,
        tie: None,
    }
}

/// Copy n of a tied read, whose twin is on the peer.
const fn tied(seq: u64, n: u16, twin: u16) -> Request {
    let tie = Tie { twin: Twin { station: PEER, n: twin }, window: ms(10) };
    Request { attempt: attempt(seq, n), tie: Some(tie), ..plain(seq) }
}

const fn primary(seq: u64) -> Request {
    tied(seq, 0, 1)
}

const fn secondary(seq: u64) -> Request {
    tied(seq, 1, 0)
}

const fn hedge(seq: u64) -> Request {
    Request { cause: Cause::Hedge, attempt: attempt(seq, 1), ..plain(seq) }
}

/// What the peer says, or a client relays, when the twin of this copy starts.
fn twin_of(request: Request) -> Cancel {
    let by = request.tie.expect("a tied copy").twin;
    let reason = CancelReason::TwinStarted { by };
    Cancel { attempt: request.attempt, reason, lifetime: ms(10) }
}

const fn caller_done(request: Request) -> Cancel {
    Cancel { attempt: request.attempt, reason: CancelReason::CallerDone, lifetime: ms(0) }
}

/// A core with one slot (if not said otherwise), one client connection, and a clock.
struct Bench {
    core: Core<u64>,
    now: Instant,
    conn: Conn,
}

/// What a turn made a core want, by kind.
#[derive(Default)]
struct Turn {
    cancels: Vec<(Station, Cancel)>,
    notices: Vec<(Conn, Notice)>,
    answers: Vec<(Conn, OptionSet, Reply, Vec<u8>)>,
    starts: Vec<Start<u64>>,
    aborts: Vec<(CopyKey, StopReason)>,
}

fn config() -> Config {
    let methods = vec![
        (READ, MethodRule::idempotent()),
        (WRITE, MethodRule::once()),
        (SCAN, MethodRule::idempotent().least_useful(ms(5))),
        (PAY, MethodRule::keyed()),
    ];
    Config { slots: 1, queue_requests: 8, tombstones: 4, ..Config::new(HERE, methods) }
}

impl Bench {
    fn new() -> Bench {
        Bench::with(config())
    }

    /// As `new`, with the mesh to the peer up.
    fn meshed() -> Bench {
        let mut bench = Bench::new();
        bench.core.on_mesh_up(PEER);
        bench
    }

    fn with(config: Config) -> Bench {
        let mut core = Core::new(config).unwrap();
        let conn = core.on_opened().unwrap();
        Bench { core, now: Instant::from_nanos(1_000_000_000), conn }
    }

    fn request(&mut self, request: Request) {
        self.request_on(self.conn, request);
    }

    fn request_on(&mut self, conn: Conn, request: Request) {
        self.request_with(conn, request, &OptionSet::NONE);
    }

    fn request_with(&mut self, conn: Conn, request: Request, options: &OptionSet) {
        let payload = request.attempt.seq.0;
        self.core.on_request(conn, request, options, 100, || payload, self.now);
    }

    fn mesh(&mut self, cancel: Cancel) {
        self.core.on_cancel(Origin::Mesh(PEER), cancel, self.now);
    }

    fn client(&mut self, cancel: Cancel) {
        self.core.on_cancel(Origin::Client(self.conn), cancel, self.now);
    }

    /// Ends the turn: dispatches, and collects what is to be done. Checks the order.
    fn turn(&mut self) -> Turn {
        self.core.dispatch(self.now);
        let mut turn = Turn::default();
        while let Some(effect) = self.core.poll_effect() {
            match effect {
                Effect::Cancel { to, cancel } => {
                    assert!(turn.starts.is_empty(), "a cancel after a start");
                    turn.cancels.push((to, cancel));
                }
                Effect::Send { conn, notice, .. } => turn.notices.push((conn, notice)),
                Effect::Answer { conn, reply, options, result, .. } => {
                    turn.answers.push((conn, options, reply, result.to_vec()));
                }
                Effect::Start(start) => turn.starts.push(start),
                Effect::Abort { copy, why } => turn.aborts.push((copy, why)),
            }
        }
        assert!(self.core.stats().reconcile(), "{:#?}", self.core.stats());
        turn
    }

    /// Whom to stop, before anything is dispatched.
    fn poll_aborts(&mut self) -> Vec<CopyKey> {
        let mut aborts = Vec::new();
        while let Some(effect) = self.core.poll_effect() {
            if let Effect::Abort { copy, .. } = effect {
                aborts.push(copy);
            }
        }
        aborts
    }

    /// A request that starts at once.
    fn start(&mut self, request: Request) -> CopyKey {
        self.request(request);
        self.turn().one_start().copy
    }

    fn finish(&mut self, copy: CopyKey) -> Option<(Conn, Reply)> {
        let finished = self.core.on_finished(copy, Status::Ok, b"done", &OptionSet::NONE, self.now);
        finished.map(|(conn, reply, _)| (conn, reply))
    }

    /// As `finish`, with a reply of so many bytes.
    fn finish_with(&mut self, copy: CopyKey, bytes: usize) {
        self.core.on_finished(copy, Status::Ok, &vec![0; bytes], &OptionSet::NONE, self.now);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.core.on_timeout(self.now);
    }
}

impl Turn {
    fn one_start(mut self) -> Start<u64> {
        assert_eq!(self.starts.len(), 1, "starts");
        self.starts.remove(0)
    }

    /// The calls of the copies that start.
    fn started(&self) -> Vec<u64> {
        self.starts.iter().map(|start| start.request.attempt.seq.0).collect()
    }

    fn one_notice(&self) -> (Conn, Notice) {
        assert_eq!(self.notices.len(), 1, "{:?}", self.notices);
        self.notices[0]
    }

    fn one_ended(&self) -> Ended {
        match self.one_notice().1 {
            Notice::Ended(ended) => ended,
            other => panic!("{other:?} is no end"),
        }
    }

    fn is_empty(&self) -> bool {
        self.cancels.is_empty()
            && self.notices.is_empty()
            && self.answers.is_empty()
            && self.starts.is_empty()
            && self.aborts.is_empty()
    }
}

fn ended(request: Request, how: How, by: Option<u16>) -> impl Fn(Ended) -> bool {
    move |ended| ended.attempt == request.attempt && ended.how == how && ended.by == by
}
