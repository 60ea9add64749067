//! Cancels that come before their copy.

use super::*;

fn entombed(request: Request) -> Bench {
    let mut bench = Bench::meshed();
    bench.mesh(twin_of(request));
    assert_eq!(bench.core.tombstones(), 1);
    bench
}

#[test]
fn a_copy_whose_twin_has_started_is_withdrawn_as_it_arrives() {
    let mut bench = entombed(secondary(1));
    bench.request(secondary(1));
    let turn = bench.turn();
    assert!(turn.starts.is_empty());
    assert!(ended(secondary(1), How::Withdrawn, Some(0))(turn.one_ended()));
    let stats = bench.core.stats();
    assert_eq!((stats.withdrawn_by_tombstone, stats.tombstones_hit), (1, 1));
    assert!(bench.core.is_idle(), "the tombstone is used up");
}

/// Or its twin's lifetime could be over before the last of it has come.
#[test]
fn a_copy_that_begins_to_come_after_its_twin_has_started_is_withdrawn_at_once() {
    let mut bench = entombed(secondary(1));
    let mut opens =
        |request| bench.core.on_opening(bench.conn, &request, &OptionSet::NONE, 1 << 20);
    assert!(!opens(plain(2)) && !opens(secondary(3)));
    assert!(opens(secondary(1)));
    assert!(!opens(secondary(1)), "the tombstone is used up");
    let turn = bench.turn();
    assert!(ended(secondary(1), How::Withdrawn, Some(0))(turn.one_ended()));
    let stats = bench.core.stats();
    assert_eq!((stats.accepted, stats.withdrawn_by_tombstone), (1, 1));
}

#[test]
fn a_tombstone_kills_only_a_copy_whose_twin_set_it() {
    let elsewhere = Tie { twin: Twin { station: station(3), n: 0 }, window: ms(10) };
    let another_n = Tie { twin: Twin { station: PEER, n: 5 }, window: ms(10) };
    for tie in [None, Some(elsewhere), Some(another_n)] {
        let mut bench = entombed(secondary(1));
        bench.request(Request { tie, ..secondary(1) });
        assert_eq!(bench.turn().started(), [1]);
    }
}

#[test]
fn a_tombstone_names_one_copy_not_its_call() {
    let mut bench = entombed(secondary(1));
    bench.request(plain(1));
    assert_eq!(bench.turn().started(), [1]);
}

#[test]
fn a_tombstone_lives_as_long_as_its_cancel_says() {
    let mut bench = entombed(secondary(1));
    assert_eq!(bench.core.next_timeout(), Some(bench.now + ms(10)));
    bench.pass(ms(10));
    assert!(bench.core.is_idle());
    assert_eq!(bench.core.stats().tombstones_expired, 1);
    bench.request(secondary(1));
    assert_eq!(bench.turn().started(), [1], "the rest is the client's and the deadline's");
}

#[test]
fn a_tombstone_lives_no_longer_than_this_server_allows() {
    let mut bench = Bench::meshed();
    bench.mesh(Cancel { lifetime: Duration::MAX, ..twin_of(secondary(1)) });
    bench.pass(config().tombstone_life_max);
    assert_eq!(bench.core.tombstones(), 0);
}

#[test]
fn a_cancel_without_a_lifetime_leaves_no_tombstone() {
    let mut bench = Bench::meshed();
    bench.mesh(Cancel { lifetime: ms(0), ..twin_of(secondary(1)) });
    assert_eq!(bench.core.tombstones(), 0);
}

#[test]
fn tombstones_are_bounded_and_the_oldest_makes_room() {
    let mut bench = Bench::meshed();
    (1..=6).for_each(|seq| bench.mesh(twin_of(secondary(seq))));
    assert_eq!(bench.core.tombstones(), 4);
    let stats = bench.core.stats();
    assert_eq!((stats.tombstones_made, stats.tombstones_evicted), (6, 2));
    bench.request(secondary(2));
    assert_eq!(bench.turn().started(), [2]);
    bench.request(secondary(3));
    assert!(ended(secondary(3), How::Withdrawn, Some(0))(bench.turn().one_ended()));
}

#[test]
fn the_same_cancel_twice_is_one_tombstone() {
    let mut bench = entombed(secondary(1));
    bench.mesh(twin_of(secondary(1)));
    assert_eq!((bench.core.tombstones(), bench.core.stats().tombstones_made), (1, 1));
}

#[test]
fn without_room_for_tombstones_copies_run_beside_their_twins() {
    let mut bench = Bench::with(Config { tombstones: 0, ..config() });
    bench.core.on_mesh_up(PEER);
    bench.mesh(twin_of(secondary(1)));
    bench.request(secondary(1));
    assert_eq!(bench.turn().started(), [1]);
}
