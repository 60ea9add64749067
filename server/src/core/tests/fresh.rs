//! Who asks for more than this replica holds is told so, and costs nothing.

use bowline_protocol::Freshness;

use super::*;

const ASKED: OptionSet = OptionSet { fresh: Some(Freshness::version(7)), ..OptionSet::NONE };

fn refused(turn: &Turn) -> Reply {
    match turn.one_notice().1 {
        Notice::Refused(reply, _) => reply,
        other => panic!("{other:?} is no refusal"),
    }
}

#[test]
fn a_request_for_more_than_is_held_is_refused_on_arrival() {
    let mut bench = Bench::new();
    bench.core.on_freshness(Some(Freshness::version(6)));
    bench.request_with(bench.conn, plain(1), &ASKED);
    let turn = bench.turn();
    let reply = refused(&turn);
    assert_eq!((reply.status, reply.executed), (Status::Stale, false));
    assert!(turn.starts.is_empty());
    assert_eq!((bench.core.stats().rejected_stale, bench.core.stats().accepted), (1, 0));
}

#[test]
fn what_is_held_is_served_and_so_is_who_asks_for_nothing() {
    let mut bench = Bench::with(Config { slots: 3, ..config() });
    bench.core.on_freshness(Some(Freshness { version: 7, staleness: ms(3) }));
    bench.request_with(bench.conn, plain(1), &ASKED);
    let within = OptionSet { fresh: Some(Freshness::within(ms(3))), ..OptionSet::NONE };
    bench.request_with(bench.conn, plain(2), &within);
    bench.request(plain(3));
    assert_eq!(bench.turn().started(), [1, 2, 3]);
}

#[test]
fn a_replica_that_can_not_say_leaves_it_to_its_handlers() {
    let mut bench = Bench::new();
    bench.request_with(bench.conn, plain(1), &ASKED);
    let start = bench.turn().one_start();
    assert_eq!(start.options.fresh, ASKED.fresh);
}

#[test]
fn a_tied_copy_that_fell_behind_in_the_queue_is_refused_and_its_twin_is_not_told() {
    let mut bench = Bench::meshed();
    let held = |staleness| Some(Freshness { version: 7, staleness });
    bench.core.on_freshness(held(ms(1)));
    let running = bench.start(plain(1));
    let within = OptionSet { fresh: Some(Freshness::within(ms(5))), ..OptionSet::NONE };
    bench.request_with(bench.conn, primary(2), &within);
    assert!(bench.turn().is_empty(), "it waits");
    bench.core.on_freshness(held(ms(6)));
    bench.finish(running);
    let turn = bench.turn();
    assert_eq!(refused(&turn).status, Status::Stale);
    assert!(turn.cancels.is_empty() && turn.starts.is_empty());
    assert_eq!(bench.core.stats().replied_stale, 1);
}
