//! Two copies of one call: which of them runs.

use super::*;

#[test]
fn the_twins_core_is_told_when_a_tied_copy_starts() {
    let mut bench = Bench::meshed();
    bench.request(primary(1));
    let turn = bench.turn();
    let by = Twin { station: HERE, n: 0 };
    let reason = CancelReason::TwinStarted { by };
    let expected = Cancel { attempt: attempt(1, 1), reason, lifetime: ms(10) };
    assert_eq!(turn.cancels, [(PEER, expected)]);
    assert_eq!(turn.started(), [1]);
    assert!(turn.notices.is_empty(), "the client is spared the detour");
}

#[test]
fn without_a_mesh_the_client_is_told_and_relays() {
    let mut bench = Bench::new();
    bench.request(primary(1));
    let turn = bench.turn();
    assert!(turn.cancels.is_empty());
    let started = Started { attempt: attempt(1, 0) };
    assert_eq!(turn.one_notice(), (bench.conn, Notice::Started(started)));
}

#[test]
fn a_mesh_that_went_down_is_not_trusted() {
    let mut bench = Bench::meshed();
    bench.core.on_mesh_down(PEER);
    bench.request(primary(1));
    let turn = bench.turn();
    assert!(turn.cancels.is_empty());
    assert!(matches!(turn.one_notice().1, Notice::Started(_)));
}

#[test]
fn an_untied_copy_tells_nobody_that_it_starts() {
    let mut bench = Bench::meshed();
    bench.request(plain(1));
    let turn = bench.turn();
    assert!(turn.cancels.is_empty() && turn.notices.is_empty());
    assert_eq!(turn.started(), [1]);
}

#[test]
fn a_cancel_does_not_outlive_the_call() {
    let mut bench = Bench::meshed();
    bench.request(Request { remaining: ms(4), ..primary(1) });
    assert_eq!(bench.turn().cancels[0].1.lifetime, ms(4));
}

#[test]
fn a_queued_copy_is_withdrawn_when_its_twin_starts() {
    for copy in [primary(2), secondary(2)] {
        let mut bench = Bench::meshed();
        let running = bench.start(plain(1));
        bench.request(copy);
        bench.mesh(twin_of(copy));
        let turn = bench.turn();
        let by = copy.tie.map(|tie| tie.twin.n);
        assert!(ended(copy, How::Withdrawn, by)(turn.one_ended()));
        bench.finish(running);
        assert!(bench.turn().is_empty(), "it must not start");
        assert_eq!(bench.core.stats().withdrawn_by_twin, 1);
    }
}

#[test]
fn a_cancel_that_came_in_the_same_turn_as_its_copy_is_obeyed() {
    let mut bench = Bench::meshed();
    bench.request(secondary(1));
    bench.mesh(twin_of(secondary(1)));
    let turn = bench.turn();
    assert!(turn.starts.is_empty());
    assert!(ended(secondary(1), How::Withdrawn, Some(0))(turn.one_ended()));
}

#[test]
fn of_two_running_copies_the_secondary_stops() {
    let mut bench = Bench::meshed();
    let copy = bench.start(secondary(1));
    bench.mesh(twin_of(secondary(1)));
    assert_eq!(bench.turn().aborts, [(copy, StopReason::TwinStarted)]);
    bench.core.on_aborted(copy, bench.now);
    assert!(ended(secondary(1), How::Aborted, Some(0))(bench.turn().one_ended()));
    let stats = bench.core.stats();
    assert_eq!((stats.aborted_by_twin, stats.double_starts), (1, 1));
}

#[test]
fn of_two_running_copies_the_primary_goes_on() {
    let mut bench = Bench::meshed();
    let copy = bench.start(primary(1));
    bench.mesh(twin_of(primary(1)));
    assert!(bench.turn().is_empty());
    assert!(bench.finish(copy).is_some());
    let stats = bench.core.stats();
    assert_eq!((stats.replied, stats.cancels_ignored, stats.double_starts), (1, 1, 1));
}

#[test]
fn a_double_start_is_counted_once_however_often_it_is_told() {
    let mut bench = Bench::meshed();
    bench.start(primary(1));
    bench.mesh(twin_of(primary(1)));
    bench.client(twin_of(primary(1)));
    let stats = bench.core.stats();
    assert_eq!((stats.double_starts, stats.cancels_repeated), (1, 1));
}

