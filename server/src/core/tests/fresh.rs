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

#[test]
fn of_what_it_does_not_know_a_replica_leaves_the_demand_to_its_handlers() {
    let mut bench = Bench::with(Config { slots: 2, ..config() });
    bench.core.on_freshness(Some(Freshness::within(ms(3))));
    bench.request_with(bench.conn, plain(1), &ASKED);
    let both = Freshness { version: 7, staleness: ms(2) };
    bench.request_with(bench.conn, plain(2), &OptionSet { fresh: Some(both), ..ASKED });
    let turn = bench.turn();
    assert_eq!(turn.started(), [1], "it knows of no version");
    assert_eq!(refused(&turn).attempt, attempt(2, 0), "and that it is too stale");
}

#[test]
fn a_reply_says_what_was_held_and_one_that_may_have_written_no_more_of_it_than_was_asked() {
    let mut bench = Bench::with(Config { slots: 4, ..config() });
    let held = Freshness { version: 9, staleness: ms(3) };
    bench.core.on_freshness(Some(held));
    let mut write = |seq, fresh| {
        let request = Request { method: WRITE, idempotent: false, ..plain(seq) };
        bench.request_with(bench.conn, request, &OptionSet { fresh, ..OptionSet::NONE });
    };
    write(1, None);
    write(2, Some(Freshness::version(7)));
    write(3, Some(Freshness::within(ms(5))));
    bench.request(plain(4));
    let turn = bench.turn();
    let dated: Vec<_> = turn.starts.iter().map(|start| start.dated).collect();
    let asked = [Freshness::version(7), Freshness::within(ms(3))];
    assert_eq!(dated, [None, Some(asked[0]), Some(asked[1]), Some(held)]);
}