#[test]
fn a_copy_is_shed_before_its_twin_is_told_never_after() {
    let mut bench = Bench::meshed();
    let running = bench.start(plain(1));
    bench.request(Request { remaining: ms(3), ..primary(2) });
    bench.turn();
    bench.now += ms(3);
    bench.finish(running);
    let turn = bench.turn();
    assert!(turn.cancels.is_empty(), "its twin may still live, and must");
    assert!(ended(primary(2), How::Shed, None)(turn.one_ended()));
}

#[test]
fn the_twin_is_told_only_once_a_slot_is_free() {
    let mut bench = Bench::meshed();
    let running = bench.start(plain(1));
    bench.request(primary(2));
    assert!(bench.turn().is_empty());
    bench.finish(running);
    let turn = bench.turn();
    assert_eq!((turn.cancels.len(), turn.started()), (1, vec![2]));
}

#[test]
fn a_method_that_must_not_run_twice_is_not_tied_whoever_says_so() {
    let by_server = Request { method: WRITE, ..primary(1) };
    let by_client = Request { idempotent: false, ..primary(2) };
    let as_hedge = Request { method: WRITE, ..hedge(3) };
    for request in [by_server, by_client, as_hedge] {
        let mut bench = Bench::meshed();
        bench.request(request);
        let turn = bench.turn();
        let Notice::Refused(reply, why) = turn.one_notice().1 else { panic!("not refused") };
        assert_eq!((reply.status, reply.executed), (Status::BadRequest, false));
        assert!(why.contains("must not run twice"));
        assert!(turn.starts.is_empty());
        assert_eq!(bench.core.stats().rejected_not_idempotent, 1);
    }
}

#[test]
fn a_copy_that_is_tied_to_this_very_core_is_refused() {
    let mut bench = Bench::meshed();
    let tie = Tie { twin: Twin { station: HERE, n: 1 }, window: ms(1) };
    bench.request(Request { tie: Some(tie), ..plain(1) });
    assert!(matches!(bench.turn().one_notice().1, Notice::Refused(..)));
    assert_eq!(bench.core.stats().rejected_own_twin, 1);
}

/// One of two servers with equal service times; a message between them takes a tick.
struct Server {
    bench: Bench,
    peer: Station,
    running: Option<(CopyKey, u32)>,
    replies: u32,
}

impl Server {
    /// Ticks from a start to its end.
    const SERVICE: u32 = 10;

    fn new(here: Station, peer: Station, copy: impl Fn(u64) -> Request) -> Server {
        let mut bench = Bench::with(Config { station: here, ..config() });
        bench.core.on_mesh_up(peer);
        for seq in 1..=8 {
            let Request { attempt, tie: Some(tie), .. } = copy(seq) else { panic!("not tied") };
            let tie = Some(Tie { twin: Twin { station: peer, ..tie.twin }, ..tie });
            bench.request(Request { attempt, tie, ..plain(seq) });
        }
        Server { bench, peer, running: None, replies: 0 }
    }

    /// Obeys what has come, finishes what is done, and returns what it has to say.
    fn tick(&mut self, tick: u32, came: Vec<(Station, Cancel)>) -> Vec<(Station, Cancel)> {
        let Server { bench, peer, running, .. } = self;
        came.iter().for_each(|&(_, cancel)| {
            bench.core.on_cancel(Origin::Mesh(*peer), cancel, bench.now);
        });
        let aborts = bench.poll_aborts();
        if let Some((copy, since)) = *running {
            if aborts.contains(&copy) {
                bench.core.on_aborted(copy, bench.now);
                *running = None;
            } else if tick == since + Server::SERVICE {
                self.replies += u32::from(bench.finish(copy).is_some());
                *running = None;
            }
        }
        let mut turn = bench.turn();
        if let Some(start) = turn.starts.pop() {
            *running = Some((start.copy, tick));
        }
        turn.cancels
    }
}

/// Both servers of a pair begin with the same queue at the same moment. If the secondary of a
/// double start ran on, both would end it together, and start the next job together, to the end of
/// the queue: half of what they can do would be lost.
#[test]
fn two_servers_that_start_the_same_job_do_not_stay_in_lock_step() {
    let mut here = Server::new(HERE, PEER, primary);
    let mut there = Server::new(PEER, HERE, secondary);
    let (mut to_here, mut to_there) = (vec![], vec![]);
    for tick in 0..5 * Server::SERVICE {
        let from_here = here.tick(tick, to_here);
        to_here = there.tick(tick, to_there);
        to_there = from_here;
    }
    assert_eq!(here.replies + there.replies, 8, "each call is answered once, and in half the time");
    let starts = here.bench.core.stats().started + there.bench.core.stats().started;
    assert_eq!(starts, 9, "only the first job is started twice");
}
